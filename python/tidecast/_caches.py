"""The caches that the daemon of this host keeps."""
from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import _native
from ._cancel import current
from ._errors import UsageError
from ._operation import AnyPath, Progress, Task, answer, begin, seconds, waiting, words
from ._transfer import Path, path_of

#: The daemon's description of a cache: the fields of ``docs/events.md``, ``name``, ``bytes``, ``files``, ``lease``, ``pinned``
#: and so on.
Cache = dict[str, Any]


@dataclass(frozen=True)
class New:
    """The arguments of :meth:`Caches.create`."""

    name: str
    lease: int | None
    policy: str | None
    requirements: str | None
    private: bool
    replicas: int
    mode: int | None
    group: str | None


class Caches:
    """The daemon of this host. Calls that ask it something are answered at once; :meth:`create` and :meth:`get` may take long.

    Names are ``ORIGIN/NAME[@VERSION]``; without a version, the newest one is meant. All methods raise :class:`tidecast.FaultError` if no
    daemon answers, it rejects the request (a name or an expression, too) or there is no such cache. Threads may share an object; a forked
    process makes its own.

    :ivar socket: where it listens
    """

    def __init__(self, socket: AnyPath | None = None):
        """:param socket: where it listens; by default the socket of the settings, else the host's daemon, else the user's own"""
        self._daemon = begin(_native.Daemon, socket)
        self.socket = Path(self._daemon.socket)

    @waiting
    def create(self, name: str, paths: AnyPath | Sequence[AnyPath], *, lease: float | None = None, policy: str | None = None,
               requirements: str | None = None, private: bool = False, replicas: int = 0, mode: int | None = None,
               group: str | None = None, wait: float | None = None, progress: Progress = False) -> Task[Cache]:
        """Makes a cache of a directory's content, or of files of one directory, which this process reads. The daemon keeps a copy: the
        files stay the caller's.

        :param name: the name at this origin, without ``ORIGIN/`` and version
        :param paths: one directory, or files of one directory
        :param lease: keep it at least this many seconds, or as long as the daemon allows: 90 days, if its configuration says nothing else
        :param policy: the ClassAd expression that daemons' ads must satisfy to be offered it
        :param requirements: the ClassAd expression that a daemon's ad must satisfy to hold it
        :param private: it leaves this host only directly, for its owner
        :param replicas: copies to keep alive on hosts
        :param mode: the readers: 0o700, 0o750 or 0o755; by default as the files allow
        :param group: the Unix group whose members may read it with ``mode=0o750``; by default that of the caller
        :param wait: wait for space this many seconds
        :raises FaultError: something cannot be read, or there is no space
        :raises CutError: there was no space within ``wait``
        """
        new = New(name, None if lease is None else seconds(lease, "lease"), policy, requirements, private, replicas, mode, group)
        named = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        if not named:
            raise UsageError("no path given")
        return Task(begin(_native.create_cache, self.socket, named, new, wait), lambda done: done, progress)

    @waiting
    def get(self, name: str, to: AnyPath | None = None, *, link: str = "symlink", force: bool = False, wait: float | None = None,
            offline: bool = False, progress: Progress = False) -> Task[Path]:
        """Brings a cache to this host, and returns its path. It is kept while this process runs. Its files belong to the daemon and are
        read-only.

        :param name: the cache
        :param to: deliver it to this directory too, under its own name
        :param link: how it is delivered: ``symlink``, ``hardlink``, ``reflink``, ``bind`` or ``copy``
        :param force: replace the file or directory of this name there
        :param wait: give up after this many seconds; default: no limit
        :param offline: the newest version that is here, without asking for a newer one
        :raises FaultError: there is no such cache, or no space for it
        :raises CutError: it has not arrived within ``wait``
        """
        native = begin(_native.get_cache, self.socket, name, to, link, force, wait, offline)
        return Task(native, lambda done: path_of(done, "made" if "made" in done else "path"), progress)

    def ls(self, name: str | None = None) -> list[Cache]:
        """The caches that the caller may read; those of the name ``name``, if one is given. Sizes are in bytes, leases in seconds since
        1970."""
        return list(answer(begin(self._daemon.list, _flag(), name)))

    def show(self, name: str) -> Cache:
        """The cache ``name``, with its uses."""
        return dict(answer(begin(self._daemon.show, _flag(), name)))

    def extend(self, name: str, lease: float) -> Cache:
        """Keeps the cache ``name`` for at least ``lease`` seconds from now, or as long as the daemon allows: 90 days, if its configuration
        says nothing else. The result has the ``lease``."""
        return dict(answer(begin(self._daemon.extend, _flag(), name, seconds(lease, "lease"))))

    def pin(self, name: str, pinned: bool = True) -> Cache:
        """Keeps the cache ``name`` until it is unpinned (``pinned`` False)."""
        return dict(answer(begin(self._daemon.pin, _flag(), name, pinned)))

    def rm(self, name: str) -> Cache:
        """Removes the cache ``name`` from this host; other hosts keep theirs."""
        return dict(answer(begin(self._daemon.remove, _flag(), name)))

    def replicate(self, name: str, to: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Offers the cache ``name`` to the hosts ``to``; without any, to as many hosts as it needs copies. Returns each host's answer."""
        return list(answer(begin(self._daemon.replicate, _flag(), name, words(to, "to"))))

    def where(self, name: str) -> list[dict[str, Any]]:
        """Which hosts have the cache ``name``."""
        return list(answer(begin(self._daemon.holders, _flag(), name)))


def _flag() -> _native.Flag:
    return current().flag


def caches(socket: AnyPath | None = None) -> Caches:
    """The daemon of this host, by its ``socket``; see :class:`Caches`. Its methods raise an error if no daemon answers."""
    return Caches(socket)
