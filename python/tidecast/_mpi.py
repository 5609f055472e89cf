"""MPI is used to meet, and for nothing else: rank 0 tells the others where it listens."""
from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable
from typing import Any

from ._cancel import current
from ._errors import Error

#: Bytes of the only message.
_ROOM = 8192
_JOIN = 2
_keyval: int | None = None


def world() -> Any:
    """MPI.COMM_WORLD."""
    try:
        from mpi4py import MPI
    except ImportError:
        raise ValueError("without mpi4py, give group=, rank= and size=") from None
    return MPI.COMM_WORLD


def meet(open_: Callable[[str, int, int, str], str], comm: Any, timeout: float) -> None:
    """Calls ``open_(address, rank, size, secret)`` on every rank of ``comm``."""
    rank, size = comm.Get_rank(), comm.Get_size()
    message = bytearray(_ROOM)
    if rank == 0:
        secret = secrets.token_hex(32)
        try:
            said = {"address": open_(":0", rank, size, secret), "secret": secret}
        except Exception as why:
            message[:] = json.dumps({"error": str(why)[:500]}).encode().ljust(_ROOM)
            _share(comm, message, timeout)
            raise
        message[:] = json.dumps(said).encode().ljust(_ROOM)
    _share(comm, message, timeout)
    if rank:
        said = json.loads(message)
        if "error" in said:
            raise Error(f"rank 0 cannot make the group: {said['error']}", _JOIN)
        open_(said["address"], rank, size, said["secret"])


def _share(comm: Any, message: bytearray, timeout: float) -> None:
    """MPI_Bcast with a bound."""
    cancel = current()
    request, until = comm.Ibcast(message, root=0), time.monotonic() + timeout
    while not request.Test():
        if cancel.is_cancelled:
            raise Error("the call was cancelled before the ranks met", _JOIN)
        if time.monotonic() > until:
            raise Error(f"the ranks of the communicator did not meet within {timeout} s", _JOIN)
        time.sleep(0.0005)


def kept(comm: Any) -> Any:
    """The group that was made for a communicator."""
    return comm.Get_attr(_keyval) if _keyval is not None else None


def keep(comm: Any, group: Any) -> None:
    """Keeps a group until its communicator is freed."""
    global _keyval
    if _keyval is None:
        _keyval = type(comm).Create_keyval(delete_fn=lambda _comm, _keyval, group: group.close())
    comm.Set_attr(_keyval, group)
