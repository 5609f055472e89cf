"""Published trees as file systems: mounts of this host, and commands that see a tree where it was built."""
from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import _errors, _native
from ._cancel import current
from ._installed import find_tidecast_bin
from ._operation import AnyPath, Progress, Task, answer, begin, close_block, options, waiting
from ._operation import words as listed
from ._transfer import Path, Swarm, path_of

_log = logging.getLogger("tidecast")
#: A command that is interrupted is asked to end, and killed after this many seconds.
_GRACE = 0.7
#: Seconds between two looks whether the task that waits for a command was cancelled.
_LOOK = 0.1


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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        close_block(self.close, kind)

    def __fspath__(self) -> str:
        return str(self.path)


def _how(source: AnyPath, mode: str, prefetch: AnyPath | None, prefetch_exe: Sequence[str], **rest: Any) -> Mounting:
    word = "none" if prefetch is None else os.fspath(prefetch)
    if word == "auto":
        beside, why = _native.list_beside(os.fspath(source))
        if why is not None:
            _log.warning("%s; it is ignored", why)
        word = os.path.abspath(beside) if beside is not None else "auto"
    elif prefetch is not None:
        # With a slash in it, so that it is not taken for a keyword.
        word = os.path.abspath(word)
    return Mounting(mode, word, prefetch_exe=listed(prefetch_exe, "prefetch_exe"), **rest)


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
    :param swarm: how this node takes part, as of :func:`tidecast.get`
    :param state_dir: where this node keeps its key
    :raises FaultError: another file system is mounted there, the tree cannot be reached, or the system lets this user mount nothing
    """
    how = _how(source, mode, prefetch, prefetch_exe, record=record, cache=cache, group=group, timeout=timeout, fallback=fallback)
    native = begin(_native.mount, os.fspath(source), at, how, options(swarm, Swarm, "swarm"), allow_other, find_tidecast_bin(),
                   state_dir)
    return Task(native, lambda done: Mount(path_of(done)), progress)


def run(source: AnyPath, command: Sequence[AnyPath], *, at: AnyPath | None = None, mode: str = "hybrid",
        prefetch: AnyPath | None = "auto", prefetch_exe: Sequence[str] = (), record: AnyPath | None = None,
        cache: AnyPath | None = None, group: bool = False, timeout: float | None = None, fallback: AnyPath | None = None,
        swarm: Swarm = Swarm(), state_dir: AnyPath | None = None, check: bool = False, input: Any = None,  # noqa: A002
        capture_output: bool = False, **how: Any) -> subprocess.CompletedProcess[Any]:
    """Runs a command that sees a published tree where it was built, and waits for its end. No other process sees the tree there, no
    privilege is needed, and nothing is left behind. ``tidecast.run(ticket, ["/opt/env/bin/python3", "train.py"]).returncode``

    ``source`` and the arguments ``mode``, ``prefetch``, ``prefetch_exe``, ``record``, ``cache``, ``group``, ``timeout``, ``fallback``,
    ``swarm`` and ``state_dir`` are those of :func:`mount`; ``check``, ``input``, ``capture_output`` and further ones (``how``: ``cwd``,
    a directory of this host that is not in the tree, ``env``, ``stdout``, ``text``, ``shell``) those of :func:`subprocess.run`.

    :param command: the program and its arguments; a string is a program without arguments, or with ``shell`` a command of the shell
    :param at: where the command sees the tree; by default where it was built, as its manifest records it
    :returns: the command's return code, as of :func:`subprocess.run`: what the command does is its own
    :raises FaultError: the tree cannot be reached or shown
    :raises UsageError: the arguments are wrong, the command does not exist or cannot be executed
    :raises CutError: the program was stopped before the command began
    :raises subprocess.CalledProcessError: with ``check``, the return code is not 0

    Relative paths of arguments are those of this process. Warnings go to the logger ``tidecast``. Ctrl-C asks the command to end (SIGTERM),
    and kills it after 0.7 s.
    """
    shown = _how(source, mode, prefetch, prefetch_exe, record=record, cache=cache, group=group, timeout=timeout, fallback=fallback)
    if how.get("executable") is not None:
        raise ValueError("executable cannot be used: name the program in command")
    words = [os.fspath(word) for word in ([command] if isinstance(command, str | os.PathLike) else command)]
    if how.pop("shell", False):
        words = ["/bin/sh", "-c", *words]
    taking_part = options(swarm, Swarm, "swarm")
    native = begin(_native.RunCommand, os.fspath(source), words, at, shown, taking_part, find_tidecast_bin(), state_dir)
    if capture_output and not how.keys().isdisjoint(("stdout", "stderr")):
        raise ValueError("stdout and stderr cannot be used with capture_output")
    if input is not None and how.get("stdin") is not None:
        raise ValueError("stdin and input cannot both be used")
    if capture_output:
        how |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        how["stdin"] = subprocess.PIPE
    how["env"] = {**(os.environ if how.get("env") is None else how["env"]), **dict(native.environment)}
    how["pass_fds"] = [*native.descriptors, *how.get("pass_fds", ())]
    with subprocess.Popen(native.words, **how) as process:
        out, err = _outputs(process, input)
    code = process.returncode
    warnings, failed = native.end(code if code >= 0 else None)
    for text in warnings:
        _log.warning("%s", text)
    if failed is not None:
        raise _errors.of(json.loads(failed))
    done = subprocess.CompletedProcess(command, code, out, err)
    if check:
        done.check_returncode()
    return done


def _outputs(process: subprocess.Popen[Any], given: Any) -> tuple[Any, Any]:
    """Waits for the end of a process, which an exception or a cancelled task ends."""
    cancel = current()
    try:
        while True:
            try:
                return process.communicate(given, timeout=_LOOK if cancel.may_be else None)
            except subprocess.TimeoutExpired:
                given = None
                if cancel.is_cancelled:
                    raise _errors.CutError("the call was cancelled", 3) from None
    except BaseException:
        process.terminate()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
