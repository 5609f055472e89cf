"""A host joins a site by a ticket; daemons renew their certificates automatically."""
import os
import pathlib
import subprocess

import pytest
from support.callers import passable
from support.daemons import Host
from support.tidecast import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: a daemon with the certificate of a host needs root")


@pytest.fixture
def member(built, tmp_path, start, port):
    """member(name) -> a host that is of no site yet."""
    def make(name: str) -> Host:
        host = Host(built / "tidecast", tmp_path / name, start, name)
        host.listen = f"127.0.0.1:{port()}"
        return host
    return make


@pytest.fixture
def head(member) -> Host:
    """The host that keeps the authority; its daemon runs."""
    host = member("head")
    host("daemon", "init", "--dir", host.dir, "--name", "head")
    host.serve("--listen", host.listen, "-v")
    return host


def invite(head: Host, identity: str, *words) -> pathlib.Path:
    """A file with a ticket, as an administrator hands it over."""
    done = head("ca", "invite", identity, "--dir", head.dir, "--listen", head.listen, *words)
    path = head.home / f"ticket-{len(list(head.home.glob('ticket-*')))}"
    path.touch(0o600)
    path.write_text(done.out)
    return path


def join(host: Host, ticket: pathlib.Path, code: int = 0):
    return host("daemon", "init", "--dir", host.dir, "--join", f"@{ticket}", code=code)


def test_two_hosts_share_a_cache_in_five_commands(member, tmp_path):
    data = tmp_path / "data"
    data.write_bytes(os.urandom(100_000))
    head, node = member("head"), member("node1")
    head("daemon", "init", "--dir", head.dir, "--name", "head")
    head.serve("--listen", head.listen)
    join(node, invite(head, "host:node1"))
    node.serve("--listen", node.listen)
    head.create("nt", data)
    got = node.cache("get", "head/nt", "--wait", "1m")
    subprocess.run(["diff", "-r", data, pathlib.Path(got["path"]) / "data" if pathlib.Path(got["path"]).is_dir() else got["path"]], check=True)
    # And in the other direction, by the same trust.
    node.create("back", data)
    assert head.cache("get", "node1/back", "--wait", "1m")["path"]


def test_a_foundation_that_was_interrupted_is_finished(member):
    host = member("head")
    (host.dir / "ca").mkdir(parents=True)
    host("daemon", "init", "--dir", host.dir, "--name", "head")
    for left in ("site/authority.json", "ca/ca.json"):
        assert (host.dir / left).is_file()
    # The certificate is lost, the authority is not.
    (host.dir / "site/authority.json").unlink()
    root = (host.dir / "ca/ca.pem").read_bytes()
    host("daemon", "init", "--dir", host.dir, "--name", "head")
    assert (host.dir / "ca/ca.pem").read_bytes() == root and (host.dir / "site/authority.json").is_file()


def test_a_ticket_serves_one_node_and_one_time(head, member):
    ticket = invite(head, "host:node1")
    node, thief = member("node1"), member("thief")
    made = node("daemon", "init", "--dir", node.dir, "--join", f"@{ticket}", "--json").events()[-1]
    assert made["identity"] == "host:node1" and not made["authority"]
    assert "used by another node" in join(thief, ticket, code=1).err
    assert not (thief.dir / "site/authority.json").exists()
    # A host that has joined does not join again by accident.
    assert "has joined a site already" in join(node, invite(head, "host:node2"), code=1).err


def test_what_is_wrong_with_a_ticket_is_said(head, member, port):
    node = member("node1")
    assert "unknown or has expired" in join(node, invite(head, "host:node1", "--expires", "0s"), code=1).err
    head.listen = f"127.0.0.1:{port()}"
    assert "cannot reach the certificate authority" in join(node, invite(head, "host:node1"), code=1).err
    whole = invite(head, "host:node1").read_text().strip()
    damaged = head.home / "damaged"
    for text, why in [(whole[:-3], "damaged"), ("tidecast1abc", "tidecastjoin1"), (invite(head, "user:alice").read_text(), "the ticket is for user:alice")]:
        damaged.write_text(text)
        assert why in join(node, damaged, code=2).err
    other = member("other")
    other("daemon", "init", "--dir", other.dir, "--name", "other")
    assert "no CA in" in node("ca", "invite", "host:x", "--dir", node.dir, code=1).err


def test_a_daemon_that_keeps_no_authority_refuses(head, member):
    """A ticket that names a daemon of the site that is not the authority's."""
    node, third = member("node1"), member("node2")
    join(node, invite(head, "host:node1"))
    node.serve("--listen", node.listen)
    head.listen, own = node.listen, head.listen
    assert "not the certificate authority that the ticket names" in join(third, invite(head, "host:node2"), code=1).err
    head.listen = own


def test_a_certificate_is_renewed_before_it_expires(head, member, tmp_path):
    node = member("node1")
    join(node, invite(head, "host:node1", "--lifetime", "30s"))
    first = (node.dir / "site/host.pem").read_bytes()
    node.serve("--listen", node.listen, "-v")
    wait_for("a renewal", lambda: "the certificate was renewed" in node.daemon.err)
    wait_for("the new certificate to be used", lambda: "reloaded the certificate" in node.daemon.err)
    assert (node.dir / "site/host.pem").read_bytes() != first
    # Twice: the second by the certificate that the first has brought.
    wait_for("another renewal", lambda: node.daemon.err.count("the certificate was renewed") >= 2)
    data = tmp_path / "data"
    data.write_bytes(os.urandom(1000))
    head.create("later", data)
    assert node.cache("get", "head/later", "--wait", "1m")["path"]


def test_a_revoked_host_is_not_renewed(head, member):
    node = member("node1")
    join(node, invite(head, "host:node1", "--lifetime", "30s"))
    head("ca", "revoke", head.dir / "ca", "host:node1")
    node.serve("--listen", node.listen, "-v")
    wait_for("a refusal", lambda: "has no valid certificate of this authority" in node.daemon.err)
    assert "the certificate was renewed" not in node.daemon.err


def test_root_acts_as_the_owner_of_the_directory(member, tmp_path):
    """The service's user owns its directory: root leaves no file of its own there, and follows no link of that user."""
    host = member("head")
    passable(tmp_path)
    host.home.chmod(0o711)
    host.dir.mkdir()
    os.chown(host.dir, 61001, 61001)
    host("daemon", "init", "--dir", host.dir, "--name", "head")
    host("ca", "invite", "host:node1", "--dir", host.dir)
    owners = {path: path.stat().st_uid for path in host.dir.rglob("*")}
    assert owners and set(owners.values()) == {61001}, owners
    # Elsewhere is root's: a link that the user puts there leads root nowhere.
    trap, aim = member("trap"), tmp_path / "aim"
    trap.home.chmod(0o711)
    trap.dir.mkdir()
    aim.mkdir(0o755)
    (trap.dir / "site").symlink_to(aim)
    os.chown(trap.dir / "site", 61001, 61001, follow_symlinks=False)
    os.chown(trap.dir, 61001, 61001)
    trap("daemon", "init", "--dir", trap.dir, "--name", "trap", code=1)
    assert list(aim.iterdir()) == []
