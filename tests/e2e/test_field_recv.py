"""`tidecast field recv`, from a sender and a reader that were written from the format's description alone."""
import contextlib
import ctypes
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import time
from xml.etree import ElementTree

import numpy as np
import pytest
import zarr
from support.fieldpeer import ENCRYPTED, RUN, XYZ, Reader, Sender, field, forget, unique

SHAPE = (20, 12, 16)


class Receiver:
    """One `tidecast field recv`, on ports that the system has chosen."""

    def __init__(self, node, *flags):
        self.name = unique()
        self.proc = node.run("--json", "field", "recv", "--listen", "127.0.0.1:0", "--name", self.name, *flags)
        started = self.proc.until("it listens", lambda: [e for e in self.proc.events() if e["event"] == "started"])[0]
        self.ports, self.command = started["ports"], started["send"]
        words = (self.command or "").split()
        self.key = pathlib.Path(words[words.index("--key") + 1][1:]).read_text().strip() if "--key" in words else None

    def reader(self) -> Reader:
        self.proc.until("shared memory", pathlib.Path(f"/dev/shm/tidecast-field-{self.name}").exists)
        return Reader(self.name)

    def steps(self, count: int) -> list[dict]:
        def enough():
            found = [e for e in self.proc.events() if e["event"] == "step"]
            return found if len(found) >= count else None
        return self.proc.until(f"{count} steps", enough)

    def until(self, what, test):
        return self.proc.until(what, test)

    def stop(self, code=0) -> dict:
        self.proc.signal(signal.SIGINT)
        self.proc.exits(code)
        assert not pathlib.Path(f"/dev/shm/tidecast-field-{self.name}").exists()
        return self.proc.last("error" if code else "done")


@pytest.fixture
def recv(tide):
    """recv(*flags) -> a receiver; its shared memory is removed after the test in any case."""
    all_ = []

    def begin(*flags) -> Receiver:
        all_.append(Receiver(tide, *flags))
        return all_[-1]

    yield begin
    for one in all_:
        one.proc.kill()
        forget(one.name)


@pytest.mark.parametrize("volume", ["live", "steps"])
@pytest.mark.parametrize("order", ["zslab", "morton"])
@pytest.mark.parametrize("security,packing", [("key", XYZ), ("key", RUN), ("key", ENCRYPTED), ("plain", XYZ), ("plain", RUN)])
def test_values_are_where_they_belong(recv, security, packing, order, volume):
    here = recv("--streams", 3, "--volume", volume, *(["--plain"] if security == "plain" else []))
    assert (here.key is None) == (security == "plain")
    sender = Sender(here.ports, SHAPE, here.key, packing, order, values=37, first_step=40, steps=2).begin()
    volumes = [field(SHAPE, seed) for seed in range(3)]
    for batch, values in enumerate(volumes):
        sender.send(values, batch)
        steps = here.steps(batch + 1)
        assert (reader := here.reader()).closed == batch + 1
        np.testing.assert_array_equal(reader.volume(), values)
        assert reader.word(96) == 40 + batch % 2
    packets = sum(map(sender.packets, range(3)))
    assert [(s["step"], s["batch"], s["expected"], s["received"], s["missing"]) for s in steps] == \
        [(40, 0, packets, packets, 0), (41, 1, packets, packets, 0), (40, 2, packets, packets, 0)]
    assert [e["batch"] for e in reader.history()] == [0, 1, 2]
    slabs = [reader.slab(i) for i in range(3)]
    assert [(s["z0"], s["z1"], s["stream"], s["complete"]) for s in slabs] == [(0, 5, 0, 3), (5, 10, 1, 3), (10, 16, 2, 3)]
    done = here.stop()
    assert done["packets"] == 3 * packets and done["lost"] == 0 and all(s["rejected"] == 0 for s in done["streams"])
    assert reader.word(112) == 2, "who has it mapped sees that it is over"


