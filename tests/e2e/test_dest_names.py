"""A destination's files that have other names elsewhere, names that look like the program's own, and paths that lead nowhere."""
import os

import pytest
from support import trees
from test_dest import bcast, outcomes, told


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("more", [(), ("--force",)])
def test_the_same_data_takes_the_attributes_of_the_source_but_not_its_other_names(tide, tmp_path, linked, more):
    source, to, other = tmp_path / "source", tmp_path / "to", tmp_path / "other"
    mine = trees.blob(to / "k", 40_000)
    trees.blob(source / "k", 40_000)
    os.chmod(source / "k", 0o644)
    os.chmod(mine, 0o600)
    os.utime(mine, (10**9, 10**9))
    if linked:
        os.link(mine, other)
    action = outcomes(bcast(tide, source, to, *more, hosts="a").ok())["a"]
    assert action == ("replaced" if linked else "unchanged")
    trees.assert_same(source, to)
    assert (to / "k").stat().st_mode & 0o777 == 0o644
    assert int((to / "k").stat().st_mtime) == int((source / "k").stat().st_mtime)
    if linked:
        assert other.stat().st_mode & 0o777 == 0o600 and other.stat().st_mtime == 10**9 and other.read_bytes() == mine.read_bytes()
    assert outcomes(bcast(tide, source, to, hosts="a").ok())["a"] == "unchanged"


def test_a_list_for_prefetching_is_data_like_any_other(tide, tmp_path):
    source, to = tmp_path / "source", tmp_path / "to"
    trees.blob(source / "a", 300)
    (source / ".tidecast-prefetch").write_text("a\n")
    bcast(tide, source, to, hosts="a").ok()
    (source / ".tidecast-prefetch").unlink()
    (to / ".tidecast-other-0123abcd").mkdir()
    assert told(bcast(tide, source, to, hosts="a").ok().last("done"))["a"]["stale"] == 1
    assert told(bcast(tide, source, to, "--delete", hosts="a").ok().last("done"))["a"]["deleted"] == 1
    assert sorted(os.listdir(to)) == [".tidecast-other-0123abcd", "a"], "a staging area stays"


def test_a_path_that_leads_nowhere_is_named_with_the_reason(tide, tmp_path):
    source = trees.blob(tmp_path / "source", 300)
    (tmp_path / "file").write_text("mine")
    os.symlink("loop", tmp_path / "loop")
    os.symlink("missing", tmp_path / "dangling")
    reasons = {"file": "found a file instead of a directory", "loop": "too many symbolic links", "dangling": "dangling symbolic link"}
    for name, why in reasons.items():
        for below in ["copy", "sub/copy"]:
            reason = told(bcast(tide, source, tmp_path / name / below, hosts="a").exits(1).last("error"))["a"]["reason"]
            assert reason.startswith(f"{tmp_path / name} is in the way: ") and why in reason, reason
