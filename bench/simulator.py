"""`tidecast sim` as the benchmarks ask it."""
from __future__ import annotations

import json
import subprocess

from bench.measure import Failed
from bench.programs import TIDECAST


def simulate(*words) -> dict:
    """The figures of the one run that the words ask for (see `tidecast sim --help`)."""
    argv = [str(w) for w in (TIDECAST, "--json", "sim", *words)]
    p = subprocess.run(argv, capture_output=True, text=True)
    if p.returncode:
        raise Failed(f"{' '.join(argv)}\n{p.stdout[-2000:]}{p.stderr[-2000:]}")
    return json.loads(p.stdout.splitlines()[-1])["runs"][0]
