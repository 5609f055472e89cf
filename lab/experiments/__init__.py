"""The experiment of "MPI vs BitTorrent" on the emulated cluster, and more: see README.md here."""
