"""The meaning of stored values by the conventions of NetCDF and CF (https://cfconventions.org).

The reference is xarray: packed values are unpacked to the number types that it chooses, and values that it shows as NaN are NaN.
Values that only netCDF4 masks are NaN too: invalid ones (valid_min, valid_max, valid_range), NetCDF's fill value of unwritten
elements, and values of missing_value of another type than the stored ones.
"""
from __future__ import annotations

import base64
import binascii
import re
import struct
from typing import Any

from ._field_values import NotReal, check, narrow

#: NetCDF's fill value of unwritten elements, by type of number, unless _FillValue is set. Single bytes have no fill value.
_FILLS = {"i2": -32767, "u2": 65535, "i4": -2147483647, "u4": 4294967295, "i8": -9223372036854775806, "u8": 18446744073709551614,
          "f4": 9.969209968386869e36, "f8": 9.969209968386869e36}
_PACKING = ("scale_factor", "add_offset")
_MISSING = ("_FillValue", "missing_value")
_LIMITS = ("valid_range", "valid_min", "valid_max")
_NUMBERS = (*_PACKING, *_MISSING, *_LIMITS)
#: "days since 2000-01-01", but not "days since sowing".
_DATE = re.compile(r"\s*\S+ since \D*\d")
#: Units of durations: such arrays are unpacked as if nothing were missing.
_SPANS = ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
_PACKED_FLOATS = {8: "<d", 4: "<f", 2: "<e"}


class Meaning:
    """The meaning of one array's values. `netcdf`: unwritten elements have NetCDF's fill value.

    :raises NotReal: they are not real numbers
    """

    def __init__(self, array: Any, netcdf: bool):
        import numpy as np
        check(array.dtype)
        said = {name: _text(value) for name, value in _attributes(array).items()}
        _refuse_times(said)
        stored = np.dtype(array.dtype).newbyteorder("=")
        self._kind = _signedness(stored, said)
        self._truth = said.get("dtype") == "bool"
        numbers = _numbers(said)
        packing = scale, offset = [numbers[name][0] if name in numbers else None for name in _PACKING]
        # A plain number (of JSON) takes the kind of those that it is multiplied with.
        self._packing = [said[name] if isinstance(said.get(name), (int, float)) else value
                         for name, value in zip(_PACKING, packing, strict=True)]
        self._missing = _as_xarray(numbers, stored, self._kind)
        # NaN is always missing; integers have no NaN.
        said_missing = bool(self._missing) or (self._kind.kind == "f" and any(name in said for name in _MISSING)
                                               and str(said.get("units")) not in _SPANS)
        self._real = _real_kind(self._kind, scale, offset, bool(self._missing), said_missing)
        same = (*_PACKING, *_LIMITS) if self._kind.kind == "i" else _PACKING
        numbers |= {name: list(values) if name in same else _as_stored(values, self._kind, stored) for name, values in numbers.items()}
        default = _default(stored, self._kind) if netcdf else []
        missing = [*numbers.get("_FillValue", default), *numbers.get("missing_value", [])]
        self._missing_stored = [np.asarray(value).astype(self._kind) for value in missing if _has(self._kind, value)]
        self._least, self._most = _valid(numbers)
        self._valid_unpacked = _of_unpacked(numbers, self._kind)
        self._valid_stored = (stored.kind, self._kind.kind) == ("u", "i") and _of_unsigned(said, self._kind, stored)
        self._stored = stored
        self._plain = (stored == self._kind and not self._truth and not self._missing and not self._missing_stored
                       and (*self._packing, self._least, self._most) == (None, None, None, None))

    def of(self, stored: Any) -> Any:
        """The values of one volume."""
        import numpy as np
        if self._plain:
            return stored
        values = np.empty(stored.shape, "f4")
        # By planes: in doubles a volume would take much memory.
        for plane, packed in zip(values, stored, strict=True):
            native = packed.astype(packed.dtype.newbyteorder("="), copy=False)
            with np.errstate(over="ignore", invalid="ignore"):
                self._plane(native.view(self._kind) if native.dtype != self._kind else native, plane)
        return values

    def _plane(self, packed: Any, into: Any) -> None:
        import numpy as np
        real = packed.astype(self._real)
        missing = np.zeros(packed.shape, bool)
        for value in self._missing:
            missing |= real == value
        for value in self._missing_stored:
            missing |= packed == value
        scale, offset = self._packing
        if scale is not None:
            real *= scale
        if offset is not None:
            real += offset
        judged = real if self._valid_unpacked else packed.view(self._stored) if self._valid_stored else packed
        if self._least is not None:
            missing |= judged < self._least
        if self._most is not None:
            missing |= judged > self._most
        narrow(real.astype(bool) if self._truth else real, into, missing)


