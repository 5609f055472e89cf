"""Publishing, sharing, fetching and broadcasting."""
from __future__ import annotations

import base64
import json
import logging
import os
import pathlib
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _errors, _native
from ._cancel import current
from ._operation import (
    AnyPath,
    Event,
    Native,
    Progress,
    Task,
    answer,
    begin,
    close_block,
    drop,
    options,
    shown,
    tell,
    void,
    waiting,
    words,
)

Path = pathlib.Path
_log = logging.getLogger("tidecast")
#: Nodes that one ticket lets enrol at most, as ``MAX_USES`` of crates/identity.
_MOST_USES = 10_000


@dataclass(frozen=True, kw_only=True)
class Swarm:
    """The options of this node in a swarm. None: the value of ``TIDECAST_*`` or the configuration file, else a default for a cluster
    node.

    :ivar listen: ``ADDRESS:PORT`` to listen on; port 0 is the first free one of 6881 to 6889, else any
    :ivar net: the network to use, an interface (``ib0``) or a CIDR (``10.1.0.0/16``)
    :ivar peers: peers to connect to, ``HOST:PORT``
    :ivar trackers: URLs of trackers to announce to
    :ivar upload_limit: the sending rate at most, bytes a second
    :ivar download_limit: the receiving rate at most, bytes a second
    :ivar dht: find peers through the public DHT
    :ivar lsd: find peers on the local network by multicast
    :ivar web_seeds: fetch from web seeds too
    :ivar plain: open, unencrypted BitTorrent
    """

    listen: str | None = None
    net: str | None = None
    peers: Sequence[str] | None = None
    trackers: Sequence[str] | None = None
    upload_limit: int | None = None
    download_limit: int | None = None
    dht: bool | None = None
    lsd: bool | None = None
    web_seeds: bool | None = None
    plain: bool | None = None

    def __post_init__(self) -> None:
        for name in ("peers", "trackers"):
            if getattr(self, name) is not None:
                words(getattr(self, name), name)


@dataclass(frozen=True, kw_only=True)
class Tree:
    """How a file or directory is described.

    :ivar name: the name to publish under; by default that of the path
    :ivar piece_length: bytes in a piece, a power of two from 16384; by default chosen by size
    :ivar exclude: globs of entries to leave out: a name at any depth, or a path if it has a ``/``
    :ivar skip_outside_links: leave out symbolic links that lead out of the tree
    """

    name: str | None = None
    piece_length: int | None = None
    exclude: Sequence[str] = ()
    skip_outside_links: bool = False

    def __post_init__(self) -> None:
        words(self.exclude, "exclude")


@dataclass(frozen=True)
class Manifest:
    """A manifest (.torrent) that :func:`publish` made.

    :ivar path: the file; None if it was not written
    :ivar name: the name of the described file or directory
    :ivar bytes: bytes of all files
    :ivar files: how many files
    :ivar magnet: the magnet link
    :ivar fields: all fields of the event ``done``
    """

    path: Path | None
    name: str
    bytes: int
    files: int
    magnet: str
    fields: dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Fetch:
    """The arguments of :func:`get` about the data."""

    files: Sequence[str]
    seed_for: float | None
    timeout: float | None
    force: bool
    delete: bool
    base: Sequence[AnyPath]


@dataclass(frozen=True)
class Broadcast:
    """The arguments of :func:`bcast_files`."""

    hosts: str | None
    exclude: str | None
    launch: str
    program: str
    plain: bool
    durable: bool
    force: bool
    delete: bool
    base: Sequence[str]


def path_of(fields: dict[str, Any], name: str = "path") -> Path:
    """A path of an event; one that is not UTF-8 is there in Base64 too."""
    exact = fields.get(f"{name}_base64")
    return Path(fields[name] if exact is None else os.fsdecode(base64.b64decode(exact)))


@waiting
def publish(path: AnyPath, output: AnyPath | None = None, *, tree: Tree = Tree(), private: bool = False,
            trackers: Sequence[str] = (), web_seeds: Sequence[str] = (), state_dir: AnyPath | None = None,
            progress: Progress = False) -> Task[Manifest]:
    """Describes a file or directory in a manifest, a standard .torrent file, written to ``output`` if that is given.

    Each byte is read once, on all cores. The same call resumes an interrupted one.

    :param path: the file or directory
    :param output: the manifest
    :param tree: how to describe it
    :param private: only nodes with a ticket, which :func:`seed` makes, can join
    :param trackers: URLs of trackers to name in it
    :param web_seeds: URLs to fetch from beside peers: of the directory around ``path``, ending in ``/``, or of the file
    :param state_dir: where this node keeps its key and tickets; by default the directory of the settings, else one in the home directory
    :raises FaultError: something cannot be read, or ``output`` not written
    """
    native = begin(_native.publish, path, output, options(tree, Tree, "tree"), private, words(trackers, "trackers"),
                   words(web_seeds, "web_seeds"), state_dir)

    def finish(done: dict[str, Any]) -> Manifest:
        written = None if output is None else Path(output)
        return Manifest(written, done["name"], done["bytes"], done["file_count"], done["magnet"], done)

    return Task(native, finish, progress)


