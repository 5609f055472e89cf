"""Data that each host fetches once, whichever of its processes needs them. :mod:`tidecast.dask`, ``ray`` and ``parsl`` share this.

The daemon fetches a cache once, and keeps it while any process that asked for it runs. One process of the user fetches the content of
a ticket into a directory, while the others wait for the lock of a file.
"""
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import stat
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._errors import CutError, Error, FaultError, UsageError
from ._operation import AnyPath

#: Seconds between two attempts to lock a file.
_AGAIN = 0.1
#: The data that this process holds: a forked process requests its own.
_here: dict[tuple[int, str], Path] = {}


def is_ticket(source: str) -> bool:
    """Whether it is a ticket itself, and so a secret."""
    return source.removeprefix("tidecast://").lower().startswith("tidecast1")


@dataclass(frozen=True)
class Stage:
    """The data for each host, and how the host gets it. It can be pickled; the hosts need this package.

    :ivar source: a cache of the host's daemon (``origin/name``); with ``to`` a source of :func:`tidecast.get`: a ticket, ``@FILE``,
        a magnet link or the path of a manifest
    :ivar to: the directory of each host to fetch it into
    :ivar name: by which tasks ask for its path; by default the cache's, else one made of ``source``
    :ivar timeout: seconds that a process waits for the data, also while another process of the host fetches them

    Everything else is set by each host's configuration file and environment (``TIDECAST_*``).
    """

    source: AnyPath = field(repr=False)
    to: AnyPath | None = None
    name: str = ""
    timeout: float = 3600.0
    #: The content of a lock's file shows whether this stage wrote it: another stage of the same source checks for itself.
    _mark: str = field(default_factory=lambda: uuid.uuid4().hex, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.to is None and is_ticket(os.fspath(self.source)):
            raise UsageError("a ticket is fetched into a directory: name it by `to`")
        if not self.name:
            digest = hashlib.sha256(os.fsencode(self.source)).hexdigest()
            object.__setattr__(self, "name", os.fspath(self.source) if self.to is None else digest[:12])

    def path(self) -> Path:
        """Where it is on this host; it is fetched first if need be.

        :raises Error: it could not be had; the message names the host
        """
        key = (os.getpid(), self._mark)
        if (path := _here.get(key)) is not None and path.exists():
            return path
        try:
            path = self._cache() if self.to is None else self._fetched(Path(os.path.abspath(self.to)))
        except Error as error:
            text = f"cannot stage {self.name} on {socket.gethostname()}: {error}"
            raise type(error)(text, error.code, error.reached) from None
        _here[key] = path
        return path

    def _cache(self) -> Path:
        from ._caches import caches
        return caches().get(os.fspath(self.source), wait=self.timeout)

    def _fetched(self, to: Path) -> Path:
        from ._transfer import get
        until = time.monotonic() + self.timeout
        place = hashlib.sha256(b"\0".join([os.fsencode(self.source), os.fsencode(to)])).hexdigest()
        with _locked(f"stage-{place[:32]}", until) as file:
            path = _written(file, self._mark)
            if path is None:
                path = get(self.source, to, timeout=max(0.0, until - time.monotonic()))
                _write(file, self._mark, path)
        return path


@contextlib.contextmanager
def _locked(name: str, until: float) -> Iterator[int]:
    """A file of this user on this host that is locked for this process; the descriptor.

    :raises CutError: another process had the lock until ``until``
    """
    try:
        directory = _private()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            file = os.open(name, flags, 0o600, dir_fd=directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise FaultError(f"cannot make the file of a lock: {error}") from error
    try:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise CutError("another process of this host has not finished fetching it; allow more time by timeout", 3) from None
                time.sleep(_AGAIN)
        try:
            yield file
        finally:
            # Not by close alone: a child that was forked meanwhile has the descriptor too.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)


def _places() -> list[str]:
    """Directories of this host that all processes of the user find, whatever their environment; the first safe one is used.

    Not the runtime directory first: it goes when the user's last session ends, and jobs do not.
    """
    user = os.geteuid()
    return [f"/tmp/tidecast-{user}", f"/run/user/{user}/tidecast"]


def _private() -> int:
    """A directory of this user's alone that only this host has; its descriptor."""
    for place in _places():
        with contextlib.suppress(OSError):
            with contextlib.suppress(FileExistsError):
                os.mkdir(place, 0o700)
            return _ours(place)
    return _unoccupied(_places()[0])


def _unoccupied(usual: str) -> int:
    """The same where another user has occupied all usual names: a name that no one can guess, and that its owner finds."""
    start = os.path.basename(usual) + "-"
    above = os.path.dirname(usual) or "."
    for _ in range(4):
        # Several processes may have made one at the same time: all use the same.
        for name in sorted(name for name in os.listdir(above) if name.startswith(start)):
            with contextlib.suppress(OSError):
                return _ours(os.path.join(above, name))
        os.mkdir(os.path.join(above, start + uuid.uuid4().hex[:16]), 0o700)
    raise PermissionError(f"{usual} is not a directory of this user alone, with mode 0700; remove it")


def _ours(place: str) -> int:
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    meta = os.fstat(directory)
    if meta.st_uid == os.geteuid() and not stat.S_IMODE(meta.st_mode) & 0o077:
        return directory
    os.close(directory)
    raise PermissionError(f"{place} is not a directory of this user alone, with mode 0700")


def _written(file: int, mark: str) -> Path | None:
    """The path that a process of this stage has written, if the same file or directory is still there."""
    try:
        said: dict[str, Any] = json.loads(os.pread(file, 65536, 0))
        path = Path(os.fsdecode(bytes.fromhex(said["path"])))
        meta = path.lstat()
        same = (said["mark"], said["device"], said["inode"]) == (mark, meta.st_dev, meta.st_ino)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return path if same else None


def _write(file: int, mark: str, path: Path) -> None:
    meta = path.lstat()
    said = {"mark": mark, "path": os.fsencode(path).hex(), "device": meta.st_dev, "inode": meta.st_ino}
    os.ftruncate(file, 0)
    os.pwrite(file, json.dumps(said).encode(), 0)
