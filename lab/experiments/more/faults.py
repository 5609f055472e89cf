"""Failed nodes, a slow node, nodes that accept no connections: all other nodes must soon have all data."""
from __future__ import annotations

import random
import shutil
import signal
import time

from ... import faults, netns
from ...netns import LabError
from ...units import format_rate
from ..process import Failed
from ..stage import Stage, same
from .common import Broadcast, Experiment, size_of

LOST = 6
SLOWER = 4
CLOSED = 4  # one node in this many refuses connections
SEED = 1
NFT = "table inet closed {\n chain in { type filter hook input priority 0; iif lo accept; tcp flags & (syn | ack) == syn drop; }\n}\n"
IPTABLES = "iptables -A INPUT ! -i lo -p tcp --syn -j DROP"


class Faults(Experiment):
    about = "50 MB; nodes are lost, slow, or cannot be called"
    setting = "one64"
    cases = ("none", "lost", "slow", "closed")

    def measure(self, stage: Stage, case: str, a) -> dict:
        source = stage.source(size_of(a, 50))
        stage.fresh()
        bound = source.stat().st_size / stage.goodput
        begin = Broadcast(stage, source, 60 + 30 * bound)
        try:
            return {"bound": round(bound, 3), **getattr(self, case)(stage, begin, bound)}
        finally:
            faults.heal(stage.lab)

    def none(self, stage: Stage, broadcast: Broadcast, bound: float) -> dict:
        """To compare with."""
        return outcome(broadcast.start().end(), bound, set())

    def lost(self, stage: Stage, broadcast: Broadcast, bound: float) -> dict:
        """Six nodes at random instants: by turns killed, stopped, cut off."""
        dice = random.Random(SEED)
        victims = dice.sample(list(stage.receivers), min(LOST, stage.count // 4))
        instants = sorted(dice.uniform(0.05, 0.9) * bound for _ in victims)
        broadcast.start()
        for i, (victim, instant) in enumerate(zip(victims, instants)):
            time.sleep(max(0.0, broadcast.began + instant - time.monotonic()))
            if i % 3 == 2:
                faults.cut(stage.lab, str(victim))
            else:
                broadcast.signal(victim, (signal.SIGKILL, signal.SIGSTOP)[i % 3])
        lost = {stage.name(v) for v in victims}
        return {"lost": sorted(lost), "instants": [round(i, 1) for i in instants], **outcome(broadcast.end(), bound, lost)}

    def slow(self, stage: Stage, broadcast: Broadcast, bound: float) -> dict:
        """One node has a quarter of the rate."""
        victim = stage.count // 3
        faults.slow(stage.lab, str(victim), format_rate(stage.topology.nodes[victim].rate // SLOWER))
        broadcast.start().end()
        slowest = broadcast.seconds().get(stage.name(victim), 0.0)
        return {"slow_x": round(slowest / (SLOWER * bound), 3), **outcome(broadcast, bound, set(), but=stage.name(victim))}

    def closed(self, stage: Stage, broadcast: Broadcast, bound: float) -> dict:
        """A quarter of the nodes takes no connection."""
        closed = [n for n in stage.receivers if n % CLOSED == CLOSED - 1]
        try:
            for n in closed:
                close(stage, n)
            return {"closed": len(closed), **outcome(broadcast.start().end(), bound, set())}
        finally:
            for n in closed:
                reopen(stage, n)


def close(stage: Stage, n: int) -> None:
    """Node n's kernel drops incoming connection requests, without an answer."""
    inside = ["ip", "netns", "exec", f"{stage.lab}.{stage.name(n)}"]
    if shutil.which("nft"):
        netns.run([*inside, "nft", "-f", "-"], NFT)
    elif shutil.which("iptables"):
        netns.run([*inside, *IPTABLES.split()])
    else:
        raise LabError("refusing connections needs nft or iptables (Debian: apt-get install nftables)")


def reopen(stage: Stage, n: int) -> None:
    inside = ["ip", "netns", "exec", f"{stage.lab}.{stage.name(n)}"]
    undo = "nft delete table inet closed" if shutil.which("nft") else IPTABLES.replace("-A", "-D")
    netns.run([*inside, *undo.split()], check=False)


def outcome(broadcast: Broadcast, bound: float, lost: set[str], but: str = "") -> dict:
    """Times of all that were not lost (`but` one), once each of them has been compared with the source."""
    stage, times = broadcast.stage, broadcast.seconds()
    must = {stage.name(n) for n in stage.receivers} - lost
    if missing := must - set(times):
        reasons = {h["name"]: h.get("reason") for h in broadcast.last.get("hosts", []) if h["name"] in missing}
        raise Failed(f"{len(missing)} hosts without all of it: {reasons or broadcast.last}")
    if wrong := [name for name in must if not same(broadcast.source, stage.folder / "out" / name / "copy")]:
        raise Failed(f"copies that are not the source: {wrong}")
    ready = max(t for name, t in times.items() if name != but and name in must)
    size = broadcast.source.stat().st_size
    counted = broadcast.meter.results(size, stage.topology)
    return {"hosts": len(must), "ready": ready, "x": round(ready / bound, 3), "whole": broadcast.last["seconds"],
            "origin": counted["origin"], "idle": counted["idle"]}
