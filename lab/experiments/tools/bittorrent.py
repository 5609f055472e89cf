"""Stock BitTorrent clients, each tuned for a cluster: ctorrent, aria2, libtorrent.

The receivers are there and known to the tracker (or to each other) before the origin starts; the time is from its start until the
last receiver reports completion. The whole command is that and the making of the torrent.
"""
from __future__ import annotations

import hashlib
import pathlib
import re
import subprocess
import time

from ..process import Failed, wait
from ..stage import ROOT, Stage
from .base import Done, Job, Times, Tool
from .tidecast import PROGRAM

PORT = 6881
PIECE = "256KiB"
#: Seconds until receivers have found the tracker.
SETTLE = 4


class BitTorrent(Tool):
    tracked = True

    def receive(self, job: Job, torrent: pathlib.Path, n: int, done: Done) -> list:
        """The command of a receiver, which calls `done.hook` when it has all."""
        raise NotImplementedError

    def seed(self, job: Job, torrent: pathlib.Path) -> list:
        raise NotImplementedError

    def finished(self, job: Job, n: int, done: Done) -> float | None:
        """When (since the epoch) node n had all, or None."""
        return done.at(n)

    def settle(self, job: Job) -> float:
        return SETTLE

    def run(self, job: Job) -> Times:
        stage = job.stage
        began = time.monotonic()
        torrent = make_torrent(job)
        made = time.monotonic() - began
        done = Done(stage)
        if self.tracked:
            tracker(stage, torrent)
        for n in stage.receivers:
            stage.start(n, self.receive(job, torrent, n, done), f"{self.name}-{stage.name(n)}")
        time.sleep(self.settle(job))
        job.meter.go()
        seed = stage.start(0, self.seed(job, torrent), f"{self.name}-seed")
        times: dict[int, float] = {}

        def all_done() -> bool:
            for n in stage.receivers:
                if n not in times and (at := self.finished(job, n, done)):
                    times[n] = at
            return len(times) == len(stage.receivers)

        seed.until(f"all {self.name} have it", all_done, job.limit)
        job.meter.end()
        ready = max(times.values()) - seed.began
        self.leave(job)
        stage.clear()
        return Times(ready, made + ready)

    def leave(self, job: Job) -> None:
        """Lets receivers write the data that they still have in memory."""


def make_torrent(job: Job) -> pathlib.Path:
    """A v1 torrent, which all of them know, of the source under the name `copy`."""
    stage = job.stage
    torrent, seed = stage.folder / "copy.torrent", stage.folder / "seed"
    seed.mkdir(exist_ok=True)
    link = seed / "copy"
    link.unlink(missing_ok=True)
    link.hardlink_to(job.source)
    torrent.unlink(missing_ok=True)
    argv = [PROGRAM, "--state-dir", stage.folder / "state", "publish", link, "-o", torrent, "--format", "v1", "--plain",
            "--piece-size", PIECE, "--tracker", f"http://{stage.address(0)}:6969/announce"]
    p = subprocess.run(argv, capture_output=True, text=True)
    if p.returncode:
        raise Failed(f"publish: {p.stderr}")
    return torrent


def tracker(stage: Stage, torrent: pathlib.Path) -> None:
    """opentracker at the origin. Debian's serves only the info-hashes that a file names."""
    data = torrent.read_bytes()
    start = data.index(b"4:infod") + 6
    folder = stage.folder / "tracker"
    folder.mkdir(exist_ok=True)
    (folder / "allowed").write_text(hashlib.sha1(data[start:info_end(data, start)]).hexdigest().upper() + "\n")
    shell = f"cd {folder} && exec opentracker -i {stage.address(0)} -p 6969 -P 6969 -w allowed -d {folder}"
    stage.start(0, ["sh", "-c", shell], "opentracker")
    time.sleep(0.3)


def info_end(data: bytes, at: int) -> int:
    """Where the bencoded value that begins at `at` ends."""
    kind = data[at:at + 1]
    if kind == b"i":
        return data.index(b"e", at) + 1
    if kind in (b"d", b"l"):
        at += 1
        while data[at:at + 1] != b"e":
            at = info_end(data, at)
        return at + 1
    colon = data.index(b":", at)
    return colon + 1 + int(data[at:colon])


class Ctorrent(BitTorrent):
    name, about = "ctorrent", "ctorrent and opentracker"
    needs = ("ctorrent", "opentracker")
    base = ["ctorrent", "-M", "200", "-C", "64", "-p", PORT, "-e", "2"]

    def receive(self, job, torrent, n, done):
        return [*self.base, "-i", job.stage.address(n), "-X", done.hook, "-s", job.stage.target(n), torrent]

    def seed(self, job, torrent):
        return [*self.base, "-i", job.stage.address(0), "-f", "-s", job.stage.folder / "seed/copy", torrent]


class Aria2(BitTorrent):
    name, about = "aria2", "aria2 and opentracker"
    needs = ("aria2c", "opentracker")
    base = ["aria2c", "--no-conf", "--enable-dht=false", "--enable-dht6=false", "--bt-enable-lpd=false", "--disable-ipv6=true",
            "--enable-peer-exchange=true", "--seed-time=60", "--seed-ratio=0.0", "--bt-max-peers=0",
            "--bt-request-peer-speed-limit=1000M", "--file-allocation=none", f"--listen-port={PORT}", "--interface=eth0",
            "--bt-tracker-interval=2", "--disk-cache=64M", "--summary-interval=0", "--console-log-level=warn", "--allow-overwrite=true"]

    def receive(self, job, torrent, n, done):
        return [*self.base, f"--bt-external-ip={job.stage.address(n)}", f"--on-bt-download-complete={done.hook}",
                "-d", job.stage.home(n), torrent]

    def seed(self, job, torrent):
        return [*self.base, "--check-integrity=true", f"--bt-external-ip={job.stage.address(0)}",
                "-d", job.stage.folder / "seed", torrent]

    def leave(self, job):
        """Its cache goes to the file when it ends."""
        stop_gently(job.stage)


def stop_gently(stage: Stage) -> None:
    for process in stage.started:
        process.popen.terminate()
    wait("clients end", lambda: not any(p.running() for p in stage.started), 30)


class Libtorrent(BitTorrent):
    """libtorrent 2.1, tuned; peers are named to each other, which spares it the tracker."""

    name, about = "libtorrent", "libtorrent 2.1, tuned"
    tracked = False
    peer = ROOT / "tests/support/ltpeer.py"
    python = ROOT / ".venv/bin/python"

    def missing(self):
        good = self.python.exists() and not subprocess.run([self.python, "-c", "import libtorrent"], capture_output=True).returncode
        return [] if good else ["libtorrent in .venv (make setup)"]

    def command(self, job, what, torrent, folder, n, peers):
        return [self.python, self.peer, what, torrent, folder, "--listen", f"{job.stage.address(n)}:{PORT}", "--tuned", "--stay",
                *(w for p in peers for w in ("--peer", f"{job.stage.address(p)}:{PORT}"))]

    def receive(self, job, torrent, n, done):
        return self.command(job, "get", torrent, job.stage.home(n), n, range(1, n))

    def seed(self, job, torrent):
        return self.command(job, "seed", torrent, job.stage.folder / "seed", 0, job.stage.receivers)

    def settle(self, job):
        return 3 + job.stage.count * 0.15

    def finished(self, job, n, done):
        """Its log's last line is written when everything is in the file."""
        log = job.stage.logs / f"{self.name}-{job.stage.name(n)}.log"
        return log.stat().st_mtime if re.search("^flushed", log.read_text(), re.M) else None
