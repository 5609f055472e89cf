"""Limits before authentication: 2,300 unproven connections of one address block no other client of any listener, and cost little
memory. The bound on time: twice the time without them, or a second more if that is very short."""
import json
import os
import pathlib
import random
import resource
import socket
import statistics
import struct
import sys
import threading
import time
import urllib.request

import pytest
from support import hostile, trees
from support.callers import NOBODY, passable
from support.daemons import Host
from support.fieldpeer import Sender, forget, unique
from support.hostile import BITTORRENT, CLIENT_HELLO, Flood
from support.tidecast import wait_for

MEMORY = 64 << 20
PREFIXES = pytest.mark.parametrize("prefix", [b"", CLIENT_HELLO], ids=["silent", "clienthello"])


def resident(pid: int) -> int:
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("it is gone")


def timed(work) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def withstand(start, pid: int, to, work, prefix: bytes = b"", tries: int = 3, **words) -> None:
    """Whether `work()` takes about as long during a flood as before, and the process grows by little."""
    before = statistics.median(timed(work) for _ in range(tries))
    memory = resident(pid)
    with Flood(start, to, prefix, **words) as flood:
        during = statistics.median(timed(work) for _ in range(tries))
        grown = resident(pid) - memory
        flood.proc.until("it goes on", lambda: flood.proc.process.poll() is None)
    assert during < max(2 * before, before + 1), f"{before:.2f} s alone, {during:.2f} s in the flood"
    assert grown < MEMORY, f"{grown >> 20} MiB more"
    print(f"before {before:.3f} s, during {during:.3f} s, {grown / (1 << 20):.1f} MiB")


@pytest.fixture
def data(tmp_path):
    return trees.blob(tmp_path / "source/data", 1 << 20)


def getter(tide, what, tmp_path, *words):
    """Gets it to a new place, as a new node."""
    places = iter(range(1000))

    def get():
        n = next(places)
        tide("get", what, "--to", tmp_path / f"got{n}", "--state-dir", tmp_path / f"state{n}", *words)
    return get


@pytest.mark.alone
@PREFIXES
def test_a_share_is_open_to_ticket_holders(tide, start, port, data, tmp_path, prefix):
    at = port()
    proc, ticket = tide.share(data, f"127.0.0.1:{at}")
    withstand(start, proc.process.pid, ["127.0.0.1", at], getter(tide, ticket, tmp_path), prefix)


@pytest.mark.alone
def test_a_share_is_open_to_a_ticket_holder_at_the_address_of_the_flood(tide, start, port, data, tmp_path):
    at = port()
    proc, ticket = tide.share(data, f"127.0.0.1:{at}")
    get = getter(tide, ticket, tmp_path)
    with Flood(start, ["127.0.0.1", at], CLIENT_HELLO, source="127.0.0.1"):
        assert timed(get) < 20


@pytest.mark.alone
def test_descriptors_that_run_out_keep_nobody_out(tide, start, port, data, tmp_path):
    """Unproven connections give theirs back."""
    at = port()
    proc, ticket = tide.share(data, f"127.0.0.1:{at}")
    get = getter(tide, ticket, tmp_path)
    get()
    used = max(int(fd.name) for fd in pathlib.Path(f"/proc/{proc.process.pid}/fd").iterdir())
    hard = resource.prlimit(proc.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(proc.process.pid, resource.RLIMIT_NOFILE, (used + 24, hard))
    with Flood(start, ["127.0.0.1", at], CLIENT_HELLO):
        assert timed(get) < 20


@pytest.mark.alone
def test_a_seeder_in_the_open_is_open(tide, start, port, data, tmp_path):
    at = port()
    manifest = tide.publish(data, tmp_path / "t.torrent")
    proc = tide.seed(manifest, data, f"127.0.0.1:{at}")
    get = getter(tide, manifest, tmp_path, "--peer", f"127.0.0.1:{at}")
    withstand(start, proc.process.pid, ["127.0.0.1", at], get, BITTORRENT)


@pytest.mark.alone
@PREFIXES
def test_a_daemon_is_open_to_daemons(site, start, data, tmp_path, prefix):
    origin, node = site.host("head"), site.host("node1")
    origin.create("own", data)
    host, _, at = origin.listen.rpartition(":")
    numbers = iter(range(1000))

    def bring():
        # An existing channel does not test the listener.
        name = f"data{next(numbers)}"
        origin.create(name, data)
        node.daemon.kill()
        node.serve()
        node.cache("get", f"head/{name}")
    withstand(start, origin.daemon.process.pid, [host, int(at)], bring, prefix)


def listening(pid: int) -> list[int]:
    """The TCP ports at which a process listens."""
    own = {os.readlink(fd) for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir() if os.path.islink(fd)}
    found = set()
    for table in ("tcp", "tcp6"):
        for fields in map(str.split, pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]):
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in own:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return sorted(found)


