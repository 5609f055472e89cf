"""A Python program starts on all nodes at once, by each of the ways; and whether one of the nodes starves."""
from __future__ import annotations

import argparse
import statistics

from ..more.common import Experiment
from ..process import OverLimit
from ..results import Results
from ..runner import say
from ..stage import Stage
from . import environment, ways
from .starts import record, start
from .ways import Mount, Software, Way

REPEATS = 3
LONG = 120  # seconds; slower cases are not repeated


class Starts(Experiment):
    """Nodes that start the same at once. `cases` are ways, or contain one."""

    setting = "mount16"
    ways: tuple[Way, ...] = ()
    limit = 900  # seconds for one start-up

    def __init__(self):
        self.cases = tuple(way.name for way in self.ways)
        self.recorded: dict[str, Software] = {}

    def software(self, a: argparse.Namespace) -> Software:
        at = environment.environment()
        return Software(at, environment.start(at), "bin/python")

    def way(self, case: str) -> tuple[Way, int | None]:
        """And on how many nodes; by default on all."""
        return next(way for way in self.ways if way.name == case), None

    def run(self, results: Results, a: argparse.Namespace) -> int:
        self.recorded.clear()
        return super().run(results, a)

    def measure(self, stage: Stage, case: str, a: argparse.Namespace) -> dict:
        """The run with the middle time, and the times of all."""
        way, count = self.way(case)
        if missing := way.missing():
            return {"ended": f"not here: {missing}"}
        if stage.setting.name not in self.recorded:
            software = self.software(a)
            record(stage, software)
            say(f"  {software.touched / 1e6:.1f} MB are read")
            self.recorded[stage.setting.name] = software
        software = self.recorded[stage.setting.name]
        nodes = list(stage.receivers)[:count]
        runs: list[dict] = []
        while len(runs) < (a.repeats or REPEATS) and not (runs and runs[-1]["slowest"] > LONG):
            try:
                runs.append(start(stage, way, software, nodes, self.limit))
            except OverLimit as e:
                return {"ended": f"not within {self.limit} s", "why": str(e)[:300]}
        runs.sort(key=lambda r: r["slowest"])
        return {"touched": software.touched, "runs": [r["slowest"] for r in runs],
                "spreads": [r["spread"] for r in runs], **runs[len(runs) // 2]}

    def table(self, rows: list[dict]) -> str:
        """The results as Markdown."""
        return "\n".join(self.one_table(name, [r for r in rows if r["setting"] == name])
                         for name in dict.fromkeys(r["setting"] for r in rows))

    def one_table(self, setting: str, rows: list[dict]) -> str:
        done = [r for r in rows if "slowest" in r]
        head = f"## {self.name()} on {setting}\n\n{self.about}."
        if done:
            head += f" {done[0]['touched'] / 1e6:.1f} MB are read."
        lines = [head + "\n", "| way | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
        for row in rows:
            about = self.about_of(row["case"])
            ended = "failed" if "failed" in row else row.get("ended")
            shown = [ended] if ended else [show(row) for show in COLUMNS.values()]
            lines.append(f"| {about} | " + " | ".join(shown + [""] * (len(COLUMNS) - len(shown))) + " |")
        return "\n".join(lines) + "\n"

    def about_of(self, case: str) -> str:
        return self.way(case)[0].about


COLUMNS = {
    "nodes": lambda r: str(r["nodes"]),
    "slowest, s": lambda r: f"{r['slowest']:.1f}",
    "median, s": lambda r: f"{r['median']:.1f}",
    "slowest / median": lambda r: f"{statistics.median(r['spreads']):.2f}",
    "of it the program, s": lambda r: f"{r['program']:.1f}",
    "warm, s": lambda r: f"{r['warm']:.1f}",
    "bound, s": lambda r: f"{r['bound']:.1f}",
    "x the bound": lambda r: f"{r['x']:.2f}",
    "origin, copies": lambda r: f"{r['origin']:.2f}",
    "idle CPU": lambda r: f"{r['idle']:.0%}",
}


class StartUp(Starts):
    about = "all nodes import numpy, scipy and pandas at once, cold"
    ways = (ways.HERE, ways.HYBRID_LIST, ways.HYBRID, ways.LIST_ALONE, ways.FILE, ways.BULK, ways.SSH, ways.TAR)


class Fairness(Starts):
    """The paper's catastrophe: from the second client on, one finishes and the next is choked."""

    about = "2 to 16 nodes, each for itself (file mode): does one starve? By our policy, and by BitTorrent's"
    counts = (2, 4, 8, 16)
    limit = 300

    def __init__(self):
        super().__init__()
        self.cases = tuple(f"{policy}-{n}" for policy in ("tidecast", "classic") for n in self.counts)

    def way(self, case: str) -> tuple[Way, int | None]:
        policy, _, count = case.partition("-")
        return Mount(case, f"file, --policy {policy}", f"--mode file --policy {policy}"), int(count)
