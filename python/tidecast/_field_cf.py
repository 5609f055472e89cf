"""What stored values mean by the conventions of NetCDF and CF (https://cfconventions.org): packed ones are unpacked, and those that are
missing or not valid are NaN."""
from __future__ import annotations

from typing import Any

#: What NetCDF puts where nothing was written, by kind of number, unless _FillValue says otherwise. Of single bytes all are values.
_FILLS = {"i2": -32767, "u2": 65535, "i4": -2147483647, "u4": 4294967295, "i8": -9223372036854775806, "u8": 18446744073709551614,
          "f4": 9.969209968386869e36, "f8": 9.969209968386869e36}
_PACKING = ("scale_factor", "add_offset")
_NUMBERS = (*_PACKING, "_FillValue", "missing_value", "valid_min", "valid_max", "valid_range")


class Meaning:
    """What the values of one array mean. `netcdf`: nothing written has NetCDF's own value."""

    def __init__(self, array: Any, netcdf: bool):
        import numpy as np
        said = _attributes(array)
        stored = np.dtype(array.dtype)
        unsigned = stored.kind == "i" and str(said.get("_Unsigned", "")).lower() == "true"
        self._kind = np.dtype(stored.str.replace("i", "u")) if unsigned else stored
        numbers = {name: list(_as_stored(values, self._kind, unsigned)) for name, values in _numbers(said).items()}
        self._scale, self._offset = (numbers.get(name, [one])[0] for name, one in zip(_PACKING, (1, 0)))
        default = [_FILLS[self._kind.str[1:]]] if netcdf and self._kind.str[1:] in _FILLS else []
        missing = [*numbers.get("_FillValue", default), *numbers.get("missing_value", [])]
        self._missing = [value for value in missing if _has(self._kind, value)]
        self._least, self._most = _valid(numbers)
        self._valid_unpacked = _of_unpacked(numbers, self._kind)
        self._plain = not unsigned and (self._scale, self._offset, self._missing, self._least, self._most) == (1, 0, [], None, None)

    def of(self, stored: Any) -> Any:
        """The values of one volume."""
        import numpy as np
        if self._plain:
            return stored
        values = np.empty(stored.shape, "f4")
        # By planes: in doubles a volume would take much memory.
        for plane, packed in zip(values, stored.view(self._kind)):
            real = packed if (self._scale, self._offset) == (1, 0) else packed * np.float64(self._scale) + self._offset
            plane[...] = real
            for value in self._missing:
                plane[packed == np.asarray(value).astype(packed.dtype)] = np.nan
            judged = real if self._valid_unpacked else packed
            if self._least is not None:
                plane[judged < self._least] = np.nan
            if self._most is not None:
                plane[judged > self._most] = np.nan
        return values


def _attributes(array: Any) -> dict[str, Any]:
    if hasattr(array, "ncattrs"):  # netCDF4
        return {name: array.getncattr(name) for name in array.ncattrs()}
    return dict(getattr(array, "attrs", {}))


def _numbers(said: dict[str, Any]) -> dict[str, Any]:
    """The attributes that are numbers, as arrays."""
    import numpy as np
    numbers = {name: np.ravel(said[name]) for name in _NUMBERS if name in said}
    return {name: values for name, values in numbers.items() if values.size and values.dtype.kind in "iuf"}


def _as_stored(values: Any, kind: Any, unsigned: bool) -> Any:
    """What is said of values that are signed only by their form is so too."""
    signed = unsigned and values.dtype.kind == "i" and values.dtype.itemsize == kind.itemsize
    return values.view(kind.newbyteorder("=")) if signed else values


def _has(kind: Any, value: Any) -> bool:
    """Whether there is such a number of this kind at all."""
    import numpy as np
    return kind.kind == "f" or bool(value == np.trunc(value) and np.iinfo(kind).min <= value <= np.iinfo(kind).max)


def _valid(numbers: dict[str, list]) -> tuple[Any, Any]:
    """The least and the greatest value that is one, where that is said."""
    between = numbers.get("valid_range", [])
    if len(between) == 2:
        return between[0], between[1]
    return numbers.get("valid_min", [None])[0], numbers.get("valid_max", [None])[0]


def _of_unpacked(numbers: dict[str, list], kind: Any) -> bool:
    """Whether what is valid is said of unpacked values: if it has their type, and packed ones are of another
    (NetCDF User's Guide, attribute conventions)."""
    import numpy as np
    packing = [values[0].dtype for name in _PACKING if (values := numbers.get(name))]
    limits = [values[0].dtype for name in ("valid_range", "valid_min", "valid_max") if (values := numbers.get(name))]
    if not packing or not limits:
        return False
    real = np.result_type(*packing)
    return limits[0] == real and real != kind.newbyteorder("=")
