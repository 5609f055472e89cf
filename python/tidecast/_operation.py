"""Operations that run behind this package's functions."""
from __future__ import annotations

import functools
import inspect
import json
import logging
import os
import sys
import types
from collections.abc import Callable, Coroutine, Iterable
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
#: How progress is shown: True is a bar of tqdm (a warning, where tqdm is not installed); a function takes each event.
Progress = bool | Callable[[Event], None]

_log = logging.getLogger("tidecast")


class Native(Protocol):
    """The interface of the extension module's operations."""

    def next(self) -> str | None: ...
    def result(self) -> tuple[bool, str]: ...
    def stop(self) -> None: ...


def begin(start: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """Calls the extension module. Invalid arguments raise a :class:`UsageError`, wrong types a TypeError."""
    try:
        return start(*arguments, **named)
    except _errors.Error:
        raise
    except (ValueError, OverflowError) as error:
        raise _errors.UsageError(_why(error)) from None
    except TypeError as error:
        # Of a field of a dataclass, PyO3 has the reason as the cause.
        cause, (at, found, name) = error.__cause__, str(error).partition("failed to extract field ")
        if cause is None or at or not found:
            raise
        text = f"{name.rpartition('.')[2]}: {_why(cause)}"
        if isinstance(cause, TypeError):
            raise TypeError(text) from None
        raise _errors.UsageError(text) from None


def _why(error: BaseException) -> str:
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object!r} is not UTF-8, and only paths of data may be other than that"
    return str(error)


def seconds(time: float, name: str) -> int:
    """Whole seconds, as the daemon counts them.

    :raises TypeError: it is no number
    :raises UsageError: it is negative, infinite or NaN
    """
    if isinstance(time, str | bytes):
        raise TypeError(f"{name}: a number of seconds, not {type(time).__name__}")
    try:
        whole = int(time)
    except (ValueError, OverflowError) as error:
        raise _errors.UsageError(f"{name}: {error}") from None
    if not 0 <= whole < 1 << 63:
        raise _errors.UsageError(f"{name}: {time} is not a number of seconds")
    return whole


def words(given: Iterable[T], name: str) -> list[T]:
    """A list of arguments; one string alone would be taken letter by letter."""
    if isinstance(given, str | bytes | os.PathLike) or not isinstance(given, Iterable):
        raise TypeError(f"{name} is a list, not {type(given).__name__}: write [{'' if given is None else repr(given)}]")
    return list(given)


def options(given: T, kind: type[T], name: str) -> T:
    """An argument that is an object of this package, as :class:`tidecast.Swarm`: the extension would only miss its attributes."""
    if isinstance(given, kind):
        return given
    fields = ", ".join(f"{field}={value!r}" for field, value in given.items()) if isinstance(given, dict) else "..."
    text = f"{name} is a tidecast.{kind.__name__}, not {type(given).__name__}: write {name}=tidecast.{kind.__name__}({fields})"
    raise TypeError(text)


def answer(said: tuple[bool, str]) -> Any:
    """The JSON of a result; the exception of a failure."""
    good, text = said
    if good:
        return json.loads(text)
    raise _errors.of(json.loads(text))


def drop(native: Native, process: int) -> None:
    """Ends the operation of an object that nothing refers to any more, but not that of a parent process."""
    if process == os.getpid():
        native.stop()


def close_block(close: Callable[[], object], kind: type[BaseException] | None) -> None:
    """Closes at the end of a ``with`` block. If the block has raised, its exception is the one to report."""
    try:
        close()
    except _errors.Error:
        if kind is None:
            raise


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
        from ._cancel import Cancel, apart
        cancel = Cancel()
        progress = in_loop(self._progress)
        with cancel.by(self._native.stop):
            done = await apart(lambda: self._run(progress), cancel)
        if isinstance(progress, _InLoop):
            progress.check()
        return done


class _InLoop:
    """A progress function that the event loop's thread calls; what it raises ends the operation, which calls this object."""

    def __init__(self, called: Callable[[Event], None]):
        import asyncio
        self._loop, self._called = asyncio.get_running_loop(), called
        self._failed: BaseException | None = None

    def __call__(self, event: Event) -> None:
        self.check()
        with suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(self._call, event)

    def _call(self, event: Event) -> None:
        try:
            self._called(event)
        except BaseException as error:  # noqa: BLE001 - raised by `check`
            self._failed = self._failed or error

    def check(self) -> None:
        """Raises what the function has raised."""
        if self._failed is not None:
            raise self._failed


def in_loop(progress: Progress) -> Progress:
    """``progress`` of a twin for asyncio: a function is called by the event loop's thread."""
    if not callable(progress):
        return progress
    if inspect.iscoroutinefunction(progress):
        raise TypeError("progress is a plain function: the event loop's thread calls it, and nothing awaits it")
    return _InLoop(progress)


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


def in_thread(waits: Callable[P, T], patience: float | None = None) -> Callable[P, Coroutine[Any, Any, T]]:
    """The twin for asyncio of a function that looks at :func:`tidecast._cancel.current`: it runs in a thread. A task that is cancelled
    waits for the end of the call, so that buffers are free."""

    async def twin(*arguments: P.args, **named: P.kwargs) -> T:
        from ._cancel import Cancel, apart
        if "progress" in named:
            named["progress"] = in_loop(named["progress"])  # type: ignore[arg-type]
        return await apart(lambda: waits(*arguments, **named), Cancel(), patience)

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
        _log.warning("%s", _errors.escaped(event["message"]))
    show(event)


def check_progress(progress: object) -> None:
    """Raises TypeError where it is neither a bool nor a function."""
    if progress is not None and not isinstance(progress, bool) and not callable(progress):
        raise TypeError(f"progress: a bool or a function, not {type(progress).__name__}")


class shown:
    """Passes progress to the user."""

    def __init__(self, progress: Progress):
        self._bar: Any = None
        check_progress(progress)
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
                _log.warning("no progress is shown: the Python package tqdm is needed for it: %s -m pip install tqdm", sys.executable)
                self._show = void
                return
            self._bar = tqdm(unit="B", unit_scale=True, unit_divisor=1000)
        if self._bar.desc != event["stage"]:
            self._bar.set_description(event["stage"], refresh=False)
        self._bar.total = event["total"]
        self._bar.update(event["bytes"] - self._bar.n)
