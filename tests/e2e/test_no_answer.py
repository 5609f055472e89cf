"""A peer that does not answer is named, with the reason, while the command waits and in its last line."""
import contextlib
import hashlib
import os
import re
import signal
import socket
import struct
import subprocess
import threading

import pytest
from support import clients, hostile
from support.mounts import why_not
from support.trees import blob

#: A magnet link of nothing that anybody has.
NOWHERE = "magnet:?xt=urn:btmh:1220" + "5a" * 32


@contextlib.contextmanager
def refusing(port):
    """An address where no process listens."""
    yield f"127.0.0.1:{port()}", "connection refused"


@contextlib.contextmanager
def dropping(port):
    """An address that takes no connection and sends no reset, as behind a firewall: its queue of connections is full."""
    address = ("127.0.0.1", port())
    with socket.socket() as full, contextlib.ExitStack() as queued:
        full.bind(address)
        full.listen(0)
        for _ in range(4):
            waiting = queued.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield "%s:%d" % address, "no answer in 3 s"


@contextlib.contextmanager
def silent(port):
    """A process that accepts connections and never sends anything."""
    address = ("127.0.0.1", port())
    with socket.create_server(address):
        yield "%s:%d" % address, "no answer to the handshake in 3 s"


@contextlib.contextmanager
def closing(port):
    """A process that closes each connection at once."""
    address = ("127.0.0.1", port())
    server = subprocess.Popen(["python3", "-c", f"import socket\ns = socket.create_server({address!r})\nwhile True: s.accept()[0].close()"])
    try:
        while subprocess.run(["python3", "-c", f"import socket; socket.create_connection({address!r})"], capture_output=True).returncode:
            pass
        yield "%s:%d" % address, "it closed the connection before its handshake"
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def another(port):
    """A process that greets in another protocol, as sshd does."""
    address = ("127.0.0.1", port())
    greet = f"import socket\ns = socket.create_server({address!r})\nall = []\nwhile True:\n c = s.accept()[0]\n all.append(c)\n c.send(b'SSH-2.0-x\\r\\n')"
    server = subprocess.Popen(["python3", "-c", greet])
    try:
        while subprocess.run(["python3", "-c", f"import socket; socket.create_connection({address!r})"], capture_output=True).returncode:
            pass
        yield "%s:%d" % address, "it does not speak BitTorrent: another program listens there"
    finally:
        server.kill()
        server.wait()


def warned(proc, of: str) -> list[dict]:
    return [e for e in proc.events() if e["event"] == "warning" and e.get("peer") == of]


@pytest.mark.parametrize("kind", [refusing, dropping, silent, closing, another])
@pytest.mark.parametrize("source", ["manifest", "magnet"])
def test_a_get_says_which_address_does_not_answer_and_why(tide, port, tmp_path, kind, source):
    if source == "manifest":
        source = tide.publish(blob(tmp_path / "data", 100_000), tmp_path / "t.torrent", "--plain")
    else:
        source = NOWHERE
    with kind(port) as (peer, why):
        get = ("get", source, "--plain", "--no-lsd", "--peer", peer)
        words = tide.run(*get, "--to", tmp_path / "words")
        events = tide.run("--json", *get, "--to", tmp_path / "events")
        words.until("a line of the peer", lambda: f"warning: peer {peer}: {why}" in words.err)
        events.until("an event of the peer", lambda: warned(events, peer))
        for proc in (words, events):
            proc.signal(signal.SIGINT)
            proc.exits(3)
    [event] = warned(events, peer)
    assert why in event["reason"] and event["message"] == f"peer {peer}: {event['reason']}"
    last = events.last("error")["message"]
    assert "interrupted" in last and peer in last and why in last, last
    last = words.err.strip().splitlines()[-1]
    assert last.startswith("tidecast: interrupted") and peer in last and why in last, last


