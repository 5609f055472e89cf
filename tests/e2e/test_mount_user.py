"""Mounts without privilege: a user mounts with the system's helper, and runs programs in a namespace of its own."""
from __future__ import annotations

import pathlib
import shutil
import signal

import pytest

from support.mounts import Mounts, needs_mounts
from support.tidecast import wait_for
from support.trees import rich
from support.users import User, needs_users, place


@pytest.fixture
def mounts():
    needs_mounts()
    needs_users()
    base = place()
    these = Mounts(base)
    yield these
    these.clear()
    shutil.rmtree(base)


@pytest.fixture
def user(mounts, built, start):
    """A node of a user without privilege."""
    return User(pathlib.Path(shutil.copy(built / "tidecast", mounts.tmp / "tidecast")), mounts.tmp, start)


@pytest.fixture
def shared(node, port, tmp_path):
    """A source, its origin's process, and a ticket."""
    source = rich(tmp_path / "src")
    proc, ticket = node("origin").share(source, f"127.0.0.1:{port()}", "--no-lsd")
    return source, proc, ticket


def test_a_user_mounts_with_the_helper(mounts, user, shared):
    source, origin, ticket = shared
    at = mounts.mount(user, ticket, mounts.tmp / "at", "--timeout", "100s")
    assert user.does("cat", at / "a/b/c/deep").out_path.read_bytes() == (source / "a/b/c/deep").read_bytes()
    assert user.does("stat", "-c", "%u %A", at / "one").out == "65534 -rw-r-----\n"
    assert user.does("touch", at / "one", code=1).err.count("Read-only") == 1
    user("status", at, "--restart")
    assert user.does("cat", at / "leaf").out_path.read_bytes() == (source / "leaf").read_bytes()
    # Processes do not wait for missing data: abort needs no privilege either.
    origin.kill()
    reader = user.start([*user.before, "cat", str(at / "big.bin")])
    wait_for("somebody who waits", lambda: mounts.status(user, at)["waiting"] > 0)
    user("umount", at, "--abort")
    assert reader.wait(30) == 1
    assert str(at) not in user.mount_table()


def test_a_dead_mount_of_a_user_is_taken_away_by_the_next(mounts, user, shared):
    source, _, ticket = shared
    at = mounts.mount(user, ticket, mounts.tmp / "at")
    mounts.kill_all(user, at)
    mounts.mount(user, ticket, at)
    assert user.does("cat", at / "leaf").out_path.read_bytes() == (source / "leaf").read_bytes()
    user("umount", at)
    assert str(at) not in user.mount_table()


def test_a_user_runs_a_program_where_it_was_built(mounts, user, shared):
    source, _, ticket = shared
    words = ["run", ticket, "--cache", user.home / "cache", "--no-lsd"]
    # A place that is there, one below a directory of the user's, one below the root that the user cannot create.
    for at in (mounts.tmp / "at", mounts.tmp / "home/x/y", pathlib.Path("/no-such-root/x")):
        done = user(*words, "--at", at, "--", "sh", "-c", f"id -u; cat {at}/leaf | wc -c; ls {at} | wc -l; exit 7", code=7)
        assert done.out.split() == ["65534", "16384", str(len(list(source.iterdir())))]
    # No other process saw the tree.
    seen = [line for line in user.mount_table().splitlines() if "fuse.tidecast" in line]
    assert not [line for line in seen if str(mounts.tmp) in line or str(user.home) in line or "/no-such-root" in line]
    running = user.run(*words, "--at", mounts.tmp / "at", "--", "sleep", "1000")
    wait_for("the program", lambda: b"sleep" in pathlib.Path(f"/proc/{running.process.pid}/cmdline").read_bytes()[:6])
    running.signal(signal.SIGKILL)
    running.wait(30)
    wait_for("the end of the server", lambda: not list((user.home / "cache").glob("*/socket")))
