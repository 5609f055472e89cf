"""`tidecast field send` and `sync`, and Python's tidecast.field: to a receiver that was written from the format's description alone,
and to the real one."""
import json
import os
import pathlib
import random
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request

import numpy as np
import pytest
from conftest import ROOT
from support.fieldlink import Link
from support.fieldpeer import ENCRYPTED, field, forget, unique
from support.fieldsink import Sink, neighbours
from support.tidecast import wait_for

sys.path.insert(0, str(ROOT / "python"))
import tidecast.field  # noqa: E402

KEY = "a" * 52
SHAPE = (20, 12, 9)


@pytest.fixture
def tide(node, monkeypatch):
    """The program, with Tidecast's Python package available."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    monkeypatch.setenv("TIDECAST_PYTHON", sys.executable)
    return node("sender")


@pytest.fixture
def sink():
    """sink(streams, key) -> a receiver; ended after the test."""
    made = []

    def make(streams: int, key=None) -> Sink:
        made.append(Sink(streams, key))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def recv(tide, port):
    """recv(*flags) -> process, port and name of a real receiver of 4 streams."""
    def begin(*flags, streams=4):
        name = unique()
        sockets, first = neighbours(streams)
        for s in sockets:
            s.close()
        proc = tide.run("--json", "field", "recv", "--listen", f"127.0.0.1:{first}", "--name", name, "--streams", streams, *flags)
        proc.until("it listens", lambda: '"started"' in proc.out)
        names.append(name)
        return proc, first, name

    names: list[str] = []
    yield begin
    for name in names:
        forget(name)


def send(tide, sink, *words, key=None, code=0):
    how = ("--key", key) if key else ("--plain",)
    return tide("--json", "field", "send", *words, "--to", f"127.0.0.1:{sink.port}", "--streams", len(sink.sockets), *how, code=code)


def steps_of(count: int, dtype="<f4") -> np.ndarray:
    """Steps, z, y, x: values that every kind of number has."""
    return np.random.default_rng(1).integers(0, 100, (count, *SHAPE[::-1])).astype(dtype)


def source(kind: str, path: pathlib.Path) -> tuple[list, np.ndarray]:
    """Words for the command line, and the steps that must arrive."""
    steps = steps_of(3)
    if kind == "raw":
        steps.tofile(path / "all.raw")
        return [path / "all.raw", "--shape", "20,12,9"], steps
    if kind == "raw-each":
        for n, step in enumerate(steps):
            step.tofile(path / f"{n}.raw")
        return [*sorted(path.glob("*.raw")), "--shape", "20,12,9"], steps
    if kind == "npy-fortran":
        np.save(path / "a.npy", np.asfortranarray(steps))
        return [path / "a.npy"], steps
    if kind.startswith("npy"):
        dtype = kind.removeprefix("npy-")
        np.save(path / "a.npy", steps[:2].astype(dtype))
        np.save(path / "b.npy", steps[2].astype(dtype))
        return [path / "a.npy", path / "b.npy"], steps
    if kind == "hdf5":
        import h5py
        with h5py.File(path / "a.h5", "w") as file:
            file["group/var"] = steps.astype("f8")
        return [f"{path}/a.h5:/group/var"], steps
    if kind == "netcdf":
        import h5netcdf
        with h5netcdf.File(path / "a.nc", "w") as file:
            file.dimensions = {"t": 3, "z": 9, "y": 12, "x": 20}
            file.create_variable("density", ("t", "z", "y", "x"), data=steps)
        return [f"{path}/a.nc:density"], steps
    if kind.startswith("packed"):
        return packed(kind.removeprefix("packed-"), path)
    if kind.startswith("zarr"):
        import zarr
        if kind == "zarr-array":
            zarr.save_array(path / "a.zarr", steps)
            return [path / "a.zarr"], steps
        zarr.open_group(path / "a.zarr", mode="w").create_array("var", data=steps)
        return [f"{path}/a.zarr:var"], steps
    (path / "sizes.py").write_text("SHAPE = 3, 9, 12, 20\n")
    (path / "sim.py").write_text("import numpy as np\nimport sizes\ndef run():\n    print('computing')\n"
                                 f"    yield from np.fromfile('{path}/all.raw', 'f4').reshape(sizes.SHAPE)\n")
    steps.tofile(path / "all.raw")
    return [f"{path}/sim.py:run"], steps


def packed(kind: str, path: pathlib.Path) -> tuple[list, np.ndarray]:
    """Shorts that the CF conventions unpack, two of them missing."""
    import h5netcdf
    import h5py
    stored = np.arange(3 * 9 * 12 * 20, dtype="i2").reshape(3, 9, 12, 20)
    steps = (stored * 0.5 + 10).astype("f4")
    steps[0, 0, 0, 0] = steps[2, 8, 11, 19] = np.nan
    said = {"scale_factor": 0.5, "add_offset": 10.0, "missing_value": np.int16(stored.max())}
    names = {"t": 3, "z": 9, "y": 12, "x": 20}
    if kind == "hdf5":
        with h5py.File(path / "a.h5", "w") as file:
            file["var"] = stored
            file["var"].attrs.update(said, _FillValue=np.int16(0))
        return [f"{path}/a.h5:var"], steps
    if kind in ("unsigned", "valid-packed", "valid-real"):
        return judged(kind, path, stored, said)
    if kind == "classic":
        import netCDF4
        with netCDF4.Dataset(path / "a.nc", "w", format="NETCDF3_CLASSIC") as file:
            for name, count in names.items():
                file.createDimension(name, count)
            variable = file.createVariable("var", "i2", tuple(names), fill_value=0)
            variable.set_auto_maskandscale(False)
            variable.setncatts(said)
            variable[:] = stored
        return [f"{path}/a.nc:var"], steps
    with h5netcdf.File(path / "a.nc", "w") as file:
        file.dimensions = names
        if kind == "netcdf":
            file.create_variable("var", tuple(names), data=stored, fillvalue=np.int16(0)).attrs.update(said)
        else:  # Where nothing was written NetCDF has a value of its own.
            steps[np.isnan(steps)] = 9.969209968386869e36
            file.create_variable("var", tuple(names), data=steps)
            steps[steps > 1e36] = np.nan
    return [f"{path}/a.nc:var"], steps


def judged(kind: str, path: pathlib.Path, stored: np.ndarray, said: dict) -> tuple[list, np.ndarray]:
    """Packed values of which some are not valid, as the NetCDF User's Guide has it; `unsigned` ones have the form of signed ones."""
    import h5py
    del said["missing_value"]
    if kind == "unsigned":
        stored = stored.astype("u2") * 10
        limits, stored = np.array([100, 64000], "u2").view("i2"), stored.view("i2")
        said |= {"_Unsigned": "true", "valid_range": limits}
        values = stored.view("u2")
        steps = np.where((values < 100) | (values > 64000), np.nan, values * 0.5 + 10)
    elif kind == "valid-packed":
        said |= {"valid_min": np.int16(20), "valid_max": np.int16(6000)}
        steps = np.where((stored < 20) | (stored > 6000), np.nan, stored * 0.5 + 10)
    else:
        said |= {"valid_range": np.array([20.0, 3000.0])}
        steps = stored * 0.5 + 10
        steps[(steps < 20) | (steps > 3000)] = np.nan
    with h5py.File(path / "a.h5", "w") as file:
        file["var"] = stored
        file["var"].attrs.update(said)
    assert 0 < np.isnan(steps).sum() < steps.size / 2
    return [f"{path}/a.h5:var"], steps.astype("f4")


