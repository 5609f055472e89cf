"""Cancellation: a task of asyncio ends a call that waits in a thread."""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import TypeVar

from . import _native

T = TypeVar("T")
#: Seconds that a cancelled task waits for its operation to end cleanly. An operation that needs longer ends later in its thread.
PATIENCE = 0.9


class Cancel:
    """The cancellation of one call.

    :ivar may_be: False: no task can cancel the call
    :ivar flag: calls of the extension module read it while they wait
    """

    def __init__(self, may_be: bool = True) -> None:
        self.may_be = may_be
        self.flag = _native.Flag()
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []

    @property
    def is_cancelled(self) -> bool:
        return self.flag.is_set()

    def cancel(self) -> None:
        """Ends the call, from any thread. Does not wait."""
        with self._lock:
            self.flag.set()
            stops = list(self._stops)
        for stop in stops:
            stop()

    @contextmanager
    def by(self, stop: Callable[[], None]) -> Iterator[None]:
        """Within the block, cancellation calls ``stop``, which does not wait."""
        with self._lock:
            self._stops.append(stop)
            is_late = self.is_cancelled
        if is_late:
            stop()
        try:
            yield
        finally:
            with self._lock:
                self._stops.remove(stop)


_current: ContextVar[Cancel | None] = ContextVar("tidecast_cancel", default=None)


def current() -> Cancel:
    """The cancellation of the call in this thread. Outside of :func:`apart` no task cancels a call."""
    return _current.get() or Cancel(may_be=False)


async def apart(call: Callable[[], T], cancel: Cancel, patience: float | None = PATIENCE) -> T:
    """Waits for a call in a thread of its own, which ends with the call.

    Cancellation ends the call, and waits for its end, at most ``patience`` seconds (None: no limit). If the call succeeds all the same,
    its result is closed.
    """
    import asyncio  # It takes as long to load as all the rest: most programs do without.
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        _current.set(cancel)
        try:
            settle, value = done.set_result, call()
        except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
            settle, value = done.set_exception, error  # type: ignore[assignment]
        with suppress(RuntimeError):  # The loop is closed: nothing waits any more.
            loop.call_soon_threadsafe(lambda: None if done.done() else settle(value))

    # A thread of its own, not one of the pool's: operations may run for days, and no thread is left behind.
    threading.Thread(target=copy_context().run, args=[run], name="tidecast", daemon=True).start()
    try:
        await asyncio.wait([done])
    except asyncio.CancelledError:
        cancel.cancel()
        done.add_done_callback(_discard)
        await asyncio.wait([done], timeout=patience)
        raise
    return done.result()


def _discard(done: object) -> None:
    """Closes the result of a call whose task was cancelled, such as a mount."""
    from asyncio import Future
    if not isinstance(done, Future) or done.cancelled() or done.exception() is not None:
        return
    close = getattr(done.result(), "close", None)
    if close is not None:
        threading.Thread(target=_quietly, args=[close], name="tidecast", daemon=True).start()


def _quietly(close: Callable[[], object]) -> None:
    with suppress(Exception):
        close()
