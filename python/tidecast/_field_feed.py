"""Reads what `tidecast field send` does not read itself, and puts it step by step into memory that both share."""
from __future__ import annotations

import argparse
import ast
import importlib
import itertools
import json
import os
import pathlib
import runpy
import sys
from typing import Any, Callable, Iterator, Protocol, TextIO

from ._field_cf import Meaning
from ._field_values import NotReal, check, put

_PACKAGES = {".nc": "h5netcdf", ".nc4": "h5netcdf", ".h5": "h5py", ".hdf5": "h5py", ".he5": "h5py", ".zarr": "zarr"}
#: Names that are listed at most.
_LISTED = 20


class Wrong(Exception):
    """What is wrong with the source, for people."""


class Source(Protocol):
    """Steps of one shape."""
    shape: tuple[int, ...]
    steps: int | None

    def step(self, number: int) -> Any:
        """The array of this step, or None behind the last."""


class Stored:
    """An array on disk: of three axes, or of four, the first of which is time."""

    def __init__(self, array: Any, file: Any, netcdf: bool = False):
        # Without the file, which closes when nobody has it any more, the array is nothing.
        self._file = file
        axes = len(array.shape)
        if axes not in (3, 4):
            raise Wrong(f"it has {axes} axes: three are needed, or time and three")
        self._array, self._alone = array, axes == 3
        self.shape: tuple[int, ...] = tuple(array.shape[-3:])
        self.steps: int | None = 1 if self._alone else array.shape[0]
        self._meaning = Meaning(array, netcdf)

    def step(self, number: int) -> Any:
        if number >= (self.steps or 0):
            return None
        return self._meaning.of(self._array[...] if self._alone else self._array[number])


class Generated:
    """A generator of arrays. When an earlier step is asked for, it is begun again."""

    def __init__(self, make: Callable[[], Iterator[Any]]):
        self._make, self._end, self._next = make, sys.maxsize, 0
        self._iterator = iter(make())
        first = next(self._iterator, None)
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
            array = next(self._iterator, None)
            if array is None:
                self._end = self._next
                return None
            self._next += 1
        return array


def package(name: str) -> Any:
    """The package, or what to do."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise Wrong(f"the Python package {name} is needed to read it: {sys.executable} -m pip install {name}") from None


def find(spec: str) -> Source:
    """What ``file:variable``, ``dir.zarr[:array]``, ``script.py:function`` or ``file.npy`` means."""
    whole_name = pathlib.Path(spec).exists() or spec.rstrip("/").endswith(".zarr")
    file, _, inner = (spec, "", "") if whole_name else spec.rpartition(":")
    kind = pathlib.Path(file).suffix
    if not pathlib.Path(file).exists():
        raise Wrong("there is no such file")
    if kind == ".py":
        return Generated(_function(file, inner))
    if kind == ".npy":
        return Stored(package("numpy").load(file, mmap_mode="r"), None)
    netcdf = kind in (".nc", ".nc4")
    if netcdf and _head(file).startswith(b"CDF"):
        whole = _classic(file)
    else:
        library = package(_PACKAGES[kind])
        whole = library.open(file, mode="r") if kind == ".zarr" else library.File(file, "r")
    try:
        found = whole[inner] if inner else whole
    except (KeyError, IndexError):
        found = None
    if not hasattr(found, "shape"):
        there = ", ".join(itertools.islice(_arrays(whole), _LISTED)) or "none of three or four axes"
        raise Wrong(f"{f'it has no array {inner}' if inner else 'name a variable of it behind a colon'}; there are: {there}")
    return Stored(found, whole, netcdf)


def _head(file: str) -> bytes:
    with open(file, "rb") as opened:
        return opened.read(4)


def _classic(file: str) -> Any:
    """A NetCDF file of version 3, whose form is not that of HDF5."""
    try:
        import netCDF4
    except ImportError:
        raise Wrong("it is NetCDF of version 3: the Python package netCDF4 is needed to read it "
                    f"({sys.executable} -m pip install netCDF4), or make it one of version 4: nccopy -k nc4") from None
    whole = netCDF4.Dataset(file)
    whole.set_auto_maskandscale(False)
    return whole


def _arrays(group: Any, before: str = "", depth: int = 8) -> Iterator[str]:
    """The names of the arrays that can be sent."""
    variables = getattr(group, "variables", None)
    items = {**variables, **getattr(group, "groups", {})} if variables is not None else {name: group[name] for name in group}
    for name, item in items.items():
        if hasattr(item, "shape"):
            if len(item.shape) in (3, 4):
                yield before + name
        elif depth > 0 and (hasattr(item, "keys") or hasattr(item, "variables")):
            yield from _arrays(item, f"{before}{name}/", depth - 1)


def _function(file: str, name: str) -> Callable[[], Iterator[Any]]:
    """A script's function of this name."""
    function = runpy.run_path(file).get(name) if name else None
    if callable(function):
        return function
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
    parser = argparse.ArgumentParser(prog="python3 -m tidecast.field", description="What `tidecast field send` starts.")
    feed = parser.add_subparsers(required=True).add_parser("feed", help="put the steps of a source into memory")
    feed.add_argument("source")
    feed.add_argument("--memory", required=True)
    feed.add_argument("--slots", type=int, required=True)
    args = parser.parse_args()
    # What the user's code prints must not come between.
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(line: dict[str, Any]) -> None:
        print(json.dumps(line), file=pipe, flush=True)

    try:
        package("numpy")
        name = pathlib.Path(args.source).name
        serve(find(args.source), name, args.memory, args.slots, sys.stdin, say)
    except (BrokenPipeError, KeyboardInterrupt):
        return 1
    except Exception as error:
        say({"error": str(error) if isinstance(error, (Wrong, NotReal)) else f"{type(error).__name__}: {error}"})
        return 1
    return 0