@pytest.mark.alone
def test_a_coordinator_is_open_to_its_workers(tide, start, data, tmp_path, launcher):
    """All its listeners: of the control channel and of data."""
    def bcast(name: str, flooded: bool) -> tuple[float, int]:
        go = tmp_path / f"go-{name}"
        launch = launcher(f"until [ -e {go} ]; do sleep 0.05; done")
        proc = tide.run("bcast", data, "--to", tmp_path / name / "{host}", "--hosts", "h[1-4]", "--launch", launch, "--json")
        proc.until("it listens", lambda: listening(proc.process.pid))
        ports, memory, grown = listening(proc.process.pid), resident(proc.process.pid), 0
        floods = [Flood(start, ["127.0.0.1", at], CLIENT_HELLO) for at in ports if flooded]
        for flood in floods:
            flood.__enter__()
        began = time.monotonic()
        go.touch()
        while proc.process.poll() is None and time.monotonic() < began + 60:
            try:
                grown = max(grown, resident(proc.process.pid) - memory)
            except (OSError, AssertionError):
                break
            time.sleep(0.02)
        proc.ok()
        took = time.monotonic() - began
        for flood in floods:
            flood.__exit__()
        return took, grown

    (before, usual), (during, grown) = bcast("calm", False), bcast("flooded", True)
    assert during < max(2 * before, before + 2), f"{before:.2f} s alone, {during:.2f} s in the flood"
    assert grown < usual + MEMORY
    print(f"before {before:.3f} s, during {during:.3f} s, {(grown - usual) / (1 << 20):.1f} MiB")


@pytest.mark.alone
def test_rank_0_is_open_to_its_ranks(package, start, port):
    env = {"PYTHONPATH": package["PYTHONPATH"]}
    script = pathlib.Path(__file__).with_name("rank.py")

    def meet(flooded: bool) -> tuple[float, int]:
        at = port()
        rank = [start([sys.executable, script, f"127.0.0.1:{at}/0/2", "100000@0"], env=env)]
        rank[0].until("it listens", lambda: at in listening(rank[0].process.pid))
        memory, flood = resident(rank[0].process.pid), None
        if flooded:
            flood = Flood(start, ["127.0.0.1", at], CLIENT_HELLO).__enter__()
        grown = resident(rank[0].process.pid) - memory
        began = time.monotonic()
        rank.append(start([sys.executable, script, f"127.0.0.1:{at}/1/2", "100000@0"], env=env))
        for proc in reversed(rank):
            proc.ok()
        took = time.monotonic() - began
        if flood:
            flood.__exit__()
        assert all(step["ok"] for proc in rank for step in proc.events() if "step" in step)
        return took, grown

    meet(False)
    (before, _), (during, grown) = meet(False), meet(True)
    assert during < max(2 * before, before + 1), f"{before:.2f} s alone, {during:.2f} s in the flood"
    assert grown < MEMORY
    print(f"before {before:.3f} s, during {during:.3f} s, {grown / (1 << 20):.1f} MiB")


@pytest.mark.alone
@pytest.mark.parametrize("prefix", [b"", b"GET /announce?info_hash=aaaa"], ids=["silent", "head"])
def test_a_tracker_is_open(tide, start, port, prefix):
    at = port()
    proc = tide.run("tracker", "--listen", f"127.0.0.1:{at}")
    tide.wait_listening(proc, f"127.0.0.1:{at}")
    url = f"http://127.0.0.1:{at}/announce?info_hash={'a' * 20}&peer_id={'b' * 20}&port=7000&left=1"

    def announce():
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert b"interval" in answer.read()
    withstand(start, proc.process.pid, ["127.0.0.1", at], announce, prefix, tries=9)


@pytest.mark.alone
@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: becoming another user needs root")
@pytest.mark.parametrize("prefix", [b"", b"GET /v1/daemon HTTP/1.1\r\nhost"], ids=["silent", "head"])
def test_one_user_keeps_no_other_from_the_daemon(built, tmp_path, start, prefix):
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    host.serve()
    passable(host.home)
    os.chmod(host.socket, 0o666)

    def ask():
        assert host.http("GET", "/v1/daemon")[0] == 200
    withstand(start, host.daemon.process.pid, str(host.socket), ask, prefix, tries=9, user=NOBODY)


