"""`tidecast run` hides nothing that programs need, loses nothing that the command writes, and leaves nothing behind."""
from __future__ import annotations

import os
import pathlib
import shutil
import signal

import pytest

from support.mounts import Mounts, needs_mounts
from support.tidecast import wait_for
from support.trees import blob
from support.users import User, needs_users, place

PRIVATE = ["unshare", "-m", "--propagation", "private"]


@pytest.fixture
def base():
    """A place that all users reach."""
    needs_mounts()
    needs_users()
    base = place()
    yield base
    Mounts(base).clear()
    shutil.rmtree(base)


@pytest.fixture
def user(base, built, start):
    """A user without privilege, whose home is `base / "home"`."""
    return User(pathlib.Path(shutil.copy(built / "tidecast", base / "tidecast")), base, start)


@pytest.fixture
def tree(node, port, base):
    """tree(prefix) -> the words of `run` for a tree whose manifest names that place, true or not."""
    source = base / "source"
    blob(source / "f", 100)
    origin = node("origin")
    claimed = "/a/place/of/this/test"
    plain = origin.publish(source, base / "plain.torrent", "--plain", "--built-for", claimed).read_bytes()
    own = os.fsencode(claimed)
    assert b"%d:%s" % (len(own), own) in plain

    def claim(prefix) -> list:
        prefix = os.fsencode(prefix)
        manifest = base / f"{len(list(base.glob('*.torrent')))}.torrent"
        manifest.write_bytes(plain.replace(b"%d:%s" % (len(own), own), b"%d:%s" % (len(prefix), prefix)))
        manifest.chmod(0o644)
        listen = f"127.0.0.1:{port()}"
        origin.seed(manifest, source, listen, "--no-lsd", "--plain")
        return ["run", manifest, "--no-lsd", "--plain", "--peer", listen]

    return claim


def test_a_manifest_lays_nothing_over_the_system_or_the_home(tree, user, base):
    home = user.home
    (base / "home/.config").mkdir()
    os.chown(base / "home/.config", 65534, 65534)
    (base / "link").symlink_to("/etc")
    places = ["/", "/etc", "/etc/", "/etc/.", "//usr", "/home", "/proc/self/root/etc", "/usr/lib/no-such", "/etc/no-such/x",
              home, home.parent, home / ".ssh", home / ".config", base / "link", base / "link/no-such"]
    for at in places:
        done = user(*tree(at), "--cache", home / "cache", "--", "sh", "-c", "echo ran", code=2)
        assert "cannot mount at" in done.err and "ran" not in done.out, at
    assert not (home / ".ssh").exists()


def test_no_flag_lays_a_tree_over_the_system_or_the_home(tree, user, base):
    home = user.home
    words = tree(base / "gone")
    (base / "link").symlink_to(home)
    for at in ["/", "/etc", "/usr/../etc", "/proc/self/root/usr", home, home.parent, base / "link", base / "link/../home", home / "cache"]:
        assert "the mount hides" in user(*words, "--cache", home / "cache", "--at", at, "--", "echo", "ran", code=2).err, at
    # By another name of the same directory.
    aliased = f"mkdir -p {base}/alias && mount --bind /etc {base}/alias && exec \"$@\""
    alias = user.start([*PRIVATE, "sh", "-c", aliased, "sh", user.program, *words, "--cache", base / "rc", "--at", base / "alias", "--", "echo", "ran"], env=user.env)
    assert "the mount hides /etc" in alias.exits(2).err


def test_mount_hides_neither_the_system_nor_the_home(tree, user, base):
    home = user.home
    manifest, *flags = tree(base / "gone")[1:]
    for at in ["/etc", "/", "/usr/lib", home, base]:
        words = ["mount", manifest, at, *flags, "--cache", base / "rc"]
        env = {**user.env, "HOME": str(home)}
        assert "the mount hides" in user.start([*PRIVATE, user.program, *words], env=env).exits(2).err, at


def test_what_is_there_is_hidden_only_if_the_caller_says_so(tree, user, base):
    at = base / "home/work"
    at.mkdir()
    (at / "mine").write_text("mine")
    words = [*tree(at), "--cache", user.home / "cache"]
    refused = user(*words, "--", "cat", at / "f", code=2)
    assert "not empty" in refused.err and f"--at {at}" in refused.err
    assert len(user(*words, "--at", at, "--", "cat", at / "f").out_path.read_bytes()) == 100
    assert (at / "mine").read_text() == "mine"
    # An empty directory is used as it is, and stays.
    (at / "mine").unlink()
    user(*words, "--", "cat", at / "f")
    assert at.is_dir()


def test_what_the_command_writes_beside_the_tree_stays(tree, user, base):
    at = user.home / "deep/er/env"
    (user.home / "kept").write_text("old")
    os.chown(user.home / "kept", 65534, 65534)
    script = f"cat {at}/f >/dev/null && cd {user.home} && echo new >x && mv x kept && echo out >deep/out && echo more >deep/er/out"
    user(*tree(at), "--cache", user.home / "cache", "--", "sh", "-c", script)
    assert (user.home / "kept").read_text() == "new\n"
    assert (user.home / "deep/out").read_text() == "out\n" and (user.home / "deep/er/out").read_text() == "more\n"
    # Directories made for the tree are removed if they are empty, by the server if it sees the end of the mount later.
    wait_for("nothing is left", lambda: not at.exists())


