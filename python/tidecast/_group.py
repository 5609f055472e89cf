"""Groups of processes, and the call."""
from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from typing import Any

from . import _mpi
from ._buffers import located
from ._library import PLAIN, check, lib

#: Seconds that ranks wait for each other.
TIMEOUT = 60.0

_open_groups: weakref.WeakSet[Group] = weakref.WeakSet()
_kept: dict[tuple, Group] = {}
#: One turn for each group that is being made: ranks may be threads of one process, of which each waits for the others.
_turns: dict[tuple, threading.Lock] = {}
_lock = threading.Lock()


class Group:
    """A member of a group of processes; all of them make the same calls in the same order.

    With MPI: ``Group(comm)``; without ``comm`` it is ``MPI.COMM_WORLD``. Without MPI: ``Group(group="host:port",
    rank=, size=, secret=)``, where rank 0 listens at that port on all of its addresses, and the others find it there.

    :param secret: the same text on every rank and known to nobody else, by default the variable ``TIDECAST_SECRET``.
        Whoever guesses it can join: make it long and random. ``""`` is a group open to all who reach the port.
    :param timeout: seconds that rank 0 is sought, and that ranks wait for each other in a call
    :param plain: data between hosts need not be encrypted: faster on fast networks

    Leave it with :meth:`close` or ``with``; at the end of the process it is done for you.
    """

    def __init__(self, comm: Any = None, *, group: str | None = None, rank: int | None = None, size: int | None = None,
                 secret: str | None = None, timeout: float = TIMEOUT, plain: bool = False):
        self._handle = ctypes.c_void_p()
        self._pid, self._timeout, self._flags = os.getpid(), timeout, PLAIN if plain else 0
        if group is None:
            _mpi.meet(self._open, _mpi.world() if comm is None else comm, timeout)
        else:
            if comm is not None or rank is None or size is None:
                raise ValueError("give a communicator, or group=, rank= and size=")
            secret = os.environ.get("TIDECAST_SECRET") if secret is None else secret
            if secret is None:
                raise ValueError("give secret=, the same on every rank, or set TIDECAST_SECRET")
            self._open(group, rank, size, secret)
        _open_groups.add(self)

    def _open(self, address: str, rank: int, size: int, secret: str) -> str:
        if not (0 <= rank < size < 1 << 32):
            raise ValueError(f"there is no rank {rank} in a group of {size}")
        code = lib().tidecast_open(address.encode(), rank, size, secret.encode(), self._timeout, self._flags,
                                   ctypes.byref(self._handle))
        check(code)
        self.rank, self.size = rank, size
        return lib().tidecast_address(self._handle).decode()

    def bcast(self, buffer: Any, root: int = 0, *, timeout: float | None = None) -> list[int]:
        """Brings the root's ``buffer`` into that of every rank, in place; all have the same length in bytes. It goes as the bytes that lie
        there, whatever they mean; what has only addresses there (Python objects) is refused.

        :param timeout: seconds that ranks wait for each other to call, by default the group's; the transfer then takes
            as long as it takes, and fails when nothing moves for a minute
        :returns: at the root, the ranks that do not have it (``[]``: all have); elsewhere ``[]``. A small buffer (all
            copies together at most 4 MiB) has by then been sent, not received, as with MPI.
        :raises ValueError: the buffer will not do here (not in one piece, read-only, objects, masked); the other ranks need not wait
        :raises Lost: this rank is no longer of the group
        :raises Error: this broadcast failed for this rank
        """
        handle, timeout = self._usable(), self._timeout if timeout is None else timeout
        if not 0 <= root < self.size:
            raise ValueError(f"there is no rank {root} in a group of {self.size}")
        place = located(buffer, writable=self.rank != root)
        try:
            address, length = place.__enter__()
        except Exception as why:
            check(lib().tidecast_abstain(handle, root, str(why).encode(), timeout))
            raise
        try:
            missed = ctypes.c_size_t()
            check(lib().tidecast_bcast(handle, address, length, root, timeout, ctypes.byref(missed)))
            ranks = (ctypes.c_uint32 * missed.value)()
            return list(ranks[:lib().tidecast_missed(ranks, missed.value)])
        finally:
            place.__exit__(None, None, None)

    def _usable(self) -> ctypes.c_void_p:
        if not self._handle or self._pid != os.getpid():
            raise ValueError("the group is closed" if not self._handle else "a forked process is no member of the group")
        return self._handle

    def close(self) -> None:
        """Leaves the group. Rank 0 first waits for the calls of others to end, at most two minutes."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle and self._pid == os.getpid():
            lib().tidecast_close(handle)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tidecast.Group: rank {self.rank} of {self.size}{'' if self._handle else ', closed'}>"


def bcast(buffer: Any, root: int = 0, comm: Any = None, *, group: str | None = None, rank: int | None = None,
          size: int | None = None, secret: str | None = None, timeout: float = TIMEOUT,
          plain: bool = False) -> list[int]:
    """Brings the root's ``buffer`` into that of every rank, in place. Arguments and result are those of :class:`Group`
    and :meth:`Group.bcast`; the group is made by the first call and kept for the next ones."""
    comm = None if group is not None else _mpi.world() if comm is None else comm
    key = (group, rank, size, plain) if comm is None else ("MPI", comm.py2f())
    with _lock:
        turn = _turns.setdefault(key, threading.Lock())
    with turn:
        kept = _kept.get(key) if comm is None else _mpi.kept(comm)
        if kept is None or not kept._handle:
            kept = Group(comm, group=group, rank=rank, size=size, secret=secret, timeout=timeout, plain=plain)
            if comm is None:
                _kept[key] = kept
            else:
                _mpi.keep(comm, kept)
    return kept.bcast(buffer, root, timeout=timeout)


@atexit.register
def _close_all() -> None:
    for group in list(_open_groups):
        group.close()
