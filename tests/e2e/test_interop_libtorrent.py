"""Tidecast and libtorrent 2.x serve each other: every version of BitTorrent, both directions, magnets, IPv6."""
import hashlib
import os
import random

import pytest
from support import clients, trees

FORMATS = ("v1", "v2", "hybrid")


@pytest.fixture
def data(tmp_path):
    return trees.tree(tmp_path / "source/data")


def magnet(torrent, peer: str, fmt: str) -> str:
    """The magnet link of a torrent file, naming one peer."""
    info = clients.info_bytes(torrent.read_bytes())
    topics = []
    if fmt != "v2":
        topics.append("xt=urn:btih:" + hashlib.sha1(info).hexdigest())
    if fmt != "v1":
        topics.append("xt=urn:btmh:1220" + hashlib.sha256(info).hexdigest())
    return "magnet:?" + "&".join(topics) + f"&dn=data&x.pe={peer}"


@pytest.mark.parametrize("fmt", FORMATS)
def test_libtorrent_gets_from_tidecast(tide, start, port, data, tmp_path, fmt):
    manifest = tide.publish(data, tmp_path / "m.torrent", "--format", fmt)
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, here, "--plain")
    getter = clients.libtorrent(start, "get", manifest, tmp_path / "got", f"127.0.0.1:{port()}", "--peer", here)
    getter.ok()
    assert trees.same(data, tmp_path / "got/data", modes=False), trees.difference(data, tmp_path / "got/data")


@pytest.mark.parametrize("fmt", FORMATS)
def test_tidecast_gets_from_libtorrent(tide, start, port, data, tmp_path, fmt):
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, fmt)
    here = f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", torrent, data.parent, here)
    done = tide("get", torrent, "--to", tmp_path / "got", "--peer", here, "--plain", "--json").last("done")
    trees.assert_same(data, tmp_path / "got/data")
    assert done


@pytest.mark.parametrize("fmt", FORMATS)
def test_tidecast_gets_a_magnet_from_libtorrent(tide, start, port, data, tmp_path, fmt):
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, fmt)
    here = f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", torrent, data.parent, here)
    tide("get", magnet(torrent, here, fmt), "--to", tmp_path / "got", "--plain")
    trees.assert_same(data, tmp_path / "got/data")


@pytest.mark.parametrize("fmt", ("v1", "v2"))
def test_tidecast_gets_a_hybrid_by_either_hash_from_libtorrent(tide, start, port, data, tmp_path, fmt):
    """Sites give one hash of a hybrid torrent, most of them that of v1."""
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, "hybrid")
    here = f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", torrent, data.parent, here)
    tide("get", magnet(torrent, here, fmt), "--to", tmp_path / "got", "--plain")
    trees.assert_same(data, tmp_path / "got/data")


@pytest.mark.parametrize("fmt", ("v1", "hybrid"))
def test_tidecast_gets_a_hybrid_by_magnet_from_a_seed_without_v2_hashes(tide, start, port, data, tmp_path, fmt):
    """It has no piece layers to give: the hashes of v1 verify the data, if v1 was requested."""
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, "hybrid")
    whole = torrent.read_bytes()
    at = whole.index(b"12:piece layers")
    (tmp_path / "bare.torrent").write_bytes(whole[:at] + whole[clients.skip(whole, at + 15):])
    here = f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", tmp_path / "bare.torrent", data.parent, here)
    tide("get", magnet(torrent, here, fmt), "--to", tmp_path / "got", "--plain")
    trees.assert_same(data, tmp_path / "got/data")


@pytest.mark.parametrize("seed", ("libtorrent", "tidecast"))
@pytest.mark.parametrize("fmt", ("v2", "hybrid"))
def test_a_torrent_file_without_piece_layers_is_enough(tide, start, port, data, tmp_path, fmt, seed):
    """As clients save it that have it from a magnet link: the layers come from peers, or v1 verifies."""
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, fmt)
    whole = torrent.read_bytes()
    at = whole.index(b"12:piece layers")
    (tmp_path / "bare.torrent").write_bytes(whole[:at] + whole[clients.skip(whole, at + 15):])
    here = f"127.0.0.1:{port()}"
    if seed == "libtorrent":
        clients.libtorrent(start, "seed", torrent, data.parent, here)
    else:
        tide.seed(torrent, data, here, "--plain")
    tide("get", tmp_path / "bare.torrent", "--to", tmp_path / "got", "--plain", "--peer", here)
    trees.assert_same(data, tmp_path / "got/data")


def test_magnets_select_files_by_their_numbers(tide, start, port, data, tmp_path):
    """BEP 53: by the list in the info dictionary, padding and all, and the numbers that libtorrent reads in the link."""
    libtorrent = pytest.importorskip("libtorrent")
    dice = random.Random(os.environ.get("TIDECAST_FRESH") and random.SystemRandom().random() or "files by number")
    for fmt in FORMATS[::2]:
        manifest = tide.publish(data, tmp_path / f"{fmt}.torrent", "--format", fmt, "--plain")
        info = libtorrent.bdecode(manifest.read_bytes())[b"info"]
        files = [(b"/".join(file[b"path"]).decode(), b"p" in file.get(b"attr", b"")) for file in info[b"files"]]
        here = f"127.0.0.1:{port()}"
        tide.seed(manifest, data, here, "--plain")
        for trial in range(3):
            first = dice.randrange(len(files))
            link = magnet(manifest, here, fmt) + f"&so={first}-{first + dice.randrange(4)},{dice.randrange(len(files))}"
            chosen = libtorrent.parse_magnet_uri(link).file_priorities
            expected = {f"data/{path}" for (path, pad), wanted in zip(files, chosen) if wanted and not pad}
            to = tmp_path / f"{fmt}{trial}"
            tide("get", link, "--to", to, "--plain", code=0 if expected else 1)
            got = {str(path.relative_to(to)) for path in to.rglob("*") if path.is_symlink() or path.is_file()}
            assert got == expected, link


@pytest.mark.parametrize("fmt", FORMATS)
def test_libtorrent_gets_a_magnet_from_tidecast(tide, start, port, data, tmp_path, fmt):
    manifest = tide.publish(data, tmp_path / "m.torrent", "--format", fmt)
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, here, "--plain")
    clients.libtorrent(start, "get", magnet(manifest, here, fmt), tmp_path / "got", f"127.0.0.1:{port()}", "--peer", here).ok()
    assert trees.same(data, tmp_path / "got/data", modes=False)


def test_over_ipv6(tide, start, port, data, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent", "--format", "hybrid")
    here = f"[::1]:{port()}"
    tide.seed(manifest, data, here, "--plain")
    clients.libtorrent(start, "get", manifest, tmp_path / "lt", f"[::1]:{port()}", "--peer", here).ok()
    assert trees.same(data, tmp_path / "lt/data", modes=False)
    tide("get", manifest, "--to", tmp_path / "tc", "--peer", here, "--plain")
    trees.assert_same(data, tmp_path / "tc/data")


def test_tidecast_reads_what_libtorrent_writes_the_same(tide, start, data, tmp_path):
    """The same tree gives the same v2 pieces roots and v1 pieces, whoever hashed it."""
    theirs = clients.make_torrent(start, tmp_path / "theirs.torrent", data, "v2", "--piece", 65536)
    tide("verify", theirs, data)
    (data / "leaf").write_bytes(b"x" * 16384)
    tide("verify", theirs, data, code=1)
