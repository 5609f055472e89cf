"""The mover beside other people's: data sets, two sides of a copy, the rivals, the table. `python3 -m bench.mover --help`."""
