"""What an emulated cluster looks like: switches, the nodes on them, the links between them.

Pure: text in, `Topology` out. Both forms that a person may write, the short form
(`bordeaux:32,25,7@20mbit`) and the file (README.md), give the same object, and `to_text` gives the
file of any of them. Every `Topology` that leaves this module is valid: the switches form a tree
(the emulated switches run no spanning tree, so a ring would flood for ever) and all counts are bounded.
"""
from __future__ import annotations

import os
import re
from dataclasses import dataclass

MAX_NODES = 1000
MAX_SWITCHES = 64
DEFAULT_RATE = 100_000_000
UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}


class TopologyError(ValueError):
    """The text names no topology; the message says which part and what was wanted."""


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
        of = list(range(len(self.switches)))
        for _ in self.links:
            for link in self.links:
                if not link.nat:
                    of[link.a] = of[link.b] = min(of[link.a], of[link.b])
        names = sorted(set(of))
        return [names.index(s) for s in of]

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
        words += [f"{k}={getattr(link, k)!r}" for k in ("loss", "dup", "reorder") if getattr(link, k)]
        if link.queue:
            words.append(f"queue={link.queue}")
        return " ".join(words + ["nat"] * link.nat)


def rate(text: str) -> int:
    """Bits per second of `40mbit`, `1.5gbit`, `9600bit`."""
    m = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)bit", text.lower())
    bits = int(float(m[1]) * UNITS[m[2]]) if m else 0
    if not 8_000 <= bits <= 1_000_000_000_000:
        raise TopologyError(f"bad rate {text!r}: wanted for example 40mbit (8kbit to 1000gbit)")
    return bits


def format_rate(bits: int) -> str:
    for unit in "gmk":
        if bits % int(UNITS[unit]) == 0:
            return f"{bits // int(UNITS[unit])}{unit}bit"
    return f"{bits}bit"


