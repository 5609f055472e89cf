"""Clients that demand encryption of every connection (MSE) are served and fetched from: libtorrent and aria2 are the judges."""
import pytest
from conftest import needs
from support import clients, trees
from test_interop_libtorrent import FORMATS, magnet

LEVELS = ("rc4", "any")
DEMANDS = ("--bt-require-crypto=true", "--bt-min-crypto-level=arc4")


@pytest.fixture
def data(tmp_path):
    return trees.tree(tmp_path / "source/data")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_libtorrent_gets(tide, start, port, data, tmp_path, fmt, level):
    manifest = tide.publish(data, tmp_path / "m.torrent", "--format", fmt)
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, here, "--plain", "--no-lsd")
    peer = ("--peer", here, "--encrypt", level)
    clients.libtorrent(start, "get", manifest, tmp_path / "got", f"127.0.0.1:{port()}", *peer).ok()
    assert trees.same(data, tmp_path / "got/data", modes=False), trees.difference(data, tmp_path / "got/data")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_libtorrent_gives(tide, start, port, data, tmp_path, fmt, level):
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, fmt)
    here = f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", torrent, data.parent, here, "--encrypt", level)
    tide("get", torrent, "--to", tmp_path / "got", "--peer", here, "--plain", "--no-lsd")
    trees.assert_same(data, tmp_path / "got/data")


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_magnet_of_libtorrent(tide, start, port, data, tmp_path, fmt):
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, fmt)
    here = f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", torrent, data.parent, here, "--encrypt", "rc4")
    tide("get", magnet(torrent, here, fmt), "--to", tmp_path / "got", "--plain", "--no-lsd")
    trees.assert_same(data, tmp_path / "got/data")


def test_a_magnet_of_tidecast(tide, start, port, data, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent", "--format", "hybrid")
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, here, "--plain", "--no-lsd")
    link = magnet(manifest, here, "hybrid")
    clients.libtorrent(start, "get", link, tmp_path / "got", f"127.0.0.1:{port()}", "--peer", here, "--encrypt", "rc4").ok()
    assert trees.same(data, tmp_path / "got/data", modes=False)


def test_a_get_passes_on_between_those_who_demand_it_and_those_who_do_not(node, start, port, data, tmp_path):
    """An encrypted seed, a getter between, and behind it one that demands encryption and one that speaks plainly."""
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, "hybrid")
    seed, here = f"127.0.0.1:{port()}", f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", torrent, data.parent, seed, "--encrypt", "any")
    between = node("between").run("get", torrent, "--to", tmp_path / "between", "--peer", seed, "--plain", "--no-lsd",
                                  "--listen", here, "--seed-for", "10m")
    node("between").wait_listening(between, here)
    plain = node("plain").run("get", torrent, "--to", tmp_path / "plain", "--peer", here, "--plain", "--no-lsd")
    clients.libtorrent(start, "get", torrent, tmp_path / "lt", f"127.0.0.1:{port()}", "--peer", here, "--encrypt", "rc4").ok()
    plain.ok()
    trees.assert_same(data, tmp_path / "plain/data")
    assert trees.same(data, tmp_path / "lt/data", modes=False)


def test_aria2_gives(tide, start, port, data, tmp_path):
    needs("aria2c")
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, "v1")
    number = port()
    clients.aria2(start, "127.0.0.1", number, tmp_path / "home", torrent, data.parent, *DEMANDS)
    tide("get", torrent, "--to", tmp_path / "got", "--peer", f"127.0.0.1:{number}", "--plain", "--no-lsd")
    trees.assert_same(data, tmp_path / "got/data")


def got(data, folder):
    return lambda: folder.exists() and trees.same(data, folder, modes=False)


def test_aria2_gets(tide, start, port, data, tmp_path):
    """It dials the seed that a tracker names."""
    needs("aria2c")
    listen, seed = (f"127.0.0.1:{port()}" for _ in range(2))
    tracker = tide.run("tracker", "--listen", listen)
    tide.wait_listening(tracker, listen)
    manifest = tide.publish(data, tmp_path / "m.torrent", "--format", "v1", "--tracker", f"http://{listen}/announce")
    seeding = tide.seed(manifest, data, seed, "--plain", "--no-lsd", "--json")
    proc = clients.aria2(start, "127.0.0.1", port(), tmp_path / "home", manifest, tmp_path / "got", *DEMANDS)
    proc.until("all data", got(data, tmp_path / "got/data"))
    seeding.process.terminate()
    seeding.wait()


def test_a_seed_dials_aria2(tide, start, port, data, tmp_path):
    needs("aria2c")
    manifest = tide.publish(data, tmp_path / "m.torrent", "--format", "v1")
    number = port()
    proc = clients.aria2(start, "127.0.0.1", number, tmp_path / "home", manifest, tmp_path / "got", *DEMANDS)
    tide.seed(manifest, data, f"127.0.0.1:{port()}", "--plain", "--no-lsd", "--peer", f"127.0.0.1:{number}")
    proc.until("all data", got(data, tmp_path / "got/data"))
