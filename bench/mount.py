"""`make bench-mount`: a program and a walk from a warm mount beside the same tree on tmpfs, medians of REPEATS (9) runs.

A Python environment imports numpy, scipy and pandas, from tmpfs, from a mount where the files that it reads have arrived (`touched`),
and from one where all have (`whole`), by turns; then 100,000 files (FILES) are walked. As root. Each tree appears at the
environment's own path, in a mount namespace of its own.
"""
from __future__ import annotations

import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from bench.measure import Failed, begin, save  # noqa: E402
from bench.programs import Bench, free_port  # noqa: E402
from bench.transfer import make_files  # noqa: E402
from lab.experiments.mounts.environment import environment, start  # noqa: E402

REPEATS = int(os.environ.get("REPEATS", "9"))
FILES = int(os.environ.get("FILES", "100000"))
TIMED = """set -e; mount --bind "$1" "$2"; begun=$EPOCHREALTIME; eval "$3" > /dev/null; ended=$EPOCHREALTIME; echo "$begun $ended" """


def seconds(tree: pathlib.Path, at: pathlib.Path, command: str) -> float:
    """Of a command that sees `tree` at `at`."""
    p = subprocess.run(["unshare", "--mount", "bash", "-c", TIMED, "bash", tree, at, command], capture_output=True, text=True)
    if p.returncode:
        raise Failed(f"{command}: {p.stderr[-1000:]}")
    begun, ended = map(float, p.stdout.split())
    return ended - begun


class Mounts:
    """Mounts of published trees, each with a cache of its own in memory."""

    def __init__(self, bench: Bench, stack: contextlib.ExitStack):
        self.bench, self.stack = bench, stack

    def mount(self, tree: pathlib.Path, name: str, mode: str) -> pathlib.Path:
        manifest, here, at = self.bench.shm / f"{tree.name}.torrent", f"127.0.0.1:{free_port()}", self.bench.shm / f"mount-{name}"
        if not manifest.exists():
            self.bench.publish(tree, manifest, "--plain", "--format", "v2")
        seed = self.bench.tidecast("seed", "seed", manifest, tree, "--listen", here, "--no-lsd", "--plain")
        self.stack.callback(seed.stop)
        seed.until("seeding", lambda: seed.last("progress") and seed.last("started"))
        cache = self.bench.shm / f"cache-{name}"
        self.bench.tidecast(name, "mount", manifest, at, "--mode", mode, "--cache", cache, "--peer", here, "--plain", "--no-lsd").wait()
        self.stack.callback(self.bench.tidecast, name, "umount", at)
        return at

    def status(self, name: str, at: pathlib.Path) -> dict:
        [mount] = self.bench.tidecast(name, "status", at).wait().last("done")["mounts"]
        return mount

    def whole(self, name: str, at: pathlib.Path) -> None:
        """Waits until all data is there."""
        deadline = time.monotonic() + 300
        while missing := self.status(name, at)["pieces_missing"]:
            if time.monotonic() > deadline:
                raise Failed(f"{missing} pieces have not come")
            time.sleep(0.2)


def by_turns(ways: dict[str, pathlib.Path], at: pathlib.Path, command: str) -> dict[str, float]:
    """The median seconds of each variant, warmed before."""
    for tree in ways.values():
        seconds(tree, at, command)
    rows = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, tree in ways.items():
            rows[name].append(seconds(tree, at, command))
    return {name: statistics.median(row) for name, row in rows.items()}


def program(bench: Bench, mounts: Mounts) -> dict:
    """Importing; and the requests that a warm import sends."""
    at = environment()
    subprocess.run(["cp", "-a", at, bench.shm / "env"], check=True)
    tree = bench.shm / "env"
    ways = {"tmpfs": tree, "touched": mounts.mount(tree, "touched", "file"), "whole": mounts.mount(tree, "whole", "bulk")}
    mounts.whole("whole", ways["whole"])
    command = start(at)
    result = by_turns(ways, at, command)
    requests = {}
    for name in ("touched", "whole"):
        before = mounts.status(name, ways[name])["requests"]
        seconds(ways[name], at, command)
        after = mounts.status(name, ways[name])["requests"]
        requests[name] = {kind: n - before.get(kind, 0) for kind, n in after.items() if n > before.get(kind, 0)}
    return {"seconds": result, "requests": requests}


def walks(bench: Bench, mounts: Mounts) -> dict:
    tree = make_files(bench.shm / "files", FILES, 100)
    ways = {"tmpfs": tree, "mount": mounts.mount(tree, "files", "file")}
    at = bench.shm / "at"
    at.mkdir()
    return {command: by_turns(ways, at, f"{command} {at}") for command in ("find", "ls -lR")}


def tell(title: str, rows: dict[str, float], goal: float) -> None:
    reference = rows["tmpfs"]
    print(f"\n{title}")
    for name, took in rows.items():
        print(f"  {name:<8} {took:6.3f} s" + ("" if name == "tmpfs" else f"  {took / reference:5.2f} x tmpfs (goal {goal:g})"))


def main() -> int:
    if os.geteuid():
        raise Failed("mounting needs root")
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tidecast-bench.") as shm, \
            tempfile.TemporaryDirectory(prefix="tidecast-bench.") as logs, contextlib.ExitStack() as stack:
        bench = Bench(pathlib.Path(shm), pathlib.Path(logs))
        print(f"bench-mount: medians of {REPEATS}, load {os.getloadavg()[0]:.1f} at the start")
        mounts = Mounts(bench, stack)
        results = {"program": program(bench, mounts), "walks": walks(bench, mounts)}
        tell("import numpy, scipy, pandas", results["program"]["seconds"], 1.05)
        for name, sent in results["program"]["requests"].items():
            print(f"  {name}: an import sends {', '.join(f'{n} {kind}' for kind, n in sent.items()) or 'nothing'}")
        for command, rows in results["walks"].items():
            tell(f"{command}, {FILES} files", rows, 1.5)
    print(f"\nwritten to {save('mount', results)}")
    return 0


if __name__ == "__main__":
    begin(main)