def test_the_papers_packets_from_a_sender_that_knows_nothing_else(recv):
    shape = (56, 20, 8)
    here = recv("--streams", 2, "--plain", "--packing", "xyz", "--shape", "56,20,8", "--volume", "steps")
    sender = Sender(here.ports, shape, None, XYZ, values=560)
    values = field(shape, 1)
    assert len(sender.datagram(values, 0, 0, 0)) == 8968
    shuffled = random.Random(5)
    sender.send(values, 7, order=lambda todo: shuffled.sample(todo, len(todo)))
    step = here.steps(1)[0]
    assert (step["step"], step["expected"], step["received"], step["missing"]) == (7, 16, 16, 0)
    np.testing.assert_array_equal(here.reader().volume(), values)
    # A value is at the place of its quad, byte for byte; one outside of the stream's slab is refused.
    quad = struct.pack("<IIIIIf", 8, 1, 55, 19, 3, 1.25)
    sender.raw(0, quad)
    sender.raw(1, quad)
    reader = here.reader()
    here.until("refused", lambda: reader.slab(1)["rejected"] == 1)
    sender.send(values, 9, lose=lambda stream, packet: True)
    step = here.steps(2)[1]
    assert (step["step"], step["received"], step["missing"]) == (8, 1, 56 * 20 * 8 - 1)
    values[3, 19, 55] = 1.25
    np.testing.assert_array_equal(here.reader().volume(), values)
    assert here.stop()["streams"][1]["rejected"] == 1


@pytest.mark.parametrize("volume", ["live", "steps"])
@pytest.mark.parametrize("missing", ["keep", "nan"])
def test_what_is_lost_is_counted_and_shown_as_asked(recv, volume, missing):
    here = recv("--streams", 2, "--volume", volume, "--missing", missing)
    sender = Sender(here.ports, SHAPE, here.key, values=50).begin()
    old, new = field(SHAPE, 1), field(SHAPE, 2)
    sender.send(old, 0)
    here.steps(1)
    lost = {(0, 3), (1, 0), (1, sender.packets(1) - 1)}
    sender.send(new, 1, lose=lambda stream, packet: (stream, packet) in lost)
    sender.send(old, 2, lose=lambda stream, packet: packet != 1)
    step = here.steps(2)[1]
    expected = new.copy()
    gone = 0
    for stream, packet in lost:
        places, values = sender.run_of(old, stream, packet)
        expected[places[:, 2], places[:, 1], places[:, 0]] = values if missing == "keep" else np.nan
        gone += len(values)
    assert step["missing"] == gone and step["received"] == step["expected"] - 3
    assert {(s["stream"], s["expected"] - s["received"]) for s in step["losses"]} == {(0, 1), (1, 2)}
    reader = here.reader()
    if volume == "live":
        for stream in range(2):
            places, values = sender.run_of(old, stream, 1)
            expected[places[:, 2], places[:, 1], places[:, 0]] = values
        here.until("all of the newest", lambda: np.array_equal(reader.volume(), expected, equal_nan=True))
    else:
        np.testing.assert_array_equal(reader.volume(), expected)
    assert here.stop()["streams"][1]["lost"] == 2


def test_only_complete_steps(recv):
    here = recv("--streams", 2, "--volume", "steps", "--complete")
    sender = Sender(here.ports, SHAPE, here.key).begin()
    first = field(SHAPE, 1)
    sender.send(first, 0)
    here.steps(1)
    sender.send(field(SHAPE, 2), 1, lose=lambda stream, packet: packet == 2)
    sender.send(field(SHAPE, 3), 2, lose=lambda stream, packet: packet != 0)
    steps = here.steps(2)
    reader = here.reader()
    assert [s["shown"] for s in steps[:2]] == [True, False] and reader.word(96) == 0
    np.testing.assert_array_equal(reader.volume(), first)
    third = field(SHAPE, 4)
    sender.send(third, 3)
    here.steps(4)
    np.testing.assert_array_equal(reader.volume(), third)


