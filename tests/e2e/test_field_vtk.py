"""`tidecast field send` on VTK's image data as VTK and ParaView write it; pyvista verifies the result."""
import locale

import numpy as np
import pytest
from test_field_files import arrives  # noqa: F401

SHAPE = (4, 5, 6)
#: How VTK's own writer packs values: mode, compressor, big-endian or not.
FORMS = {"text": ("Ascii", "None", False), "base64": ("Binary", "ZLib", False), "raw": ("Appended", "LZ4", False), "lzma": ("Appended", "LZMA", True)}


@pytest.fixture
def vista():
    # VTK's readers of numbers set the locale of the whole process to C, and leave it so.
    before = locale.setlocale(locale.LC_ALL)
    yield pytest.importorskip("pyvista", reason="SKIPPED: no pyvista (pip install pyvista): files of VTK were not tried")
    locale.setlocale(locale.LC_ALL, before)


def image(vista, **points):
    grid = vista.ImageData(dimensions=SHAPE[::-1], spacing=(0.1, 0.2, 0.5), origin=(7, 8, 9))
    for name, values in points.items():
        grid.point_data[name] = values
    return grid


def density(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(np.prod(SHAPE))


def refused(node, source: str) -> str:
    proc = node("refused")("--json", "field", "send", source, "--to", "127.0.0.1:9", "--plain", code=1)
    return proc.last("error")["message"]


@pytest.mark.parametrize("form", FORMS)
def test_an_image_of_one_array_needs_no_name(form, vista, arrives, tmp_path):  # noqa: F811
    from vtkmodules.vtkIOXML import vtkXMLImageDataWriter
    mode, compressor, big = FORMS[form]
    writer = vtkXMLImageDataWriter()
    writer.SetFileName(str(tmp_path / "run"))
    writer.SetInputData(image(vista, density=density()))
    getattr(writer, f"SetDataModeTo{mode}")()
    getattr(writer, f"SetCompressorTypeTo{compressor}")()
    writer.SetEncodeAppendedData(form == "lzma")
    if big:
        writer.SetByteOrderToBigEndian()
    assert writer.Write() == 1
    assert np.array_equal(arrives(tmp_path / "run")[0], density().reshape(SHAPE).astype("f4"))


@pytest.mark.parametrize("suffix", ["vti", "vtk"])
def test_points_cells_and_components_are_chosen_by_name(suffix, vista, arrives, node, tmp_path):  # noqa: F811
    file, vectors = tmp_path / f"run.{suffix}", np.random.default_rng(1).random((density().size, 3))
    grid = image(vista, density=density(), velocity=vectors)
    grid.cell_data["pressure"] = np.arange(grid.n_cells)
    grid.save(file)
    found = vista.read(file)
    assert np.array_equal(arrives(f"{file}:density")[0].ravel(), found["density"].astype("f4"))
    assert np.array_equal(arrives(f"{file}:velocity_Y")[0].ravel(), found["velocity"][:, 1].astype("f4"))
    assert np.allclose(arrives(f"{file}:velocity_Magnitude")[0].ravel(), np.linalg.norm(found["velocity"], axis=1))
    assert np.array_equal(arrives(f"{file}:pressure")[0], np.arange(60).reshape([n - 1 for n in SHAPE]))
    assert "density, velocity_X, velocity_Y, velocity_Z, velocity_Magnitude, pressure" in refused(node, f"{file}")


def test_files_are_steps_and_hidden_points_are_missing(vista, arrives, tmp_path):  # noqa: F811
    for step in (1, 2, 10):
        image(vista, density=density(step), vtkGhostType=np.where(np.arange(density().size) % 7 == step % 7, 2, 0).astype("u1")).save(tmp_path / f"run_{step}.vti")
    for step, values in zip((1, 2, 10), arrives(f"{tmp_path}/run_*.vti:density"), strict=True):
        expected = np.where(np.arange(density().size) % 7 == step % 7, np.nan, density(step)).astype("f4")
        assert np.array_equal(values.ravel(), expected, equal_nan=True)


def test_what_is_no_image_or_damaged_is_refused_in_words(vista, arrives, node, tmp_path):  # noqa: F811
    vista.Sphere().save(tmp_path / "ball.vtp")
    assert "PolyData" in (said := refused(node, f"{tmp_path}/ball.vtp")) and "Resample To Image" in said
    (tmp_path / "run.pvd").write_text('<?xml version="1.0"?>\n<VTKFile type="Collection"><Collection/></VTKFile>\n')
    assert "lists other files" in refused(node, f"{tmp_path}/run.pvd")
    for suffix in "vti", "vtk":
        image(vista, density=density()).save(tmp_path / f"run.{suffix}")
        whole = (tmp_path / f"run.{suffix}").read_bytes()
        # For missing values of the older format VTK itself returns undefined memory.
        (tmp_path / f"cut.{suffix}").write_bytes(whole[:len(whole) - 500])
        assert "truncated" in refused(node, f"{tmp_path}/cut.{suffix}:density").replace("VTK cannot read it", "truncated")
    pieces = "".join(f'<Piece Extent="0 5 0 4 {z} {z + 1}" Source="piece{z}.vti"/>' for z in (0, 1, 2))
    (tmp_path / "run.pvti").write_text('<VTKFile type="PImageData" version="0.1"><PImageData WholeExtent="0 5 0 4 0 3" GhostLevel="0" Origin="0 0 0" '
                                       f'Spacing="1 1 1"><PPointData><PDataArray type="Float32" Name="d"/></PPointData>{pieces}</PImageData></VTKFile>')
    assert "piece" in refused(node, f"{tmp_path}/run.pvti:d").lower()