def _attributes(array: Any) -> dict[str, Any]:
    if hasattr(array, "ncattrs"):  # netCDF4
        return {name: array.getncattr(name) for name in array.ncattrs()}
    said = dict(getattr(array, "attrs", {}))
    version = getattr(getattr(array, "metadata", None), "zarr_format", None)
    if version == 2:
        # xarray writes _FillValue there and nowhere else. zarr writes 0 by default; xarray reads arrays that have dimensions.
        if array.fill_value is not None and (array.fill_value != 0 or "_ARRAY_DIMENSIONS" in said):
            said["_FillValue"] = array.fill_value
    elif version == 3 and "_FillValue" in said:
        said["_FillValue"] = _unpacked_fill(said["_FillValue"], array.dtype)
    return said


def _text(value: Any) -> Any:
    """An attribute; texts of a fixed length, and those in an array of one element, as texts."""
    if getattr(value, "size", 0) == 1 and getattr(value, "dtype", None) is not None and value.dtype.kind in "SUO":
        value = value.item()
    return value.decode("utf-8", "replace").rstrip("\0") if isinstance(value, bytes) else value


def _unpacked_fill(value: Any, dtype: Any) -> Any:
    """A value of JSON, where floating-point numbers are bytes in base64 (xarray), numbers, or words such as NaN."""
    if not isinstance(value, str):
        return value
    try:
        packed = base64.b64decode(value, validate=True)
        if dtype.kind == "f" and len(packed) in _PACKED_FLOATS:
            return struct.unpack(_PACKED_FLOATS[len(packed)], packed)[0]
    except (binascii.Error, ValueError):
        pass
    try:
        return float(value) if dtype.kind == "f" else int(value)
    except ValueError:
        return value


def _refuse_times(said: dict[str, Any]) -> None:
    """Times are numbers only together with their unit, which a field does not have; a duration is a number unless it is declared a time."""
    units, dtype = said.get("units"), said.get("dtype")
    if isinstance(units, str) and _DATE.match(units):
        raise NotReal(f"its values are times ({units}): only real numbers can be sent")
    if isinstance(dtype, str) and dtype.startswith(("timedelta64", "datetime64")):
        raise NotReal(f"its values are {dtype}: only real numbers can be sent")


def _signedness(stored: Any, said: dict[str, Any]) -> Any:
    """The type of integers, which _Unsigned may change."""
    import numpy as np
    other = {("i", "true"): "u", ("u", "false"): "i"}.get((stored.kind, str(said.get("_Unsigned", "")).lower()))
    return np.dtype(f"{other}{stored.itemsize}") if other else stored


def _numbers(said: dict[str, Any]) -> dict[str, Any]:
    """The attributes that are numbers, as arrays."""
    import numpy as np
    for name in _PACKING:
        if isinstance(value := said.get(name), str | bytes):
            raise NotReal(f"its {name} is the text {value!r}, not a number")
        if name in said and np.size(said[name]) != 1:
            raise NotReal(f"its {name} has {np.size(said[name])} values: one is needed")
    numbers = {name: np.ravel(_large(said[name])) for name in _NUMBERS if name in said}
    return {name: values for name, values in numbers.items() if values.size and values.dtype.kind in "iufb"}


def _large(value: Any) -> Any:
    """A list of JSON in which NumPy would make floating-point numbers of integers."""
    import numpy as np
    large = isinstance(value, list) and value and all(type(n) is int and n >= 0 for n in value) and max(value) >= 1 << 63
    return np.array(value, "u8") if large and max(value) < 1 << 64 else value