@pytest.mark.parametrize("source", ["manifest", "magnet"])
def test_a_timeout_names_the_peer_even_before_it_is_known_to_be_silent(tide, port, tmp_path, source):
    if source == "manifest":
        source = tide.publish(blob(tmp_path / "data", 100_000), tmp_path / "t.torrent", "--plain")
    else:
        source = NOWHERE
    with dropping(port) as (peer, _):
        get = tide("get", source, "--plain", "--no-lsd", "--peer", peer, "--to", tmp_path / "to", "--timeout", "1s", code=3)
    assert f"peer {peer} did not answer" in get.err, get.story()


@contextlib.contextmanager
def full(family, address):
    """A port of this address that takes no connection and sends no reset."""
    with socket.socket(family) as listening, contextlib.ExitStack() as queued:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(0)
        for _ in range(4):
            waiting = queued.enter_context(socket.socket(family))
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield


@pytest.mark.parametrize("source", ["manifest", "magnet"])
def test_all_addresses_of_a_name_are_told_in_time(tide, port, tmp_path, source):
    """The second dead address does not wait until the first is given up, after 5 s."""
    families = {info[0] for info in socket.getaddrinfo("localhost", 1, type=socket.SOCK_STREAM)}
    if families != {socket.AF_INET, socket.AF_INET6}:
        pytest.skip("localhost has no address of each family here")
    if source == "manifest":
        source = tide.publish(blob(tmp_path / "data", 100_000), tmp_path / "t.torrent", "--plain")
    else:
        source = NOWHERE
    number = port()
    peers = {f"127.0.0.1:{number}", f"[::1]:{number}"}
    with full(socket.AF_INET, ("127.0.0.1", number)), full(socket.AF_INET6, ("::1", number)):
        get = ("get", source, "--plain", "--no-lsd", "--peer", f"localhost:{number}", "--timeout", "6s")
        events = tide.run("--json", *get, "--to", tmp_path / "events")
        words = tide.run(*get, "--to", tmp_path / "words")
        for proc in (events, words):
            proc.exits(3)
    told = [e for e in events.events() if e["event"] == "warning" and "peer" in e]
    assert {e["peer"] for e in told} == peers and {e["reason"] for e in told} == {"no answer in 3 s"}, told
    assert all(f"warning: peer {peer}: no answer in 3 s" in words.err for peer in peers), words.story()


def test_an_address_that_fails_for_long_is_named_once_and_counted(tide, port, tmp_path):
    with refusing(port) as (peer, why):
        get = tide("get", NOWHERE, "--plain", "--no-lsd", "--peer", peer, "--to", tmp_path / "to", "--timeout", "4s", code=3)
    [first, counted] = [line for line in get.err.splitlines() if "warning" in line and peer in line]
    assert why in first and "(repeated " in counted, get.story()


def test_a_peer_that_fails_beside_one_that_serves_is_not_spoken_of(tide, port, tmp_path):
    data = blob(tmp_path / "data", 100_000)
    torrent = tide.publish(data, tmp_path / "t.torrent", "--plain")
    here = f"127.0.0.1:{port()}"
    tide.seed(torrent, data, here, "--plain", "--no-lsd")
    with refusing(port) as (dead, _):
        get = tide("get", torrent, "--plain", "--no-lsd", "--peer", dead, "--peer", here, "--to", tmp_path / "to")
    assert dead not in get.err, get.story()


def test_a_name_without_an_address_is_named(tide, tmp_path):
    get = tide("get", NOWHERE, "--plain", "--no-lsd", "--peer", "no-such-host.invalid:6881", "--to", tmp_path / "to", "--timeout", "1s", code=3)
    last = get.err.strip().splitlines()[-1]
    assert "no-such-host.invalid:6881: left out" in last, get.story()


def test_a_peer_of_another_owner_or_of_none_is_told_apart(tide, port, tmp_path):
    """Recreated shares, shares of others, and an open one: none of them is the one of the ticket."""
    data = blob(tmp_path / "data", 100_000)
    at = f"127.0.0.1:{port()}"
    share, ticket = tide.share(data, at, "--no-lsd")
    share.kill()
    (tmp_path / "ticket").write_text(ticket)
    other, _ = tide.share(blob(tmp_path / "other", 1000, 1), at, "--no-lsd")
    get = tide("get", f"@{tmp_path}/ticket", "--to", tmp_path / "to", "--no-lsd", "--timeout", "4s", code=3)
    assert f"peer {at}: " in get.err.strip().splitlines()[-1], get.story()
    other.kill()
    _, _ = tide.share(data, at, "--no-lsd", "--plain")
    get = tide("get", f"@{tmp_path}/ticket", "--to", tmp_path / "to", "--no-lsd", "--timeout", "4s", code=3)
    assert f"peer {at}: TLS" in get.err.strip().splitlines()[-1], get.story()


