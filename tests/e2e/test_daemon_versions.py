"""A new version of a cache on a host that has an old one: the old data is not transferred again."""
import pathlib
import random

import pytest


def leaves(seed: int, number: int) -> bytes:
    return random.Random(seed).randbytes(number << 14)


@pytest.mark.parametrize("how", ["changed", "inserted", "removed", "moved", "grown", "alone"])
def test_a_new_version_moves_what_changed_inside_a_file(site, tmp_path, how):
    """Data of the old version, at the same offset or elsewhere, is not transferred."""
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    file = tree / "deep/big"
    old = leaves(1, 512)
    file.write_bytes(old)
    (tree / "small").write_text("as it was")
    origin, node = site.host("head"), site.host("node1")
    what = file if how == "alone" else tree
    origin.create("nt", what)
    first = node.cache("get", "head/nt", "--wait", "1m")
    new = {
        "changed": b"".join(old[i << 20:(i << 20) + (1 << 19)] + b"changed" + old[(i << 20) + (1 << 19) + 7:(i + 1) << 20] for i in range(8)),
        "inserted": old[:1000] + b"put in" + old[1000:5 << 20] + b"more" * 100 + old[5 << 20:],
        "removed": old[:1 << 20] + old[(1 << 20) + 12345:],
        "moved": old[4 << 20:] + old[:4 << 20],
        "grown": old + b"line\n",
        "alone": b"X" + old,
    }[how]
    file.write_bytes(new)
    origin.create("nt", what)
    before = node.http("GET", "/v1/daemon")[1]["received"]
    got = node.cache("get", "head/nt", "--wait", "1m")
    path = pathlib.Path(got["path"])
    assert got["name"] == "head/nt@2" and (path if how == "alone" else path / "deep/big").read_bytes() == new
    moved = node.http("GET", "/v1/daemon")[1]["received"] - before
    assert moved < 300_000, f"{moved} of {len(new)} bytes"
    kept = pathlib.Path(first["path"])
    assert (kept if how == "alone" else kept / "deep/big").read_bytes() == old
    assert not list((node.dir).rglob(".tidecast-base"))
    status, report = node.http("POST", "/v1/fsck")
    assert status == 200 and report["clean"], report


def test_a_file_with_nothing_of_the_old_one_comes_as_ever(site, tmp_path):
    file = tmp_path / "big"
    origin, node = site.host("head"), site.host("node1")
    for seed in (1, 2):
        file.write_bytes(leaves(seed, 100))
        origin.create("nt", file)
        got = node.cache("get", "head/nt", "--wait", "1m")
        assert got["name"] == f"head/nt@{seed}" and pathlib.Path(got["path"]).read_bytes() == leaves(seed, 100)
