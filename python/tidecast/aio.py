"""The functions of :mod:`tidecast` for asyncio. A call that is cancelled stops its operation; ``progress`` is called by the event loop."""
from __future__ import annotations

import asyncio
from typing import Any

from . import _transfer
from ._operation import Progress
from ._transfer import AnyPath, Manifest, Path, Share

__all__ = ["bcast_files", "copy", "get", "publish", "seed", "share", "verify"]


async def publish(path: AnyPath, output: AnyPath | None = None, *, progress: Progress = False, **how: Any) -> Manifest:
    """As :func:`tidecast.publish`."""
    return await _transfer.publish(path, output, **how).run_async(progress)


async def get(source: AnyPath, to: AnyPath, *, progress: Progress = False, **how: Any) -> Path:
    """As :func:`tidecast.get`."""
    return await _transfer.get(source, to, **how).run_async(progress)


async def verify(manifest: AnyPath, path: AnyPath, *, progress: Progress = False) -> dict[str, Any]:
    """As :func:`tidecast.verify`."""
    return await _transfer.verify(manifest, path).run_async(progress)


async def copy(sources: Any, to: AnyPath, *, progress: Progress = False, **how: Any) -> dict[str, Any]:
    """As :func:`tidecast.copy`."""
    return await _transfer.copy(sources, to, **how).run_async(progress)


async def bcast_files(source: AnyPath, to: AnyPath, hosts: Any = None, *, progress: Progress = False, **how: Any) -> dict[str, Any]:
    """As :func:`tidecast.bcast_files`."""
    return await _transfer.bcast_files(source, to, hosts, **how).run_async(progress)


async def share(path: AnyPath, **how: Any) -> Share:
    """As :func:`tidecast.share`; it is ended by ``await asyncio.to_thread(shared.close)``."""
    return await asyncio.to_thread(_transfer.share, path, **how)


async def seed(manifest: AnyPath, path: AnyPath, **how: Any) -> Share:
    """As :func:`tidecast.seed`, ended as :func:`share`."""
    return await asyncio.to_thread(_transfer.seed, manifest, path, **how)
