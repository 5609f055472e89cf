"""`tidecast bcast`: special kinds of sources."""
import json
import os
import signal

import pytest
from support import trees
from test_bcast import bcast, workers


def test_links_that_lead_out_are_carried_as_they_are(tide, tmp_path):
    """A Python virtual environment has such links; nothing is written through them."""
    outside = tmp_path / "outside"
    outside.mkdir()
    data = trees.rich(tmp_path / "source/venv")
    links = {"python": "/usr/bin/python3", "up": "../../../x", "dir": str(outside), "nowhere": "/no/such/place"}
    for name, target in links.items():
        (data / name).symlink_to(target)
    for words in ([], ["--plain"]):
        bcast(tide, data, tmp_path / "{host}" / f"v{len(words)}", *words, hosts="a,b").ok()
    for copy in (tmp_path / host / version for host in "ab" for version in ("v0", "v1")):
        trees.assert_same(data, copy)
        assert {name: os.readlink(copy / name) for name in links} == links
    # A link becomes a directory in the next version.
    (data / "dir").unlink()
    trees.blob(data / "dir/file", 100_000)
    bcast(tide, data, tmp_path / "{host}/v0", hosts="a,b")
    assert os.listdir(outside) == [], "nobody wrote by way of the link"


def test_such_links_are_in_the_manifest_for_other_programs_too(tide, tmp_path):
    data = trees.rich(tmp_path / "source/venv")
    (data / "python").symlink_to("/usr/bin/python3")
    done = bcast(tide, data, tmp_path / "{host}/v", "--plain", "--torrent", tmp_path / "t", hosts="a,b").ok()
    assert "1 symbolic link leads out of the tree" in done.out
    assert os.readlink(tmp_path / "b/v/python") == "/usr/bin/python3"
    assert "python -> /usr/bin/python3" in tide("show", tmp_path / "t").out


def test_several_sources_share_what_is_sent(tide, tmp_path):
    """Every "host" here sees the source: three of them send parts of it, and it is one copy in all. On a busy machine one may be
    ready when the others have sent everything."""
    data = trees.blob(tmp_path / "shared/data", 9_000_000)
    for words in ([], ["--plain"]):
        done = bcast(tide, data, tmp_path / "{host}" / f"x{len(words)}", "--sources", "3", *words).ok().last("done")
        shares = [s["sent"] for s in done["sources"]]
        assert len(shares) == 2 and all(share < 0.6 * 9e6 for share in shares) and sum(shares) > 0.1 * 9e6, done
        assert 0.95 < done["origin_copies"] < 1.5 and sum(shares) < done["origin_sent"]
        for host in (f"h{n}" for n in range(1, 9)):
            trees.assert_same(data, tmp_path / host / f"x{len(words)}")


@pytest.mark.root
def test_who_sees_another_file_is_no_source(tide, launcher, tmp_path):
    """The second host has an older version at that path; its data is hashed before it is sent."""
    data = trees.blob(tmp_path / "data", 3_000_000)
    stale = tmp_path / "stale"
    trees.blob(stale, 3_000_000, seed=5)
    os.utime(stale, ns=(os.stat(data).st_atime_ns, os.stat(data).st_mtime_ns))
    launch = launcher(f"""[ $host = old ] && set -- unshare -m sh -c 'mount --bind {stale} {data} && exec "$@"' sh "$@" """)
    done = bcast(tide, data, tmp_path / "{host}/data", "--sources", "2", hosts="old,b,c", launch=launch).ok().last("done")
    for host in ("old", "b", "c"):
        trees.assert_same(data, tmp_path / host / "data")
    assert all(s["sent"] == 0 for s in done["sources"]), "nothing of the stale file was sent"


@pytest.mark.alone
@pytest.mark.root
def test_sources_make_up_for_a_slow_origin_and_for_each_other(lab, node, tmp_path):
    lab("up", "single:7@50mbit")
    lab("slow", "0", "8mbit")
    tide = node("origin", lab, 0)
    data = trees.blob(tmp_path / "data", 12_000_000)
    # With a given topology: a host that a trial measures as slow, even by chance, is not a source.
    places = tmp_path / "places"
    places.write_text(f"here {lab.name}.n[000-006]\n")
    flags = ["--sources", "4", "--topology", places, "--origin", f"{lab.name}.n000"]
    words = dict(hosts=f"{lab.name}.n[001-006]", launch="ip netns exec {host} {command}")
    done = bcast(tide, data, tmp_path / "one/{host}", *flags, **words).ok().last("done")
    assert len(done["sources"]) == 3 and done["transfer_seconds"] < 8, "the origin alone takes 12 s"
    sent = lambda: json.loads(lab("counters"))["nodes"][1]["tx"]
    before = sent()
    proc = bcast(tide, data, tmp_path / "two/{host}", *flags, **words)
    proc.until("it is under way", lambda: sent() > before + 1_000_000)
    victim = f"{lab.name}.n001"
    os.kill(workers(proc)[victim], signal.SIGKILL)
    error = proc.exits(1).last("error")
    assert error["hosts_done"] == 5 and error["sources"][0]["name"] == victim
    for n in range(2, 7):
        trees.assert_same(data, tmp_path / f"two/{lab.name}.n{n:03d}")
