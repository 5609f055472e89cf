"""`--base`: the data of an older version elsewhere is reused, at any offset in its files."""
import json
import os
import pathlib
import random

import pytest
from support import clients, trees
from support.tracker import Tracker, answer
from test_bcast import bcast

SIZE = 8 << 20


def tree(path: pathlib.Path, changed: int = 0) -> pathlib.Path:
    """A large file with this many changed places, and the part that is the same in every version."""
    content = bytearray(random.Random(1).randbytes(SIZE))
    for place in range(changed):
        content[place * SIZE // changed] ^= 1
    (path / "sub").mkdir(parents=True)
    (path / "sub/big").write_bytes(content)
    (path / "kept").write_bytes(random.Random(2).randbytes(1 << 20))
    (path / "link").symlink_to("/no/such/place")
    return path


@pytest.fixture
def versions(tmp_path):
    return tree(tmp_path / "old/data"), tree(tmp_path / "new/data", changed=4)


def test_get_takes_what_an_older_version_has(versions, shared, here, tmp_path):
    old, new = versions
    _, ticket = shared(new)
    before = trees.digest(old)
    done = here("get", ticket, "--no-lsd", "--to", tmp_path / "to", "--base", old, "--json").last("done")
    trees.assert_same(new, tmp_path / "to/data")
    assert trees.digest(old) == before
    assert done["received"] < 1 << 20, done
    whole = here("get", ticket, "--no-lsd", "--to", tmp_path / "whole", "--json").last("done")
    assert whole["received"] >= SIZE
    assert "cannot open the older version" in here("get", ticket, "--no-lsd", "--to", tmp_path / "x", "--base", tmp_path / "none", code=2).err


def test_a_base_is_read_through_no_link_and_believed_in_nothing(versions, shared, here, tmp_path):
    old, new = versions
    _, ticket = shared(new)
    (tmp_path / "elsewhere").mkdir()
    os.rename(old / "sub", tmp_path / "elsewhere/sub")
    (old / "sub").symlink_to(tmp_path / "elsewhere/sub")
    (old / "kept").write_bytes(bytes(1 << 20))
    done = here("get", ticket, "--no-lsd", "--to", tmp_path / "to", "--base", old, "--json").last("done")
    trees.assert_same(new, tmp_path / "to/data")
    assert done["received"] >= SIZE + (1 << 20), done


def test_bcast_takes_it_on_hosts_that_have_it(versions, tide, tmp_path):
    old, new = versions
    for host in "ab":
        os.makedirs(tmp_path / host)
        os.symlink(old, tmp_path / host / "old") if host == "a" else None
    done = bcast(tide, new, tmp_path / "{host}/data", "--base", tmp_path / "{host}/old", hosts="a,b").ok().last("done")
    for host in "ab":
        trees.assert_same(new, tmp_path / host / "data")
    received = {host["name"]: host["received"] for host in done["hosts"]}
    assert received["a"] < 2 << 20 and received["b"] >= SIZE, json.dumps(done["hosts"])


LEAF = 16 << 10
WRITES = 20


def moved(path: pathlib.Path, how: str) -> pathlib.Path:
    """The old tree's large file with bytes put in or taken out, or changed by writes of some size."""
    content = bytearray(random.Random(1).randbytes(SIZE))
    dice = random.Random(3)
    if how == "put in":
        content[:0] = b"first"
        content[SIZE // 2:SIZE // 2] = dice.randbytes(1000)
    elif how == "taken out":
        del content[1000:3000]
    else:
        size = 4096 if how == "small writes" else 60_000
        for _ in range(WRITES):
            at = dice.randrange(SIZE - size)
            content[at:at + size] = dice.randbytes(size)
    (path / "sub").mkdir(parents=True)
    (path / "sub/big").write_bytes(content)
    (path / "kept").write_bytes(random.Random(2).randbytes(1 << 20))
    return path


#: Leaves that are transferred for it: those around each change, and 16 bytes for each leaf of the file.
MOST = {"put in": 4, "taken out": 3, "small writes": 2 * WRITES, "large writes": 5 * WRITES}


@pytest.mark.parametrize("how", MOST)
@pytest.mark.parametrize("where", ["elsewhere", "at the destination"])
def test_what_moved_within_a_file_is_found(shared, here, tmp_path, how, where):
    old = tree(tmp_path / "to/data")
    new = moved(tmp_path / "new/data", how)
    _, ticket = shared(new)
    words = ["get", ticket, "--no-lsd", "--json"]
    if where == "elsewhere":
        words += ["--to", tmp_path / "to2", "--base", old]
    else:
        words += ["--to", tmp_path / "to", "--force", "--delete"]
    done = here(*words).last("done")
    trees.assert_same(new, tmp_path / ("to2" if where == "elsewhere" else "to") / "data")
    assert done["received"] <= MOST[how] * LEAF + SIZE // 1024 + 2 * LEAF, done


def test_a_file_that_may_not_be_replaced_is_refused_as_ever(shared, here, tmp_path):
    tree(tmp_path / "to/data")
    before = trees.digest(tmp_path / "to/data")
    _, ticket = shared(moved(tmp_path / "new/data", "put in"))
    assert "--force" in here("get", ticket, "--no-lsd", "--to", tmp_path / "to", code=1).err
    assert trees.digest(tmp_path / "to/data") == before


def test_a_stock_client_gives_what_is_not_at_the_same_offset(start, port, here, tmp_path):
    """It has no fingerprints: only the saving is lost."""
    new = moved(tmp_path / "new/data", "put in")
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", new, "v2")
    at = f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", torrent, new.parent, at)
    done = here("get", torrent, "--plain", "--no-lsd", "--peer", at, "--to", tmp_path / "to", "--base", tree(tmp_path / "old/data"), "--json").last("done")
    assert trees.same(new, tmp_path / "to/data", modes=False)
    assert SIZE <= done["received"] < 2 * SIZE


def test_bcast_finds_what_moved(tide, tmp_path):
    new = moved(tmp_path / "new/data", "put in")
    for host in "ab":
        tree(tmp_path / host / "old")
    done = bcast(tide, new, tmp_path / "{host}/data", "--base", tmp_path / "{host}/old", hosts="a,b").ok().last("done")
    for host in "ab":
        trees.assert_same(new, tmp_path / host / "data")
    assert all(host["received"] < 1 << 20 for host in done["hosts"]), json.dumps(done["hosts"])


def test_what_stands_there_is_compared_with_peers_that_are_found(tide, port, tmp_path):
    """A manifest names no peer: peers from a tracker send the fingerprints."""
    number, listen = port(), f"127.0.0.1:{port()}"
    words = ["--plain", "--no-lsd", "--json", "--delete"]
    for turn, version in enumerate([tree(tmp_path / "v1/data"), moved(tmp_path / "v2/data", "put in")]):
        manifest = tide.publish(version, tmp_path / f"{turn}.torrent", "--plain", "--format", "v2")
        with tide.seed(manifest, version, f"127.0.0.1:{number}", "--plain", "--no-lsd"):
            with Tracker(answer([("127.0.0.1", number)])) as tracker:
                done = tide("get", manifest, "--to", tmp_path / "to", "--tracker", tracker.url, "--listen", listen, *words).last("done")
                asked = {(ask["peer_id"], ask["port"]) for ask in tracker.asked}
        trees.assert_same(version, tmp_path / "to/data")
    assert len(asked) == 1, f"one node, by one name: {asked}"
    assert done["action"] == "replaced"
    assert done["received"] <= MOST["put in"] * LEAF + SIZE // 1024 + 2 * LEAF, done


def test_nobody_is_waited_for_where_nothing_differs(tide, port, tmp_path):
    version = tree(tmp_path / "v1/data")
    manifest = tide.publish(version, tmp_path / "m.torrent", "--plain", "--format", "v2")
    with Tracker(answer([])) as tracker:
        done = tide("get", manifest, "--to", tmp_path / "v1", "--tracker", tracker.url, "--listen", f"127.0.0.1:{port()}", "--plain", "--no-lsd",
                    "--json").last("done")
    assert done["action"] == "unchanged" and done["received"] == 0
