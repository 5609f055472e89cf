"""Bytes on the wire, as the switches count them: across each link, and by node."""
from __future__ import annotations

import json
import re

from . import netns, state
from .build import port


def read(lab: str) -> dict:
    """{"links": {"s0-s1": {"fwd", "back"}}, "nodes": [{"tx", "rx"}..]}, bytes since the lab came up.

    fwd runs from the first switch of the link's name to the second. A node's sent bytes are those that its switch port received, so
    that bytes dropped in its own queue do not count.
    """
    t, _ = state.load(lab)
    ports = [_stats(f"{lab}.s{i}") for i in range(len(t.switches))]
    links = {}
    for link in t.links:
        here = ports[link.a][port(link, 0)]
        links[t.link_name(link)] = {"fwd": here["tx"]["bytes"], "back": here["rx"]["bytes"]}
    nodes = [{"tx": 0, "rx": 0} for _ in t.nodes]
    for stats in ports:
        for dev, s in stats.items():
            if re.fullmatch(r"p\d{3}", dev):
                nodes[int(dev[1:])] = {"tx": s["rx"]["bytes"], "rx": s["tx"]["bytes"]}
    return {"links": links, "nodes": nodes}


def _stats(ns: str) -> dict:
    return {dev["ifname"]: dev["stats64"] for dev in json.loads(netns.run(["ip", "-n", ns, "-j", "-s", "link"]))}
