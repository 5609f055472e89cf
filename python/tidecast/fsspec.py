"""``tidecast://`` for fsspec, and so for pandas, Dask, xarray, Zarr, PyArrow and whatever else opens URLs by it.

    import pandas
    pandas.read_parquet(f"tidecast://{ticket}/2026/01.parquet")          # only the pieces that hold the columns come
    pandas.read_parquet("tidecast:///data/tables.torrent/2026/01.parquet")
    pandas.read_parquet("tidecast://head/tables/2026/01.parquet")        # a cache of this host's daemon

A URL begins with a ticket, with the path of a manifest or of a file that has a ticket, or with ``ORIGIN/NAME[@VERSION]`` of a
daemon's cache; the path within follows. A ticket is a secret: where URLs are logged, name a file that has it, or
``storage_options={"source": ticket}``; then the URL has the path within alone. That goes for magnet links, too.
"""
from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import functools
import io
import logging
import os
import pathlib
import secrets
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ._cancel import Cancel, apart
from ._installed import needed
from ._operation import AnyPath
from ._reading import BUFFER, Entry, File, Reader, _Raw, open, split
from ._transfer import Swarm

with needed("tidecast.fsspec", "tidecast[fsspec]"):
    from fsspec.asyn import AsyncFileSystem
    from fsspec.callbacks import DEFAULT_CALLBACK
    from fsspec.core import has_magic
    from fsspec.implementations.local import make_path_posix
    from fsspec.utils import isfilelike, other_paths, stringify_path

T = TypeVar("T")
_log = logging.getLogger("tidecast")

#: Reads of asyncio that wait at the same time.
_AT_ONCE = 32
#: Bytes that a copy to a local file reads at once.
_PART = 8 << 20


