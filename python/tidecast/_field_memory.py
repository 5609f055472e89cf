"""The shared memory of a receiver, read without waiting for locks."""
from __future__ import annotations

import fcntl
import mmap
import os
import pathlib
import time
from contextlib import suppress
from stat import S_ISREG
from typing import BinaryIO, NamedTuple

import numpy as np

from . import _field_layout as _layout
from ._errors import Error

_DIR = pathlib.Path(_layout.DIR)
#: Between two looks of a wait, seconds.
_LOOK = 0.002


class FieldError(Error):
    """A field that is not there, or cannot be sent."""


class Closed(FieldError):
    """The receiver has ended or recreated the memory: open the name again."""


class Slab(NamedTuple):
    """Counters of one stream. ``expected`` to ``recovered_now`` are packets of its step; the others count all steps."""
    z0: int
    z1: int
    batch: int
    step: int
    expected: int
    received: int
    recovered_now: int
    packets: int
    bytes: int
    lost: int
    recovered: int
    duplicate: int
    stale: int
    rejected: int
    reordered: int
    complete: int
    incomplete: int
    last: int
    stream: int
    is_open: bool


class Entry(NamedTuple):
    """A step that has closed; ``when`` is in nanoseconds since 1970, ``missing`` in values."""
    step: int
    batch: int
    when: int
    expected: int
    received: int
    recovered: int
    missing: int
    bytes: int


# Both are read as they lie.
assert {name: 8 * place for place, name in enumerate(Slab._fields)} == _layout.SLAB
assert {name: 8 * place for place, name in enumerate(Entry._fields)} == _layout.ENTRY


class Volume(NamedTuple):
    """A copy of a volume, the number of its step, and which values are not of it: ``numpy.ma.array(volume.array, mask=volume.mask)``."""
    array: np.ndarray
    step: int
    mask: np.ndarray