@pytest.mark.alone
def test_a_ticket_holder_far_away_gets_in_during_floods_of_its_own_site(lab, node, start, data, tmp_path):
    """A round trip of 300 ms, 1 % of packets lost, and floods from an adjacent node and from its own address."""
    lab("up", "bordeaux:1,2@20mbit,delay=150ms,loss=1%")
    home, far = node("home", lab, 0), node("far", lab, 1)
    address = lab.address(0)
    proc, ticket = home.share(data, f"{address}:7000")
    floods = []
    for place, silent in ((2, 2000), (1, 200)):
        script = pathlib.Path(hostile.__file__).with_name("flood.py")
        words = {"to": [address, 7000], "prefix": CLIENT_HELLO.hex(), "silent": silent, "trickling": silent // 10}
        floods.append(start(lab.on(place, sys.executable, script, json.dumps(words)), env=lab.env))
    for flood in floods:
        flood.until("the flood is there", lambda flood=flood: flood.out.count("up ") > 2)
    assert timed(getter(far, ticket, tmp_path)) < 60


def test_a_handshake_has_one_deadline_and_little_of_it_is_read(tide, port, data):
    at = port()
    tide.share(data, f"127.0.0.1:{at}")
    with socket.create_connection(("127.0.0.1", at)) as peer:
        peer.settimeout(30)
        began = time.monotonic()
        with pytest.raises(OSError) as ended:
            # A byte a second keeps no connection open.
            for byte in CLIENT_HELLO + bytes(40):
                peer.send(bytes([byte]))
                peer.settimeout(1)
                try:
                    if not peer.recv(1):
                        raise OSError("closed")
                except TimeoutError:
                    pass
        assert "timed out" not in str(ended.value)
        assert 5 < time.monotonic() - began < 20
    with socket.create_connection(("127.0.0.1", at)) as peer:
        peer.settimeout(30)
        # A handshake message of 4 MiB, in records of 16 KiB, as fast as it is taken.
        record = bytes.fromhex("160301 4000".replace(" ", ""))
        sent = 0
        with pytest.raises(OSError):
            peer.sendall(record + bytes.fromhex("01400000") + bytes(0x4000 - 4))
            while sent < 64 << 20:
                sent += peer.send(record + bytes(0x4000))
        assert sent < 16 << 20, "only what the kernel's buffers hold"



class Datagrams:
    """Sends 4,000 a second from another address, in a thread: the test measures the memory for them, not the link's rate."""

    def __init__(self, port: int, make):
        self.stopped, self.sent = threading.Event(), 0
        self.port, self.make = port, make
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as out:
            out.bind(("127.0.0.9", 0))
            while not self.stopped.is_set():
                for _ in range(200):
                    out.sendto(self.make(), ("127.0.0.1", self.port))
                self.sent += 200
                self.stopped.wait(0.05)

    def __enter__(self) -> "Datagrams":
        self.thread.start()
        wait_for("the flood is there", lambda: self.sent >= 20_000)
        return self

    def __exit__(self, *_) -> None:
        self.stopped.set()
        self.thread.join()


def test_a_tracker_keeps_nothing_of_datagrams_that_prove_no_address(tide, port):
    at = port()
    proc = tide.run("tracker", "--listen", f"127.0.0.1:{at}")
    tide.wait_listening(proc, f"127.0.0.1:{at}")

    def exchange(out, packet: bytes) -> bytes:
        for _ in range(20):
            out.sendto(packet, ("127.0.0.1", at))
            try:
                return out.recv(4096)
            except TimeoutError:
                continue
        raise AssertionError("no answer")

    def announce() -> None:
        with socket.socket(type=socket.SOCK_DGRAM) as out:
            out.settimeout(1)
            connection = exchange(out, struct.pack(">QII", 0x41727101980, 0, 7))[8:]
            answer = exchange(out, connection + struct.pack(">II20s20sQQQIIIiH", 1, 8, b"a" * 20, b"b" * 20, 0, 1, 0, 2, 0, 0, -1, 7000))
            assert struct.unpack(">II", answer[:8]) == (1, 8)

    announce()
    memory = resident(proc.process.pid)
    # Half of them ask for a connection id, half have made one up.
    def forged() -> bytes:
        head = struct.pack(">QII", 0x41727101980, 0, 1) if random.random() < 0.5 else struct.pack(">QII", random.getrandbits(64), 1, 1)
        return head + bytes(82)

    with Datagrams(at, forged):
        assert timed(announce) < 20
        assert resident(proc.process.pid) - memory < MEMORY


def test_a_receiver_of_fields_keeps_nothing_of_hellos_that_prove_nothing(tide):
    name = unique()
    proc = tide.run("--json", "field", "recv", "--listen", "127.0.0.1:0", "--streams", 1, "--name", name)
    try:
        started = proc.until("it listens", lambda: [e for e in proc.events() if e["event"] == "started"])[0]
        words = started["send"].split()
        key = pathlib.Path(words[words.index("--key") + 1][1:]).read_text().strip()
        shape, at = (20, 12, 16), started["ports"][0]
        memory = resident(proc.process.pid)
        # Some with no tag that is right, some that know the key and do not return the challenge, each of a session of its own.
        stranger = Sender(started["ports"], shape, None)
        replayer = Sender(started["ports"], (64, 64, 64), key)

        def hello() -> bytes:
            sender = random.choice([stranger, replayer])
            sender.session = random.getrandbits(64)
            return sender.hello_bytes(0)

        made = [hello() for _ in range(2000)]
        with Datagrams(at, lambda: random.choice(made)):
            assert timed(lambda: Sender(started["ports"], shape, key).begin(40).close()) < 20
            assert resident(proc.process.pid) - memory < MEMORY
        sessions = [e for e in proc.events() if e["event"] == "session"]
        assert len(sessions) <= 1, sessions
    finally:
        proc.kill()
        forget(name)
