"""Arrays in scientific files, recognised by their content and not by their names: NetCDF of every version, HDF5, Zarr (2, 3; a directory
or a zip), NumPy's .npy and .npz, VTK's images. Their axes are taken from the names of dimensions, or from the user."""
from __future__ import annotations

import importlib
import itertools
import os
import pathlib
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from . import _field_vtk as vtk
from ._field_cf import Meaning
from ._field_intact import Unchanged, check_xml
from ._field_values import Wrong

#: Names that are listed at most.
_LISTED = 20
_HDF5 = b"\x89HDF\r\n\x1a\n"
_ZARR = ("zarr.json", ".zarray", ".zgroup")
#: Names of the axis of steps, in lower or upper case: these, and those that begin or end with `time` (valid_time, time_counter).
_TIME = {"times", "t", "step", "steps", "record", "frame"}
#: Filters of HDF5 by their numbers (https://github.com/HDFGroup/hdf5_plugins), those that hdf5plugin brings.
_FILTERS = {32001: "blosc", 32004: "lz4", 32008: "bitshuffle", 32013: "zfp", 32015: "zstd", 32017: "sz", 32018: "fcidecomp",
            32023: "spherical", 32024: "sz3", 32026: "blosc2", 307: "bzip2", 32000: "lzf"}


def package(name: str, brought_by: str = "") -> Any:
    """The package, or what to do."""
    try:
        return importlib.import_module(name)
    except ImportError:
        wanted = brought_by or name
        raise Wrong(f"the Python package {wanted} is needed to read it: {sys.executable} -m pip install {wanted}") from None


def split(spec: str) -> tuple[str, str]:
    """File and name within of ``file:name``. File names have colons too (wrfout_d01_2026-11-26_00:00:00): the longest that is there
    counts."""
    if pathlib.Path(spec).exists():
        return spec, ""
    for colon in reversed([n for n, letter in enumerate(spec) if letter == ":"]):
        if colon and pathlib.Path(spec[:colon]).exists():
            return spec[:colon], spec[colon + 1:]
    return spec, ""


def kind(file: str) -> str:
    """``netcdf3``, ``hdf5``, ``zarr``, ``zarr-zip``, ``npz``, ``npy``, ``vtk``, or nothing."""
    path = pathlib.Path(file)
    if path.is_dir():
        return "zarr" if any((path / name).exists() for name in _ZARR) else ""
    with open(file, "rb") as opened:
        head = opened.read(vtk.HEAD)
        if head[:3] == b"CDF" and head[3:4] in b"\1\2\5":
            return "netcdf3"
        if head.startswith(b"\x93NUMPY"):
            return "npy"
        if head.startswith(b"PK"):
            return _zip(file)
        if vtk.kind(head):
            return "vtk"
        # A user block may precede the HDF5 data: of 512 bytes, or twice as many, and so on.
        size = os.fstat(opened.fileno()).st_size
        for at in (0, *(512 << n for n in range(48))):
            if at + 8 > size:
                break
            opened.seek(at)
            if opened.read(8) == _HDF5:
                return "hdf5"
    return ""


def _zip(file: str) -> str:
    try:
        with zipfile.ZipFile(file) as opened:
            names = opened.namelist()
    except zipfile.BadZipFile as error:
        raise Wrong(f"damaged zip archive: {error}") from None
    if any(name.rpartition("/")[2] in _ZARR for name in names):
        return "zarr-zip"
    return "npz" if any(name.endswith(".npy") for name in names) else ""


def _open(file: str, what: str) -> tuple[Any, bool]:
    """All that a file has, and whether it is NetCDF."""
    if what == "netcdf3":
        return _classic(file), True
    if what in ("npy", "npz"):
        return package("numpy").load(file, mmap_mode="r" if what == "npy" else None), False
    if what == "zarr":
        return package("zarr").open(file, mode="r"), False
    if what == "zarr-zip":
        zarr = package("zarr")
        with zipfile.ZipFile(file) as opened:
            # A zip may have the directory's contents, or the directory.
            inside = min((name.rpartition("/")[0] for name in opened.namelist() if name.rpartition("/")[2] in _ZARR), key=len)
        return zarr.open(zarr.storage.ZipStore(file, mode="r"), mode="r", path=inside), False
    if what == "vtk":
        return _image(file), False
    plugins()
    h5py = package("h5py")
    whole = h5py.File(file, "r")
    if "_NCProperties" not in whole.attrs and "_nc3_strict" not in whole.attrs and pathlib.Path(file).suffix not in (".nc", ".nc4"):
        return whole, False
    whole.close()
    return package("h5netcdf").File(file, "r", phony_dims="access"), True


