"""Throughput of `tidecast field`: one receiving core's maximum, pacing, loss and parity, whole steps, the page.

    python -m bench.field [peak] [pace] [loss] [steps] [page] [--repeats 5] [--seconds 4]

All of them by default; medians. `loss` is over the lab's link and needs root. The results are written to bench/results.
"""
import argparse
import pathlib
import tempfile

import numpy as np

from bench.field import loss, pace, page, peak, steps
from bench.field.ends import Place
from bench.measure import begin, save

PARTS = ("peak", "pace", "loss", "steps", "page")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="of each measurement")
    parser.add_argument("--sides", type=int, nargs="+", help="values along each side, for steps and the page")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"{', '.join(unknown)}: there are {', '.join(PARTS)}")
    parts, results = args.parts or PARTS, {}
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tidecast-bench.") as home:
        place, source = Place(pathlib.Path(home)), pathlib.Path(home, "field.npy")
        np.save(source, np.random.default_rng(1).standard_normal((2, 128, 128, 128), dtype="f4"))
        if "peak" in parts:
            results["peak"] = peak.measure(place, source, args.repeats, args.seconds)
        if "pace" in parts:
            found = results["peak"]["run, key"] if "peak" in results else peak.highest(
                lambda rate: peak.ours(place, source, "run, key", rate, args.seconds))
            results["pace"] = pace.measure(place, source, args.repeats, args.seconds, found["rate"])
        if "loss" in parts:
            results["loss"] = loss.measure(place)
        if "steps" in parts:
            source.unlink(missing_ok=True)
            results["steps"] = steps.measure(place, args.repeats, args.seconds, args.sides or list(steps.SIZES))
        if "page" in parts:
            results["page"] = page.measure(place, args.repeats, args.seconds, args.sides or list(page.SIDES))
    print(f"written to {save('field', results)}")
    return 0


if __name__ == "__main__":
    begin(main)
