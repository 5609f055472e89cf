"""Where an object's bytes lie: as NumPy says, by the buffer protocol, or by DLPack. Nothing is copied.

NumPy's own arrays are asked directly: the buffer protocol knows no times, none of the number formats of other packages (bfloat16, float8) and
not every name of a field, but all of them have a fixed size and go as bytes.
"""
from __future__ import annotations

import contextlib
import ctypes
import math
import re
import sys
from typing import Any, Iterator

_ND, _STRIDES, _ANY_CONTIGUOUS, _FORMAT, _WRITABLE = 0x8, 0x18, 0x98, 0x4, 0x1


class _PyBuffer(ctypes.Structure):
    """CPython's Py_buffer; part of its stable interface."""
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _DLVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


#: Devices whose memory is the host's: kDLCPU, kDLCUDAHost, kDLROCMHost.
_HOST_DEVICES = (1, 3, 11)
_READ_ONLY, _COPIED = 1, 2
#: Letters of a buffer's format for what is elsewhere: objects, pointers, functions, text of C.
_ADDRESSES = set("O&PXz")

_SCATTERED = "the buffer is not contiguous: its bytes do not lie in one piece (numpy.ascontiguousarray makes a copy that does)"
_READ = "the buffer is read-only, and this rank is to receive"
_OBJECTS = "the buffer holds Python objects or pointers; only addresses would be sent"


@contextlib.contextmanager
def located(obj: Any, writable: bool) -> Iterator[tuple[int, int]]:
    """Address and length in bytes of what ``obj`` holds, good within the ``with``.

    :raises ValueError: it does not lie in one piece in host memory, or is read-only and must not be
    :raises TypeError: it has neither protocol
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(obj, numpy.ndarray):
        yield _of_array(obj, writable, isinstance(obj, numpy.ma.MaskedArray))
        return
    try:
        memoryview(obj).release()
    except TypeError:
        if not hasattr(obj, "__dlpack__"):
            raise TypeError(f"{type(obj).__name__} has neither the buffer protocol nor __dlpack__") from None
        with _by_dlpack(obj, writable) as found:
            yield found
    else:
        with _by_protocol(obj, writable) as found:
            yield found


def _of_array(array: Any, writable: bool, masked: bool) -> tuple[int, int]:
    if masked:
        raise ValueError("the array is masked, and its mask lies elsewhere: broadcast its .data and .mask, one after the other")
    if array.dtype.hasobject:
        raise ValueError(_OBJECTS)
    if not (array.flags.c_contiguous or array.flags.f_contiguous):
        raise ValueError(_SCATTERED)
    if writable and not array.flags.writeable:
        raise ValueError(_READ)
    return array.__array_interface__["data"][0], array.nbytes


@contextlib.contextmanager
def _by_protocol(obj: Any, writable: bool) -> Iterator[tuple[int, int]]:
    with memoryview(obj) as view:
        if not view.contiguous:
            raise ValueError(_SCATTERED)
        if writable and view.readonly:
            raise ValueError(_READ)
        # Names of fields are between colons.
        if set(re.sub(":[^:]*:", "", view.format)) & _ADDRESSES:
            raise ValueError(_OBJECTS)
    get, release = ctypes.pythonapi.PyObject_GetBuffer, ctypes.pythonapi.PyBuffer_Release
    get.argtypes, get.restype = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int], ctypes.c_int
    release.argtypes, release.restype = [ctypes.POINTER(_PyBuffer)], None
    found = _PyBuffer()
    get(obj, ctypes.byref(found), _ANY_CONTIGUOUS | _FORMAT | (_WRITABLE if writable else 0))
    try:
        yield found.buf or 0, found.len
    finally:
        release(ctypes.byref(found))


@contextlib.contextmanager
def _by_dlpack(obj: Any, writable: bool) -> Iterator[tuple[int, int]]:
    device = int(obj.__dlpack_device__()[0])
    if device not in _HOST_DEVICES:
        raise ValueError(f"the tensor is not in the host's memory (DLPack device type {device})")
    try:
        capsule = obj.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = obj.__dlpack__()
    tensor, flags = _tensor(capsule)
    if writable and flags & (_READ_ONLY | _COPIED):
        raise ValueError("the tensor is read-only, and this rank is to receive")
    shape = [tensor.shape[n] for n in range(tensor.ndim)]
    if tensor.strides and not _dense(shape, [tensor.strides[n] for n in range(tensor.ndim)]):
        raise ValueError("the tensor is not contiguous: its elements do not lie in one piece")
    length = math.prod(shape) * ((tensor.bits * tensor.lanes + 7) // 8)
    # The capsule owns the tensor until it is dropped, since nobody has renamed it.
    yield (tensor.data or 0) + tensor.byte_offset, length
    del capsule


def _tensor(capsule: Any) -> tuple[_DLTensor, int]:
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_IsValid.argtypes, api.PyCapsule_IsValid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
    if api.PyCapsule_IsValid(capsule, b"dltensor_versioned"):
        found = _DLVersioned.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor_versioned"))
        if found.major != 1:
            raise ValueError(f"DLPack version {found.major} is not known here")
        return found.tensor, found.flags
    return _DLTensor.from_address(api.PyCapsule_GetPointer(capsule, b"dltensor")), 0


def _dense(shape: list[int], strides: list[int]) -> bool:
    """Whether elements lie one after the other, rows or columns first."""
    if 0 in shape:
        return True

    def follows(axes: list[tuple[int, int]]) -> bool:
        expected = 1
        for count, stride in axes:
            if count > 1 and stride != expected:
                return False
            expected *= count
        return True

    axes = list(zip(shape, strides))
    return follows(axes) or follows(axes[::-1])
