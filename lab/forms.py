"""The short forms of topologies, `KIND:COUNTS@RATE,OPTION=VALUE..`, for command lines.

The simulator reads the same forms (`crates/sim/src/topology`); a test keeps the two equal to the byte.
"""
from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, replace

from .topology import LINK_OPTIONS, Link, Node, Topology, checked, from_text, room
from .units import MAX_RATE, MIN_RATE, TopologyError, count, delay, rate, ratio

DEFAULT_RATE = 100_000_000


@dataclass
class Form:
    """A short form taken apart; the builder of its kind takes the options that it knows."""

    spec: str
    counts: list[int]
    rate: int
    options: dict[str, str]

    def wrong(self, wanted: str) -> TopologyError:
        return TopologyError(f"{self.spec!r}: {wanted}")

    def take_rate(self, key: str, default: int) -> int:
        return rate(self.options.pop(key)) if key in self.options else min(default, MAX_RATE)

    def take_link(self, a: int, b: int, bits: int, **fields) -> Link:
        for key, (field, read) in LINK_OPTIONS.items():
            if key in self.options:
                fields[field] = read(self.options.pop(key))
        return Link(a, b, bits, **fields)

    def uplink(self, nodes: int, links: int) -> int:
        """The rate of each of `links` uplinks that share the traffic of `nodes` nodes."""
        over = ratio(self.options.pop("oversubscribe", "1"))
        bits = self.rate * nodes * 1_000_000 // (links * over)
        if not MIN_RATE <= bits <= MAX_RATE:
            raise self.wrong("uplinks out of bounds (8kbit to 1000gbit)")
        return bits


def parse(spec: str) -> Topology:
    """A topology from its short form, or from the file of that name."""
    kind, colon, rest = spec.partition(":")
    if colon and kind in KINDS:
        return checked(short(spec, KINDS[kind], rest))
    if os.path.exists(spec):
        with open(spec, encoding="utf-8") as f:
            return from_text(f.read(64 << 20))
    raise TopologyError(f"{spec!r} is neither a short form, for example single:16@100mbit ({', '.join(KINDS)}), nor a file")


def short(spec: str, build, rest: str) -> Topology:
    form = Form(spec, [], DEFAULT_RATE, {})
    head, _, tail = rest.partition("@")
    for word in filter(None, head.split(",")):
        if "=" in word:
            form.options.update([word.split("=", 1)])
        else:
            form.counts.append(count(word))
    for i, word in enumerate(filter(None, tail.split(","))):
        if "=" in word:
            form.options.update([word.split("=", 1)])
        elif i == 0:
            form.rate = rate(word)
        else:
            raise form.wrong("wanted one rate and then options after the @")
    if not form.counts or 0 in form.counts:
        raise form.wrong("wanted counts of at least 1 after the colon")
    origin = rate(form.options.pop("origin")) if "origin" in form.options else 0
    topology = build(form)
    if form.options:
        raise form.wrong(f"unknown option {next(iter(form.options))!r}")
    if origin:
        return replace(topology, nodes=(replace(topology.nodes[0], rate=origin), *topology.nodes[1:]))
    return topology


def single(form: Form) -> Topology:
    """All nodes on one switch."""
    if len(form.counts) != 1:
        raise form.wrong("wanted single:N@RATE, one switch")
    return rows(form, form.counts, [])


def bordeaux(form: Form) -> Topology:
    """Switches in a row; the first link is the bottleneck."""
    if len(form.counts) < 2:
        raise form.wrong("wanted two or more switches, for example bordeaux:32,25,7@20mbit")
    trunk = form.take_rate("trunk", 10 * form.rate)
    first = form.take_link(0, 1, form.take_rate("bottleneck", form.rate))
    return rows(form, form.counts, [first, *(Link(b - 1, b, trunk) for b in range(2, len(form.counts)))])


def nat(form: Form) -> Topology:
    """The origin outside, all other nodes behind a NAT."""
    if len(form.counts) != 1 or form.counts[0] < 2:
        raise form.wrong("wanted nat:N@RATE, N >= 2 (node 0 is outside)")
    link = form.take_link(1, 0, form.take_rate("bottleneck", form.rate), nat=True)
    return rows(form, [1, form.counts[0] - 1], [link])


