"""libtidecast.so by ctypes: what tidecast.h declares, and errors as exceptions."""
from __future__ import annotations

import ctypes
import ctypes.util
import os
import pathlib

from ._errors import Error, Lost

USAGE, LOST = 1, 3
PLAIN = 1


def find() -> str:
    """The shared library: where TIDECAST_LIBRARY says, beside this file, where this source tree builds it, or where the
    system looks."""
    named = os.environ.get("TIDECAST_LIBRARY")
    if named:
        return named
    here = pathlib.Path(__file__).resolve().parent
    for place in (here / "lib", here, here.parent.parent / "target" / "release"):
        if (place / "libtidecast.so").exists():
            return str(place / "libtidecast.so")
    return ctypes.util.find_library("tidecast") or "libtidecast.so"


def load() -> ctypes.CDLL:
    lib = ctypes.CDLL(find())
    handle, text, time = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_double
    u32, size = ctypes.c_uint32, ctypes.c_size_t
    signatures = {
        "tidecast_open": ([text, u32, u32, text, time, u32, ctypes.POINTER(handle)], ctypes.c_int),
        "tidecast_address": ([handle], text),
        "tidecast_bcast": ([handle, handle, size, u32, time, ctypes.POINTER(size)], ctypes.c_int),
        "tidecast_missed": ([ctypes.POINTER(u32), size], size),
        "tidecast_abstain": ([handle, u32, text, time], ctypes.c_int),
        "tidecast_close": ([handle], None),
        "tidecast_last_error": ([], text),
    }
    for name, (arguments, result) in signatures.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, result
    return lib


_loaded: ctypes.CDLL | None = None


def lib() -> ctypes.CDLL:
    """The library, loaded when it is first needed."""
    global _loaded
    if _loaded is None:
        _loaded = load()
    return _loaded


def check(code: int) -> None:
    """Raises what a call's code means."""
    if code == 0:
        return
    text = lib().tidecast_last_error().decode(errors="replace")
    if code == USAGE:
        raise ValueError(text)
    raise (Lost if code == LOST else Error)(text, code)