@pytest.mark.parametrize("kind", ["raw", "raw-each", "npy-<f4", "npy->f8", "npy-<f2", "npy-|u1", "npy->i4", "npy-fortran", "hdf5", "netcdf",
                                  "zarr", "zarr-array", "python", "packed-hdf5", "packed-netcdf", "packed-classic", "packed-unwritten",
                                  "packed-unsigned", "packed-valid-packed", "packed-valid-real"])
def test_every_byte_of_every_step_of_every_source_arrives(kind, tide, sink, tmp_path):
    words, steps = source(kind, tmp_path)
    here = sink(4, KEY)
    done = send(tide, here, *words, key=KEY).last("done")
    assert (done["steps"], done["lost"], done["accepted"]) == (3, 0, 4)
    # The sink is a thread of this process, and may have more to read when the sender has ended.
    wait_for("all goodbyes", lambda: here.byes == 8)
    assert sorted(here.values) == [0, 1, 2] and here.wrong == 0
    assert all(hello["packing"] == ENCRYPTED for hello in here.hello.values())
    for batch, step in enumerate(steps):
        assert np.array_equal(here.volume(batch), step, equal_nan=True)


@pytest.mark.parametrize("order", ["zslab", "morton"])
@pytest.mark.parametrize("streams", [1, 9])
def test_steps_in_any_order_go_round(order, streams, tide, sink, tmp_path):
    steps = steps_of(5)
    steps.tofile(tmp_path / "a.raw")
    here = sink(streams, KEY)
    proc = tide.run("--json", "field", "send", tmp_path / "a.raw", "--shape", "20,12,9", "--steps", "1:4", "--order", order, "--loop",
                    "--rate", "2mbit", "--to", f"127.0.0.1:{here.port}", "--streams", streams, "--key", KEY)
    wait_for("two rounds", lambda: len(here.values) > 9)
    proc.signal(signal.SIGINT)
    proc.exits(0)
    hello = here.hello[0]
    assert (hello["first_step"], hello["steps"], hello["streams"], hello["name"].rstrip(b"\0")) == (1, 3, streams, b"a.raw")
    # Data sent before this receiver had accepted the session is not here.
    for batch in range(2, 8):
        assert np.array_equal(here.volume(batch), steps[1 + batch % 3])


