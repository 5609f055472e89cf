"""SSL torrents (libtorrent's convention): a stock libtorrent in an authenticated swarm, both directions."""
import pytest
from support import certs, clients, trees


@pytest.fixture
def data(tmp_path):
    return trees.tree(tmp_path / "source/data")


def root_of(node):
    """The root that `publish --ssl-torrent` made, certificate and key in one file."""
    (pem,) = node.home.rglob("ssl-root.pem")
    return pem


def test_libtorrent_gets_from_tidecast(tide, start, port, data, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent", "--ssl-torrent")
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, here)
    cert, key, dh = certs.peer(tmp_path / "peer", root_of(tide), root_of(tide), "data")
    getter = clients.libtorrent(start, "get", manifest, tmp_path / "got", f"127.0.0.1:{port()}", "--peer", here, "--ssl", cert, key, dh)
    getter.ok()
    assert trees.same(data, tmp_path / "got/data", modes=False)


@pytest.mark.parametrize("fmt", ["v1", "v2", "hybrid"])
def test_tidecast_gets_from_libtorrent(tide, start, port, data, tmp_path, fmt):
    ca, ca_key = certs.root(tmp_path / "ca")
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, fmt, "--ca", ca)
    cert, key, dh = certs.peer(tmp_path / "theirs", ca, ca_key, "data")
    here = f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", torrent, data.parent, here, "--ssl", cert, key, dh)
    cert, key, _ = certs.peer(tmp_path / "ours", ca, ca_key, "data")
    tide("get", torrent, "--to", tmp_path / "got", "--peer", here, "--ssl-cert", cert, "--ssl-key", key, "--timeout", "60s")
    assert trees.same(data, tmp_path / "got/data", modes=False)


@pytest.mark.parametrize("name, signed", [("other", True), ("data", False)])
def test_a_certificate_for_something_else_brings_nothing(tide, node, start, port, data, tmp_path, name, signed):
    """A peer whose certificate names another torrent, or was signed by another root, gets no byte of Tidecast's."""
    manifest = tide.publish(data, tmp_path / "m.torrent", "--ssl-torrent")
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, here)
    ca = (root_of(tide), root_of(tide)) if signed else certs.root(tmp_path / "ca")
    cert, key, _ = certs.peer(tmp_path / "peer", *ca, name)
    proc = node("thief").run("get", manifest, "--to", tmp_path / "got", "--peer", here, "--ssl-cert", cert, "--ssl-key", key,
                             "--timeout", "5s", "--json")
    assert proc.wait(60) in (1, 3), proc.story()
    assert proc.events()[-1].get("received", 0) == 0
