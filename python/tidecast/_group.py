"""Groups of processes, and the call."""
from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Any

from . import _mpi
from ._buffers import located
from ._cancel import current
from ._native import Member

#: Seconds that ranks wait for each other.
TIMEOUT = 60.0

_open_groups: weakref.WeakSet[Group] = weakref.WeakSet()
_kept: dict[tuple[Any, ...], Group] = {}
#: One turn for each group that is being made: ranks may be threads of one process, of which each waits for the others.
_turns: dict[tuple[Any, ...], threading.Lock] = {}
_lock = threading.Lock()


class Group:
    """A member of a group of processes; all of them make the same calls in the same order.

    With MPI: ``Group(comm)``; without ``comm`` it is ``MPI.COMM_WORLD``. Without MPI: ``Group(group="host:port",
    rank=, size=, secret=)``, where rank 0 listens at that port on all of its addresses, and the others find it there.

    :param comm: a communicator of mpi4py
    :param group: the address of rank 0, ``"host:port"``; at rank 0, port 0 is any free port
    :param rank: the number of this process, from 0
    :param size: how many ranks there are
    :param secret: the same secret text on every rank, by default the variable ``TIDECAST_SECRET``. Any process that guesses it can
        join: make it long and random. ``""``: every process that can reach the port may join.
    :param timeout: seconds to connect to rank 0, and that ranks wait for each other in a call
    :param plain: data between hosts need not be encrypted: faster on fast networks
    :raises ValueError: arguments that make no sense
    :raises Error: rank 0 was not found within the timeout, or has another secret

    Leave it with :meth:`close` or ``with``; at the end of the process this happens automatically. Ctrl-C ends a call that waits, and
    this rank has left the group then. A forked process is not a member.
    """

    def __init__(self, comm: Any = None, *, group: str | None = None, rank: int | None = None, size: int | None = None,
                 secret: str | None = None, timeout: float = TIMEOUT, plain: bool = False):
        self._member: Member | None = None
        self._pid, self._timeout, self._plain = os.getpid(), timeout, plain
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
            raise ValueError(f"invalid rank {rank}: the group has {size} ranks")
        self._member = Member(address, rank, size, secret, self._timeout, self._plain, current().flag)
        self.rank, self.size = rank, size
        return self._member.address

    def bcast(self, buffer: Any, root: int = 0, *, timeout: float | None = None) -> list[int]:
        """Copies the root's ``buffer`` into that of every rank, in place; all have the same length in bytes. It is sent as bytes,
        whatever they mean; arrays of addresses (Python objects) are refused. Nothing is copied before it is sent: the
        buffer stays the caller's, is kept alive during the call, and must not be changed by other threads meanwhile. The content of a
        receiver's buffer after an error is undefined.

        :param buffer: an array of NumPy, or whatever has the buffer protocol or ``__dlpack__``, in one piece of the host's memory
        :param root: the rank whose buffer the others get
        :param timeout: seconds that ranks wait for each other to call, by default the group's; the transfer itself has no time limit,
            and fails when no data moves for a minute
        :returns: at the root, the ranks that do not have it (``[]``: all have); elsewhere ``[]``. A small buffer (all
            copies together at most 4 MiB) has by then been sent, not received, as with MPI.
        :raises ValueError: the buffer is not suitable (not contiguous, read-only, objects, masked); the other ranks need not wait
        :raises Lost: this rank is no longer of the group
        :raises Error: this broadcast failed for this rank
        """
        member, timeout = self._usable(), self._timeout if timeout is None else timeout
        if not 0 <= root < self.size:
            raise ValueError(f"invalid rank {root}: the group has {self.size} ranks")
        try:
            place = located(buffer, writable=self.rank != root)
        except Exception as why:
            member.abstain(root, str(why), timeout, current().flag)
            raise
        return member.bcast(place, root, timeout, current().flag)

    def _usable(self) -> Member:
        if self._member is None or self._pid != os.getpid():
            raise ValueError("the group is closed" if self._member is None else "a forked process is not a member of the group")
        return self._member

    def close(self) -> None:
        """Leaves the group. Rank 0 first waits for the calls of others to end, at most two minutes. Further calls raise ValueError; closing
        again does nothing."""
        member, self._member = self._member, None
        if member is not None and self._pid == os.getpid():
            member.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tidecast.Group: rank {self.rank} of {self.size}{'' if self._member else ', closed'}>"


def bcast(buffer: Any, root: int = 0, comm: Any = None, *, group: str | None = None, rank: int | None = None,
          size: int | None = None, secret: str | None = None, timeout: float = TIMEOUT,
          plain: bool = False) -> list[int]:
    """Brings the root's ``buffer`` into that of every rank, in place. Arguments and result are those of :class:`Group`
    and :meth:`Group.bcast`; the group is made by the first call and kept for the next ones.

    :param buffer: as of :meth:`Group.bcast`, like ``root`` and ``timeout``
    :param comm: as of :class:`Group`, like ``group``, ``rank``, ``size``, ``secret`` and ``plain``
    :returns: at the root, the ranks that do not have it
    :raises Error: as :class:`Group` and :meth:`Group.bcast`
    """
    comm = None if group is not None else _mpi.world() if comm is None else comm
    key = (group, rank, size, secret, plain) if comm is None else ("MPI", comm.py2f())
    with _lock:
        turn = _turns.setdefault(key, threading.Lock())
    with turn:
        kept = _kept.get(key) if comm is None else _mpi.kept(comm)
        if kept is None or kept._member is None:
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
