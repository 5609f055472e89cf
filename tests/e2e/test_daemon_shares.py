"""Many requests of one user at once: the daemon serves the others as before, and needs little memory for them."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import resource
import socket

import pytest
from support.callers import NOBODY, passable
from support.daemons import Host
from support.tidecast import wait_for

MIB = 1 << 20
# More than the threads that tokio starts for work that blocks.
MANY = 600
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: becoming another user needs root")


@pytest.fixture
def host(built, tmp_path, start):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * MANY + 100:
        pytest.skip(f"SKIPPED: {hard} open files are too few for {MANY} connections of one user")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    host.serve()
    passable(host.home)
    yield host
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def user(id: int):
    os.seteuid(id)
    try:
        yield
    finally:
        os.seteuid(0)


class Other:
    """Connections of another user, which stay open."""

    def __init__(self, address, id=NOBODY):
        self.address, self.id, self.all = address, id, []

    def connect(self) -> socket.socket:
        wire = socket.socket(socket.AF_UNIX)
        wire.settimeout(60)
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wait_for("room among the connections that wait", lambda: self.connected(wire), 60)
        self.all.append(wire)
        return wire

    def connected(self, wire: socket.socket) -> bool:
        with user(self.id), contextlib.suppress(BlockingIOError):
            wire.connect(self.address)
            return True
        return False

    def ask(self, method: str, path: str, body=b"", headers=None, length=None) -> socket.socket:
        wire = self.connect()
        lines = [f"{method} {path} HTTP/1.1", "host: d", f"content-length: {length or len(body)}", *(f"{key}: {value}" for key, value in (headers or {}).items())]
        wire.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        return wire

    def answer(self, *words, **more) -> tuple[int, dict]:
        wire = self.ask(*words, **more)
        got = b""
        while b"\r\n\r\n" not in got or len(got.split(b"\r\n\r\n", 1)[1]) < int(got.lower().split(b"content-length: ")[1].split(b"\r")[0]):
            more = wire.recv(MIB)
            assert more, got
            got += more
        self.all.remove(wire)
        wire.close()
        return int(got.split()[1]), json.loads(got.split(b"\r\n\r\n", 1)[1])

    def close(self) -> None:
        for wire in self.all:
            wire.close()


def resident(host: Host) -> int:
    """Bytes."""
    status = pathlib.Path(f"/proc/{host.daemon.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def works(host: Host, tmp_path: pathlib.Path, name: str) -> None:
    """The daemon does all for the user who tests."""
    (tmp_path / name).write_bytes(os.urandom(MIB))
    assert host.http("GET", "/v1/daemon")[1]["state"] == "running"
    host.create(name, tmp_path / name, "--mode", "755")
    host.cache("get", name)


@needs_root
def test_silent_uploads_of_a_user_leave_the_daemon_to_others(host, tmp_path):
    data = tmp_path / "data"
    data.write_bytes(os.urandom(2 * MIB))
    host("publish", data, "-o", tmp_path / "m.torrent", "--format", "v2")
    manifest, other = (tmp_path / "m.torrent").read_bytes(), Other(str(host.socket))
    begun = 0
    for number in range(MANY):
        status, made = other.answer("POST", "/v1/caches", body=manifest, headers={"tidecast-create": json.dumps({"name": f"n{number}"})})
        if status != 200:
            assert (status, made["kind"]) == (503, "wait"), made
            break
        other.ask("PUT", f"/v1/caches/{made['cache']}/content", body=b"abc", length=2 * MIB)
        begun += 1
    assert 128 < begun < MANY, "some wait, and later ones are rejected"
    # Those that wait hold a connection only.
    for _ in range(MANY - begun):
        other.ask("PUT", "/v1/caches/00000000000000ff/content", body=b"abc", length=2 * MIB)
    works(host, tmp_path, "mine")
    assert resident(host) < 256 * MIB
    other.close()
    wait_for("interrupted uploads to be forgotten", lambda: not {"head/n0", "head/n99"} & set(host.names()), 60)


@needs_root
def test_unread_downloads_of_a_user_leave_the_daemon_to_others(host, tmp_path):
    (tmp_path / "big").write_bytes(os.urandom(60 * MIB))
    id = host.create("big", tmp_path / "big", "--mode", "755")["cache"]
    other = Other(str(host.socket))
    for number in range(MANY):
        other.ask("GET", f"/v1/caches/{id}/{'content' if number % 2 else 'manifest'}")
    works(host, tmp_path, "mine")
    assert resident(host) < 256 * MIB
    other.close()
    wait_for("the cache to be free again", lambda: host.cache("rm", "big", code=None).get("event") != "error", 60)


@needs_root
def test_large_manifests_of_a_user_are_not_kept_in_memory_together(host, tmp_path):
    other = Other(str(host.socket))
    for _ in range(6):
        wire = other.ask("POST", "/v1/caches", length=1 << 30, headers={"tidecast-create": json.dumps({"name": "q"})})
        wire.settimeout(1)
        with contextlib.suppress(TimeoutError):
            for _ in range(100):
                wire.sendall(b"d" + bytes(MIB))
    works(host, tmp_path, "mine")
    assert resident(host) < 256 * MIB
    status, said = other.answer("POST", "/v1/caches", body=b"d" * MIB, headers={"tidecast-create": json.dumps({"name": "a/b"})})
    assert status == 400 and "a/b" in said["error"], said
    other.close()


class Private(Host):
    """A daemon that a user without privilege runs: for itself."""

    def argv(self, *words) -> list[str]:
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", *super().argv(*words)]


@needs_root
def test_daemons_of_other_users_cannot_hold_up_one_that_serves_its_own(built, tmp_path, start):
    host = Private(built / "tidecast", tmp_path / "host", start, "head")
    os.chown(host.home, NOBODY, NOBODY)
    passable(host.home)
    host.serve()
    (tmp_path / "big").write_bytes(os.urandom(60 * MIB))
    id = host.create("big", tmp_path / "big", "--mode", "755")["cache"]
    names = pathlib.Path("/proc/net/unix").read_text().split()
    name = next(n for n in names if n.startswith("@tidecast/") and n.endswith(f"/{host.daemon.process.pid}"))
    other = Other("\0" + name[1:], id=NOBODY - 1)
    known = other.answer("GET", "/v1/daemon")[1]
    assert known["name"] == "head" and known["caches"] == 0 and not known["uses"] and not known["addresses"], known
    get = json.dumps({"name": "big", "copy_for": f"uid{NOBODY - 1}", "offline": True}).encode()
    status, got = other.answer("POST", "/v1/get", body=get, headers={"content-type": "application/json"})
    assert status == 200 and str(tmp_path) not in json.dumps(got), got
    info = got["info"]
    assert (info["cache"], info.get("path"), info.get("inode"), info["users"]) == (id, None, None, 0), info
    for _ in range(60):
        other.ask("GET", f"/v1/caches/{id}/content")
    for _ in range(MANY):
        other.connect()
    works(host, tmp_path, "mine")
    assert resident(host) < 256 * MIB
    other.close()
