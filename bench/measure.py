"""Processes under measurement: wall and CPU seconds, peak memory, and the events they print."""
from __future__ import annotations

import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time

LIMIT = 900  # seconds after which a run counts as failed
TICK = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A measured program failed; the message has its last output."""


class Run:
    """One process; `wait` gives its end with `cpu` (seconds) and `rss` (peak, bytes) set."""

    def __init__(self, argv: list, log: pathlib.Path, env: dict | None = None):
        self.argv = [str(a) for a in argv]
        self.log = log
        self.cpu = self.rss = self.code = None
        with open(log, "w") as f:
            self.start = time.monotonic()
            self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.STDOUT,
                                            env={**os.environ, **(env or {})})

    def out(self) -> str:
        return self.log.read_text(errors="replace")

    def until(self, what: str, test):
        """Wait for `test()` to be true while the process runs."""
        deadline = time.monotonic() + LIMIT
        while not (value := test()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"{what}: {' '.join(self.argv)}\n{self.out()[-2000:]}")
            time.sleep(0.01)
        return value

    def wait(self) -> "Run":
        """Wait for success."""
        deadline = time.monotonic() + LIMIT
        while True:
            pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                self.process.kill()
            time.sleep(0.002)
        self.seconds = time.monotonic() - self.start
        self.code = self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu, self.rss = usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024
        if self.code:
            raise Failed(f"exit code {self.code}: {' '.join(self.argv)}\n{self.out()[-2000:]}")
        return self

    def cpu_so_far(self) -> float:
        """CPU seconds of the process until now (for one whose preparation shall not count)."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def peak_rss(self) -> int:
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def stop(self, number: int = signal.SIGINT) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def events(self) -> list[dict]:
        return [json.loads(line) for line in self.out().split("\n")[:-1] if line.startswith("{")]

    def last(self, kind: str) -> dict:
        return next((e for e in reversed(self.events()) if e.get("event") == kind), {})


def save(name: str, results) -> pathlib.Path:
    """Writes results under `name` and the time; where, seen from the project's root."""
    root = pathlib.Path(__file__).resolve().parent.parent
    path = root / "bench/results" / time.strftime(f"{name}-%Y%m%d-%H%M%S.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path.relative_to(root)


def conclude(name: str, results, bad: int, cases: int, goal: float) -> int:
    """Saves the results, prints how many cases are within the goal; returns the exit code."""
    print(f"\n{cases - bad} of {cases} cases within {goal:.0%}; written to {save(name, results)}")
    return int(bad > 0)


def begin(main) -> None:
    """Runs a benchmark's main to the end of the process."""
    try:
        sys.exit(main())
    except Failed as e:
        sys.exit(f"bench: {e}")


def median(rows: list[dict]) -> dict:
    """The median of every number in rows of the same keys."""
    keys = [k for k, v in rows[0].items() if isinstance(v, (int, float))]
    return {k: statistics.median(r[k] for r in rows) for k in keys}


def size_of(text: str) -> int:
    """Bytes of `4GiB`, `512MiB`."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if text.endswith(unit):
            return int(float(text[:-3]) * factor)
    return int(text)