class _Shared:
    """The readers of this process: file systems with the same options, such as one for asyncio and one without, share a reader."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opening: dict[str, threading.Lock] = {}
        self._readers: weakref.WeakValueDictionary[str, Reader] = weakref.WeakValueDictionary()

    def reader(self, source: str, how: dict[str, Any]) -> Reader:
        key = repr((source, sorted(how.items())))
        with self._lock:
            opening = self._opening.setdefault(key, threading.Lock())
        # A source that does not answer keeps no other waiting.
        with opening:
            reader = self._readers.get(key)
            if reader is None or reader.closed:
                reader = self._readers[key] = open(source, **how)
            return reader

    def forget(self, readers: Iterable[Reader]) -> None:
        """The next one to ask for the source of one of these opens it again."""
        gone = {id(reader) for reader in readers}
        with self._lock:
            for key, reader in list(self._readers.items()):
                if id(reader) in gone:
                    self._readers.pop(key, None)


_shared = _Shared()
# Inherited readers work in the parent only, and another thread may have held the lock.
os.register_at_fork(after_in_child=_shared.__init__)  # type: ignore[misc]


class TidecastFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """Reads published data or a daemon's cache while it is being fetched. Read-only.

    :param source: the source, if URLs have only the path within it: as for :func:`tidecast.open`
    :param socket: where the daemon listens
    :param cache: a directory for pieces; by default below the directory for temporary files
    :param timeout: a read fails after this many seconds without data for it; by default 120
    :param swarm: options of the swarm, a :class:`tidecast.Swarm` or a dictionary of its arguments
    :param state_dir: where this node keeps its key

    Errors are those of :func:`tidecast.open` and :class:`tidecast.Reader`.
    """

    protocol = "tidecast"
    root_marker = ""

    def __init__(self, source: AnyPath | None = None, *, socket: AnyPath | None = None, cache: AnyPath | None = None,
                 timeout: float | None = None, swarm: Swarm | dict[str, Any] | None = None, state_dir: AnyPath | None = None,
                 **options: Any):
        super().__init__(source, socket=socket, cache=cache, timeout=timeout, swarm=swarm, state_dir=state_dir, **options)
        self.source = None if source is None else os.fspath(source)
        if source is not None:
            # All of a path is within the tree: a slash before it means nothing.
            self._strip_protocol = self._strip_slashes  # type: ignore[method-assign]
        taking_part = Swarm(**swarm) if isinstance(swarm, dict) else swarm or Swarm()
        self._how: dict[str, Any] = {"socket": socket, "cache": cache, "timeout": timeout, "swarm": taking_part, "state_dir": state_dir}
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._readers: dict[str, Reader] = {}
        self._waiting: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()

    # Paths.

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text: str = stringify_path(path)
        return text.removeprefix("tidecast://").rstrip("/")

    def _strip_slashes(self, path: Any) -> Any:
        if isinstance(path, list):
            return [self._strip_slashes(one) for one in path]
        return type(self)._strip_protocol(path).lstrip("/")

    def _at(self, path: str) -> tuple[Reader, str, str]:
        """The reader of a path, the part of the URL before the path within, and that path."""
        path = self._strip_protocol(path)
        if os.getpid() != self._process:
            # A child that was forked: its parent's readers do not work here.
            self._begin()
        if self.source is not None:
            return self._reader(self.source), "", path
        head, inner = split(path)
        return self._reader(head if head.startswith(("/", ".")) else f"tidecast://{head}"), head + "/", inner

    def _is_open(self, path: str) -> bool:
        """Whether nothing is waited for to look up a path."""
        if os.getpid() != self._process:
            return False
        return bool(self._readers) and (self.source is not None or path.startswith(tuple(self._readers)))

    def _reader(self, source: str) -> Reader:
        reader = self._readers.get(source)
        if reader is None or reader.closed:
            reader = self._readers[source] = _shared.reader(source, self._how)
        return reader

    def reader(self, path: str = "") -> Reader:
        """The reader of a path: to request many ranges in order, and to count the fetched bytes."""
        return self._at(path)[0]

    def local_path(self, path: str) -> pathlib.Path | None:
        """Where a file of a daemon's cache lies on this host; None for other sources."""
        reader, _, inner = self._at(path)
        return reader.local_path(inner)

    def map(self, path: str) -> memoryview:
        """All of a file as memory that cannot be written to: mapped from the store, not copied."""
        reader, _, inner = self._at(path)
        return reader.map(inner)

    # Names.

    @staticmethod
    def _told(name: str, entry: Entry, found: Entry | None) -> dict[str, Any]:
        """The info of fsspec; ``found``: the target of a link. A link to a directory has the type ``other``, so that ``walk`` does not
        follow it: it may lead to a directory above."""
        of = entry if found is None or found.type != "file" else found
        kind = "other" if of.type == "link" else of.type
        told = {"name": name, "type": kind, "size": of.size if kind == "file" else 0, "mode": of.mode, "mtime": of.mtime,
                "islink": entry.type == "link"}
        if entry.target is not None:
            told["destination"] = entry.target
        return told

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        reader, prefix, inner = self._at(path)
        name = (prefix + inner).rstrip("/")
        if not inner:
            return {"name": name, "type": "directory", "size": 0}
        # A link that leads out of the tree is there, too.
        found, itself = reader.find(inner), reader.find(inner, follow=False)
        entry = itself or found
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        told = self._told(name, entry, found if entry.type == "link" else None)
        # Asked for by its own name, a link to a directory is one.
        return told | {"type": "directory"} if found is not None and found.type == "directory" else told

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        reader, prefix, inner = self._at(path)
        found = reader.find(inner) if inner else None
        if found is not None and found.type == "file":
            infos = [self.info(path)]
        else:
            base = prefix + (inner + "/" if inner else "")
            infos = [self._told(base + entry.path.rpartition("/")[2], entry, reader.find(entry.path) if entry.type == "link" else None)
                     for entry in reader.ls(inner)]
        infos.sort(key=lambda info: str(info["name"]))
        return infos if detail else [told["name"] for told in infos]

    def modified(self, path: str) -> datetime.datetime:
        """When a file was modified, as the publisher recorded it."""
        time = self.info(path).get("mtime")
        if time is None:
            raise NotImplementedError("the manifest has no times")
        return datetime.datetime.fromtimestamp(time, tz=datetime.timezone.utc)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Opens sources again at the next read: a ticket's file that has changed, or the newest version of a daemon's cache. Files
        that are open stay as they are."""
        _shared.forget(self._readers.values())
        self._readers = {}

    # Nothing is written.

    def _refuse(self, path: Any = "", *_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    async def _refuse_async(self, path: Any = "", *_: Any, **__: Any) -> None:
        self._refuse(path)

    mkdir = rmdir = rm = rm_file = cp_file = copy = mv = put = put_file = pipe = pipe_file = touch = _refuse
    _mkdir = _rm = _rm_file = _cp_file = _copy = _put = _put_file = _pipe = _pipe_file = _refuse_async

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        if not (exist_ok and self.isdir(path)):
            self._refuse(path)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        await self._in_thread(self.makedirs, path, exist_ok)

    # Data.

    @staticmethod
    def _range(size: int, start: int | None, end: int | None) -> tuple[int, int]:
        return slice(start, end).indices(size)[:2]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return self._ranges([path], [start], [end])[0]

    def _ranges(self, paths: Sequence[str], starts: Sequence[int | None], ends: Sequence[int | None]) -> list[bytes]:
        """All ranges at once; those of one tree in one request."""
        wanted: dict[int, tuple[Reader, list[int], list[tuple[str, int, int]]]] = {}
        for at, (path, start, end) in enumerate(zip(paths, starts, ends, strict=True)):
            reader, _, inner = self._at(path)
            _, size = reader._file(inner)
            _, places, ranges = wanted.setdefault(id(reader), (reader, [], []))
            places.append(at)
            ranges.append((inner, *self._range(size, start, end)))
        came = [b""] * len(paths)
        for reader, places, ranges in wanted.values():
            for at, data in zip(places, reader.read_ranges(ranges), strict=True):
                came[at] = data
        return came

    def cat_ranges(self, paths: list[str], starts: Any, ends: Any, max_gap: int | None = None,
                   on_error: str = "return", **_: Any) -> list[Any]:
        def each(of: Any) -> list[Any]:
            return list(of) if isinstance(of, Iterable) else [of] * len(paths)

        begins, stops = each(starts), each(ends)
        if not len(paths) == len(begins) == len(stops):
            raise ValueError("paths, starts and ends differ in length")
        try:
            return list(self._ranges(paths, begins, stops))
        except Exception:
            if on_error != "return":
                raise
        return [self._or_error(path, start, end) for path, start, end in zip(paths, begins, stops, strict=True)]

    def _or_error(self, path: str, start: int | None, end: int | None) -> Any:
        try:
            return self.cat_file(path, start, end)
        except Exception as error:  # noqa: BLE001 - fsspec expects it in the place of the bytes
            return error

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **_: Any) -> OpenFile:
        if mode != "rb":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        reader, prefix, inner = self._at(path)
        file, size = reader._file(inner)
        return OpenFile(self, prefix + inner, _Raw(reader, file, size, prefix + inner), block_size or BUFFER)

    def get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **_: Any) -> None:
        reader, _prefix, inner = self._at(rpath)
        kind = self.info(rpath)["type"]
        if kind == "directory" and not isfilelike(lpath):
            os.makedirs(lpath, exist_ok=True)
        if kind == "other":
            _log.warning("%s is a link that leads to no file of the tree: it is not copied", inner)
        if kind != "file":
            return
        file, size = reader._file(inner)
        callback.set_size(size)
        part = memoryview(bytearray(min(size, _PART)))
        with contextlib.nullcontext(lpath) if isfilelike(lpath) else _whole(os.fspath(lpath)) as out:
            at = 0
            while at < size:
                got = reader._readinto(file, size, part, at)
                out.write(part[:got])
                at += got
                callback.relative_update(got)

    # The same for asyncio: waiting calls run in a thread.

    async def _in_thread(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Not in a pool's thread: a read that was cancelled may wait on for its data, which takes no place of others then, and keeps no
        program from ending."""
        if os.getpid() != self._process:
            self._begin()
        places = self._waiting.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE))
        async with places:
            return await apart(functools.partial(call, *arguments, **named), Cancel(), patience=0)

    async def _info(self, path: str, **named: Any) -> dict[str, Any]:
        if self._is_open(path):
            return self.info(path)
        return await self._in_thread(self.info, path, **named)

    async def _ls(self, path: str, detail: bool = True, **named: Any) -> list[Any]:
        if self._is_open(path):
            return self.ls(path, detail)
        return await self._in_thread(self.ls, path, detail, **named)

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **named: Any) -> bytes:
        return await self._in_thread(self.cat_file, path, start, end, **named)

    async def _cat_ranges(self, paths: list[str], starts: Any, ends: Any, max_gap: int | None = None, batch_size: int | None = None,
                          on_error: str = "return", **named: Any) -> list[Any]:
        return await self._in_thread(self.cat_ranges, paths, starts, ends, max_gap, on_error, **named)

    async def _get(self, rpath: Any, lpath: Any, recursive: bool = False, callback: Any = DEFAULT_CALLBACK,
                   maxdepth: int | None = None, **named: Any) -> Any:
        if not (isinstance(rpath, list) and isinstance(lpath, list)):
            lpath = stringify_path(lpath)
            into = _is_directory(lpath)
            rpath, lpath = await self._copies(rpath, lpath, into, recursive, maxdepth)
        return await super()._get(rpath, lpath, callback=callback, **named)

    async def _copies(self, rpath: Any, lpath: str, into: bool, recursive: bool,
                      maxdepth: int | None) -> tuple[list[str], list[str]]:
        """Files and directories, and the names of their copies by fsspec's rules, which need paths that begin with a slash."""
        rpath = stringify_path(rpath)
        is_one = isinstance(rpath, str)
        paths: list[str] = await self._expand_path(self._strip_protocol(rpath), recursive=recursive, maxdepth=maxdepth)
        if is_one and (not recursive or maxdepth is not None):
            paths = [path for path in paths if not await self._isdir(path)]
        exists = is_one and (len(paths) == 1 if has_magic(rpath) else into and not rpath.endswith("/"))
        above = {path.rpartition("/")[0] for path in paths}
        kept = []
        for path in paths:
            told = await self._info(path)
            if told["type"] == "directory" and told.get("islink") and path not in above:
                _log.warning("%s is a link to a directory: it is not copied; get it by its own name, with a slash", path)
            else:
                kept.append(path)
        if not kept:
            return [], []
        return kept, other_paths(["/" + path.lstrip("/") for path in kept], make_path_posix(lpath), exists=exists, flatten=not is_one)

    async def _get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **named: Any) -> None:
        await self._in_thread(self.get_file, rpath, lpath, callback, **named)