def test_duplicates_reordering_and_what_is_too_late(recv):
    here = recv("--streams", 2, "--volume", "steps")
    sender = Sender(here.ports, SHAPE, here.key).begin()
    values = [field(SHAPE, seed) for seed in range(4)]
    turned = list(reversed(range(sender.packets(0))))
    sender.send(values[0], 0, order=lambda todo: [(p, s) for p in turned for s in range(2)] + [(p, 0) for p in turned[1:5]])
    # The last packet sent completes a stream: later packets are too late or duplicates, and never used.
    here.steps(1)
    reader = here.reader()
    np.testing.assert_array_equal(reader.volume(), values[0])
    here.until("counted", lambda: reader.slab(0)["duplicate"] + reader.slab(0)["stale"] == 4)
    first = reader.slab(0)
    assert first["reordered"] == len(turned) - 1 and first["lost"] == 0
    # Packets of the step before that come with the next one still find their place.
    late = sender.datagram(values[1], 1, 0, 2)
    sender.send(values[1], 1, lose=lambda stream, packet: (stream, packet) == (0, 2))
    sender.send(values[2], 2, lose=lambda stream, packet: packet > 0)
    sender.raw(0, late)
    steps = here.steps(2)
    assert steps[1]["missing"] == 0
    before = reader.slab(0)["stale"]
    for datagram in sender.sent[0][:3]:
        sender.raw(0, datagram)
    here.until("counted", lambda: reader.slab(0)["stale"] == before + 3)
    assert here.stop()["lost"] == 0, "what the receiver itself cuts off is not lost"


def test_a_hostile_sender_on_the_same_ports(recv):
    here = recv("--streams", 2, "--volume", "steps")
    sender = Sender(here.ports, SHAPE, here.key).begin()
    values = field(SHAPE, 1)
    chaos, rejected = random.Random(7), 0
    good = [sender.datagram(values, 0, 0, packet) for packet in range(4)]
    other = Sender(here.ports, SHAPE, "a" * 52, session=sender.session)
    forged = [
        b"", b"\0", chaos.randbytes(7), chaos.randbytes(3000), chaos.randbytes(60_000),
        *(g[:cut] for g in good for cut in (8, 20, 24, len(g) - 1)),
        *(bytes([*g[:at], g[at] ^ 1, *g[at + 1:]]) for g in good for at in (0, 4, 9, len(g) - 1)),
        sender.datagram(values, 5, 1, 2),  # of another stream
        other.datagram(values, 0, 0, 1), other.hello_bytes(0), other.control(3, struct.pack("<QQ", sender.session, 0)),
        struct.pack("<II", 0, 0x80000000) + bytes(400), struct.pack("<II", 0xFFFFFFFF, 9), b"\xff" * 500,
    ]
    reader = here.reader()
    for datagram in forged:
        sender.raw(0, datagram)
        rejected += 1
    here.until("all refused", lambda: reader.slab(0)["rejected"] == rejected)
    sender.send(values, 0)
    here.steps(1)
    np.testing.assert_array_equal(reader.volume(), values)
    assert sender.hello(0)["accepted"] == 1, "the session lives"
    assert reader.slab(0)["rejected"] == rejected


def test_an_old_session_opens_nothing(recv):
    here = recv("--streams", 1, "--volume", "steps")
    old = Sender(here.ports, SHAPE, here.key)
    assert old.hello(0)["accepted"] == 0, "a hello without the challenge is not believed"
    recorded = old.hello_bytes(0)
    assert old.hello(0)["accepted"] == 1
    values = field(SHAPE, 1)
    old.send(values, 0)
    here.steps(1)
    new = Sender(here.ports, SHAPE, here.key).begin()
    reader = here.reader()
    before = reader.slab(0)["rejected"]
    # All of the old one again: its hellos, its packets. The new session stays.
    new.raw(0, recorded)
    for datagram in old.sent[0]:
        new.raw(0, datagram)
    here.until("refused", lambda: reader.slab(0)["rejected"] == before + len(old.sent[0]))
    assert old.hello(0)["accepted"] == 2
    newer = field(SHAPE, 2)
    new.send(newer, 0)
    here.steps(2)
    np.testing.assert_array_equal(reader.volume(), newer)


