"""Processes that a test starts: every wait is bounded, every failure shows the output of the process."""
from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import time

TIMEOUT = 120.0  # seconds; a bound against hanging, never a measure of speed


class ProcFailed(AssertionError):
    """A process ended or behaved otherwise than the test needs; carries its output."""


class Proc:
    """One running program with its output in files; a context manager that never leaves it running."""

    def __init__(self, argv: list, log: pathlib.Path, env: dict | None = None, cwd=None, ns: str | None = None):
        self.argv = [str(a) for a in argv]
        self.out_path = log.with_suffix(".out")
        self.err_path = log.with_suffix(".err")
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd,
                                            env={**os.environ, **(env or {})}, start_new_session=True)

    @property
    def out(self) -> str:
        return self.out_path.read_text(errors="replace")

    @property
    def err(self) -> str:
        return self.err_path.read_text(errors="replace")

    def events(self) -> list[dict]:
        """The JSON objects of its stdout; every complete line must be one."""
        lines = self.out.split("\n")
        return [parse_line(line) for line in lines[:-1] if line.startswith("{")]

    def last(self, kind: str) -> dict:
        found = [e for e in self.events() if e.get("event") == kind]
        if not found:
            raise ProcFailed(f"no {kind!r} event\n{self.story()}")
        return found[-1]

    def wait(self, timeout: float = TIMEOUT) -> int:
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            story = self.story()
            self.kill()
            raise ProcFailed(f"did not end within {timeout} s\n{story}") from None

    def ok(self, timeout: float = TIMEOUT) -> "Proc":
        return self.exits(0, timeout)

    def exits(self, code: int, timeout: float = TIMEOUT) -> "Proc":
        got = self.wait(timeout)
        if got != code:
            raise ProcFailed(f"exit code {got}, wanted {code}\n{self.story()}")
        return self

    def until(self, what: str, test, timeout: float = TIMEOUT):
        """Wait until `test()` is true while the process runs, and return its value."""
        deadline = time.monotonic() + timeout
        while True:
            value = test()
            if value:
                return value
            if self.process.poll() is not None:
                value = test()
                if value:
                    return value
                raise ProcFailed(f"ended ({self.process.returncode}) before: {what}\n{self.story()}")
            if time.monotonic() > deadline:
                raise ProcFailed(f"not within {timeout} s: {what}\n{self.story()}")
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9 of it and its children, and wait."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def rss(self) -> int:
        """Resident bytes now."""
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def story(self) -> str:
        return (f"$ {' '.join(self.argv)}\n--- stdout\n{self.out[-3000:]}\n--- stderr\n{self.err[-5000:]}")

    def __enter__(self) -> "Proc":
        return self

    def __exit__(self, *_) -> None:
        self.kill()


def parse_line(line: str) -> dict:
    try:
        value = json.loads(line)
    except ValueError as e:
        raise ProcFailed(f"not JSON: {line!r}: {e}") from None
    if not isinstance(value, dict) or not isinstance(value.get("event"), str):
        raise ProcFailed(f"not an event: {line!r}")
    return value
