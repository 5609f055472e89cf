"""One rank of a memory-to-memory broadcast: runs the given steps, and prints the result of each as a line of JSON.

    rank.py MEETING STEP...      MEETING: mpi:DIR, or HOST:PORT/RANK/SIZE
    STEP: SIZE@ROOT a broadcast of SIZE bytes; ok if they are the root's, with the ranks that missed it
          wait          stays in the group and does nothing

With mpi the lines go to a file of each rank in DIR, since mpirun mixes what several ranks print, within a line too.
"""
import json
import pathlib
import sys
import time

import numpy as np
import tidecast


def pattern(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def say(**fields) -> None:
    print(json.dumps({"event": "step", **fields}), flush=True)


def step(group: tidecast.Group, word: str, number: int) -> None:
    if word == "wait":
        say(waiting=True)
        time.sleep(3600)
    size, root = map(int, word.split("@"))
    data = pattern(size, number)
    mine = data if group.rank == root else np.zeros(size, np.uint8)
    say(calling=word)
    began = time.monotonic()
    try:
        missed = group.bcast(mine, root, timeout=30)
    except tidecast.Error as why:
        return say(step=word, rank=group.rank, error=str(why), kind=type(why).__name__)
    same = bool(np.array_equal(mine, data))
    say(step=word, rank=group.rank, ok=same, missed=missed, seconds=time.monotonic() - began)


def main() -> None:
    meeting, *steps = sys.argv[1:]
    if meeting.startswith("mpi:"):
        group = tidecast.Group()
        sys.stdout = (pathlib.Path(meeting.removeprefix("mpi:")) / str(group.rank)).open("w")
    else:
        at, rank, size = meeting.split("/")
        group = tidecast.Group(group=at, rank=int(rank), size=int(size), secret="of the test")
    with group:
        for number, word in enumerate(steps):
            step(group, word, number)


main()
