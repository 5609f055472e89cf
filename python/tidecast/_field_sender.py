"""Sending from within a simulation: steps go through memory that the sending threads of the extension read."""
from __future__ import annotations

import json
import math
import operator
import os
import queue
import threading
import time
import warnings
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from . import _native
from ._field_memory import FieldError
from ._field_operation import Running
from ._field_values import check, loaded, put
from ._operation import Event, begin, drop

#: Volumes in the shared memory.
SLOTS = 3
#: Seconds that queued steps have to leave when an exception ends the block.
_BROKEN_OFF = 0.5
#: Bytes that a file may have.
MOST = (1 << 63) - 1
#: The highest number of a step, which is a batch on the wire.
LAST = (1 << 32) - 3


@dataclass(frozen=True)
class Sending:
    """The arguments of :class:`Sender` about transmission, as words of the program."""

    streams: int
    rate: str
    packing: str
    order: str
    fec: str
    sync: str | None
    cpus: str | None


class Sender:
    """Sends the steps of a simulation when they are put. Threads of this process send; they do not need Python's lock.

    :param to: ``"host:port"`` of the receiver, or several of them in a list
    :param shape: of the arrays: z, y, x
    :param key: the receiver's key, or ``"@file"`` that has it; by default the variable ``TIDECAST_FIELD_KEY``. ``""``: plain
    :param name: the name for readers
    :param streams: cut the volume into at most this many slabs, one stream each
    :param rate: bytes a second, or words (``"10gbit"``); ``auto``: as much as arrives
    :param packing: how values are packed: ``run``, or the paper's ``xyz``
    :param order: in which order values of a slab go: ``zslab``, by planes, or ``morton``, in bricks along the Z-order curve
    :param fec: parity packets to make up for lost ones, as a share of the data packets: 0.05, or ``"5%"``
    :param sync: ``"address:port"`` to listen on for a controller (``tidecast field sync``): each step is sent when that commands, and none
        without it
    :param cpus: cores to run on, one sending thread on each: numbers, or words (``"0-3,8"``, ``"node:0"``, ``"card:ib0"``)
    :raises UsageError: a key, an address or a word that makes no sense

    A step is copied once, into memory of three volumes that is the sender's. Use it in ``with``, or call :meth:`close`.
    """

    def __init__(self, to: str | list[str], shape: tuple[int, int, int], *, key: str | None = None, name: str = "simulation",
                 streams: int = 8, rate: int | str = "auto", packing: str = "run", order: str = "zslab", fec: float | str = 0,
                 sync: str | None = None, cpus: str | Sequence[int] | None = None):
        self.shape = tuple(operator.index(n) for n in shape)
        if not to:
            raise ValueError("no receiver given")
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise ValueError(f"a shape is three lengths, z, y, x; not {shape}")
        #: Steps that were accepted for sending, and steps that were dropped for lack of room.
        self.sent, self.dropped = 0, 0
        #: The last report: rate, step, lost, and so on; at the end the summary.
        self.progress: dict[str, Any] = {}
        self._next = 0
        self._free: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._spare: int | None = None
        how = Sending(streams, rate if isinstance(rate, str) else f"{8 * rate}bit", packing, order,
                      fec if isinstance(fec, str) else f"{100 * fec}%", sync,
                      cpus if cpus is None or isinstance(cpus, str) else ",".join(map(str, cpus)))
        size = 4 * math.prod(self.shape)
        if size * SLOTS > MOST:
            raise ValueError(f"the shape {shape} is too large: {SLOTS} volumes of {size} bytes fit into no file")
        memory = os.memfd_create("tidecast-feed")
        try:
            os.ftruncate(memory, size * SLOTS)
            with os.fdopen(os.dup(memory), "r+b") as file:
                self._slots = np.memmap(file, "<f4", "r+", shape=(SLOTS, *self.shape))
        except BaseException:
            os.close(memory)
            raise
        self._lock = threading.Lock()
        hear, their_say = os.pipe()
        their_hear, say = os.pipe()
        self._hear, self._say = os.fdopen(hear), os.fdopen(say, "w")
        theirs = (memory, their_hear, their_say)
        self._tell({"shape": self.shape, "steps": None, "name": name})
        try:
            # The dialogue of a feed, as with another process: the extension opens the three files again.
            feed = ",".join(f"/proc/self/fd/{fd}" for fd in theirs)
            native = begin(_native.send_field, feed, [to] if isinstance(to, str) else list(to), how, key)
        except BaseException:
            self._hear.close()
            self._say.close()
            raise
        finally:
            for fd in theirs:
                os.close(fd)
        # The threads do not keep the sender: one that is dropped ends.
        me = weakref.ref(self)
        self._running = Running(native, lambda event: _follow(me(), event))
        threading.Thread(target=_listen, args=[self._hear, self._free], name="tidecast-feed", daemon=True).start()
        weakref.finalize(self, drop, native, os.getpid()).atexit = False

    def _tell(self, line: dict[str, Any]) -> None:
        self._say.write(json.dumps(line) + "\n")
        self._say.flush()

    def put(self, array: Any, step: int | None = None, timeout: float = 0.0) -> bool:
        """Queues a step for sending; ``array`` is copied, and may be changed at once. True if there was room for it within
        ``timeout`` seconds, else it is dropped. Masked values of a masked array arrive as NaN.

        :param step: its number, which rises, at most 2³² - 3; by default those that were put are counted, dropped ones too
        :raises FieldError: the sender has ended or was closed
        :raises TypeError: its values are not real numbers
        :raises ValueError: its shape is another one, or the number does not rise
        """
        self._running.check()
        array = loaded(array)
        check(array.dtype)
        if array.shape != self.shape:
            raise ValueError(f"the array has the shape {array.shape}, not {self.shape}")
        # Threads take turns: a number that is given later is told later.
        with self._lock:
            return self._put(array, step, timeout)

    def _put(self, array: Any, step: int | None, timeout: float) -> bool:
        if self._say.closed:
            raise FieldError("the sender is closed")
        step = self._next if step is None else operator.index(step)
        if not self._next <= step <= LAST:
            wrong = f"comes after {self._next - 1}: numbers rise" if step <= LAST else f"is too high: the last is {LAST}"
            raise ValueError(f"step {step} {wrong}")
        self._next = step + 1
        slot, self._spare = self._spare, None
        try:
            if slot is not None:
                pass
            elif timeout > 0:
                slot = self._free.get(timeout=min(timeout, threading.TIMEOUT_MAX))
            else:
                slot = self._free.get_nowait()
        except queue.Empty:
            self.dropped += 1
            return False
        try:
            if slot is None:
                raise BrokenPipeError
            put(array, self._slots[slot])
            self._tell({"filled": slot, "step": step})
        except BrokenPipeError:
            self._free.put(None)
            self._running.wait(10)
            raise FieldError(str(self._running.failed or "the sender has ended")) from None
        except BaseException:
            # Of the values: the next step fills this volume, as they are filled in turn.
            self._spare = slot
            raise
        self.sent += 1
        return True

    def close(self, timeout: float = 60.0) -> None:
        """Sends the queued steps, for at most ``timeout`` seconds, and ends; closing again does nothing. A receiver that did not accept
        them is a warning: a simulation does not need viewers.

        :raises FieldError: not all was sent, or the sender has failed
        """
        self._running.check()
        if self._say.closed:
            return
        until = time.monotonic() + min(timeout, threading.TIMEOUT_MAX / 2)
        with suppress(BrokenPipeError):
            self._say.close()
        is_late = not self._running.wait(max(0.0, until - time.monotonic()))
        if is_late:
            self._running.stop()
            self._running.wait()
        failed = self._running.failed
        if self._running.ended:
            self.progress = self._running.ended
        if is_late:
            raise FieldError(f"not all was sent within {timeout} s")
        if failed is not None and "steps" in self.progress:
            # Receivers did not accept all data.
            warnings.warn(str(failed), RuntimeWarning, stacklevel=2)
        elif failed is not None:
            raise FieldError(str(failed))

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close(_BROKEN_OFF if kind is not None else 60.0)
        except FieldError:
            # The first error is the one to report.
            if kind is None:
                raise


def _listen(hear: IO[str], free: queue.SimpleQueue[int | None]) -> None:
    """Free slots; None when there will be no further ones."""
    with hear as lines:
        for line in lines:
            free.put(json.loads(line)["fill"])
    free.put(None)


def _follow(sender: Sender | None, event: Event) -> None:
    if sender is not None and event["event"] in ("progress", "done"):
        sender.progress = event
