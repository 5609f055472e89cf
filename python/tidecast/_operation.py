"""Operations that run behind this package's functions."""
from __future__ import annotations

import functools
import inspect
import json
import logging
import os
import threading
import types
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from . import _errors

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
#: A path of the file system.
AnyPath = str | os.PathLike[str]
#: An event of ``docs/events.md``: ``event["event"]`` is its name, the rest are its fields. Sizes are bytes, times are seconds.
Event = dict[str, Any]
#: How progress is shown: True is a bar of tqdm (nothing, where tqdm is not installed); a function takes each event.
Progress = bool | Callable[[Event], None]

_log = logging.getLogger("tidecast")


class Native(Protocol):
    """The interface of the extension module's operations."""

    def next(self) -> str | None: ...
    def result(self) -> tuple[bool, str]: ...
    def stop(self) -> None: ...


def begin(start: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Calls the extension module. Invalid arguments raise a :class:`UsageError`."""
    try:
        return start(*arguments, **named)
    except ValueError as error:
        raise _errors.UsageError(str(error)) from None


def answer(said: tuple[bool, str]) -> Any:
    """The JSON of a result; the exception of a failure."""
    good, text = said
    if good:
        return json.loads(text)
    raise _errors.of(json.loads(text))


class Task(Generic[T]):
    """An operation, and the conversion of its result. ``progress`` is as in :mod:`tidecast`."""

    def __init__(self, native: Native, finish: Callable[[dict[str, Any]], T], progress: Progress = False):
        self._native, self._finish, self._progress = native, finish, progress

    def run(self) -> T:
        """Waits for the end. Ctrl-C, or an exception of ``progress``, stops the operation."""
        return self._run(self._progress)

    def _run(self, progress: Progress) -> T:
        with shown(progress) as show:
            try:
                while (line := self._native.next()) is not None:
                    tell(json.loads(line), show)
            except BaseException:
                self._native.stop()
                raise
        return self._finish(answer(self._native.result()))

    async def run_async(self) -> T:
        """The same for asyncio. ``progress`` is called by the event loop's thread; cancellation stops the operation."""
        import asyncio  # It takes as long to load as all the rest: most programs do without.
        loop = asyncio.get_running_loop()
        called = self._progress

        def in_loop(event: Event) -> None:
            if callable(called):
                loop.call_soon_threadsafe(called, event)

        done: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                settle, value = done.set_result, self._run(in_loop if callable(called) else called)
            except BaseException as error:  # noqa: BLE001 - it is raised where it is awaited
                settle, value = done.set_exception, error  # type: ignore[assignment]
            with suppress(RuntimeError):  # The loop is closed: nothing waits any more.
                loop.call_soon_threadsafe(lambda: None if done.done() else settle(value))

        # A thread of its own, not one of the pool's: operations may run for days.
        threading.Thread(target=run, name="tidecast", daemon=True).start()
        try:
            return await done
        except asyncio.CancelledError:
            self._native.stop()
            raise


def waiting(begins: Callable[P, Task[T]]) -> Callable[P, T]:
    """Decorator: makes a function that waits for the end out of one that begins an operation."""

    @functools.wraps(begins)
    def waits(*arguments: P.args, **named: P.kwargs) -> T:
        return begins(*arguments, **named).run()

    # The annotations that `wraps` copied state that a Task is returned.
    kind = begins.__annotations__["return"].removeprefix("Task[").removesuffix("]")
    waits.__annotations__ = {**begins.__annotations__, "return": kind}
    waits.__signature__ = inspect.signature(begins).replace(return_annotation=kind)  # type: ignore[attr-defined]
    return waits


def awaited(waits: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The twin for asyncio of a function, or of an object's method, that :func:`waiting` made."""
    begins: Callable[P, Task[T]] = inspect.unwrap(getattr(waits, "__func__", waits))
    if isinstance(waits, types.MethodType):
        begins = types.MethodType(begins, waits.__self__)

    async def twin(*arguments: P.args, **named: P.kwargs) -> T:
        return await begins(*arguments, **named).run_async()

    return as_twin(waits, twin)


def in_thread(waits: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The twin for asyncio of a function that is short: it runs in a thread."""

    async def twin(*arguments: P.args, **named: P.kwargs) -> T:
        import asyncio
        return await asyncio.to_thread(waits, *arguments, **named)

    return as_twin(waits, twin)


def as_twin(waits: Callable[P, T], twin: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The twin, with the name, the text and the parameters of the original."""
    functools.update_wrapper(twin, waits)
    twin.__module__ = "tidecast.aio"
    twin.__annotations__ = dict(waits.__annotations__)
    twin.__signature__ = inspect.signature(waits)  # type: ignore[attr-defined]
    return twin


def void(_: object) -> None:
    """Drops a value."""


def tell(event: Event, show: Callable[[Event], None]) -> None:
    """Warnings go to the logger ``tidecast`` too."""
    if event["event"] == "warning":
        _log.warning("%s", event["message"])
    show(event)


class shown:
    """Passes progress to the user."""

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