def test_late_start_and_a_sender_that_is_killed_and_started_again(recv):
    here = recv("--streams", 2, "--volume", "steps")
    # The receiver comes late: the first packets that it sees are of the middle of batch 70.
    sender = Sender(here.ports, SHAPE, here.key).begin()
    values = [field(SHAPE, seed) for seed in range(3)]
    sender.send(values[0], 70, lose=lambda stream, packet: packet < 5)
    sender.send(values[1], 71)
    steps = here.steps(2)
    assert [(s["batch"], s["missing"] > 0) for s in steps] == [(70, True), (71, False)]
    sender.send(values[2], 72, lose=lambda stream, packet: packet > 5)
    sender.close()
    # Killed; the next one counts from 0 again.
    again = Sender(here.ports, SHAPE, here.key).begin()
    steps = here.steps(3)
    assert steps[2]["batch"] == 72 and steps[2]["missing"] > 0
    again.send(values[2], 0)
    steps = here.steps(4)
    assert steps[3]["batch"] == 0 and steps[3]["missing"] == 0
    reader = here.reader()
    np.testing.assert_array_equal(reader.volume(), values[2])
    assert reader.closed == 4, "the same shared memory"


def test_another_shape_makes_another_file(recv):
    here = recv("--streams", 2)
    Sender(here.ports, SHAPE, here.key).begin().send(field(SHAPE, 1), 0)
    here.steps(1)
    old = here.reader()
    shape = (8, 8, 8)
    Sender(here.ports, shape, here.key).begin().send(values := field(shape, 2), 0)
    here.steps(2)
    assert old.word(112) == 2
    new = here.reader()
    assert new.word(112) == 1 and new.shape == shape
    np.testing.assert_array_equal(new.volume(), values)


def test_streams_that_fall_silent(recv):
    here = recv("--streams", 3, "--volume", "steps")
    sender = Sender(here.ports, SHAPE, here.key).begin()
    sender.send(field(SHAPE, 1), 0)
    here.steps(1)
    reader = here.reader()
    assert all(reader.slab(i)["open"] == 1 for i in range(3))
    # One stream is cut off; the live ones send hellos, as senders do, and steps close without it.
    deadline = time.monotonic() + 60
    while reader.slab(1)["open"] == 1:
        assert time.monotonic() < deadline
        assert sender.hello(0) and sender.hello(2)
        time.sleep(0.1)
    assert [reader.slab(i)["open"] for i in range(3)] == [1, 0, 1]
    sender.send(field(SHAPE, 2), 1, lose=lambda stream, packet: stream == 1)
    step = here.steps(2)[1]
    assert [s["stream"] for s in step["losses"]] == [1]
    sender.bye()
    here.until("all closed", lambda: not any(reader.slab(i)["open"] for i in range(3)))


def test_32_streams(recv):
    here = recv("--volume", "steps")
    assert len(here.ports) == 32
    shape = (24, 16, 64)
    sender = Sender(here.ports, shape, here.key, order="morton").begin()
    for batch in range(3):
        sender.send(values := field(shape, batch), batch)
    here.steps(3)
    reader = here.reader()
    np.testing.assert_array_equal(reader.volume(), values)
    assert all(reader.slab(i)["complete"] == 3 for i in range(32))


def test_a_plain_session_that_sends_is_not_replaced(recv):
    here = recv("--streams", 1, "--plain")
    first = Sender(here.ports, SHAPE).begin()
    first.send(field(SHAPE, 1), 0)
    second = Sender(here.ports, SHAPE)
    assert (second.hello(0)["accepted"], second.hello(0)["accepted"]) == (0, 2)
    # Its values, which have the first one's form, come from elsewhere.
    second.send(field(SHAPE, 2), 1)
    reader = here.reader()
    here.until("refused", lambda: reader.slab(0)["rejected"] == second.packets(0))
    first.bye()
    here.until("over", lambda: reader.slab(0)["open"] == 0)
    second.begin()


