"""Data sets: trees of incompressible files, the same each time, and the check of a copy."""
from __future__ import annotations

import os
import pathlib
import random
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from bench.measure import Failed

KB, MB, GB = 10**3, 10**6, 10**9
PER_FOLDER = 1000
MODES = (0o644, 0o600, 0o755, 0o644, 0o644)
EPOCH = 1_300_000_000


@dataclass(frozen=True)
class Set:
    """This many files of one size; with size 0 a mix as in the CMIP archives, of about `count` MB."""
    name: str
    count: int
    size: int

    def files(self) -> Iterator[tuple[str, int]]:
        """Path and size of each file."""
        if not self.size:
            yield from mix(self.count * MB)
            return
        for i in range(self.count):
            yield f"{i // PER_FOLDER:03d}/{i % PER_FOLDER:03d}.dat", self.size

    def scaled(self, by: float) -> Set:
        return Set(self.name, max(2, round(self.count * by)), self.size)


NAMES = ("1KB", "10KB", "1MB", "10MB", "1GB", "cmip")
SIZES = (KB, 10 * KB, MB, 10 * MB, GB, 0)
MILLION = {"million": Set("million", 1_000_000, 100)}  # its memory; only on request
LOOPBACK = {s.name: s for s in map(Set, NAMES, (100_000, 10_000, 1_000, 100, 2, 2_000), SIZES)} | MILLION
# For a long link 2 GB or 200,000 files: the seconds of its start must not dominate the result.
WAN = {s.name: s for s in map(Set, NAMES, (200_000, 200_000, 2_000, 200, 2, 2_000), SIZES)} | MILLION


def mix(total: int) -> Iterator[tuple[str, int]]:
    """As a model's output is: model/experiment/variable, 200 KB to 1 GB, as many files in each octave of size but few of the largest."""
    rng = random.Random("cmip")
    first, left = True, total
    while left > 0:
        size = min(GB, total // 2) if first else int(200 * KB * (500 ** rng.random()))
        size = min(size, max(left, 200 * KB))
        where = f"model{rng.randrange(6)}/experiment{rng.randrange(4)}/variable{rng.randrange(8):02d}"
        yield f"{where}/{total - left:010d}.nc", size
        first, left = False, left - size


def make(folder: pathlib.Path, data: Set) -> tuple[int, int]:
    """Writes the tree; how many files and bytes it has."""
    rng = random.Random(1)
    noise = memoryview(rng.randbytes(2 * MB))
    count = total = 0
    for count, (name, size) in enumerate(data.files(), 1):
        path = folder / name
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        with open(path, "wb", buffering=0) as file:
            done = 0
            while done < size:
                # No two stretches are alike: each is the noise from another place on, and has its number.
                stamp, at = (count << 32 | done // MB).to_bytes(8, "big"), rng.randrange(MB)
                wanted = min(MB, size - done)
                done += os.writev(file.fileno(), [stamp[:wanted], noise[at:at + wanted - min(8, wanted)]])
            os.fchmod(file.fileno(), MODES[count % len(MODES)])
        when = (EPOCH + count) * 10**9 + rng.randrange(10**9)
        os.utime(path, ns=(when, when))
        total += size
    for parent, _, _ in os.walk(folder, topdown=False):
        os.utime(parent, (EPOCH, EPOCH))
    return count, total


def blob(folder: pathlib.Path, path: pathlib.Path) -> pathlib.Path:
    """All bytes of a tree in one file."""
    with open(path, "wb") as out:
        for file in walk(folder):
            with open(folder / file, "rb") as source:
                size = os.fstat(source.fileno()).st_size
                at = 0
                while at < size:
                    at += os.sendfile(out.fileno(), source.fileno(), at, size - at)
    return path


def walk(folder: pathlib.Path) -> Iterator[str]:
    """Paths of the files below, in a fixed order."""
    for parent, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            yield os.path.relpath(os.path.join(parent, name), folder)


def compare(source: pathlib.Path, target: pathlib.Path) -> dict:
    """Fails unless names and contents are the same, byte for byte; returns the other kept properties: modes, and times to the `ns`,
    the `s`, or not."""
    same = subprocess.run(["diff", "-rq", "--no-dereference", source, target], capture_output=True, text=True, errors="replace")
    if same.returncode:
        raise Failed(f"the copy is wrong: {same.stdout[:500]}{same.stderr[:500]}")
    modes = nanos = seconds = True
    for name in walk(source):
        a, b = os.lstat(source / name), os.lstat(target / name)
        modes &= stat.S_IMODE(a.st_mode) == stat.S_IMODE(b.st_mode)
        nanos &= a.st_mtime_ns == b.st_mtime_ns
        seconds &= a.st_mtime_ns // 10**9 == b.st_mtime_ns // 10**9
    return {"modes": modes, "times": "ns" if nanos else "s" if seconds else "no"}


def beginning(whole: pathlib.Path, written: pathlib.Path) -> float:
    """Which part of `whole` was written; fails unless it is most of it, from the first byte on."""
    part = written.stat().st_size / whole.stat().st_size
    if part < 0.8 or subprocess.run(["cmp", "-n", str(written.stat().st_size), whole, written], capture_output=True).returncode:
        raise Failed(f"the copy is wrong ({part:.1%} of the bytes)")
    return part


def progress(source: pathlib.Path, target: pathlib.Path) -> dict:
    """Whole files, and bytes whether of whole files or not, that a copy has brought until now."""
    files = size = 0
    for name in walk(target):
        have = os.lstat(target / name)
        size += min(have.st_blocks * 512, have.st_size)
        files += (source / name).exists() and have.st_size == os.lstat(source / name).st_size
    return {"done_files": files, "done_bytes": size}
