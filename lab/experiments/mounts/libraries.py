"""Many shared libraries of many small functions, as the Pynamic benchmark has them, and a program that loads them all.

A library has functions in chains that call one another, compiled once for all libraries; a table of constants that they
read, another in each library; and functions for others to call, which call into the chains and into two libraries made
before. So hundreds of megabytes are linked, not compiled, and no two libraries are the same.
"""
from __future__ import annotations

import argparse
import pathlib
import random
import shutil
import subprocess

from ..native import MADE, compiled
from ..process import Failed
from ..runner import say
from . import ways
from .startup import Starts
from .ways import Software, Way

COUNT = 500
USUAL = 300  # million bytes in all; 8 nodes keep them twice, in the cache and in the kernel's pages
CHAIN = 10  # functions that call each other
ENTRIES = 20  # functions of a library for others to call
BYTES = 145  # of a function and its constant in a library, nearly
HEAD = 17_000  # bytes of a library without any
FLAGS = ["-O0", "-fPIC", "-fvisibility=hidden", "-w"]


def chains(functions: int) -> str:
    """The C of the functions that all libraries have; function n reads constant n."""
    lines = ["extern const long constants[];"]
    for chain in range(0, functions, CHAIN):
        for n in reversed(range(chain, chain + CHAIN)):
            then = "y" if n == chain + CHAIN - 1 else f"f{n + 1}(y + {n})"
            lines.append(f"long f{n}(long x) {{ long y = x * constants[{n}]; y ^= y >> {n % 31 + 1}; return {then}; }}")
    return "\n".join(lines)


def entries(i: int, functions: int) -> str:
    """The C source of library i's own functions."""
    dice = random.Random(i)
    others = before(i)
    lines = [f"long l{other}_{k}(long x);" for other in others for k in range(ENTRIES)]
    for k in range(ENTRIES):
        inner = f"f{CHAIN * dice.randrange(functions // CHAIN)}"
        outer = f"l{dice.choice(others)}_{dice.randrange(ENTRIES)}" if others and k else ""
        shown = '__attribute__((visibility("default")))'
        lines.append(f"long {inner}(long x); {shown} long l{i}_{k}(long x) {{ return {outer}({inner}(x)); }}")
    return "\n".join([*lines, f"const long constants[] = {{{','.join(str(dice.getrandbits(62)) for _ in range(functions))}}};"])


def before(i: int) -> list[int]:
    """The libraries that library i needs."""
    return sorted({i - 1, i // 2}) if i else []


def libraries(size: int, count: int = COUNT) -> pathlib.Path:
    """A tree with this many libraries of this many bytes in all, and `load`, which loads them; made once."""
    path = MADE / f"libraries-{count}-{size}"
    stamp = path.with_suffix(".whole")
    if not stamp.exists():
        say(f"  making {count} libraries of {size / 1e6:.0f} MB in all")
        shutil.rmtree(path, ignore_errors=True)
        (path / "lib").mkdir(parents=True)
        functions = CHAIN * max(ENTRIES, round((size / count - HEAD) / BYTES / CHAIN))
        shared = path / "chains.o"
        gcc(["-c", "-o", shared], chains(functions))
        for i in range(count):
            needed = [f"-l:lib{other}.so" for other in before(i)]
            out = path / f"lib/lib{i}.so"
            gcc(["-shared", "-Wl,-rpath,$ORIGIN", "-o", out], entries(i, functions), shared, "-L", path / "lib", *needed)
        shared.unlink()
        shutil.copy2(compiled("load.c", "load", "gcc"), path / "load")
        stamp.touch()
    return path


def gcc(words: list, text: str, *more) -> None:
    done = subprocess.run(["gcc", *FLAGS, *words, "-x", "c", "-", "-x", "none", *more], input=text, text=True, capture_output=True)
    if done.returncode:
        raise Failed(f"the libraries cannot be made: {done.stderr[-500:]}")


class Libraries(Starts):
    about = f"{COUNT} shared libraries (all of them: --sizes) are loaded on all nodes at once, cold, and a function of each called"
    setting = "mount8"
    ways: tuple[Way, ...] = (ways.HERE, ways.HYBRID_LIST, ways.HYBRID_EXE, ways.HYBRID, ways.FILE, ways.BULK, ways.SSH, ways.TAR)

    def software(self, a: argparse.Namespace) -> Software:
        at = libraries((a.sizes[0] if a.sizes else USUAL) * 1_000_000)
        return Software(at, f"{at}/load {at}/lib {COUNT}", f"lib/lib{COUNT - 1}.so")
