"""Mounts of a test's own: made, watched, and taken away whatever happened."""
from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess

import pytest

from .tidecast import Node, wait_for


def why_not() -> str | None:
    """Why nothing can be mounted here, or None."""
    if os.geteuid():
        return "mounting needs root"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"/dev/fuse: {error}"
    return None


class Mounts:
    """Makes mounts below a directory; `clear` leaves nothing of them."""

    def __init__(self, tmp: pathlib.Path):
        self.tmp, self.servers = tmp, set()

    def mount(self, node: Node, source, at: pathlib.Path, *words, code: int = 0) -> pathlib.Path:
        """Mount with a cache of the node's own."""
        node("mount", source, at, "--cache", node.home / "cache", "--no-lsd", *words, code=code)
        if code == 0:
            self.servers.add(self.status(node, at)["pid"])
        return at

    def status(self, node: Node, at: pathlib.Path) -> dict:
        [mount] = node("status", at, "--json").last("done")["mounts"]
        return mount

    def requests(self, node: Node, at: pathlib.Path) -> dict:
        return self.status(node, at)["requests"]

    def asked(self, node: Node, at: pathlib.Path, act, within: set[str] = frozenset()) -> set[str]:
        """The kinds of requests that an act costs: of five tries, one that cost only those of `within`, else the last.

        The kernel may drop what it has cached at any time, but not each time."""
        for _ in range(5):
            before = self.requests(node, at)
            act()
            after = self.requests(node, at)
            kinds = {kind for kind in after if after[kind] != before[kind]}
            if kinds <= within:
                break
        return kinds

    def kill_server(self, node: Node, at: pathlib.Path) -> None:
        os.kill(self.status(node, at)["pid"], signal.SIGKILL)

    def kill_all(self, node: Node, at: pathlib.Path) -> None:
        """Kill the server and its keeper: no process is left to continue the mount."""
        server = self.status(node, at)["pid"]
        keeper = int(pathlib.Path(f"/proc/{server}/stat").read_text().rsplit(")", 1)[1].split()[1])
        os.kill(keeper, signal.SIGKILL)
        os.kill(server, signal.SIGKILL)
        wait_for("that nobody is left", lambda: not alive(server))

    def clear(self) -> None:
        for line in reversed(pathlib.Path("/proc/self/mountinfo").read_text().splitlines()):
            at = line.split()[4]
            if at.startswith(str(self.tmp)):
                subprocess.run(["umount", "-l", at], capture_output=True)
        for server in self.servers:
            wait_for(f"the end of server {server}", lambda: not alive(server))


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def small_disk(at: pathlib.Path, size: str) -> pathlib.Path:
    """A file system of this many bytes; `Mounts.clear` removes it."""
    at.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", at], check=True)
    return at


def needs_mounts() -> None:
    reason = why_not()
    if reason:
        pytest.skip(f"SKIPPED: {reason}")
    assert shutil.which("umount")
