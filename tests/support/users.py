"""Tests as a user without any privilege: a program, a home and a place of that user's own."""
from __future__ import annotations

import os
import pathlib
import shutil
import stat
import subprocess
import tempfile

import pytest

from .proc import Proc
from .tidecast import Node, wait_for

NOBODY = 65534
BECOME = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]


class User(Node):
    """A node whose commands run as that user, in a mount namespace in which every user may open /dev/fuse, as on hosts where users
    mount. Their mounts are removed with it."""

    def __init__(self, program: pathlib.Path, base: pathlib.Path, start):
        self.base = base
        device, ready = base / "fuse", base / "ready"
        os.mknod(device, 0o666 | stat.S_IFCHR, os.stat("/dev/fuse").st_rdev)
        device.chmod(0o666)
        holds = f"mount --bind {device} /dev/fuse && touch {ready} && exec sleep infinity"
        self.holder = start(["unshare", "-m", "--propagation", "private", "sh", "-c", holds])
        wait_for("a mount namespace", ready.exists)
        self.before = ["nsenter", "-t", str(self.holder.process.pid), "-m", "--", *BECOME]
        super().__init__(program, base / "home", start)

    def argv(self, *words) -> list[str]:
        return [*self.before, *super().argv(*words)]

    def does(self, *words, code: int = 0) -> Proc:
        """Any command, to its end."""
        return self.start([*self.before, *words], env=self.env).exits(code)

    def mount_table(self) -> str:
        return pathlib.Path(f"/proc/{self.holder.process.pid}/mountinfo").read_text()


def needs_users() -> None:
    """Skip, saying why, where a user can be given no user namespace."""
    if os.geteuid():
        pytest.skip("SKIPPED: becoming another user needs root")
    for program in ("setpriv", "nsenter", "fusermount3"):
        if not shutil.which(program):
            pytest.skip(f"SKIPPED: {program} is not installed (make setup)")
    if subprocess.run([*BECOME, "unshare", "-Urm", "true"], capture_output=True).returncode:
        pytest.skip("SKIPPED: this kernel gives users no user namespaces")


def place() -> pathlib.Path:
    """A directory that belongs to the user, below one that all can reach."""
    base = pathlib.Path(tempfile.mkdtemp(prefix="tidecast-user-", dir="/tmp"))
    base.chmod(0o755)
    for name in ("home", "at"):
        (base / name).mkdir()
        os.chown(base / name, NOBODY, NOBODY)
    return base