def _as_xarray(numbers: dict[str, Any], stored: Any, kind: Any) -> list[Any]:
    """The values that xarray takes for missing ones, which it compares when they are of the kind that it shows."""
    missing = []
    for name in _MISSING:
        for value in numbers.get(name, []):
            if name == "_FillValue" and kind != stored:
                value, = _as_stored([value], kind, stored)
                # A plain number takes the kind of those that it is compared with.
                value = value.item() if kind.kind == "u" else value
            if value == value:
                missing.append(value)
    return missing


def _real_kind(kind: Any, scale: Any, offset: Any, missing: bool, said_missing: bool) -> Any:
    """The kind of numbers that xarray shows."""
    import numpy as np
    if scale is None and offset is None:
        if not missing or kind.kind == "f":
            return kind
        return np.dtype("f4" if kind.itemsize <= 2 else "f8")
    if said_missing and not missing:
        # Only NaN is missing: such an array is unpacked in its own kind.
        return kind
    kinds = [value.dtype for value in (scale, offset) if value is not None]
    if len(kinds) == 2 and kinds[0] == kinds[1] and kinds[0] in (np.dtype("f4"), np.dtype("f8")):
        return np.dtype("f8") if kind.kind in "iu" and kind.itemsize == 4 else kinds[0]
    if offset is None and kinds[0].kind == "f":
        return kinds[0]
    return np.dtype("f8")


def _as_stored(values: Any, kind: Any, stored: Any) -> Any:
    """Attributes of values that are reinterpreted as unsigned or signed are reinterpreted too."""
    return [value.astype(stored).view(kind) if kind != stored and _has(stored, value) else value for value in values]


def _has(kind: Any, value: Any) -> bool:
    """Whether there is such a number of this kind at all."""
    import numpy as np
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            return bool(np.isclose(np.asarray(value).astype(kind).astype("f8"), value))
    if kind.kind not in "iu":
        return value in (0, 1)
    # As Python's own integers: in its kind the limit may be another number.
    return bool(np.isfinite(value) and value == np.trunc(value) and np.iinfo(kind).min <= int(value) <= np.iinfo(kind).max)


def _default(stored: Any, kind: Any) -> list[Any]:
    """NetCDF's own value, which netCDF4 does not know of signed numbers that are to be unsigned."""
    import numpy as np
    value = _FILLS.get(stored.str[1:])
    return [] if value is None or kind.kind == "u" != stored.kind else [np.asarray(value, stored).view(kind)[()]]


def _valid(numbers: dict[str, list[Any]]) -> tuple[Any, Any]:
    """The least and the greatest valid value, if stated."""
    between = numbers.get("valid_range", [])
    if len(between) == 2:
        return between[0], between[1]
    return numbers.get("valid_min", [None])[0], numbers.get("valid_max", [None])[0]


def _of_unsigned(said: dict[str, Any], kind: Any, stored: Any) -> bool:
    """Whether the valid range of unsigned values that are made signed is stated for the unsigned ones: if it has their type (those of
    JSON have none), or is out of the signed ones' range."""
    import numpy as np
    given = [(getattr(said[name], "dtype", None), limit) for name in _LIMITS if name in said for limit in np.ravel(_large(said[name]))]
    return any(_has(stored, limit) and (not _has(kind, limit) or dtype != kind) for dtype, limit in given)


def _of_unpacked(numbers: dict[str, list[Any]], kind: Any) -> bool:
    """Whether the valid range is stated for unpacked values: if it has their type, which is wider than that of the packed integers
    (NetCDF User's Guide, attribute conventions)."""
    import numpy as np
    packing = [values[0].dtype for name in _PACKING if (values := numbers.get(name))]
    limits = [values[0].dtype for name in _LIMITS if (values := numbers.get(name))]
    if not packing or not limits:
        return False
    real = np.result_type(*packing)
    return limits[0] == real and kind.kind in "iu" and (real.kind == "f" or real.itemsize > kind.itemsize)
