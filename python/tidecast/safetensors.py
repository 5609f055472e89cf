"""Weights in the format of safetensors, loaded while they arrive.

    from tidecast import safetensors
    weights = safetensors.load_file(ticket)                                  # all of them, as arrays of NumPy
    weights = safetensors.load_file("head/model", framework="torch")         # mapped from the store of this host's daemon
    part = safetensors.load_file(ticket, slices={"layer.weight": (slice(0, 512),)})    # only these rows are fetched
    for name, tensor in safetensors.iterate(ticket): ...                     # each as soon as its bytes are here

The header comes first; it is checked as hostile input. Then tensors arrive in the order of the file. For a daemon's cache, and for
data that is here already, tensors are the file itself in memory (mapped privately: writing to one changes neither the file nor
others).
"""
from __future__ import annotations

import ctypes
import itertools
import json
import math
import mmap
import operator
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from . import _errors
from ._installed import needed
from ._operation import AnyPath
from ._reading import Reader, open, split

__all__ = ["Tensor", "describe", "iterate", "load_file"]

#: The longest header, bytes: as safetensors has it.
_HEADER = 100_000_000
_INDEX = ".safetensors.index.json"
_SUFFIX = ".safetensors"
#: Bytes of an element.
_SIZES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1, "F8_E4M3FNUZ": 1, "F8_E5M2FNUZ": 1, "I16": 2, "U16": 2,
    "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "C64": 8, "F64": 8, "I64": 8, "U64": 8,
}
_NUMPY = {
    "BOOL": "bool", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "I32": "<i4", "U32": "<u4", "F32": "<f4",
    "C64": "<c8", "F64": "<f8", "I64": "<i8", "U64": "<u8",
}
#: Types that NumPy lacks: their names in ml_dtypes.
_ML = {
    "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
_TORCH = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16", "I32": "int32",
    "U32": "uint32", "F32": "float32", "C64": "complex64", "F64": "float64", "I64": "int64", "U64": "uint64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
#: A slice of each axis from the first on; axes that are not named are whole.
Slices = Sequence[slice]


class Tensor(NamedTuple):
    """A header's description of a tensor.

    :ivar name: its key
    :ivar dtype: the type of an element, as safetensors calls it: ``F32``, ``BF16``
    :ivar shape: elements along each axis
    :ivar file: the path of its file in the tree
    :ivar start: where its bytes begin in that file
    :ivar end: where they end
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    end: int


def load_file(source: AnyPath | Reader, device: str = "cpu", framework: str = "numpy", *, path: str | None = None,
              keys: Collection[str] | None = None, slices: Mapping[str, Slices] | None = None, **how: Any) -> dict[str, Any]:
    """Loads tensors: all, or those that ``keys`` and ``slices`` name. Returns them by name, in the order of their files.

    :param source: as for :func:`tidecast.open`, or an open :class:`tidecast.Reader`, or a URL with the path within:
        ``tidecast://TICKET/PATH``
    :param device: where torch puts them
    :param framework: ``numpy`` or ``torch``
    :param path: the file in the tree, or a directory with several files, and an index; by default the top of the tree
    :param keys: names of the tensors to load
    :param slices: parts of tensors, by name: a slice (of step 1) of each axis. Without ``keys`` nothing else is loaded. Only the
        pieces with bytes of these parts are fetched
    :param how: arguments of :func:`tidecast.open`
    :raises KeyError: there is no such tensor
    :raises FaultError: this is not a valid safetensors file, or none can be read
    :raises UsageError: this framework has no such type of element
    """
    return dict(iterate(source, device, framework, path=path, keys=keys, slices=slices, **how))


def iterate(source: AnyPath | Reader, device: str = "cpu", framework: str = "numpy", *, path: str | None = None,
            keys: Collection[str] | None = None, slices: Mapping[str, Slices] | None = None, **how: Any) -> Iterator[tuple[str, Any]]:
    """As :func:`load_file`, but gives each tensor, (name, tensor), as soon as its bytes are here, while the later ones arrive.

    :param source: as of :func:`load_file`, like ``device``, ``framework``, ``path``, ``keys``, ``slices`` and ``how``
    :raises KeyError: and others, as of :func:`load_file`; by the iterator
    """
    make = {"numpy": _Arrays, "torch": _Torch}.get(framework)
    slices = slices or None
    if isinstance(keys, str):
        raise TypeError(f"keys is a collection of names, not a string: write [{keys!r}]")
    if make is None:
        raise _errors.UsageError(f"framework {framework!r}: write numpy or torch")
    if framework == "numpy" and device != "cpu":
        raise _errors.UsageError(f"arrays of NumPy are on the device cpu, not {device!r}")
    maker = make(device)
    with ExitStack() as stack:
        reader, path = _reader(stack, source, path, how)
        wanted = _chosen(_tensors(reader, path, keys, slices), keys, slices or {})
        for tensor, part in wanted:
            maker.dtype(tensor)
            _bounds(tensor, part)
        loaded: dict[str, memoryview] = {}
        for tensor, _ in wanted:
            if tensor.file not in loaded and reader.is_local(tensor.file):
                loaded[tensor.file] = _mapped(reader, tensor.file)
        coming = [(tensor, part) for tensor, part in wanted if tensor.file not in loaded]
        for tensor, part in wanted:
            data = loaded.get(tensor.file)
            if data is not None:
                yield tensor.name, maker.view(data, tensor, part)
                continue
            made = _fetched(reader, maker, tensor, part)
            # The first has all of the line for itself; then the others come while the caller works with it.
            reader.want((other.file, begin, end) for other, slice_ in coming[1:] for begin, end in _runs(reader, other, slice_)[1])
            coming = []
            yield tensor.name, made


def describe(source: AnyPath | Reader, *, path: str | None = None, **how: Any) -> dict[str, Tensor]:
    """The content of the headers: tensors by name, in the order of their files. Only headers are fetched. Sizes are in bytes.

    :param source: as of :func:`load_file`, like ``path`` and ``how``
    :raises FaultError: this is not a valid safetensors file, or none can be read
    """
    with ExitStack() as stack:
        reader, path = _reader(stack, source, path, how)
        return {tensor.name: tensor for tensor in _tensors(reader, path, None, None)}


def _reader(stack: ExitStack, source: AnyPath | Reader, path: str | None, how: dict[str, Any]) -> tuple[Reader, str]:
    if isinstance(source, Reader):
        if how:
            raise TypeError(f"an open reader takes no {', '.join(how)}")
        return source, path or ""
    text = os.fspath(source)
    if text.startswith("tidecast://"):
        head, inner = split(text.removeprefix("tidecast://"))
        text, path = (head if head.startswith(("/", ".")) else f"tidecast://{head}"), path or inner
    return stack.enter_context(open(text, **how)), path or ""


# The files, and their tensors.

def _tensors(reader: Reader, path: str, keys: Collection[str] | None, slices: Mapping[str, Slices] | None) -> list[Tensor]:
    """The tensors of a file, or of a directory's files, without files that have no wanted tensor."""
    found = reader.find(path)
    if found is not None and found.type == "file":
        return _header(reader, path)
    below = [entry.path for entry in reader.ls(path)]
    indexes = [name for name in below if name.endswith(_INDEX)]
    files = sorted(name for name in below if name.endswith(_SUFFIX))
    if len(indexes) > 1:
        raise _errors.UsageError(f"{len(indexes)} indexes are in {path or 'the tree'}: name one file by path=")
    if indexes:
        base = path.rstrip("/") + "/" if path else ""
        mapped = _index(reader, indexes[0])
        wanted = None if keys is None and slices is None else {*(keys or ()), *(slices or ())}
        files = sorted({base + file for name, file in mapped.items() if wanted is None or name in wanted})
    elif not files:
        raise _errors.FaultError(f"no {_SUFFIX} file is in {path or 'the tree'}")
    tensors = [tensor for file in files for tensor in _header(reader, file)]
    names = {tensor.name for tensor in tensors}
    if len(names) < len(tensors):
        raise _errors.FaultError(f"files of {path or 'the tree'} have tensors of the same name")
    if indexes:
        for name, file in mapped.items():
            if (wanted is None or name in wanted) and name not in names:
                raise _wrong(indexes[0], f"{name!r} is not in {file}")
        tensors = [tensor for tensor in tensors if mapped.get(tensor.name) == tensor.file.rpartition("/")[2]]
    return tensors


def _index(reader: Reader, path: str) -> dict[str, str]:
    """Which file of the directory has which tensor."""
    entry = reader.find(path)
    if entry is None or entry.size > _HEADER:
        raise _wrong(path, "the index is too long")
    mapped = _json(path, reader.read(path)).get("weight_map")

    def good(file: object) -> bool:
        return isinstance(file, str) and "/" not in file and file.endswith(_SUFFIX)

    if not isinstance(mapped, dict) or not all(map(good, mapped.values())):
        raise _wrong(path, "weight_map does not name files beside it")
    return mapped


def _header(reader: Reader, path: str) -> list[Tensor]:
    """The tensors of a file, in its order. The whole header is checked against the length of the file."""
    entry = reader.find(path)
    if entry is None:
        raise FileNotFoundError(f"no such file in the tree: {path}")
    [first] = reader.read_ranges([(path, 0, 8)])
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > min(_HEADER, entry.size - 8):
        raise _wrong(path, f"a header of {length} bytes in a file of {entry.size}")
    [text] = reader.read_ranges([(path, 8, 8 + length)])
    header = _json(path, text)
    extra = header.pop("__metadata__", {})
    if extra is not None and (not isinstance(extra, dict) or not all(isinstance(value, str) for value in extra.values())):
        raise _wrong(path, "__metadata__ is not a map of strings")
    tensors = [_tensor(path, 8 + length, name, told) for name, told in header.items()]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.end))
    at = 8 + length
    for tensor in tensors:
        if tensor.start != at:
            raise _wrong(path, f"{tensor.name!r} does not begin where the tensor before it ends")
        at = tensor.end
    if at != entry.size:
        raise _wrong(path, f"tensors end at {at}, and the file at {entry.size}")
    return tensors


