"""Programs on nodes of the lab: started from here, their output in a file, ended with us whatever happens."""
from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time

from .. import netns, state


class Failed(Exception):
    """A program failed; the message has its last output."""


class OverLimit(Failed):
    """It was still at it when its time was over. That is a result too."""


def wait(what: str, test, limit: float, pause: float = 0.02):
    """The first true value of `test()`, or `OverLimit`."""
    deadline = time.monotonic() + limit
    while not (value := test()):
        if time.monotonic() > deadline:
            raise OverLimit(f"not within {limit:.0f} s: {what}")
        time.sleep(pause)
    return value


class Process:
    """A program; with `node` it runs in that namespace of the lab, under the node's name."""

    def __init__(self, argv: list, log: pathlib.Path, lab: str = "", node: int | None = None, env: dict | None = None):
        self.argv = [str(a) for a in argv]
        self.log = log

        def enter() -> None:
            netns.die_with_parent()
            if node is not None:
                netns.enter(f"{lab}.n{node:03d}", f"n{node:03d}", state.hosts_file(lab))

        with open(log, "w") as out:
            self.began, self.ended = time.time(), 0.0
            self.popen = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                          env={**os.environ, **(env or {})}, preexec_fn=enter, start_new_session=True)

    def out(self) -> str:
        return self.log.read_text(errors="replace")

    def running(self) -> bool:
        if self.popen.poll() is None:
            return True
        self.ended = self.ended or time.time()
        return False

    def until(self, what: str, test, limit: float):
        """Waits for `test()` while the program runs."""
        def ready():
            if value := test():
                return value
            if not self.running():
                raise Failed(f"{what}: it ended with {self.popen.returncode}: {self.words()}")
            return None

        return wait(what, ready, limit)

    def until_over(self, limit: float) -> None:
        """Waits for its end, good or bad."""
        wait(" ".join(self.argv)[:200], lambda: not self.running(), limit)

    def end(self, limit: float) -> str:
        """Waits for a successful end; returns its output."""
        self.until_over(limit)
        if self.popen.returncode:
            raise Failed(f"exit code {self.popen.returncode}: {self.words()}")
        return self.out()

    def words(self) -> str:
        return f"{' '.join(self.argv)[:300]}\n{self.out()[-1500:]}"

    def stop(self, number: int = signal.SIGKILL) -> None:
        """Ends it and all that it started in its session."""
        try:
            os.killpg(self.popen.pid, number)
        except ProcessLookupError:
            pass
        try:
            self.popen.wait(10)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
