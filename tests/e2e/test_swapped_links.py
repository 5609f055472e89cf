"""Directories of a daemon's store, and of the tree that is being published, are swapped for links to a directory of somebody
else's in a loop, while caches are created, got, removed, evicted and checked: nothing there is read, changed or removed.

TIDECAST_RACE_SECONDS=60 makes it last longer.
"""
import os
import pathlib
import shutil
import threading
import time

import pytest
from support.daemons import Host

SECONDS = float(os.environ.get("TIDECAST_RACE_SECONDS", "0"))
ROUNDS = 6
MARK = b"what nobody outside may have"


def picture(top: pathlib.Path) -> dict:
    """All attributes of a tree; times of access are set to be older than changes, so that any reading shows."""
    found = {}
    for dir, dirs, files in os.walk(top):
        for path in [pathlib.Path(dir), *(pathlib.Path(dir) / name for name in files)]:
            stat = path.lstat()
            found[path] = (stat.st_mode, stat.st_uid, stat.st_gid, stat.st_size, stat.st_nlink, stat.st_mtime_ns, stat.st_ctime_ns)
    return found


def reads(top: pathlib.Path) -> dict:
    """Times of access of the files, which their reading would change."""
    return {path: path.stat().st_atime_ns for path in top.rglob("*") if path.is_file()}


@pytest.fixture
def victim(tmp_path) -> pathlib.Path:
    """A directory with the names that a store and a tree have."""
    victim = tmp_path / "victim"
    for name in ("manifest", "tree/data/f0", "data/f0", "sub/f0", "f0", "cache/manifest", "reused/x", "0/f0"):
        path = victim / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(MARK)
    for number in range(1, 30):
        shutil.copytree(victim / "tree", victim / f"{number:016x}/tree")
        (victim / f"{number:016x}/manifest").write_bytes(MARK)
    for path in victim.rglob("*"):
        if path.is_file():
            os.utime(path, (1_000_000, 2_000_000))
    return victim


def directories(top: pathlib.Path, depth: int) -> list[pathlib.Path]:
    if depth == 0:
        return []
    try:
        below = [path for path in top.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []
    return below + [path for dir in below for path in directories(dir, depth - 1)]


def swapping(top: pathlib.Path, victim: pathlib.Path, stop: threading.Event, counts: list) -> None:
    """Swaps one directory after the other for a link, and puts it back."""
    aside = top.with_name(top.name + ".aside")
    while not stop.is_set():
        for path in directories(top, 4):
            try:
                os.rename(path, aside)
            except OSError:
                continue
            try:
                os.symlink(victim, path)
                counts.append(path)
                time.sleep(0.0002)
                os.unlink(path)
            except OSError:
                pass
            try:
                os.rename(aside, path)
            except OSError:
                shutil.rmtree(aside, ignore_errors=True)
        # The daemon comes to something now and then.
        stop.wait(0.003)


def test_swapped_directories_lead_nowhere(built, tmp_path, start, victim):
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    host.serve()
    source = tmp_path / "data"
    for number in range(20):
        path = source / ("sub" if number % 2 else "0") / f"f{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(5000))
    before, untouched = picture(victim), reads(victim)
    stop, counts = threading.Event(), []
    tops = [path for path in (host.dir, host.dir / "depot") if (path / "caches").is_dir()] + [source]
    assert len(tops) == 2, list(host.dir.iterdir())
    threads = [threading.Thread(target=swapping, args=(top, victim, stop, counts)) for top in tops]
    for thread in threads:
        thread.start()
    end, number = time.monotonic() + SECONDS, 0
    try:
        while number < ROUNDS or time.monotonic() < end:
            name = f"n{number % 5}"
            host.create(name, source, code=None)
            got = tmp_path / f"got{number}"
            host.cache("get", name, "--to", got, code=None)
            for path in got.rglob("*"):
                assert not path.is_file() or path.is_symlink() or path.read_bytes() != MARK, "what is outside has come in"
            shutil.rmtree(got, ignore_errors=True)
            host.http("POST", "/v1/fsck")
            if number % 2:
                host.cache("rm", name, code=None)
            number += 1
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert counts, "nothing was swapped"
    assert reads(victim) == untouched
    assert picture(victim) == before
    host.http("POST", "/v1/fsck")
    assert picture(victim) == before


def test_a_store_with_a_link_for_a_directory_is_refused(built, tmp_path, start, victim):
    before = picture(victim)
    for name in ("caches", "objects", "incoming", "trash", "uses"):
        host = Host(built / "tidecast", tmp_path / name, start, "head")
        host.serve().kill()
        (store,) = [path for path in (host.dir, host.dir / "depot") if (path / "caches").is_dir()]
        shutil.rmtree(store / name)
        (store / name).symlink_to(victim)
        daemon = host.run("daemon", "--dir", host.dir, "--name", "head", "--machine", host.machine)
        daemon.exits(1)
        assert name in daemon.err and "symbolic link" in daemon.err, daemon.err
    assert picture(victim) == before
