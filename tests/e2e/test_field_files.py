"""`tidecast field send` on files as models write them: recognised by their content, under any name; xarray verifies the result."""
import importlib.util
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from support.fieldsink import Sink
from support.tidecast import wait_for

KEY = "a" * 52
SIDES = {"Time": 2, "bottom_top": 4, "south_north": 5, "west_east": 6}
WRF = "wrfout_d01_2026-11-26_00:00:00"


@pytest.fixture
def arrives(node, monkeypatch):
    """arrives(*words) -> the steps that a receiver has, z, y, x, and the sender."""
    def send(*words):
        sink = Sink(4, KEY)
        try:
            proc = tide("--json", "field", "send", *words, "--to", f"127.0.0.1:{sink.port}", "--streams", 4, "--key", KEY)
            done = proc.last("done")
            wait_for("all goodbyes", lambda: sink.byes == 2 * done["streams"])
            return np.stack([sink.volume(batch) for batch in range(done["steps"])])
        finally:
            sink.close()

    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"), prepend=os.pathsep)
    monkeypatch.setenv("TIDECAST_PYTHON", sys.executable)
    tide = node("sender")
    return send


def wrf(path: pathlib.Path, engine="h5netcdf", **how) -> pathlib.Path:
    """A file as WRF writes it: no axes by CF, places of each step, times as letters."""
    xr = pytest.importorskip("xarray")
    chance = np.random.default_rng(len(path.name))
    names, sides = list(SIDES), list(SIDES.values())
    data = {
        "T": (names, chance.random(sides, "f4"), {"units": "K", "coordinates": "XLONG XLAT XTIME"}),
        "T2": ([names[0], *names[2:]], chance.random([sides[0], *sides[2:]], "f4")),
        "XLAT": ([names[0], *names[2:]], chance.random([sides[0], *sides[2:]], "f4")),
        "XLONG": ([names[0], *names[2:]], chance.random([sides[0], *sides[2:]], "f4")),
        "Times": (["Time", "DateStrLen"], np.full((2, 19), b"2", "S1")),
        # As other models have them: time last, a member of one, levels last.
        "last": (names[1:] + names[:1], chance.random(sides[1:] + sides[:1], "f4")),
        "member": ([names[0], "ens", *names[1:]], chance.random([sides[0], 1, *sides[1:]], "f4")),
        "levels_last": ([names[0], *names[2:], names[1]], chance.random([sides[0], *sides[2:], sides[1]], "f4")),
    }
    xr.Dataset(data).to_netcdf(path, engine=engine, **how)
    return path


def judged(path, name: str, *axes: str) -> np.ndarray:
    xr = pytest.importorskip("xarray")
    engine = "netcdf4" if path.read_bytes()[:3] == b"CDF" else "h5netcdf"
    with xr.open_dataset(path, engine=engine, decode_times=False) as whole:
        array = whole[name].squeeze("ens") if "ens" in whole[name].dims else whole[name]
        return array.transpose(*axes).values if axes else array.values


@pytest.mark.parametrize("form", ["NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT", "NETCDF3_64BIT_DATA"])
def test_what_wrf_writes_without_a_suffix(form, arrives, tmp_path):
    path = wrf(tmp_path / WRF, "netcdf4", format=form)
    assert np.array_equal(arrives(f"{path}:T"), judged(path, "T"))
    # Of two axes beside the time each step is one plane.
    assert np.array_equal(arrives(f"{path}:T2")[:, 0], judged(path, "T2"))
    assert np.array_equal(arrives(f"{path}:last"), judged(path, "last", *SIDES))
    assert np.array_equal(arrives(f"{path}:member"), judged(path, "member"))


