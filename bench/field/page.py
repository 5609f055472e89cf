"""The page of `field view` in chromium without a screen, its graphics computed on the same cores: steps drawn a second while they come as fast
as they can; milliseconds from the user's hand to the picture, and until full detail, while nothing comes and while steps do.
"""
import contextlib
import signal
import statistics
import sys
import time

import numpy as np

from bench.field.ends import Place, receiving, send, steps
from bench.programs import ROOT

sys.path.insert(0, str(ROOT / "tests"))
from support import browser  # noqa: E402

SIDES = {64: 4, 256: 8, 1024: 32}
TURNS = 20
FULL = "tidecast.stats.done && tidecast.volumes.length > 0 && tidecast.volumes.every(v => v.isFinest)"


@contextlib.contextmanager
def viewing(place: Place):
    """The page of a viewer of the receiver, with the first step in it."""
    run = place.run((), "view", "view", "bench", "--listen", "127.0.0.1:0")
    try:
        run.until("it serves", run.events)
        with browser.page(run.events()[0]["url"]) as tab:
            waited(tab, "tidecast.stats.shown > 0")
            yield tab
    finally:
        run.stop(signal.SIGINT)


def waited(tab, what: str) -> None:
    """The page forbids evaluation of text, so it is polled."""
    deadline = time.monotonic() + 600
    while not tab.evaluate(what):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        tab.wait_for_timeout(5)


def turn(tab) -> list[float]:
    """Milliseconds from each press of a key to its picture."""
    answers = []
    for _ in range(TURNS):
        tab.evaluate("tidecast.stats.answer = 0")
        tab.locator("#view").press("ArrowLeft")
        waited(tab, "tidecast.stats.answer > 0")
        answers.append(tab.evaluate("tidecast.stats.answer"))
    return answers


def once(place: Place, source, side: int, streams: int, seconds: float) -> dict:
    shape = ("--shape", f"{side},{side},{side}")
    with receiving(place, streams) as (recv, how):
        sender = send(place, source, "--loop", *how, *shape)
        try:
            recv.until("a step has come", lambda: steps(recv))
            with viewing(place) as tab:
                came, sent, shown = len(steps(recv)), sender.last("progress")["steps"], tab.evaluate("tidecast.stats.shown")
                began = time.monotonic()
                tab.wait_for_timeout(1000 * seconds)
                took = time.monotonic() - began
                got = {"drawn": (tab.evaluate("tidecast.stats.shown") - shown) / took, "received": (len(steps(recv)) - came) / took,
                       "sent": (sender.last("progress")["steps"] - sent) / took}
                got["answer while steps come"] = statistics.median(turn(tab))
                sender.stop(signal.SIGINT)
                began = time.monotonic()
                waited(tab, FULL)
                got["full of the last step"] = 1000 * (time.monotonic() - began)
                answers = turn(tab)
                waited(tab, FULL)
                got |= {"answer": statistics.median(answers), "slowest answer": max(answers), "full": tab.evaluate("tidecast.stats.full")}
                return got
        finally:
            sender.stop(signal.SIGINT)


def measure(place: Place, repeats: int, seconds: float, sides: list[int]) -> list[dict]:
    results = []
    for side in sides:
        source = place.home / "page.raw"
        write(source, side)
        rows = [once(place, source, side, SIDES.get(side, 8), seconds) for _ in range(repeats)]
        got = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        results.append({"side": side, **got})
        print(f"{side}^3: a second {got['sent']:.2f} steps sent, {got['received']:.2f} received, {got['drawn']:.2f} drawn; "
              f"an answer in {got['answer while steps come']:.0f} ms while they come, in {got['answer']:.0f} ms (slowest "
              f"{got['slowest answer']:.0f}) when they do not; full detail {got['full'] / 1000:.2f} s after the last turn, "
              f"{got['full of the last step'] / 1000:.2f} s after the last step")
        source.unlink()
    return results


def write(source, side: int) -> None:
    """Something to look at: a shell of waves, by planes."""
    axis = np.linspace(-1, 1, side, dtype="f4")
    plane = axis[:, None] ** 2 + axis[None, :] ** 2
    with source.open("wb") as out:
        for z in axis:
            far = np.sqrt(plane + z * z)
            (np.sin(24 * far) * np.exp(-3 * (far - 0.6) ** 2)).astype("f4").tofile(out)
