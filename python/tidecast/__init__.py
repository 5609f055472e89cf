"""Tidecast: the same bytes on every node of a cluster, at the speed of the network card.

    import tidecast

    with tidecast.share("genomes") as shared:             # on one node
        print(shared.ticket)
        ...
    path = tidecast.get(ticket, to="/scratch")            # on the others

    with tidecast.mount(ticket, "/opt/env") as path:      # files are fetched when they are opened
        ...
    tidecast.run(ticket, ["/opt/env/bin/python3", "x.py"])  # a command that sees the tree where it was built

    tidecast.bcast_files("/sw/env", "/scratch/env", hosts="node[001-064]")
    tidecast.copy("store:/archive/cmip6", "/data/")
    reader = tidecast.open(ticket)                         # only read parts are fetched: see tidecast.fsspec, too
    path = tidecast.caches().get("head/nt")               # from the daemon of this host
    tidecast.bcast(array)                                 # within an MPI job: from memory to memory, from rank 0

Functions wait for the end; :mod:`tidecast.aio` has the same for asyncio. Sizes are in bytes, rates in bytes a second, times in
seconds. ``progress`` is True for a bar (where tqdm is installed), or a function that is called with each event: a dictionary as in
``docs/events.md``. Warnings go to the logger ``tidecast``. Failures raise an :class:`Error`: a :class:`FaultError`,
:class:`UsageError` or :class:`CutError`, which correspond to the exit codes of the program. Ctrl-C ends any call.

An operation belongs to the process that began it: after a fork, begin another.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._errors import CutError, Error, FaultError, Lost, UsageError

if TYPE_CHECKING:
    from . import aio, field, sim
    from ._caches import Cache, Caches, caches
    from ._group import Group, bcast
    from ._installed import find_tidecast_bin, get_include, get_library
    from ._mount import Mount, mount, run
    from ._reading import Reader, open
    from ._transfer import Manifest, Share, Swarm, Tree, bcast_files, get, publish, seed, share, verify
    from .copy import _Module

    copy: _Module

#: Names that are loaded at their first use, and their modules: `import tidecast` is quick, and needs neither NumPy nor MPI.
_LAZY = {
    "Cache": "_caches", "Caches": "_caches", "caches": "_caches",
    "Group": "_group", "bcast": "_group",
    "find_tidecast_bin": "_installed", "get_include": "_installed", "get_library": "_installed",
    "Mount": "_mount", "mount": "_mount", "run": "_mount",
    "Reader": "_reading", "open": "_reading",
    "bcast_files": "_transfer", "get": "_transfer", "publish": "_transfer", "seed": "_transfer", "share": "_transfer",
    "verify": "_transfer", "Manifest": "_transfer", "Share": "_transfer", "Swarm": "_transfer", "Tree": "_transfer",
}
_MODULES = ("aio", "copy", "field", "sim")

__all__ = [
    "Cache", "Caches", "CutError", "Error", "FaultError", "Group", "Lost", "Manifest", "Mount", "Reader", "Share", "Swarm", "Tree",
    "UsageError", "aio", "bcast", "bcast_files", "caches", "copy", "field", "find_tidecast_bin", "get", "get_include", "get_library",
    "mount", "open", "publish", "run", "seed", "share", "sim", "verify",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _LAZY:
        value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
        globals()[name] = value
        return value
    if name == "__version__":
        return importlib.import_module("._native", __name__).VERSION
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
