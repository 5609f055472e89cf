"""The cost of a broadcast besides its time: bytes by link as the switches count them, and CPU."""
from __future__ import annotations

import pathlib
import resource

from .. import counters
from ..topology import Topology

BUSY = 0.10  # less idle CPU than that: the figure may be the machine's, not the network's


def ticks() -> tuple[int, int]:
    """CPU ticks of the whole machine so far: idle, all."""
    fields = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return fields[3] + fields[4], sum(fields)


def children() -> float:
    """CPU seconds of all that we started and that has ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Meter:
    """Counts from its making to `end`; the idle share from `go` (when the transfer begins) to `end`."""

    def __init__(self, lab: str):
        self.lab = lab
        self.before = counters.read(lab)
        self.at, self.going = ticks(), False

    def go(self) -> None:
        self.at, self.going = ticks(), True

    def end(self) -> None:
        self.after_ticks, self.after = ticks(), counters.read(self.lab)

    def idle(self) -> float:
        spent = self.after_ticks[1] - self.at[1]
        return (self.after_ticks[0] - self.at[0]) / spent if spent else 1.0

    def results(self, size: int, topology: Topology) -> dict:
        """Copies of the data (headers included: one copy is about 1.05): by link, out of the origin, and sent by the nodes of each
        switch."""
        def copies(kind, key, way):
            return round((self.after[kind][key][way] - self.before[kind][key][way]) / size, 3)

        sent = [copies("nodes", n, "tx") for n in range(len(topology.nodes))]
        by_switch = {name: round(sum(c for c, node in zip(sent, topology.nodes) if node.switch == s), 2)
                     for s, name in enumerate(topology.switches)}
        return {"idle": round(self.idle(), 3),
                "links": {name: [copies("links", name, way) for way in ("fwd", "back")] for name in self.after["links"]},
                "origin": sent[0], "switches": by_switch}
