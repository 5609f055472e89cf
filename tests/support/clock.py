"""Programs whose clock is wrong: a library that adds to the time of day, and to nothing else."""
from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

SOURCE = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, id, at);
    const char *off = getenv("CLOCK_OFF_BY");
    if (!failed && id == CLOCK_REALTIME && off)
        at->tv_sec += atol(off);
    return failed;
}
"""


def off_by(folder: pathlib.Path, seconds: int) -> dict[str, str]:
    """The environment of a program whose clock is `seconds` ahead, or behind if that is negative."""
    if not shutil.which("cc"):
        pytest.skip("SKIPPED: a wrong clock needs a C compiler")
    library = folder / "clock.so"
    if not library.exists():
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, "-x", "c", "-"], input=SOURCE.encode(), check=True)
    return {"LD_PRELOAD": str(library), "CLOCK_OFF_BY": str(seconds)}
