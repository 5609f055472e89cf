"""Files that are read before they are here: the data of a read is fetched, verified and kept."""
from __future__ import annotations

import errno
import io
import json
import logging
import mmap
import os
import pathlib
import re
import threading
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from . import _errors, _native
from ._cancel import current
from ._operation import AnyPath, answer, begin, options, words
from ._transfer import Swarm

#: ``ORIGIN/NAME[@VERSION]`` of a daemon's cache.
_CACHE = re.compile(r"[\w+][\w.+-]*/[\w+][\w.+-]*(@[0-9]+)?", re.ASCII)
#: The kernel reads at most this many bytes at once.
_AT_ONCE = 1 << 30
#: Bytes that a file object reads at once for many small reads.
BUFFER = 64 << 10
#: Descriptors of files that a reader keeps.
_OPEN = 256

_USUAL = Swarm()
_log = logging.getLogger("tidecast")


class Entry(NamedTuple):
    """A name in a tree.

    :ivar path: below the tree's top, with ``/`` between names; a file that was published alone has its own name
    :ivar type: ``file``, ``directory`` or ``link``
    :ivar size: bytes of a file, 0 of others
    :ivar mode: permission bits
    :ivar mtime: when it was modified, seconds since 1970, if that is known
    :ivar target: where a link leads
    """

    path: str
    type: str
    size: int
    mode: int
    mtime: float | None
    target: str | None


class _Descriptor:
    """A file in which bytes that were fetched lie. Closed when the last read of it has ended."""

    def __init__(self, number: int):
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


