"""The clusters of the experiment, by name.

The paper (Dichev, Lastovetsky: MPI vs BitTorrent, 2012) has 64 nodes at 1 Gbit/s on up to three switches. Two cores
carry 64 nodes at 20 Mbit/s, or 16 at 50; so sizes and rates have the paper's proportions, not its figures. The delay corresponds to
0.5 ms at the paper's rate: the same share of a segment's time.
"""
from __future__ import annotations

import random
from dataclasses import dataclass, field

from ..forms import parse
from ..topology import Topology


@dataclass(frozen=True)
class Setting:
    """A cluster, and the order of the hosts for programs that use an order."""

    name: str
    form: str
    about: str
    shuffled: bool = False
    #: Settings of every node that differ from the machine's, by path below /proc/sys.
    sysctl: dict[str, str] = field(default_factory=dict, hash=False)

    def topology(self) -> Topology:
        return parse(self.form)

    @property
    def bottleneck(self) -> str | None:
        """The link whose copies are counted."""
        return "s0-s1" if self.form.startswith("bordeaux") else None

    def order(self) -> list[int]:
        """Node numbers; the origin is always the first."""
        nodes = list(range(1, len(self.topology().nodes)))
        if self.shuffled:
            # of this seed: it crosses the first link as often as orders do on average (4 times of 16 nodes, 16 of 64)
            random.Random(15).shuffle(nodes)
        return [0, *nodes]


#: Round trips however small make TCP's segments no larger, as before Linux 5.18.
THIN = {"net/ipv4/tcp_tso_rtt_log": "0"}

_ALL = [
    Setting("one16", "single:16@50mbit", "16 nodes, one switch"),
    Setting("thin14", "single:14@40mbit", "14 nodes, one switch, small TCP segments", sysctl=THIN),
    Setting("thin9", "single:9@100mbit", "9 nodes at 100 Mbit/s, one switch, small TCP segments", sysctl=THIN),
    Setting("site16", "bordeaux:8,6,2@50mbit", "8, 6 and 2 nodes, hosts in switch order"),
    Setting("site16-shuffled", "bordeaux:8,6,2@50mbit", "8, 6 and 2 nodes, hosts shuffled", True),
    Setting("site16-delay", "bordeaux:8,6,2@50mbit,delay=10ms", "8, 6 and 2 nodes, 10 ms on the bottleneck"),
    Setting("mount4", "single:5@100mbit", "an origin and 4 nodes"),
    Setting("mount8", "single:9@100mbit", "an origin and 8 nodes"),
    Setting("mount16", "single:17@100mbit", "an origin and 16 nodes"),
    Setting("mount16-slow", "single:17@50mbit", "an origin and 16 nodes at half the rate: two cores carry it"),
    Setting("one64", "single:64@20mbit", "64 nodes, one switch (figure 3a)"),
    Setting("two55", "bordeaux:55,9@20mbit,bottleneck=200mbit", "55 and 9 nodes, a wide link (figure 3b)"),
    Setting("two32", "bordeaux:32,32@20mbit", "32 and 32 nodes (figure 4a)"),
    Setting("two32-shuffled", "bordeaux:32,32@20mbit", "32 and 32 nodes, hosts shuffled", True),
    Setting("site64", "bordeaux:32,25,7@20mbit", "32, 25 and 7 nodes (figure 4b)"),
    Setting("site64-shuffled", "bordeaux:32,25,7@20mbit", "32, 25 and 7 nodes, hosts shuffled", True),
    Setting("site64-delay", "bordeaux:32,25,7@20mbit,delay=25ms", "32, 25 and 7 nodes, 25 ms on the bottleneck"),
]
SETTINGS = {s.name: s for s in _ALL}