@pytest.mark.parametrize("command", ["mount", "run"])
def test_a_mount_that_waits_says_why_and_ends_with_its_server(tide, port, tmp_path, command):
    if why := why_not():
        pytest.skip(why)
    with dropping(port) as (peer, why):
        words = [command, NOWHERE, "--plain", "--no-lsd", "--peer", peer, "--cache", tmp_path / "cache"]
        words += [tmp_path / "at"] if command == "mount" else ["--at", tmp_path / "at", "--", "true"]
        if command == "mount":
            words = [command, *words[2:-1], NOWHERE, tmp_path / "at"]
        proc = tide.run(*words)
        proc.until("a line of the peer", lambda: f"peer {peer}: {why}" in proc.err, 30)
        proc.signal(signal.SIGINT)
        proc.exits(3, 30)
    last = proc.err.strip().splitlines()[-1]
    assert "interrupted" in last and peer in last and why in last, last
    found = subprocess.run(["pgrep", "-f", str(tmp_path / "cache")], capture_output=True, text=True).stdout
    assert not found, "its server went with it"


@pytest.mark.parametrize("kind", [refusing, dropping])
@pytest.mark.parametrize("command", ["mount", "run"])
def test_a_mount_says_so_too_where_its_manifest_is_at_hand(tide, port, tmp_path, command, kind):
    """It mounts nevertheless: reads wait, and the peer may start later."""
    if why := why_not():
        pytest.skip(why)
    blob(tmp_path / "tree" / "file", 1000, 1)
    tide("publish", tmp_path / "tree", "-o", tmp_path / "m", "--plain")
    at = tmp_path / "at"
    at.mkdir()
    with kind(port) as (peer, why):
        words = ["--plain", "--no-lsd", "--peer", peer, "--cache", tmp_path / "cache"]
        words = ["mount", *words, tmp_path / "m", at] if command == "mount" else ["run", tmp_path / "m", *words, "--at", at, "--", "ls", at]
        try:
            proc = tide(*words)
            assert proc.err.count(f"no peer answers; reads wait until one does: peer {peer}: {why}") == 1, proc.story()
        finally:
            subprocess.run(["umount", "-l", at], capture_output=True)


class Mute(hostile.Hostile):
    """Has everything, takes requests, and gives nothing until it is `told`."""

    def __init__(self, ip: str, port: int, data: bytes, piece: int):
        self.told, self.data, self.piece = threading.Event(), data, piece
        super().__init__(ip, port)

    def on_request(self, peer, piece, begin, length):
        self.told.wait(60)
        at = piece * self.piece + begin
        hostile.send(peer, hostile.PIECE, struct.pack(">II", piece, begin) + self.data[at:at + length])


def test_a_get_says_since_when_no_byte_has_come(start, tide, port, tmp_path):
    data = blob(tmp_path / "data", 200_000)
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, "v1")
    piece = re.search(rb"12:piece lengthi(\d+)e", torrent.read_bytes())
    with Mute("127.0.0.3", port(), data.read_bytes(), int(piece[1])) as mute:
        words = ("get", torrent, "--plain", "--no-lsd", "--peer", mute.address, "--to")
        get = tide.run(*words, tmp_path / "a")
        get.until("a word on the silence", lambda: "no data for 5 s, since" in get.err)
        get.signal(signal.SIGINT)
        last = get.exits(3).err.strip().splitlines()[-1]
        assert "interrupted" in last and "no data for" in last and mute.address in last, last
        get = tide.run("--json", *words, tmp_path / "b")
        told = get.until("an event of the silence", lambda: [e for e in get.events() if e.get("sending") is False])
        mute.told.set()
        get.exits(0)
    assert told[0]["peers"] == [mute.address] and told[0]["silent_seconds"] >= 5


