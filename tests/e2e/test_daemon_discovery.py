"""How daemons find and reach one another: catalogues of the site, and a NAT between them."""
import os
import pathlib
import signal
import subprocess

import pytest
from conftest import needs
from support.tidecast import wait_for

MIB = 1 << 20


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    return fresh(tmp_path / "data")


def fresh(folder: pathlib.Path) -> pathlib.Path:
    """4 MiB that nobody has."""
    folder.mkdir()
    for number in range(4):
        (folder / f"part{number}").write_bytes(os.urandom(MIB))
    return folder


def same(a: pathlib.Path, b) -> None:
    subprocess.run(["diff", "-r", a, b], check=True)


def leave(host) -> None:
    host.daemon.signal(signal.SIGTERM)
    host.daemon.wait()


def peers(host) -> list[str]:
    return host.http("GET", "/v1/daemon")[1]["peers"]


def test_a_file_names_the_others(site, data, tmp_path):
    listed = tmp_path / "peers"
    node = site.host("node1", "--catalogue", f"file:{listed}", known=[])
    head = site.host("head", known=[])
    head.create("nt", data)
    assert node.cache("get", "head/nt", "--wait", "10s", code=1)["reason"] == "unreachable"
    listed.write_text(f"# the only one\n\nhead={head.listen}\n")
    wait_for("the file to be read", lambda: "head" in peers(node))
    same(data, node.cache("get", "head/nt", "--wait", "1m")["path"])


def test_etcd_names_the_others_and_forgets_who_has_left(site, data, tmp_path, start, port):
    needs("etcd")
    client, other = f"127.0.0.1:{port()}", f"http://127.0.0.1:{port()}"
    etcd = start(["etcd", "--data-dir", tmp_path / "etcd", "--listen-client-urls", f"http://{client}", "--advertise-client-urls",
                  f"http://{client}", "--listen-peer-urls", other, "--initial-advertise-peer-urls", other, "--initial-cluster", f"default={other}"])
    catalogue = ["--catalogue", f"etcd://127.0.0.1:9,{client}"]
    head, node = site.host("head", *catalogue, known=[]), site.host("node1", *catalogue, known=[])
    head.create("nt", data)
    wait_for("each other", lambda: "head" in peers(node))
    same(data, node.cache("get", "head/nt", "--wait", "1m")["path"])
    leave(head)
    late = site.host("node2", *catalogue, known=[])
    wait_for("who is left", lambda: peers(late) == ["node1"])
    same(data, late.cache("get", "head/nt", "--wait", "1m")["path"])
    # Without it everything goes on with whom they know.
    etcd.kill()
    node.create("more", data / "part0")
    assert late.cache("get", "node1/more", "--wait", "1m")["state"] == "committed"


def test_the_collectors_own_tools_are_asked(site, data, tmp_path, monkeypatch):
    tools, pool = tmp_path / "tools", tmp_path / "pool"
    tools.mkdir()
    pool.mkdir()
    write = lambda name, text: ((tools / name).write_text(f"#!/bin/sh\n{text}\n"), (tools / name).chmod(0o755))
    # As HTCondor's do, as far as we ask them: tests/htcondor has the real ones.
    write("condor_advertise", f'ad=$(cat); name=$(echo "$ad" | sed -n \'s/^Name = "\\(.*\\)"/\\1/p\')\n'
          f'case $1 in UPDATE*) echo "$ad" > {pool}/$name;; *) echo "$ad" > {pool}/.left;; esac')
    write("condor_status", f'for f in {pool}/*; do echo "$(sed -n \'s/^Name = "\\(.*\\)"/\\1/p\' $f) '
          f'$(sed -n \'s/^TidecastAddresses = "\\(.*\\)"/\\1/p\' $f)"; done; echo junk undefined')
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    head, node = site.host("head", "--catalogue", "condor", known=[]), site.host("node1", "--catalogue", "condor", known=[])
    head.create("nt", data, "--mode", "755")
    head.create("own", data / "part0", "--private")
    wait_for("each other", lambda: "head" in peers(node))
    same(data, node.cache("get", "head/nt", "--wait", "1m")["path"])
    wait_for("the ad of what it holds", lambda: 'CachesHeld = "head/nt@1"' in (pool / "head").read_text())
    assert "CachedServer = true" in (pool / "head").read_text()
    leave(node)
    wait_for("the ad to be taken back", (pool / ".left").exists)
    assert 'Name == "node1"' in (pool / ".left").read_text()


@pytest.mark.root
def test_who_is_behind_a_nat_calls_and_is_asked_over_what_he_called(site, lab, data, tmp_path):
    """The paper's figure 2: the submit host outside, the others behind an address translation that is the bottleneck."""
    needs("nft")
    lab("up", "nat:4@50mbit")
    head = site.host("head", lab=lab, node=0, known=[])
    inside = [site.host(f"node{n}", lab=lab, node=n, known=[head]) for n in (1, 2, 3)]
    head.create("nt", data)
    before = lab.counters()["nodes"][0]["tx"]
    asked = [(node, node.run("cache", "get", "head/nt", "--wait", "1m", "--json")) for node in inside]
    for node, proc in asked:
        proc.exits(0)
        same(data, proc.events()[-1]["path"])
    sent = lab.counters()["nodes"][0]["tx"] - before
    assert sent < 2.5 * 4 * MIB, f"{sent / MIB:.1f} MiB have crossed for 4 MiB that three fetch"
    # What is made inside goes out by the connections that come from there, by either method.
    for name, words in (("out", []), ("own", ["--private"])):
        data = fresh(tmp_path / name)
        inside[0].create(name, data, *words)
        got = head.cache("get", f"node1/{name}", "--wait", "1m")
        assert got["method"] == ("DIRECT" if words else "SWARM")
        same(data, got["path"])
