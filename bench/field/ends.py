"""A receiver and a sender of a field, on this machine or at the ends of the lab's link, and their final reports."""
from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import signal
import time
from collections.abc import Iterator

from bench.measure import Run
from bench.programs import TIDECAST

PORT = 7900


@dataclasses.dataclass
class Place:
    """Where they run: words before each one's command, and the receiver's address."""
    home: pathlib.Path
    near: tuple = ()
    far: tuple = ()
    address: str = "127.0.0.1"

    def run(self, before: tuple, name: str, *words) -> Run:
        env = {"HOME": str(self.home), "XDG_STATE_HOME": str(self.home / "state")}
        return Run([*before, TIDECAST, "--json", "field", *words], self.home / name, env)


@contextlib.contextmanager
def receiving(place: Place, streams: int, *flags) -> Iterator[tuple[Run, list]]:
    """A receiver, and the words by which it is sent to."""
    at = f"{place.address}:{PORT}"
    run = place.run(place.far, "recv", "recv", "--listen", at, "--streams", streams, "--name", "bench", *flags)
    try:
        run.until("it listens", run.events)
        words = run.events()[0]["send"].split()
        how = words[words.index("--streams") + 2:]
        yield run, ["--to", at, "--streams", streams, *how]
    finally:
        run.stop()


def send(place: Place, source, *words) -> Run:
    return place.run(place.near, "send", "send", source, *words)


def steps(recv: Run) -> list[dict]:
    """The receiver's reports of the steps so far."""
    return [e for e in recv.events() if e["event"] == "step"]


def lost(those: list[dict]) -> float:
    """The part of these steps' packets that did not come."""
    return 1 - sum(s["received"] for s in those) / sum(s["expected"] for s in those)


@dataclasses.dataclass
class Window:
    """Received and sent data in an interval of a running transfer."""
    sender: dict  # its last words
    sent: int  # steps
    came: list
    seconds: float
    cpu: float  # the receiver's seconds of CPU

    @property
    def rate(self) -> float:
        """Bits of packets a second that came."""
        return sum(s["bytes"] for s in self.came) * 8 / self.seconds


def window(place: Place, source, streams: int, seconds: float, recv_flags: tuple, send_flags: tuple) -> Window:
    """An interval of a transfer without end, after its first step: during that step, memory is new."""
    with receiving(place, streams, *recv_flags) as (recv, how):
        sender = send(place, source, "--loop", *how, *send_flags)
        try:
            recv.until("the first step has come", lambda: steps(recv))
            first, sent = len(steps(recv)), sender.last("progress").get("steps", 0)
            cpu, began = recv.cpu_so_far(), time.monotonic()
            time.sleep(seconds)
            cpu, spent = recv.cpu_so_far() - cpu, time.monotonic() - began
            came, sent = steps(recv)[first:], sender.last("progress")["steps"] - sent
        finally:
            sender.stop(signal.SIGINT)
    return Window(sender.last("done"), sent, came, spent, cpu)
