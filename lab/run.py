"""Run commands on nodes: one in place of this process, or one on each, started together."""
from __future__ import annotations

import os
import re
import signal
import time

from . import netns, state
from .netns import LabError
from .topology import Topology


def find_node(topology: Topology, text: str) -> int:
    """The number of a node named by number, name (`n003`) or address."""
    for n in range(len(topology.nodes)):
        if text in (str(n), f"n{n:03d}", topology.address(n)):
            return n
    raise LabError(f"no node {text!r}: 0 to {len(topology.nodes) - 1}")


def pick(spec: str | None, count: int) -> list[int]:
    """Node numbers of `0,3-5`; all without a spec."""
    if not spec:
        return list(range(count))
    chosen: list[int] = []
    for part in spec.split(","):
        m = re.fullmatch(r"(\d+)(?:-(\d*))?", part)
        if not m:
            raise LabError(f"bad list of nodes {spec!r}: wanted for example 0,3-5 or 1-")
        last = int(m[1]) if m[2] is None else int(m[2] or count - 1)
        chosen += range(int(m[1]), last + 1)
    if not chosen or max(chosen) >= count:
        raise LabError(f"list of nodes {spec!r}: the lab has nodes 0 to {count - 1}")
    return chosen


def execute(lab: str, node: str, command: list[str]) -> None:
    """Become `command` on `node`; returns only by an error."""
    topology, _ = state.load(lab)
    n = find_node(topology, node)
    netns.enter(f"{lab}.n{n:03d}", f"n{n:03d}", state.hosts_file(lab))
    try:
        os.execvp(command[0], command)
    except OSError as e:
        raise LabError(f"{command[0]}: {e.strerror}") from None


def substitute(topology: Topology, n: int, command: list[str]) -> list[str]:
    """`command` with {n} {ip} {name} {root} {N} filled in for node n."""
    values = {"n": str(n), "ip": topology.address(n), "name": f"n{n:03d}",
              "root": topology.address(0), "N": str(len(topology.nodes))}
    return [re.sub(r"\{(n|ip|name|root|N)\}", lambda m: values[m[1]], word) for word in command]


def each(lab: str, command: list[str], nodes: list[int], timeout: float | None = None, logs: str | None = None) -> list[dict]:
    """Start `command` on all `nodes` at one instant and wait.

    Result by node: n, rc (-9: ended at the timeout), wall and cpu seconds, max resident KiB. Processes that still run when the caller
    dies, even by kill -9, are killed by the kernel.
    """
    topology, _ = state.load(lab)
    if logs:
        os.makedirs(logs, exist_ok=True)
    gate_r, gate_w = os.pipe()
    children: dict[int, int] = {}
    for n in nodes:
        pid = os.fork()
        if pid == 0:
            os.close(gate_w)
            _child(lab, n, substitute(topology, n, command), gate_r, logs)
        children[pid] = n
    os.close(gate_r)
    time.sleep(0.05 + 0.002 * len(children))  # all are at the gate
    start = time.monotonic()
    os.close(gate_w)
    return sorted(_reap(children, start, timeout), key=lambda r: r["n"])


def _child(lab: str, n: int, command: list[str], gate: int, logs: str | None) -> None:
    try:
        os.setsid()
        netns.die_with_parent()
        netns.enter(f"{lab}.n{n:03d}", f"n{n:03d}", state.hosts_file(lab))
        out = os.open(f"{logs}/n{n:03d}.log" if logs else os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.read(gate, 1)  # returns when the parent closes its end
        os.execvp(command[0], command)
    except BaseException as e:
        os.write(2, f"lab: {e}\n".encode())
    os._exit(127)


def _reap(children: dict[int, int], start: float, timeout: float | None) -> list[dict]:
    results = []
    while children:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        now = time.monotonic() - start
        if pid in children:
            results.append({"n": children.pop(pid), "rc": os.waitstatus_to_exitcode(status), "wall": round(now, 3),
                            "cpu": round(usage.ru_utime + usage.ru_stime, 3), "rss_kib": usage.ru_maxrss})
            continue
        if timeout and now > timeout:
            for p in children:
                try:
                    os.killpg(p, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        time.sleep(0.005)
    return results
