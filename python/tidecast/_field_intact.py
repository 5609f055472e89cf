"""Whether a file is whole, and stays as it is while it is sent: the libraries read what is missing as zeros or as fill values, without
a word."""
from __future__ import annotations

import json
import math
import os
import pathlib
import re
import struct
from contextlib import suppress
from typing import BinaryIO

from ._field_values import Wrong

#: Files that describe a Zarr array.
_ARRAYS = ("zarr.json", ".zarray")
#: What changes of a Zarr array that grows, or whose description is edited.
_GROWS = ("shape", "attributes", "consolidated_metadata")
#: Bytes within which XML ends.
_TAIL = 4096
#: NetCDF 3: bytes of its types by their numbers.
_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
#: The number of records of a NetCDF 3 file that is written as a stream.
_STREAM = {4: (1 << 32) - 1, 8: (1 << 64) - 1}


class Unchanged:
    """A file or a Zarr array, as it is now."""

    def __init__(self, file: str, kind: str, inner: str = ""):
        self._path = pathlib.Path(file)
        self._described = next((path for name in _ARRAYS if (path := self._path / inner.strip("/") / name).is_file()), None)
        # Kept open: another file that takes the name changes nothing for the library, which has opened this one.
        self._file = None if self._path.is_dir() else open(file, "rb")  # noqa: SIM115
        # Models append records to NetCDF 3 while others read.
        self._header = _header(self._file) if self._file and kind == "netcdf3" else None
        self._size, self._said = self._look()

    def _look(self) -> tuple[int, object]:
        """Its size, and what must stay the same."""
        if self._file is None:
            said = json.loads(self._described.read_bytes()) if self._described else {}
            return int(self._path.is_dir()), {name: value for name, value in said.items() if name not in _GROWS}
        found = os.fstat(self._file.fileno())
        if not self._header:
            return found.st_size, (found.st_size, found.st_mtime_ns)
        # Only the number of records may become another one, behind the first four bytes.
        head = os.pread(self._file.fileno(), self._header.size, 0)
        return found.st_size, (head[:4], head[12:])

    def check(self) -> None:
        """:raises Wrong: it has changed"""
        size, said = 0, None
        with suppress(OSError, ValueError):
            size, said = self._look()
        if said != self._said or size < self._size:
            raise Wrong(f"{self._path.name} was changed or removed since sending began")

    def check_end(self, name: str) -> None:
        """Checks that a NetCDF 3 file has all values of a variable.

        :raises Wrong: the file ends before
        """
        needs = self._header.end(name) if self._header else 0
        if needs > self._size:
            raise Wrong(f"{self._path.name} is truncated: {name} ends at byte {needs}, and the file has {self._size}")


def check_xml(file: str) -> None:
    """Checks that a file of VTK's XML, and those that it names, have their ends: raw data are read as zeros where they are missing.

    :raises Wrong: a file ends before
    """
    path = pathlib.Path(file)
    with open(path, "rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - _TAIL))
        if b"</VTKFile" not in opened.read():
            raise Wrong(f"{path.name} is truncated: it has no </VTKFile> at its end")
    if path.suffix == ".pvti":
        for name in re.findall(rb"<Piece\b[^>]*?\bSource\s*=\s*[\"']([^\"']+)", path.read_bytes()):
            piece = path.parent / os.fsdecode(name)
            if piece.is_file() and piece.suffix == ".vti":
                check_xml(str(piece))


def _header(file: BinaryIO) -> _Classic:
    try:
        return _Classic(file)
    except (struct.error, KeyError, IndexError, OverflowError) as error:
        raise Wrong(f"the NetCDF header is damaged or truncated ({error})") from None


class _Classic:
    """The header of NetCDF 3 (https://docs.unidata.ucar.edu/netcdf-c/current/file_format_specifications.html)."""

    def __init__(self, file: BinaryIO):
        self._file = file
        version = file.read(4)[3]
        # Bytes of a count, and of a place in the file.
        self._count, place = {1: (4, 4), 2: (4, 8), 5: (8, 8)}[version]
        self._records = self._number()
        sides = []
        for _ in self._list():
            self._name()
            sides.append(self._number())
        self._attributes()
        #: Where each variable begins, its bytes (those of one record), and whether it has records.
        self._variables: dict[bytes, tuple[int, int, bool]] = {}
        for _ in self._list():
            name = self._name()
            axes = [sides[self._number()] for _ in range(self._number())]
            self._attributes()
            size = _SIZES[self._number(4)]
            # This size is too small a number for large variables.
            self._number()
            has_records = axes[:1] == [0]
            self._variables[name] = self._number(place), size * math.prod(axes[has_records:]), has_records
        #: Bytes of it.
        self.size = file.tell()

    def _number(self, size: int = 0) -> int:
        size = size or self._count
        return int(struct.unpack(">I" if size == 4 else ">Q", self._file.read(size))[0])

    def _list(self) -> range:
        self._number(4)
        return range(self._number())

    def _name(self) -> bytes:
        size = self._number()
        return self._file.read(size + -size % 4)[:size]

    def _attributes(self) -> None:
        for _ in self._list():
            self._name()
            kind = self._number(4)
            size = self._number() * _SIZES[kind]
            self._file.seek(size + -size % 4, os.SEEK_CUR)

    def end(self, name: str) -> int:
        """The place behind the last value of a variable."""
        begin, size, has_records = self._variables[name.encode()]
        if not has_records:
            return begin + size
        if self._records in (0, _STREAM[self._count]):
            return 0
        # The values of one record of all variables lie together; those of a single one without gaps.
        sizes = [size for _, size, has_records in self._variables.values() if has_records]
        each = size if len(sizes) == 1 else sum(size + -size % 4 for size in sizes)
        return begin + (self._records - 1) * each + size