class Field:
    """A field that a receiver of this host has. ``open`` makes it; close it, or use it in ``with``."""

    def __init__(self, name: str):
        self.name = name
        self._path = _DIR / (_layout.PREFIX + name)
        try:
            self._file = _open_own(self._path)
            self._map = mmap.mmap(self._file.fileno(), 0, prot=mmap.PROT_READ)
        except (OSError, ValueError):
            raise FieldError(f"no field {name!r} on this host; receive it with: tidecast field recv --name {name}") from None
        if len(self._map) < _layout.HEAD_SIZE:
            raise FieldError(f"{self._path} is not a field, or not yet one")
        self._words = np.frombuffer(self._map, "<u8", len(self._map) // 8)
        if self._map[:8] != _layout.MAGIC or self._word("version") != _layout.VERSION:
            raise FieldError(f"{self._path} is not a field, or of another version of tidecast")
        #: Of the whole volume: z, y, x.
        self.shape: tuple[int, int, int] = (self._word("shape", 2), self._word("shape", 1), self._word("shape"))
        count = self.shape[0] * self.shape[1] * self.shape[2]
        volumes, first, apart = (self._word("volumes", place) for place in range(3))
        if not 1 <= volumes <= _layout.MOST_VOLUMES or first + (volumes - 1) * apart + 4 * count > len(self._map):
            raise FieldError(f"{self._path} is damaged")
        self._volumes = [np.frombuffer(self._map, "<f4", count, first + n * apart).reshape(self.shape)
                         for n in range(volumes)]
        # A receiver without maps does not report which values are missing.
        maps, size = self._word("maps"), self._word("maps", 1)
        self._maps = [np.frombuffer(self._map, "u1", -(-count // 8), maps + n * size) for n in range(len(self._volumes))] if maps else []
        self._seen = self.closed

    def _word(self, name: str, place: int = 0) -> int:
        """A word of the head, or of several of this name the one at ``place``."""
        if self._file.closed:
            raise FieldError(f"{self.name}: this field is closed")
        return int(self._words[_layout.HEAD[name] // 8 + place])

    @property
    def array(self) -> np.ndarray:
        """The volume to read, as it is now: a read-only view, nothing is copied. With ``field recv --volume live`` it changes all the
        time; else it is a step that has closed, and stays unchanged for one more step at least. Ask again for a newer one."""
        return self._volumes[min(self._word("front"), len(self._volumes) - 1)]

    @property
    def mask(self) -> np.ndarray:
        """Which values of :attr:`array` are not of the step in front, True for each, as ``numpy.ma`` has it: they were lost, and are NaN
        or those of an earlier step. Of a volume that always changes, those that are neither of the step that closed last nor of a later
        one."""
        return self._mask(min(self._word("front"), len(self._volumes) - 1))

    def _mask(self, volume: int) -> np.ndarray:
        if not self._maps or self._word("holes", volume) == 0:
            return np.broadcast_to(np.False_, self.shape)
        count = self.shape[0] * self.shape[1] * self.shape[2]
        absent: np.ndarray = np.unpackbits(self._maps[volume], count=count, bitorder="little").reshape(self.shape) == 0
        return absent

    @property
    def step(self) -> int:
        """The step in front; for a volume that always changes, the newest of which any value has arrived."""
        return self._word("step")

    @property
    def closed(self) -> int:
        """Steps closed so far."""
        return self._word("closed")

    @property
    def is_open(self) -> bool:
        """False when the receiver has ended, was killed, or has recreated the memory."""
        return not self._file.closed and self._word("state") == 1 and _is_held(self._file)

    @property
    def title(self) -> str:
        """The sender's name for it."""
        self._word("state")
        return self._map[_layout.HEAD["title"]:_layout.HEAD["title"] + _layout.TITLE_SIZE].split(b"\0")[0].decode("utf-8", "replace")

    @property
    def rate(self) -> int:
        """Bits a second, as the sender reports."""
        return self._word("rate")

    @property
    def last(self) -> float:
        """When a packet last came: seconds since 1970."""
        return self._word("last") / 1e9

    @property
    def loss(self) -> float:
        """The share of values that are missing in the step that has closed last, from 0 to 1; 0 before there was one."""
        history = self._entries(1)
        values = sum(slab.z1 - slab.z0 for slab in self.slabs) * self.shape[1] * self.shape[2]
        return history[-1].missing / values if history and values else 0.0

    @property
    def slabs(self) -> list[Slab]:
        """The counters of each stream."""
        count, first, size = (self._word("slabs", place) for place in range(3))
        rows = [self._words[(first + n * size) // 8:][:len(Slab._fields)].tolist() for n in range(count)]
        return [Slab._make([*row[:-1], bool(row[-1])]) for row in rows]

    @property
    def history(self) -> list[Entry]:
        """The steps that have closed last, the oldest first."""
        return self._entries(self._word("history", 1))

    def _entries(self, most: int) -> list[Entry]:
        place, size, written = self._word("history"), self._word("history", 1), self._word("written")
        begin = max(0, written - min(most, size))
        places = [(place + n % size * _layout.ENTRY_SIZE) // 8 for n in range(begin, written)]
        return [Entry(*self._words[at:at + len(Entry._fields)].tolist()) for at in places]

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits until a further step closes; returns the steps closed so far, or None after ``timeout`` seconds.

        :raises Closed: no further step will arrive
        """
        until = None if timeout is None else time.monotonic() + timeout
        while self.closed == self._seen:
            if not self.is_open:
                raise Closed(f"{self.name}: the receiver has stopped or was started again")
            if until is not None and time.monotonic() >= until:
                return None
            time.sleep(_LOOK)
        self._seen = self.closed
        return self._seen

    def read(self, timeout: float = 10.0) -> Volume:
        """A copy of the volume in front, with the number of its step and a mask of the values that are not of that step. (A volume
        that always changes
        is copied as it is.)

        :raises FieldError: steps arrive so fast that none could be copied whole within ``timeout`` seconds
        """
        if len(self._volumes) == 1:
            return Volume(self.array.copy(), self.step, self.mask)
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            front, step = self._word("front"), self.step
            sequence = self._word("sequences", front)
            if sequence % 2 == 0:
                copy, mask = self._volumes[front].copy(), self._mask(front)
                # A step may have come to the front between the two words.
                if self._word("sequences", front) == sequence and (self._word("front"), self.step) == (front, step):
                    return Volume(copy, step, mask)
            time.sleep(_LOOK)
        raise FieldError(f"{self.name}: no step could be copied whole within {timeout} s")

    def close(self) -> None:
        """Lets go of the memory. Arrays that are still in use keep it."""
        self._volumes, self._maps, self._words = [], [], np.zeros(64, "<u8")
        self._file.close()
        with suppress(BufferError):
            self._map.close()

    def __enter__(self) -> Field:
        self._word("state")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<tidecast field {self.name!r} {self.shape}, {'closed' if self._file.closed else f'step {self.step}'}>"


def open(name: str = "field") -> Field:
    """The field ``name`` from a receiver on this host.

    :raises FieldError: there is no such field
    """
    return Field(name)


def names() -> list[str]:
    """The names of the fields that receivers of this host have."""
    return sorted(path.name[len(_layout.PREFIX):] for path in _DIR.glob(_layout.PREFIX + "*") if _is_received(path))


def _is_received(path: pathlib.Path) -> bool:
    try:
        with _open_own(path) as file:
            return _is_held(file)
    except (OSError, FieldError):
        return False


def _open_own(path: pathlib.Path) -> BinaryIO:
    """In a public directory any user may have created this name: a pipe must not block the open, a link must not be followed, and
    another user must neither replace a receiver's file nor truncate it while it is mapped."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    stat = os.fstat(file.fileno())
    if not S_ISREG(stat.st_mode):
        file.close()
        raise FieldError(f"{path} is not a file")
    if stat.st_uid not in (0, os.geteuid()) and os.geteuid():
        file.close()
        raise FieldError(f"{path} belongs to user {stat.st_uid}: it may be anything")
    return file


def _is_held(file: BinaryIO) -> bool:
    """Whether a receiver has this file: it holds a lock on it until it ends, even when it is killed. The lock here is shared and
    released at once. It blocks no receiver, since receivers lock only files that no other process can have opened yet."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False
