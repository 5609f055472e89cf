"""Ray: a cache, or the content of a ticket, on each node once before tasks run there.

    import ray, tidecast.ray

    ray.init(...)
    with tidecast.ray.stage("head/nt") as nt:                # returns when all nodes have it
        @ray.remote
        def count():
            return len(os.listdir(nt.path()))
        print(ray.get(count.remote()))

An actor on each node, placed by node affinity, holds it until the end of the block. It takes no CPU from tasks. This is not Ray's
``worker_process_setup_hook``: if that fails, Ray starts worker processes without end, and the driver gets no error. Needs
``pip install tidecast[ray]``.
"""
from __future__ import annotations

from pathlib import Path
from typing import Any

from ._errors import CutError, Error
from ._installed import needed
from ._operation import AnyPath
from ._stage import Stage

with needed("tidecast.ray", "tidecast[ray]"):
    import ray as _ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

__all__ = ["Staged", "stage"]

#: Seconds that Ray may need to start an actor, beside the timeout of the data.
_STARTS = 120.0


class _Keeper:
    """The actor of a node: the requested data is kept while it runs."""

    def __init__(self, stage: Stage):
        self._stage = stage

    def path(self) -> str:
        return str(self._stage.path())


class Staged:
    """Data that :func:`stage` has put on each node. Pass it to tasks and actors; the driver closes it."""

    def __init__(self, stage: Stage, keepers: list[Any]):
        self._stage, self._keepers = stage, keepers

    def path(self) -> Path:
        """Where it is on the node of the caller. A node that joined later fetches it now.

        :raises Error: the data could not be had
        """
        return self._stage.path()

    def close(self) -> None:
        """Ends the actors. The daemons may evict the cache when no process uses it; data fetched by a ticket stays."""
        while self._keepers:
            _ray.kill(self._keepers.pop())

    def __enter__(self) -> Staged:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Staged], tuple[Stage, list[Any]]]:
        return Staged, (self._stage, [])


def stage(source: AnyPath, to: AnyPath | None = None, *, name: str = "", timeout: float = 3600.0) -> Staged:
    """Has a cache on each node that is alive, and waits for it.

    :param source: a cache (``origin/name``); with ``to`` a ticket, ``@FILE``, a magnet link or the path of a manifest
    :param to: the directory of each node to fetch into
    :param name: the name in messages; by default the cache's
    :param timeout: seconds that a process waits for the data
    :raises Error: a node could not have it: the first error
    """
    wanted = Stage(source, to, name, timeout)
    keeper = _ray.remote(num_cpus=0)(_Keeper)
    staged = Staged(wanted, [])
    try:
        for node in _ray.nodes():
            if node["Alive"]:
                where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                staged._keepers.append(keeper.options(scheduling_strategy=where).remote(wanted))
        _ray.get([one.path.remote() for one in staged._keepers], timeout=timeout + _STARTS)
    except _ray.exceptions.GetTimeoutError:
        staged.close()
        raise CutError(f"cannot stage {wanted.name}: not all nodes have it after {timeout + _STARTS:.0f} s", 3) from None
    except _ray.exceptions.RayTaskError as error:
        staged.close()
        # The actor's exception, without Ray's own class around it.
        raise (error.cause if isinstance(error.cause, Error) else error) from None
    except BaseException:
        staged.close()
        raise
    return staged
