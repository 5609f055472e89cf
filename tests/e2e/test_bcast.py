"""`tidecast bcast`: hosts that are processes of this machine, and nodes of a lab."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest
from support import clients, trees
from support.tidecast import wait_for

EIGHT = "h[1-8]"
#: A "host" is a process here; its name is in its environment.
LOCAL = "env TIDECAST_TEST_HOST={host} {command}"


def bcast(tide, source, to, *words, hosts=EIGHT, launch=LOCAL):
    return tide.run("bcast", source, "--to", to, "--hosts", hosts, "--launch", launch, "--json", *words)


def hosts_of(event):
    return {h["name"]: h for h in event["hosts"]}


def workers(proc):
    """The workers that a broadcast has started here and that still run, by host."""
    found = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            words = (stat.parent / "cmdline").read_bytes().split(b"\0")
            if b"worker" in words and parent == proc.process.pid:
                found[words[words.index(b"--host") + 1].decode()] = int(stat.parent.name)
        except (OSError, ValueError):
            continue
    return found


def alive(pid):
    try:
        return ") Z " not in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def leftovers(folder):
    return [p.name for p in folder.iterdir() if p.name.startswith(".tidecast")]


def test_a_file_to_eight_hosts_and_again(tide, tmp_path):
    data = trees.blob(tmp_path / "source/data", 9_000_000)
    done = bcast(tide, data, tmp_path / "got/{host}/copy").ok().last("done")
    for host in (f"h{n}" for n in range(1, 9)):
        trees.assert_same(data, tmp_path / "got" / host / "copy")
        assert os.listdir(tmp_path / "got" / host) == ["copy"], "nothing but the copy"
    assert done["hosts_done"] == 8 and done["hosts_failed"] == 0
    assert done["bytes"] == 9_000_000 and done["files"] == 1
    assert 8 * 9_000_000 <= done["received"] < 8.8 * 9_000_000
    assert all(h["ok"] and h["received"] >= 9_000_000 for h in done["hosts"])
    assert done["origin_copies"] < 8, "the hosts help each other"
    assert "efficiency" not in done, "what loopback can do is not known"
    again = bcast(tide, data, tmp_path / "got/{host}/copy").ok().last("done")
    assert again["received"] == 0 and all(h["kept"] == 1 for h in again["hosts"])


def test_a_tree_in_the_open_and_only_what_differs(tide, tmp_path):
    data = trees.rich(tmp_path / "source/env")
    to = tmp_path / "got/{host}"
    first = bcast(tide, data, to, "--plain", hosts="a,b,c").ok().last("done")
    for host in "abc":
        trees.assert_same(data, tmp_path / "got" / host)
    trees.blob(data / "one", 5000, seed=9)
    (data / "new").write_text("new")
    second = bcast(tide, data, to, "--plain", hosts="a,b,c").ok().last("done")
    for host in "abc":
        trees.assert_same(data, tmp_path / "got" / host)
    assert 0 < second["received"] < first["received"] / 10


def test_names_and_addresses_of_this_machine_need_no_launcher(tide, tmp_path):
    data = trees.blob(tmp_path / "data", 100_000)
    out = tide.run("bcast", data, "--to", f"{tmp_path}/{{host}}/", "--hosts", "a=127.0.0.1,b=localhost", "--link-rate", "1gbit").ok()
    for host in "ab":
        trees.assert_same(data, tmp_path / host / "data")
    for word in ("100 kB", "1 file", "2 of 2 hosts", "efficiency", "1.00 Gbit/s (rate by --link-rate)", "origin sent", "pieces of"):
        assert word in out.out, out.out


@pytest.mark.parametrize("algorithm", ["plan", "swarm", "classic", "chain", "binomial", "scatter-allgather"])
def test_every_algorithm_brings_it(tide, tmp_path, algorithm):
    data = trees.blob(tmp_path / "data", 3_000_000)
    places = tmp_path / "places"
    places.write_text("west rate=1gbit h[1-3]\neast rate=1gbit h[4-6]\n")
    for plain in ([], ["--plain"]):
        done = bcast(tide, data, tmp_path / "{host}" / f"x{len(plain)}", "--algorithm", algorithm, "--topology", places, "--origin", "h1",
                     *plain, hosts="h[1-6]").ok().last("done")
        assert done["algorithm"] == algorithm and done["hosts_done"] == 6
    trees.assert_same(data, tmp_path / "h6/x1")


def test_a_latecomer_gets_it_too(tide, launcher, tmp_path):
    """The group starts without a host that is slow to come; it joins the plan while others still receive."""
    data = trees.blob(tmp_path / "data", 3_000_000)
    done = bcast(tide, data, tmp_path / "{host}/data", hosts="a,b,late", launch=launcher("[ $host = late ] && sleep 6")).ok().last("done")
    times = {name: h["seconds"] for name, h in hosts_of(done).items()}
    assert times["late"] > max(times["a"], times["b"]), "nobody waited for it"
    trees.assert_same(data, tmp_path / "late/data")


def test_any_client_may_join_an_open_broadcast(tide, launcher, start, port, tmp_path):
    """One host comes late, so that the broadcast is still going on."""
    data = trees.tree(tmp_path / "source/data")
    go, torrent = tmp_path / "go", tmp_path / "data.torrent"
    proc = bcast(tide, data, tmp_path / "{host}/data", "--plain", "--torrent", torrent, hosts="a,b,late",
                 launch=launcher(f"[ $host = late ] && while ! [ -e {go} ]; do sleep .1; done"))
    opened = proc.until("it is open", lambda: next((e for e in proc.events() if e["event"] == "open"), None))
    assert opened["torrent"] == str(torrent)
    client = clients.libtorrent(start, "get", torrent, tmp_path / "lt", f"127.0.0.1:{port()}", "--peer", opened["peers"][0])
    client.ok()
    assert trees.same(data, tmp_path / "lt/data", modes=False), trees.difference(data, tmp_path / "lt/data")
    assert "done" not in [e["event"] for e in proc.events()]
    go.touch()
    assert proc.ok().last("done")["hosts_done"] == 3
    for host in ("a", "b", "late"):
        trees.assert_same(data, tmp_path / host / "data")


def test_a_long_manifest_is_broadcast_before_the_data(tide, launcher, tmp_path):
    """A tree of many files; one host is late for the plan of the manifest."""
    data = tmp_path / "source/many"
    for n in range(4000):
        folder = data / f"{n % 40:02d}"
        if n < 40:
            folder.mkdir(parents=True)
        (folder / f"a file with a name {n}").write_bytes(b"x" * (n % 3))
    trees.blob(data / "big", 500_000)
    launch = launcher("[ $host = late ] && sleep 5")
    for algorithm, hosts in (("plan", "h[1-8],late"), ("swarm", "h[1-3]")):
        done = bcast(tide, data, tmp_path / algorithm / "{host}", "--manifest-limit", 10_000, "--algorithm", algorithm, hosts=hosts,
                     launch=launch).ok().last("done")
        for host in hosts_of(done):
            trees.assert_same(data, tmp_path / algorithm / host)
        assert done["manifest_bytes"] > 300_000
        assert done["manifest_sent"] >= done["manifest_bytes"]
        assert algorithm == "swarm" or done["manifest_sent"] < 3 * done["manifest_bytes"], "nine hosts help each other"
    done = bcast(tide, data, tmp_path / "short/{host}", hosts="a,b").ok().last("done")
    assert "manifest_bytes" not in done, "it is not long"


def test_many_hosts_are_started_as_a_tree(tide, launcher, tmp_path):
    """h1 comes first and is asked to start others. Its own part fails, the first launch of h60 too: no other host is affected."""
    data = trees.blob(tmp_path / "data", 100_000)
    log = tmp_path / "log"
    log.mkdir()
    launch = launcher(f"""tr '\\0' ' ' < /proc/$PPID/cmdline > {log}/$host.$$
