"""The place of an object's bytes: from NumPy, by the buffer protocol, or by DLPack. Nothing is copied.

For NumPy's own arrays, NumPy is asked first: the buffer protocol supports neither times, nor the number formats of other packages
(bfloat16, float8), nor all names of fields; but all of these have a fixed size and are sent as bytes.
"""
from __future__ import annotations

import sys
from typing import Any

from ._native import Place

#: Devices whose memory is the host's: kDLCPU, kDLCUDAHost, kDLROCMHost.
_HOST_DEVICES = (1, 3, 11)

_SCATTERED = "the buffer is not contiguous: its bytes do not lie in one piece (numpy.ascontiguousarray makes a copy that does)"
_READ = "the buffer is read-only, and this rank is to receive"
_OBJECTS = "the buffer holds Python objects or pointers; it cannot be sent"


def located(obj: Any, writable: bool) -> Place:
    """The bytes of ``obj``, which stays alive and in its place until the result has been used or is dropped.

    :raises ValueError: it does not lie in one piece in host memory, or is read-only and must not be
    :raises TypeError: it has neither protocol
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(obj, numpy.ndarray):
        return Place.of_buffer(_bytes_of_array(numpy, obj, writable), writable)
    try:
        memoryview(obj).release()
    except TypeError:
        if not hasattr(obj, "__dlpack__"):
            raise TypeError(f"{type(obj).__name__} has neither the buffer protocol nor __dlpack__") from None
        return _by_dlpack(obj, writable)
    return Place.of_buffer(obj, writable)


def _bytes_of_array(numpy: Any, array: Any, writable: bool) -> Any:
    """The array's own memory as bytes."""
    if isinstance(array, numpy.ma.MaskedArray):
        raise ValueError("the array is masked, and its mask lies elsewhere: broadcast its .data and .mask, one after the other")
    if array.dtype.hasobject:
        raise ValueError(_OBJECTS)
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ValueError(_SCATTERED)
    if writable and not array.flags.writeable:
        raise ValueError(_READ)
    if array.nbytes == 0:
        return bytearray()
    plain = array.view(numpy.ndarray)
    # Without an axis of strides that a copy would make contiguous: of columns first, the transpose has rows first.
    return (plain if plain.flags.c_contiguous else plain.T).reshape(-1).view(numpy.uint8)


def _by_dlpack(obj: Any, writable: bool) -> Place:
    device = int(obj.__dlpack_device__()[0])
    if device not in _HOST_DEVICES:
        raise ValueError(f"the tensor is not in the host's memory (DLPack device type {device})")
    try:
        capsule = obj.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = obj.__dlpack__()
    return Place.of_capsule(capsule, writable)
