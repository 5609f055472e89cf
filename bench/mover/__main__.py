"""`make bench-mover`: `tidecast copy` beside other movers, from memory to memory, as root.

Each run copies a whole tree into an empty folder on tmpfs, with the source in memory; the copy is compared byte for byte
outside of the measured time. CPU seconds are those of all processes of both sides, daemons included, from when the daemons are ready.
Rivals take turns, so that other load of this machine affects all alike. One line of JSON a run in bench/results/.

`loopback` is this machine. `wan50` and `wan100` are two network namespaces joined by tidecast-wan, 1 Gbit/s and 50 or 100 ms of round
trip; `-loss`: 0.01% of the packets are lost. All have the same congestion control (cubic) and limits of buffers.

`floor-plain` and `floor-tls` are the system calls and the cipher of a copy of small files and nothing else, on all cores: no mover that
renames each file when it is whole is quicker here. `floor-plain-final` and `floor-tls-final` write files under their own names: the
limit for a mover that renames a whole tree once. The tables give beside each result its seconds and CPU as multiples of the latter's.

`python3 -m bench.mover.course` shows one copy on a link that changes while it runs.
"""
from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

from bench.measure import Failed, begin
from bench.mover import data, table
from bench.mover.ours import OURS
from bench.mover.rivals import RIVALS, Iperf, Job, Rival
from bench.mover.sides import PLACES, Side, ended, listening, machine, sweep, watched
from bench.programs import ROOT, free_port

SHM = pathlib.Path("/dev/shm")
ALL = [*OURS, *RIVALS]


