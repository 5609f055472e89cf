"""Published trees as file systems: mounts of this host, and commands that see a tree where it was built."""
from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from . import _native
from ._installed import find_tidecast_bin
from ._operation import AnyPath, Progress, Task, answer, as_twin, begin, waiting
from ._secret import placed
from ._transfer import Path, Swarm, path_of

P = ParamSpec("P")
T = TypeVar("T")
#: A command that is interrupted is asked to end, and killed after this many seconds.
_GRACE = 0.7


@dataclass(frozen=True)
class Mounting:
    """The arguments of :func:`mount` and :func:`run` about fetching a tree."""

    mode: str
    prefetch: str
    prefetch_exe: Sequence[str]
    record: AnyPath | None
    cache: AnyPath | None
    group: bool
    timeout: float | None
    fallback: AnyPath | None


class Mount:
    """A tree that is mounted, until :meth:`close` or the end of a ``with`` block, which gives its path.

    Processes of the program ``tidecast`` serve it: the mount stays where this process ends without closing it, and
    ``tidecast umount`` ends it then.

    :ivar path: where it is
    """

    def __init__(self, path: Path):
        self.path = path
        self._is_open = True

    def close(self, *, lazy: bool = True, abort: bool = False) -> None:
        """Unmounts, once.

        :param lazy: though files are open: the mount is out of sight at once, and gone when no process uses it any more
        :param abort: end the process that serves it too, so that reads that wait for data fail; all mounts of the tree on this host
            are dead then
        :raises FaultError: it is in use (without ``lazy``), or was unmounted by others
        """
        if self._is_open:
            answer(begin(_native.unmount, self.path, lazy, abort))
            self._is_open = False

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()

    def __fspath__(self) -> str:
        return str(self.path)


def _how(source: AnyPath, mode: str, prefetch: AnyPath | None, **rest: Any) -> Mounting:
    word = "none" if prefetch is None else os.fspath(prefetch)
    if word == "auto":
        beside = pathlib.Path(source).with_suffix(".list") if os.path.isfile(source) else None
        word = str(beside.absolute()) if beside is not None and beside.is_file() else "auto"
    elif prefetch is not None:
        # With a slash in it, so that it is not taken for a keyword.
        word = os.path.abspath(word)
    return Mounting(mode, word, **rest)


@waiting
def mount(source: AnyPath, at: AnyPath, *, mode: str = "hybrid", prefetch: AnyPath | None = "auto", prefetch_exe: Sequence[str] = (),
          record: AnyPath | None = None, cache: AnyPath | None = None, group: bool = False, timeout: float | None = None,
          fallback: AnyPath | None = None, allow_other: bool = False, swarm: Swarm = Swarm(), state_dir: AnyPath | None = None,
          progress: Progress = False) -> Task[Mount]:
    """Shows the tree of a ticket, a magnet link or a manifest as a read-only file system at the directory ``at``. All names are there
    at once; files are fetched from peers when they are opened, and verified.

    ``with tidecast.mount(ticket, "/opt/env") as path:`` unmounts at the end of the block; so does :meth:`Mount.close`. It needs no
    privilege where the system has ``fusermount3``, and never any for :func:`run`.

    :param source: a ticket, a magnet link, the path of a manifest or of a file that has a ticket, or ``@FILE``
    :param at: a directory, which is created if it is missing
    :param mode: data that is fetched ahead of reads: ``hybrid`` (the files of ``prefetch``), ``file`` (nothing), ``bulk`` (all)
    :param prefetch: a list of files that are fetched first; ``auto``: the list beside the manifest, else the tree's own; None: no list
    :param prefetch_exe: programs of the tree: the files that they need to start, including libraries, are fetched first
    :param record: write the record of reads to this file, as a list for ``prefetch``
    :param cache: the directory where data is kept for the next mount; by default RAM if there is plenty, else a temporary directory
    :param group: receive the files that any node of the group opens, when they are opened
    :param timeout: a read fails when no peer supplies its data for this many seconds; by default 600
    :param fallback: a directory with the same tree on a shared file system, for data that no peer gives
    :param allow_other: other users may use the mount too
    :raises FaultError: another file system is mounted there, the tree cannot be reached, or the system lets this user mount nothing
    """
    how = _how(source, mode, prefetch, prefetch_exe=prefetch_exe, record=record, cache=cache, group=group, timeout=timeout,
               fallback=fallback)
    native = begin(_native.mount, os.fspath(source), at, how, swarm, allow_other, find_tidecast_bin(), state_dir)
    return Task(native, lambda done: Mount(path_of(done)), progress)


