"""The values of a field's float32 volume: real numbers. Masked values are NaN there."""
from __future__ import annotations

from typing import Any

from ._errors import Error


class Wrong(Exception):
    """The fault of a source, for people."""


class NotReal(Error, TypeError):
    """Values that are not real numbers: a part of them, or their unit, would be lost silently."""

    def __init__(self, text: str, code: int = 2, reached: dict[str, Any] | None = None):
        super().__init__(text, code, reached)


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
    # A masked value need not be a number that fits.
    with np.errstate(all="ignore" if isinstance(array, np.ma.MaskedArray) else None):
        into[...] = np.ma.getdata(array)
    if (mask := np.ma.getmask(array)) is not np.ma.nomask:
        into[mask] = np.nan
