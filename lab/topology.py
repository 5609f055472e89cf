"""The description of an emulated cluster: switches, the nodes on them, the links between them.

Pure: text in, `Topology` out. Both forms that a person may write, the short form (forms.py) and the
file (README.md), give the same object, and `to_text` gives the file of any of them. Every `Topology`
that leaves this module or forms.py is valid for the simulator; `buildable` checks whether the lab can build it.
"""
from __future__ import annotations

import re
from dataclasses import dataclass

from .units import TopologyError, chance, count, delay, format_chance, format_rate, rate, size

MAX_NODES, MAX_SWITCHES, MAX_LINKS = 200_000, 20_000, 500_000  # the simulator's
LAB_NODES, LAB_SWITCHES = 1000, 64


@dataclass(frozen=True)
class Node:
    switch: int
    rate: int  # bits per second, each way


@dataclass(frozen=True)
class Link:
    """A link between switches a and b. With `nat`, a is inside: it reaches b, b cannot call it."""

    a: int
    b: int
    rate: int  # bits per second, each way
    delay_us: int = 0  # one way
    loss: float = 0.0  # of packets, each way
    dup: float = 0.0
    reorder: float = 0.0
    queue: int = 0  # bytes, tail drop; 0: the default of the lab
    nat: bool = False

    @property
    def wan(self) -> bool:
        """Whether the user-space link must carry it (this kernel's shapers only know rates)."""
        return bool(self.delay_us or self.loss or self.dup or self.reorder)


@dataclass(frozen=True)
class Topology:
    switches: tuple[str, ...]
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]

    def link_name(self, link: Link) -> str:
        return f"{self.switches[link.a]}-{self.switches[link.b]}"

    def segments(self) -> list[int]:
        """For each switch the number of its subnet: switches joined without NAT share one."""
        groups = Groups(len(self.switches))
        for link in self.links:
            if not link.nat:
                groups.join(link.a, link.b)
        of = [groups.of(i) for i in range(len(self.switches))]
        number = {first: n for n, first in enumerate(sorted(set(of)))}
        return [number[first] for first in of]

    def address(self, node: int) -> str:
        """IPv4 address of a node: 10.77 + its subnet, then its number."""
        return f"10.{77 + self.segments()[self.nodes[node].switch]}.{node // 250}.{node % 250 + 1}"

    def to_text(self) -> str:
        lines = [f"switch {s}" for s in self.switches]
        run: list[Node] = []
        for node in [*self.nodes, None]:
            if run and node != run[0]:
                lines.append(f"nodes {len(run)} {self.switches[run[0].switch]} {format_rate(run[0].rate)}")
                run = []
            if node:
                run.append(node)
        lines += [self._link_text(link) for link in self.links]
        return "\n".join(lines) + "\n"

    def _link_text(self, link: Link) -> str:
        words = ["link", self.switches[link.a], self.switches[link.b], format_rate(link.rate)]
        if link.delay_us:
            words.append(f"delay={link.delay_us}us")
        words += [f"{k}={format_chance(getattr(link, k))}" for k in ("loss", "dup", "reorder") if getattr(link, k)]
        if link.queue:
            words.append(f"queue={link.queue}")
        return " ".join(words + ["nat"] * link.nat)


LINK_OPTIONS = {"delay": ("delay_us", delay), "loss": ("loss", chance), "dup": ("dup", chance),
                "reorder": ("reorder", chance), "queue": ("queue", size)}


def from_text(text: str) -> Topology:
    """A topology from the lines of a file (format: README.md)."""
    switches: dict[str, int] = {}
    nodes: list[Node] = []
    links: list[Link] = []
    for number, line in enumerate(text.split("\n"), 1):
        words = line.split("#")[0].split()
        try:
            match words:
                case []:
                    pass
                case ["switch", name] if re.fullmatch(r"[a-z][a-z0-9]{0,15}", name) and name not in switches:
                    switches[name] = len(switches)
                case ["nodes", many, at, speed] if at in switches and count(many):
                    room(len(nodes) + count(many), len(switches), len(links))
                    nodes += [Node(switches[at], rate(speed))] * count(many)
                case ["link", a, b, speed, *options] if a in switches and b in switches and a != b:
                    links.append(_link(switches[a], switches[b], speed, options))
                case _:
                    raise TopologyError("wanted `switch NAME`, `nodes COUNT SWITCH RATE` or "
                                        "`link SWITCH SWITCH RATE [OPTION=VALUE].. [nat]` with switches named before")
        except TopologyError as e:
            raise TopologyError(f"line {number}: {line.strip()[:80]!r}: {e}") from None
    return checked(Topology(tuple(switches), tuple(nodes), tuple(links)))


def _link(a: int, b: int, speed: str, options: list[str]) -> Link:
    fields: dict = {}
    for word in options:
        key, _, value = word.partition("=")
        if word == "nat":
            fields["nat"] = True
        elif key in LINK_OPTIONS:
            name, read = LINK_OPTIONS[key]
            fields[name] = read(value)
        else:
            raise TopologyError(f"unknown option {word!r}")
    return Link(a, b, rate(speed), **fields)


class Groups:
    """Sets of switches that grow together (union-find)."""

    def __init__(self, n: int):
        self.above = list(range(n))

    def of(self, i: int) -> int:
        """The smallest number in the set of `i`."""
        while self.above[i] != i:
            self.above[i] = i = self.above[self.above[i]]
        return i

    def join(self, i: int, j: int) -> bool:
        """Makes one set of two; False where it was one already."""
        i, j = sorted((self.of(i), self.of(j)))
        self.above[j] = i
        return i != j


def room(nodes: int, switches: int, links: int) -> None:
    """Refuses more than there may be."""
    if not 1 <= nodes <= MAX_NODES or not 1 <= switches <= MAX_SWITCHES or links > MAX_LINKS:
        raise TopologyError(f"{nodes} nodes on {switches} switches with {links} links: wanted 1 to {MAX_NODES} "
                            f"on 1 to {MAX_SWITCHES} with at most {MAX_LINKS}")


def checked(t: Topology) -> Topology:
    """`t`, or the reason why it is not a cluster."""
    room(len(t.nodes), len(t.switches), len(t.links))
    segments, reached, inside = t.segments(), Groups(len(t.switches)), set()
    for link in t.links:
        if not link.nat:
            reached.join(link.a, link.b)
    for link in t.links:
        if link.nat:
            if link.wan:
                raise TopologyError(f"link {t.link_name(link)}: a NAT link has a rate and no delay or loss; "
                                    "put them on a link behind it")
            if segments[link.a] in inside:
                raise TopologyError("a subnet may have only one NAT in front of it")
            inside.add(segments[link.a])
            if not reached.join(link.a, link.b):
                raise TopologyError(f"link {t.link_name(link)}: another path bypasses this NAT")
    if any(reached.of(i) for i in range(len(t.switches))):
        raise TopologyError("the switches are not all connected")
    return t


def buildable(t: Topology) -> Topology:
    """`t`, or the reason why only the simulator can run it."""
    if len(t.nodes) > LAB_NODES or len(t.switches) > LAB_SWITCHES:
        raise TopologyError(f"{len(t.nodes)} nodes on {len(t.switches)} switches: the lab builds at most {LAB_NODES} on "
                            f"{LAB_SWITCHES}; `tidecast sim` takes more")
    groups = Groups(len(t.switches))
    for link in t.links:
        if not groups.join(link.a, link.b):
            raise TopologyError(f"link {t.link_name(link)} closes a ring: the emulated switches run no spanning tree, "
                                "so a ring would flood for ever; `tidecast sim` can run it")
    return t
