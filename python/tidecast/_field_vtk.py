"""VTK's image data: .vti and .pvti, and STRUCTURED_POINTS of the older .vtk. The package vtk reads them, so whatever it writes is read:
text, base64 or raw, compressed or not."""
from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

#: Bytes that identify the type of a file.
HEAD = 4096
#: Points and cells that are not there: vtkDataSetAttributes.HIDDENPOINT and HIDDENCELL.
_HIDDEN = {"point": 2, "cell": 32}
#: VTK's readers of images, by the type that files state.
_READERS = {"ImageData": ("vtkIOXML", "vtkXMLImageDataReader"), "PImageData": ("vtkIOXML", "vtkXMLPImageDataReader"),
            "STRUCTURED_POINTS": ("vtkIOLegacy", "vtkStructuredPointsReader")}
_GHOSTS = "vtkGhostType"


def kind(head: bytes) -> str:
    """The type of VTK's data in a file (``ImageData``, ``UnstructuredGrid``, ..), by its first bytes; empty if it is not a VTK file."""
    if head.startswith(b"# vtk DataFile"):
        found = re.search(rb"^DATASET\s+(\w+)", head, re.MULTILINE | re.IGNORECASE)
        return found[1].decode("ascii").upper() if found else "a file without DATASET"
    found = re.search(rb"<VTKFile\b[^>]*?\btype\s*=\s*[\"'](\w+)", head) if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") else None
    return found[1].decode("ascii") if found else ""


def refusal(what: str) -> str:
    """Why a file of this type cannot be sent; empty if it can."""
    if what in _READERS:
        return ""
    if what == "Collection":
        return "it lists other files and has no values: name the listed files, as one series ('run_*.vti:NAME')"
    return (f"it has VTK's {what}: only image data can be sent (.vti, .pvti, STRUCTURED_POINTS); "
            "ParaView makes it of others (Resample To Image, then Save Data)")


class Image:
    """The arrays of an image, by name; of those of several components each one, as ParaView calls it: velocity_X, velocity_Magnitude."""

    def __init__(self, file: str, what: str):
        core = importlib.import_module("vtkmodules.vtkCommonCore")
        # VTK raises no exceptions: it writes errors to a window, and may continue with undefined values.
        window = core.vtkStringOutputWindow()
        core.vtkOutputWindow.SetInstance(window)
        core.vtkLogger.SetStderrVerbosity(core.vtkLogger.VERBOSITY_OFF)
        module, name = _READERS[what]
        reader = getattr(importlib.import_module(f"vtkmodules.{module}"), name)()
        reader.SetFileName(file)
        if what == "STRUCTURED_POINTS":
            for kinds in ("Scalars", "Vectors", "Normals", "Tensors", "ColorScalars", "Fields"):
                getattr(reader, f"ReadAll{kinds}On")()
        reader.Update()
        self._image = reader.GetOutput()
        if (why := _fault(window.GetOutput())) or reader.GetErrorCode() or not self._image.GetNumberOfPoints():
            raise ValueError(f"VTK cannot read it: {why or 'no values are found, as it is damaged, or files that it names are missing'}")
        self._arrays: dict[str, Array] = {}
        points = self._image.GetDimensions()
        # An axis of one point has one layer of cells.
        cells = tuple(max(1, n - 1) for n in points)
        for data, where, sides in (self._image.GetPointData(), "point", points), (self._image.GetCellData(), "cell", cells):
            self._add(data, where, sides[::-1])

    def _add(self, data: Any, where: str, shape: tuple[int, ...]) -> None:
        from vtkmodules.util.numpy_support import vtk_to_numpy
        ghosts = data.GetArray(_GHOSTS)
        hidden = None if ghosts is None else (vtk_to_numpy(ghosts) & _HIDDEN[where] != 0).reshape(shape)
        for number in range(data.GetNumberOfArrays()):
            array = data.GetArray(number)
            # Text is not an array of numbers and is not listed.
            if array is None or array.GetName() == _GHOSTS:
                continue
            name, count = array.GetName() or f"array{number}", array.GetNumberOfComponents()
            values = vtk_to_numpy(array)
            if count == 1:
                self._arrays.setdefault(name, Array(values.reshape(shape), hidden))
                continue
            for component in range(count):
                letter = array.GetComponentName(component) or ("XYZ"[component] if count <= 3 else str(component))
                self._arrays.setdefault(f"{name}_{letter}", Array(values[:, component].reshape(shape), hidden))
            if count == 3:
                self._arrays.setdefault(f"{name}_Magnitude", Array(values.reshape(*shape, count), hidden))

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]


class Array:
    """The values of z, y, x; of vectors, which have an axis more, their lengths."""

    dimensions = ("z", "y", "x")

    def __init__(self, values: Any, hidden: Any):
        import numpy as np
        self._values, self._hidden = values, hidden
        self.shape = tuple(values.shape[:3])
        self.dtype = values.dtype if values.ndim == 3 else np.dtype("f4")

    def __getitem__(self, index: Any) -> Any:
        import numpy as np
        found = self._values[index]
        if self._values.ndim == 4:
            found = np.linalg.norm(found.astype("f8"), axis=-1).astype("f4")
        return found if self._hidden is None else np.ma.array(found, mask=self._hidden[index])


def _fault(said: str) -> str:
    """The first error in VTK's output, as "ERROR: In vtkXMLParser.cxx, line 364" and the text below; a premature end of data is a
    warning."""
    for grade, text in re.findall(r"^(.*): In .*, line \d+\n(.+)", said, re.MULTILINE):
        if grade == "ERROR" or "error" in text.lower():
            return re.sub(r"^\S+ \(0x[0-9a-f]+\): ", "", text).strip().rstrip(".")
    return ""
