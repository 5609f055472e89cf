"""Runs cells: each setting is brought up once, each tool prepared once in it, every copy verified."""
from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
from itertools import groupby
from typing import NamedTuple

from .. import netns
from . import meter
from .meter import BUSY, Meter
from .process import Failed, OverLimit
from .results import Cell, Results
from .settings import SETTINGS
from .stage import Stage
from .tools import TOOLS, Job, Tool

MB = 1_000_000
LIMIT_X = 30  # multiples of the bound after which a run is over
LEAST = 60  # seconds that any run may take


class Wish(NamedTuple):
    """A cell and the number of its runs."""

    cell: Cell
    repeats: int


def say(text: str) -> None:
    print(text, flush=True)


@contextlib.contextmanager
def memory():
    """A folder in memory, as on nodes without a disk, which goes when we go."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tidecast-experiment."))
    # Huge pages halve the cost of writing to it.
    netns.run(["mount", "-t", "tmpfs", "-o", "size=90%,mode=755,nr_inodes=0,huge=within_size", "experiment", str(folder)])
    try:
        yield folder
    finally:
        netns.run(["umount", "-l", str(folder)])
        os.rmdir(folder)


def run(wishes: list[Wish], results: Results) -> int:
    """Measures the missing cells; returns how many have no result."""
    left = [w for w in wishes if not results.enough(w.cell, w.repeats)]
    say(f"{len(left)} of {len(wishes)} cells to measure; results in {results.path}")
    order = list(SETTINGS)
    left.sort(key=lambda w: order.index(w.cell.setting))
    for name, group in groupby(left, key=lambda w: w.cell.setting):
        with memory() as folder, Stage(SETTINGS[name], folder) as stage:
            say(f"\n{name}: {SETTINGS[name].about}; one flow brings {stage.goodput * 8 / 1e6:.2f} Mbit/s")
            for tool, same in groupby(group, key=lambda w: w.cell.tool):
                measure(stage, TOOLS[tool], list(same), results)
    return sum(not results.enough(w.cell, 1) for w in wishes)


def measure(stage: Stage, tool: Tool, wishes: list[Wish], results: Results) -> None:
    """All cells of a tool in a setting."""
    if missing := tool.missing():
        say(f"  {tool.name:<18} left out, not here: {', '.join(missing)} (lab/experiments/setup)")
        return
    try:
        tool.prepare(stage)
        for wish in sorted(wishes, key=lambda w: w.cell.mb):
            while not results.enough(wish.cell, wish.repeats):
                row = results.add(once(stage, tool, wish.cell))
                say(line(row))
                if "ready" not in row:
                    tool.close(stage)
                    tool.prepare(stage)
                    break
    except Failed as e:
        say(f"  {tool.name:<18} failed: {e}")
    finally:
        tool.close(stage)


def once(stage: Stage, tool: Tool, cell: Cell) -> dict:
    """One broadcast, as a row of the results."""
    size = cell.mb * MB
    bound = size / stage.goodput
    row = {**cell._asdict(), "bound": round(bound, 4), "goodput": round(stage.goodput), "nodes": stage.count}
    source = stage.source(size)
    stage.fresh()
    job = Job(stage, source, size, max(LEAST, LIMIT_X * bound), Meter(stage.lab))
    spent = meter.children()
    try:
        times = tool.run(job)
        if wrong := tool.verify(job):
            raise Failed(f"copies that are not the source: {', '.join(wrong)}")
    except OverLimit as e:
        if not job.meter.going:
            return {**row, "failed": f"it did not even begin: {e}"}
        return {**row, "ended": "limit", "limit_x": round(job.limit / bound, 1), "why": str(e)[:300]}
    except Failed as e:
        return {**row, "failed": str(e)}
    finally:
        stage.fresh()
    return {**row, "ready": round(times.ready, 4), "whole": round(times.whole, 4), "x": round(times.ready / bound, 4),
            **job.meter.results(size, stage.topology), "cpu": round(meter.children() - spent, 2), **times.more}


def line(row: dict) -> str:
    head = f"  {row['tool']:<18} {row['mb']:>4} MB "
    if "failed" in row:
        return head + "FAILED " + row["failed"]
    if "ended" in row:
        return head + f"not within {row['limit_x']:.0f} x"
    links = "  ".join(f"{name} [{there:.2f} {back:.2f}]" for name, (there, back) in row["links"].items())
    busy = "  SHORT OF CPU" if row["idle"] < BUSY else ""
    return head + f"{row['ready']:8.2f} s = {row['x']:.3f} x, whole {row['whole']:.2f} s, idle {row['idle']:.0%}{busy}  {links}"