def test_a_plain_hello_takes_no_memory_before_its_address_is_proved(recv):
    here = recv("--streams", 1, "--plain")
    sender = Sender(here.ports, SHAPE)
    memory = pathlib.Path(f"/dev/shm/tidecast-field-{here.name}")
    assert sender.hello(0)["accepted"] == 0 and not memory.exists()
    assert sender.hello(0)["accepted"] == 1 and memory.exists()


def test_what_cannot_be_is_refused_and_said(recv, tide):
    here = recv("--streams", 16)
    assert Sender(here.ports[:1], SHAPE, here.key).begin(), "fewer streams than there may be"
    turned = Sender(here.ports[::-1], SHAPE, here.key)
    assert turned.hello(0)["accepted"] == 2
    huge = Sender(here.ports, (8, 8, 32), here.key)
    huge.shape = (65536, 16383, 32)  # 128 GiB
    huge.hello(0)
    assert huge.hello(0)["accepted"] == 2
    said = lambda: [e["message"] for e in here.proc.events() if e["event"] == "warning"]  # noqa: E731
    messages = here.until("warnings", lambda: len(said()) > 1 and said())
    assert "--streams" in messages[0] and "no space" in messages[1]
    # A name has one receiver.
    Sender(here.ports, SHAPE, here.key).begin()
    said = tide("field", "recv", "--listen", "127.0.0.1:0", "--name", here.name, code=1).err
    assert "another --name" in said
    assert tide("field", "recv", "--name", "a/b", code=2).err


def test_a_name_has_one_receiver_from_its_start_on(recv, tide):
    here = recv("--streams", 1)
    said = tide("field", "recv", "--listen", "127.0.0.1:0", "--name", here.name, code=1).err
    assert "another --name" in said and not pathlib.Path(f"/dev/shm/tidecast-field-{here.name}").exists()
    here.proc.signal(signal.SIGKILL)
    here.proc.process.wait()
    again = tide.run("--json", "field", "recv", "--listen", "127.0.0.1:0", "--name", here.name)
    again.until("it listens", lambda: '"started"' in again.out)
    again.signal(signal.SIGINT)
    again.exits(0)
    assert not list(pathlib.Path("/dev/shm").glob(f"*tidecast-field-{here.name}*"))


def test_the_key_is_kept_and_the_command_is_printed(tide):
    lines = []
    for _ in range(2):
        proc = tide.run("field", "recv", "--listen", "127.0.0.1:0", "--streams", 1, "--name", unique())
        lines.append(proc.until("a command", lambda: proc.out.split("\n")[0] if "\n" in proc.out else ""))
        proc.signal(signal.SIGTERM)
        proc.ok()
    words = lines[0].split()
    assert words[:4] == ["tidecast", "field", "send", "SOURCE"] and words[5].startswith("127.0.0.1:")
    assert words[-2:] == lines[1].split()[-2:], "the same key"
    keys = list(tide.home.rglob("field.key"))
    assert [f"@{key}" for key in keys] == words[-1:] and keys[0].stat().st_mode & 0o077 == 0
    assert keys[0].read_text().strip() not in proc.out + proc.err


def test_it_ends_after_so_many_steps(recv):
    here = recv("--streams", 1, "--steps", 2)
    sender = Sender(here.ports, SHAPE, here.key).begin()
    for batch in range(3):
        sender.send(field(SHAPE, batch), batch)
    here.proc.ok()
    assert here.proc.last("done")["steps"] == 2
    assert json.dumps(here.proc.last("done")["streams"])


def recorded(directory: pathlib.Path, count: int) -> bool:
    file = directory / "zarr.json"
    return file.exists() and json.loads(file.read_text())["shape"][0] == count


