"""Copies any mix of files from host to host; and gives their files in memory as they arrive.

    import tidecast
    tidecast.copy("store:/archive/cmip6", "/data/")            # the module is a function too: see :func:`copy`

Analysis of files in memory can begin with the first, while the others are still being copied:

    import h5py, tidecast.copy
    for file in tidecast.copy.files("store:/archive/*.nc"):
        with h5py.File(file.at) as data:          # file.at is a path in shared memory
            print(file.path, data["tas"][:].mean())

``file.array`` is the same without any copy, as NumPy has it: bytes, read-only. The memory of a file is released when the next file is
requested, unless it is kept. Memory that is not released counts against the copy's limit; when the limit is reached, the copy waits.

``tidecast copy SRC... --to-memory`` does the work; its lines are explained by ``tidecast copy --help``.
"""
from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import threading
import types
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Generic, TypeVar

from ._errors import Error as Error
from ._errors import UsageError, of
from ._installed import find_tidecast_bin
from ._operation import AnyPath, Progress, Task, begin, waiting
from ._operation import words as listed
from ._secret import by_descriptor

if TYPE_CHECKING:
    import numpy
    import numpy.typing
    from typing_extensions import Self

#: Seconds that the program has to end by itself, and then to end when it is asked to.
_GRACE, _LONGEST = 0.4, 10.0

__all__ = ["Block", "Blocks", "File", "Files", "blocks", "copy", "files"]


def _path(event: dict[str, Any]) -> str:
    """The name, as :func:`os.fsdecode` gives it."""
    return os.fsdecode(bytes.fromhex(event["path_hex"])) if "path_hex" in event else str(event["path"])


def _source(source: AnyPath) -> str | bytes:
    """A source as a word of a command line."""
    word = os.fspath(source)
    if not word or "\0" in os.fsdecode(word):
        raise UsageError(f"invalid source {source!r}: it is empty or contains a NUL")
    return word


def _option(word: str) -> str:
    """A further option, which must not end the options."""
    if word == "--":
        raise UsageError("'--' is not an option: sources are separate arguments")
    return word


class Block:
    """Some bytes of a file, verified.

    :ivar path: the file's name, as in the source
    :ivar at: the file in shared memory, in which other parts may not have come yet
    :ivar offset: where in it these bytes begin
    :ivar bytes: how many they are
    """

    def __init__(self, event: dict[str, Any], copy: _Copy[Any]):
        self.path, self.at = _path(event), str(event["at"])
        self.bytes: int = event["bytes"]
        self.offset: int = event.get("offset", 0)
        self._number, self._copy, self._kept, self._released = event["number"], copy, False, False

    @property
    def array(self) -> numpy.typing.NDArray[numpy.uint8]:
        """The bytes where they are, as a NumPy array of uint8 that cannot be written to.

        It stays valid after the file is released, and holds its memory until the last view of it is deleted.
        """
        import numpy
        if self.bytes == 0:
            return numpy.frombuffer(b"", numpy.uint8)
        skip = self.offset % mmap.ALLOCATIONGRANULARITY
        with open(self.at, "rb") as file:
            view = mmap.mmap(file.fileno(), self.bytes + skip, access=mmap.ACCESS_READ, offset=self.offset - skip)
        return numpy.frombuffer(view, numpy.uint8)[skip:]

    def keep(self) -> None:
        """Is not to be given back when the next is asked for: :meth:`release` does that."""
        self._kept = True

    def release(self) -> None:
        """Gives its memory back. A second time does nothing."""
        if not self._released:
            self._released = True
            self._copy.release(self._number, self._give_back)

    @property
    def _give_back(self) -> int | None:
        return self.offset


class File(Block):
    """A whole file, verified.

    :ivar path: its name, as in the source
    :ivar at: where it is: a path that any library opens
    :ivar bytes: its length
    :ivar mode: its permission bits at the source
    :ivar mtime: when it was last changed there, seconds since 1970
    """

    def __init__(self, event: dict[str, Any], copy: _Copy[Any]):
        super().__init__(event, copy)
        self.mode: int = event["mode"]
        self.mtime: float = event["mtime"]

    @property
    def file(self) -> BinaryIO:
        """The file, opened for reading."""
        return open(self.at, "rb")

    @property
    def _give_back(self) -> None:
        return None


