"""A failing mount reports the reason, and recovers when the cause is removed: a full cache, peers that have ended or refuse."""
import errno
import os
import pathlib
import subprocess

import pytest
from support.mounts import small_disk
from support.tidecast import wait_for
from support.trees import blob

MIB = 1 << 20


@pytest.fixture
def full(mounts, shared, here, tmp_path):
    """A mount whose cache was full when something large was read; the mount, the cache, the source."""
    source = tmp_path / "src"
    blob(source / "large", 40 * MIB)
    blob(source / "small", 100_000, 1)
    _, ticket = shared(source)
    disk, at = small_disk(tmp_path / "disk", "16m"), tmp_path / "at"
    here("mount", ticket, at, "--cache", disk, "--no-lsd")
    mounts.servers.add(mounts.status(here, at)["pid"])
    with pytest.raises(OSError) as failed:
        (at / "large").read_bytes()
    assert failed.value.errno == errno.EIO
    return at, disk, source


def grow(disk: pathlib.Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=100m", disk], check=True)


def readable(at: pathlib.Path, like: pathlib.Path) -> bool:
    try:
        return at.read_bytes() == like.read_bytes()
    except OSError:
        return False


def test_a_full_cache_is_named_and_is_used_again_when_there_is_room(mounts, here, full):
    at, disk, source = full
    status = mounts.status(here, at)
    [failure] = status["failures"]
    assert "disk full" in failure["why"] and str(disk) in failure["why"] and failure["path"].endswith("large"), status
    assert "disk full" in status["trouble"]
    assert "disk full" in here("status", at).out
    pid = status["pid"]
    grow(disk)
    wait_for("the small file to be read", lambda: readable(at / "small", source / "small"), 20)
    wait_for("the large file to be read", lambda: readable(at / "large", source / "large"), 60)
    status = mounts.status(here, at)
    assert status["trouble"] is None and status["pid"] == pid, "no process had to be restarted"


def test_a_server_that_ends_while_its_cache_is_full_is_followed_by_another(mounts, here, full):
    at, disk, source = full
    mounts.kill_server(here, at)
    wait_for("a server to answer", lambda: "dead" not in mounts.status(here, at))
    mounts.servers.add(mounts.status(here, at)["pid"])
    grow(disk)
    wait_for("the large file to be read", lambda: readable(at / "large", source / "large"), 60)


def test_what_is_fetched_ahead_goes_on_when_there_is_room(mounts, shared, here, tmp_path):
    """Without readers: the mount checks at intervals whether the cache accepts data again."""
    source = tmp_path / "src"
    for i in range(10):
        blob(source / f"f{i}", 4 * MIB, i)
    _, ticket = shared(source)
    disk, at = small_disk(tmp_path / "disk", "16m"), tmp_path / "at"
    here("mount", ticket, at, "--cache", disk, "--no-lsd", "--mode", "bulk")
    mounts.servers.add(mounts.status(here, at)["pid"])
    wait_for("the cache to be full", lambda: mounts.status(here, at)["trouble"])
    grow(disk)
    wait_for("all to be here", lambda: mounts.status(here, at)["pieces_missing"] == 0)
    assert mounts.status(here, at)["trouble"] is None


def test_a_read_that_nobody_answers_says_so(mounts, shared, here, tmp_path):
    source = tmp_path / "src"
    blob(source / "one", 100_000)
    seed, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at", "--timeout", "3s")
    seed.kill()
    with pytest.raises(OSError) as failed:
        (at / "one").read_bytes()
    assert failed.value.errno == errno.EIO
    [failure] = mounts.status(here, at)["failures"]
    assert "no peer connected" in failure["why"] and "connection refused" in failure["why"], failure
    assert "no peer connected" in here("status", at).out
    assert os.path.ismount(at)
