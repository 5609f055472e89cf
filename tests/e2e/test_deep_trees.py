"""Directories deeper than any path may be: made by a user to whom a directory is open, or by a client."""
import os
import pathlib
import subprocess

import pytest
from support.trees import blob
from test_copy import done, server  # noqa: F401

LEVELS = 4_000


@pytest.fixture
def here(node):
    return node("here")


@pytest.fixture(autouse=True)
def removed(tmp_path):
    """Python's own removal of a tree recurses."""
    yield
    subprocess.run(["find", tmp_path, "-mindepth", "1", "-maxdepth", "1", "-exec", "rm", "-rf", "{}", "+"], check=True)


def deep(top: pathlib.Path, levels: int, name: str = "d") -> None:
    top.mkdir()
    at = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


@pytest.fixture
def source(tmp_path):
    blob(tmp_path / "src/file", 1000)
    return tmp_path / "src"


def test_copy_deletes_them(here, source, tmp_path):
    (tmp_path / "dest").mkdir()
    deep(tmp_path / "dest/deep", LEVELS)
    planned = done(here, "-n", "--delete", f"{source}/", tmp_path / "dest")
    assert planned["deleted"] == LEVELS + 1 and (tmp_path / "dest/deep").exists()
    assert done(here, "--delete", f"{source}/", tmp_path / "dest")["deleted"] == LEVELS + 1
    assert os.listdir(tmp_path / "dest") == ["file"]


def test_a_server_outlives_the_deletion_of_what_a_client_has_sent(here, source, server, tmp_path):  # noqa: F811
    url = server()
    deep(tmp_path / "deep", 1_900, "a")
    done(here, f"{tmp_path}/deep/", f"{url}/x/")
    done(here, "--delete", f"{source}/", f"{url}/x/")
    assert os.listdir(tmp_path / "served/x") == ["file"]


def test_publish_and_get_do_not_follow_them(here, source, node, port, tmp_path):
    deep(tmp_path / "tall", LEVELS, "d" * 200)
    assert "nested too deep" in here("publish", tmp_path / "tall", "-o", tmp_path / "tall.torrent", code=1).err
    manifest, where = here.publish(source, tmp_path / "m.torrent"), f"127.0.0.1:{port()}"
    node("seeder").seed(manifest, source, where)
    words = ["get", manifest, "--to", tmp_path / "got", "--peer", where, "--no-lsd", "--json"]
    here(*words)
    deep(tmp_path / "got/src/deep", LEVELS, "d" * 200)
    assert here(*words).last("done")["files_stale"] == 1
    assert here(*words, "--delete", "--force").last("done")["files_deleted"] == 1
    assert os.listdir(tmp_path / "got/src") == ["file"]
    done(here, "--delete", f"{source}/", tmp_path / "tall")
