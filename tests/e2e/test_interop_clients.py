"""aria2, transmission and ctorrent (with opentracker) against Tidecast on lab nodes, both directions, and all mixed.

A lab, because transmission takes no loopback addresses, and each client expects a host of its own.
"""
import pytest
from conftest import needs
from support import clients, trees

pytestmark = pytest.mark.root
TRACKER = "http://10.77.0.1:6969/announce"
PORT = 6881


class Site:
    """A lab with a tracker on node 0; `at(n)` runs a command on node n."""

    def __init__(self, lab, start, node, tmp_path, nodes: int = 3):
        lab("up", f"single:{nodes}@200mbit")
        self.lab, self.start, self.tmp = lab, start, tmp_path
        self.tide = [node(f"n{n}", lab, n) for n in range(nodes)]

    def ip(self, n: int) -> str:
        return f"10.77.0.{n + 1}"

    def at(self, n: int):
        return lambda argv: self.start(self.lab.on(n, *argv), env={**self.lab.env, "HOME": str(self.tmp)})

    def tracker(self, kind: str, torrent) -> None:
        if kind == "opentracker":
            needs("opentracker")
            proc = clients.opentracker(self.at(0), self.ip(0), 6969, self.tmp / "ot", [torrent])
        else:
            proc = self.tide[0].run("tracker", "--listen", f"{self.ip(0)}:6969")
        self.tide[0].wait_listening(proc, f"{self.ip(0)}:6969")


@pytest.fixture
def site(lab, start, node, tmp_path):
    return Site(lab, start, node, tmp_path)


def source(what: str, tmp_path):
    """Manifests for clients without v2: v1 of any tree, or a hybrid of one large file (no padding files)."""
    if what == "tree":
        return trees.tree(tmp_path / "source/data"), "v1"
    return trees.blob(tmp_path / "source/data", 9 << 20), "hybrid"


CLIENTS = {"aria2": ("aria2c", clients.aria2), "transmission": ("transmission-cli", clients.transmission),
           "ctorrent": ("ctorrent", clients.ctorrent)}
# Of these only ctorrent can share a hybrid: aria2 1.36 computes another info-hash for it, and transmission 3.00 refuses
# the empty key that every v2 file tree has.
CASES = [("aria2", "tree"), ("transmission", "tree"), ("ctorrent", "tree"), ("ctorrent", "hybrid")]
TRACKERS = {"aria2": "tidecast", "transmission": "tidecast", "ctorrent": "opentracker"}


def launch(site, name: str, n: int, torrent, folder):
    """Start a client on node n with `folder` around the data."""
    needs(CLIENTS[name][0])
    where = folder / "data" if name == "ctorrent" else folder
    return CLIENTS[name][1](site.at(n), site.ip(n), PORT, site.tmp / f"{name}-{n}", torrent, where)


@pytest.mark.parametrize("name, what", CASES)
def test_they_get_from_tidecast(site, tmp_path, name, what):
    data, fmt = source(what, tmp_path)
    manifest = site.tide[1].publish(data, tmp_path / "m.torrent", "--format", fmt, "--tracker", TRACKER)
    site.tracker(TRACKERS[name], manifest)
    site.tide[1].seed(manifest, data, f"{site.ip(1)}:{PORT}", "--plain")
    proc = launch(site, name, 2, manifest, tmp_path / "got")
    proc.until("all data", lambda: (tmp_path / "got/data").exists() and trees.same(data, tmp_path / "got/data", modes=False))


@pytest.mark.parametrize("name, what", CASES)
def test_tidecast_gets_from_them(site, start, tmp_path, name, what):
    data, fmt = source(what, tmp_path)
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, fmt, "--tracker", TRACKER)
    site.tracker(TRACKERS[name], torrent)
    launch(site, name, 1, torrent, data.parent)
    site.tide[2]("get", torrent, "--to", tmp_path / "got", "--plain", "--timeout", "90s")
    assert trees.same(data, tmp_path / "got/data", modes=False), trees.difference(data, tmp_path / "got/data")


def test_all_mixed(lab, start, node, tmp_path):
    """One swarm: the origin, two more Tidecasts, libtorrent, aria2, transmission, ctorrent; `tidecast tracker`."""
    data = trees.tree(tmp_path / "source/data")
    site = Site(lab, start, node, tmp_path, 8)
    manifest = site.tide[1].publish(data, tmp_path / "m.torrent", "--format", "v1", "--tracker", TRACKER)
    site.tracker("tidecast", manifest)
    got = {n: tmp_path / f"got{n}" for n in range(2, 8)}
    procs = [site.tide[n].run("get", manifest, "--to", got[n], "--plain", "--listen", f"{site.ip(n)}:{PORT}", "--seed-for", "120s")
             for n in (2, 3)]
    procs.append(clients.libtorrent(site.at(4), "get", manifest, got[4], f"{site.ip(4)}:{PORT}", "--stay"))
    procs += [launch(site, name, n, manifest, got[n]) for n, name in enumerate(CLIENTS, 5)]
    site.tide[1].seed(manifest, data, f"{site.ip(1)}:{PORT}", "--plain")
    for n, proc in zip(got, procs):
        proc.until(f"node {n} has all data", lambda: (got[n] / "data").exists() and trees.same(data, got[n] / "data", modes=False))