def test_axes_are_chosen(arrives, tmp_path, node):
    path = wrf(tmp_path / "model.out")
    expected = judged(path, "levels_last", *SIDES)
    for flag, axes in ("--axes", ",".join(SIDES)), ("--dims", "0,3,1,2"):
        assert np.array_equal(arrives(f"{path}:levels_last", flag, axes), expected)
    first = "bottom_top,south_north,west_east"
    error = node("wrong")("--json", "field", "send", f"{path}:T", "--axes", first, "--to", "127.0.0.1:9", "--plain", code=1).last("error")
    assert "Time" in error["message"] and "more than one value" in error["message"]
    error = node("other")("--json", "field", "send", f"{path}:T", "--axes", "t,z,y,x", "--to", "127.0.0.1:9", "--plain", code=1).last("error")
    assert "no axis t" in error["message"] and "bottom_top (4)" in error["message"]


def test_one_file_a_step_is_a_series_in_the_order_of_numbers(arrives, tmp_path):
    pattern = "run_{}_00:00:00"
    paths = [wrf(tmp_path / pattern.format(n)) for n in (1, 2, 10)]
    expected = np.concatenate([judged(path, "T") for path in paths])
    assert np.array_equal(arrives(f"{tmp_path}/run_*:T"), expected)
    shell = sorted(map(str, paths))
    assert shell != list(map(str, paths))
    assert np.array_equal(arrives(*shell[:-1], f"{shell[-1]}:T"), expected)
    for n in (1, 2, 10):
        np.save(tmp_path / f"s{n}.npy", np.full((2, 3, 4), n, "f4"))
    assert [step[0, 0, 0] for step in arrives(f"{tmp_path}/s*.npy")] == [1, 2, 10]


@pytest.mark.parametrize("kind", ["npy", "npz", "hdf5", "hdf5-behind-a-block", "zarr2", "zarr3", "zarr-zip"])
def test_files_are_known_by_what_is_in_them(kind, arrives, tmp_path):
    steps = np.random.default_rng(5).random((2, 4, 5, 6), "f4")
    path = tmp_path / "data"
    if kind == "npy":
        with open(path, "wb") as file:
            np.save(file, steps)
    elif kind == "npz":
        with open(path, "wb") as file:
            np.savez_compressed(file, v=steps, line=np.zeros(3))
    elif kind.startswith("hdf5"):
        import h5py
        with h5py.File(path, "w", userblock_size=2048 if "block" in kind else 0) as file:
            file.create_dataset("v", data=steps, chunks=True, compression="gzip", shuffle=True)
    else:
        import zarr
        store = zarr.storage.ZipStore(path, mode="w") if kind == "zarr-zip" else str(path)
        zarr.open_group(store, mode="w", zarr_format=2 if kind == "zarr2" else 3).create_array("v", data=steps)
        if kind == "zarr-zip":
            store.close()
    assert np.array_equal(arrives(f"{path}" if kind == "npy" else f"{path}:v"), steps)


def test_a_filter_that_is_not_installed_is_named(tmp_path, node, arrives):
    import h5py
    # netCDF4 brings zstd and blosc along.
    kinds = {"of its own": 65000} | ({} if importlib.util.find_spec("hdf5plugin") else {"lz4": 32004})
    for name, number in kinds.items():
        with h5py.File(tmp_path / f"{number}.nc", "w") as file:
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((2, 4, 5))
            plist.set_filter(number, h5py.h5z.FLAG_OPTIONAL, (3,))
            h5py.h5d.create(file.id, b"v", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((2, 4, 5)), plist)
        proc = node(f"wrong{number}")("--json", "field", "send", f"{tmp_path}/{number}.nc:v", "--to", "127.0.0.1:9", "--plain", code=1)
        message = proc.last("error")["message"]
        assert f"{name} ({number})" in message and "pip install hdf5plugin" in message


#: In a process of its own: netCDF4 sets the path of HDF5's plugins for the whole process, and its Blosc is another one.
#: An imported netCDF4 has set its own filters, which are made for another HDF5 library than h5py's, for all programs.
PLAIN = {name: value for name, value in os.environ.items() if name != "HDF5_PLUGIN_PATH"}
PACK = """
import sys
import h5py
import hdf5plugin
import numpy as np

steps, out, how = sys.argv[1:]
with h5py.File(out, "w") as file:
    file.create_dataset("v", data=np.load(steps), chunks=(1, 4, 5, 6), **getattr(hdf5plugin, how)())
"""


