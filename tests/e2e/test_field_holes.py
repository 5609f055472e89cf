"""Which values of a volume are of its step: for programs, in recordings, and in drawings."""
import json
import pathlib
import sys
import urllib.request

import numpy as np
import pytest
import zarr
from conftest import ROOT
from support.fieldpeer import ENCRYPTED, RUN, XYZ, Sender, field
from test_field_recv import SHAPE, Receiver, recorded, recv  # noqa: F401

sys.path.insert(0, str(ROOT / "python"))
import tidecast.field  # noqa: E402


def places_of(sender: Sender, packets) -> np.ndarray:
    """A mask of the values of packets (stream, number)."""
    mask = np.zeros(SHAPE[::-1], bool)
    for stream, packet in packets:
        places, _ = sender.run_of(np.zeros(SHAPE[::-1], "f4"), stream, packet)
        mask[places[:, 2], places[:, 1], places[:, 0]] = True
    return mask


def cells(tide, name: str) -> tuple[np.ndarray, dict]:
    """The data of a viewer."""
    proc = tide.run("--json", "field", "view", name, "--listen", "127.0.0.1:0")
    proc.until("it serves", lambda: '"started"' in proc.out)
    url = proc.last("started")["url"].replace("/?", "/api/volumes/0/cells?as=f32&")
    with urllib.request.urlopen(url) as answer:
        found = np.frombuffer(answer.read(), "<f4").reshape(SHAPE[::-1]), json.loads(answer.headers["field"])
    proc.kill()
    return found


@pytest.mark.parametrize("missing", ["keep", "nan"])
@pytest.mark.parametrize("packing,order", [(RUN, "zslab"), (ENCRYPTED, "morton"), (XYZ, "morton")])
def test_a_step_says_which_values_are_of_it(recv, tide, packing, order, missing):  # noqa: F811
    here = recv("--streams", 2, "--volume", "steps", "--missing", missing)
    sender = Sender(here.ports, SHAPE, here.key, packing, order, values=50).begin()
    lost = [{(0, 3), (1, 0)}, set(), {(0, 0), (0, 1), (1, sender.packets(1) - 1)}, {(1, 2)}, set()]
    for batch, gone in enumerate(lost):
        values = field(SHAPE, batch)
        sender.send(values, batch, lose=lambda stream, packet: (stream, packet) in gone)  # noqa: B023
        # What follows says that no more will come.
        sender.send(field(SHAPE, batch + 1), batch + 1, lose=lambda stream, packet: packet != 5)
        here.steps(batch + 1)
        with tidecast.field.open(here.name) as memory:
            volume = memory.read()
            assert volume.step == batch
            np.testing.assert_array_equal(volume.mask, places_of(sender, gone))
            np.testing.assert_array_equal(memory.mask, volume.mask)
            np.testing.assert_array_equal(volume.array[~volume.mask], values[~volume.mask])
            assert np.isnan(volume.array[volume.mask]).all() if missing == "nan" else not np.isnan(volume.array).any()
        drawn, said = cells(tide, here.name)
        np.testing.assert_array_equal(np.isnan(drawn), places_of(sender, gone))
        assert said["missing"] == places_of(sender, gone).sum()


def test_what_always_changes_says_what_is_older_than_the_step_closed_last(recv, tide):  # noqa: F811
    here = recv("--streams", 2, "--volume", "live")
    sender = Sender(here.ports, SHAPE, here.key, values=50).begin()
    never = {(0, 3), (1, 0)}
    sender.send(field(SHAPE, 0), 0, lose=lambda stream, packet: (stream, packet) in never)
    sender.send(field(SHAPE, 1), 1, lose=lambda stream, packet: (stream, packet) in {(0, 3), (0, 4)})
    # Two steps are under way at most: a third would end the first before all of it is read.
    here.steps(1)
    sender.send(field(SHAPE, 2), 2, lose=lambda stream, packet: packet != 1)
    here.steps(2)
    old = places_of(sender, {(0, 3), (0, 4)})
    with tidecast.field.open(here.name) as memory:
        np.testing.assert_array_equal(memory.mask, old)
        np.testing.assert_array_equal(memory.array[places_of(sender, {(0, 4)})], field(SHAPE, 0)[places_of(sender, {(0, 4)})])
        drawn, said = cells(tide, here.name)
        np.testing.assert_array_equal(np.isnan(drawn), old)
        # The last data is there.
        sender.send(field(SHAPE, 2), 2, lose=lambda stream, packet: packet == 1)
        here.steps(3)
        assert not memory.mask.any() and not np.isnan(cells(tide, here.name)[0]).any()
        # Of another session nothing has come.
        Sender(here.ports, SHAPE, here.key, values=50).begin()
        here.until("nothing of it", lambda: memory.mask.all())


@pytest.mark.parametrize("missing", ["keep", "nan"])
def test_a_recording_has_no_value_of_another_step(recv, tmp_path, missing):  # noqa: F811
    directory: pathlib.Path = tmp_path / "run"
    here = recv("--streams", 2, "--record", directory, "--missing", missing)
    sender = Sender(here.ports, SHAPE, here.key, order="morton", values=50).begin()
    lost = [{(0, 3), (1, 0)}, set(), {(0, 0), (0, 1), (1, sender.packets(1) - 1)}]
    for batch, gone in enumerate(lost):
        sender.send(field(SHAPE, batch), batch, lose=lambda stream, packet: (stream, packet) in gone)  # noqa: B023
        sender.send(field(SHAPE, batch + 1), batch + 1, lose=lambda stream, packet: packet != 5)
        here.until("recorded", lambda: recorded(directory, batch + 1))  # noqa: B023
    found = zarr.open_array(directory, mode="r")
    for batch, gone in enumerate(lost):
        expected = np.where(places_of(sender, gone), np.nan, field(SHAPE, batch))
        np.testing.assert_array_equal(found[batch], expected.astype("f4"))
    here.stop()
