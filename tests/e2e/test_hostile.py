"""Misbehaving peers: the download completes from the honest one, the culprit is named, memory stays flat."""
import signal
import time

import pytest
from bench.synthetic import bencode
from support import clients, hostile, trees
from support.tidecast import peak_rss

SIZE = 12 << 20
RATE = 3 << 20  # bytes per second of the honest seeder: slow enough that the other is surely asked too
MEMORY = 200 << 20


@pytest.fixture
def data(tmp_path):
    return trees.blob(tmp_path / "source/data", SIZE)


def finish(proc) -> int:
    """Wait for the end of a getter; its highest resident memory, bytes."""
    peak = 0
    deadline = time.monotonic() + 120
    while proc.process.poll() is None and time.monotonic() < deadline:
        try:
            peak = max(peak, peak_rss(proc))
        except (OSError, AssertionError):
            break
        time.sleep(0.05)
    proc.ok(10)
    return peak


def fight(tide, start, port, data, tmp_path, kind, fmt, *words, during=None):
    """Get `data` from an honest, slow libtorrent and a hostile peer; returns the getter's output and the hostile peer.

    `during(getter, enemy)` is called while the getter runs."""
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, fmt)
    honest = f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", torrent, data.parent, honest, "--rate", RATE)
    with kind("127.0.0.66", port()) as enemy:
        proc = tide.run("get", torrent, "--to", tmp_path / "got", "--peer", enemy.address, "--peer", honest,
                        "--plain", "--json", *words)
        if during:
            during(proc, enemy)
        peak = finish(proc)
    trees.assert_same(data, tmp_path / "got/data")
    proc.events()
    assert peak < MEMORY, f"{peak >> 20} MiB resident"
    assert enemy.connections, "the hostile peer was never met: this test tested nothing"
    return proc.out + proc.err, enemy


@pytest.mark.parametrize("fmt", ["v1", "v2", "hybrid"])
def test_wrong_bytes(tide, start, port, data, tmp_path, fmt):
    said, enemy = fight(tide, start, port, data, tmp_path, hostile.WrongBytes, fmt)
    assert enemy.requests
    assert enemy.address in said and "ban" in said.lower()
    assert enemy.requests * 16384 < SIZE, "a peer that lies is not asked for ever"


def test_wrong_proofs(tide, start, port, data, tmp_path):
    said, enemy = fight(tide, start, port, data, tmp_path, hostile.WrongProofs, "v2")
    assert enemy.requests
    assert enemy.address in said and "ban" in said.lower()


def test_oversized_message(tide, start, port, data, tmp_path):
    said, enemy = fight(tide, start, port, data, tmp_path, hostile.Oversized, "hybrid")
    assert enemy.sent < 16 << 20, f"{enemy.sent} bytes of a message that is too long were taken"
    assert enemy.address in said and "ban" in said.lower()


def test_one_byte_a_minute(tide, start, port, data, tmp_path):
    said, enemy = fight(tide, start, port, data, tmp_path, hostile.OneByteAMinute, "hybrid")
    assert enemy.requests and enemy.address in said


def test_endless_handshake(tide, start, port, data, tmp_path):
    def is_left(proc, enemy):
        proc.until("the endless handshake is ended", enemy.closed.is_set)
        proc.until("all is there", lambda: (tmp_path / "got/data").exists())
        proc.until("it is named", lambda: enemy.address in proc.out + proc.err)
        proc.signal(signal.SIGINT)

    said, enemy = fight(tide, start, port, data, tmp_path, hostile.EndlessHandshake, "hybrid", "--seed-for", "5m", during=is_left)
    assert enemy.address in said


def test_a_manifest_of_more_pieces_than_any_has(tide, port, tmp_path):
    """167 bytes: no memory is taken for their 2^31 hashes."""
    size = 512 << 20
    huge = {b"length": size * (2**31 - 1), b"pieces root": b"\x11" * 32}
    info = {b"name": b"huge", b"piece length": size, b"meta version": 2, b"file tree": {b"huge": {b"": huge}}}
    torrent = tmp_path / "huge.torrent"
    torrent.write_bytes(bencode({b"info": info}))
    with hostile.Publisher("127.0.0.66", port(), bencode(info)) as enemy:
        proc = tide.run("get", torrent, "--to", tmp_path / "got", "--peer", enemy.address, "--plain", "--no-lsd", "--timeout", "3s")
        assert proc.wait(60) == 3
        assert "more pieces than it can have hashes" in proc.err and enemy.connections
