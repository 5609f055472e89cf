"""The same program started on many nodes at one instant, from a tree that none of them has, and once more when they have it."""
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import statistics
from collections import defaultdict

from ..meter import Meter
from ..process import Failed, Process, wait
from ..stage import Stage
from .ways import RECORD, Software, Way

ONNODE = pathlib.Path(__file__).with_name("onnode")
TICK = os.sysconf("SC_CLK_TCK")
LOOK = 0.2  # seconds; nodes measure their own time


class Gate:
    """Closed while it exists and no process has opened it."""

    def __init__(self, path: pathlib.Path):
        self.path, self.file = path, open(path, "w")
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def open(self) -> None:
        self.file.close()


class Node:
    """The output of the script on one node."""

    def __init__(self, process: Process):
        self.process = process

    def line(self, word: str) -> list[str]:
        return next((line.split()[1:] for line in self.process.out().splitlines() if line.startswith(word + " ")), [])

    def at(self, word: str, *more: str) -> bool:
        """Whether it has come to that word."""
        if not self.process.running() and "\nover\n" not in self.process.out():
            raise Failed(self.process.words())
        return any(line.startswith(" ".join((word, *more))) for line in self.process.out().splitlines())

    def times(self, word: str) -> list[float]:
        return [float(x) for x in self.line(word)]

    def status(self) -> dict:
        """The status that the mount reported."""
        told = [json.loads(line) for line in self.process.out().splitlines() if line.startswith("{")]
        return told[-1]["mounts"][0] if told else {}


def start(stage: Stage, way: Way, software: Software, nodes: list[int], limit: float) -> dict:
    """One start-up on these nodes at once; its figures."""
    stage.clear()
    stage.fresh()
    way.begin(stage, software.at)
    with contextlib.ExitStack() as stack:
        cold, warm = (Gate(stage.folder / f"gate-{name}") for name in ("cold", "warm"))
        stack.callback(warm.open)
        stack.callback(cold.open)
        started = [Node(script(stage, way, software, n, cold, warm)) for n in nodes]
        all_are = lambda *words: lambda: all(node.at(*words) for node in started)
        wait("the nodes are there", all_are("ready", "for", str(cold.path)), 60, LOOK)
        meter = Meter(stage.lab)
        meter.go()
        cold.open()
        wait(f"all nodes have started ({way.name})", all_are("cold"), limit, LOOK)
        meter.end()
        spent = cpu(stage)
        warm.open()
        wait("all have started again", all_are("over"), limit, LOOK)
    return {**figures(stage, software, started, meter), "cpu": spent}


def script(stage: Stage, way: Way, software: Software, n: int, cold: Gate, warm: Gate) -> Process:
    env = {"BRING": way.bring(stage, software, n), "START": software.start, "ASK": way.ask(software.at)}
    return stage.start(n, [ONNODE, cold.path, warm.path], f"start-{n}", env)


def figures(stage: Stage, software: Software, started: list[Node], meter: Meter) -> dict:
    """Seconds from the command that brings the tree to the program's end, by the slowest node and the middle one."""
    cold = [node.times("cold") for node in started]
    whole = sorted(c - a for a, _, c in cold)
    warm = max(b - a for a, b in (node.times("warm") for node in started))
    bound = software.touched / stage.goodput + warm
    counted = meter.results(max(software.touched, 1), stage.topology)
    return {"nodes": len(started), "slowest": round(whole[-1], 2), "median": round(statistics.median(whole), 2),
            "spread": round(whole[-1] / statistics.median(whole), 3), "brought": round(max(b - a for a, b, _ in cold), 2),
            "program": round(max(c - b for _, b, c in cold), 2), "warm": round(warm, 2), "bound": round(bound, 2),
            "x": round(whole[-1] / bound, 3), "origin": counted["origin"], "idle": counted["idle"],
            **mounted([node.status() for node in started])}


def cpu(stage: Stage) -> dict[str, float]:
    """CPU seconds of the processes on the nodes and at the origin, by the programs' names, with ended children."""
    sums: dict[str, float] = defaultdict(float)
    for pid in stage.pids(range(stage.count)):
        with contextlib.suppress(OSError):
            head, _, rest = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            sums[head.partition("(")[2]] += sum(map(int, rest.split()[11:15])) / TICK
    return {name: round(seconds, 1) for name, seconds in sums.items()}


def mounted(told: list[dict]) -> dict:
    """The sums of the mounts' statuses; empty for methods without Tidecast's mounts."""
    if not all(told):
        return {}
    assert len({one["pid"] for one in told}) == len(told), "each node has a server of its own"
    sums = {key: sum(one[key] for one in told) for key in ("from_origin", "from_peers", "duplicate", "misses")}
    return {**sums, "requests": {kind: sum(one["requests"][kind] for one in told) for kind in told[0]["requests"]},
            "lost": [(one["path"], round(one["longest"], 2)) for one in told[-1]["slowest"][:3]]}


def record(stage: Stage, software: Software) -> None:
    """Records the reads of the start-up on one node, as the list for the others."""
    path = stage.folder / f"{software.at.name}.list"
    way = RECORD
    stage.clear()
    stage.fresh()
    way.begin(stage, software.at)
    for gate in ("gate-cold", "gate-warm"):
        (stage.folder / gate).touch()
    env = {"BRING": way.bring(stage, software, 1), "START": software.start, "ASK": f"umount {software.at}"}
    stage.start(1, [ONNODE, stage.folder / "gate-cold", stage.folder / "gate-warm"], "record", env).end(300)
    wait("the list is written", path.exists, 60)
    software.touched = listed(path, software.at)


def listed(path: pathlib.Path, at: pathlib.Path) -> int:
    """Bytes that a recorded list names."""
    total = 0
    for line in path.read_text().splitlines()[1:]:
        name, _, part = line.partition("\t")
        total += int(part.partition("+")[2]) if part else (at / name).stat().st_size
    return total
