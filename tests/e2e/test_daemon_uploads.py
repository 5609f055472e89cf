"""Uploads that break off midway: their room and their files are free at once, and the name too."""
import contextlib
import json
import os
import pathlib
import socket

import pytest
from support.daemons import Host
from support.tidecast import wait_for

SIZE, SENT = 40_000_000, 8_000_000


@pytest.fixture
def host(built, tmp_path, start):
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    host.serve()
    return host


def begin(host: Host, tmp_path: pathlib.Path) -> tuple[str, socket.socket]:
    """An upload of which a part is on disk; its number, and the connection."""
    data = tmp_path / "big"
    data.write_bytes(os.urandom(SIZE))
    host("publish", data, "-o", tmp_path / "m.torrent", "--format", "v2")
    head = {"tidecast-create": json.dumps({"name": "big"}), "content-type": "application/x-bittorrent"}
    status, made = host.http("POST", "/v1/caches", (tmp_path / "m.torrent").read_bytes(), head)
    assert status == 200, made
    wire = socket.socket(socket.AF_UNIX)
    wire.connect(str(host.socket))
    wire.sendall(f"PUT /v1/caches/{made['cache']}/content HTTP/1.1\r\nhost: d\r\ncontent-length: {SIZE}\r\n\r\n".encode())
    wire.sendall(data.read_bytes()[:SENT])
    wait_for("a part to be on disk", lambda: staged(host) >= SENT // 2)
    return made["cache"], wire


def staged(host: Host) -> int:
    """Bytes of files in the store that are in no cache yet."""
    def size(path: pathlib.Path) -> int:
        with contextlib.suppress(FileNotFoundError):
            return path.stat().st_size if path.is_file() else 0
        return 0

    # A directory may be removed while it is walked: `os.walk` passes over it.
    walks = (os.walk(data) for data in host.dir.glob("depot/*/*/data"))
    return sum(size(pathlib.Path(top, name)) for walk in walks for top, _, names in walk for name in names)


def is_free(host: Host, cache: str) -> bool:
    return staged(host) == 0 and cache not in json.dumps(host.cache("ls"))


def test_a_client_that_is_cut_off_leaves_nothing(host, tmp_path):
    before = host.http("GET", "/v1/status")[1]
    cache, wire = begin(host, tmp_path)
    wire.close()
    wait_for("all of it to be free", lambda: is_free(host, cache), 30)
    after = host.http("GET", "/v1/status")[1]
    for key in ("used", "promised", "reserved", "inodes"):
        assert after.get(key) == before.get(key), (key, before, after)
    assert host.create("big", tmp_path / "big")["event"] == "done", "the name is free"


def test_a_daemon_that_is_killed_leaves_nothing_of_uploads(host, tmp_path):
    cache, wire = begin(host, tmp_path)
    host.daemon.process.kill()
    host.daemon.wait()
    wire.close()
    host.serve()
    assert is_free(host, cache)


def test_what_does_not_fit_its_manifest_leaves_nothing(host, tmp_path):
    cache, wire = begin(host, tmp_path)
    wire.sendall(bytes(SIZE - SENT))
    assert b" 422 " in wire.recv(100)
    assert is_free(host, cache)
