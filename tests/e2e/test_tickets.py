"""Private swarms: a ticket lets a node in; without one, with a wrong or a revoked one, nothing is had."""
import pytest
from support import trees


@pytest.fixture
def data(tmp_path):
    return trees.rich(tmp_path / "source/data")


def nothing_in(folder) -> bool:
    """No byte of payload under its name, nor a whole file of it anywhere."""
    return not (folder / "data").exists()


def test_a_ticket_brings_everything(node, port, data, tmp_path):
    _, ticket = node("origin").share(data, f"127.0.0.1:{port()}")
    assert ticket.startswith("tidecast1")
    got = node("getter")("get", ticket, "--to", tmp_path / "got", "--json")
    trees.assert_same(data, tmp_path / "got/data")
    assert (tmp_path / "got/data/nothing/here").is_dir()
    assert (tmp_path / "got/data/leaf").stat().st_ino == (tmp_path / "got/data/a/hard").stat().st_ino
    ours, theirs = ((p / "one").stat() for p in (tmp_path / "got/data", data))
    assert (ours.st_mode, ours.st_mtime_ns) == (theirs.st_mode, theirs.st_mtime_ns)
    assert (tmp_path / "got/data/sparse").stat().st_blocks * 512 < 1 << 20
    assert got.last("done")


def test_a_getter_serves_the_next(node, port, data, tmp_path):
    origin, ticket = node("origin").share(data, f"127.0.0.1:{port()}")
    first = node("first").run("get", ticket, "--to", tmp_path / "a", "--seed-for", "60s", "--json")
    first.until("the first has it", lambda: (tmp_path / "a/data/big.bin").exists())
    node("second")("get", ticket, "--to", tmp_path / "b", "--timeout", "60s")
    trees.assert_same(data, tmp_path / "b/data")


def test_a_manifest_is_no_ticket(node, port, data, tmp_path):
    origin = node("origin")
    manifest = origin.publish(data, tmp_path / "m.torrent", "--private")
    here = f"127.0.0.1:{port()}"
    origin.seed(manifest, data, here)
    proc = node("thief")("get", manifest, "--to", tmp_path / "got", "--peer", here, "--timeout", "5s", code=1)
    assert "ticket" in proc.err
    rude = node("rude").run("get", manifest, "--to", tmp_path / "got", "--peer", here, "--timeout", "5s", "--plain", "--json")
    assert rude.wait(60) in (1, 3), rude.story()
    assert rude.events()[-1].get("received", 0) == 0 and nothing_in(tmp_path / "got")


def test_a_changed_ticket_is_refused(node, port, data, tmp_path):
    _, ticket = node("origin").share(data, f"127.0.0.1:{port()}")
    at = len(ticket) // 2
    wrong = ticket[:at] + ("q" if ticket[at] != "q" else "p") + ticket[at + 1:]
    proc = node("thief").run("get", wrong, "--to", tmp_path / "got", "--timeout", "5s")
    assert proc.wait(60) in (1, 2), proc.story()
    assert "ticket" in proc.err.lower() and nothing_in(tmp_path / "got")


def test_a_revoked_ticket_brings_nothing(node, port, data, tmp_path):
    origin = node("origin")
    _, ticket = origin.share(data, f"127.0.0.1:{port()}")
    node("early")("get", ticket, "--to", tmp_path / "early")
    origin("revoke", ticket)
    for who in ("late", "early"):  # a new node, and one that was enrolled with it
        proc = node(who).run("get", ticket, "--to", tmp_path / f"again-{who}", "--timeout", "8s", "--json")
        assert proc.wait(60) in (1, 3), proc.story()
        assert nothing_in(tmp_path / f"again-{who}"), who
    assert "revoked" in (proc.out + proc.err).lower(), proc.story()


def test_stock_clients_cannot_enter_a_private_swarm(node, start, port, data, tmp_path):
    from support import clients
    origin = node("origin")
    manifest = origin.publish(data, tmp_path / "m.torrent", "--private")
    here = f"127.0.0.1:{port()}"
    origin.seed(manifest, data, here)
    thief = clients.libtorrent(start, "get", manifest, tmp_path / "got", f"127.0.0.1:{port()}", "--peer", here)
    with pytest.raises(AssertionError, match="did not end"):
        thief.wait(5)
    assert not any(p.is_file() and p.stat().st_blocks for p in (tmp_path / "got").rglob("*"))
