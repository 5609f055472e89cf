"""The `tidecast` program as the tests use it: one object a node, each with a home of its own."""
from __future__ import annotations

import pathlib
import socket
import subprocess
import time

from .proc import Proc, ProcFailed


class Node:
    """A place to run tidecast: its binary, its home, and (in a lab) its namespace."""

    def __init__(self, program: pathlib.Path, home: pathlib.Path, start, lab=None, node: int | None = None):
        self.program, self.home, self.start, self.lab, self.node = program, home, start, lab, node
        home.mkdir(parents=True, exist_ok=True)
        self.env = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "NO_COLOR": "1", "RUST_BACKTRACE": "0"}
        for kind in ("DATA", "STATE", "CONFIG", "CACHE"):
            self.env[f"XDG_{kind}_HOME"] = str(home / kind.lower())
        if lab:
            self.env["TIDECAST_LAB"] = lab.name

    def argv(self, *words) -> list[str]:
        command = [str(self.program), *map(str, words)]
        return self.lab.on(self.node, *command) if self.lab else command

    def run(self, *words) -> Proc:
        """Start `tidecast WORDS`."""
        return self.start(self.argv(*words), env=self.env)

    def __call__(self, *words, code: int = 0, timeout: float = 120) -> Proc:
        """Run `tidecast WORDS` to its end, with that exit code."""
        return self.run(*words).exits(code, timeout)

    def publish(self, path: pathlib.Path, out: pathlib.Path, *words) -> pathlib.Path:
        self("publish", path, "-o", out, *words)
        return out

    def seed(self, manifest: pathlib.Path, path: pathlib.Path, listen: str, *words) -> Proc:
        """Start seeding and wait until it answers on `listen`."""
        proc = self.run("seed", manifest, path, "--listen", listen, *words)
        self.wait_listening(proc, listen)
        return proc

    def share(self, path: pathlib.Path, listen: str, *words) -> tuple[Proc, str]:
        """Start sharing; the process and its ticket."""
        proc = self.run("share", path, "--listen", listen, *words)
        ticket = proc.until("the ticket", lambda: proc.out.split("\n")[0] if "\n" in proc.out else "")
        self.wait_listening(proc, listen)
        return proc, ticket

    def wait_listening(self, proc: Proc, listen: str) -> None:
        if self.lab:
            proc.until(f"listening on {listen}", lambda: self._listens_in_lab(listen))
        else:
            proc.until(f"listening on {listen}", lambda: connects(listen))

    def _listens_in_lab(self, listen: str) -> bool:
        table = subprocess.run(["ip", "netns", "exec", f"{self.lab.name}.n{self.node:03d}", "cat", "/proc/net/tcp", "/proc/net/tcp6"],
                               capture_output=True, text=True).stdout
        wanted = f":{int(listen.rpartition(':')[2]):04X}"
        return any(f[1].endswith(wanted) and f[3] == "0A" for f in map(str.split, table.splitlines()) if len(f) > 3)


def connects(listen: str) -> bool:
    host, _, number = listen.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(number)), timeout=1).close()
        return True
    except OSError:
        return False


def peak_rss(proc: Proc) -> int:
    """Highest resident bytes so far of a process that still runs."""
    for line in pathlib.Path(f"/proc/{proc.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ProcFailed("the process is gone: its memory cannot be read")


def wait_for(what: str, test, timeout: float = 120) -> None:
    deadline = time.monotonic() + timeout
    while not test():
        if time.monotonic() > deadline:
            raise ProcFailed(f"not within {timeout} s: {what}")
        time.sleep(0.1)
