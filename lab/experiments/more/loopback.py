"""A broadcast to eight processes of this machine, without a network: its CPU cost, stage by stage.

The reference is the work of any such program: send every copy through a socket (iperf3) and hash it (openssl), and hash the source
once. And the whole command is compared with publishing alone and transferring alone.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import threading
from collections import defaultdict

from bench.measure import Failed as NotMeasured
from bench.programs import Bench

from ..meter import children
from ..process import Failed, Process
from ..results import Results
from ..runner import say
from ..stage import CHUNK, same
from ..tools.tidecast import PROGRAM, events
from .common import Experiment, place

PROCESSES = 8
SIZE = 4 << 30
TICK = os.sysconf("SC_CLK_TCK")
LIMIT = 1800


class Loopback(Experiment):
    about = "4 GiB to 8 processes of this machine: CPU seconds by stage; the whole command against its parts"

    def run(self, results: Results, a: argparse.Namespace) -> int:
        if any(self.is_row(row, "loopback", "") for row in results.rows):
            return 0
        say(f"\nloopback: {self.about}")
        with place(a.data) as folder:
            try:
                row = self.figures(folder, a)
            except Failed as e:
                row = {"failed": str(e)}
        row = results.add({"experiment": self.name(), "setting": "loopback", "case": "", **row})
        for key, value in row.items():
            say(f"  {key:<20} {value}")
        return int("failed" in row)

    def figures(self, folder: pathlib.Path, a: argparse.Namespace) -> dict:
        size = a.sizes[0] * 1_000_000 if a.sizes else SIZE
        room = os.statvfs(folder)
        fits = int(room.f_bavail * room.f_frsize * 0.85 / (PROCESSES + 1)) // CHUNK * CHUNK
        if fits < size:
            say(f"  there is room for {fits / (1 << 30):.2f} GiB a process (--data DIR: somewhere else)")
            size = fits
        source = blob(folder / "source", size)
        socket_seconds, hash_seconds = by_iperf(folder, size), by_openssl(source)
        bare = PROCESSES * socket_seconds + (PROCESSES + 1) * hash_seconds
        publish_alone = published(folder, source)
        row = {"gib": round(size / (1 << 30), 3), "publish_alone": publish_alone, "bare_cpu": round(bare, 2)}
        for kind, words in (("tls", ()), ("plain", ("--plain",))):
            alone = transferred(folder, source, kind == "tls")
            figures = broadcast(folder, source, words)
            if wrong := [n for n in range(PROCESSES) if not same(source, folder / f"out/h{n}/copy")]:
                raise Failed(f"copies that are not the source: {wrong}")
            subprocess.run(["rm", "-rf", folder / "out"], check=True)
            row |= {f"{kind}_{k}": v for k, v in figures.items()} | {f"{kind}_cpu_x": round(figures["cpu"] / bare, 2)}
            row[f"{kind}_transfer_alone"] = round(alone, 2)
            row[f"{kind}_whole_x"] = round(figures["whole"] / (publish_alone + alone), 3)
        return row


def blob(path: pathlib.Path, size: int) -> pathlib.Path:
    with open(path, "wb") as f:
        for at in range(0, size, CHUNK):
            f.write(os.urandom(min(CHUNK, size - at)))
    return path


def spent(run) -> float:
    """CPU seconds of the processes that `run()` starts and waits for."""
    before = children()
    run()
    return children() - before


def by_iperf(folder: pathlib.Path, size: int) -> float:
    """CPU seconds of both ends of one stream of this many bytes."""
    def run() -> None:
        server = Process(["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", "5299", "--forceflush"], folder / "iperf3-server.log")
        server.until("iperf3 listens", lambda: "listening" in server.out(), 10)
        Process(["iperf3", "-c", "127.0.0.1", "-p", "5299", "-n", size], folder / "iperf3.log").end(LIMIT)
        server.end(10)

    return spent(run)


def by_openssl(source: pathlib.Path) -> float:
    return spent(lambda: subprocess.run(["openssl", "dgst", "-sha256", source], stdout=subprocess.DEVNULL, check=True))


def published(folder: pathlib.Path, source: pathlib.Path) -> float:
    """Seconds of publishing alone."""
    argv = [PROGRAM, "--json", "--state-dir", folder / "state", "publish", source, "-o", folder / "m.torrent", "--plain",
            "--format", "v2"]
    publish = Process(argv, folder / "publish.log")
    publish.end(LIMIT)
    return events(publish)[-1]["seconds"]


def transferred(folder: pathlib.Path, source: pathlib.Path, private: bool) -> float:
    """Seconds of eight `get` from a seed of previously published data."""
    bench = Bench(folder, folder)
    manifest = folder / "alone.torrent"
    manifest.unlink(missing_ok=True)
    try:
        bench.publish(source, manifest, *(["--private"] if private else ["--format", "v2"]))
        return bench.by_tidecast(source, manifest, getters=PROCESSES, private=private)["seconds"]
    except NotMeasured as e:
        raise Failed(str(e)) from None


def broadcast(folder: pathlib.Path, source: pathlib.Path, words: tuple) -> dict:
    """A broadcast to eight workers that are processes here; seconds, and CPU seconds by the names of its threads."""
    argv = [PROGRAM, "--json", "--state-dir", folder / "state", "bcast", source, "--to", folder / "out/{host}/copy",
            "--hosts", f"h[0-{PROCESSES - 1}]", "--launch", "env HOST={host} {command}", *words]
    before = children()
    process = Process(argv, folder / "bcast.log")
    threads = Threads(process.popen.pid)
    process.end(LIMIT)
    cpu, last = children() - before, events(process)[-1]
    stages = threads.end()
    stages["unseen"] = cpu - sum(stages.values())
    return {"whole": last["seconds"], "hash": last["hash_seconds"], "transfer": last["transfer_seconds"], "cpu": round(cpu, 2),
            "stages": {k: round(v, 2) for k, v in sorted(stages.items(), key=lambda s: -s[1])}}


class Threads:
    """Samples the CPU use of the threads of a process and its children ten times a second."""

    def __init__(self, parent: int):
        self.parent, self.used, self.over = parent, {}, threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self) -> None:
        while not self.over.wait(0.1):
            for pid in (self.parent, *self._children()):
                for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
                    try:
                        head, _, rest = (task / "stat").read_text().rpartition(")")
                    except OSError:
                        continue
                    fields = rest.split()
                    self.used[task.name] = head.partition("(")[2].rstrip("0123456789-"), (int(fields[11]) + int(fields[12])) / TICK

    def _children(self) -> list[str]:
        """By each process's word for its parent: not every kernel lists children."""
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                if int(stat.read_text().rpartition(")")[2].split()[1]) == self.parent:
                    found.append(stat.parent.name)
            except OSError:
                continue
        return found

    def end(self) -> dict[str, float]:
        """CPU seconds by the name of a thread, numbers at its end left out."""
        self.over.set()
        self.thread.join()
        sums: dict[str, float] = defaultdict(float)
        for name, seconds in self.used.values():
            sums[name] += seconds
        return dict(sums)