Item = TypeVar("Item", bound=Block)


class _Copy(Generic[Item]):
    """A running copy. A context manager that ends it, and an iterator, which threads may share: what a thread has had is given back when
    it asks for the next. It belongs to the process that began it."""

    _kind: str
    _words: tuple[str, ...] = ()
    _item: type[Item]

    def __init__(self, sources: Sequence[AnyPath], memory: int | None, program: str | None, options: Sequence[str]):
        self._owner = os.getpid()
        missing = UsageError("cannot find the program tidecast; name it with `program`, TIDECAST_PROGRAM or PATH")
        try:
            program = program or os.environ.get("TIDECAST_PROGRAM") or find_tidecast_bin()
        except FileNotFoundError:
            raise missing from None
        if not sources:
            raise UsageError("no source given")
        if memory is not None and memory < 0:
            raise UsageError(f"memory: {memory} is not a number of bytes")
        into = "--to-memory" if memory is None else f"--to-memory={int(memory)}"
        # Behind -- nothing is an option, whatever it begins with.
        words = [os.fspath(program), "copy", into, *self._words, *map(_option, listed(options, "options")), "--", *map(_source, sources)]
        try:
            with by_descriptor(words) as (argv, fds):
                self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=fds)
        except (FileNotFoundError, PermissionError):
            raise missing from None
        self._ask, self._said = _pipe(self._process.stdin), _pipe(self._process.stdout)
        # Threads may take turns. Giving back is apart from it: a thread that waits for the next item may wait for that.
        self._turn, self._giving, self._ending = threading.Lock(), threading.Lock(), threading.Lock()
        self._mine = threading.local()
        self._held = 0
        # The event by which all have arrived; empty if the program ended without it.
        self._copied: dict[str, Any] | None = None
        #: The last event: ``done`` with the totals, or ``error``.
        self.summary: dict[str, Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A child that was forked within the block has nothing to end.
        if self._owner == os.getpid():
            self.close()

    def __del__(self) -> None:
        # A child that was forked has the same pipes, and nothing to end.
        if hasattr(self, "_said") and self._owner == os.getpid():
            self.close()

    def _check(self) -> None:
        if self._owner != os.getpid():
            raise RuntimeError("this copy belongs to another process: it was begun before a fork")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Item:
        self._check()
        # What this thread has had: other threads may still use theirs.
        last: Block | None = getattr(self._mine, "last", None)
        self._mine.last = None
        if last is not None and not last._kept:
            last.release()
        with self._turn:
            item = self._come()
        if item is None:
            self._finish()
            raise StopIteration
        self._mine.last = item
        return item

    def _come(self) -> Item | None:
        """The next item; None behind the last."""
        for line in () if self._copied is not None or self._said.closed else self._said:
            event = json.loads(line)
            if event["event"] == self._kind:
                with self._giving:
                    self._held += 1
                return self._item(event, self)
            if event["event"] == "copied":
                self._copied = event
                return None
            self._heed(event)
        if not self._ask.closed:
            self._copied = self._copied or {}
        return None

    def release(self, number: int, offset: int | None) -> None:
        """Gives back a file, or a part of it."""
        self._check()
        words = f"release {number}\n" if offset is None else f"release {number} {offset}\n"
        with self._giving, suppress(OSError, ValueError):  # it has ended, and its memory with it
            self._held -= 1
            self._ask.write(words.encode())
            self._ask.flush()

    def _heed(self, event: dict[str, Any]) -> None:
        if event["event"] in ("done", "error"):
            self.summary = event

    def _finish(self) -> None:
        """All files have arrived, for each thread that asked. Kept ones stay until :meth:`close`."""
        if self._copied is None or (self._held and self._copied.get("failed") == 0):
            return
        self.close()
        if code := self._process.returncode:
            said = self.summary or {}
            reached = {name: value for name, value in said.items() if name not in ("event", "message", "code")}
            raise of({"code": code, "message": said.get("message", f"tidecast copy ended with {code}"), "reached": reached})

    def close(self) -> None:
        """Ends the copy, wherever it is, and frees its memory. Arrays that are still in use stay good.

        :raises RuntimeError: another process has begun it: this one was forked
        """
        self._check()
        with self._ending:
            if self._ask.closed:
                return
            with suppress(OSError):
                self._ask.close()
            self._end()
            # Another thread may be reading: it comes to the end now.
            with self._turn, self._said, suppress(ValueError):
                for line in self._said:
                    self._heed(json.loads(line))

    def _end(self) -> None:
        """Waits for the program, which ends where its input does; one that waits for another host is asked to."""
        try:
            for patience, ends in ((_GRACE, self._process.terminate), (_LONGEST, self._process.kill)):
                try:
                    self._process.wait(patience)
                    return
                except subprocess.TimeoutExpired:
                    ends()
            self._process.wait()
        except BaseException:
            self._process.kill()
            raise


class Files(_Copy[File]):
    """Whole files, in the order in which they are complete; :func:`files` makes it. Close it, or use it as a context manager."""

    _kind, _item = "file", File


class Blocks(_Copy[Block]):
    """Parts of files, in the order in which they come; :func:`blocks` makes it. Close it, or use it as a context manager."""

    _kind, _words, _item = "block", ("--blocks",), Block


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise AssertionError("the process was started with pipes")
    return pipe


def files(*sources: AnyPath, memory: int | None = None, program: str | None = None, options: Sequence[str] = ()) -> Files:
    """Files of ``sources`` (as of ``tidecast copy``: paths, ``host:path``, ``tidecast://…``) as they come.

    :param memory: bytes of shared memory that may be used at a time; a file that is larger comes alone
    :param program: the program tidecast, if it is not in PATH
    :param options: further words for ``tidecast copy``
    :raises UsageError: no source is given, or a source is empty or contains a NUL
    :raises Error: by the iterator: something could not be copied, or nothing could
    """
    return Files(sources, memory, program, options)


def blocks(*sources: AnyPath, memory: int | None = None, program: str | None = None, options: Sequence[str] = ()) -> Blocks:
    """Parts of 4 MiB of the files of ``sources``, as :func:`files`, with its ``memory``, ``program`` and ``options``: for files that are
    larger than the memory.

    :raises Error: as of :func:`files`
    """
    return Blocks(sources, memory, program, options)


@dataclass(frozen=True)
class Copying:
    """The arguments of :func:`copy`."""

    delete: bool
    update: bool
    checksum: bool
    dry_run: bool
    exclude: Sequence[str]
    key: str | None
    plain: bool
    streams: int | None
    limit: int | None


@waiting
def copy(sources: AnyPath | Sequence[AnyPath], to: AnyPath, *, delete: bool = False, update: bool = False, checksum: bool = False,
         dry_run: bool = False, exclude: Sequence[str] = (), key: str | None = None, plain: bool = False, streams: int | None = None,
         limit: int | None = None, progress: Progress = False) -> Task[dict[str, Any]]:
    """Copies files and directories, named as with rsync: paths of this host, ``host:path``, or URLs of copy servers.

    Times, modes and links are kept, as with ``rsync -a``. The same call resumes an interrupted copy. Returns the fields of the event
    ``done``.

    :param sources: one path or several
    :param to: the destination
    :param delete: delete what the sources do not have
    :param update: files that are newer at the destination stay
    :param checksum: files of equal size and time are compared by content
    :param dry_run: change nothing; only count the changes
    :param exclude: patterns of files to leave out, as rsync's
    :param key: the key of a copy server
    :param plain: data unencrypted
    :param streams: TCP connections; by default as many as increase the rate
    :param limit: bytes a second
    :raises FaultError: some names failed: ``reached`` has the ``problems``; the rest is copied
    """
    from . import _native
    words = [os.fspath(source) for source in ([sources] if isinstance(sources, str | os.PathLike) else sources)]
    how = Copying(delete, update, checksum, dry_run, listed(exclude, "exclude"), key, plain, streams, limit)
    return Task(begin(_native.copy, words, os.fspath(to), how), lambda done: done, progress)


class _Module(types.ModuleType):
    """A module that is a function: ``tidecast.copy(...)`` beside ``tidecast.copy.files(...)``."""

    __call__ = staticmethod(copy)
    if TYPE_CHECKING:
        Block, Blocks, File, Files = Block, Blocks, File, Files
        blocks, copy, files = staticmethod(blocks), staticmethod(copy), staticmethod(files)


sys.modules[__name__].__class__ = _Module
