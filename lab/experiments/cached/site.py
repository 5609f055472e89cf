"""Daemons on all nodes of a stage, and jobs that stage a cache in."""
from __future__ import annotations

import filecmp
import os
import pathlib
import re
import subprocess
from dataclasses import dataclass

from ..meter import Meter
from ..mounts.starts import Gate
from ..process import Failed, Process, wait
from ..stage import ROOT, Stage

PROGRAM = ROOT / "target" / "release" / "tidecast"
JOBS = pathlib.Path(__file__).with_name("jobs")
LOOK = 0.5  # seconds; jobs measure their own time


@dataclass
class Staged:
    """The result of a run: seconds of each job from the plugin's start to its end, in the order of the starts; and its cost."""

    seconds: list[float]
    meter: Meter
    #: seconds of each within the plugin: from when it runs to the end of its work
    inside: list[float]


class Site:
    """Daemons with certificates of one CA; the one of node 0 is the origin. All stores are empty."""

    def __init__(self, stage: Stage):
        self.stage, self.folder = stage, stage.folder / "site"
        stage.clear()
        stage.fresh()
        self.plugin = stage.folder / "tidecast_plugin"
        if not self.plugin.exists():
            self.plugin.symlink_to(PROGRAM)
            self.trust()
        self.daemons = [self.daemon(n) for n in range(stage.count)]
        for daemon in self.daemons:
            daemon.until("a daemon that answers", lambda: "users ask at" in daemon.out(), 60)

    def trust(self) -> None:
        self.folder.mkdir()
        self.tidecast("ca", "init", self.folder, "--name", "the lab")
        for n in range(self.stage.count):
            self.tidecast("ca", "issue", self.folder, f"host:{self.stage.name(n)}", "-o", self.pem(n))
        (self.folder / "trust.toml").write_text('[[root]]\ncertificate = "ca.crt"\ncrl = "ca.crl"\n')

    def pem(self, n: int) -> pathlib.Path:
        return self.folder / f"{self.stage.name(n)}.pem"

    def tidecast(self, *words, n: int | None = None) -> str:
        env = {**os.environ, "TIDECAST_SOCKET": str(self.socket(n or 0)), "HOME": str(self.stage.folder)}
        done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, env=env, timeout=300)
        if done.returncode:
            raise Failed(f"tidecast {' '.join(map(str, words))[:200]}: {done.stderr[-500:]}")
        return done.stdout

    def socket(self, n: int) -> pathlib.Path:
        return self.stage.home(n) / "sock"

    def daemon(self, n: int) -> Process:
        address = f"{self.stage.address(n)}:6980"
        peer = [] if n == 0 else ["--peer", f"{self.stage.name(0)}={self.stage.address(0)}:6980"]
        return self.stage.start(n, [PROGRAM, "daemon", "--dir", self.stage.home(n) / "store", "--socket", self.socket(n), "--name",
                                    self.stage.name(n), "--listen", address, "--trust", self.folder / "trust.toml",
                                    "--certificate", self.pem(n), *peer], f"daemon-{n}")

    def create(self, data: pathlib.Path, method: str) -> str:
        """A cache at the origin; how jobs name it."""
        self.tidecast("cache", "create", "nt", data, "--methods", method)
        return f"tidecast://{self.stage.name(0)}/nt"

    def jobs(self, url: str, nodes: list[int], counts: dict[int, tuple[int, int]], limit: float) -> Staged:
        """Runs a number of jobs at once on each node, several times in sequence; all nodes begin at one instant."""
        gate = Gate(self.stage.folder / "gate")
        started = []
        for n in nodes:
            words = [JOBS, gate.path, *counts[n], self.plugin, url, self.stage.home(n) / "jobs"]
            started.append(self.stage.start(n, words, f"jobs-{n}", {"TIDECAST_SOCKET": str(self.socket(n)), "HOME": "/nonexistent"}))
        for process in started:
            process.until("jobs are ready", lambda: "ready" in process.out(), 60)
        meter = Meter(self.stage.lab)
        meter.go()
        gate.open()
        wait("all jobs are over", lambda: all("\nover" in p.out() for p in started), limit, LOOK)
        meter.end()
        lines = [line.split() for p in started for line in p.out().splitlines() if line.startswith("job ")]
        bad = [line for line in lines if line[3] != "0"]
        if bad or len(lines) != sum(counts[n][0] * counts[n][1] for n in nodes):
            said = next((path.read_text() for n in nodes for path in self.stage.home(n).glob("jobs/*/said") if path.read_text()), "")
            raise Failed(f"{len(bad)} of {len(lines)} jobs failed: {said[-500:]}")
        times = sorted((float(begun), float(ended)) for _, begun, ended, _ in lines)
        inside = [plugin_seconds(path) for n in nodes for path in self.stage.home(n).glob("jobs/*/out")]
        return Staged([ended - begun for begun, ended in times], meter, inside)

    def verify(self, data: pathlib.Path, nodes: list[int]) -> None:
        """Every node's database is that of the origin, byte for byte."""
        names = [path.name for path in data.iterdir()]
        for n in nodes:
            wrong = filecmp.cmpfiles(data, self.stage.home(n) / "jobs" / "job0" / "nt", names, shallow=False)[1:]
            if any(wrong):
                raise Failed(f"{self.stage.name(n)} has other bytes: {wrong}")


def plugin_seconds(out: pathlib.Path) -> float:
    """The plugin's result ad."""
    return float(re.search(r"ConnectionTimeSeconds = ([0-9.E+-]+)", out.read_text())[1])
