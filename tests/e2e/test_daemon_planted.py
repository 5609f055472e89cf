"""`cache get --to` where all users may create names: a link, file or tree that another user has put there does not count as delivered."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from support.daemons import Host
from test_two_users import ALICE, BOB, SERVICE, become, users  # noqa: F401

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: becoming other users needs root")
WORDS = ([], ["--force"])


@pytest.fixture
def place(users, tmp_path) -> pathlib.Path:  # noqa: F811
    """A directory as /tmp is."""
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    return place


def planted(source: pathlib.Path, to: pathlib.Path, uid: int = BOB) -> pathlib.Path:
    """A copy with the same names, contents, modes and times."""
    subprocess.run(["cp", "-a", source, to], check=True)
    for path in (to, *to.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)
    return to


def made(alice) -> tuple[dict, pathlib.Path]:
    """A cache of a tree with a directory, files and a link."""
    source = alice.tree("ct", run=0o755, data=0o644)
    (source / "bin").mkdir()
    (source / "bin/p").write_text("#!/bin/sh\necho true\n")
    (source / "bin/p").chmod(0o755)
    (source / "link").symlink_to("bin/p")
    return alice.create("ct", source), source


def refuses(alice, place, *words) -> None:
    message = alice.cache("get", "ct", "--to", place, *words, code=1)["message"]
    assert "belongs to another user" in message, message
    assert os.listdir(place) == ["ct"], "nothing is left beside it"


def test_a_link_of_another_user_is_refused_wherever_it_leads(users, place):  # noqa: F811
    daemon, alice, bob = users
    cache, _ = made(alice)
    for target in (cache["path"], "/var/lib/other/depot/caches/00000000000000ff/tree/ct", "/nowhere"):
        assert not bob.does("ln", "-s", target, place / "ct").returncode
        for words in WORDS:
            refuses(alice, place, *words)
        assert (place / "ct").readlink() == pathlib.Path(target) and (place / "ct").lstat().st_uid == BOB
        (place / "ct").unlink()
    for _ in range(2):
        assert alice.cache("get", "ct", "--to", place)["made"] == str(place / "ct")
        assert (place / "ct").lstat().st_uid == ALICE
    (place / "ct").unlink()
    assert not bob.does("ln", "-s", cache["path"], place / "ct").returncode
    place.chmod(0o777)
    refuses(alice, place)
    alice.cache("get", "ct", "--to", place, "--force")
    assert (place / "ct").lstat().st_uid == ALICE and os.listdir(place) == ["ct"]


@pytest.mark.parametrize("kind", ["copy", "hardlink", "reflink"])
def test_a_tree_of_another_user_is_refused(users, place, kind):  # noqa: F811
    daemon, alice, bob = users
    cache, source = made(alice)
    planted(source, place / "ct")
    for words in WORDS:
        refuses(alice, place, "--link", kind, *words)
    assert (place / "ct/bin/p").stat().st_uid == BOB
    shutil.rmtree(place / "ct")
    for _ in range(2):
        alice.cache("get", "ct", "--to", place, "--link", kind)
        assert (place / "ct").stat().st_uid == (place / "ct/bin").stat().st_uid == ALICE
    for name in ("bin", "bin/p", "data", "link"):
        shutil.rmtree(place / "ct")
        planted(source, place / "ct", ALICE)
        os.chown(place / "ct" / name, BOB, BOB, follow_symlinks=False)
        refuses(alice, place, "--link", kind)
    alice.cache("get", "ct", "--to", place, "--link", kind, "--force")
    assert (place / "ct/link").lstat().st_uid == ALICE and os.listdir(place) == ["ct"]


def test_a_file_of_another_user_is_refused_and_one_of_the_store_is_not(users, place):  # noqa: F811
    daemon, alice, bob = users
    source = alice.tree("dir", ct=0o644) / "ct"
    cache = alice.create("ct", source)
    planted(source, place / "ct")
    for words in WORDS:
        refuses(alice, place, "--link", "copy", *words)
    (place / "ct").unlink()
    os.link(cache["path"], place / "ct")
    alice.cache("get", "ct", "--to", place, "--link", "hardlink")
    assert (place / "ct").stat().st_ino == pathlib.Path(cache["path"]).stat().st_ino
    assert (place / "ct").stat().st_uid in (0, SERVICE)


def test_what_a_member_of_a_group_has_made_counts_for_the_others(users, place):  # noqa: F811
    daemon, alice, bob = users
    _, source = made(alice)
    os.chown(place, 0, ALICE)
    place.chmod(0o2775)
    planted(source, place / "ct")
    alice.cache("get", "ct", "--to", place, "--link", "copy")
    assert (place / "ct/bin/p").stat().st_uid == BOB


def test_a_job_of_htcondor_gets_no_link_of_another_user(users, place, tmp_path):  # noqa: F811
    daemon, alice, bob = users
    cache, _ = made(alice)
    assert not bob.does("ln", "-s", cache["path"], place / "ct").returncode
    plugin, answer = tmp_path / "tidecast_plugin", alice.home / "out"
    plugin.symlink_to(alice.program)
    (tmp_path / "in").write_text(f'[ Url = "tidecast://host/ct"; LocalFileName = "{place / "ct"}" ]')
    words = [*become(ALICE), plugin, "-infile", tmp_path / "in", "-outfile", answer]
    subprocess.run(words, env={**os.environ, **alice.env}, cwd="/", capture_output=True, timeout=300)
    assert "belongs to another user" in answer.read_text() and "TransferSuccess = false" in answer.read_text(), answer.read_text()
    assert (place / "ct").lstat().st_uid == BOB


def test_the_plugin_uses_no_file_that_another_user_has_planted(built, tmp_path):
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    plugin = tmp_path / "tidecast_plugin"
    plugin.symlink_to(built / "tidecast")
    (tmp_path / "in").write_text("[ malformed")
    for name in ("out", "pipe"):
        os.mkfifo(place / name) if name == "pipe" else (place / name).touch()
        (place / name).chmod(0o666)
        os.chown(place / name, BOB, BOB)
    for infile, outfile in ((tmp_path / "in", place / "out"), (place / "pipe", tmp_path / "out")):
        ran = subprocess.run([plugin, "-infile", infile, "-outfile", outfile], cwd=tmp_path, capture_output=True, timeout=300,
                             env={**os.environ, "HOME": str(tmp_path), "TIDECAST_SOCKET": str(tmp_path / "none")})
        assert ran.returncode != 0
    assert (place / "out").read_text() == "" and "belongs to another user" in (tmp_path / "out").read_text(), (tmp_path / "out").read_text()


@pytest.mark.parametrize("words", [[], ["--link", "copy", "--force"], ["--link", "hardlink"]])
def test_a_link_of_another_user_is_no_destination(users, place, words, tmp_path):  # noqa: F811
    _, alice, bob = users
    made(alice)
    victim = tmp_path / "victim"
    victim.mkdir()
    os.chown(victim, ALICE, ALICE)
    assert not bob.does("ln", "-s", victim, place / "lk").returncode
    for to in (place / "lk", place / "lk/deep"):
        assert "belongs to another user" in alice.cache("get", "ct", "--to", to, *words, code=1)["message"]
    assert not list(victim.iterdir())


def test_a_socket_of_another_user_is_not_asked(users, place):  # noqa: F811
    daemon, alice, bob = users
    made(alice)
    assert not bob.does("ln", "-s", daemon.socket, place / "link").returncode
    assert not bob.does("mkdir", place / "dir").returncode
    assert not bob.does("ln", "-s", daemon.socket, place / "dir/link").returncode
    for socket in (place / "link", place / "dir/link"):
        alice.env["TIDECAST_SOCKET"] = str(socket)
        message = alice.cache("get", "ct", "--to", alice.home, code=1)["message"]
        assert f"belongs to another user ({BOB})" in message and "TIDECAST_SOCKET" in message, message
    (place / "own").symlink_to(daemon.socket)
    os.chown(place / "own", ALICE, ALICE, follow_symlinks=False)
    alice.env["TIDECAST_SOCKET"] = str(place / "own")
    alice.cache("get", "ct", "--to", place)


def test_a_member_of_a_group_does_not_pose_as_the_daemon(users, place):  # noqa: F811
    _, alice, bob = users
    (place / "proj").mkdir()
    (place / "proj").chmod(0o2775)
    os.chown(place / "proj", ALICE, 61000)
    alice.env["TIDECAST_SOCKET"] = str(place / "proj/s")
    done = alice.run("daemon", "--dir", alice.home / "store", "--name", "a", "--socket", place / "proj/s", "--json")
    done.exits(1)
    assert "other users can write to" in done.events()[-1]["message"], done.out
    listen = f"import socket as s; l = s.socket(s.AF_UNIX); l.bind({str(place / 'proj/s')!r}); l.listen(); print(flush=True); print(l.accept()[0].recv(9))"
    words = ["setpriv", f"--reuid={BOB}", "--regid=61000", "--clear-groups", "--", sys.executable, "-c", listen]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd="/") as impostor:
        assert impostor.stdout.readline()
        os.chmod(place / "proj/s", 0o666)
        message = alice.cache("ls", code=1)["message"]
        assert f"user {BOB} listens at" in message and "other users may write to a directory on the way" in message, message
        assert impostor.stdout.read() == b"b''\n", "nothing is asked"


def test_a_daemon_makes_no_socket_where_another_user_may_exchange_it(users, place):  # noqa: F811
    _, alice, bob = users
    assert not bob.does("mkdir", "-m", "777", place / "dir").returncode
    for above in (place, place / "dir"):
        above.chmod(0o777)
        assert not alice.does("mkdir", "-p", above / "own/deep").returncode
        done = alice.run("daemon", "--dir", alice.home / "store", "--name", "a", "--socket", above / "own/deep/s", "--json")
        done.exits(1)
        assert "other users can put another directory in the place of" in done.events()[-1]["message"], done.out
        assert not list((above / "own/deep").iterdir())


@pytest.mark.parametrize("is_tree", [True, False], ids=["tree", "file"])
def test_a_bind_mount_may_be_made_again_after_it_has_ended(built, tmp_path, start, is_tree):
    host = Host(built / "tidecast", tmp_path, start, "host")
    host.serve()
    source, to = tmp_path / "source", tmp_path / "to"
    inside = "ct/data" if is_tree else "ct"
    (source / inside).parent.mkdir(parents=True)
    (source / inside).write_text("data")
    to.mkdir()
    host.create("ct", source / "ct")
    get = f"{host.program} cache get ct --to {to} --link bind && cat {to}/{inside}"
    force = get.replace("--link", "--force --link")
    steps = f"{get} && umount {to}/ct && {get} && umount {to}/ct && echo more >{to}/{inside} && ! {get} && {force}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", steps], env={**os.environ, **host.env}, capture_output=True, text=True, timeout=300)
    assert not done.returncode and "exists and differs" in done.stderr, done
    assert os.listdir(to) == ["ct"], "what was replaced is gone"


@pytest.mark.parametrize("kind", ["symlink", "copy", "hardlink"])
@pytest.mark.parametrize("what", ["directory", "mount"])
def test_a_tree_that_cannot_be_removed_as_a_whole_is_not_replaced(kind, what, users, place):  # noqa: F811
    """A directory of another user is in it, or a mount: nothing of it is lost, and nothing is left beside it."""
    _, alice, _ = users
    made(alice)
    inner = place / "ct/own/inner"
    inner.mkdir(parents=True)
    (place / "ct/own/mine").write_text("mine")
    if what == "mount":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", inner], check=True)
    try:
        (inner / "file").write_text("kept")
        for path in (place / "ct", place / "ct/own", place / "ct/own/mine"):
            os.chown(path, ALICE, ALICE)
        message = alice.cache("get", "ct", "--to", place, "--link", kind, "--force", code=1)["message"]
        assert ("another user" if what == "directory" else "mounted") in message, message
        assert os.listdir(place) == ["ct"] and (inner / "file").read_text() == "kept" and (place / "ct/own/mine").exists()
    finally:
        if what == "mount":
            subprocess.run(["umount", inner], check=True)
    shutil.rmtree(inner)
    alice.cache("get", "ct", "--to", place, "--link", kind, "--force")
    assert os.listdir(place) == ["ct"] and os.listdir(place / "ct") != ["own"]
