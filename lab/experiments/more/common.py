"""The common parts of the experiments besides the matrices: a place for the data, and a broadcast with a fault."""
from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import tempfile
import time
from dataclasses import dataclass, field

from ..meter import Meter
from ..process import Failed, Process
from ..results import Results
from ..runner import MB, memory, say
from ..settings import SETTINGS
from ..stage import Stage
from ..tools.tidecast import command, events, transferring


class Experiment:
    """An experiment with a fault or a special load. `cases` are its parts, each with a row of results of its own."""

    about = ""
    setting = "one16"
    cases: tuple[str, ...] = ("",)

    def run(self, results: Results, a: argparse.Namespace) -> int:
        """Measures the missing cases; returns how many failed."""
        failed = 0
        for name in a.settings or [self.setting]:
            wanted = [case for case in self.cases if not a.only or case in a.only]
            left = [case for case in wanted if not any(self.is_row(row, name, case) for row in results.rows)]
            if left:
                with place(a.data) as folder, Stage(SETTINGS[name], folder) as stage:
                    say(f"\n{self.name()} on {name}: {self.about}; one flow brings {stage.goodput * 8 / 1e6:.2f} Mbit/s")
                    failed += sum(self.one(stage, case, results, a) for case in left)
        return failed

    def one(self, stage: Stage, case: str, results: Results, a: argparse.Namespace) -> bool:
        """One case; whether it failed."""
        try:
            row = self.measure(stage, case, a)
        except Failed as e:
            row = {"failed": str(e)}
        finally:
            stage.clear()
        row = results.add({"experiment": self.name(), "setting": stage.setting.name, "case": case, **row})
        shown = {k: v for k, v in row.items() if k not in ("experiment", "setting", "case", "at")}
        say(f"  {case or self.name()}: " + ", ".join(f"{k} {v}" for k, v in shown.items()))
        return "failed" in row

    def measure(self, stage: Stage, case: str, a: argparse.Namespace) -> dict:
        """The figures of a case; raises `Failed` where something is not as it must be."""
        raise NotImplementedError

    def table(self, rows: list[dict]) -> str:
        """The tables and plots of this experiment's rows; most experiments need none."""
        return ""

    def is_row(self, row: dict, setting: str, case: str) -> bool:
        named = row.get("experiment"), row.get("setting"), row.get("case")
        return named == (self.name(), setting, case) and "failed" not in row

    def name(self) -> str:
        return next(name for name, known in MORE.items() if known is self)


MORE: dict[str, Experiment] = {}


@contextlib.contextmanager
def place(data: pathlib.Path | None):
    """A folder for the data that goes when we go: in memory, or below `data`."""
    if data is None:
        with memory() as folder:
            yield folder
        return
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tidecast-experiment.", dir=data))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def size_of(a: argparse.Namespace, mb: int) -> int:
    """Bytes of the first size that was asked for, else of the usual one."""
    return (a.sizes[0] if a.sizes else mb) * MB


@dataclass
class Broadcast:
    """`tidecast bcast` to all receivers of a stage, running or ended."""

    stage: Stage
    source: pathlib.Path
    limit: float
    words: tuple[str, ...] = ()
    told: bool = False
    last: dict = field(default_factory=dict)

    def start(self) -> "Broadcast":
        self.meter = Meter(self.stage.lab)
        self.process: Process = self.stage.start(0, command(self.stage, self.source, *self.words, told=self.told), "bcast")
        self.process.until("workers are ready", lambda: transferring(self.process), self.limit)
        self.began = time.monotonic()
        self.meter.go()
        return self

    def end(self) -> "Broadcast":
        """Waits until it is over, well or not: `last` is its last event."""
        self.process.until_over(self.limit)
        self.meter.end()
        told = events(self.process)
        if not told or told[-1]["event"] not in ("done", "error"):
            raise Failed(self.process.words())
        self.last = told[-1]
        return self

    def complete(self) -> "Broadcast":
        if self.end().last["event"] != "done":
            raise Failed(self.process.words())
        return self

    def seconds(self) -> dict[str, float]:
        """When each host that has all had it, since all were ready."""
        return {h["name"]: h["seconds"] for h in self.last.get("hosts", []) if h["ok"]}

    def workers(self, n: int) -> list[int]:
        return self.stage.pids([n])

    def signal(self, n: int, number: int) -> None:
        for pid in self.workers(n):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def interrupt(self) -> None:
        self.process.popen.send_signal(signal.SIGINT)
        self.process.until_over(60)
