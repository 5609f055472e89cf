"""Our helpers in C, compiled at their first use and after a change."""
from __future__ import annotations

import pathlib
import subprocess

from ..process import Failed
from ..stage import ROOT

HERE = pathlib.Path(__file__).resolve().parent
MADE = ROOT / ".cache/experiments"


def compiled(source: str, name: str, compiler: str, *words: str) -> pathlib.Path:
    """The program or library `name` made of the file `source` here."""
    made = MADE / name
    if not made.exists() or made.stat().st_mtime < (HERE / source).stat().st_mtime:
        MADE.mkdir(parents=True, exist_ok=True)
        p = subprocess.run([compiler, "-O2", "-Wall", *words, "-o", made, HERE / source], capture_output=True, text=True)
        if p.returncode:
            raise Failed(f"{compiler} {source}: {p.stderr}")
    return made
