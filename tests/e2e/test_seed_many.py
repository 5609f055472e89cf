"""`seed MANIFEST... --data DIR`: several manifests on one port of one process; one that fails does not end the others without a word."""
import pytest
from support import clients, trees

SIZE = 300_000


class Many:
    """Trees under two directories, and a manifest of each."""

    def __init__(self, tide, port, tmp_path):
        self.tide, self.tmp, self.here = tide, tmp_path, f"127.0.0.1:{port()}"
        self.dirs = [tmp_path / "one", tmp_path / "two"]
        self.trees, self.manifests = {}, {}

    def add(self, name: str, n: int, *words, kind="blob"):
        path = self.dirs[n] / name
        self.trees[name] = trees.tree(path) if kind == "tree" else trees.blob(path, SIZE)
        self.manifests[name] = self.tide.publish(path, self.tmp / f"{name}.torrent", *words)
        return self.manifests[name]

    def run(self, *words, manifests=None):
        data = [word for folder in self.dirs for word in ("--data", folder)]
        return self.tide.run("seed", *(manifests or self.manifests.values()), *data, "--listen", self.here, "--no-lsd", *words)

    def seed(self, *words, **kw):
        proc = self.run(*words, **kw)
        self.tide.wait_listening(proc, self.here)
        return proc

    def get(self, node, name: str, source=None):
        to = self.tmp / f"got-{name}"
        node("getter")("get", source or self.manifests[name], "--to", to, "--peer", self.here, "--no-lsd", "--timeout", "60s")
        trees.assert_same(self.trees[name], to / name)


@pytest.fixture
def many(tide, port, tmp_path):
    return Many(tide, port, tmp_path)


def test_one_port_serves_swarms_of_every_kind(many, node, start, port, tmp_path):
    many.add("plain", 0, "--format", "v2")
    many.add("old", 1, "--format", "v1", kind="tree")
    many.add("both", 1, "--format", "hybrid", kind="tree")
    many.add("secret", 0, "--private")
    many.add("other", 0, "--private")
    many.add("ssl", 0, "--ssl-torrent")
    seeding = many.seed("--json")
    seeding.until("all are served", lambda: len([e for e in seeding.events() if e["event"] == "started"]) == 6)
    begun = {e["name"]: e for e in seeding.events() if e["event"] == "started"}
    assert {name: e["manifest"] for name, e in begun.items()} == {n: str(m) for n, m in many.manifests.items()}
    assert all(e["listen"] == [many.here] for e in begun.values())
    for name in ("plain", "old", "both"):
        many.get(node, name)
        listen, folder = f"127.0.0.1:{port()}", tmp_path / f"lt-{name}"
        clients.libtorrent(start, "get", many.manifests[name], folder, listen, "--peer", many.here, "--encrypt", "rc4").ok()
        assert trees.same(many.trees[name], folder / name, modes=False)
    for name in ("secret", "other"):
        ticket = tmp_path / f"ticket-{name}"
        ticket.write_text(begun[name]["ticket"])
        ticket.chmod(0o600)
        many.get(node, name, f"@{ticket}")
    many.tide("get", many.manifests["ssl"], "--to", tmp_path / "got-ssl", "--peer", many.here, "--no-lsd", "--timeout", "60s")
    trees.assert_same(many.trees["ssl"], tmp_path / "got-ssl/ssl")
    seeding.process.terminate()
    done = seeding.ok().last("done")
    assert done["failed"] == [] and len(done["swarms"]) == 6
    assert done["sent"] == sum(swarm["sent"] for swarm in done["swarms"]) > 6 * SIZE


def test_status_shows_each_manifest(many, node):
    many.add("one", 0, "--format", "v2")
    many.add("two", 1, "--format", "v2")
    proc = many.seed("--plain")
    many.get(node, "one")

    def rows():
        found = many.tide("status", "--json").last("done")["processes"]
        return {row["name"]: row for one in found if one["pid"] == proc.process.pid for row in one.get("swarms", [])}

    sent = proc.until("what was sent of one", lambda: (found := rows()) and found["one"]["sent"] == SIZE and found)
    assert sent["two"]["sent"] == 0 and sent["two"]["bytes"] == SIZE, sent
    assert sent["one"]["manifest"] == str(many.manifests["one"])
    assert "  one: 300 kB sent" in many.tide("status").out


def test_tickets_are_told_apart(many):
    many.add("first", 0, "--private")
    many.add("second", 1, "--private")
    proc = many.seed()
    lines = proc.until("two tickets", lambda: len(lines := proc.out.splitlines()) == 2 and lines)
    assert [line.split(": ")[0] for line in lines] == ["first", "second"]


def test_one_that_cannot_be_served_does_not_end_the_others(many, node, tmp_path):
    many.add("good", 0)
    many.add("gone", 1)
    many.trees["gone"].unlink()
    broken = tmp_path / "broken.torrent"
    broken.write_bytes(b"d4:infoi1ee")
    proc = many.seed("--plain", manifests=[*many.manifests.values(), broken, tmp_path / "none.torrent"])
    many.get(node, "good")
    proc.process.terminate()
    said = proc.exits(1).err
    for name in ("gone", "broken", "none"):
        assert f"{name}.torrent is not served: " in said, said
    assert "no gone in" in said and "2 manifests more failed" in said


def test_one_whose_data_changes_does_not_end_the_others(many, node):
    many.add("good", 0)
    many.add("bad", 1)
    proc = many.seed("--plain")
    many.get(node, "good")
    many.trees["bad"].write_bytes(b"changed")
    node("taker").run("get", many.manifests["bad"], "--to", many.tmp / "never", "--peer", many.here, "--plain", "--no-lsd")
    proc.until("it is told", lambda: "bad.torrent is no longer served" in proc.err)
    many.tide("get", many.manifests["good"], "--to", many.tmp / "again", "--peer", many.here, "--plain", "--no-lsd")
    proc.process.terminate()
    assert "bad.torrent was not served in full" in proc.exits(1).err


def test_when_none_can_be_served_it_ends_at_once(many, tmp_path):
    proc = many.run(manifests=[tmp_path / "a.torrent", tmp_path / "b.torrent"])
    assert "a.torrent was not served in full" in proc.exits(1).err


def test_a_manifest_given_twice_is_served_once(many, node, tmp_path):
    again = tmp_path / "again.torrent"
    again.write_bytes(many.add("good", 0).read_bytes())
    proc = many.seed("--plain", manifests=[many.manifests["good"], again])
    proc.until("it is told", lambda: "again.torrent has the same swarm as" in proc.err)
    many.get(node, "good")
    proc.process.terminate()
    proc.ok()


def test_one_manifest_may_be_named_by_its_directory(many, node):
    many.add("good", 1)
    proc = many.seed("--plain")
    many.get(node, "good")
    proc.process.terminate()
    proc.ok()


@pytest.mark.parametrize("words, told", [
    (["a.torrent"], "no data given for a.torrent"),
    (["a.torrent", "b.torrent", "c.torrent"], "3 paths given: give one MANIFEST and the PATH of its data, or MANIFEST... --data DIR"),
])
def test_which_data_is_meant_must_be_clear(tide, words, told):
    assert told in tide("seed", *words, code=2).err