def test_packets_of_the_paper(tide, sink, tmp_path):
    shape = (64, 32, 8)
    values = field(shape, 1)
    values.tofile(tmp_path / "a.raw")
    for key, count in ((None, 560), (KEY, 559)):
        here = sink(2, key)
        done = send(tide, here, tmp_path / "a.raw", "--shape", "64,32,8", "--packing", "xyz", key=key).last("done")
        assert done["datagram"] == 8 + 16 * count + (16 if key else 0) <= 8968
        assert np.array_equal(here.volume(0), values)
        for stream in range(2):
            packets = [message for number, _, message in here.values[0] if number == stream]
            z, y, x = np.meshgrid(range(4 * stream, 4 * stream + 4), range(32), range(64), indexing="ij")
            quads = np.stack([x.ravel(), y.ravel(), z.ravel(), values[4 * stream:4 * stream + 4].ravel().view("u4")], axis=-1)
            for n, packet in enumerate(packets):
                mine = quads[n * count:(n + 1) * count].astype("<u4")
                assert packet == struct.pack("<II", 0, len(mine)) + mine.tobytes()
            assert len(packets) == -(-len(quads) // count)


@pytest.mark.alone
@pytest.mark.parametrize("megabits", [10, 100])
def test_the_rate_is_kept_to_within_two_percent(megabits, tide, sink, tmp_path):
    np.zeros((8, 64, 64, 64), "f4").tofile(tmp_path / "a.raw")
    here = sink(8)
    proc = tide.run("--json", "field", "send", tmp_path / "a.raw", "--shape", "64,64,64", "--loop", "--rate", f"{megabits}mbit",
                    "--to", f"127.0.0.1:{here.port}", "--plain")
    wait_for("the first packets", lambda: here.bytes > 0)
    time.sleep(0.5)
    began, before = time.monotonic(), here.bytes
    time.sleep(4)
    rate = (here.bytes - before) * 8 / (time.monotonic() - began)
    proc.signal(signal.SIGINT)
    done = proc.exits(0).last("done")
    assert abs(rate / megabits / 1e6 - 1) < 0.02, rate
    assert abs(done["rate"] / megabits / 1e6 - 1) < 0.02, done
    # The sender's own count is right too, except for data before the session was accepted.
    assert 0 <= done["bytes"] - here.bytes < 0.1 * done["bytes"] and done["lost"] == 0
    assert done["received"] == sum(here.received)


def test_receivers_share_the_volume(tide, sink, tmp_path):
    steps = steps_of(2)
    steps.tofile(tmp_path / "a.raw")
    one, two = sink(3, KEY), sink(2, KEY)
    done = tide("--json", "field", "send", tmp_path / "a.raw", "--shape", "20,12,9", "--streams", 5, "--key", KEY, "--fec", "50%",
                "--to", f"127.0.0.1:{one.port},127.0.0.1:{two.port}").last("done")
    assert (done["accepted"], done["streams"], done["lost"]) == (5, 5, 0)
    assert [(h["stream"], h["first"], h["here"]) for h in map(one.hello.get, range(3))] == [(0, 0, 3), (1, 0, 3), (2, 0, 3)]
    assert [(h["stream"], h["first"], h["here"]) for h in map(two.hello.get, range(2))] == [(3, 3, 2), (4, 3, 2)]
    for batch in range(2):
        assert np.array_equal(two.volume(batch, one.volume(batch)), steps[batch])
        for here in (one, two):
            numbers = sorted(struct.unpack_from("<I", message, 4)[0] % 2**31 for _, _, message in here.parity[batch])
            assert numbers == list(range(here.hello[0]["parity"]))


def test_a_controller_sets_the_pace(tide, sink, tmp_path, port):
    np.arange(6 * 32**3, dtype="f4").tofile(tmp_path / "a.raw")
    here, at = sink(4, KEY), f"127.0.0.1:{port()}"
    proc = tide.run("--json", "field", "send", tmp_path / "a.raw", "--shape", "32,32,32", "--rate", "1mbit", "--key", KEY, "--sync", at,
                    "--to", f"127.0.0.1:{here.port}", "--streams", 4)
    wait_for("all streams are believed", lambda: len(here.hello) == 4)
    time.sleep(0.5)
    assert not here.values, "nobody has said go"
    done = tide("--json", "field", "sync", "--to", at, "--every", "400ms", "--steps", "0:6", "--key", KEY).last("done")
    assert done["goes"] == 6
    # A step takes a second, so only the last one is complete, and no further ones follow.
    proc.exits(0)
    assert sorted(here.values) == list(range(6))
    begins = [min(when for _, when, _ in here.values[batch]) for batch in range(6)]
    assert all(0.2 < b - a < 0.8 for a, b in zip(begins, begins[1:])), begins
    assert all(np.isnan(here.volume(batch)).any() for batch in range(5))
    assert np.array_equal(here.volume(5).ravel(), np.arange(5 * 32**3, 6 * 32**3, dtype="f4"))
    # Batches do not overlap.
    ends = [max(when for _, when, _ in here.values[batch]) for batch in range(6)]
    assert all(end < begin + 0.1 for end, begin in zip(ends, begins[1:]))


@pytest.mark.parametrize("steps,limit,late", [(8, 1472, 0), (1, 1472, 0), (8, 1300, 0), (24, 1472, 100)])
def test_a_path_that_swallows_large_datagrams_is_found(steps, limit, late, tide, recv, tmp_path):
    """Jumbo frames here, smaller ones on the path, and no ICMP message about it."""
    values = np.stack([field((32, 32, 32), seed) for seed in range(steps)])
    np.save(tmp_path / "a.npy", values)
    proc, first, name = recv("--volume", "steps", "--key", KEY)
    with Link(first, 4, limit=limit, late=late) as link:
        sent = tide("--json", "field", "send", tmp_path / "a.npy", "--to", f"127.0.0.1:{link.port}", "--streams", 4, "--key", KEY,
                    "--rate", "4mbit", "--fec", "10%")
    done = sent.last("done")
    assert done["datagram"] <= limit and done["steps"] <= steps and done["received"] > 0
    warnings = [event["message"] for event in sent.events() if event["event"] == "warning" and "key" not in event["message"]]
    assert len(warnings) == (3 if limit < 1372 else 1), warnings
    assert all("MTU" in text and f"127.0.0.1:{link.port}" in text and "ICMP" in text for text in warnings)
    with tidecast.field.open(name) as here:
        wait_for("the last step is closed", lambda: here.step == steps - 1)
        assert np.array_equal(here.read().array, values[-1]) and not here.mask.any()
    closed = [event["step"] for event in proc.events() if event["event"] == "step" and event["missing"] == 0]
    # Where nothing has arrived yet no step is left out.
    assert late or closed == list(range(steps))


def test_what_never_arrives_is_said_and_the_program_fails(tide, recv, tmp_path):
    np.save(tmp_path / "a.npy", np.ones((2, 16, 16, 16), "f4"))
    proc, first, name = recv("--volume", "steps", "--key", KEY)
    with Link(first, 4, limit=300) as link:
        sent = tide("field", "send", tmp_path / "a.npy", "--to", f"127.0.0.1:{link.port}", "--streams", 4, "--key", KEY, code=1)
    assert "do not arrive" in sent.err and "MTU" in sent.err and f"127.0.0.1:{link.port}" in sent.err


def test_a_simulation_behind_a_path_that_swallows_large_datagrams(extension, recv):
    proc, first, name = recv("--volume", "steps", "--key", KEY)
    with Link(first, 4, limit=1472) as link, \
            tidecast.field.Sender(f"127.0.0.1:{link.port}", (32, 32, 32), key=KEY, streams=4, rate="4mbit") as sender:
        def arrived():
            sender.put(np.full((32, 32, 32), sender.sent, "f4"), timeout=1)
            return '"step"' in proc.out

        wait_for("a step arrives", arrived)


def test_a_sender_that_was_killed_is_followed_by_another(tide, recv, tmp_path):
    proc, first, name = recv("--volume", "steps", "--key", KEY)
    steps = np.stack([field((32, 32, 32), seed) for seed in range(4)])
    steps.tofile(tmp_path / "a.raw")
    words = ["--json", "field", "send", tmp_path / "a.raw", "--shape", "32,32,32", "--to", f"127.0.0.1:{first}", "--streams", 4, "--key", KEY]
    killed = tide.run(*words, "--rate", "500kbit")
    killed.until("it is under way", lambda: '"batch":1' in killed.out)
    killed.signal(signal.SIGKILL)
    killed.process.wait()
    done = tide(*words).last("done")
    assert (done["steps"], done["lost"], done["accepted"]) == (4, 0, 4)
    with tidecast.field.open(name) as here:
        wait_for("the last step is closed", lambda: here.step == 3)
        volume = here.read()
        assert volume.step == 3 and np.array_equal(volume.array, steps[3]) and np.array_equal(here.array, steps[3])
        assert here.loss == 0 and [slab.is_open for slab in here.slabs]
    proc.signal(signal.SIGINT)
    proc.exits(0)


@pytest.mark.parametrize("planes", [1, 5, 20])
def test_fewer_planes_than_streams_go_by_fewer(planes, tide, sink, tmp_path):
    steps = steps_of(2)[:, :1].repeat(planes, axis=1)
    np.save(tmp_path / "a.npy", steps)
    here = sink(24, KEY)
    sent = send(tide, here, tmp_path / "a.npy", key=KEY)
    assert (sent.last("done")["streams"], sent.last("done")["accepted"], sent.last("started")["streams"]) == (planes, planes, planes)
    wait_for("all goodbyes", lambda: here.byes == 2 * planes)
    assert np.array_equal(here.volume(1), steps[1])
    text = tide("field", "send", tmp_path / "a.npy", "--to", f"127.0.0.1:{sink(24, KEY).port}", "--streams", 24, "--key", KEY)
    assert f"only {planes} of --streams 24 are used: the array has {planes} plane{'s'[:planes > 1]}" in text.err


@pytest.mark.parametrize("streams", [1, 4])
def test_ports_that_the_system_chooses_are_told(streams, tide, tmp_path):
    np.save(tmp_path / "a.npy", steps_of(3))
    proc = tide.run("--json", "field", "recv", "--listen", "127.0.0.1:0", "--name", unique(), "--streams", streams, "--key", KEY)
    ports = proc.until("it listens", lambda: '"started"' in proc.out and proc.last("started")["ports"])
    assert ports == list(range(ports[0], ports[0] + streams)) and ports[0] > 0
    words = shlex.split(proc.last("started")["send"])
    assert f"127.0.0.1:{ports[0]}" in words
    words = [KEY if word.startswith("@") else str(tmp_path / "a.npy") if word == "SOURCE" else word for word in words[1:]]
    assert tide("--json", *words).last("done")["accepted"] == streams
    proc.signal(signal.SIGINT)
    proc.exits(0)
    text = tide.run("field", "recv", "--listen", "127.0.0.1:0", "--name", unique(), "--streams", streams, "--key", KEY)
    text.until("it says its ports", lambda: "--to 127.0.0.1:" in text.out)
    first = int(text.out.split("--to 127.0.0.1:")[1].split()[0])
    assert (f"ports {first} to {first + 3}" if streams > 1 else f"port {first} ") in text.err
    text.signal(signal.SIGINT)
    text.exits(0)


def test_a_receiver_that_has_gone_is_missed_and_one_that_is_back_is_counted_anew(tide, recv):
    proc, first, name = recv("--key", KEY)
    sent = tide.run("--json", "field", "send", "demo:gray-scott:16", "--to", f"127.0.0.1:{first}", "--streams", 4, "--key", KEY, "--rate", "2mbit")

    def last():
        return sent.last("progress")

    sent.until("it is received", lambda: '"progress"' in sent.out and last()["received"] > 20)
    proc.signal(signal.SIGKILL)
    proc.process.wait()
    sent.until("nobody is there", lambda: last()["accepted"] == 0)
    gone = last()
    back = tide.run("--json", "field", "recv", "--listen", f"127.0.0.1:{first}", "--streams", 4, "--shm", name, "--key", KEY)
    sent.until("it is received again", lambda: last()["received"] > gone["received"] + 20)
    assert last()["accepted"] == 4
    # Data sent to no receiver does not count as lost; data in flight when it was killed may.
    assert last()["lost"] < gone["packets"] / 2, (gone, last())
    for one in (sent, back):
        one.signal(signal.SIGINT)
        one.exits(0)


def test_a_receiver_that_was_killed_is_known_to_be_dead(tide, recv, tmp_path):
    proc, first, name = recv("--volume", "steps", "--key", KEY)
    words = ["--json", "field", "send", "demo:gray-scott:16", "--to", f"127.0.0.1:{first}", "--streams", 4, "--key", KEY, "--rate", "2mbit"]
    sent = tide.run(*words)
    wait_for("it is there", lambda: name in tidecast.field.names())
    view = tide.run("--json", "field", "view", name, "--listen", "127.0.0.1:0")
    url, _, token = view.until("it serves", lambda: '"started"' in view.out and view.last("started"))["url"].partition("?token=")
    state = urllib.request.Request(f"{url}api/state", headers={"Authorization": f"Bearer {token}"})

    def receiving() -> bool:
        with urllib.request.urlopen(state, timeout=60) as answer:
            return json.load(answer)["volumes"][0]["receiving"]

    with tidecast.field.open(name) as here:
        assert here.is_open and receiving() and here.wait(60)
        proc.signal(signal.SIGKILL)
        proc.process.wait()
        assert not here.is_open and not receiving() and name not in tidecast.field.names()
        with pytest.raises(tidecast.field.Closed):
            while True:
                here.wait()
        # Readers that look all the time keep no receiver from starting, and find it.
        back = tide.run("--json", "field", "recv", "--listen", f"127.0.0.1:{first}", "--streams", 4, "--name", name, "--key", KEY)
        sent.until("it is back", lambda: not here.is_open and name in tidecast.field.names() and receiving())
        assert not here.is_open, "the old memory"
    with tidecast.field.open(name) as here:
        assert here.is_open and here.wait(60)
    for one in (sent, back, view):
        one.signal(signal.SIGINT)
        one.exits(0)


def test_parity_makes_up_for_packets_that_a_link_drops(tide, recv, tmp_path):
    proc, first, name = recv("--volume", "steps", "--missing", "nan", "--key", KEY)
    steps = np.stack([field((96, 96, 96), seed) for seed in range(3)])
    steps.tofile(tmp_path / "a.raw")
    with Link(first, 4, 0.04) as link:
        done = tide("--json", "field", "send", tmp_path / "a.raw", "--shape", "96,96,96", "--to", f"127.0.0.1:{link.port}", "--streams", 4,
                    "--key", KEY, "--fec", "20%", "--rate", "40mbit", "--order", "morton").last("done")
    assert link.dropped > 10 and abs(done["lost"] - link.dropped) <= 2, (done, link.dropped)
    with tidecast.field.open(name) as here:
        wait_for("the last step is closed", lambda: here.step == 2 and len(here.history) == 3)
        assert np.array_equal(here.read().array, steps[2]) and here.loss == 0
        assert sum(entry.recovered for entry in here.history) > 10 and not any(entry.missing for entry in here.history)
    proc.signal(signal.SIGINT)
    proc.exits(0)


def test_a_simulation_sends_from_within(extension, recv):
    _, first, name = recv("--volume", "steps", "--key", KEY)
    shape = (9, 12, 20)
    with tidecast.field.Sender(f"127.0.0.1:{first}", shape, key=KEY, streams=3, name="in situ") as sender:
        while sender.progress.get("accepted") != 3:
            sender.put(np.zeros(shape), timeout=1)
        with tidecast.field.open(name) as here:
            for step in (1000, 1001, 1005):
                here.wait(0)
                assert sender.put(np.full(shape, step), step=step, timeout=30)
                wait_for("the step is there", lambda: here.step == step)
                assert (here.read().array == step).all() and here.title == "in situ" and here.shape == shape
            assert not here.array.flags.writeable
            with pytest.raises(ValueError, match="numbers rise"):
                sender.put(np.zeros(shape), step=1005)
            with pytest.raises(ValueError, match="shape"):
                sender.put(np.zeros((3, 3, 3)))
            assert name in tidecast.field.names() and here.wait(0) is not None and here.wait(0.01) is None
    assert sender.progress["event"] == "done" and sender.progress["lost"] == 0
    with pytest.raises(tidecast.field.FieldError, match="no field"):
        tidecast.field.open(unique())


def test_a_simulation_is_told_what_is_wrong(extension, port):
    shape = (8, 8, 8)
    with pytest.raises(tidecast.UsageError, match="invalid field key"):
        tidecast.field.Sender("127.0.0.1:9", shape, key="zz")
    # A simulation does not end for lack of viewers.
    with pytest.warns(RuntimeWarning, match="no receiver answered"):
        with tidecast.field.Sender(f"127.0.0.1:{port()}", shape, key=KEY, streams=2) as sender:
            assert sender.put(np.zeros(shape), timeout=30)
    assert sender.progress["steps"] == 1 and sender.progress["accepted"] == 0


@pytest.mark.alone
def test_a_simulation_never_waits(extension, sink):
    here, shape = sink(2), (32, 64, 64)
    with tidecast.field.Sender(f"127.0.0.1:{here.port}", shape, key="", streams=2, rate="10mbit") as sender:
        began, given = time.monotonic(), 0
        while time.monotonic() - began < 3:
            given += 1
            sender.put(np.full(shape, given))
            time.sleep(0.01)
        # A step of half a megabyte takes 0.4 s.
        assert sender.dropped > given / 2 and 2 < sender.sent == given - sender.dropped
    assert sender.progress["steps"] == sender.sent
    batches = sorted(here.values)
    assert max(batches) > sender.sent, "steps that were dropped have their numbers"
    whole = [batch for batch in batches if not np.isnan(volume := here.volume(batch)).any() and (volume == batch + 1).all()]
    assert len(whole) >= sender.sent - 2, (batches, whole)


@pytest.mark.parametrize("words, said", [
    (["none.raw", "--shape", "8,8,8"], "no such file"),
    (["a.raw"], "--shape X,Y,Z"),
    (["a.raw", "--shape", "7,7,7"], "the file has 2048 bytes"),
    (["a.raw", "--shape", "64,8,1", "--to", "127.0.0.1:9,127.0.0.1:19"], "2 receivers share 1 streams"),
    (["a.raw", "--shape", "8,8,8", "--steps", "1:"], "--steps starts at 1"),
    (["bad.npy"], "not a .npy file"),
    (["a.raw", "--shape", "8,8,8", "--steps", "0:5", "--to", "127.0.0.1:0"], "port 0"),
    (["a.raw", "--shape", "8,8,8", "--to", "127.0.0.1:8,127.0.0.1:10"], "two streams have the same destination 127.0.0.1:10"),
    (["demo:life"], "demo:life: unknown demo; use demo:gray-scott"),
    (["folder.d"], "is a directory"),
    (["a.h5:var"], "no array var; there are: group/density"),
    (["a.h5"], "name a variable of it behind a colon; there are: group/density"),
    (["sim.py"], "name a function of it behind a colon; there are: run, fail, steps, holes"),
    (["sim.py:walk"], "no function walk; there are: run, fail, steps, holes"),
    (["sim.py:steps", "--steps", "10:12"], "ends before step 10"),
    (["a.raw", "--shape", "8,8,8", "--key", "@none.key"], "none.key: No such file"),
    (["a.raw", "--shape", "8,8,8", "--key", "@a.key"], "a.key: invalid field key"),
    (["a.raw", "--shape", "8,8,8", "--key", "zz"], "invalid field key"),
    (["a.raw", "--colour", "red"], "--colour"),
    (["classic.nc:v"], "no array v"),
    (["none.nc:var"], "no such file"),
    (["sim.py:run"], "yields int"),
    (["sim.py:fail"], "ValueError: diverged"),
    (["sim.py:holes"], "yields None as step 1"),
    (["sim.py:steps", "sim.py:walk"], "the only source"),
    (["sim.py:steps", "--axes", "2,1,0"], "--axes is for stored arrays"),
])
def test_what_is_wrong_is_said(words, said, tide, sink, tmp_path, monkeypatch):
    import h5py
    monkeypatch.chdir(tmp_path)
    np.zeros(512, "f4").tofile("a.raw")
    pathlib.Path("bad.npy").write_bytes(b"values!!")
    with h5py.File("a.h5", "w") as file:
        file["group/density"], file["line"] = np.zeros((8, 8, 8)), np.zeros(8)
    pathlib.Path("folder.d").mkdir()
    pathlib.Path("a.key").write_text("junk")
    pathlib.Path("classic.nc").write_bytes(b"CDF\x01" + bytes(28))
    pathlib.Path("sim.py").write_text("import numpy as np\ndef run():\n    yield 1\ndef fail():\n    yield np.zeros((8, 8, 8))\n"
                                      "    raise ValueError('diverged')\ndef steps():\n    yield from np.zeros((6, 8, 8, 8))\n"
                                      "def holes():\n    yield from [np.zeros((8, 8, 8)), None, np.zeros((8, 8, 8))]\n")
    words = [str(tmp_path / word) if "." in word.split(":")[0] and not word.startswith(("127", "@")) else word for word in words]
    to = [] if "--to" in words else ["--to", "127.0.0.1:9"]
    key = [] if "--key" in words else ["--plain"]
    proc = tide.run("--json", "field", "send", *words, *to, *key)
    assert proc.wait() in (1, 2) and proc.last("error")["code"] == proc.process.returncode, proc.out
    assert said in proc.last("error")["message"], proc.out


@pytest.mark.parametrize("kind", ["raw", "python"])
def test_steps_beyond_the_last_are_told_of(kind, tide, sink, tmp_path):
    words, _ = source(kind, tmp_path)
    here = sink(2, KEY)
    proc = send(tide, here, *words, "--steps", "1:99", key=KEY)
    assert proc.last("done")["steps"] == 2 and "--steps" in proc.last("warning")["message"]


def test_a_package_that_is_missing_is_named(tide, monkeypatch, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S -E -c "import sys; sys.path.insert(0, \'{ROOT}/python\'); '
                                     'sys.argv = sys.argv[2:]; import runpy; runpy.run_module(\'tidecast.field\', run_name=\'__main__\')" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "a.h5").touch()
    monkeypatch.setenv("TIDECAST_PYTHON", str(tmp_path / "python"))
    message = tide("--json", "field", "send", f"{tmp_path}/a.h5:v", "--to", "127.0.0.1:9", "--plain", code=1).last("error")["message"]
    assert "package numpy is needed" in message and "pip install numpy" in message


def test_nobody_listens(tide, tmp_path):
    np.zeros((40, 8, 8, 8), "f4").tofile(tmp_path / "a.raw")
    # Long enough to be reported meanwhile.
    words = ["--json", "field", "send", tmp_path / "a.raw", "--shape", "8,8,8", "--to", "127.0.0.1:9", "--plain", "--rate", "400kbit"]
    began = time.monotonic()
    proc = tide(*words, code=3)
    assert time.monotonic() - began > 9, "receivers are waited for"
    error = proc.last("error")
    assert error["accepted"] == 0 and error["steps"] == 40 and "no receiver answered at 127.0.0.1:9 (8 streams)" in error["message"]
    assert "none of 8 streams" in proc.last("warning")["message"]
    # The paper's own receivers send no reports.
    assert tide(*words, "--packing", "xyz").last("done")["steps"] == 40


@pytest.mark.parametrize("why, code, said", [("another key", 3, "uses another key"), ("plain", 3, "requires a key"), ("streams", 1, "refused")])
def test_who_takes_nothing_is_told_of(why, code, said, tide, recv, tmp_path):
    proc, first, _ = recv("--key", KEY)
    np.zeros((2, 16, 8, 8), "f4").tofile(tmp_path / "a.raw")
    how = {"another key": ["--key", "b" * 51 + "a", "--streams", 4], "plain": ["--plain", "--streams", 4], "streams": ["--key", KEY, "--streams", 8]}
    sent = tide("--json", "field", "send", tmp_path / "a.raw", "--shape", "8,8,16", "--to", f"127.0.0.1:{first}", *how[why], code=code)
    message = sent.last("error")["message"]
    assert said in message and f"127.0.0.1:{first}" in message, message
    proc.signal(signal.SIGINT)
    proc.exits(0)


def test_one_of_two_receivers_goes(tide, recv, tmp_path):
    (one, near, _), (two, far, _) = recv("--key", KEY, streams=2), recv("--key", KEY, streams=2)
    np.zeros((8, 16, 32, 32), "f4").tofile(tmp_path / "a.raw")
    sent = tide.run("--json", "field", "send", tmp_path / "a.raw", "--shape", "32,32,16", "--to", f"127.0.0.1:{near},127.0.0.1:{far}",
                    "--streams", 4, "--key", KEY, "--rate", "1mbit")
    sent.until("it is under way", lambda: '"progress"' in sent.out and sent.last("progress")["batch"] >= 1)
    two.signal(signal.SIGKILL)
    error = sent.exits(3).last("error")
    assert f"127.0.0.1:{far} disconnected" in error["message"] and str(near) not in error["message"]
    one.signal(signal.SIGINT)
    one.exits(0)


@pytest.mark.parametrize("steps, code", [(3, 0), (1, 3)])
def test_a_receiver_that_ends_when_it_has_all_is_not_missed(steps, code, tide, recv, tmp_path):
    proc, first, _ = recv("--key", KEY, "--steps", steps)
    np.zeros((3, 16, 32, 32), "f4").tofile(tmp_path / "a.raw")
    sent = tide("--json", "field", "send", tmp_path / "a.raw", "--shape", "32,32,16", "--to", f"127.0.0.1:{first}", "--streams", 4, "--key", KEY,
                "--rate", "4mbit", "--fec", "20%", code=code)
    proc.exits(0)
    assert sent.last("error" if code else "done")["steps"] == 3


@pytest.mark.root
def test_datagrams_fit_the_way(built, tmp_path, start):
    if os.geteuid() or subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode:
        pytest.skip("SKIPPED: network namespaces need root")
    np.zeros((1, 8, 64, 64), "f4").tofile(tmp_path / "a.raw")
    # The last link becomes narrower during the transfer.
    for mtu, most in ((1500, 1472), (9000, 8972), (1280, 1252), ("9000; (sleep 0.7; ip link set lo mtu 1500) &", 1472)):
        send = f"{built}/tidecast --json field send {tmp_path}/a.raw --shape 64,64,8 --to 127.0.0.1:9 --plain --loop --rate 1mbit"
        proc = start(["unshare", "-n", "sh", "-c", f"ip link set lo up mtu {mtu}\nexec timeout --foreground -s INT 4 {send}"])
        proc.wait()
        done = proc.last("error")
        assert done["code"] == 3 and most - 4 < done["datagram"] <= most and done["steps"] > 0
