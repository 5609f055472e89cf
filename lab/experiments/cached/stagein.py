"""The paper's two experiments: stage-in times by the number of nodes, and by the number of jobs."""
from __future__ import annotations

import argparse
import statistics
import time
from itertools import groupby

from ..more.common import Experiment, place
from ..process import Failed
from ..results import Results
from ..runner import say
from ..settings import Setting
from ..stage import Stage
from . import condor
from .database import database, size
from .site import Site, Staged

NODES = (1, 5, 10, 25, 50)
JOBS = 100
MORE_JOBS = (10, 25, 50, 75, 100)
WAYS = ("swarm", "direct")
# Two cores run all daemons: 50 that move 64 MiB each need about 80 seconds of CPU, which is too much at 20 Mbit/s. The origin has
# 5 times the rate of a node, as submit hosts have; so DIRECT is linear from 5 nodes on.
RATE, ORIGIN, NARROW = "10mbit", "50mbit", "25mbit"
FORMS = {"open": f"single:{{}}@{RATE},origin={ORIGIN}", "nat": f"nat:{{}}@{RATE},bottleneck={NARROW},origin={ORIGIN}"}
LIMIT = 3600


class Cached(Experiment):
    about = "jobs stage a BLAST database in, by swarm and DIRECT, and by HTCondor's own file transfer (the CacheD paper's figures)"
    cases = (*(f"{net}-{way}-{n}" for net in FORMS for n in NODES for way in WAYS),
             *(f"jobs-{way}-{n}" for way in WAYS for n in MORE_JOBS), *(f"jobs-condor-{n}" for n in MORE_JOBS), "links")

    def run(self, results: Results, a: argparse.Namespace) -> int:
        left = [case for case in self.cases if (not a.only or case in a.only)
                and not any(self.is_row(row, row.get("setting"), case) for row in results.rows)]
        failed = 0
        for (net, count), group in groupby(left, key=cluster):
            if net == "condor":
                failed += sum(self.note(results, case, lambda: self.condor(case, a)) for case in group)
                continue
            setting = Setting(f"{net}{count}", FORMS[net].format(count + 1), f"an origin and {count} nodes")
            with place(a.data) as folder, Stage(setting, folder) as stage:
                say(f"\n{setting.form}: one flow brings {stage.goodput * 8 / 1e6:.2f} Mbit/s")
                for case in group:
                    failed += self.note(results, case, lambda: self.measure(stage, case, a))
                    stage.clear()
        return failed

    def note(self, results: Results, case: str, measure) -> bool:
        """Has a case measured and its row kept; whether it failed."""
        began = time.monotonic()
        try:
            row = measure()
        except Failed as e:
            row = {"failed": str(e)}
        net, count = cluster(case)
        results.add({"experiment": self.name(), "setting": f"{net}{count}", "case": case, **row})
        shown = {k: v for k, v in row.items() if k != "seconds"}
        say(f"  {case} ({time.monotonic() - began:.0f} s): " + ", ".join(f"{k} {v}" for k, v in shown.items()))
        return "failed" in row

    def measure(self, stage: Stage, case: str, a: argparse.Namespace) -> dict:
        data = database(a.sizes[0] if a.sizes else 64)
        site = Site(stage)
        nodes = list(stage.receivers)
        if case == "links":
            return links(site, site.create(data, "swarm"), nodes[0])
        net, way, number = case.split("-")
        url = site.create(data, way)
        if net == "jobs":
            # Each node has one slot: it runs its jobs one after the other.
            nodes = nodes[:int(number)]
            counts = {n: (1, share(int(number), len(nodes), at)) for at, n in enumerate(nodes)}
        else:
            counts = {n: (share(JOBS, len(nodes), at), 1) for at, n in enumerate(nodes)}
        staged = site.jobs(url, nodes, counts, LIMIT)
        site.verify(data, nodes)
        return figures(staged, stage, size(data))

    def condor(self, case: str, a: argparse.Namespace) -> dict:
        data = database(a.sizes[0] if a.sizes else 64)
        return condor.stage_in(data, int(case.rpartition("-")[2]), ORIGIN)

    def table(self, rows: list[dict]) -> str:
        if not rows:
            return ""
        lines = [f"## {self.name()}\n", f"{self.about}. Nodes {RATE}, origin {ORIGIN}, NAT {NARROW}; 100 jobs at once, or with `jobs` so many on "
                 "up to 50 nodes of one slot each.\n", "| case | mean, s | slowest, s | total, s | out of the origin, copies | idle CPU |", "|---|---|---|---|---|---|"]
        for row in rows:
            if "mean" in row:
                lines.append(f"| {row['case']} | {row['mean']:.3f} | {row['slowest']:.3f} | {row['total']:.1f} | {row.get('origin', '')} | "
                             f"{row.get('idle', '')} |")
        return "\n".join([*lines, "", *slopes(rows)]) + "\n"


def cluster(case: str) -> tuple[str, int]:
    """The kind of cluster that a case needs, and its nodes beside the origin."""
    if case == "links":
        return "open", 1
    net, way, number = case.split("-")
    if net == "jobs":
        return ("condor", NODES[-1]) if way == "condor" else ("open", NODES[-1])
    return net, int(number)


def share(jobs: int, nodes: int, at: int) -> int:
    """The number of jobs of the node with this index."""
    return jobs // nodes + (at < jobs % nodes)


def figures(staged: Staged, stage: Stage, size: int) -> dict:
    counted = staged.meter.results(size, stage.topology)
    return {"jobs": len(staged.seconds), "mean": round(statistics.mean(staged.seconds), 3), "slowest": round(max(staged.seconds), 3),
            "total": round(sum(staged.seconds), 3), "origin": counted["origin"], "idle": counted["idle"],
            "bound": round(size / stage.goodput, 2), "seconds": [round(s, 3) for s in staged.seconds]}


def links(site: Site, url: str, node: int) -> dict:
    """Jobs that find the cache on their node: one after the other, and 100 at once."""
    site.jobs(url, [node], {node: (1, 1)}, LIMIT)
    one = site.jobs(url, [node], {node: (1, JOBS)}, LIMIT)
    row = {f"{name}_ms": round(1000 * statistics.median(values), 2) for name, values in (("plugin", one.seconds), ("stage_in", one.inside))}
    many = site.jobs(url, [node], {node: (JOBS, 1)}, LIMIT)
    return {**row, "at_once_ms": round(1000 * statistics.mean(many.seconds), 1), "mean": statistics.mean(one.seconds),
            "slowest": max(one.seconds), "total": sum(one.seconds)}


def slopes(rows: list[dict]) -> list[str]:
    """By how much the mean grows from 5 to 50 nodes."""
    mean = {row["case"]: row["mean"] for row in rows if "mean" in row}
    said = []
    for net in FORMS:
        for way in WAYS:
            few, many = mean.get(f"{net}-{way}-5"), mean.get(f"{net}-{way}-50")
            if few and many:
                said.append(f"- {net}, {way}: the mean at 50 nodes is {many / few:.2f} times that at 5 ({(many / few - 1):+.1%})")
    return said