[ $host != h1 ] && sleep 2
[ $host = h60 ] && mkdir {tmp_path}/once && exit 9""")
    (tmp_path / "h1").write_text("a file where a directory is needed")
    error = bcast(tide, data, tmp_path / "{host}/data", hosts="h[1-64]", launch=launch).exits(1).last("error")
    assert error["hosts_done"] == 63 and not hosts_of(error)["h1"]["ok"]
    for n in range(2, 65):
        trees.assert_same(data, tmp_path / f"h{n}/data")
    started = [p.read_text() for p in log.iterdir()]
    by_workers = [text for text in started if " worker " in text]
    assert len(started) == 65, "h60 twice"
    assert len(by_workers) >= 8 and any("--host h1 " in text for text in by_workers)


def test_nothing_and_almost_nothing(tide, tmp_path):
    for size in (0, 1, 16384):
        data = trees.blob(tmp_path / f"data{size}", size)
        bcast(tide, data, f"{tmp_path}/{{host}}/", hosts="a,b").ok()
        assert (tmp_path / "b" / data.name).read_bytes() == data.read_bytes()


def test_hosts_that_cannot_be_started_cost_the_others_nothing(tide, launcher, tmp_path):
    data = trees.blob(tmp_path / "data", 2_000_000)
    launch = launcher("[ $host = b ] && { echo no route to $host >&2; exit 255; }")
    proc = bcast(tide, data, tmp_path / "{host}/data", hosts="a,b,c", launch=launch).exits(1)
    error = proc.last("error")
    hosts = hosts_of(error)
    assert error["hosts_done"] == 2 and error["hosts_failed"] == 1 and "1 of 3 hosts failed" in error["message"]
    assert "no route to b" in hosts["b"]["reason"] and hosts["a"]["ok"] and hosts["c"]["ok"]
    for host in "ac":
        trees.assert_same(data, tmp_path / host / "data")


def test_a_destination_that_cannot_be_is_that_hosts_affair(tide, tmp_path):
    data = trees.blob(tmp_path / "data", 200_000)
    (tmp_path / "b").write_text("a file where a directory is needed")
    proc = bcast(tide, data, tmp_path / "{host}/data", hosts="a,b,c").exits(1)
    hosts = hosts_of(proc.last("error"))
    assert hosts["a"]["ok"] and hosts["c"]["ok"] and str(tmp_path / "b") in hosts["b"]["reason"]


def test_ctrl_c_stops_everyone(tide, launcher, tmp_path):
    data = trees.blob(tmp_path / "data", 5_000_000)
    # One host never reports, so that the broadcast is still going on.
    proc = bcast(tide, data, tmp_path / "{host}/data", hosts="a,b,c", launch=launcher("[ $host = b ] && exec sleep 600"))
    proc.until("workers are there", lambda: len(workers(proc)) == 2)
    pids = list(workers(proc).values())
    proc.signal(signal.SIGINT)
    assert proc.wait(30) == 3
    wait_for("the workers are gone", lambda: not any(map(alive, pids)), 30)


def test_workers_do_not_outlive_a_killed_coordinator(tide, launcher, tmp_path):
    data = trees.blob(tmp_path / "data", 1_000_000)
    proc = bcast(tide, data, tmp_path / "{host}/data", hosts="a,b,c", launch=launcher("[ $host = b ] && exec sleep 60"))
    proc.until("workers are there", lambda: len(workers(proc)) == 2)
    pids = list(workers(proc).values())
    os.kill(proc.process.pid, signal.SIGKILL)
    wait_for("the workers are gone", lambda: not any(map(alive, pids)), 60)


def test_several_workers_of_one_destination(tide, tmp_path):
    data = trees.blob(tmp_path / "data", 3_000_000)
    done = bcast(tide, data, tmp_path / "shared/copy", hosts="a,b,c").ok().last("done")
    trees.assert_same(data, tmp_path / "shared/copy")
    assert done["hosts_done"] == 3 and leftovers(tmp_path / "shared") == []
    assert done["received"] < 2 * 3_000_000, "one does the work"


def test_the_hosts_of_a_slurm_job(tide, tmp_path):
    """A stand-in for srun starts the tasks here, as srun would: no ticket on any command line."""
    data = trees.blob(tmp_path / "data", 300_000)
    fake = tmp_path / "bin/srun"
    fake.parent.mkdir()
    fake.write_text(f"""#!{sys.executable}
