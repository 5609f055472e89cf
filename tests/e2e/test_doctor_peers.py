"""`tidecast doctor --peers`: agents on hosts that are processes of this machine, and nodes of a lab with planted faults."""
import pathlib
import signal
import subprocess

import pytest
from support.tidecast import wait_for

#: A "host" is a process here; its name is in its environment.
LOCAL = "env TIDECAST_TEST_HOST={host} {command}"
NODES = "ip netns exec {host} {command}"


def peers(tide, hosts, *words, launch=LOCAL):
    return tide.run("doctor", "--peers", hosts, "--launch", launch, *words)


def found(event):
    return sorted((fault["check"], tuple(fault["hosts"])) for fault in event["faults"])


def story(event):
    return "\n".join(fault["message"] for fault in event["faults"])


def agents(tmp_path):
    """The agents of this test that run, by their process number: its directory is in their environment."""
    running = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"worker" in words and str(tmp_path).encode() in (folder / "environ").read_bytes():
                running.append(int(folder.name))
        except OSError:
            continue
    return running


def test_hosts_of_one_machine_are_measured_and_written_as_a_topology(tide, tmp_path):
    file = tmp_path / "topology"
    proc = peers(tide, "a,b,c", "--yes", "--json", "--topology", file).ok()
    done = proc.last("done")
    assert done["faults"] == [] and done["pairs_measured"] == done["pairs"] == 3
    assert [(host["name"], host["ok"]) for host in done["hosts"]] == [("a", True), ("b", True), ("c", True)]
    paths = {(path["from"], path["to"]) for path in done["paths"]}
    assert paths == {(a, b) for a in "abc" for b in "abc" if a != b}
    assert all(path["connects"] and path["rtt_min_seconds"] > 0 for path in done["paths"]), done
    assert sum(event["event"] == "path" for event in proc.events()) == 6
    assert all(abs(host["clock_seconds"]) < 5 for host in done["hosts"]), "one machine has one clock"
    # The file is what broadcasts and the simulator read.
    data = tmp_path / "data"
    data.write_bytes(b"x" * 1000)
    tide("bcast", data, "--to", tmp_path / "{host}/copy", "--hosts", "a,b,c", "--launch", LOCAL, "--topology", file)
    assert "switch" in tide("sim", file, "--rate", "1gbit", "--print-topology").out
    assert not agents(tmp_path), "no agent outlives the check"


def test_results_outlive_a_topology_that_cannot_be_written(tide, launcher, tmp_path):
    event = peers(tide, "a,b", "--json", "--topology", tmp_path / "missing/topology").exits(1).last("error")
    assert "cannot write" in event["message"] and [host["name"] for host in event["hosts"]] == ["a", "b"]
    file = tmp_path / "topology"
    proc = peers(tide, "a,b", "--topology", file, launch=launcher("exit 1")).exits(1)
    assert "no host was measured" in proc.err and not file.exists()


def test_hosts_that_do_not_start_die_or_are_older_are_rows_with_reasons(tide, launcher):
    """The older program does not know the ticket."""
    older = "tidecast: error: not a ticket of a broadcast; workers are started by `tidecast bcast`"
    launch = launcher(f"""case $host in
none) echo 'no route to host' >&2; exit 255 ;;
old) echo '{older}' >&2; exit 2 ;;
dies) set -- sh -c 'exec 3<&0; "$@" <&3 & sleep 2; kill -9 $!' sh "$@" ;;
esac""")
    proc = peers(tide, "a,none,b,old,dies,c", "--json", launch=launch).exits(1)
    error = proc.last("error")
    hosts = {host["name"]: host for host in error["hosts"]}
    assert [name for name, host in hosts.items() if host["ok"]] in (["a", "b", "c"], ["a", "b", "dies", "c"])
    assert "no route to host" in hosts["none"]["reason"] and "not a ticket" in hosts["old"]["reason"]
    measured = {(path["from"], path["to"]) for path in error["paths"] if path["connects"]}
    assert {(a, b) for a in "abc" for b in "abc" if a != b} <= measured
    text = peers(tide, "a,none,b", launch=launch).exits(1)
    assert "FAILED none" in text.out and "no route to host" in text.out
    assert "rates are not measured" in text.err and "--yes" in text.err