class Bench:
    """Data sets, one at a time, and runs on them."""

    def __init__(self, args: argparse.Namespace, base: pathlib.Path):
        self.args, self.base = args, base
        self.out = ROOT / "bench/results" / time.strftime("mover-%Y%m%d-%H%M%S.jsonl")
        self.out.parent.mkdir(exist_ok=True)

    def note(self, row: dict) -> None:
        with open(self.out, "a") as file:
            file.write(json.dumps(row) + "\n")
        print(table.line(row), flush=True)

    def place(self, name: str) -> None:
        with PLACES[name]() as place:
            best = self.bound(place)
            known = data.LOOPBACK if name == "loopback" else data.WAN
            for wanted in self.args.sets:
                self.set(place, known[wanted].scaled(self.args.scale), best)

    def bound(self, place) -> list[str]:
        """The maximum throughput of the place, and iperf3's arguments that reach it."""
        rates = []
        for way in place.ways():
            job = Job(self.base, self.base, self.base, int(self.args.probe * 1e9), self.base, place.far, free_port(), way)
            row = self.once(place, Iperf(), job)
            rates.append((job.bytes / row["seconds"], way))
        rate, way = max(rates)
        self.note({"place": place.name, "rival": "link", "bytes_per_second": rate, "iperf3": " ".join(way)})
        return way

    def set(self, place, known: data.Set, best: list[str]) -> None:
        source, blob = self.base / "source", self.base / "blob"
        source.mkdir()
        try:
            files, size = data.make(source, known)
            data.blob(source, blob)
            trouble = collections.Counter()  # two failures, or one run that does not end, and a rival is out
            for turn in range(self.args.repeats):
                for rival in self.args.only:
                    if trouble[rival.name] < 2 and rival.takes(known.name) and not (rival.loopback_only and place.name != "loopback"):
                        row = {"place": place.name, "set": known.name, "rival": rival.name, "turn": turn, "files": files, "bytes": size}
                        self.turn(place, rival, row, source, blob, best, trouble)
        finally:
            shutil.rmtree(source)
            blob.unlink(missing_ok=True)

    def turn(self, place, rival: Rival, row: dict, source: pathlib.Path, blob: pathlib.Path, best: list[str],
             trouble: collections.Counter) -> None:
        target = self.base / "target"
        target.mkdir()
        try:
            with tempfile.TemporaryDirectory(prefix="tidecast-bench.") as tmp:
                job = Job(source, target, blob, row["bytes"], pathlib.Path(tmp), place.far, free_port(), best)
                row |= self.once(place, rival, job)
            if "done_bytes" in row:
                trouble[rival.name] += 2
            elif rival.verify == "tree":
                row |= data.compare(source, target / rival.inside)
            elif rival.verify == "blob":
                part = data.beginning(blob, target / "all")
                row |= {"seconds": row["seconds"] / part, "written": part}
        except Failed as e:
            row["failed"] = str(e)
            trouble[rival.name] += 1
        finally:
            shutil.rmtree(target)
        self.note(row)

    def once(self, place, rival: Rival, job: Job) -> dict:
        """One copy and its cost."""
        with contextlib.ExitStack() as stack:
            sides = []
            for name, namespace in zip(("near", "far"), place.namespaces):
                side = Side(name, namespace, job.tmp / f"{name}.log")
                stack.callback(side.end)
                sides.append(side)
            near, far = sides
            server = rival.serve(job)
            serving = far.start(server) if server else None
            if serving:
                listening(serving, job.port, far)
            time.sleep(0.2)
            cpu, busy, link = near.group.cpu() + far.group.cpu(), machine(), place.cpu()
            with watched(near, far):
                copying = near.start(rival.copy(job))
                began = time.monotonic()  # making a process takes this program longer than some copies last
                code = ended(copying, self.args.limit)
                if rival.ends and code == 0:
                    code = ended(serving, self.args.limit)
                seconds = time.monotonic() - began
                time.sleep(0.05)  # the watch looks once more at the server
            after = machine()
            used = near.group.cpu() + far.group.cpu() - cpu
            link = place.cpu() - link
            row = {"seconds": seconds, "cpu": used, "near_rss": near.peak, "far_rss": far.peak, "link_cpu": link,
                   "others_cpu": max(0.0, after[0] - busy[0] - used - link), "idle": (after[1] - busy[1]) / (sum(after) - sum(busy))}
            if code is None:
                row |= data.progress(job.source, job.target / rival.inside)
            elif code:
                raise Failed(f"exit code {code}\n{near.tail()}\n{far.tail()}")
            return row | rival.said(job)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-mover", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--places", type=words, default=["loopback", "wan50"], help=",".join(PLACES))
    parser.add_argument("--sets", type=words, default=list(data.NAMES), help=",".join(data.WAN))
    parser.add_argument("--only", type=words, default=[r.name for r in ALL], help=",".join(r.name for r in ALL))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit", type=float, default=300, help="seconds after which a run is over and what has arrived is counted; it is not repeated")
    parser.add_argument("--scale", type=float, default=1, help="a part of the files, for a quick look")
    parser.add_argument("--probe", type=float, default=2, help="GB by which iperf3 finds what a place carries")
    parser.add_argument("--table", type=pathlib.Path, nargs="+", metavar="FILE", help="measure nothing: the table of results that are there")
    args = parser.parse_args()
    for given, known in ((args.places, PLACES), (args.sets, data.WAN), (args.only, [r.name for r in ALL])):
        if unknown := set(given) - set(known):
            parser.error(f"{', '.join(unknown)}: wanted some of {', '.join(known)}")
    args.only = [r for r in ALL if r.name in args.only]
    return args


def main() -> int:
    args = arguments()
    if args.table:
        print(table.table(table.read(args.table)))
        return 0
    for rival in list(args.only):
        if missing := rival.missing():
            print(f"{rival.name} does not take part: no {', '.join(missing)}", file=sys.stderr)
            args.only.remove(rival)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # in order, as at an interrupt
    sweep(SHM)
    with tempfile.TemporaryDirectory(dir=SHM, prefix=f"tidecast-bench.{os.getpid()}.") as base:
        os.chmod(base, 0o755)
        bench = Bench(args, pathlib.Path(base))
        for name in args.places:
            bench.place(name)
    print(table.table(table.read([bench.out])))
    print(f"\nwritten to {bench.out.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    begin(main)
