"""A BLAST database made by ncbi-blast+, of random sequences."""
from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

from ..process import Failed
from ..stage import ROOT

LETTERS = bytes(b"ACGT"[byte & 3] for byte in range(256))
SEQUENCE = 1 << 20
MIB = 1 << 20


def database(mib: int) -> pathlib.Path:
    """The folder of a database of about this many MiB (four letters a byte), made once."""
    made = ROOT / ".cache" / "experiments" / f"blast-{mib}"
    if not made.exists():
        if not shutil.which("makeblastdb"):
            raise Failed("makeblastdb is not here (Debian: apt-get install ncbi-blast+)")
        part = made.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        with subprocess.Popen(["makeblastdb", "-in", "-", "-dbtype", "nucl", "-title", "random", "-out", part / "nt"],
                              stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            for number in range(4 * mib * MIB // SEQUENCE):
                process.stdin.write(b">seq%d\n%s\n" % (number, os.urandom(SEQUENCE).translate(LETTERS)))
            process.stdin.close()
        if process.returncode:
            raise Failed(f"makeblastdb ended with {process.returncode}")
        part.rename(made)
    return made


def size(folder: pathlib.Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
