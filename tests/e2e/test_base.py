"""`--base`: an older version that lies elsewhere gives what it has."""
import json
import os
import pathlib
import random

import pytest
from support import trees
from test_bcast import bcast

SIZE = 8 << 20


def tree(path: pathlib.Path, changed: int = 0) -> pathlib.Path:
    """A large file, of which so many places are changed, and what is the same in every version."""
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