def _tensor(path: str, base: int, name: str, told: Any) -> Tensor:
    def numbers(value: Any) -> bool:
        return isinstance(value, list) and all(type(number) is int and 0 <= number < 1 << 63 for number in value)

    if not isinstance(told, dict) or not {"dtype", "shape", "data_offsets"} <= set(told):  # more are permitted, and of no effect
        raise _wrong(path, f"{name!r} lacks dtype, shape or data_offsets")
    dtype, shape, offsets = told["dtype"], told["shape"], told["data_offsets"]
    if not (isinstance(dtype, str) and numbers(shape) and numbers(offsets) and len(offsets) == 2 and len(shape) <= 32):
        raise _wrong(path, f"{name!r}: dtype, shape or data_offsets are malformed")
    if dtype not in _SIZES:
        raise _errors.FaultError(f"{path}: {name!r} has elements of type {dtype}, which this version does not know")
    begin, end = offsets
    # As safetensors computes it: no product on the way may be too large, even if the last factor is 0.
    if any(size >= 1 << 64 for size in itertools.accumulate(shape, operator.mul)):
        raise _wrong(path, f"{name!r}: the shape {shape} is too large")
    if begin > end or end - begin != math.prod(shape) * _SIZES[dtype]:
        raise _wrong(path, f"{name!r} has {end - begin} bytes for the shape {shape} of {dtype}")
    return Tensor(name, dtype, tuple(shape), path, base + begin, base + end)


