"""Results on disk: one JSON object a line, a line a run, so that an interrupted experiment can resume.

A run is `ready` and `whole` (seconds), or `ended` (why there is no time: `limit`) or `failed` (a message: to be tried again).
"""
from __future__ import annotations

import json
import pathlib
import statistics
import time
from collections import defaultdict
from typing import NamedTuple

from .meter import BUSY

LONG = 300  # seconds; slower cases are not repeated


class Cell(NamedTuple):
    """One figure of the experiment: a size in megabytes (of a million bytes), a tool and a setting."""

    setting: str
    tool: str
    mb: int


class Results:
    """The runs of one output folder."""

    def __init__(self, folder: pathlib.Path, resume: bool = True):
        self.folder, self.path = folder, folder / "results.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        if not resume and self.path.exists():
            self.path.rename(self.path.with_suffix(time.strftime(".%Y%m%d-%H%M%S.jsonl")))
        self.rows = read(self.path)

    def add(self, row: dict) -> dict:
        row = {**row, "at": round(time.time())}
        self.rows.append(row)
        with open(self.path, "a") as f:
            f.write(json.dumps(row) + "\n")
        return row

    def of(self, cell: Cell) -> list[dict]:
        return [r for r in self.rows if (r.get("setting"), r.get("tool"), r.get("mb")) == cell]

    def enough(self, cell: Cell, repeats: int) -> bool:
        """Whether nothing is left to measure there."""
        rows = [r for r in self.of(cell) if "failed" not in r]
        return len(rows) >= repeats or any("ended" in r or r["ready"] > LONG for r in rows)


def read(path: pathlib.Path) -> list[dict]:
    """The rows of a file; a line that is incomplete because the machine went down does not count."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def cells(rows: list[dict]) -> dict[Cell, dict]:
    """The medians of each cell's runs; a cell without a time keeps its reason."""
    of: dict[Cell, list[dict]] = defaultdict(list)
    for row in rows:
        if "tool" in row:
            of[Cell(row["setting"], row["tool"], row["mb"])].append(row)
    return {cell: summary(group) for cell, group in of.items()}


def summary(rows: list[dict]) -> dict:
    """The median run (of an even number the slower middle one), the runs' number, and whether any was short of CPU."""
    good = sorted((r for r in rows if "ready" in r), key=lambda r: r["x"])
    if not good:
        return next((r for r in rows if "ended" in r), rows[-1])
    median = good[len(good) // 2]
    return {**median, "runs": len(good), "busy": any(r["idle"] < BUSY for r in good),
            "whole": statistics.median(r["whole"] for r in good)}
