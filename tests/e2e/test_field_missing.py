"""Missing and packed values, and values that are not numbers: a field equals xarray's values, for random files."""
import json
import pathlib
import sys

import numpy as np
import pytest
from conftest import ROOT
from support import fieldfiles
from support.fieldsink import Sink
from support.seeds import seeds
from support.tidecast import wait_for

sys.path.insert(0, str(ROOT / "python"))
import tidecast.field  # noqa: E402
from tidecast import _field_feed  # noqa: E402

KEY = "a" * 52

# Always the same in the whole test; `make field-soak` looks for unknown faults.
SEEDS = seeds(1)
FILES = 60


def received(spec: str, memory: pathlib.Path) -> np.ndarray:
    """The steps that the reader of `field send` puts into the memory it shares with it."""
    source = _field_feed.find(spec)
    memory.touch()
    said = []
    requests = [json.dumps({"fill": step, "step": step}) for step in range(source.steps)]
    _field_feed.serve(source, spec, str(memory), source.steps, requests, said.append)
    assert [line.get("filled") for line in said[1:]] == list(range(source.steps))
    return np.fromfile(memory, "<f4").reshape(source.steps, *source.shape)


@pytest.mark.filterwarnings("ignore:endian-ness", "ignore:values beyond the range")
@pytest.mark.parametrize("form", fieldfiles.FORMATS)
@pytest.mark.parametrize("seed", SEEDS)
def test_values_are_those_of_xarray(form, seed, tmp_path):
    judged = 0
    for number in range(FILES):
        file = fieldfiles.File(seed * FILES + number, form)
        spec = file.write(tmp_path)
        expected = file.judged(spec)
        if expected is None:
            continue
        judged += 1
        found = received(spec, tmp_path / "memory")
        wrong = ~((found == expected) | (np.isnan(found) & np.isnan(expected)))
        assert not wrong.any(), (f"{form}, seed {seed * FILES + number}, {file.kind.str}, fill {file.fill!r}, {file.said}: stored "
                                 f"{file.stored[wrong][:3]}, shown {found[wrong][:3]}, xarray {expected[wrong][:3]}")
    assert judged > FILES * 0.8, f"of {FILES} files xarray reads {judged}"


@pytest.fixture
def tide(node, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    monkeypatch.setenv("TIDECAST_PYTHON", sys.executable)
    return node("sender")


@pytest.mark.parametrize("form", fieldfiles.FORMATS)
def test_a_receiver_has_what_xarray_shows(form, tide, tmp_path):
    file = fieldfiles.File({"zarr2": 8, "zarr3": 8, "netcdf4": 4, "netcdf3": 4, "hdf5": 3}[form], form)
    spec = file.write(tmp_path)
    expected = file.judged(spec)
    assert np.isnan(expected).any() and np.isfinite(expected).any() and "scale_factor" in file.said
    assert np.array_equal(received_of(tide, spec), expected, equal_nan=True)


def received_of(tide, *words) -> np.ndarray:
    """The two steps that arrive."""
    here = Sink(1, KEY)
    try:
        tide("field", "send", *words, "--to", f"127.0.0.1:{here.port}", "--streams", 1, "--key", KEY)
        # The sink is a thread of this process, and may have more to read when the sender has ended.
        wait_for("the goodbyes", lambda: here.byes == 2)
        return np.stack([here.volume(0), here.volume(1)])
    finally:
        here.close()


GENERATORS = """
import numpy as np, ml_dtypes
base = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5) - 7
def masked():
    yield from np.ma.masked_equal(base.astype("f4"), -3.0)
def masked_integers():
    yield from np.ma.masked_equal(base, -3)
def masked_large():
    yield from np.ma.array(np.where(base == -3, 1e300, base), mask=base == -3)
def masked_lazy():
    import dask.array
    yield from (dask.array.ma.masked_equal(dask.array.from_array(step.astype("f4")), -3.0) for step in base)
def nothing_masked():
    yield from np.ma.array(base)
def brain():
    yield from base.astype(ml_dtypes.bfloat16)
def truth():
    yield from base > 0
def number():
    yield from base + 1j
def moment():
    yield from base.astype("M8[s]")
def span():
    yield from base.astype("m8[s]")
def words():
    yield from base.astype("U3")
def objects():
    yield from base.astype(object)
def records():
    yield from np.zeros(base.shape, [("a", "f4"), ("b", "f4")])
def later():
    yield base[0]
    yield base[1] * 1j
"""


@pytest.mark.parametrize("kind", ["masked", "masked_integers", "masked_large", "masked_lazy", "nothing_masked", "brain", "truth"])
def test_what_a_generator_masks_is_missing(kind, tide, tmp_path):
    (tmp_path / "g.py").write_text(GENERATORS)
    base = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5) - 7.0
    expected = base > 0 if kind == "truth" else base
    if kind.startswith("masked"):
        expected = np.where(base == -3, np.nan, base)
    assert np.array_equal(received_of(tide, f"{tmp_path}/g.py:{kind}"), expected.astype("f4"), equal_nan=True)


LARGE = """
import numpy as np
def large():
    step = np.ones((3, 4, 5))
    step[1, 2, 3] = 1e45
    yield from (step, step)
"""


