"""`cache get --to` where all users may create names: a link, file or tree that another user has put there does not count as delivered."""
import os
import pathlib
import shutil
import subprocess

import pytest
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
