"""`tidecast bcast`: what is special about a source."""
import os

from support import trees
from test_bcast import bcast


def test_links_that_lead_out_are_carried_as_they_are(tide, tmp_path):
    """A Python virtual environment has such; nothing is written by way of them."""
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
    # What was a link is a directory in the next version.
    (data / "dir").unlink()
    trees.blob(data / "dir/file", 100_000)
    bcast(tide, data, tmp_path / "{host}/v0", hosts="a,b")
    assert os.listdir(outside) == [], "nobody wrote by way of the link"


def test_other_programs_are_handed_no_such_link(tide, tmp_path):
    data = trees.rich(tmp_path / "source/venv")
    (data / "python").symlink_to("/usr/bin/python3")
    error = bcast(tide, data, tmp_path / "{host}/v", "--plain", "--torrent", tmp_path / "t", hosts="a,b").exits(1).last("error")
    assert "leads out" in error["message"], error
