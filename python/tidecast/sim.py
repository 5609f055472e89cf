"""Simulates a broadcast: the engine on a modelled cluster, beside rival algorithms.

    import pandas, tidecast.sim
    table = tidecast.sim.run("leafspine:100,16,40@100gbit", "100GiB", algorithms=["plan", "chain", "nfs"])
    pandas.DataFrame(table).set_index("algorithm")["last"] / table.bound

A run is its seed: the same arguments give the same figures on any machine. docs/simulator.md has topologies, algorithms and faults.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import _native
from ._errors import UsageError
from ._operation import Progress, Task, begin, waiting

__all__ = ["Row", "Table", "run"]

#: The result of one algorithm: ``algorithm``; ``receivers`` that count, how many are ``complete``, and ``lost`` to faults; when
#: half, 99 in 100 and all were complete (``median``, ``p99``, ``last``: seconds, None if never); ``efficiency`` (the bound over
#: ``last``); ``origin_copies`` (payload that left the origin, in copies); of the narrowest link ``narrowest_link``,
#: ``narrowest_bytes``, ``narrowest_copies``, ``narrowest_load``; ``duplicates`` and ``control`` (shares of the data to receive);
#: ``origin_sent``, ``control_bytes``, ``duplicate_bytes``; ``ended`` (seconds); ``events``; ``trace`` (a hash of all events).
Row = dict[str, Any]
_NARROWEST = ("link", "bytes", "copies", "load")


@dataclass(frozen=True)
class Simulated:
    """The arguments of :func:`run`."""

    topology: str
    size: int | str
    algorithms: Sequence[str]
    faults: Sequence[str]
    nodes: int | None
    rate: int | str | None
    origin_rate: int | str | None
    write_rate: int | str | None
    piece_size: int | str | None
    segment: int | str | None
    seed: int
    exact: bool


class Table(list[Row]):
    """A row for each algorithm, as input of ``pandas.DataFrame(table)``.

    :ivar bound: the shortest possible time, seconds
    :ivar limit: the cause of that bound
    :ivar seconds: real time that the simulation took
    :ivar finished: for each row, when each receiver was complete (seconds, None if never)
    :ivar links: for each row, each direction of a link: ``name``, ``bytes``, and the ``rate`` that it can carry, bytes a second
    :ivar fields: all fields of the event ``done``
    """

    def __init__(self, done: dict[str, Any]):
        super().__init__(_row(run) for run in done["runs"])
        self.fields = done
        self.bound: float = done["bound"]["seconds"]
        self.limit: str = done["bound"]["limit"]
        self.seconds: float = done["seconds"]
        self.finished: list[list[float | None]] = [run["finished"] for run in done["runs"]]
        self.links: list[list[dict[str, Any]]] = [run["ports"] for run in done["runs"]]


def _row(run: dict[str, Any]) -> Row:
    row = {name: value for name, value in run.items() if name not in ("narrowest", "finished", "ports")}
    narrowest = run["narrowest"] or {}
    return row | {f"narrowest_{name}": narrowest.get(name) for name in _NARROWEST}


@waiting
def run(topology: str, size: int | str, *, algorithms: Sequence[str] | str = ("plan",), faults: Sequence[str] | str = (),
        nodes: int | None = None, rate: int | str | None = None, origin_rate: int | str | None = None,
        write_rate: int | str | None = None, piece_size: int | str | None = None, segment: int | str | None = None, seed: int = 1,
        exact: bool = False, progress: Progress = False) -> Task[Table]:
    """Simulates a broadcast to a cluster, by one algorithm or several on the same network. Sizes are in bytes and rates in bytes a
    second, or words as for the program (``"10GiB"``, ``"100gbit"``).

    :param topology: a short form (``leafspine:100,16,40@100gbit``), or the path of a file
    :param size: the bytes to broadcast
    :param algorithms: ``plan``, ``swarm``, ``chain``, ``sbcast``, ``classic``, ``nfs`` and others; ``tidecast sim --help`` lists them
    :param faults: ``crash:12@3s``, ``slow:5%=1gbit`` and others, likewise
    :param nodes: the same shape with this many nodes, including the origin (node 0)
    :param rate: of each node's network card; by default the rate of the topology, else 10 Gbit/s
    :param origin_rate: of the origin's
    :param write_rate: the rate at which a node verifies and writes; by default that of its network card
    :param piece_size: a power of two from 16384; by default as :func:`tidecast.publish` chooses
    :param segment: size for algorithms with segments; by default 131072
    :param seed: another seed is another run
    :param exact: a network of rates and delays alone, without headers, ramp-up and queues
    :raises UsageError: there is no such topology, algorithm or fault
    """
    for name, amount in (("size", size), ("rate", rate), ("origin_rate", origin_rate), ("write_rate", write_rate),
                         ("piece_size", piece_size), ("segment", segment)):
        if isinstance(amount, int) and not 0 <= amount < 1 << 63:
            raise UsageError(f"{name}: {amount} is not an amount of bytes")
    words = [algorithms] if isinstance(algorithms, str) else list(algorithms)
    injected = [faults] if isinstance(faults, str) else list(faults)
    what = Simulated(topology, size, words, injected, nodes, rate, origin_rate, write_rate, piece_size, segment, seed, exact)
    return Task(begin(_native.simulate, what), Table, progress)