def run(source: AnyPath, command: Sequence[AnyPath], *, at: AnyPath | None = None, mode: str = "hybrid",
        prefetch: AnyPath | None = "auto", prefetch_exe: Sequence[str] = (), record: AnyPath | None = None,
        cache: AnyPath | None = None, group: bool = False, timeout: float | None = None, fallback: AnyPath | None = None,
        swarm: Swarm = Swarm(), state_dir: AnyPath | None = None, check: bool = False, input: Any = None,  # noqa: A002
        capture_output: bool = False, **how: Any) -> subprocess.CompletedProcess[Any]:
    """Runs a command that sees a published tree where it was built, and waits for its end. No other process sees the tree there, no
    privilege is needed, and nothing is left behind. ``tidecast.run(ticket, ["/opt/env/bin/python3", "train.py"]).returncode``

    ``source`` and the arguments from ``mode`` to ``fallback`` are those of :func:`mount`; ``check``, ``input``, ``capture_output`` and
    further ones (``cwd``, ``env``, ``stdout``, ``text``) those of :func:`subprocess.run`.

    :param at: where the command sees the tree; by default where it was built, as its manifest records it
    :returns: the return code is the command's. If the tree cannot be shown, it is the program's: 1, 2 or 3, and standard error has
        the reason
    :raises subprocess.CalledProcessError: with ``check``, the return code is not 0
    """
    shown = _how(source, mode, prefetch, prefetch_exe=prefetch_exe, record=record, cache=cache, group=group, timeout=timeout,
                 fallback=fallback)
    with _words(source, command, at, shown, swarm, state_dir) as (argv, fds):
        if capture_output:
            how |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        if input is not None:
            how["stdin"] = subprocess.PIPE
        how["env"] = _environment(how.get("env"), swarm)
        with subprocess.Popen(argv, pass_fds=fds, **how) as process:
            if (begun := _begun.get()) is not None:
                begun.has(process)
            try:
                out, err = process.communicate(input)
            except BaseException:
                process.terminate()
                try:
                    process.wait(_GRACE)
                except subprocess.TimeoutExpired:
                    process.kill()
                raise
        done = subprocess.CompletedProcess(list(command), process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class _Begun:
    """The process of a call of :func:`run` that a task of asyncio waits for."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[Any] | None = None
        self._is_cancelled = False

    def has(self, process: subprocess.Popen[Any]) -> None:
        self._process = process
        if self._is_cancelled:
            process.terminate()

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._process is not None:
            self._process.terminate()


_begun: ContextVar[_Begun | None] = ContextVar("_begun", default=None)


def awaited_run(waits: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The twin of :func:`run` for asyncio: cancellation asks the command to end."""

    async def twin(*arguments: P.args, **named: P.kwargs) -> T:
        begun = _Begun()
        _begun.set(begun)
        try:
            # With this task's context.
            return await asyncio.to_thread(waits, *arguments, **named)
        except asyncio.CancelledError:
            begun.cancel()
            raise

    return as_twin(waits, twin)


@contextmanager
def _words(source: AnyPath, command: Sequence[AnyPath], at: AnyPath | None, how: Mounting, swarm: Swarm,
           state_dir: AnyPath | None) -> Iterator[tuple[list[str], list[int]]]:
    """The program's command line, and the descriptors to inherit: a ticket is not on the command line, which other users can read."""
    words = [find_tidecast_bin(), "run", f"--mode={how.mode}", f"--prefetch={how.prefetch}"]
    words += [f"--prefetch-exe={program}" for program in how.prefetch_exe]
    given = {"record": how.record, "cache": how.cache, "fallback": how.fallback, "at": at, "state-dir": state_dir}
    words += [f"--{name}={os.fspath(value)}" for name, value in given.items() if value is not None]
    words += ["--group"] if how.group else []
    words += [] if how.timeout is None else [f"--timeout={round(how.timeout * 1e9)}ns"]
    words += _of_swarm(swarm)
    text = os.fspath(source)
    with placed([] if os.path.exists(text) or text.startswith("@") else [text]) as (secrets, fds):
        rest = [*(secrets or [text]), "--", *[os.fspath(word) for word in command]]
        yield [*words, *rest], fds


def _of_swarm(swarm: Swarm) -> list[str]:
    words = [f"--listen={swarm.listen}"] if swarm.listen is not None else []
    words += [f"--net={swarm.net}"] if swarm.net is not None else []
    words += [f"--peer={peer}" for peer in swarm.peers or ()] + [f"--tracker={url}" for url in swarm.trackers or ()]
    limits = {"upload-limit": swarm.upload_limit, "download-limit": swarm.download_limit}
    words += [f"--{name}={8 * limit}bit" for name, limit in limits.items() if limit is not None]
    flags = {"--dht": swarm.dht, "--plain": swarm.plain, "--no-lsd": swarm.lsd is False, "--no-web-seeds": swarm.web_seeds is False}
    return words + [flag for flag, is_set in flags.items() if is_set]


def _environment(given: Mapping[str, str] | None, swarm: Swarm) -> dict[str, str]:
    """Settings that a flag cannot turn off."""
    environment = dict(os.environ if given is None else given)
    environment |= {"TIDECAST_DHT": "false"} if swarm.dht is False else {}
    environment |= {"TIDECAST_PLAIN": "false"} if swarm.plain is False else {}
    environment |= {"TIDECAST_LSD": "true"} if swarm.lsd else {}
    return environment