@pytest.mark.parametrize("form", ["npy", "fortran", "netcdf4", "generator"])
def test_values_beyond_float32_are_warned_of_once(form, tide, tmp_path):
    values = np.ones((2, 3, 4, 5))
    values[:, 1, 2, 3], values[0, 0, 0, 0] = 1e45, -np.inf
    spec = str(tmp_path / "a.npy")
    if form == "netcdf4":
        import xarray
        spec = f"{tmp_path}/a.nc:mass"
        # The stored value of what is missing is as large.
        encoding = {"mass": {"_FillValue": 1e50}}
        xarray.Dataset({"mass": (("time", "z", "y", "x"), values)}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=encoding)
    elif form == "generator":
        (tmp_path / "g.py").write_text(LARGE)
        spec = f"{tmp_path}/g.py:large"
    else:
        np.save(spec, np.asfortranarray(values) if form == "fortran" else values)
    here = Sink(1, KEY)
    try:
        sent = tide("--json", "field", "send", spec, "--to", f"127.0.0.1:{here.port}", "--streams", 1, "--key", KEY)
    finally:
        here.close()
    said = [event["message"] for event in sent.events() if event["event"] == "warning" and "float32" in event["message"]]
    assert len(said) == 1 and "infinite" in said[0], sent.story()


def test_missing_values_and_infinity_are_within_float32(tide, tmp_path):
    import xarray
    values = np.ones((2, 3, 4, 5))
    values[0, 0, 0, 0], values[1, 0, 0, 0] = np.nan, np.inf
    encoding = {"mass": {"_FillValue": 1e300}}
    xarray.Dataset({"mass": (("time", "z", "y", "x"), values)}).to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=encoding)
    here = Sink(1, KEY)
    try:
        sent = tide("--json", "field", "send", f"{tmp_path}/a.nc:mass", "--to", f"127.0.0.1:{here.port}", "--streams", 1, "--key", KEY)
    finally:
        here.close()
    assert "float32" not in sent.out + sent.err, sent.story()


def test_what_a_simulation_masks_is_missing(extension):
    steps = np.ma.masked_equal(np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5), 50)
    here = Sink(1, KEY)
    with tidecast.field.Sender(f"127.0.0.1:{here.port}", (3, 4, 5), key=KEY, streams=1) as sender:
        for kind in ("c8", "M8[s]", "m8[s]", "S3", object, [("a", "f4")]):
            with pytest.raises(TypeError, match="only real numbers"):
                sender.put(np.zeros((3, 4, 5)).astype(kind))
        # Data sent before the receiver has accepted the session is lost.
        wait_for("the receiver takes it", lambda: sender.progress.get("accepted") == 1)
        for step in steps:
            assert sender.put(step, timeout=10)
    wait_for("the goodbyes", lambda: here.byes == 2)
    here.close()
    found = np.stack([here.volume(0), here.volume(1)])
    assert np.array_equal(found, np.where(steps.mask, np.nan, steps.data).astype("f4"), equal_nan=True)


def not_numbers(folder: pathlib.Path) -> list[str]:
    """Sources of values that are not real numbers."""
    import h5netcdf
    import h5py
    import netCDF4
    import zarr
    shape = (2, 3, 4, 5)
    (folder / "g.py").write_text(GENERATORS)
    found = [f"{folder}/g.py:{name}" for name in ("number", "moment", "span", "words", "objects", "records", "later")]
    kinds = ("c8", "c16", "M8[ns]", "m8[s]", "S3", "U3", [("a", "f4")], ("f4", (2,)))
    for number, kind in enumerate(kinds):
        array = np.zeros(shape, kind) if isinstance(kind, (list, tuple)) else np.zeros(shape).astype(kind)
        np.save(folder / f"{number}.npy", array)
        np.save(folder / f"f{number}.npy", np.asfortranarray(array))
        found += [f"{folder}/{number}.npy", f"{folder}/f{number}.npy"] if kind != ("f4", (2,)) else []
    np.save(folder / "o.npy", np.zeros(shape, object))
    with h5py.File(folder / "a.h5", "w") as file:
        for name, kind in (("c", "c8"), ("s", "S3"), ("r", [("a", "f4")]), ("v", "V4"), ("a", ("f4", (2,))), ("t", h5py.string_dtype()),
                           ("m", h5py.opaque_dtype(np.dtype("M8[s]")))):
            file.create_dataset(name, shape, kind)
            found.append(f"{folder}/a.h5:{name}")
    with h5netcdf.File(folder / "a.nc", "w", invalid_netcdf=True) as file:
        file.dimensions = dict(zip("tzyx", shape))
        file.create_variable("c", tuple("tzyx"), "c8")
        file.create_variable("when", tuple("tzyx"), "f8").attrs["units"] = "days since 2000-01-01"
        file.create_variable("span", tuple("tzyx"), "i8").attrs.update(units="seconds", dtype="timedelta64[ns]")
        found += [f"{folder}/a.nc:{name}" for name in ("c", "when", "span")]
    with netCDF4.Dataset(folder / "c.nc", "w", format="NETCDF3_CLASSIC") as file:
        for name, count in zip("tzyx", shape):
            file.createDimension(name, count)
        file.createVariable("text", "S1", tuple("tzyx"))
        file.createVariable("when", "i4", tuple("tzyx")).units = "hours since 1970-1-1 00:00"
        found += [f"{folder}/c.nc:text", f"{folder}/c.nc:when"]
    for version in (2, 3):
        group = zarr.open_group(folder / f"v{version}.zarr", mode="w", zarr_format=version)
        for name, kind in (("c", "c8"), ("m", "M8[ns]"), ("d", "m8[s]"), ("u", "U3")):
            group.create_array(name, shape=shape, dtype=kind)
            found.append(f"{folder}/v{version}.zarr:{name}")
    return [*found, f"{folder}/o.npy"]


@pytest.mark.filterwarnings("ignore")
def test_what_is_no_real_number_is_refused(tide, tmp_path):
    sources = not_numbers(tmp_path)
    assert len(sources) > 35
    begun = [(source, tide.run("field", "send", source, "--to", "127.0.0.1:9", "--plain", "--streams", 1)) for source in sources]
    for source, proc in begun:
        assert proc.exits(1).err.count("only real numbers") == 1 or "not plain numbers" in proc.err, (source, proc.err)