def _json(path: str, text: bytes) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a name is there twice")
        for name, _ in pairs:
            name.encode()
        return dict(pairs)

    try:
        parsed = json.loads(text.decode("utf-8"), object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, f"{error}") from None
    if not isinstance(parsed, dict):
        raise _wrong(path, "the header is not an object")
    return parsed


def _wrong(path: str, why: str) -> _errors.FaultError:
    return _errors.FaultError(f"{path} is not a valid safetensors file: {why}")


# Which parts of them.

def _chosen(tensors: list[Tensor], keys: Collection[str] | None, slices: Mapping[str, Slices]) -> list[tuple[Tensor, Slices]]:
    if keys is None and not slices:
        return [(tensor, ()) for tensor in tensors]
    wanted = {*(keys or ()), *slices}
    for name in wanted.difference(tensor.name for tensor in tensors):
        raise KeyError(name)
    return [(tensor, slices.get(tensor.name, ())) for tensor in tensors if tensor.name in wanted]


def _bounds(tensor: Tensor, part: Slices) -> list[tuple[int, int]]:
    """From where to where on each axis."""
    if isinstance(part, slice) or not all(isinstance(one, slice) for one in part):
        raise TypeError(f"{tensor.name!r}: a tuple of slices, one for each axis, is needed, not {part!r}")
    if len(part) > len(tensor.shape):
        raise _errors.UsageError(f"{tensor.name!r}: {len(part)} slices for {len(tensor.shape)} axes")
    bounds = []
    for axis, size in enumerate(tensor.shape):
        begin, end, step = part[axis].indices(size) if axis < len(part) else (0, size, 1)
        if step != 1:
            raise _errors.UsageError(f"{tensor.name!r}: slices have the step 1")
        bounds.append((begin, max(begin, end)))
    return bounds


