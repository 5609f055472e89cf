"""Dask: a cache, or the content of a ticket, on each host once before tasks run there.

    from dask.distributed import Client
    import tidecast.dask

    client = Client(...)
    client.register_plugin(tidecast.dask.StageCache("head/nt"))        # waits until all hosts have it
    client.submit(lambda: len(os.listdir(tidecast.dask.path("head/nt"))))

Workers that join later have it before their first task. Needs ``pip install tidecast[dask]``.
"""
from __future__ import annotations

import asyncio
from pathlib import Path

from ._errors import UsageError
from ._installed import needed
from ._operation import AnyPath
from ._stage import Stage

with needed("tidecast.dask", "tidecast[dask]"):
    from distributed import Worker, WorkerPlugin, get_worker

__all__ = ["StageCache", "path"]


class StageCache(WorkerPlugin):
    """A worker plugin: each worker asks its host's daemon for a cache, which fetches it once and keeps it while the worker's process
    runs; or with ``to``, one worker of each host fetches the content of a ticket, and the others wait for it.

    If that fails, :meth:`distributed.Client.register_plugin` raises the :class:`tidecast.Error`; on workers that join later,
    :func:`path` tries again and raises it.

    :param source: a cache (``origin/name``); with ``to`` a ticket, ``@FILE``, a magnet link or the path of a manifest. Dask sends
        it to all workers: use a cluster with TLS, or ``@FILE`` of a file system that hosts share
    :param to: the directory of each host to fetch into
    :param name: by which tasks ask for the path; by default the cache's
    :param timeout: seconds that a worker waits for the data
    """

    def __init__(self, source: AnyPath, to: AnyPath | None = None, *, name: str = "", timeout: float = 3600.0):
        self.stage = Stage(source, to, name, timeout)
        self.name = f"tidecast-{self.stage.name}"

    async def setup(self, worker: Worker) -> None:
        """Called by Dask. In a thread: the worker answers its scheduler meanwhile."""
        await asyncio.to_thread(self.stage.path)


def path(name: str | None = None) -> Path:
    """Within a task: where a :class:`StageCache` has put its data on this host.

    :param name: the plugin's name; needed if several are registered
    :raises UsageError: no plugin of this name is registered
    :raises Error: the data could not be had
    """
    plugins = [plugin for plugin in get_worker().plugins.values() if isinstance(plugin, StageCache)]
    found = [plugin for plugin in plugins if name is None or plugin.stage.name == name]
    if len(found) == 1:
        return found[0].stage.path()
    known = ", ".join(plugin.stage.name for plugin in plugins) or "none"
    raise UsageError(f"which StageCache? {name or 'no name was given'}; registered on this worker: {known}")
