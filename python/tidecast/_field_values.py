"""The values of a field's float32 volume: real numbers. Masked values are NaN there."""
from __future__ import annotations

import warnings
from typing import Any

from ._errors import Error


class Wrong(Exception):
    """The fault of a source, for people."""


class NotReal(Error, TypeError):
    """Values that are not real numbers: a part of them, or their unit, would be lost silently."""

    def __init__(self, text: str, code: int = 2, reached: dict[str, Any] | None = None):
        super().__init__(text, code, reached)


class BeyondRange(RuntimeWarning):
    """Values beyond the range of float32 are sent as infinite."""


def check(dtype: Any) -> None:
    """Refuses complex numbers, times, text, records and objects; takes truth values, and all kinds of integers and floating-point numbers,
    those of other packages too (bfloat16).

    :raises NotReal: its values are not real numbers
    """
    import numpy as np
    if not np.can_cast(dtype, "f4", "same_kind"):
        raise NotReal(f"its values are {np.dtype(dtype)}: only real numbers can be sent; convert them first")


def loaded(array: Any) -> Any:
    """A NumPy array of any kind. Of a lazy array (dask's) NumPy itself would take the values without their masks."""
    import numpy as np
    return np.asanyarray(array.compute() if callable(getattr(array, "compute", None)) else array)


def put(array: Any, into: Any) -> None:
    """Copies an array to a volume; the masked values of a masked array become NaN.

    :raises NotReal: its values are not real numbers
    """
    import numpy as np
    array = loaded(array)
    check(array.dtype)
    mask = np.ma.getmask(array)
    narrow(np.ma.getdata(array), into, None if mask is np.ma.nomask else mask)


def narrow(values: Any, into: Any, missing: Any = None) -> None:
    """Copies values as float32, and NaN for the missing ones. Warns (`BeyondRange`) of others that become infinite."""
    import numpy as np
    overflows: list[str] = []
    with np.errstate(all="ignore", over="call", call=lambda kind, _flags: overflows.append(kind)):
        into[...] = values
    if missing is not None:
        into[missing] = np.nan
    # A missing value need not be a number that fits.
    if overflows and np.any(np.isinf(into) & np.isfinite(values)):
        warnings.warn("values beyond the range of float32 are sent as infinite, which counts as missing", BeyondRange, stacklevel=4)