def _runs(reader: Reader, tensor: Tensor, part: Slices) -> tuple[int, list[tuple[int, int]]]:
    """The bytes to fetch for a part of a tensor, as runs in the file (start, end), and the last axis that they are cut along. Gaps that are
    shorter than a piece are not left out, because their pieces come in any case; axes after that one are cut in memory."""
    bounds, size = _bounds(tensor, part), _SIZES[tensor.dtype]
    inner = [math.prod(tensor.shape[axis + 1:]) * size for axis in range(len(tensor.shape))]
    last = max((axis for axis, (begin, end) in enumerate(bounds) if end - begin < tensor.shape[axis]), default=-1)
    least = reader.piece_length or 64 << 10
    while last > 0 and (tensor.shape[last] - (bounds[last][1] - bounds[last][0])) * inner[last] < least:
        last -= 1
    if last < 0:
        return -1, [(tensor.start, tensor.end)]
    begin, end = bounds[last]
    places = itertools.product(*(range(*bounds[axis]) for axis in range(last)))
    starts = (tensor.start + sum(at * inner[axis] for axis, at in enumerate(place)) for place in places)
    return last, [(start + begin * inner[last], start + end * inner[last]) for start in starts]


def _fetched(reader: Reader, maker: _Maker, tensor: Tensor, part: Slices) -> Any:
    """A tensor, or a part of it, in memory of its own."""
    axis, runs = _runs(reader, tensor, part)
    bounds = _bounds(tensor, part)
    shape = tuple(end - begin if at <= axis else tensor.shape[at] for at, (begin, end) in enumerate(bounds))
    made, view = maker.empty(tensor, shape)
    reader.fetch([(tensor.file, begin, end) for begin, end in runs])
    file, done = reader._file(tensor.file)[0], 0
    for begin, end in runs:
        reader._fill(file, view[done:done + end - begin], begin)
        done += end - begin
    rest = tuple(slice(None) if at <= axis else slice(*bound) for at, bound in enumerate(bounds))
    return maker.give(made[rest] if part else made)


