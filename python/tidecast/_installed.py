"""Where the parts of an installed package are that are not Python's."""
from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import sys
import sysconfig
from collections.abc import Iterator

_HERE = pathlib.Path(__file__).resolve().parent


def find_tidecast_bin() -> str:
    """The program ``tidecast`` that came with this package; else the one of TIDECAST_PROGRAM or PATH.

    :raises FileNotFoundError: there is no such program
    """
    schemes = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"), os.path.dirname(sys.executable)]
    for place in schemes:
        # Python may not know where it is; the working directory is not asked.
        program = os.path.join(place, "tidecast")
        if os.path.isabs(place) and os.access(program, os.X_OK):
            return program
    program = os.environ.get("TIDECAST_PROGRAM") or shutil.which("tidecast") or ""
    if not program:
        raise FileNotFoundError("no program tidecast in this installation or in PATH: install a wheel of tidecast, "
                                "or set TIDECAST_PROGRAM to its path")
    return program


@contextlib.contextmanager
def needed(part: str, package: str) -> Iterator[None]:
    """Imports within the block are those of a library that ``part`` of this package needs: the error says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{part} needs {error.name}: pip install {package}", name=error.name) from None


def get_library() -> str:
    """``libtidecast.so``, for programs in C."""
    return str(_part("lib/libtidecast.so"))


def get_include() -> str:
    """The directory that has ``tidecast.h``."""
    return str(_part("include/tidecast.h").parent)


def _part(name: str) -> pathlib.Path:
    part = _HERE / name
    if not part.exists():
        raise FileNotFoundError(f"{part} is not there: this package was not installed from a wheel")
    return part
