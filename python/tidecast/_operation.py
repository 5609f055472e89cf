"""Operations that run behind this package's functions."""
from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from . import _errors

T = TypeVar("T")
R = TypeVar("R")
#: An event of ``docs/events.md``: ``event["event"]`` is its name, the rest are its fields. Sizes are bytes, times are seconds.
Event = dict[str, Any]
#: How progress is shown: True is a bar of tqdm (nothing, where tqdm is not installed); a function takes each event.
Progress = bool | Callable[[Event], None]

_log = logging.getLogger("tidecast")


class Native(Protocol):
    """What the extension module gives."""

    def next(self) -> str | None: ...
    def result(self) -> tuple[bool, str]: ...
    def stop(self) -> None: ...


def begin(start: Callable[..., R], *arguments: Any) -> R:
    """Calls the extension module. What is wrong with the arguments is a :class:`UsageError`."""
    try:
        return start(*arguments)
    except ValueError as error:
        raise _errors.UsageError(str(error)) from None


def answer(said: tuple[bool, str]) -> Any:
    """The JSON of a result; the exception of a failure."""
    good, text = said
    if good:
        return json.loads(text)
    raise _errors.of(json.loads(text))


class Task(Generic[T]):
    """An operation, and what its result is made into."""

    def __init__(self, native: Native, finish: Callable[[dict[str, Any]], T]):
        self._native, self._finish = native, finish

    def run(self, progress: Progress = False) -> T:
        """Waits for the end. Ctrl-C, or an exception of ``progress``, stops the operation."""
        with shown(progress) as show:
            try:
                while (line := self._native.next()) is not None:
                    tell(json.loads(line), show)
            except BaseException:
                self._native.stop()
                raise
        return self._finish(answer(self._native.result()))

    async def run_async(self, progress: Progress = False) -> T:
        """The same for asyncio. ``progress`` is called by the event loop's thread; cancellation stops the operation."""
        loop = asyncio.get_running_loop()
        if callable(progress):
            called = progress
            progress = lambda event: void(loop.call_soon_threadsafe(called, event))
        done: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                settle, value = done.set_result, self.run(progress)
            except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
                settle, value = done.set_exception, error  # type: ignore[assignment]
            try:
                loop.call_soon_threadsafe(lambda: None if done.done() else settle(value))
            except RuntimeError:
                pass  # The loop is closed: nothing waits any more.

        # A thread of its own, not one of the pool's: operations may run for days.
        threading.Thread(target=run, name="tidecast", daemon=True).start()
        try:
            return await done
        except asyncio.CancelledError:
            self._native.stop()
            raise


def void(_: object) -> None:
    """Drops a value."""


def tell(event: Event, show: Callable[[Event], None]) -> None:
    """Warnings go to the logger ``tidecast`` too."""
    if event["event"] == "warning":
        _log.warning("%s", event["message"])
    show(event)


class shown:
    """Progress on its way to the user."""

    def __init__(self, progress: Progress):
        self._bar: Any = None
        if callable(progress):
            self._show: Callable[[Event], None] = progress
        else:
            self._show = self._move if progress else void

    def __enter__(self) -> Callable[[Event], None]:
        return self._show

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def _move(self, event: Event) -> None:
        if event["event"] not in ("check", "progress") or not event.get("total"):
            return
        if self._bar is None:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                self._show = void
                return
            self._bar = tqdm(unit="B", unit_scale=True, unit_divisor=1000)
        if self._bar.desc != event["stage"]:
            self._bar.set_description(event["stage"], refresh=False)
        self._bar.total = event["total"]
        self._bar.update(event["bytes"] - self._bar.n)
