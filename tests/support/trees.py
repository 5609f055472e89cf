"""Files and directories to publish, made from a seed, and their comparison byte for byte."""
from __future__ import annotations

import hashlib
import os
import pathlib
import random
import stat


def blob(path: pathlib.Path, size: int, seed: int = 1) -> pathlib.Path:
    """A file of `size` pseudo-random bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = random.Random(seed)
    with open(path, "wb") as f:
        left = size
        while left:
            n = min(left, 1 << 20)
            f.write(source.randbytes(n))
            left -= n
    return path


def tree(path: pathlib.Path, seed: int = 1, big: int = 5 << 20) -> pathlib.Path:
    """A directory with the features of real trees: many sizes around the leaf and piece edges, depth, names, an executable,
    an empty file, links (which other clients are free to copy or leave out, see `same`)."""
    sizes = {"empty": 0, "one": 1, "leaf-1": 16383, "leaf": 16384, "leaf+1": 16385, "piece": 65536, "a/b/c/deep": 40_000,
             "spaces and ünïcode.txt": 12_345, "big.bin": big, "a/second.bin": big // 3 + 17}
    for i, (name, size) in enumerate(sizes.items()):
        blob(path / name, size, seed * 100 + i)
    blob(path / "bin/tool", 20_000, seed + 7).chmod(0o755)
    return path


def rich(path: pathlib.Path, seed: int = 1) -> pathlib.Path:
    """`tree` and the features that only Tidecast keeps: symlinks, hard links, empty directories, modes, times, a sparse file."""
    tree(path, seed)
    (path / "link").symlink_to("a/b/c/deep")
    os.link(path / "leaf", path / "a/hard")
    (path / "nothing/here").mkdir(parents=True)
    (path / "one").chmod(0o640)
    os.utime(path / "one", ns=(10**18, 10**18 + 123_000_000))
    with open(path / "sparse", "wb") as f:
        f.write(b"start")
        f.seek(3 << 20)
        f.write(b"end")
    return path


def digest(path: pathlib.Path) -> dict[str, tuple]:
    """The entries under `path`: relative name -> (kind, content hash or target, executable). Padding is left out."""
    found = {}
    for folder, _, files in os.walk(path):
        for name in files:
            p = pathlib.Path(folder) / name
            key = str(p.relative_to(path))
            if key.startswith(".pad/") or "/.pad/" in key or key.startswith(".____padding_file"):
                continue
            if p.is_symlink():
                found[key] = ("link", os.readlink(p), False)
            else:
                h = hashlib.sha256(p.read_bytes()).hexdigest()
                found[key] = ("file", h, bool(p.stat().st_mode & stat.S_IXUSR))
    return found


def same(a: pathlib.Path, b: pathlib.Path, modes: bool = True) -> bool:
    """Whether two files or directories hold the same; without `modes`, as clients that know none would leave it."""
    if a.is_file():
        return b.is_file() and a.read_bytes() == b.read_bytes()
    try:
        left, right = digest(a), digest(b)
    except FileNotFoundError:  # a client that still works renamed one meanwhile
        return False
    if not modes:
        left, right = ({k: v[:2] for k, v in d.items()} for d in (left, right))
        empty = ("file", hashlib.sha256(b"").hexdigest())
        left, right = ({k: v for k, v in d.items() if v != empty} for d in (left, right))
    return left == right


def difference(a: pathlib.Path, b: pathlib.Path) -> str:
    """For a failed assertion: the differences, in a few lines."""
    if a.is_file():
        return f"{a} and {b} differ"
    left, right = digest(a), digest(b)
    lines = [f"missing {k}" for k in left.keys() - right.keys()] + [f"extra {k}" for k in right.keys() - left.keys()]
    lines += [f"differs {k}: {left[k]} {right[k]}" for k in left.keys() & right.keys() if left[k] != right[k]]
    return "\n".join(sorted(lines)[:20])


def assert_same(a: pathlib.Path, b: pathlib.Path) -> None:
    assert same(a, b), difference(a, b)
