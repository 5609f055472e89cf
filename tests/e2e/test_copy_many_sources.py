"""More sources than a process may have open files: on the command line, and matched by a pattern of a server's client."""
import subprocess

import pytest
from test_copy import done, server  # noqa: F401

FEW = ("prlimit", "--nofile=160")
MANY = 400


@pytest.fixture
def sources(tmp_path):
    base = tmp_path / "served"
    (base / "files").mkdir(parents=True)
    for number in range(MANY):
        (base / f"files/{number}").write_text(str(number))
        (base / f"dirs/{number}").mkdir(parents=True)
        (base / f"dirs/{number}/x{number}").write_text(str(number))
    return base


def names(path) -> set[str]:
    return {str(at.relative_to(path)) for at in path.rglob("*")}


def test_of_this_host(node, sources, start, built, tmp_path):
    here = node("here")

    def copy(into: str, words) -> set[str]:
        start([*FEW, built / "tidecast", "--state-dir", tmp_path / "state", "copy", *words, f"{tmp_path}/{into}/"]).ok()
        return names(tmp_path / into)

    for kind in ("files", "dirs"):
        assert copy(kind, sources.glob(f"{kind}/*")) == names(sources / kind)
    assert len(copy("contents", [f"{at}/" for at in sources.glob("dirs/*")])) == MANY
    assert done(here, *sources.glob("files/*"), tmp_path / "files")["files_copied"] == 0


def test_of_a_server(node, server, sources, tmp_path):  # noqa: F811
    here, url = node("here"), server()
    subprocess.run(["prlimit", f"--pid={server.proc.process.pid}", "--nofile=160:160"], check=True)
    for pattern, into in (("files/*", "files"), ("dirs/*", "dirs"), ("dirs/*/x*", "all")):
        done(here, url + pattern, f"{tmp_path}/{into}/")
        found = names(tmp_path / into)
        assert len(found) == MANY if into == "all" else found == names(sources / into)
    # Where links are followed each directory stays open: a bounded number of them, and other clients are served.
    assert "could not be copied" in done(here, "-L", url + "dirs/*", f"{tmp_path}/followed/", code=1)["message"]
    assert done(here, url + "files/7", f"{tmp_path}/one")["files_copied"] == 1
