"""Several daemons on one machine: they share the caches that one of them has fetched."""
import os
import pathlib
import signal
import subprocess
import time

import pytest
from support.callers import passable
from support.daemons import Host
from support.tidecast import wait_for

MIB = 1 << 20


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    for number in range(6):
        (data / f"part{number}").write_bytes(os.urandom(1 + number * 300_000))
    (data / "sub" / "empty").touch()
    (data / "sub" / "link").symlink_to("../part1")
    return data


@pytest.fixture
def kin(built, tmp_path, start):
    """Makes daemons of one machine, each with a directory of its own."""

    def make(name: str, *words) -> Host:
        host = Host(built / "tidecast", tmp_path / name, start, name)
        host.machine = str(tmp_path)
        host.serve(*words)
        return host

    return make


def same(a: pathlib.Path, b: pathlib.Path) -> None:
    subprocess.run(["diff", "-r", a, b], check=True)


def inodes(path: str) -> set[int]:
    return {p.stat().st_ino for p in pathlib.Path(path).rglob("*") if p.is_file() and not p.is_symlink() and p.stat().st_size}


def test_children_link_what_the_oldest_has(kin, data, tmp_path):
    oldest, first, second = kin("oldest"), kin("first"), kin("second")
    path = oldest.create("nt", data)["path"]
    for child in (second, first):
        got = child.cache("get", "oldest/nt", "--wait", "1m")
        assert got["method"] == "LINK", got
        same(data, pathlib.Path(got["path"]))
        assert inodes(got["path"]) == inodes(path), "the disk was written once"
        shown = child.cache("show", "oldest/nt")
        assert shown["came"]["link"] == shown["bytes"] and shown["came"]["parent"] == 0
        assert child.http("POST", "/v1/fsck")[1]["clean"]
        wait_for("the election to be shown", lambda c=child: c.http("GET", "/v1/daemon")[1].get("parent") == "oldest")
    # Each has its own: one that goes takes nothing from the others.
    oldest.cache("rm", "nt")
    same(data, pathlib.Path(first.cache("get", "oldest/nt")["path"]))


def test_a_dead_or_frozen_parent_is_replaced(kin, data):
    oldest, middle, youngest = kin("oldest"), kin("middle"), kin("youngest")
    middle.create("nt", data)
    oldest.daemon.signal(signal.SIGSTOP)
    began = time.monotonic()
    got = youngest.cache("get", "middle/nt", "--wait", "1m")
    assert got["method"] == "LINK"
    print(f"a frozen parent was passed over in {time.monotonic() - began:.1f} s")
    wait_for("another parent", lambda: youngest.http("GET", "/v1/daemon")[1].get("parent") == "middle")
    oldest.daemon.signal(signal.SIGCONT)
    wait_for("the oldest again", lambda: youngest.http("GET", "/v1/daemon")[1].get("parent") == "oldest", timeout=60)
    oldest.daemon.signal(signal.SIGKILL)
    oldest.daemon.wait()
    wait_for("another parent", lambda: youngest.http("GET", "/v1/daemon")[1].get("parent") == "middle")
    middle.daemon.signal(signal.SIGKILL)
    middle.daemon.wait()
    wait_for("no parent", lambda: "parent" not in youngest.http("GET", "/v1/daemon")[1])


def test_the_parent_brings_from_other_hosts_once_for_all_its_children(site, kin, data):
    head = site.host("head")
    head.create("nt", data)
    pem = site.certificate("host:node")
    words = ["--trust", site.trust, "--certificate", pem, "--peer", f"head={head.listen}"]
    parent = kin("node", "--listen", f"127.0.0.1:{site.free_port()}", *words)
    children = [kin(f"child{number}") for number in range(3)]
    for child in children:
        got = child.cache("get", "head/nt", "--wait", "1m")
        assert got["method"] == "LINK"
        same(data, pathlib.Path(got["path"]))
    came = parent.http("GET", "/v1/daemon")[1]["came"]
    size = parent.cache("show", "head/nt")["bytes"]
    assert came["origin"] >= size and came["origin"] < 1.2 * size and came["peers"] == 0, came
    assert head.http("GET", "/v1/daemon")[1]["sent"] < 1.2 * size


def as_user(uid: int, words) -> list:
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *words]


class Other(Host):
    """A daemon of another user."""

    uid = 65534

    def argv(self, *words):
        return as_user(self.uid, super().argv(*words))


def test_another_user_gets_by_the_kernels_word_what_is_his_and_nothing_else(built, tmp_path, start, kin, data):
    if os.geteuid():
        pytest.skip("SKIPPED: becoming another user needs root")
    passable(tmp_path)
    parent = kin("host")
    shared, own = parent.create("all", data)["path"], parent.create("own", data, "--private")
    home = tmp_path / "other"
    home.mkdir()
    os.chown(home, Other.uid, Other.uid)
    child = Other(built / "tidecast", home, start, "nobody.host")
    child.machine = str(tmp_path)
    child.serve()
    got = child.cache("get", "host/all", "--wait", "1m")
    assert got["method"] == "DIRECT", "links are for one user's daemons"
    same(data, pathlib.Path(got["path"]))
    assert not inodes(got["path"]) & inodes(shared)
    assert child.cache("show", "host/all")["came"]["parent"] > 0
    assert child.cache("get", "host/own", "--wait", "5s", code=1)["reason"] in ("absent", "unreachable")
    assert own["name"] not in child.names()
