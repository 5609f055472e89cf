"""Recordings of `tidecast field recv --record` in other programs: xarray opens the group, pyvista the series. Both verify geometry,
values and holes."""
import json
import signal
import warnings

import numpy as np
import pytest
import zarr
from support.fieldpeer import Sender, field
from test_field_recv import recorded, recv  # noqa: F401

SHAPE = (7, 6, 5)  # x, y, z
LOST = {(0, 1), (1, 0)}


@pytest.fixture
def run(recv, tmp_path):  # noqa: F811
    """A recording of steps 7, 8 and 9, and its expected content; parts of the second one are lost."""
    directory = tmp_path / "run"
    here = recv("--streams", 2, "--record", directory)
    sender = Sender(here.ports, SHAPE, here.key, first_step=7, values=20).begin()
    steps = np.stack([field(SHAPE, batch) for batch in range(3)])
    for batch, values in enumerate(steps):
        lost = LOST if batch == 1 else set()
        sender.send(values, batch, lose=lambda stream, packet: (stream, packet) in lost)  # noqa: B023
        # What comes next closes it.
        sender.send(field(SHAPE, batch + 1), batch + 1, lose=lambda stream, packet: packet != 2)
        here.until("recorded", lambda: recorded(directory, batch + 1))  # noqa: B023
    here.stop()
    for stream, packet in LOST:
        places, _ = sender.run_of(steps[1], stream, packet)
        steps[1][places[:, 2], places[:, 1], places[:, 0]] = np.nan
    return directory, steps


def test_xarray_opens_it_as_a_dataset(run):
    xr = pytest.importorskip("xarray")
    directory, steps = run
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = xr.open_zarr(directory / "series.zarr", chunks=None)
    array = whole["field"]
    assert array.dims == ("step", "z", "y", "x") and array.dtype == "float32"
    assert array.step.values.tolist()[:3] == [7, 8, 9] and array.z.values.tolist() == list(range(SHAPE[2]))
    np.testing.assert_array_equal(array.values[:3], steps)
    assert np.array_equal(array.sel(step=8, z=2).values, steps[1][2], equal_nan=True)
    assert np.isnan(array.values[:3]).sum() == np.isnan(steps).sum() == 40
    # And the report of each step agrees with xarray's values.
    lines = [json.loads(line) for line in (directory / "steps.jsonl").read_text().splitlines()][:3]
    assert [line["missing"] for line in lines] == np.isnan(steps).sum(axis=(1, 2, 3)).tolist()
    assert [(line["min"], line["max"]) for line in lines] == [(float(step.min()), float(step.max())) for step in array[:3]]
    assert np.array_equal(zarr.open_group(directory / "series.zarr", mode="r")["field"][:], zarr.open_array(directory, mode="r")[:], equal_nan=True)


def test_a_signal_that_comes_twice_ends_it_in_order(recv, tmp_path):  # noqa: F811
    """As from timeout(1), to the process and to its group."""
    here = recv("--streams", 2, "--record", tmp_path / "run")
    Sender(here.ports, SHAPE, here.key, values=20).begin().send(field(SHAPE, 0), 0)
    here.until("recorded", lambda: recorded(tmp_path / "run", 1))
    here.proc.signal(signal.SIGTERM)
    here.stop()
    assert zarr.open(tmp_path / "run/series.zarr", mode="r")["field"].shape[0] == 1


def test_pyvista_opens_it_as_a_series_in_time(run):
    vista = pytest.importorskip("pyvista", reason="SKIPPED: no pyvista (pip install pyvista): recordings were not opened with it")
    directory, steps = run
    reader = vista.get_reader(directory / "series.xdmf")
    for place, expected in enumerate(steps):
        reader.set_active_time_value(float(place))
        slabs = [slab for slab in reader.read().recursive_iterator() if slab is not None]
        assert {slab.spacing for slab in slabs} == {(1.0, 1.0, 1.0)} and {slab.origin[:2] for slab in slabs} == {(0.0, 0.0)}
        found = np.full(expected.shape, -1, "f4")
        for slab in slabs:
            name, = slab.point_data.keys()
            first = int(slab.bounds[4])
            found[first:first + slab.dimensions[2]] = slab.point_data[name].reshape(slab.dimensions[::-1])
        assert np.array_equal(found, expected, equal_nan=True)
        # Joined slabs are drawn in their place: x is the fastest axis, and a place is its number.
        assert slabs[0].point_data[name][1] == expected[0, 0, 1] or np.isnan(expected[0, 0, 1])
    assert vista.MultiBlock(slabs).bounds == (0, SHAPE[0] - 1, 0, SHAPE[1] - 1, 0, SHAPE[2] - 1)