@waiting
def get(source: AnyPath, to: AnyPath, *, files: Sequence[str] = (), seed_for: float | None = None, timeout: float | None = None,
        force: bool = False, delete: bool = False, base: Sequence[AnyPath] = (), swarm: Swarm = Swarm(),
        state_dir: AnyPath | None = None, progress: Progress = False) -> Task[Path]:
    """Fetches the data of a ticket, a magnet link or a manifest into the directory ``to``; returns its path there.

    It appears under its own name, whole and verified, or not at all. The same call resumes an interrupted one.

    :param source: a ticket, a magnet link, the path of a manifest or of a file that has a ticket, or ``@FILE``
    :param files: globs of the files to fetch; all, if empty
    :param seed_for: serve other nodes for this many seconds when all data is there
    :param timeout: give up after this many seconds
    :param force: replace existing files even if Tidecast did not deliver them
    :param delete: remove delivered files that are no longer published
    :param base: older versions: their content is not fetched again
    :param swarm: how this node takes part
    :param state_dir: where this node keeps its key and tickets; by default the directory of the settings, else one in the home directory
    :raises FaultError: the owner rejects this node, there is no space, other files are at the destination, or nothing published matches
        one of ``files``
    :raises UsageError: the ticket is damaged, or a pattern of ``files`` is malformed
    :raises CutError: ``timeout`` has passed, or it was stopped
    """
    fetch = Fetch(words(files, "files"), seed_for, timeout, force, delete, words(base, "base"))
    return Task(begin(_native.get, os.fspath(source), to, fetch, options(swarm, Swarm, "swarm"), state_dir), path_of, progress)


@waiting
def verify(manifest: AnyPath, path: AnyPath, *, progress: Progress = False) -> Task[dict[str, Any]]:
    """Compares the file or directory ``path`` with its ``manifest``; every byte is read. Returns the fields of the event ``done``.

    :raises FaultError: something differs: ``reached`` has the lists ``damaged``, ``missing`` and ``extra``
    """
    return Task(begin(_native.verify, manifest, path), lambda done: done, progress)


@waiting
def bcast_files(source: AnyPath, to: AnyPath, hosts: str | Sequence[str] | None = None, *, exclude: str | None = None,
                launch: str = "auto", program: str = "tidecast", plain: bool = False, durable: bool = False, force: bool = False,
                delete: bool = False, base: Sequence[AnyPath] = (), progress: Progress = False) -> Task[dict[str, Any]]:
    """Puts a file or directory at the same path on many hosts. Returns the fields of the event ``done``.

    :param source: the file or directory on this host
    :param to: an absolute path; ``{host}`` in it becomes each host's name; with a slash at the end, the directory to put it into
    :param hosts: a list (``node[001-064]``, ``@FILE``) or names; by default those of the Slurm, PBS, LSF or Open MPI job
    :param exclude: hosts to leave out
    :param launch: how workers are started: ``auto``, ``ssh``, ``srun``, ``mpirun``, or a command with ``{host}`` and ``{command}``
    :param program: the program ``tidecast`` on the hosts
    :param plain: data between hosts need not be encrypted
    :param durable: write the data to the disks of the hosts before they count as complete
    :param force: replace existing files even if Tidecast did not deliver them
    :param delete: remove delivered files that are no longer in the source
    :param base: older versions on the hosts: their content is not sent again
    :raises FaultError: hosts failed: ``reached`` lists them; the others completed
    """
    named = hosts if hosts is None or isinstance(hosts, str) else ",".join(words(hosts, "hosts"))
    bases = [os.path.abspath(path) for path in words(base, "base")]
    how = Broadcast(named, exclude, launch, program, plain, durable, force, delete, bases)
    return Task(begin(_native.broadcast, source, to, how), lambda done: done, progress)


