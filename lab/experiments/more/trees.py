"""Real trees of files: a software environment of tens of thousands of files; the manifest of a million."""
from __future__ import annotations

import os
import pathlib
import shutil
import stat
import subprocess
import sys
import threading
import time

from ... import counters, netns
from ..process import Failed, wait
from ..runner import say
from ..stage import ROOT, Stage, same
from ..tools.tidecast import PROGRAM
from .common import Broadcast, Experiment, size_of

PACKAGES = ["numpy==2.4.6", "scipy==1.17.1"]
CACHE = ROOT / ".cache/experiments"


class Tree(Experiment):
    about = "2 GB of software in tens of thousands of files, each compared"

    def measure(self, stage: Stage, case: str, a) -> dict:
        environment = software()
        one = bytes_of(environment)
        wanted = size_of(a, 2000)
        room = shutil.disk_usage(stage.folder).free * 0.9 / (stage.count + 1)
        if room < wanted:
            say(f"  there is room for {room / 1e6:.0f} MB on each node (--data DIR: somewhere else)")
        copies = max(1, int(min(wanted, room) / one))
        source = stage.folder / "tree"
        source.mkdir()
        for i in range(copies):
            subprocess.run(["cp", "-a", environment, source / f"env{i}"], check=True)
        size, files = bytes_of(source), sum(len(f) for _, _, f in os.walk(source))
        bound = size / stage.goodput
        stage.fresh()
        broadcast = Broadcast(stage, source, 300 + 10 * bound).start().complete()
        if wrong := [stage.name(n) for n in stage.receivers if different(source, stage.target(n))]:
            raise Failed(f"trees that are not the source: {wrong}")
        ready, counted = broadcast.last["transfer_seconds"], broadcast.meter.results(size, stage.topology)
        return {"mb": round(size / 1e6), "files": files, "bound": round(bound, 2), "ready": ready, "x": round(ready / bound, 3),
                "whole": broadcast.last["seconds"], "hash_seconds": broadcast.last["hash_seconds"],
                "origin": counted["origin"], "idle": counted["idle"]}


def software() -> pathlib.Path:
    """A virtual environment with numpy and scipy, made once."""
    path, whole = CACHE / "env", CACHE / "env.whole"
    if not whole.exists():
        say("  making a virtual environment with numpy and scipy")
        shutil.rmtree(path, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", "--copies", path], check=True)
        subprocess.run([path / "bin/pip", "--quiet", "--disable-pip-version-check", "install", *PACKAGES], check=True)
        whole.touch()
    return path


def bytes_of(tree: pathlib.Path) -> int:
    return sum(p.lstat().st_size for folder, _, files in os.walk(tree) for p in (pathlib.Path(folder) / f for f in files))


def different(a: pathlib.Path, b: pathlib.Path) -> str | None:
    """The first path in which two trees are not the same: names, kinds, links' targets, executable bits, bytes."""
    for folder, folders, files in os.walk(a):
        here, there = pathlib.Path(folder), b / pathlib.Path(folder).relative_to(a)
        if not there.is_dir() or sorted(os.listdir(there)) != sorted(folders + files):
            return str(there)
        for name in folders + files:
            x, y = here / name, there / name
            kinds = [stat.S_IFMT(p.lstat().st_mode) for p in (x, y)]
            if kinds[0] != kinds[1]:
                return str(y)
            if kinds[0] == stat.S_IFLNK and os.readlink(x) != os.readlink(y):
                return str(y)
            if kinds[0] == stat.S_IFREG and ((x.stat().st_mode ^ y.stat().st_mode) & 0o111 or not same(x, y)):
                return str(y)
    return None


class Manifest(Experiment):
    """Every host has the files already (the origin's, mounted for reading), so that nothing travels but the manifest."""

    about = "the manifest of many files (--files): how often does the origin send it?"
    setting = "one64"

    def measure(self, stage: Stage, case: str, a) -> dict:
        source = stage.folder / "many"
        make_many(source, a.files)
        manifest = stage.folder / "many.torrent"
        publish = [PROGRAM, "--state-dir", stage.folder / "state", "publish", source, "-o", manifest, "--plain", "--format", "v2"]
        subprocess.run(publish, check=True, capture_output=True)
        size = manifest.stat().st_size
        bound = size / stage.goodput
        stage.fresh()
        for n in stage.receivers:
            stage.target(n).mkdir()
            netns.run(["mount", "-o", "bind,ro", str(source), str(stage.target(n))])
        try:
            return {"files": a.files, "manifest_mb": round(size / 1e6, 2), "bound": round(bound, 2),
                    **self.spread(stage, source, size, bound)}
        finally:
            stage.clear()
            for n in stage.receivers:
                netns.run(["umount", "-l", str(stage.target(n))])

    def spread(self, stage: Stage, source: pathlib.Path, size: int, bound: float) -> dict:
        """Seconds until every node's port has passed as many bytes as the manifest has, without waiting for the check of the files."""
        broadcast, memory = Broadcast(stage, source, 600 + 30 * bound), Memory(stage)
        before = [n["rx"] for n in counters.read(stage.lab)["nodes"]]
        least = lambda: min(n["rx"] - b for n, b in zip(counters.read(stage.lab)["nodes"][1:], before[1:]))
        broadcast.start()
        wait("everybody has the manifest", lambda: least() >= size or not broadcast.process.running(), broadcast.limit, 0.2)
        if not broadcast.process.running() and least() < size:
            raise Failed(broadcast.process.words())
        ready = time.monotonic() - broadcast.began
        broadcast.meter.end()
        counted = broadcast.meter.results(size, stage.topology)
        return {"ready": round(ready, 2), "x": round(ready / bound, 2), "origin": counted["origin"], "idle": counted["idle"],
                "worker_mb": round(memory.end() / 1e6)}


def make_many(folder: pathlib.Path, count: int) -> None:
    """This many files of a few bytes, a thousand in each folder."""
    for i in range(count):
        where = folder / f"{i // 1000:04d}"
        if i % 1000 == 0:
            where.mkdir(parents=True)
        (where / f"{i % 1000:03d}").write_text(str(i))


class Memory:
    """Looks once a second at the memory of the last node's worker."""

    def __init__(self, stage: Stage):
        self.stage, self.peak, self.over = stage, 0, threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self) -> None:
        while not self.over.wait(1):
            for pid in self.stage.pids([self.stage.count - 1]):
                try:
                    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
                except OSError:
                    continue
                self.peak = max([self.peak, *(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))])

    def end(self) -> int:
        """The most that it had, in bytes."""
        self.over.set()
        self.thread.join()
        return self.peak