class OpenFile(File):
    """A file that fsspec has opened. It can be pickled: it is opened again, at the same place."""

    def __init__(self, fs: TidecastFileSystem, path: str, raw: _Raw, buffering: int):
        super().__init__(raw, buffering)
        self.fs, self.path = fs, path
        self._buffering = self.blocksize = buffering

    @property
    def full_name(self) -> str:
        return str(self.fs.unstrip_protocol(self.path))

    @property
    def details(self) -> dict[str, Any]:
        return self.fs.info(self.path)

    def __reduce__(self) -> Any:
        return _again, (self.fs, self.path, self._buffering, self.tell())


def _is_directory(path: str) -> bool:
    return path.endswith("/") or os.path.isdir(path)


@contextlib.contextmanager
def _whole(path: str) -> Iterator[io.BufferedWriter]:
    """A new file that gets its name when it is complete, so that nothing is written into what another user has put there."""
    name = os.path.join(os.path.dirname(path), f".tidecast-{secrets.token_hex(8)}")
    try:
        with io.open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666), "wb") as out:  # noqa: UP020 - `open` is ours
            yield out
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _again(fs: TidecastFileSystem, path: str, buffering: int, at: int) -> OpenFile:
    file = fs._open(path, block_size=buffering)
    file.seek(at)
    return file