class Buffer(Protocol):
    """Memory that can be written to: a bytearray, a memoryview, an array of NumPy."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


def split(path: str) -> tuple[str, str]:
    """Splits the path of a URL: a ticket, a manifest's or ticket's file, or a cache at its beginning; and the path within it.

    :raises FileNotFoundError: no file is at the beginning of a path with a leading ``/``, ``./`` or ``../``
    """
    if path.startswith(("/", "./", "../")):
        at = 0
        while at >= 0:
            at = path.find("/", at + 1)
            head = path if at < 0 else path[:at]
            if os.path.isfile(head):
                return head, path[len(head) + 1:]
        raise FileNotFoundError(errno.ENOENT, "no manifest and no file with a ticket at the beginning of", path)
    first, _, rest = path.partition("/")
    if first.lower().startswith("tidecast1"):
        return first, rest
    second, _, rest = rest.partition("/")
    return f"{first}/{second}", rest


def open(source: AnyPath, *, socket: AnyPath | None = None, cache: AnyPath | None = None, timeout: float | None = None,
         swarm: Swarm = _USUAL, state_dir: AnyPath | None = None) -> Reader:
    """Opens the data of a ticket, a magnet link, a manifest or a daemon's cache for reading: only read parts are fetched.

    Fetched pieces are kept in a directory of this user, at most as many as there are, so that the next process finds them.
    While another process reads the same tree, this one keeps its pieces apart, and removes them when it ends. A cache of the daemon
    is read in place; if it is not on this host, the whole cache is fetched first.

    :param source: a ticket, a magnet link, the path of a manifest or of a file that has a ticket, ``@FILE``, or
        ``ORIGIN/NAME[@VERSION]`` of a cache (where no file has that path)
    :param socket: where the daemon listens; by default the socket of the settings, else the host's daemon, else the user's own
    :param cache: a directory for pieces; by default below the directory for temporary files
    :param timeout: a read fails after this many seconds without data for it; by default 120
    :param swarm: how this node takes part, as of :func:`tidecast.get`
    :param state_dir: where this node keeps its key
    :raises FaultError: the owner refuses this node, there is no such cache, or there is no room
    :raises CutError: no peer supplied the manifest within the timeout
    """
    text = os.fspath(source)
    named = text.removeprefix("tidecast://")
    is_cache = _CACHE.fullmatch(named) is not None and (text != named or not os.path.exists(text))
    place = None
    if is_cache:
        place = (socket or begin(_native.Daemon, None).socket, named)
    taking_part = options(swarm, Swarm, "swarm")
    return Reader(begin(_native.open, None if is_cache else named, place, (cache, timeout), taking_part, state_dir))


class Reader:
    """A tree that is read, from any thread; :func:`tidecast.open` makes it. It belongs to the process that opened it: in a forked one its
    methods raise RuntimeError. Close it, or use it as a context manager.

    Paths (``path``) have ``/`` between names, and may lead through symbolic links within the tree. Offsets and lengths are in bytes.
    Methods raise FileNotFoundError or IsADirectoryError for a path that leads to no file, ValueError when the reader is closed, and those
    that wait for data :class:`tidecast.CutError` when no peer supplied it within the timeout.

    :ivar name: the name of the published data, or of the cache
    :ivar path: the path of a cache; None for other sources
    """

    def __init__(self, native: _native.Reader):
        self._native = native
        said: dict[str, Any] = answer(native.begin(current().flag))
        self.name: str = said["name"]
        self.path: pathlib.Path | None = None if said["path"] is None else pathlib.Path(said["path"])
        self._entries: list[Entry] | None = None
        self._below: dict[str, list[Entry]] = {}
        self._open: dict[int, _Descriptor] = {}
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, _finish, native, os.getpid())
        self._tell()

    @property
    def entries(self) -> list[Entry]:
        """All names of the tree: files in the order in which their bytes are published."""
        with self._lock:
            if self._entries is None:
                self._entries = [Entry(os.fsdecode(path), kind, size, mode, mtime, None if to is None else os.fsdecode(to))
                                 for path, kind, size, mode, mtime, to in self._native.entries()]
                self._below = {"": [], **{entry.path: [] for entry in self._entries if entry.type == "directory"}}
                for entry in self._entries:
                    self._below.setdefault(entry.path.rpartition("/")[0], []).append(entry)
            return self._entries

    def find(self, path: str, *, follow: bool = True) -> Entry | None:
        """The file or directory at ``path``; None if it does not exist, and for the top itself.

        :param follow: False gives the name itself, which may be a link, if it is there by this path
        """
        if not follow:
            above, _, name = path.strip("/").rpartition("/")
            found = self.find(above) if above else None
            if above and (found is None or found.type != "directory"):
                return None
            _ = self.entries
            below = self._below.get(found.path if found else "", ())
            return next((entry for entry in below if entry.path.rpartition("/")[2] == name), None)
        at = self._native.find(os.fsencode(path))
        return None if at is None else self.entries[at]

    def ls(self, path: str = "") -> list[Entry]:
        """The entries of the directory ``path``.

        :raises FileNotFoundError: it is not there
        :raises NotADirectoryError: it is a file
        """
        found = self.find(path)
        if found is None and path.strip("/"):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if found is not None and found.type != "directory":
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        _ = self.entries
        return list(self._below.get(found.path if found else "", []))

    def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        """Bytes of the file ``path`` from ``offset`` on, all if ``length`` is None; fewer at its end. Waits until they are here, and
        reads ahead according to earlier reads of the file.

        :raises FileNotFoundError: no file has this path
        :raises ValueError: ``offset`` or ``length`` is negative, or the reader is closed
        :raises CutError: no peer supplied them within the timeout
        """
        file, size = self._file(path)
        if offset < 0 or (length is not None and length < 0):
            raise ValueError(f"negative offset or length: {offset}, {length}")
        return self._read(file, offset, max(0, size - offset) if length is None else min(length, max(0, size - offset)))

    def readinto(self, path: str, buffer: Buffer, offset: int = 0) -> int:
        """As :meth:`read` of ``path`` from ``offset`` on, into ``buffer``, memory of the caller's that is not kept. Gives how
        many bytes came."""
        if offset < 0:
            raise ValueError(f"negative offset: {offset}")
        return self._readinto(*self._file(path), memoryview(buffer).cast("B"), offset)

    def read_ranges(self, ranges: Sequence[tuple[str, int, int]]) -> list[bytes]:
        """Bytes of many ``ranges`` (path, start, end), which come at once; nothing else is fetched. What is beyond a file's end is left
        out."""
        wanted = self._within(ranges)
        self._check(self._native.fetch(wanted))
        return [self._take(file, start, end - start) for file, start, end in wanted]

    def fetch(self, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Waits until ``ranges`` of bytes (path, start, end) are here, which come at once."""
        self._check(self._native.fetch(self._within(ranges)))

    def want(self, ranges: Iterable[tuple[str, int, int]]) -> None:
        """Asks for ``ranges`` of bytes (path, start, end) in this order, after all that is waited for. Does not wait for them."""
        self._check(self._native.want(self._within(ranges)))

    def open(self, path: str, buffering: int = BUFFER) -> File:
        """The file ``path`` as a file object for reading; ``buffering``: bytes that are read at once for many small reads."""
        file, size = self._file(path)
        return File(_Raw(self, file, size, path), max(1, buffering))

    def map(self, path: str) -> memoryview:
        """All of the file ``path`` as memory that cannot be written to, once it is here: mapped, not copied. The memory stays as long as
        the view or an array over it, also when the reader is closed."""
        file, size = self._file(path)
        if size == 0:
            return memoryview(b"")
        self._check(self._native.fetch([(file, 0, size)]))
        opened = self._descriptor(file)
        if opened is None:
            return memoryview(self._take(file, 0, size))
        return memoryview(mmap.mmap(opened.number, size, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED))

    def local_path(self, path: str) -> pathlib.Path | None:
        """Where the file ``path`` of a daemon's cache lies, for programs that open it themselves; None for other sources."""
        place = self._native.path(self._file(path)[0])
        return None if place is None else pathlib.Path(place)

    def is_local(self, path: str) -> bool:
        """Whether all of the file ``path`` is here."""
        return self._native.is_whole(self._file(path)[0])

    @property
    def received(self) -> int:
        """Payload received from peers since it was opened, bytes."""
        return self._native.received()

    @property
    def piece_length(self) -> int | None:
        """Bytes in a piece, the unit in which data is fetched; None for a daemon's cache."""
        return self._native.piece_length()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return not self._end.alive

    def close(self) -> None:
        """Ends it: reads are errors from then on, other nodes are served no longer, and the next process may have the pieces. Closing again
        does nothing."""
        if self._end.detach() is not None:
            self._tell()
            with self._lock:
                self._open.clear()
            _finish(self._native, os.getpid())

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _file(self, path: str) -> tuple[int, int]:
        """The number and the length of a file."""
        at = self._native.find(os.fsencode(path))
        if at is None:
            kind, code = (IsADirectoryError, errno.EISDIR) if not path.strip("/") else (FileNotFoundError, errno.ENOENT)
            raise kind(code, os.strerror(code), path)
        entry = self.entries[at]
        if entry.type != "file":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return at, entry.size

    def _within(self, ranges: Iterable[tuple[str, int, int]]) -> list[tuple[int, int, int]]:
        """Ranges as parts of files that are there: number, start, end."""
        found = []
        for one in words(ranges, "ranges"):
            if not isinstance(one, Sequence) or isinstance(one, str | bytes) or len(one) != 3:
                raise TypeError(f"{one!r}: a range is (path, start, end)")
            path, start, end = one
            file, size = self._file(path)
            if start < 0 or end < 0:
                raise ValueError(f"negative range of {path}: {start}, {end}")
            begin = min(start, size)
            found.append((file, begin, max(begin, min(end, size))))
        return found

    def _check(self, failed: str | None) -> None:
        if failed is not None:
            self._tell()
            raise _errors.of(json.loads(failed))

    def _tell(self) -> None:
        for text in self._native.troubles():
            _log.warning("%s", text)

    def _descriptor(self, file: int) -> _Descriptor | None:
        """The place of fetched bytes; None if they are not in a file."""
        opened = self._open.get(file)
        if opened is None:
            number = self._native.descriptor(file)
            if number is None:
                return None
            opened = _Descriptor(number)
            with self._lock:
                if len(self._open) >= _OPEN:
                    self._open.clear()
                self._open[file] = opened
        return opened

    def _bring(self, file: int, offset: int, length: int) -> None:
        """Waits until bytes are here. Those of a daemon's cache are."""
        if self.path is None:
            self._check(self._native.read_on(file, offset, length))

    def _read(self, file: int, offset: int, length: int) -> bytes:
        if length <= 0:
            return b""
        self._bring(file, offset, length)
        return self._take(file, offset, length)

    def _take(self, file: int, offset: int, length: int) -> bytes:
        """Bytes that are here and in the file."""
        if length <= 0:
            return b""
        opened = self._descriptor(file) if length <= _AT_ONCE else None
        if opened is not None:
            got = os.pread(opened.number, length, offset)
            if len(got) == length:
                return got
        bytes_, failed = self._native.copy(file, offset, length)
        self._check(failed)
        return bytes_ or b""

    def _readinto(self, file: int, size: int, view: memoryview, offset: int) -> int:
        length = max(0, min(len(view), size - offset))
        if length == 0:
            return 0
        self._bring(file, offset, length)
        self._fill(file, view[:length], offset)
        return length

    def _fill(self, file: int, view: memoryview, offset: int) -> None:
        """Reads bytes that are here into memory."""
        opened, done = self._descriptor(file), 0
        while opened is not None and done < len(view):
            got = os.preadv(opened.number, [view[done:done + _AT_ONCE]], offset + done)
            done += got
            if got == 0:
                break
        while done < len(view):
            part = self._take(file, offset + done, min(len(view) - done, 16 << 20))
            if not part:
                raise EOFError("the file is shorter than in the manifest")
            view[done:done + len(part)] = part
            done += len(part)