def delay(text: str) -> int:
    """Microseconds of `10ms`, `250us`, `1s`; at most ten seconds."""
    m = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", text)
    us = float(m[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[m[2]] if m else -1
    if not 0 <= us <= 10_000_000:
        raise TopologyError(f"bad delay {text!r}: wanted for example 10ms (at most 10s)")
    return int(us)


def chance(text: str) -> float:
    """A probability: `0.1%` or `0.001`."""
    try:
        p = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        p = -1.0
    if not 0 <= p < 1:
        raise TopologyError(f"bad probability {text!r}: wanted for example 0.1% (below 100%)")
    return p


def size(text: str) -> int:
    """Bytes of `65536`, `64k`, `2m`."""
    m = re.fullmatch(r"(\d+)([km]?)", text.lower())
    n = int(m[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20}[m[2]] if m else 0
    if not 3000 <= n <= 1 << 30:
        raise TopologyError(f"bad queue {text!r}: wanted bytes, for example 256k (3000 to 1024m)")
    return n


LINK_OPTIONS = {"delay": ("delay_us", delay), "loss": ("loss", chance), "dup": ("dup", chance),
                "reorder": ("reorder", chance), "queue": ("queue", size)}


def parse(spec: str) -> Topology:
    """A topology from its short form, or from the file of that name."""
    if re.match(r"(single|bordeaux|nat):", spec):
        return checked(short(spec))
    if os.path.exists(spec):
        with open(spec, encoding="utf-8") as f:
            return from_text(f.read(1 << 20))
    raise TopologyError(f"{spec!r} is neither single:N@RATE, bordeaux:N,N..@RATE, nat:N@RATE nor a file")


def short(spec: str) -> Topology:
    kind, _, rest = spec.partition(":")
    counts, _, tail = rest.partition("@")
    words = [w for w in (counts + "," + tail).split(",") if w]
    options = dict(w.split("=", 1) for w in words if "=" in w)
    plain = [w for w in words if "=" not in w]
    node_rate = rate(plain.pop()) if tail and plain and "=" not in tail.split(",")[0] else DEFAULT_RATE
    if not plain or not all(re.fullmatch(r"[1-9]\d{0,3}", w) for w in plain):
        raise TopologyError(f"{spec!r}: wanted {kind}:N@RATE with counts of nodes of at least 1")
    sizes = [int(w) for w in plain]
    first = {"rate": rate(options.pop("bottleneck", format_rate(node_rate)))}
    trunk = rate(options.pop("trunk", format_rate(10 * node_rate)))
    for key, (field, read) in LINK_OPTIONS.items():
        if key in options:
            first[field] = read(options.pop(key))
    if options:
        raise TopologyError(f"{spec!r}: unknown option {next(iter(options))!r}")
    if kind == "nat":  # the origin, node 0, outside; everybody else inside
        if len(sizes) != 1 or sizes[0] < 2:
            raise TopologyError(f"{spec!r}: wanted nat:N@RATE, N >= 2 (node 0 is outside)")
        return Topology(("s0", "s1"), (Node(0, node_rate),) + (Node(1, node_rate),) * (sizes[0] - 1),
                        (Link(1, 0, nat=True, **first),))
    if kind == "single" and (len(sizes) != 1 or len(first) > 1 or "bottleneck=" in spec or "trunk=" in spec):
        raise TopologyError(f"{spec!r}: single:N@RATE is one switch: no link can be slower, delayed or lossy")
    if kind == "bordeaux" and len(sizes) < 2:
        raise TopologyError(f"{spec!r}: bordeaux wants two or more switches, for example bordeaux:32,25,7@20mbit")
    links = [Link(0, 1, **first)] if len(sizes) > 1 else []
    links += [Link(i, i + 1, trunk) for i in range(1, len(sizes) - 1)]
    nodes = [Node(s, node_rate) for s, count in enumerate(sizes) for _ in range(count)]
    return Topology(tuple(f"s{i}" for i in range(len(sizes))), tuple(nodes), tuple(links))


def from_text(text: str) -> Topology:
    """A topology from the lines of a file (format: README.md)."""
    switches: list[str] = []
    nodes: list[Node] = []
    links: list[Link] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        try:
            match words:
                case []:
                    pass
                case ["switch", name] if re.fullmatch(r"[a-z][a-z0-9]{0,15}", name) and name not in switches:
                    switches.append(name)
                case ["nodes", count, at, speed] if at in switches and re.fullmatch(r"[1-9]\d{0,3}", count):
                    nodes += [Node(switches.index(at), rate(speed))] * int(count)
                case ["link", a, b, speed, *options] if a in switches and b in switches and a != b:
                    links.append(_link(switches.index(a), switches.index(b), speed, options))
                case _:
                    raise TopologyError("wanted `switch NAME`, `nodes COUNT SWITCH RATE` or "
                                        "`link SWITCH SWITCH RATE [OPTION=VALUE].. [nat]` with switches named before")
        except TopologyError as e:
            raise TopologyError(f"line {number}: {line.strip()!r}: {e}") from None
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


def checked(t: Topology) -> Topology:
    """`t`, or the reason why it cannot be built."""
    if not 1 <= len(t.nodes) <= MAX_NODES or not 1 <= len(t.switches) <= MAX_SWITCHES:
        raise TopologyError(f"{len(t.nodes)} nodes on {len(t.switches)} switches: wanted 1 to {MAX_NODES} on 1 to {MAX_SWITCHES}")
    group = list(range(len(t.switches)))
    for link in t.links:
        if group[link.a] == group[link.b]:
            raise TopologyError(f"link {t.link_name(link)} closes a ring: switches must form a tree")
        old, new = group[link.b], group[link.a]
        group = [new if g == old else g for g in group]
        if link.nat and link.wan:
            raise TopologyError(f"link {t.link_name(link)}: a NAT link has a rate and no delay or loss; put them on a link behind it")
    if len(set(group)) > 1:
        raise TopologyError("not every switch is linked to the others")
    inside = [t.segments()[link.a] for link in t.links if link.nat]
    if len(inside) != len(set(inside)):
        raise TopologyError("a subnet may have only one NAT in front of it")
    return t
