"""Receiving a field: its streams into the shared memory of this host."""
from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _native
from ._field_memory import Field, FieldError, open
from ._field_operation import Running
from ._operation import AnyPath, Event, begin, drop, void

#: Seconds between two looks whether the receiver has ended.
_LOOK = 0.2
#: Seconds that a receiver has to end when this process does.
_END = 5.0


@dataclass(frozen=True)
class Receiving:
    """The arguments of :class:`Receiver`."""

    listen: str
    name: str
    streams: int
    volume: str | None
    missing: str
    complete: bool
    record: AnyPath | None
    steps: int | None


class Receiver:
    """Receives a field's streams into shared memory, as ``tidecast field recv``, until :meth:`close` or the end of a ``with`` block.

    Losses are counted, by step and stream. The memory, ``/dev/shm/tidecast-field-NAME``, belongs to the receiver, and is removed when
    it ends; all programs of this user on this host can open it by :func:`open`.

    :param listen: ``ADDRESS:PORT`` of the first stream, the others at the following ports; port 0: adjacent free ports
    :param name: name of the shared memory
    :param streams: streams at most
    :param volume: the volume for readers: ``live``, one volume that is always changing, or ``steps`` when they have closed; by default
        ``live``, or ``steps`` where these are to be complete or recorded
    :param missing: the content of missing values: ``keep``, those of the previous step, or ``nan``
    :param complete: show only complete steps
    :param record: record steps into this directory, as a Zarr array and a series that ParaView opens
    :param steps: end after this many steps
    :param key: the key of senders, or ``"@file"`` that has it; by default the variable ``TIDECAST_FIELD_KEY``, else one
        that is made once and kept. ``""``: every sender is accepted
    :param state_dir: where this node keeps its key
    :param progress: a function that takes each event of ``docs/events.md``, called by a thread of the receiver
    :ivar name: name of the shared memory
    :ivar ports: the UDP port of each stream
    :ivar send: the command for the other side; None without a key
    :ivar last: the fields of the last event ``step``; empty before the first
    :raises UsageError: arguments that make no sense
    :raises FaultError: the ports or the name are taken
    """

    def __init__(self, listen: str = ":7500", *, name: str = "field", streams: int = 32, volume: str | None = None,
                 missing: str = "keep", complete: bool = False, record: AnyPath | None = None, steps: int | None = None,
                 key: str | None = None, state_dir: AnyPath | None = None, progress: Callable[[Event], None] = void):
        self.last: Event = {}
        self._progress, self._comes = progress, threading.Event()
        how = Receiving(listen, name, streams, volume, missing, complete, record, steps)
        # The thread that follows the events does not keep the receiver: one that is dropped ends.
        me = weakref.ref(self)
        native = begin(_native.receive_field, how, key, state_dir)
        self._running = Running(native, lambda event: _hear(me(), event))
        weakref.finalize(self, drop, native, os.getpid()).atexit = False
        self._running.wait_started()
        _open_receivers.add(self)
        self.fields = self._running.started
        self.name: str = self.fields["name"]
        self.ports: list[int] = self.fields["ports"]
        self.send: str | None = self.fields["send"]

    def open(self, timeout: float | None = None) -> Field:
        """The shared memory, as from :func:`open`, when a sender has described its field.

        :param timeout: seconds to wait for a sender
        :raises FieldError: no sender has connected by then, or the receiver has ended
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not self._comes.wait(_LOOK if until is None else min(_LOOK, max(0.0, until - time.monotonic()))):
            if self._running.wait(0):
                raise FieldError("no sender has come, and the receiver has ended")
            if until is not None and time.monotonic() >= until:
                raise FieldError(f"no sender has come within {timeout} s")
        return open(self.name)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until ``steps`` have arrived, at most ``timeout`` seconds; False: it still runs."""
        return self._running.wait(timeout)

    def close(self) -> dict[str, Any]:
        """Ends it; returns the totals: the fields of the event ``done``. A second call returns them again.

        :raises FaultError: it has failed, as where the disk of a recording is full
        """
        self._running.stop()
        self._running.wait()
        if self._running.failed is not None:
            raise self._running.failed
        return self._running.ended

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except RuntimeError:
            # The first error is the one to report.
            if kind is None:
                raise


def _hear(receiver: Receiver | None, event: Event) -> None:
    if receiver is None:
        return
    if event["event"] == "step":
        receiver.last = event
    if event["event"] in ("session", "step"):
        receiver._comes.set()
    receiver._progress(event)


_open_receivers: weakref.WeakSet[Receiver] = weakref.WeakSet()
# A forked process has none of them.
os.register_at_fork(after_in_child=_open_receivers.clear)


@atexit.register
def _close_all() -> None:
    """The memory of receivers goes with this process."""
    for receiver in list(_open_receivers):
        receiver._running.stop()
    for receiver in list(_open_receivers):
        receiver._running.wait(_END)