def _finish(native: _native.Reader, process: int) -> None:
    """Ends a reader, but not that of a parent process."""
    if process == os.getpid():
        with suppress(_errors.Error):
            answer(native.close())


class _Raw(io.RawIOBase):
    """A file that is read straight into the caller's memory."""

    mode = "rb"

    def __init__(self, reader: Reader, file: int, size: int, name: str):
        self._reader, self._file, self._size, self._at, self.name = reader, file, size, 0, name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        got = self._reader._readinto(self._file, self._size, memoryview(buffer).cast("B"), self._at)
        self._at += got
        return got

    def readall(self) -> bytes:
        got = self._reader._read(self._file, self._at, max(0, self._size - self._at))
        self._at += len(got)
        return got


class File(io.BufferedReader):
    """A file of a :class:`Reader`: data is fetched when it is read, and ahead of sequential reads.

    :ivar size: bytes
    """

    def __init__(self, raw: _Raw, buffering: int = BUFFER):
        super().__init__(raw, buffering)
        self.size = raw._size
        self._whole = buffering
        # A read and the place after it are one step, as of other file objects.
        self._turn = threading.Lock()

    # A large read is one read: the buffer would make two of it, and the second looks as if the file was read on.

    def read(self, size: int | None = -1, /) -> bytes:
        with self._turn:
            if size is None or size < self._whole:
                return super().read(size)
            at = self.tell()
            got = self._raw._reader._read(self._raw._file, at, max(0, min(size, self.size - at)))
            self.seek(at + len(got))
            return got

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        with self._turn:
            if len(view) < self._whole:
                return super().readinto(view)
            at = self.tell()
            got = self._raw._reader._readinto(self._raw._file, self.size, view, at)
            self.seek(at + got)
            return got

    @property
    def _raw(self) -> _Raw:
        raw = self.raw
        assert isinstance(raw, _Raw)
        return raw
