"""Parsl: files of the scheme ``tidecast://``, staged by a provider: each host has them once.

    from parsl.data_provider.files import File
    from tidecast.parsl import TidecastStaging

    HighThroughputExecutor(..., storage_access=[TidecastStaging(to="/scratch"), *default_staging])

    @python_app
    def count(inputs=()):
        return len(os.listdir(inputs[0].filepath))

    count(inputs=[File("tidecast://head/nt")])               # a cache of the host's daemon, or a path within: tidecast://head/nt/a.nc
    count(inputs=[File("tidecast:///shared/env.ticket")])    # a file with a ticket, or a manifest: fetched into `to` of each host

Needs ``pip install tidecast[parsl]``.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ._errors import UsageError
from ._installed import needed
from ._operation import AnyPath
from ._stage import Stage, is_ticket

with needed("tidecast.parsl", "tidecast[parsl]"):
    from parsl.data_provider.files import File
    from parsl.data_provider.staging import Staging
    from parsl.utils import RepresentationMixin

if TYPE_CHECKING:
    from parsl.data_provider.data_manager import DataManager

__all__ = ["TidecastStaging"]


class TidecastStaging(Staging, RepresentationMixin):
    """A staging provider for ``tidecast://``: within the task, on the host where it runs, before it begins.

    A worker's process has asked its host's daemon for a cache before the task begins, and the daemon keeps it while the process runs.
    One worker of a host fetches the content of a ticket, while the others wait. If that fails, the task fails with a
    :class:`tidecast.Error`.

    :param to: the directory of each host into which the content of tickets is fetched
    :param timeout: seconds that a task waits for the data
    """

    def __init__(self, to: AnyPath | None = None, *, timeout: float = 3600.0):
        self.to, self.timeout = to, timeout
        self._stages: dict[str, Stage] = {}

    def can_stage_in(self, file: File) -> bool:
        """Called by Parsl."""
        return bool(file.scheme == "tidecast")

    def replace_task(self, dm: DataManager, executor: str, file: File, func: Callable[..., Any]) -> Callable[..., Any]:
        """Called by Parsl: the task with the staging before it."""
        source, inside = _parts(file)
        if source not in self._stages:
            self._stages[source] = self._stage(source)
        return functools.partial(_staged, func, self._stages[source], inside, file.url)

    def _stage(self, source: str) -> Stage:
        if not (source.startswith("/") or is_ticket(source)):
            return Stage(source, timeout=self.timeout)
        if self.to is None:
            raise UsageError("a ticket is fetched into a directory: name it, TidecastStaging(to=...)")
        name = Path(source).name if source.startswith("/") else ""
        return Stage(source, self.to, name, self.timeout)


def _parts(file: File) -> tuple[str, str]:
    """The source of a URL: a cache, a ticket or the path of a file that has one; and the path within."""
    host, path = unquote(file.netloc), unquote(file.path)
    if not host:
        return path, ""
    if is_ticket(host):
        source, inside = host, path.strip("/")
    else:
        name, _, inside = path.strip("/").partition("/")
        source = f"{host}/{name}" if name else host
    if ".." in Path(inside).parts:
        raise UsageError(f"{inside}: '..' leads out of the data")
    return source, inside


def _staged(func: Callable[..., Any], stage: Stage, inside: str, url: str, *arguments: Any, **named: Any) -> Any:
    """The task, on its host: its files of this URL have their path."""
    path = str(stage.path() / inside)
    for file in _files([*arguments, *named.values()]):
        if file.url == url:
            file.local_path = path
    return func(*arguments, **named)


def _files(arguments: Iterable[Any]) -> Iterable[File]:
    for argument in arguments:
        if isinstance(argument, File):
            yield argument
        elif isinstance(argument, list | tuple):
            yield from (one for one in argument if isinstance(one, File))