def sites(form: Form) -> Topology:
    """A switch a site, each linked to the switch `wan` in the middle."""
    n = len(form.counts)
    if n < 2:
        raise form.wrong("wanted two or more sites, for example sites:8,8,8@1gbit,wan=100mbit,delay=10ms")
    link = form.take_link(0, n, form.take_rate("wan", form.rate))
    t = rows(form, form.counts, [replace(link, a=a) for a in range(n)])
    return replace(t, switches=(*t.switches, "wan"))


def rows(form: Form, counts: list[int], links: list[Link]) -> Topology:
    """Switches `s0`, `s1`.. with these numbers of nodes."""
    room(sum(counts), len(counts), 0)
    nodes = itertools.chain.from_iterable([Node(s, form.rate)] * n for s, n in enumerate(counts))
    return Topology(tuple(f"s{i}" for i in range(len(counts))), tuple(nodes), tuple(links))


def leafspine(form: Form) -> Topology:
    """Every leaf, with this many nodes, is linked to every spine."""
    if len(form.counts) != 3:
        raise form.wrong("wanted leafspine:LEAVES,SPINES,NODES@RATE with NODES a leaf")
    leaves, spines, nodes = form.counts
    room(leaves * nodes, leaves + spines, leaves * spines)
    bits = form.uplink(nodes, spines)
    links = tuple(Link(leaf, leaves + spine, bits) for spine in range(spines) for leaf in range(leaves))
    names = (*(f"l{i}" for i in range(leaves)), *(f"s{i}" for i in range(spines)))
    return Topology(names, tuple(Node(leaf, form.rate) for leaf in range(leaves) for _ in range(nodes)), links)


def fattree(form: Form) -> Topology:
    """The k-ary fat tree of Al-Fares, Loukissas and Vahdat (SIGCOMM 2008)."""
    if len(form.counts) != 1 or form.counts[0] % 2 or form.counts[0] > 92:
        raise form.wrong("wanted fattree:K@RATE with an even K from 2 to 92")
    k, half = form.counts[0], form.counts[0] // 2
    bits = form.uplink(1, 1)
    names = [f"p{pod}{kind}{i}" for pod in range(k) for kind in "ea" for i in range(half)]
    edges = [pod * k + i for pod in range(k) for i in range(half)]
    links = [Link(pod * k + e, pod * k + half + a, bits) for pod in range(k) for a in range(half) for e in range(half)]
    links += [Link(pod * k + half + group, k * k + group * half + i, form.rate)
              for group in range(half) for i in range(half) for pod in range(k)]
    names += [f"c{i}" for i in range(half * half)]
    return Topology(tuple(names), tuple(Node(edge, form.rate) for edge in edges for _ in range(half)), tuple(links))


def dragonfly(form: Form) -> Topology:
    """Kim, Dally, Scott and Abts (ISCA 2008): groups of routers, all linked; one link between each two groups."""
    if len(form.counts) != 3:
        raise form.wrong("wanted dragonfly:A,H,P@RATE: A routers a group, H global links and P nodes a router")
    a, h, p = form.counts
    groups = a * h + 1
    room(groups * a * p, groups * a, groups * (a * (a - 1) // 2 + a * h // 2))
    far, near = form.take_rate("global", form.rate), form.take_rate("local", form.rate)
    us = delay(form.options.pop("delay", "0us"))
    links = [Link(g * a + i, g * a + j, near) for g in range(groups) for i, j in itertools.combinations(range(a), 2)]

    def router(here: int, there: int) -> int:
        """The k-th global port of a group leads k + 1 groups further on, around the ring of groups."""
        return here * a + ((there - here) % groups - 1) // h

    links += [Link(router(i, j), router(j, i), far, delay_us=us) for i, j in itertools.combinations(range(groups), 2)]
    names = tuple(f"g{g}r{r}" for g in range(groups) for r in range(a))
    return Topology(names, tuple(Node(s, form.rate) for s in range(len(names)) for _ in range(p)), tuple(links))


KINDS = {f.__name__: f for f in (single, bordeaux, nat, sites, leafspine, fattree, dragonfly)}
