"""The origin goes after one copy; a broadcast is interrupted and given again."""
from __future__ import annotations

import pathlib
import signal
import time

from ... import counters, faults
from ...units import format_rate
from ..process import Failed, OverLimit, wait
from ..stage import Stage
from .common import Broadcast, Experiment, size_of

SLOW = 3  # nodes that are far from having all when the first has it
SLOWER = 4
LEAVE = 100  # seconds in which workers should have gone after all


class OriginKilled(Experiment):
    about = "50 MB, some nodes slow; the origin is killed when it has sent a copy and one node has all: everyone completes"

    def measure(self, stage: Stage, case: str, a) -> dict:
        source = stage.source(size_of(a, 50))
        stage.fresh()
        size = source.stat().st_size
        bound = size / stage.goodput
        for n in range(1, stage.count, stage.count // SLOW)[:SLOW]:
            faults.slow(stage.lab, str(n), format_rate(stage.topology.nodes[n].rate // SLOWER))
        try:
            return {"bound": round(SLOWER * bound, 3), **self.kill(stage, source, bound)}
        finally:
            faults.heal(stage.lab)

    def kill(self, stage: Stage, source: pathlib.Path, bound: float) -> dict:
        """The seconds until the death, and until all nodes have the data; the bound is that of the slow nodes."""
        before = sent(stage)
        broadcast = Broadcast(stage, source, 60 + 20 * SLOWER * bound).start()
        here = lambda: [n for n in stage.receivers if stage.target(n).exists()]
        wait("somebody has all", here, broadcast.limit)
        copies = (sent(stage) - before) / source.stat().st_size
        broadcast.process.popen.send_signal(signal.SIGKILL)
        broadcast.process.until_over(10)
        had, killed = len(here()), time.monotonic() - broadcast.began
        if had == len(stage.receivers):
            raise Failed("everybody had it before the origin was killed")
        wait("everybody has it", lambda: len(here()) == len(stage.receivers), broadcast.limit)
        ready = time.monotonic() - broadcast.began
        stage.verify(source)
        try:
            wait("the workers leave", lambda: not stage.pids(stage.receivers), LEAVE, 0.5)
            left = round(time.monotonic() - broadcast.began - ready, 1)
        except OverLimit:
            left = f"more than {LEAVE}: {len(stage.pids(stage.receivers))} are still there"
        return {"killed_after": round(killed, 2), "origin": round(copies, 2), "had_all": had, "ready": round(ready, 2),
                "x": round(ready / bound / SLOWER, 3), "workers_left_after": left}


def sent(stage: Stage) -> int:
    """Bytes that have left the origin."""
    return counters.read(stage.lab)["nodes"][0]["tx"]


class Rerun(Experiment):
    about = "50 MB; interrupted half-way and given again, then once more when all is there"

    def measure(self, stage: Stage, case: str, a) -> dict:
        source = stage.source(size_of(a, 50))
        stage.fresh()
        size = source.stat().st_size
        bound = size / stage.goodput
        first = Broadcast(stage, source, 60 + 20 * bound).start()
        time.sleep(bound / 2)
        first.interrupt()
        wait("the workers leave", lambda: not stage.pids(stage.receivers), 60)
        runs = [Broadcast(stage, source, 60 + 20 * bound).start().complete() for _ in range(2)]
        stage.verify(source)
        again, nothing = (r.last["received"] / size / len(stage.receivers) for r in runs)
        if again > 0.9:
            raise Failed(f"what was there counted for nothing: {again:.2f} copies a host were received again")
        if nothing:
            raise Failed(f"all was there, and {nothing:.2f} copies a host were received")
        return {"bound": round(bound, 3), "received_again": round(again, 3), "ready_again": runs[0].last["transfer_seconds"],
                "whole_again": runs[0].last["seconds"], "whole_all_there": runs[1].last["seconds"]}
