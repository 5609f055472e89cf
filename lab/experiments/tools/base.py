"""The interface of every program that is compared."""
from __future__ import annotations

import os
import pathlib
import shutil
from dataclasses import dataclass, field

from ..meter import Meter
from ..stage import Stage


@dataclass
class Times:
    """Seconds. `ready`: from all workers ready to the slowest node having all of it. `whole`: the whole command."""

    ready: float
    whole: float
    more: dict = field(default_factory=dict)


@dataclass
class Job:
    """One broadcast: this file to all nodes of the stage, with a time limit in seconds."""

    stage: Stage
    source: pathlib.Path
    size: int
    limit: float
    meter: Meter


class Done:
    """How programs that call a command when they have all tell us: it makes a file, named as the node."""

    def __init__(self, stage: Stage):
        self.stage, self.folder = stage, stage.folder / "done"
        self.folder.mkdir(exist_ok=True)
        for old in self.folder.iterdir():
            old.unlink()
        self.hook = stage.folder / "has-all"
        self.hook.write_text(f"#!/bin/sh\ntouch {self.folder}/$(cat /proc/sys/kernel/hostname)\n")
        self.hook.chmod(0o755)

    def at(self, n: int) -> float | None:
        """When (since the epoch) node n had all."""
        try:
            return (self.folder / self.stage.name(n)).stat().st_mtime
        except FileNotFoundError:
            return None


class Tool:
    """A broadcast program. `ordered`: it depends on the order of the hosts."""

    name = ""
    about = ""
    ordered = False
    multicast = False
    needs: tuple[str, ...] = ()

    def missing(self) -> list[str]:
        """Programs that it needs and that are not here."""
        path = os.environ["PATH"] + ":/usr/sbin:/sbin"
        return [p for p in self.needs if not shutil.which(p, path=path)]

    def prepare(self, stage: Stage) -> None:
        """Once for each cluster that is up, before its runs."""

    def run(self, job: Job) -> Times:
        """One broadcast; leaves the copies at the stage's targets. Calls `meter.go` and `meter.end` around the transfer."""
        raise NotImplementedError

    def verify(self, job: Job) -> list[str]:
        """The nodes whose copy is wrong or absent."""
        return job.stage.wrong(job.source)

    def close(self, stage: Stage) -> None:
        """Ends the programs that `prepare` started."""
        stage.clear()
