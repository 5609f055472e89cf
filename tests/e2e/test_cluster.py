"""Tidecast on lab nodes: all nodes upload, a silent node delays no other, NAT and a lossy line do not prevent transfers."""
import json

import pytest
from support import trees

pytestmark = pytest.mark.root
PORT = 6881


def nodes(node, lab, count):
    return [node(f"n{n}", lab, n) for n in range(count)]


def listen(lab, n):
    return f"{json.loads(lab('status'))['nodes'][n]}:{PORT}"


def swarm(tide, lab, manifest, data, to, *words):
    """Node 0 seeds, all others get; their processes by node. They know the origin only."""
    origin = listen(lab, 0)
    tide[0].seed(manifest, data, origin, "--plain")
    return {n: t.run("get", manifest, "--to", to / str(n), "--peer", origin, "--listen", listen(lab, n), "--plain", "--json",
                     "--seed-for", "60s", *words) for n, t in enumerate(tide) if n}


def wait_for_data(procs, data, to):
    for n, proc in procs.items():
        proc.until(f"node {n} has it", lambda: (to / str(n) / data.name).exists())
        trees.assert_same(data, to / str(n) / data.name)


def test_eight_nodes_all_upload(lab, node, tmp_path):
    lab("up", "single:8@100mbit")
    tide = nodes(node, lab, 8)
    data = trees.blob(tmp_path / "source/data", 24 << 20)
    manifest = tide[0].publish(data, tmp_path / "m.torrent")
    procs = swarm(tide, lab, manifest, data, tmp_path / "got")
    wait_for_data(procs, data, tmp_path / "got")
    sent = [n["tx"] for n in json.loads(lab("counters"))["nodes"]]
    assert sent[0] < 5 * data.stat().st_size, f"the origin sent {sent[0] / data.stat().st_size:.1f} copies of 7"
    assert sum(sent[1:]) > 2 * data.stat().st_size, "the getters must serve each other"


def test_a_node_that_falls_silent_holds_nobody_up(lab, node, tmp_path):
    lab("up", "single:8@100mbit")
    tide = nodes(node, lab, 8)
    data = trees.blob(tmp_path / "source/data", 24 << 20)
    manifest = tide[0].publish(data, tmp_path / "m.torrent")
    procs = swarm(tide, lab, manifest, data, tmp_path / "got", "--timeout", "45s")
    procs[3].until("it has begun", lambda: any(e.get("pieces") for e in procs[3].events()))
    lab("cut", "n003")
    silent = procs.pop(3)
    wait_for_data(procs, data, tmp_path / "got")
    if not (tmp_path / "got/3/data").exists():
        silent.exits(3, 90)


def test_a_cluster_behind_a_nat(lab, node, tmp_path):
    lab("up", "nat:4@100mbit")
    tide = nodes(node, lab, 4)
    data = trees.blob(tmp_path / "source/data", 8 << 20)
    manifest = tide[0].publish(data, tmp_path / "m.torrent")
    procs = swarm(tide, lab, manifest, data, tmp_path / "got")
    wait_for_data(procs, data, tmp_path / "got")


def test_a_long_lossy_line_between_two_sites(lab, node, tmp_path):
    lab("up", "bordeaux:2,2@50mbit,delay=20ms,loss=0.1%")
    tide = nodes(node, lab, 4)
    data = trees.blob(tmp_path / "source/data", 8 << 20)
    manifest = tide[0].publish(data, tmp_path / "m.torrent")
    procs = swarm(tide, lab, manifest, data, tmp_path / "got")
    wait_for_data(procs, data, tmp_path / "got")


def test_a_rate_that_a_driver_invents_is_no_measure(lab, node, tmp_path):
    """The lab's cards are veth, which report 10 Gbit/s: efficiency is shown only where the user gives the rate."""
    lab("up", "single:2@80mbit")
    tide = nodes(node, lab, 2)
    data = trees.blob(tmp_path / "source/data", 4 << 20)
    manifest = tide[0].publish(data, tmp_path / "m.torrent")
    origin = listen(lab, 0)
    tide[0].seed(manifest, data, origin, "--plain")
    words = ["get", manifest, "--peer", origin, "--listen", listen(lab, 1), "--plain"]
    assert "efficiency" not in tide[1](*words, "--to", tmp_path / "a").out
    told = tide[1].run(*words, "--to", tmp_path / "b", "--link-rate", "76.4mbit", "--json").ok().last("done")
    assert told["link_rate_from"] == "told" and 0.3 < told["efficiency"] <= 1.05
    name = f"{lab.name}.n001"
    launch = ["--hosts", name, "--launch", "ip netns exec {host} {command}"]
    done = tide[0].run("bcast", data, "--to", tmp_path / "c", *launch, "--json").ok().last("done")
    assert "efficiency" not in done and "link_rate" not in done
