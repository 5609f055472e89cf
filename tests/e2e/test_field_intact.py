"""Sources that are truncated, or changed while they are sent: no values that are not theirs arrive, and the sender fails."""
import locale
import os
import pathlib
import shutil
import sys
import zipfile

import numpy as np
import pytest
from conftest import ROOT
from support.fieldsink import Sink
from support.tidecast import wait_for

sys.path.insert(0, str(ROOT / "python"))
from tidecast import _field_feed  # noqa: E402
from tidecast._field_values import Wrong  # noqa: E402

BASE = np.arange(6 * 4 * 5 * 7, dtype="f4").reshape(6, 4, 5, 7) + 1


def written(folder: pathlib.Path, form: str) -> str:
    """A source of six steps."""
    file = folder / f"a.{form.partition('-')[0]}"
    if form.startswith("nc"):
        netcdf = pytest.importorskip("netCDF4")
        formats = {"nc-3": "NETCDF3_CLASSIC", "nc-5": "NETCDF3_64BIT_DATA", "nc-records": "NETCDF3_64BIT_OFFSET", "nc-4": "NETCDF4"}
        with netcdf.Dataset(file, "w", format=formats[form]) as made:
            for name, side in zip(("time", "z", "y", "x"), BASE.shape, strict=True):
                made.createDimension(name, None if name == "time" and form == "nc-records" else side)
            made.createVariable("count", "i2", ("time",))[:] = np.arange(len(BASE))
            made.createVariable("v", "f4", ("time", "z", "y", "x"))[:] = BASE
        return f"{file}:v"
    if form == "h5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(file, "w") as made:
            made["v"] = BASE
        return f"{file}:v"
    if form == "zarr":
        pytest.importorskip("zarr").create_array(file, data=BASE, chunks=(1, 4, 5, 7))
        return str(file)
    np.save(file, np.asfortranarray(BASE) if form == "npy-fortran" else BASE)
    return str(file)


FORMS = ["nc-3", "nc-5", "nc-records", "nc-4", "h5", "zarr", "npy-fortran"]


@pytest.fixture(autouse=True)
def own_locale():
    # VTK's readers set the locale of the whole process to C, and leave it so.
    before = locale.setlocale(locale.LC_ALL)
    yield
    locale.setlocale(locale.LC_ALL, before)