import os, subprocess, sys
words = sys.argv[1:]
nodes = [w.split("=")[1] for w in words if w.startswith("--nodelist=")][0].split(",")
command = words[[i for i, w in enumerate(words) if not w.startswith("-")][0]:]
assert not any("tidegroup" in w for w in words) and os.environ["TIDECAST_GROUP"]
tasks = [subprocess.Popen([*command, "--host", n], stdin=subprocess.DEVNULL) for n in nodes]
sys.exit(max(t.wait() for t in tasks))
""")
    fake.chmod(0o755)
    tide.env |= {"PATH": f"{fake.parent}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "x[1-3]"}
    done = tide.run("bcast", data, "--to", tmp_path / "{host}/data", "--json").ok().last("done")
    assert list(hosts_of(done)) == ["x1", "x2", "x3"]
    trees.assert_same(data, tmp_path / "x3/data")


def test_mistakes_are_usage_errors(tide, tmp_path):
    data = trees.blob(tmp_path / "data", 10)
    for line in ("--to /x", "--to /x --hosts n[1", "--to /x --hosts a --launch ssh2", "--to .. --hosts a", "--hosts a",
                 "--to /x --hosts @/no/such/file", "--to /x --hosts a --topology /dev/null/x",
                 "--to /x --hosts a --algorithm best", "--to /x --hosts a --torrent t"):
        assert tide("bcast", data, *line.split(), code=2).err
    assert "cannot find" in tide("bcast", tmp_path / "nothing", "--to", "/x", "--hosts", "a=127.0.0.1", code=1).err


def test_help_teaches(tide):
    text = tide("bcast", "--help").out
    for word in ("node[001-064,100]", "{host}", "{command}", "srun", "SLURM_JOB_NODELIST", "Examples:", "exit code is 1"):
        assert word in text
    assert "worker" not in tide("--help").out.split("Options:")[0].split("Commands:")[1].split()


@pytest.mark.root
def test_lab_nodes(lab, node, tmp_path):
    lab("up", "single:6@50mbit")
    tide = node("origin", lab, 0)
    data = trees.blob(tmp_path / "data", 10_000_000)
    names = f"{lab.name}.n[001-005]"
    done = bcast(tide, data, tmp_path / "{host}/data", "--link-rate", "47.7mbit", hosts=names,
                 launch="ip netns exec {host} {command}").ok().last("done")
    for n in range(1, 6):
        trees.assert_same(data, tmp_path / f"{lab.name}.n{n:03d}/data")
    assert done["network"].startswith("10.77.0.0/16") and 0 < done["efficiency"] <= 1.02
    sent = json.loads(lab("counters"))["nodes"][0]["tx"]
    assert sent < 3 * data.stat().st_size, "the nodes serve each other"


@pytest.mark.alone
@pytest.mark.root
def test_hosts_on_slow_links_send_one_copy_each(lab, node, tmp_path):
    """Thin flows share links by chance: with more than two stripes some hosts had 1.1 to 1.4 copies to send."""
    lab("up", "single:14@40mbit")
    for n in range(14):
        subprocess.run(["ip", "netns", "exec", f"{lab.name}.n{n:03d}", "sysctl", "-qew", "net.ipv4.tcp_tso_rtt_log=0"], check=True)
    data = trees.blob(tmp_path / "data", 20_000_000)
    done = bcast(node("origin", lab, 0), data, tmp_path / "{host}/data", "--link-rate", "40mbit", hosts=f"{lab.name}.n[001-013]",
                 launch="ip netns exec {host} {command}").ok().last("done")
    sent = sorted(host["sent"] / data.stat().st_size for host in done["hosts"])
    # A busy machine makes a host late for a piece or two.
    assert 11 < sum(sent) < 13.5 and sent[-1] < 1.09, sent


@pytest.mark.root
def test_a_client_that_has_joined_gets_the_rest(lab, node, launcher, start, tmp_path):
    """It is on a slow link: all hosts have theirs long before, also the one that waits until the client has joined."""
    lab("up", "single:4@50mbit")
    lab("slow", "3", "4mbit")
    tide = node("origin", lab, 0)
    data, torrent, go = trees.blob(tmp_path / "source/data", 6_000_000), tmp_path / "data.torrent", tmp_path / "go"
    launch = launcher(f"[ ${{host%2}} != $host ] && while ! [ -e {go} ]; do sleep .1; done\nset -- ip netns exec $host \"$@\"")
    proc = bcast(tide, data, tmp_path / "{host}/data", "--plain", "--torrent", torrent, hosts=f"{lab.name}.n[001-002]",
                 launch=launch)
    opened = proc.until("it is open", lambda: next((e for e in proc.events() if e["event"] == "open"), None))
    run = lambda argv: start(lab.on(3, *argv), env=lab.env)
    client = clients.libtorrent(run, "get", torrent, tmp_path / "lt", "10.77.0.4:7777", "--peer", opened["peers"][0])
    proc.until("it gets something", lambda: json.loads(lab("counters"))["nodes"][3]["rx"] > 300_000)
    go.touch()
    late = proc.until("all hosts have it", lambda: any(e.get("hosts_done") == 2 for e in proc.events()))
    assert late and "done" not in client.out and proc.process.poll() is None, "it is still fetching"
    assert proc.ok().last("done")["hosts_done"] == 2
    client.ok()
    assert trees.same(data, tmp_path / "lt/data", modes=False)


@pytest.mark.root
@pytest.mark.parametrize("algorithm", ["plan", "swarm"])
def test_hosts_that_refuse_calls_call_those_whom_they_feed(lab, node, tmp_path, algorithm):
    """A quarter of them have a firewall that rejects all connections."""
    if not shutil.which("nft"):
        pytest.skip("SKIPPED: nft is not installed (make setup)")
    lab("up", "single:9@50mbit")
    rules = "table ip t {\n chain in { type filter hook input priority 0; iifname eth0 ct state new drop; }\n}\n"
    closed = [f"{lab.name}.n{n:03d}" for n in (3, 6)]
    for name in closed:
        subprocess.run(["ip", "netns", "exec", name, "nft", "-f", "-"], input=rules, text=True, check=True)
    tide = node("origin", lab, 0)
    data = trees.blob(tmp_path / "data", 10_000_000)
    done = bcast(tide, data, tmp_path / "{host}/data", "--algorithm", algorithm, hosts=f"{lab.name}.n[001-008]",
                 launch="ip netns exec {host} {command}").ok().last("done")
    hosts = hosts_of(done)
    for name in hosts:
        trees.assert_same(data, tmp_path / name / "data")
    if algorithm == "plan":
        assert all(hosts[name]["sent"] > 2_500_000 for name in closed), "they take their part"
    assert done["origin_copies"] < 4, "the others feed them, and not the origin alone"


@pytest.mark.root
def test_of_networks_that_look_alike_the_faster_is_used(lab, node, tmp_path):
    """A second network beside that of the lab, without a limit; the drivers report the same rate for both."""
    lab("up", "single:4@30mbit")
    switch, batch = f"{lab.name}.s0", "link add br1 type bridge stp_state 0\nlink set br1 up\n"
    for n in range(4):
        batch += f"link add q{n} type veth peer name eth1 netns {lab.name}.n{n:03d}\nlink set q{n} master br1 up\n"
    ip = lambda ns, lines: subprocess.run(["ip", "-n", ns, "-batch", "-"], input=lines, text=True, check=True)
    ip(switch, batch)
    for n in range(4):
        ip(f"{lab.name}.n{n:03d}", f"addr add 10.88.0.{n + 1}/24 dev eth1\nlink set eth1 up\n")
    tide = node("origin", lab, 0)
    data = trees.blob(tmp_path / "data", 6_000_000)

    def over(*words):
        before = json.loads(lab("counters"))["nodes"][0]["tx"]
        done = bcast(tide, data, tmp_path / f"{{host}}/to{'-'.join(words)}", *words, hosts=f"{lab.name}.n[001-003]",
                     launch="ip netns exec {host} {command}").ok().last("done")
        return done["network"], json.loads(lab("counters"))["nodes"][0]["tx"] - before

    network, slow = over()
    assert network.startswith("10.88.0.0/24") and slow < 3_000_000, "trials and the control channel, not the data"
    network, slow = over("--net", "eth0")
    assert network.startswith("eth0") and slow > 6_000_000, "the user decides"
    for n in range(1, 4):
        trees.assert_same(data, tmp_path / f"{lab.name}.n{n:03d}/to--net-eth0")


@pytest.mark.root
def test_a_worker_that_is_killed_half_way(lab, node, tmp_path):
    lab("up", "single:5@50mbit")
    tide = node("origin", lab, 0)
    data = trees.blob(tmp_path / "data", 30_000_000)
    names, launch = f"{lab.name}.n[001-004]", "ip netns exec {host} {command}"
    proc = bcast(tide, data, tmp_path / "{host}/data", hosts=names, launch=launch)
    proc.until("it has a part", lambda: json.loads(lab("counters"))["nodes"][2]["rx"] > 5_000_000)
    victim = f"{lab.name}.n002"
    os.kill(workers(proc)[victim], signal.SIGKILL)
    error = proc.exits(1).last("error")
    hosts = hosts_of(error)
    assert error["hosts_done"] == 3 and not hosts[victim]["ok"], error
    for name in set(hosts) - {victim}:
        trees.assert_same(data, tmp_path / name / "data")
    # Its data is used when the command is repeated; the others have all of it.
    done = bcast(tide, data, tmp_path / "{host}/data", hosts=names, launch=launch).ok().last("done")
    trees.assert_same(data, tmp_path / victim / "data")
    assert 0 < done["received"] < data.stat().st_size, "a part was there"


@pytest.mark.root
def test_a_worker_that_is_killed_while_the_manifest_comes(lab, node, tmp_path):
    lab("up", "single:6@10mbit")
    tide, data = node("origin", lab, 0), tmp_path / "source/many"
    data.mkdir(parents=True)
    for n in range(9000):
        (data / f"{n:05d}{'x' * 200}").touch()
    proc = bcast(tide, data, tmp_path / "{host}", hosts=f"{lab.name}.n[001-005]", launch="ip netns exec {host} {command}")
    proc.until("it has a part", lambda: json.loads(lab("counters"))["nodes"][2]["rx"] > 500_000)
    victim = f"{lab.name}.n002"
    os.kill(workers(proc)[victim], signal.SIGKILL)
    error = proc.exits(1).last("error")
    assert error["manifest_bytes"] > 2_000_000 and not (tmp_path / victim).exists(), "it was the manifest that came"
    assert error["hosts_done"] == 4 and error["manifest_sent"] < 3 * error["manifest_bytes"]
    for n in (1, 3, 4, 5):
        trees.assert_same(data, tmp_path / f"{lab.name}.n{n:03d}")


@pytest.mark.root
def test_the_origin_dies_after_one_copy(lab, node, tmp_path):
    lab("up", "single:5@50mbit")
    lab("slow", "4", "8mbit")
    tide = node("origin", lab, 0)
    data = trees.blob(tmp_path / "data", 15_000_000)
    proc = bcast(tide, data, tmp_path / "{host}/data", hosts=f"{lab.name}.n[001-004]", launch="ip netns exec {host} {command}")
    proc.until("three are done", lambda: any(e.get("hosts_done") == 3 for e in proc.events()))
    last = tmp_path / f"{lab.name}.n004/data"
    assert not last.exists()
    os.kill(proc.process.pid, signal.SIGKILL)
    wait_for("the last one completes from the others", last.exists)
    trees.assert_same(data, last)
    left = lambda: [p for n in range(1, 5) for p in subprocess.run(
        ["ip", "netns", "pids", f"{lab.name}.n{n:03d}"], capture_output=True, text=True).stdout.split()]
    wait_for("the workers leave", lambda: not left())

def test_a_tree_of_everything_is_sent_while_it_is_hashed(tide, tmp_path):
    data = trees.rich(tmp_path / "source/env")
    for n in range(1500):
        trees.blob(data / f"many/{n % 7}/{n}", n % 90, seed=n)
    to = tmp_path / "got/{host}"
    done = bcast(tide, data, to, hosts="a,b,c").ok().last("done")
    assert done["hosts_done"] == 3 and done["hash_seconds"] > 0
    for host in "abc":
        copy = tmp_path / "got" / host
        trees.assert_same(data, copy)
        assert os.path.samefile(copy / "leaf", copy / "a/hard") and (copy / "nothing/here").is_dir()
        assert (copy / "sparse").stat().st_blocks < (3 << 20) // 512, "its hole is a hole"
    again = bcast(tide, data, to, hosts="a,b,c").ok().last("done")
    assert again["received"] == 0, "they have all of it"
    trees.blob(data / "many/3/10", 55, seed=4711)
    third = bcast(tide, data, to, hosts="a,b,c,d").ok().last("done")
    late = hosts_of(third)["d"]["received"]
    assert 0 < third["received"] - late < 100_000 < late, "only what differs, but to the new one"
    for host in "abcd":
        trees.assert_same(data, tmp_path / "got" / host)


def test_a_source_that_changes_while_it_is_read_is_named(tide, tmp_path):
    data = trees.blob(tmp_path / "data", 60_000_000)
    proc = bcast(tide, data, tmp_path / "{host}/copy", hosts="a,b")
    with open(data, "r+b") as f:
        while proc.process.poll() is None:
            f.seek(-1, os.SEEK_END)
            f.write(os.urandom(1))
            f.flush()
    error = proc.exits(1).last("error")
    assert str(data) in error["message"] and "changed" in error["message"], error
    assert not any((tmp_path / host / "copy").exists() for host in "ab")


@pytest.mark.root
def test_what_was_interrupted_goes_on(lab, node, tmp_path):
    lab("up", "single:4@50mbit")
    tide = node("origin", lab, 0)
    data = trees.blob(tmp_path / "data", 25_000_000)
    names, launch = f"{lab.name}.n[001-003]", "ip netns exec {host} {command}"
    proc = bcast(tide, data, tmp_path / "{host}/data", hosts=names, launch=launch)
    proc.until("a part is there", lambda: json.loads(lab("counters"))["nodes"][3]["rx"] > 10_000_000)
    proc.signal(signal.SIGINT)
    assert proc.wait(30) == 3
    assert not (tmp_path / f"{lab.name}.n003/data").exists()
    done = bcast(tide, data, tmp_path / "{host}/data", hosts=names, launch=launch).ok().last("done")
    for n in range(1, 4):
        trees.assert_same(data, tmp_path / f"{lab.name}.n{n:03d}/data")
    assert 0 < done["received"] < 3 * 20_000_000, "what was there is used"
