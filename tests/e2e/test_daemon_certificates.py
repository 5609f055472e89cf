"""Certificates that are renewed while daemons run, SIGHUP, and clocks that are wrong."""
import os
import pathlib
import signal
import time

import pytest
from support.clock import off_by
from support.daemons import Host, Site
from support.tidecast import wait_for

READ_AGAIN = "reloaded the certificate"
NOT_USED = "cannot use the new certificate; the old one stays in use until"


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(20_000))
    return path


def log(host: Host) -> str:
    return host.daemon.err


def replace(path: pathlib.Path, content: bytes) -> None:
    """As a renewal does it: the new file takes the name of the old one."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.chmod(0o600)
    new.rename(path)


def test_a_renewed_certificate_is_taken_and_nobody_is_turned_away(site, data):
    origin = site.host("head")
    origin.create("before", data)
    node = site.host("node1", "-v", pem=site.certificate("host:node1", "--lifetime", "20s"))
    began = time.monotonic()
    assert node.cache("get", "head/before", "--wait", "10s")["method"] == "SWARM"
    pem = site.base / "host-node1.pem"
    old = pem.read_bytes()
    pem.rename(site.base / "old.pem")
    new = site.certificate("host:node1", "--lifetime", "30d").read_bytes()
    replace(pem, old[:len(old) // 2])
    wait_for("half a file to be refused", lambda: NOT_USED in log(node))
    replace(pem, new)
    wait_for("the new certificate", lambda: READ_AGAIN in log(node))
    # Its first certificate ends, and so does the channel on which it was shown.
    while time.monotonic() < began + 22:
        time.sleep(0.5)
    data.write_bytes(os.urandom(20_000))
    origin.create("after", data)
    assert node.cache("get", "head/after", "--wait", "20s")["method"] == "SWARM"
    assert "rejected" not in log(origin) + log(node)


def test_a_certificate_that_cannot_serve_replaces_none_that_can(site, data):
    origin = site.host("head")
    origin.create("nt", data)
    node = site.host("node1", "-v")
    pem = site.base / "host-node1.pem"
    good = pem.read_bytes()
    expired = site.certificate("host:ended", "--lifetime", "1s").read_bytes()
    other_host = site.certificate("host:node2").read_bytes()
    key = other_host[other_host.index(b"-----BEGIN PRIVATE"):]
    time.sleep(1.2)
    for content, why in [
        (b"", "expected one to four certificates"),
        (good[:len(good) // 2], "cannot"),
        (good[:good.index(b"-----BEGIN PRIVATE")] + key, "does not belong to the certificate"),
        (expired, "has expired"),
        (other_host, "host:node2"),
    ]:
        before = len(log(node))
        replace(pem, content)
        node.daemon.signal(signal.SIGHUP)
        wait_for(f"a refusal: {why}", lambda at=before: NOT_USED in log(node)[at:])
        assert why in log(node)[before:], log(node)[before:]
    assert READ_AGAIN not in log(node) 
    assert node.cache("get", "head/nt", "--wait", "10s")["method"] == "SWARM"
    replace(pem, good)
    wait_for("the certificate to be taken", lambda: READ_AGAIN in log(node))


def test_sighup_has_revocation_lists_read_again(site, data):
    origin, node = site.host("head", "-v"), site.host("node1")
    origin.create("nt", data)
    site.admin("ca", "revoke", site.ca, "host:node1")
    site.believe(site.ca, "trust")
    origin.daemon.signal(signal.SIGHUP)
    wait_for("the daemon to say so", lambda: "reading certificate, key, trust and revocation lists again" in log(origin))
    wait_for("the other to be turned away", lambda: "revoked" in log(origin))
    assert node.cache("get", "head/nt", "--wait", "5s", code=1)["reason"] == "unreachable"


def test_sighup_ends_nothing_that_serves(node, port, data):
    root = data.parent / "served"
    root.mkdir()
    serve = [
        ("copy-server", "--root", root, "--listen", f"127.0.0.1:{port()}", *(["--as-root"] if os.geteuid() == 0 else [])),
        ("tracker", "--listen", f"127.0.0.1:{port()}"),
        ("share", data, "--listen", f"127.0.0.1:{port()}"),
    ]
    for words in serve:
        proc = node(words[0]).run(*words)
        proc.until("an address", lambda proc=proc: proc.out or "listening" in proc.err)
        for _ in range(3):
            time.sleep(0.1)
            proc.signal(signal.SIGHUP)
        time.sleep(0.1)
        assert proc.process.poll() is None, words
        proc.signal(signal.SIGTERM)
        proc.wait()


def test_a_clock_that_is_behind_is_named(tmp_path, built, start, port, data):
    class Past(Site):
        """A site whose certificates are a day old."""

        def certificate(self, *words, **more):
            self.admin.env.update(off_by(tmp_path, -86_400))
            return super().certificate(*words, **more)

    site = Past(built / "tidecast", tmp_path / "site", start, port)
    site.admin.env.update(off_by(tmp_path, -86_400))
    site.admin("ca", "init", tmp_path / "ca", "--name", "a site of yesterday")
    site.ca = tmp_path / "ca"
    site.trust = site.believe(site.ca, "yesterday")
    origin = site.host("head")
    origin.create("nt", data)
    late = Host(site.program, site.base / "late", start, "late")
    late.env.update(off_by(tmp_path, -3 * 3_600))
    late.serve("--listen", f"127.0.0.1:{port()}", "--trust", site.trust, "--certificate", site.certificate("host:late"),
               "--peer", f"head={origin.listen}")
    failed = late.cache("get", "head/nt", "--wait", "10s", code=1)
    wait_for("both to name the clock", lambda: all("the clock of late is" in log(host) for host in (origin, late)))
    for said in (failed["message"], log(origin), log(late)):
        assert "not valid before" in said and "behind the clock of head" in said, said
        assert "the clock of late is 3 h behind" in said or "the clock of late is 2 h 59 min behind" in said, said
    # A certificate that begins later, by this clock, is an error at the start.
    fresh = Site(site.program, tmp_path / "fresh", start, port)
    early = Host(site.program, tmp_path / "early", start, "early")
    early.env.update(off_by(tmp_path, -3 * 3_600))
    said = early("daemon", "--dir", early.dir, "--name", "early", "--listen", f"127.0.0.1:{port()}", "--trust", fresh.trust,
                 "--certificate", fresh.certificate("host:early"), code=1).err
    assert "not valid before" in said and "behind: set it" in said, said