def _mapped(reader: Reader, path: str) -> memoryview:
    """A whole local file, in private memory: writes to it stay in this process."""
    file, size = reader._file(path)
    opened = reader._descriptor(file)
    if opened is None or size == 0:
        return memoryview(bytearray(reader.read(path)))
    return memoryview(mmap.mmap(opened.number, size, access=mmap.ACCESS_COPY))


# The types that they become.

class _Maker:
    """Makes tensors of a framework."""

    def __init__(self, device: str):
        self.device = device

    def dtype(self, tensor: Tensor) -> Any:
        """The framework's type of an element."""
        raise NotImplementedError

    def empty(self, tensor: Tensor, shape: tuple[int, ...]) -> tuple[Any, memoryview]:
        """A tensor of this shape, and its memory."""
        raise NotImplementedError

    def view(self, data: memoryview, tensor: Tensor, part: Slices) -> Any:
        """A tensor, or a part of it, in the memory of its file."""
        raise NotImplementedError

    def give(self, made: Any) -> Any:
        """The tensor for the caller."""
        return made


class _Arrays(_Maker):
    def __init__(self, device: str):
        super().__init__(device)
        with needed("framework='numpy'", "tidecast[arrays]"):
            import numpy

        self._numpy = numpy

    def dtype(self, tensor: Tensor) -> Any:
        if tensor.dtype in _NUMPY:
            return self._numpy.dtype(_NUMPY[tensor.dtype])
        try:
            import ml_dtypes

            return self._numpy.dtype(getattr(ml_dtypes, _ML[tensor.dtype]))
        except (ImportError, AttributeError):
            text = f"{tensor.name!r}: NumPy has no type for {tensor.dtype}; install ml_dtypes, or use framework='torch'"
            raise _errors.UsageError(text) from None

    def empty(self, tensor: Tensor, shape: tuple[int, ...]) -> tuple[Any, memoryview]:
        made = self._numpy.empty(shape, self.dtype(tensor))
        return made, made.reshape(-1).view(self._numpy.uint8).data

    def view(self, data: memoryview, tensor: Tensor, part: Slices) -> Any:
        dtype = self.dtype(tensor)
        array = self._numpy.frombuffer(data[tensor.start:tensor.end], dtype).reshape(tensor.shape)
        # Without an index a scalar stays an array.
        chosen = array[tuple(part)] if part else array
        return chosen if array.flags.aligned else chosen.copy()


class _Torch(_Maker):
    def __init__(self, device: str):
        super().__init__(device)
        with needed("framework='torch'", "torch"):
            import torch

        self._torch: Any = torch

    def dtype(self, tensor: Tensor) -> Any:
        dtype = getattr(self._torch, _TORCH[tensor.dtype], None)
        if dtype is None:
            raise _errors.UsageError(f"{tensor.name!r}: this version of torch has no type for {tensor.dtype}")
        return dtype

    def empty(self, tensor: Tensor, shape: tuple[int, ...]) -> tuple[Any, memoryview]:
        made = self._torch.empty(shape, dtype=self.dtype(tensor))
        memory = (ctypes.c_ubyte * (made.numel() * made.element_size())).from_address(made.data_ptr() or id(made))
        return made, memoryview(memory).cast("B")

    def view(self, data: memoryview, tensor: Tensor, part: Slices) -> Any:
        if tensor.end == tensor.start:
            return self.give(self._torch.empty(tensor.shape, dtype=self.dtype(tensor))[tuple(part)])
        memory = data[tensor.start:tensor.end]
        if tensor.start % _SIZES[tensor.dtype]:
            memory = memoryview(bytearray(memory))
        made = self._torch.frombuffer(memory, dtype=self.dtype(tensor)).reshape(tensor.shape)
        return self.give(made[tuple(part)] if part else made)

    def give(self, made: Any) -> Any:
        return made.to(self.device)
