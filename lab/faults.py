"""Faults as they occur in clusters, silent or slow; and their removal.

A cut closes a bridge port: packets are dropped in both directions, the carrier stays, no reset is sent, and both ends keep waiting,
as with a dead switch or a node that hangs. `slow` changes a node's rate.
"""
from __future__ import annotations

from . import netns, state
from .build import QUEUE, port, shape
from .netns import LabError
from .run import find_node
from .topology import Topology
from .units import format_rate, rate


def ports_of(lab: str, t: Topology, what: str) -> tuple[str, list[tuple[str, str]]]:
    """The name of a node or link (`3`, `n003`, `s0-s1`) and its bridge ports as (namespace, device)."""
    for link in t.links:
        names = t.switches[link.a], t.switches[link.b]
        if what in ("-".join(names), "-".join(reversed(names))):
            return t.link_name(link), [(f"{lab}.s{link.a}", port(link, 0)), (f"{lab}.s{link.b}", port(link, 1))]
    try:
        n = find_node(t, what)
    except LabError:
        links = ", ".join(t.link_name(link) for link in t.links) or "none"
        raise LabError(f"no node or link {what!r}: nodes 0 to {len(t.nodes) - 1}, links {links}") from None
    return f"n{n:03d}", [(f"{lab}.s{t.nodes[n].switch}", f"p{n:03d}")]


def cut(lab: str, what: str) -> None:
    """Drop everything to and from a node, or across a link, without a sign to anybody."""
    t, saved = state.load(lab)
    name, ports = ports_of(lab, t, what)
    _set(ports, "disabled")
    saved["faults"].setdefault(name, {})["cut"] = True
    state.update(lab, saved)


def slow(lab: str, node: str, text: str) -> None:
    """Give a node another rate, both ways, at once and without losing its connections."""
    t, saved = state.load(lab)
    name, ports = ports_of(lab, t, node)
    if not name.startswith("n") or "-" in name:
        raise LabError(f"slow wants a node, not {node!r}")
    _reshape(lab, name, ports, rate(text))
    saved["faults"].setdefault(name, {})["rate"] = rate(text)
    state.update(lab, saved)


def heal(lab: str, what: str | None = None) -> None:
    """Mend one node or link, or everything."""
    t, saved = state.load(lab)
    names = [ports_of(lab, t, what)[0]] if what else list(saved["faults"])
    for name in names:
        fault = saved["faults"].pop(name, {})
        ports = ports_of(lab, t, name)[1]
        if "cut" in fault:
            _set(ports, "forwarding")
        if "rate" in fault:
            _reshape(lab, name, ports, t.nodes[int(name[1:])].rate)
    state.update(lab, saved)


def describe(lab: str) -> dict:
    """Status for people and programs: topology, nodes, links, faults."""
    t, saved = state.load(lab)
    faults = {k: {**v, **({"rate": format_rate(v["rate"])} if "rate" in v else {})} for k, v in saved["faults"].items()}
    return {"lab": lab, "topology": saved["topology"].splitlines(), "cc": saved["cc"], "faults": faults,
            "nodes": [t.address(n) for n in range(len(t.nodes))], "links": [t.link_name(link) for link in t.links]}


def _set(ports: list[tuple[str, str]], to: str) -> None:
    for ns, dev in ports:
        netns.run(["bridge", "-n", ns, "link", "set", "dev", dev, "state", to])


def _reshape(lab: str, name: str, ports: list[tuple[str, str]], bits: int) -> None:
    (switch, dev), = ports
    netns.run(["tc", "-n", switch, "-batch", "-"], shape(dev, bits, QUEUE))
    netns.run(["tc", "-n", f"{lab}.{name}", "-batch", "-"], shape("eth0", bits, 1 << 20))