def _image(file: str) -> vtk.Image:
    with open(file, "rb") as opened:
        what = vtk.kind(opened.read(vtk.HEAD))
    if why := vtk.refusal(what):
        raise Wrong(why)
    if what.endswith("ImageData"):
        check_xml(file)
    package("vtkmodules", "vtk")
    try:
        return vtk.Image(file, what)
    except ValueError as error:
        raise Wrong(str(error)) from None


def plugins() -> None:
    """Has HDF5 know the filters of hdf5plugin, where that is installed."""
    with suppress(ImportError):
        importlib.import_module("hdf5plugin")


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


def stored(spec: str, axes: Sequence[str] = ()) -> Stored:
    """The source for ``file:variable``, ``dir.zarr[:array]`` or ``file.npy``."""
    file, inner = split(spec)
    if not pathlib.Path(file).exists():
        raise Wrong("there is no such file")
    what = kind(file)
    if not what and pathlib.Path(file).is_dir():
        raise Wrong("it is a directory without a Zarr array or group (zarr.json, .zarray, .zgroup)")
    if not what:
        # For a name of HDF5, a missing package is reported before a fault of the file.
        package("h5py")
        raise Wrong("the format is not one of NetCDF, HDF5, Zarr, VTK's image data, .npy and .npz; raw float32 need --shape X,Y,Z")
    unchanged = Unchanged(file, what, inner)
    whole, netcdf = _open(file, what)
    if isinstance(whole, vtk.Image) and not inner:
        # An image of one array needs no name.
        names = list(whole)
        inner = names[0] if len(names) == 1 else ""
    try:
        found = whole[inner] if inner else whole
    except (KeyError, IndexError, ValueError):
        found = None
    if getattr(found, "shape", None) is None:
        there = ", ".join(itertools.islice(arrays(whole, axes), _LISTED)) or "none of three or four axes"
        raise Wrong(f"{f'it has no array {inner}' if inner else 'name a variable of it behind a colon'}; there are: {there}")
    if what == "netcdf3":
        unchanged.check_end(found.name)
    return Stored(found, whole, netcdf, axes, unchanged)


def arrays(group: Any, axes: Sequence[str] = (), before: str = "", depth: int = 8) -> Iterator[str]:
    """The names of the arrays that can be sent."""
    variables = getattr(group, "variables", None)
    items = {**variables, **getattr(group, "groups", {})} if variables is not None else dict(_members(group))
    for name, item in items.items():
        # Datasets of HDF5 may have none.
        if getattr(item, "shape", None) is not None:
            if len(item.shape) in (3, 4) or (axes and set(axes) <= set(dimensions(item))):
                yield before + name
        elif depth > 0 and (hasattr(item, "keys") or hasattr(item, "variables")):
            yield from arrays(item, axes, f"{before}{name}/", depth - 1)


def _members(group: Any) -> Iterator[tuple[str, Any]]:
    """Names and members, without broken links of HDF5 and without arrays of Python's objects."""
    for name in group:
        with suppress(KeyError, OSError, ValueError):
            yield name, group[name]


def dimensions(array: Any) -> list[str]:
    """The names of an array's axes; if it has no names, their numbers."""
    names = getattr(array, "dimensions", None) or getattr(getattr(array, "metadata", None), "dimension_names", None)
    names = names or dict(getattr(array, "attrs", {})).get("_ARRAY_DIMENSIONS")
    if names is None and hasattr(array, "dims"):  # h5py
        names = [axis.label or next(iter(axis.keys()), "") for axis in array.dims]
    names = [str(name or "").rpartition("/")[2] for name in names or ()]
    return [names[n] if n < len(names) and names[n] else str(n) for n in range(len(array.shape))]


def _is_time(name: str) -> bool:
    name = name.lower()
    return name in _TIME or name.startswith("time") or name.endswith("time")


def _roles(array: Any, axes: Sequence[str]) -> tuple[int | None, list[int]]:
    """The axis of steps, if there is one, and those of z, y and x (or y and x)."""
    names = dimensions(array)
    shown = ", ".join(f"{name} ({length})" for name, length in zip(names, array.shape, strict=True)) or "none"
    if not axes:
        times = [n for n, name in enumerate(names) if _is_time(name)]
        step = times[0] if times else 0 if len(names) == 4 else None
        rest = [n for n in range(len(names)) if n != step]
        if len(rest) > 3:
            # Axes of one value, as a member or a height above ground may be, are passed over.
            rest = [n for n in rest if array.shape[n] != 1]
        if len(rest) == 3 or (len(rest) == 2 and times):
            return step, rest
        raise Wrong(f"it has {len(names)} axes: three are needed, or time and three; they are {shown}: "
                    "choose them by --axes STEP,Z,Y,X (or Z,Y,X)")
    places = []
    for axis in axes:
        if axis not in names and not (axis.isdecimal() and int(axis) < len(names)):
            raise Wrong(f"it has no axis {axis}, which --axes names; there are: {shown}")
        places.append(names.index(axis) if axis in names else int(axis))
    if len(set(places)) != len(places) or len(places) not in (2, 3, 4):
        raise Wrong("--axes names two to four axes, each once: STEP,Z,Y,X or Z,Y,X or Y,X")
    others = [name for n, name in enumerate(names) if n not in places and array.shape[n] != 1]
    # Three may be Z,Y,X, or steps of one plane.
    has_steps = len(places) == 4 or (len(places) == 3 and _is_time(names[places[0]]))
    step, rest = (places[0], places[1:]) if has_steps else (None, places)
    if others:
        raise Wrong(f"--axes leaves out {', '.join(others)}, which has more than one value; the axes are {shown}")
    return step, rest