def test_a_recording_is_a_zarr_array_and_a_series(recv, tmp_path):
    directory = tmp_path / "run"
    volumes = [field(SHAPE, seed) for seed in range(5)]
    # The second receiver continues where the first one ended.
    for part in (volumes[:3], volumes[3:]):
        here = recv("--streams", 2, "--record", directory)
        sender = Sender(here.ports, SHAPE, here.key, first_step=7).begin()
        before = 3 if (directory / "zarr.json").exists() else 0
        for batch, values in enumerate(part):
            sender.send(values, batch)
            here.until("recorded", lambda: recorded(directory, before + batch + 1))  # noqa: B023
        done = here.stop()
        assert (done["recorded"], done["skipped"]) == (len(part), 0)
    array = zarr.open_array(directory, mode="r")
    assert array.shape == (5, *SHAPE[::-1]) and array.dtype == "float32" and array.metadata.dimension_names == ("step", "z", "y", "x")
    np.testing.assert_array_equal(array[:], np.stack(volumes))
    assert array.attrs["steps"] == [7, 8, 9, 7, 8]
    # The series names each step's file, with a shape that its size has.
    grids = ElementTree.parse(directory / "series.xdmf").findall("./Domain/Grid/Grid")
    assert [grid.find("Time").get("Value") for grid in grids] == ["0", "1", "2", "3", "4"]
    for grid, values in zip(grids, volumes, strict=True):
        end = 0
        for slab in grid.findall("Grid"):
            item = slab.find("Attribute/DataItem")
            assert (item.get("NumberType"), item.get("Precision"), item.get("Endian"), item.get("Format")) == ("Float", "4", "Little", "Binary")
            shape = [int(n) for n in item.get("Dimensions").split()]
            data = np.fromfile(directory / item.text, "<f4", count=np.prod(shape), offset=int(item.get("Seek"))).reshape(shape)
            first = int(slab.find("Geometry/DataItem").text.split()[0])
            # Each shares a plane with the next.
            assert first == max(0, end - 1)
            end = first + len(data)
            np.testing.assert_array_equal(data, values[first:end])
        assert end == len(values)
    lines = [json.loads(line) for line in (directory / "steps.jsonl").read_text().splitlines()]
    assert [(line["index"], line["step"], line["missing"]) for line in lines] == [(i, s, 0) for i, s in enumerate([7, 8, 9, 7, 8])]
    assert [(line["min"], line["max"]) for line in lines] == [(float(v.min()), float(v.max())) for v in volumes]
    assert not list(directory.rglob("*.part"))


def sleeps(process: int) -> bool:
    """Whether all threads of a process wait, or are held."""
    states = (path.read_text().rpartition(")")[2].split()[0] for path in pathlib.Path(f"/proc/{process}/task").glob("*/stat"))
    return all(state in "St" for state in states)