class Share:
    """Something that this process serves, until :meth:`close` or the end of a ``with`` block; :func:`share` and :func:`seed` make it.

    :ivar ticket: the secret that lets other nodes :func:`tidecast.get` it
    :ivar addresses: where this node listens, ``ADDRESS:PORT``
    :ivar fields: all fields of the event ``started``
    """

    def __init__(self, native: Native, progress: Progress, state_dir: AnyPath | None):
        self._native, self._state_dir = native, state_dir
        self._process = os.getpid()
        self.fields: dict[str, Any] = self._begun(progress)
        self.ticket: str = self.fields.get("ticket") or ""
        self.addresses: list[str] = self.fields["listen"]
        self._ending = _Ending(native, self.fields.get("name", ""), progress if callable(progress) else void)
        # The thread that follows it does not keep it: a share that is dropped ends.
        weakref.finalize(self, drop, native, self._process)

    def _begun(self, progress: Progress) -> dict[str, Any]:
        with shown(progress) as show, current().by(self._native.stop):
            try:
                while (line := self._native.next()) is not None:
                    event = json.loads(line)
                    tell(event, show)
                    if event["event"] == "started":
                        return dict(event)
            except BaseException:
                self._native.stop()
                raise
        answer(self._native.result())
        raise _errors.FaultError("the share ended before it began")

    def revoke(self) -> None:
        """Makes the ticket worthless: no further node enrols with it, and those that did are refused.

        :raises FaultError: the state of this node cannot be written
        :raises RuntimeError: another process has begun it: this one was forked
        """
        if os.getpid() != self._process:
            raise RuntimeError("another process has begun this operation: this one was forked from it")
        answer(begin(_native.revoke, self.ticket, self._state_dir))

    def close(self) -> dict[str, Any]:
        """Ends it; gives the totals: the fields of the event ``done``. A second call gives them again.

        :raises FaultError: it had failed; :attr:`failed` has that as soon as it happens
        :raises RuntimeError: another process has begun it: this one was forked
        """
        self._native.stop()
        return self._ending.wait()

    @property
    def failed(self) -> _errors.Error | None:
        """Why it has ended by itself, as where a file has changed; None while it serves. The logger ``tidecast`` has it, too."""
        return self._ending.failed

    def __enter__(self) -> Share:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        close_block(self.close, kind)


class _Ending:
    """Follows a share to its end, in a thread: warnings go to the logger, events to the caller's function."""

    def __init__(self, native: Native, name: str, show: Callable[[Event], None]):
        self._native, self._name, self._show = native, name, show
        self._done: dict[str, Any] | None = None
        self.failed: _errors.Error | None = None
        self._thread = threading.Thread(target=self._follow, name="tidecast-share", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            while (line := self._native.next()) is not None:
                tell(json.loads(line), self._show)
        except BaseException as error:  # noqa: BLE001 - of the caller's function: it ends the share
            self._native.stop()
            while self._native.next() is not None:
                pass
            self.failed = _errors.FaultError(f"the function that takes events failed: {type(error).__name__}: {error}")
        try:
            self._done = dict(answer(self._native.result()))
        except _errors.Error as error:
            self.failed = self.failed or error
        if self.failed is not None:
            _log.error("the share of %s has ended: %s", self._name, self.failed)

    def wait(self) -> dict[str, Any]:
        self._thread.join()
        if self.failed is not None:
            raise self.failed
        return self._done or {}


def _limits(expires: float | None, uses: int | None) -> tuple[float | None, int | None]:
    """The limits of a ticket."""
    if isinstance(uses, int) and not 1 <= uses <= _MOST_USES:
        raise _errors.UsageError(f"uses: {uses} is not a number from 1 to {_MOST_USES}")
    return expires, uses


def share(path: AnyPath, *, tree: Tree = Tree(), expires: float | None = None, uses: int | None = None, swarm: Swarm = Swarm(),
          state_dir: AnyPath | None = None, progress: Progress = False) -> Share:
    """Publishes a file or directory and serves it until the share is closed, which the end of a ``with`` block does.

    Each byte is read once before it returns, on all cores. The files must stay as they are meanwhile.

    :param path: the file or directory
    :param tree: how to describe it
    :param expires: seconds for which the ticket lets further nodes enrol; by default it does so until :meth:`Share.revoke`
    :param uses: how many nodes the ticket lets enrol, from 1 to 10000; by default any number
    :param swarm: how this node takes part
    :param state_dir: where this node keeps its key and tickets; by default the directory of the settings, else one in the home directory
    :param progress: a bar until it serves; a function takes all events, those after that in a thread of the share
    :raises FaultError: something cannot be read, or no address to listen on is free
    :raises UsageError: ``expires`` or ``uses`` is out of range
    """
    native = begin(_native.share, path, options(tree, Tree, "tree"), _limits(expires, uses), options(swarm, Swarm, "swarm"), state_dir)
    return Share(native, progress, state_dir)


def seed(manifest: AnyPath, path: AnyPath, *, expires: float | None = None, uses: int | None = None, swarm: Swarm = Swarm(),
         state_dir: AnyPath | None = None, progress: Progress = False) -> Share:
    """Serves the data that :func:`publish` described in ``manifest``, as :func:`share` does. ``path`` is verified first.

    :param expires: seconds for which the ticket lets further nodes enrol; by default it does so until :meth:`Share.revoke`
    :param uses: how many nodes the ticket lets enrol, from 1 to 10000; by default any number
    :param swarm: how this node takes part
    :param state_dir: where this node keeps its key and tickets; by default the directory of the settings, else one in the home directory
    :raises FaultError: ``path`` differs from the manifest, or no address to listen on is free
    :raises UsageError: ``expires`` or ``uses`` is out of range
    """
    native = begin(_native.seed, manifest, path, _limits(expires, uses), options(swarm, Swarm, "swarm"), state_dir)
    return Share(native, progress, state_dir)
