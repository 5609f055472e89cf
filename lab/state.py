"""State that outlives one run of the tool: which lab is up, and the machine's settings before it.

Settings of the whole machine are recorded before they are changed and put back by the last lab that
goes down, so that even a tool killed half-way leaves nothing behind once `lab down` has run.
"""
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re

from .netns import LabError, of_lab, sysctl
from .topology import Topology, from_text

RUN = os.environ.get("TIDECAST_LAB_RUN", "/run/tidecast-lab")
SAVED = f"{RUN}/machine.json"
NEIGH = "net/ipv4/neigh/default/gc_thresh"
ALLOWED = "net/ipv4/tcp_allowed_congestion_control"


def lab_name() -> str:
    name = os.environ.get("TIDECAST_LAB", "tidecast")
    if not re.fullmatch(r"[a-z][a-z0-9]{0,15}", name):
        raise LabError(f"TIDECAST_LAB={name!r}: wanted a short lower-case word")
    return name


@contextlib.contextmanager
def locked():
    """One lab tool at a time builds or removes."""
    os.makedirs(RUN, exist_ok=True)
    with open(f"{RUN}/lock", "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def folder(lab: str) -> str:
    return f"{RUN}/{lab}"


def hosts_file(lab: str) -> str:
    """Alone in its directory, as `netns.enter` wants it."""
    return f"{folder(lab)}/etc/hosts"


def save(lab: str, topology: Topology, cc: str) -> None:
    os.makedirs(os.path.dirname(hosts_file(lab)), exist_ok=True)
    with open(hosts_file(lab), "w") as f:
        f.write("127.0.0.1 localhost\n::1 localhost\n")
        f.writelines(f"{topology.address(n)} n{n:03d}\n" for n in range(len(topology.nodes)))
    with open(f"{folder(lab)}/state.json.new", "w") as f:
        json.dump({"topology": topology.to_text(), "cc": cc, "faults": {}}, f)
    os.replace(f"{folder(lab)}/state.json.new", f"{folder(lab)}/state.json")


def load(lab: str) -> tuple[Topology, dict]:
    try:
        with open(f"{folder(lab)}/state.json") as f:
            state = json.load(f)
    except FileNotFoundError:
        raise LabError(f"lab {lab!r} is not up (lab up TOPOLOGY)") from None
    return from_text(state["topology"]), state


def update(lab: str, state: dict) -> None:
    with open(f"{folder(lab)}/state.json.new", "w") as f:
        json.dump(state, f)
    os.replace(f"{folder(lab)}/state.json.new", f"{folder(lab)}/state.json")


def forget(lab: str) -> None:
    for name in ("state.json", "state.json.new", "etc/hosts"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{folder(lab)}/{name}")
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(hosts_file(lab)))
        os.rmdir(folder(lab))


def _read(key: str) -> str:
    with open("/proc/sys/" + key) as f:
        return f.read().strip()


def prepare_machine(cc: str) -> None:
    """One neighbour table serves all namespaces, and only allowed congestion controls may be used in them."""
    keys = [f"{NEIGH}{i}" for i in (1, 2, 3)] + [ALLOWED]
    if not os.path.exists(SAVED):
        with open(SAVED + ".new", "w") as f:
            json.dump({k: _read(k) for k in keys}, f)
        os.replace(SAVED + ".new", SAVED)
    sysctl(dict(zip(keys[:3], ("8192", "16384", "32768"))))
    if cc not in _read(ALLOWED).split():
        sysctl({ALLOWED: f"{_read(ALLOWED)} {cc}"})


def restore_machine() -> None:
    """Put the machine's own settings back, unless another lab is still up."""
    others = [d for d in os.listdir(RUN) if os.path.isdir(f"{RUN}/{d}") and of_lab(d)]
    if others or not os.path.exists(SAVED):
        return
    with open(SAVED) as f:
        sysctl(json.load(f))
    os.unlink(SAVED)