@pytest.fixture
def tide(node, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    monkeypatch.setenv("TIDECAST_PYTHON", sys.executable)
    return node("sender")


def shorten(path: pathlib.Path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        os.truncate(path, path.stat().st_size * 3 // 4)


def overwrite(path: pathlib.Path):
    """As cp does: the same file with other contents."""
    if path.is_dir():
        shutil.rmtree(path)
        return
    with open(path, "r+b") as file:
        file.write(os.urandom(200))


@pytest.mark.parametrize("fault", [shorten, overwrite])
@pytest.mark.parametrize("form", FORMS)
def test_a_source_that_changes_is_not_sent_on(form, fault, tmp_path):
    spec = written(tmp_path, form)
    source = _field_feed.find(spec)
    np.testing.assert_array_equal(np.asarray(source.step(0)), BASE[0])
    fault(pathlib.Path(spec.removesuffix(":v")))
    with pytest.raises(Wrong, match="changed or removed"):
        source.step(4)


def test_records_may_be_appended_meanwhile(tmp_path):
    netcdf = pytest.importorskip("netCDF4")
    spec = written(tmp_path, "nc-records")
    source = _field_feed.find(spec)
    with netcdf.Dataset(spec.removesuffix(":v"), "a") as file:
        file["v"][6:8] = BASE[:2]
    assert source.steps == 6
    np.testing.assert_array_equal(source.step(5), BASE[5])


@pytest.mark.parametrize("form", ["nc-3", "nc-5", "nc-records", "nc-4", "h5", "npy-fortran", "npy"])
def test_a_source_that_is_not_whole_is_refused(form, tide, tmp_path):
    spec = written(tmp_path, form)
    file = pathlib.Path(spec.removesuffix(":v"))
    whole = file.stat().st_size
    if form.startswith("nc") and form != "nc-4":
        _field_feed.find(spec)
    # Without its last values, not without the padding behind them; and in the midst of its header.
    for cut in (4, 700, whole // 2, whole - 60):
        os.truncate(file, whole - cut)
        said = tide("field", "send", spec, "--to", "127.0.0.1:1", "--plain", code=1).err
        assert "truncated" in said.lower() or "greater than file size" in said or cut == whole - 60 and form[:2] in ("h5", "nc"), said


@pytest.mark.parametrize("form", ["ascii-vtk", "binary-vtk", "raw-vti", "base64-vti", "ascii-vti", "pvti"])
def test_an_image_that_is_not_whole_is_refused(form, tmp_path):
    vtk = pytest.importorskip("vtkmodules.all")
    support = pytest.importorskip("vtkmodules.util.numpy_support")
    image = vtk.vtkImageData()
    image.SetDimensions(7, 5, 4)
    array = support.numpy_to_vtk(BASE[0].ravel())
    array.SetName("v")
    image.GetPointData().AddArray(array)
    file = tmp_path / f"a.{form.rpartition('-')[2]}"
    if form.endswith("-vtk"):
        writer = vtk.vtkStructuredPointsWriter()
        writer.SetFileType({"ascii": 1, "binary": 2}[form.partition("-")[0]])
    else:
        writer = vtk.vtkXMLPImageDataWriter() if form == "pvti" else vtk.vtkXMLImageDataWriter()
        writer.SetCompressorTypeToNone()
        if form == "ascii-vti":
            writer.SetDataModeToAscii()
        else:
            writer.SetDataModeToAppended()
            writer.SetEncodeAppendedData(form == "base64-vti")
    writer.SetFileName(str(file))
    writer.SetInputData(image)
    writer.Write()
    np.testing.assert_array_equal(_field_feed.find(f"{file}:v").step(0), BASE[0])
    short = next(tmp_path.rglob("*_0.vti")) if form == "pvti" else file
    contents = short.read_bytes()
    for part in np.linspace(0.55, 0.98, 20):
        short.write_bytes(contents[:int(len(contents) * part)])
        with pytest.raises(Wrong):
            _field_feed.find(f"{file}:v")


def test_a_failed_read_sends_no_values_of_another_step(tide, tmp_path):
    file, size = tmp_path / "a.npy", 5 * 100 * 100
    np.save(file, np.repeat(np.arange(200, dtype="f4"), size).reshape(200, 5, 100, 100))
    sink = Sink(1)
    try:
        sender = tide.run("field", "send", file, "--to", f"127.0.0.1:{sink.port}", "--streams", 1, "--plain", "--rate", "8mbit")
        wait_for("some steps", lambda: max(sink.values, default=-1) >= 3)
        # In the midst of a step that is read soon, or was read whole.
        os.truncate(file, 128 + 4 * size * (max(sink.values) + 3) + 4000)
        assert "has become shorter" in sender.exits(1).err
        wait_for("the goodbyes", lambda: sink.byes == 2)
        for batch in sink.values:
            found = sink.volume(batch)
            assert (np.isnan(found) | (found == batch)).all(), batch
    finally:
        sink.close()


def test_files_of_a_series_are_of_one_kind(tide, tmp_path):
    written(tmp_path, "npy")
    (tmp_path / "b.raw").write_bytes(BASE[0].tobytes())
    for names in (["b.raw", "a.npy"], ["a.npy", "b.raw"]):
        said = tide("field", "send", *(tmp_path / name for name in names), "--shape", "7,5,4", "--to", "127.0.0.1:1", "--plain", code=1).err
        assert "describes its own shape" in said, said


def test_a_directory_in_a_zip_and_files_that_have_one_array_in_a_series(tmp_path):
    written(tmp_path, "zarr")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as packed:
        for path in (tmp_path / "a.zarr").rglob("*"):
            packed.write(path, path.relative_to(tmp_path))
    np.testing.assert_array_equal(_field_feed.find(str(tmp_path / "b.zip")).step(3), BASE[3])
    series = _field_feed.find([written(tmp_path, "nc-4"), written(tmp_path, "npy")])
    assert series.steps == 12
    np.testing.assert_array_equal(series.step(9), BASE[3])


def test_members_that_are_no_arrays_do_not_hide_the_others(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as made:
        made["v"] = BASE
        made["none"] = h5py.Empty("f4")
        made["gone"] = h5py.SoftLink("/there/is/none")
    np.savez(tmp_path / "a.npz", v=BASE, words=np.array([{}, None], dtype=object))
    for name in ("a.h5", "a.npz"):
        for inner in ("", ":none", ":gone"):
            with pytest.raises(Wrong, match="there are: v$"):
                _field_feed.find(f"{tmp_path / name}{inner}")


SCRIPTS = """
import os, sys
import numpy as np
def reads():
    sys.stdin.read()
    yield np.full((2, 3, 4), len(os.read(0, 100)), "f4")
def none():
    return iter(())
def long():
    yield np.ones((2, 3, 4), "f4")
    raise ValueError("long " * 100_000)
def killed():
    yield np.ones((2, 3, 4), "f4")
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(("name", "code", "said"), [("reads", 0, ""), ("none", 1, "yields nothing"), ("long", 1, "ValueError: long"),
                                                    ("killed", 1, "killed by signal 9")])
def test_what_generators_do(name, code, said, tide, tmp_path):
    (tmp_path / "g.py").write_text(SCRIPTS)
    sink = Sink(1)
    try:
        error = tide("field", "send", f"{tmp_path}/g.py:{name}", "--to", f"127.0.0.1:{sink.port}", "--plain", "--streams", 1, code=code).err
        assert said in error and len(error) < 10_000
    finally:
        sink.close()
