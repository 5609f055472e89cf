"""The functions of :mod:`tidecast` for asyncio. A call that is cancelled stops its operation; ``progress`` is called by the event loop.

A :class:`~tidecast.Share` is ended by ``await asyncio.to_thread(shared.close)``.
"""
from __future__ import annotations

from . import _transfer
from . import copy as _copy
from ._operation import awaited, in_thread

__all__ = ["bcast_files", "copy", "get", "publish", "seed", "share", "verify"]

bcast_files = awaited(_transfer.bcast_files)
copy = awaited(_copy.copy)
get = awaited(_transfer.get)
publish = awaited(_transfer.publish)
verify = awaited(_transfer.verify)
seed = in_thread(_transfer.seed)
share = in_thread(_transfer.share)