def test_a_share_says_since_when_a_peer_takes_nothing(start, tide, port, tmp_path):
    data = blob(tmp_path / "data", 32 << 20)
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, "v1")
    at = f"127.0.0.1:{port()}"
    seed = tide.seed(torrent, data, at, "--plain", "--no-lsd")
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 10)
        peer.connect(("127.0.0.1", int(at.split(":")[1])))
        peer.settimeout(60)
        infohash = hashlib.sha1(info_of(torrent)).digest()
        peer.sendall(b"\x13BitTorrent protocol" + bytes(5) + b"\x10\0\0" + infohash + b"-XX0000-takesnothing")
        hostile.exactly(peer, 68)
        hostile.send(peer, hostile.INTERESTED)
        length = int(re.search(rb"12:piece lengthi(\d+)e", torrent.read_bytes())[1])
        # It serves checked pieces, and drops other requests silently.
        had, unchoked = set(), False
        while not unchoked or len(had) * length < 32 << 20:
            kind, body = hostile.receive(peer)
            unchoked = unchoked or kind == hostile.UNCHOKE
            if kind == hostile.HAVE:
                had.add(struct.unpack(">I", body)[0])
            elif kind == hostile.BITFIELD:
                had |= {8 * at + bit for at, byte in enumerate(body) for bit in range(8) if byte & 0x80 >> bit}
        for block in range(200):
            piece, begin = divmod(block * 16384, length)
            hostile.send(peer, hostile.REQUEST, struct.pack(">III", piece, begin, 16384))
        mine = "%s:%d" % peer.getsockname()
        seed.until("a word on the peer", lambda: f"peer {mine} received no data for 5 s, since" in seed.err)


def info_of(torrent) -> bytes:
    """The info dictionary as it is in a manifest of one file, whose last key it is or is followed by others."""
    whole = torrent.read_bytes()
    at = whole.index(b"4:info") + 6
    return whole[at:at + bencoded(whole[at:])]


def bencoded(text: bytes) -> int:
    """How long the first value is."""
    kind = text[:1]
    if kind == b"i":
        return text.index(b"e") + 1
    if kind in b"ld":
        at = 1
        while text[at:at + 1] != b"e":
            at += bencoded(text[at:])
        return at + 1
    digits = text.index(b":")
    return digits + 1 + int(text[:digits])


def test_a_worker_that_cannot_call_back_says_which_addresses_it_tried(tide, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("SKIPPED: a network namespace needs root")
    data = blob(tmp_path / "data", 100)
    apart = "unshare -n sh -c 'exec {command}'"
    failed = tide.run("bcast", data, "--to", tmp_path / "{host}/data", "--hosts", "a", "--launch", apart, "--json").exits(1)
    [host] = failed.last("error")["hosts"]
    assert re.search(r"cannot reach the coordinator at (\S+:\d+)", host["reason"]), host
    assert host["coordinator_addresses"] and all(re.fullmatch(r"\S+:\d+", at) for at in host["coordinator_addresses"]), host
    assert host["coordinator_error"] and f": {host['coordinator_error']} (" in host["reason"], host


class Empty(hostile.Hostile):
    """A peer that has no piece."""

    def talk(self, peer):
        self.handshake(peer)
        hostile.send(peer, hostile.HAVE_NONE)
        while True:
            hostile.receive(peer)


def test_a_get_says_that_no_connected_peer_has_the_missing_pieces(start, tide, port, tmp_path):
    data = blob(tmp_path / "data", 200_000)
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, "v1")
    with Empty("127.0.0.3", port()) as empty:
        get = tide.run("get", torrent, "--plain", "--no-lsd", "--peer", empty.address, "--to", tmp_path / "a")
        get.until("a word on the missing pieces", lambda: re.search(r"no connected peer has \d+ pieces? of the missing data", get.err))
        get.signal(signal.SIGINT)
        assert f"of the missing data ({empty.address})" in get.exits(3).err.strip().splitlines()[-1]
