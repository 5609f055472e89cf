"""File systems that are mounted at a destination or in it: nothing is removed through them, and nothing is replaced before they are
noticed."""
import os
import subprocess

import pytest
from support import trees
from test_dest import bcast, leftovers

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: mounting needs root")
REFUSED = "a file system is mounted there; unmount it"


@pytest.fixture
def mounted(tide, tmp_path):
    """mounted(WORDS, MOUNTS): the program's answer where these directories are mounted."""
    def run(words, *mounts):
        mount = " && ".join(f"mount {mount}" for mount in mounts)
        script = f'{mount} && exec "$0" "$@"'
        words = [str(w) for w in words]
        return subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", script, str(tide.program), *words],
                              env=tide.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return run


def words(source, to, *more):
    return ["bcast", source, "--to", to, "--hosts", "a", "--launch", "env {command}", *more]


@pytest.fixture
def user(tmp_path):
    """The mounted directory: data of the user on the same file system."""
    trees.blob(tmp_path / "user/deep/data", 5000)
    trees.blob(tmp_path / "user/x", 301)
    trees.blob(tmp_path / "user/same", 300)
    return tmp_path / "user"


def state(top):
    return {p.relative_to(top): (p.read_bytes() if p.is_file() else None, p.stat().st_mode, p.stat().st_mtime_ns) for p in top.rglob("*")}


@pytest.mark.parametrize("ours", [False, True])
def test_a_directory_that_holds_a_mount_does_not_give_way(mounted, user, tide, tmp_path, ours):
    source, to = tmp_path / "source", tmp_path / "to"
    trees.blob(source / "a", 100)
    for top in [source, to]:
        trees.blob(top / "k/sub/x", 300)
    if ours:
        bcast(tide, source, to, hosts="a").ok()
    subprocess.run(["rm", "-r", source / "k"], check=True)
    trees.blob(source / "k", 77)
    trees.blob(source / "a", 100, seed=4)
    before, there = state(user), state(to)
    for more in [("--force",), ("--force", "--delete")]:
        ran = mounted(words(source, to, *more), f"--bind {user} {to}/k/sub")
        assert ran.returncode == 1 and f"cannot replace {to}/k/sub: {REFUSED}" in ran.stdout, ran.stdout
        assert state(user) == before and state(to) == there and not leftovers(tmp_path)


@pytest.mark.parametrize("mount", ["-t tmpfs none", "--bind {user}"])
def test_files_that_would_move_to_a_mount_are_refused_before_any_is_replaced(mounted, user, tide, tmp_path, mount):
    source, to = tmp_path / "source", tmp_path / "to"
    for name in ["a", "in/x", "z"]:
        trees.blob(source / name, 300)
    bcast(tide, source, to, hosts="a").ok()
    for name in ["a", "in/x", "z"]:
        trees.blob(source / name, 300, seed=7)
    before, there = state(user), state(to)
    mount = mount.format(user=user)
    for more in [(), ("--force",)]:
        ran = mounted(words(source, to, *more), f"{mount} {to}/in")
        assert ran.returncode == 1 and f"cannot replace {to}/in: {REFUSED}" in ran.stdout, ran.stdout
        at_dest = mounted(words(source, to, *more), f"{mount} {to}")
        assert at_dest.returncode == 1 and f"cannot replace {to}: {REFUSED}" in at_dest.stdout, at_dest.stdout
        assert not leftovers(tmp_path)
    for more in [(), ("--force",)]:  # of the size of the new one: known to differ when part of the data may have arrived
        single = mounted(words(source, to, *more), f"--bind {user}/same {to}/in/x")
        assert single.returncode == 1 and f"cannot replace {to}/in/x: {REFUSED}" in single.stdout, single.stdout
        assert state(user) == before and state(to) == there


def test_what_is_mounted_and_the_same_stays(mounted, tide, tmp_path):
    source, to, same = tmp_path / "source", tmp_path / "to", tmp_path / "same"
    trees.blob(source / "a", 300)
    trees.blob(source / "in/x", 300)
    bcast(tide, source, to, hosts="a").ok()
    subprocess.run(["cp", "-a", source / "in", same], check=True)
    trees.blob(source / "a", 300, seed=7)
    ran = mounted(words(source, to), f"--bind {same} {to}/in")
    assert ran.returncode == 0, ran.stdout
    trees.assert_same(source, to)


def test_what_is_mounted_is_not_deleted(mounted, user, tide, tmp_path):
    source, to = tmp_path / "source", tmp_path / "to"
    trees.blob(source / "a", 300)
    bcast(tide, source, to, hosts="a").ok()
    (to / "old/mp").mkdir(parents=True)
    before = state(user)
    commands = [words(source, to, "--delete", "--force"), ["copy", "--delete", f"{source}/", to]]
    for command in commands:
        ran = mounted(command, f"--bind {user} {to}/old/mp")
        assert ran.returncode == 1 and REFUSED in ran.stdout, ran.stdout
        assert state(user) == before