def test_agents_end_with_a_coordinator_that_is_killed(tide, launcher, tmp_path):
    """One host is late, so the check waits while the agents of the others are connected."""
    launch = launcher("[ $host = late ] && exec sleep 600")
    proc = peers(tide, "a,b,c,late", "--json", launch=launch)
    proc.until("the agents run", lambda: len(agents(tmp_path)) == 3)
    proc.signal(signal.SIGKILL)
    wait_for("the agents end", lambda: not agents(tmp_path))


def test_wrong_words_are_usage(tide):
    assert "--launch" in tide.run("doctor", "--peers", "a", "--launch", "rsh").exits(2).err
    tide.run("doctor", "--peers", "a[").exits(2)
    tide.run("doctor", "--topology", "x").exits(2)


def lab_peers(lab, node, hosts, *words):
    """On node 0, which is one of the hosts."""
    return peers(node("origin", lab, 0), ",".join(f"{lab.name}.n{n:03d}" for n in hosts), "--json", *words, launch=NODES)


def on(lab, n, *words):
    subprocess.run(["ip", "netns", "exec", f"{lab.name}.{n}", *words], check=True, timeout=60)


@pytest.mark.root
def test_a_clean_cluster_has_no_fault(lab, node):
    lab("up", "single:4@100mbit")
    done = lab_peers(lab, node, range(4), "--yes").ok().last("done")
    assert done["faults"] == [] and len(done["groups"]) == 1 and len(done["paths"]) == 12
    for path in done["paths"]:
        assert path["connects"] and path["mtu"] == path["interface_mtu"] == 1500 and not path["black_hole"], path
        assert path["datagrams"] == path["arrived"] and path["rate"] > 0 and path["rate_streams"] > 0, path
        # No more than the link carries, with some room for the start of its token bucket.
        assert path["rate"] < 130e6 and path["send_cpu_seconds"] > 0 and path["receive_cpu_seconds"] > 0, path


@pytest.mark.root
def test_a_firewall_in_one_direction_is_named_with_its_direction(lab, node):
    lab("up", "single:4@100mbit")
    rules = f"""table inet doctor {{
  chain input {{
    type filter hook input priority 0;
    ip saddr {lab.address(2)} tcp flags & (syn | ack) == syn drop
  }}
}}
"""
    subprocess.run(["ip", "netns", "exec", f"{lab.name}.n001", "nft", "-f", "-"], input=rules, text=True, check=True, timeout=60)
    error = lab_peers(lab, node, range(4)).exits(1).last("error")
    names = (f"{lab.name}.n002", f"{lab.name}.n001")
    assert found(error) == [("one-way", names)]
    assert f"{names[0]} cannot connect to {names[1]}" in story(error) and f"{names[1]} connects to {names[0]}" in story(error)


@pytest.mark.root
def test_a_black_hole_for_large_packets_is_found(lab, node):
    """The switch port of one host takes smaller packets than its interface sends, and reports nothing. The kernel lets 4 bytes
    more pass, for a VLAN tag."""
    lab("up", "single:4@100mbit")
    on(lab, "s0", "ip", "link", "set", "p001", "mtu", "1400")
    error = lab_peers(lab, node, range(4)).exits(1).last("error")
    name = f"{lab.name}.n001"
    assert found(error) == [("mtu-black-hole", (name,))] * 2, story(error)
    assert "packets over 1404 bytes vanish" in story(error)
    assert all(path["black_hole"] == (name in (path["from"], path["to"])) for path in error["paths"])


@pytest.mark.root
def test_losses_between_two_groups_are_found_there_and_the_groups_too(lab, node):
    lab("up", "bordeaux:2,2@100mbit,bottleneck=100mbit,delay=10ms,loss=4%")
    error = lab_peers(lab, node, range(4)).exits(1).last("error")
    assert {fault["check"] for fault in error["faults"]} == {"loss"}, story(error)
    groups = [[f"{lab.name}.n{n:03d}" for n in pair] for pair in ((0, 1), (2, 3))]
    assert [group["hosts"] for group in error["groups"]] == groups
    for path in error["paths"]:
        crosses = not any({path["from"], path["to"]} <= set(group) for group in groups)
        assert crosses or path["arrived"] == path["datagrams"], path


@pytest.mark.root
def test_a_slow_host_is_found(lab, node):
    lab("up", "single:4@100mbit")
    lab("slow", "2", "10mbit")
    error = lab_peers(lab, node, range(4), "--yes").exits(1).last("error")
    assert found(error) == [("slow-host", (f"{lab.name}.n002",))] * 2, story(error)
    assert all(fault["cost"] > 0.5 for fault in error["faults"])
