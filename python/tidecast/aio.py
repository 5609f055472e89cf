"""The functions of :mod:`tidecast` for asyncio, each in a thread of its own that ends with the call. ``progress`` is called by the event
loop's thread.

Cancelling the task ends the call within a second: then its thread has ended, and its buffers are free. An operation that needs longer,
for example because of a disk that does not answer, ends later in its thread. A :func:`bcast` that is cancelled leaves the group, as with
Ctrl-C.

A :class:`~tidecast.Share` is ended by ``await asyncio.to_thread(shared.close)``, and so is a :class:`~tidecast.Mount` and a
:class:`~tidecast.Reader`, whose reads wait, too: :mod:`tidecast.fsspec` has them for asyncio. :func:`simulate` is
:func:`tidecast.sim.run`.
"""
from __future__ import annotations

from . import _caches, _group, _mount, _reading, _transfer
from . import copy as _copy
from . import sim as _sim
from ._cancel import PATIENCE
from ._operation import AnyPath, awaited, in_thread

__all__ = [
    "Caches", "bcast", "bcast_files", "caches", "copy", "get", "mount", "open", "publish", "run", "seed", "share", "simulate", "verify",
]

bcast = in_thread(_group.bcast)
bcast_files = awaited(_transfer.bcast_files)
copy = awaited(_copy.copy)
get = awaited(_transfer.get)
mount = awaited(_mount.mount)
publish = awaited(_transfer.publish)
run = in_thread(_mount.run)
simulate = awaited(_sim.run)
verify = awaited(_transfer.verify)
open = in_thread(_reading.open, PATIENCE)
seed = in_thread(_transfer.seed, PATIENCE)
share = in_thread(_transfer.share, PATIENCE)


class Caches:
    """The daemon of this host: the methods of :class:`tidecast.Caches`, each to be awaited.

    :ivar socket: where it listens
    """

    def __init__(self, socket: AnyPath | None = None):
        """:param socket: as of :class:`tidecast.Caches`"""
        of = _caches.Caches(socket)
        self.socket = of.socket
        self.create = awaited(of.create)
        self.get = awaited(of.get)
        self.extend = in_thread(of.extend)
        self.ls = in_thread(of.ls)
        self.pin = in_thread(of.pin)
        self.replicate = in_thread(of.replicate)
        self.rm = in_thread(of.rm)
        self.show = in_thread(of.show)
        self.where = in_thread(of.where)


def caches(socket: AnyPath | None = None) -> Caches:
    """The daemon of this host, by its socket; see :class:`Caches`."""
    return Caches(socket)
