"""``python3 -m tidecast``: the program."""
import os
import sys

from ._installed import find_tidecast_bin

if __name__ == "__main__":
    try:
        program = find_tidecast_bin()
    except FileNotFoundError as error:
        sys.exit(f"tidecast: {error}")
    os.execv(program, [program, *sys.argv[1:]])