class Stored:
    """An array on disk: its steps, each of z, y, x."""

    def __init__(self, array: Any, file: Any, netcdf: bool, axes: Sequence[str], unchanged: Unchanged):
        self._unchanged = unchanged
        # The file closes with its last reference, and the array needs it.
        self._file = file
        self._array, (self._step, self._rest) = array, _roles(array, axes)
        sides = [int(array.shape[n]) for n in self._rest]
        names = dimensions(array)
        #: The names of z, y and x, where the file has them.
        self.axes = [names[n] for n in self._rest if not names[n].isdigit()]
        self.shape: tuple[int, ...] = tuple([1] * (3 - len(sides)) + sides)
        self.steps: int | None = 1 if self._step is None else int(array.shape[self._step])
        _has_filters(array)
        self._meaning = Meaning(array, netcdf)

    def step(self, number: int) -> Any:
        if number >= (self.steps or 0):
            return None
        index = tuple(number if n == self._step else slice(None) if n in self._rest else 0 for n in range(len(self._array.shape)))
        kept = sorted(self._rest)
        self._unchanged.check()
        values = self._array[index].transpose([kept.index(n) for n in self._rest])
        self._unchanged.check()
        return self._meaning.of(values.reshape(self.shape))


def _has_filters(array: Any) -> None:
    """Checks that HDF5 has the filters to decompress the values."""
    dataset = getattr(array, "_h5ds", array)
    if not hasattr(dataset, "id") or not hasattr(dataset.id, "get_create_plist"):
        return
    h5z, plist = package("h5py").h5z, dataset.id.get_create_plist()
    for n in range(plist.get_nfilters()):
        number = plist.get_filter(n)[0]
        if not h5z.filter_avail(number):
            name = _FILTERS.get(number, "of its own")
            raise Wrong(f"its values are packed by the HDF5 filter {name} ({number}), which is not installed: "
                        f"{sys.executable} -m pip install hdf5plugin, or set HDF5_PLUGIN_PATH to a directory that has it")


class Series:
    """Steps of several files, one behind the other."""

    def __init__(self, specs: Sequence[str], axes: Sequence[str] = ()):
        inner = next((inner for _, inner in map(split, specs) if inner), "")
        # A .npy has one array, which has no name.
        self._specs = [spec if split(spec)[1] or not inner or not pathlib.Path(spec).exists() or kind(spec) == "npy" else f"{spec}:{inner}"
                       for spec in specs]
        self._axes = axes
        self.shape: tuple[int, ...] = ()
        self._first: list[int] = []
        self._counts: list[int] = []
        self.steps: int | None = 0
        names: list[str] = []
        for spec in self._specs:
            try:
                part = stored(spec, axes)
            except Wrong as error:
                raise Wrong(f"{pathlib.Path(split(spec)[0]).name}: {error}") from None
            if self.shape and part.shape != self.shape:
                raise Wrong(f"{pathlib.Path(split(spec)[0]).name}: its shape (z, y, x) is {part.shape}, "
                            f"and that of the first file {self.shape}")
            # Cubes have one shape in any order of their axes.
            here = getattr(part, "axes", [])
            if here != names and sorted(here) == sorted(names) and not axes:
                raise Wrong(f"{pathlib.Path(split(spec)[0]).name}: its axes are {', '.join(here)}, and those of the first file "
                            f"{', '.join(names)}: choose them by --axes")
            names = names or here
            self.shape = part.shape
            self._first.append(self.steps or 0)
            self._counts.append(part.steps or 0)
            self.steps = (self.steps or 0) + (part.steps or 0)
        self._open: tuple[int, Any] = (-1, None)

    def step(self, number: int) -> Any:
        if number >= (self.steps or 0):
            return None
        place = max(n for n, first in enumerate(self._first) if first <= number)
        # One at a time is open: there may be thousands.
        if self._open[0] != place:
            part = stored(self._specs[place], self._axes)
            if (part.shape, part.steps) != (self.shape, self._counts[place]):
                raise Wrong(f"{pathlib.Path(split(self._specs[place])[0]).name} was replaced since sending began")
            self._open = (place, part)
        return self._open[1].step(number - self._first[place])