@pytest.mark.parametrize("how", ["Zstd", "Blosc", "Blosc2", "LZ4", "Bitshuffle"])
def test_filters_of_a_plugin_are_used_where_it_is_installed(how, arrives, tmp_path):
    if not importlib.util.find_spec("hdf5plugin"):
        pytest.skip("SKIPPED: no hdf5plugin (pip install hdf5plugin): filters of plugins were not tried")
    steps = np.random.default_rng(6).integers(0, 9, (2, 4, 5, 6)).astype("f4")
    np.save(tmp_path / "steps.npy", steps)
    subprocess.run([sys.executable, "-c", PACK, tmp_path / "steps.npy", tmp_path / "data", how], check=True, env=PLAIN)
    assert np.array_equal(arrives(f"{tmp_path}/data:v"), steps)


def test_a_time_of_another_name_is_the_axis_of_steps(arrives, tmp_path):
    h5py = pytest.importorskip("h5py")
    values = np.random.default_rng(7).random((3, 4, 5)).astype("f4")
    for name in ("valid_time", "time_counter"):
        with h5py.File(tmp_path / name, "w") as file:
            file["v"] = values
            for at, axis in enumerate((name, "latitude", "longitude")):
                file["v"].dims[at].label = axis
        assert np.array_equal(arrives(f"{tmp_path}/{name}:v"), values[:, None])
        assert np.array_equal(arrives(f"{tmp_path}/{name}:v", "--axes", f"{name},latitude,longitude"), values[:, None])


def test_files_of_a_series_have_their_axes_in_one_order(arrives, node, tmp_path):
    h5py = pytest.importorskip("h5py")
    values = np.random.default_rng(8).random((4, 4, 4)).astype("f4")
    for name, axes in (("q_0.75.h5", "zyx"), ("q_1.h5", "xyz"), ("q_0.5.h5", "zyx")):
        with h5py.File(tmp_path / name, "w") as file:
            file["p"] = (values if axes == "zyx" else values.transpose()) * (2 if "0.75" in name else 1)
            for at, axis in enumerate(axes):
                file["p"].dims[at].label = axis
    said = node("wrong")("--json", "field", "send", f"{tmp_path}/q_*.h5:p", "--to", "127.0.0.1:9", "--plain", code=1).last("error")["message"]
    assert "q_1.h5: its axes are x, y, z" in said
    assert np.array_equal(arrives(f"{tmp_path}/q_*.h5:p", "--axes", "z,y,x"), np.stack([values, 2 * values, values]))


def test_a_scale_that_is_a_text_is_refused(arrives, node, tmp_path):
    h5py = pytest.importorskip("h5py")
    for text in ("0.5", b"0.5"):
        with h5py.File(tmp_path / "packed", "w") as file:
            file["v"] = np.full((4, 4, 4), 4, "i2")
            file["v"].attrs["scale_factor"] = np.bytes_(text) if isinstance(text, bytes) else text
        proc = node("sender")("--json", "field", "send", f"{tmp_path}/packed:v", "--to", "127.0.0.1:9", "--plain", code=1)
        assert "scale_factor is the text" in proc.last("error")["message"]


def test_a_variable_may_have_a_colon_in_its_name(arrives, tmp_path):
    h5py = pytest.importorskip("h5py")
    values = np.arange(60, dtype="f4").reshape(3, 4, 5)
    for name in ("plain.h5", "with:colon.h5", "plain"):
        with h5py.File(tmp_path / name, "w") as file:
            file["a:b"] = values
            file["b"] = -values
        assert np.array_equal(arrives(f"{tmp_path / name}:a:b")[0], values)
        assert np.array_equal(arrives(f"{tmp_path / name}:b")[0], -values)