@contextlib.contextmanager
def held(thread: int):
    """The thread stands still, as one that waits for a disk, and continues at the end."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    seize, interrupt, detach, of_any_kind = 0x4206, 0x4207, 17, 0x40000000
    for request in (seize, interrupt):
        assert ptrace(request, thread, None, None) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(thread, of_any_kind)
    try:
        yield
    finally:
        ptrace(detach, thread, None, None)


def threads(process: int, name: str) -> list[int]:
    return sorted(int(path.parent.name) for path in pathlib.Path(f"/proc/{process}/task").glob("*/comm") if path.read_text().strip() == name)


def test_steps_wait_while_the_disk_is_busy(recv, tmp_path):
    directory = tmp_path / "run"
    here = recv("--streams", 2, "--record", directory)
    # The second writes what the first has copied.
    writer = here.until("both threads", lambda: threads(here.proc.process.pid, "recorder")[1:])[0]
    sender = Sender(here.ports, SHAPE, here.key).begin()
    volumes = [field(SHAPE, seed) for seed in range(6)]
    with held(writer):
        for batch, values in enumerate(volumes):
            sender.send(values, batch)
            here.until("the step is whole", lambda: here.proc.out.count('"event":"step"') == batch + 1)  # noqa: B023
            # So it has been copied, too, before another takes its place in the volume.
            here.until("no thread has anything to do", lambda: sleeps(here.proc.process.pid))
        assert not (directory / "c").exists()
    done = here.stop()
    assert (done["recorded"], done["skipped"]) == (6, 0)
    np.testing.assert_array_equal(zarr.open_array(directory, mode="r")[:], np.stack(volumes))


def test_small_steps_that_follow_each_other_closely_are_all_recorded(recv, tide, tmp_path):
    here = recv("--streams", 1, "--record", tmp_path / "run")
    tide("field", "send", "demo:gray-scott:8", "--to", f"127.0.0.1:{here.ports[0]}", "--streams", 1, "--key", here.key, "--steps", "0:1500",
         "--rate", "100mbit")
    done = here.stop()
    # What the network has lost was not received.
    assert done["recorded"] == done["steps"] > 0 and done["skipped"] == 0


def test_a_full_disk_ends_the_recording_and_nothing_else(recv, tmp_path):
    if os.geteuid():
        pytest.skip("SKIPPED: to mount a small disk needs root")
    directory = tmp_path / "small"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", directory], check=True)
    try:
        here = recv("--streams", 2, "--record", directory)
        sender = Sender(here.ports, SHAPE, here.key).begin()
        for batch in range(8):
            sender.send(values := field(SHAPE, batch), batch)
            here.steps(batch + 1)
        warning = here.until("a word", lambda: [e["message"] for e in here.proc.events() if e["event"] == "warning"])[0]
        assert "recording" in warning and "No space left" in warning
        np.testing.assert_array_equal(here.reader().volume(), values)
        error = here.stop(code=1)
        assert error["recorded"] < 8 and "No space left" in error["message"]
        assert zarr.open_array(directory, mode="r").shape[0] < 8
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


def test_another_recording_is_not_written_over(recv, tmp_path):
    for shape, warned in ((SHAPE, False), ((8, 8, 8), True)):
        here = recv("--streams", 2, "--record", tmp_path)
        Sender(here.ports, shape, here.key).begin().send(field(shape, 1), 0)
        here.steps(1)
        if warned:
            here.until("a word", lambda: [e for e in here.proc.events() if e["event"] == "warning" and "another" in e["message"]])
        here.stop(code=int(warned))
    assert zarr.open_array(tmp_path, mode="r").shape == (1, *SHAPE[::-1])


def test_where_nothing_can_be_recorded_is_said_at_once(tide, tmp_path):
    (tmp_path / "file").write_text("")
    zarr.open_group(tmp_path / "v3", mode="w")
    zarr.open_group(tmp_path / "v2", mode="w", zarr_format=2)
    zarr.save_array(tmp_path / "array", np.zeros((2, 3)))
    for place, said in {"file": "Not a directory", "file/run": "Not a directory", "v3": "a Zarr group", "v2": "version 2",
                        "array": "a Zarr array that is not a recording"}.items():
        proc = tide("--json", "field", "recv", "--listen", "127.0.0.1:0", "--name", unique(), "--record", tmp_path / place, code=1)
        message = proc.last("error")["message"]
        assert said in message and str(tmp_path / place) in message and "shape" not in message


def test_a_flood_of_refused_hellos_is_a_few_lines(recv):
    here = recv("--streams", 2, "--plain")
    for number in range(2000):
        crowd = Sender(here.ports * 2, (8, 8, 8 + number % 50), session=number + 1)
        crowd.raw(number % 2, crowd.hello_bytes(number % 2).replace(b"made by hand", b"%12d" % number))
        crowd.close()
    assert Sender(here.ports, SHAPE).begin(), "others are served"
    said = [e["message"] for e in here.proc.events() if e["event"] == "warning"]
    assert 1 <= len(said) < 20 and "--streams" in said[0], said
