"""Slurm's sbcast, on a real Slurm that is brought up on the lab: its controller on node 0, a slurmd on every node."""
from __future__ import annotations

import os
import time

from ..process import Failed, wait
from ..stage import Stage
from .base import Job, Times, Tool

CONF = """\
ClusterName=lab
SlurmctldHost=n000({controller})
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SlurmdTimeout=60
MessageTimeout=60
SchedulerParameters=sched_interval=1
"""


class Slurm:
    """The daemons. Every node's `local` is its own folder of the stage, as /tmp is on a cluster."""

    def __init__(self, stage: Stage):
        self.stage, self.folder = stage, stage.folder / "slurm"
        self.local = self.folder / "local"
        self.env = {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def up(self) -> None:
        stage, folder = self.stage, self.folder
        for name in ("state", "local", *(f"spool.{stage.name(n)}" for n in range(stage.count))):
            (folder / name).mkdir(parents=True, exist_ok=True)
        conf = CONF.format(controller=stage.address(0), folder=folder)
        names = [stage.name(n) for n in range(stage.count)]
        conf += "".join(f"NodeName={name} NodeAddr={stage.address(n)} CPUs=1 State=UNKNOWN\n" for n, name in enumerate(names))
        conf += f"PartitionName=all Nodes={','.join(names)} Default=YES State=UP MaxTime=INFINITE\n"
        (folder / "slurm.conf").write_text(conf)
        self._munge()
        stage.start(0, ["slurmctld", "-D", "-c"], "slurmctld", self.env)
        stage.fresh()
        for n, name in enumerate(names):
            shell = f"mount --bind {stage.home(n)} {self.local} && exec slurmd -D -N {name}"
            stage.start(n, ["sh", "-c", shell], f"slurmd-{name}", self.env)
        wait("all of Slurm's nodes are idle", lambda: self._idle() == stage.count, 90, 1)

    def _munge(self) -> None:
        """A munged of our own, with a key of our own: the machine's, if it has one, is left alone."""
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o600)
        files = [f"--{name}={self.folder}/munge.{end}" for name, end in (
            ("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]
        self.stage.folder.chmod(0o755)
        munged = self.stage.start(0, ["munged", "--foreground", "--force", *files], "munged")
        munged.until("munge's socket", (self.folder / "munge.socket").exists, 10)

    def _idle(self) -> int:
        out = self.stage.start(0, ["sinfo", "-h", "-t", "idle", "-o", "%D"], "sinfo", self.env).end(60)
        return int(out) if out.strip().isdigit() else 0


class Sbcast(Tool):
    needs = ("slurmctld", "slurmd", "munged", "sbcast", "salloc")

    def __init__(self, name: str, about: str, *words: str):
        self.name, self.about, self.words = name, about, words

    def prepare(self, stage: Stage) -> None:
        self.slurm = Slurm(stage)
        self.slurm.up()

    def run(self, job: Job) -> Times:
        stage = job.stage
        script = stage.folder / "slurm/job"
        sbcast = f"sbcast -f {' '.join(self.words)} {job.source} {self.slurm.local}/copy"
        script.write_text(f"#!/bin/bash\nset -e\ndate +%s.%N\n{sbcast}\ndate +%s.%N\n")
        script.chmod(0o755)
        process = stage.start(0, ["salloc", "-Q", "-N", stage.count, script], self.name, self.slurm.env)
        process.until("the allocation", lambda: "\n" in process.out(), 60)
        job.meter.go()
        out = process.end(job.limit)
        whole = time.time() - process.began
        job.meter.end()
        times = [float(line) for line in out.split()]
        if len(times) != 2:
            raise Failed(process.words())
        return Times(times[1] - times[0], whole)
