"""Reads sources that `tidecast field send` does not read itself, and writes them step by step to shared memory."""
from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import pathlib
import runpy
import stat
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TextIO

from ._field_files import Series, package, split, stored
from ._field_values import BeyondRange, NotReal, Wrong, check, put


class Source(Protocol):
    """Steps of one shape."""
    shape: tuple[int, ...]
    steps: int | None

    def step(self, number: int) -> Any:
        """The array of this step, or None behind the last."""


#: Letters of an error that are sent: a line of the dialogue has a limit.
_TEXT = 2000
#: Behind the last array of a generator.
_END = object()


class Generated:
    """A generator of arrays. When an earlier step is asked for, it is begun again."""

    def __init__(self, make: Callable[[], Iterator[Any]]):
        self._make, self._end, self._next = make, sys.maxsize, 0
        self._iterator = iter(make())
        first = next(self._iterator, _END)
        if first is _END:
            raise Wrong("it yields nothing: NumPy arrays of three axes are needed")
        self.shape: tuple[int, ...] = tuple(getattr(first, "shape", ()))
        if len(self.shape) != 3:
            raise Wrong(f"it yields {type(first).__name__} of shape {self.shape}: NumPy arrays of three axes are needed")
        check(package("numpy").asanyarray(first).dtype)
        self.steps: int | None = None
        self._iterator = itertools.chain([first], self._iterator)

    def step(self, number: int) -> Any:
        if number >= self._end:
            return None
        if number < self._next:
            self._iterator, self._next, self._end = iter(self._make()), 0, sys.maxsize
        array = None
        while self._next <= number:
            array = next(self._iterator, _END)
            if array is _END:
                self._end = self._next
                return None
            if array is None:
                raise Wrong(f"it yields None as step {self._next}: NumPy arrays are needed")
            self._next += 1
        return array


def find(specs: str | Sequence[str], axes: Sequence[str] = ()) -> Source:
    """The source for ``file:variable``, several of them, ``dir.zarr[:array]``, ``script.py:function`` or ``file.npy``."""
    specs = [specs] if isinstance(specs, str) else specs
    file, inner = next((found for found in map(split, specs) if pathlib.Path(found[0]).suffix == ".py"), split(specs[0]))
    if pathlib.Path(file).suffix == ".py":
        if len(specs) > 1:
            raise Wrong(f"{file} is a script, which is the only source of a field: yield all steps from one function")
        if axes:
            raise Wrong("--axes is for stored arrays: yield arrays of z, y, x")
        if not pathlib.Path(file).exists():
            raise Wrong("there is no such file")
        return Generated(_function(file, inner))
    return stored(specs[0], axes) if len(specs) == 1 else Series(specs, axes)


def _function(file: str, name: str) -> Callable[[], Iterator[Any]]:
    """A script's function of this name. As where Python runs a script, modules beside it can be imported."""
    beside = os.path.dirname(os.path.realpath(file))
    # But not where every user may put a module.
    if beside not in sys.path and not os.stat(beside).st_mode & stat.S_IWOTH:
        sys.path.insert(0, beside)
    function = runpy.run_path(file).get(name) if name else None
    if callable(function):
        generator: Callable[[], Iterator[Any]] = function
        return generator
    tree = ast.parse(pathlib.Path(file).read_text("utf-8"), file)
    there = ", ".join(node.name for node in tree.body if isinstance(node, ast.FunctionDef)) or "none"
    raise Wrong(f"{f'it has no function {name}' if name else 'name a function of it behind a colon'}; there are: {there}")


def serve(source: Source, name: str, memory: str, slots: int, requests: TextIO, say: Callable[[dict[str, Any]], None]) -> None:
    """Fills slots as it is asked to."""
    import numpy as np
    size = 4 * int(np.prod(source.shape, dtype=np.int64))
    os.truncate(memory, size * slots)
    volumes = np.memmap(memory, "<f4", "r+", shape=(slots, *source.shape))
    say({"shape": source.shape, "steps": source.steps, "name": name})
    for line in requests:
        asked = json.loads(line)
        array = source.step(asked["step"])
        if array is None:
            say({"end": True})
            continue
        if np.shape(array) != tuple(source.shape):
            raise Wrong(f"step {asked['step']} has the shape {np.shape(array)}, not {source.shape}")
        put(array, volumes[asked["fill"]])
        say({"filled": asked["fill"], "step": asked["step"]})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tidecast.field", description="Read a source for `tidecast field send`.")
    feed = parser.add_subparsers(required=True).add_parser("feed", help="put the steps of a source into memory")
    feed.add_argument("source", nargs="+")
    feed.add_argument("--axes", default="")
    feed.add_argument("--memory", required=True)
    feed.add_argument("--slots", type=int, required=True)
    args = parser.parse_args()
    # Output of the user's code must not mix with the protocol, nor may its input be the requests.
    pipe, requests = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))
    os.dup2(2, 1)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)

    def say(line: dict[str, Any]) -> None:
        print(json.dumps(line), file=pipe, flush=True)

    show = warnings.showwarning

    def warn(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, BeyondRange):
            say({"warning": str(message)})
        else:
            show(message, category, *where, **more)

    warnings.showwarning = warn
    warnings.simplefilter("always", BeyondRange)
    try:
        package("numpy")
        axes = [axis.strip() for axis in args.axes.split(",")] if args.axes else ()
        name = pathlib.Path(args.source[0]).name + (f" and {len(args.source) - 1} more" if len(args.source) > 1 else "")
        serve(find(args.source, axes), name, args.memory, args.slots, requests, say)
    except (BrokenPipeError, KeyboardInterrupt):
        return 1
    except Exception as error:  # noqa: BLE001 - the sender shows it, whatever it is
        text = str(error) if isinstance(error, (Wrong, NotReal)) else f"{type(error).__name__}: {error}"
        say({"error": text if len(text) <= _TEXT else f"{text[:_TEXT]} ..."})
        return 1
    return 0