def test_where_nothing_can_be_made_a_write_beside_the_tree_fails(tree, user, base):
    shut = base / "shut"
    (shut / "own").mkdir(parents=True)
    os.chown(shut / "own", 65534, 65534)
    (shut / "file").write_text("there")
    for mode in (0o755, 0o711):
        shut.chmod(mode)
        for at in (shut / "env", shut / "deep/er/env"):
            script = f"wc -c <{at}/f; cat {shut}/file; echo; echo out >{shut}/new; echo $?; echo out >{at.parent}/new; echo $?; pwd"
            words = [*tree(at), "--cache", user.home / "cache", "--", "sh", "-c", script]
            inside = user.start([*user.before, "sh", "-c", f"cd {shut}/own && exec \"$@\"", "sh", user.program, *words], env=user.env)
            lines = inside.exits(0).out.split("\n")
            assert lines[:2] == ["100", "there"] and lines[2] != "0" and lines[3] != "0" and lines[4] == str(shut / "own"), (mode, at)
            assert inside.err.count("Read-only file system") == 2, inside.err
            # One's own directories in there stay one's own.
            kept = ["sh", "-c", f"cd {shut}/own && exec \"$@\"", "sh", user.program, *words[:-1], f"echo out >{shut}/own/kept-{mode}"]
            user.start([*user.before, *kept], env=user.env).exits(0)
            assert (shut / f"own/kept-{mode}").read_text() == "out\n"
            (shut / f"own/kept-{mode}").unlink()
    assert sorted(os.listdir(shut)) == ["file", "own"]


def test_commands_of_several_trees_share_a_place(tree, user, base):
    at = user.home / "share/d"
    first, second = ([*tree(at), "--cache", user.home / name] for name in ("one", "two"))
    waits = user.run(*first, "--", "sh", "-c", f"echo up; until [ -e {base}/home/go ]; do sleep 0.05; done; cat {at}/f")
    waits.until("the first command", lambda: waits.out)
    for _ in range(3):
        assert len(user(*second, "--", "cat", at / "f").out_path.read_bytes()) == 100
        assert at.is_dir(), "the first command uses it"
    (user.home / "go").touch()
    waits.exits(0)
    wait_for("nothing is left", lambda: not (user.home / "share").exists())


def test_a_process_that_is_left_behind_keeps_its_tree(tree, user, base):
    at = user.home / "env"
    behind = f"(exec >/dev/null 2>&1; until [ -e {base}/home/go ]; do sleep 0.05; done; cp {at}/f {base}/home/late) & exit 3"
    user(*tree(at), "--cache", user.home / "cache", "--", "setsid", "sh", "-c", behind, code=3)
    assert at.is_dir()
    (user.home / "go").touch()
    wait_for("what it wrote", lambda: (user.home / "late").exists() and (user.home / "late").stat().st_size == 100)
    wait_for("nothing is left", lambda: not at.exists())


def test_the_command_gets_signals_and_its_end_is_that_of_run(tree, user, base):
    at = user.home / "env"
    words = [*tree(at), "--cache", user.home / "cache", "--"]
    trap = user.run(*words, "sh", "-c", f"trap 'exit 44' TERM; cat {at}/f >/dev/null; echo up; while :; do sleep 0.05; done")
    trap.until("the command", lambda: trap.out)
    trap.signal(signal.SIGTERM)
    trap.exits(44)
    dies = user.run(*words, "sh", "-c", "echo up; exec sleep 1000")
    dies.until("the command", lambda: dies.out)
    dies.signal(signal.SIGUSR1)
    dies.exits(-signal.SIGUSR1)
    wait_for("nothing is left", lambda: not at.exists())
    killed = user.run(*words, "sh", "-c", "echo $$; while :; do sleep 0.05; done")
    killed.until("the command", lambda: killed.out)
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.wait(30)
    wait_for("the end of the command", lambda: not pathlib.Path(f"/proc/{killed.out.strip()}").exists())
    wait_for("nothing is left", lambda: not at.exists())


def test_a_tree_that_records_no_place_is_where_the_command_looks_for_it(node, port, user, base):
    source, origin, listen = base / "source", node("origin"), f"127.0.0.1:{port()}"
    blob(source / "f", 100)
    manifest = origin.publish(source, base / "plain.torrent", "--plain")
    manifest.chmod(0o644)
    origin.seed(manifest, source, listen, "--no-lsd", "--plain")
    words = ["run", manifest, "--no-lsd", "--plain", "--peer", listen, "--cache", user.home / "cache", "--"]
    at = user.home / "there/source"
    for command in (["cat", at / "f"], ["sh", "-c", f"cd '{at}' && cat <{at}/f"], ["ls", at]):
        assert user(*words, *command).out_path.read_bytes()
        wait_for("nothing is left", lambda: not at.exists())
    for command in (["true"], ["cat", "/source/g"], ["cat", at / "f", base / "source/f"], ["cat", "source/f"]):
        assert "the command has no path in the tree" in user(*words, *command, code=2).err, command
