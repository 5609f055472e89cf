"""A host of a test's own: network and mount namespaces in which nothing of this machine changes."""
from __future__ import annotations

import pathlib
import subprocess

import pytest
from conftest import needs

from .tidecast import wait_for


def needs_namespaces(*programs: str) -> None:
    """Skips the test where namespaces or programs are missing."""
    needs("unshare", "nsenter", "ip", "sysctl", *programs)
    if subprocess.run(["unshare", "-n", "-m", "true"], capture_output=True).returncode:
        pytest.skip("SKIPPED: this system gives no namespaces")


def enter(start, base: pathlib.Path, setup: str) -> list[str]:
    """Makes namespaces, runs the shell commands `setup` in them, and holds them until the test ends. The words that run a
    program inside."""
    ready = base / "ready"
    script = f"set -e\n{setup}\ntouch {ready}\nexec sleep infinity\n"
    held = start(["unshare", "-n", "-m", "--propagation", "private", "sh", "-c", script])
    wait_for("a host of the test's own", lambda: ready.exists() or held.process.poll() is not None)
    assert held.process.poll() is None, held.err
    return ["nsenter", "-t", str(held.process.pid), "-n", "-m", "--"]
