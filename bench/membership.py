"""Daemons on wires of their own, each in a network namespace: the time until they know each other and their caches, a replication
during which half of them fail, and a network that was partitioned. Needs root, `ip` and a built program.

    python -m bench.membership PROGRAM [HOSTS...]        figures, by default for 8 and 16 hosts
    python -m bench.membership PROGRAM seeds             three without a known peer, by multicast and by a DHT of their own
    python -m bench.membership PROGRAM losses            half of 8 killed, frozen, cut off; two parts that come together
    python -m bench.membership PROGRAM deaths [HOSTS [ROUNDS]]
                                                     the time until all know the failed ones: half of 40, 10 times; other shares;
                                                     links cut; daemons that are stopped or cut off for 8 s only
    python -m bench.membership PROGRAM gets [HOSTS [MBIT [MIB [SECONDS]]]]
                                                     all of 40 hosts at 8 Mbit/s get one cache of 16 MiB from one of them, at once or
                                                     one every SECONDS: copies that the origin sent, the slowest relative to the time
                                                     of one copy over the origin's wire
"""
from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from support.daemons import Host, Site  # noqa: E402
from support.proc import Proc  # noqa: E402
from support.tidecast import wait_for  # noqa: E402

CACHE = 64 << 20
RATE = 200  # Mbit/s
#: All namespaces share one neighbour table: once it is full, hosts cannot find each other, whatever they do.
NEIGHBOURS = {pathlib.Path(f"/proc/sys/net/ipv4/neigh/default/gc_thresh{i}"): limit for i, limit in ((3, 65536), (2, 32768), (1, 16384))}


def ip(*words) -> None:
    subprocess.run(["ip", *map(str, words)], check=True)


class Wired(Host):
    """A host in its namespace. Its wire ends in the switch's namespace, and can be put on another switch there."""

    ns = ""

    def argv(self, *words) -> list[str]:
        return ["ip", "netns", "exec", self.ns, *super().argv(*words)]


class Wires:
    """A switch, and a second one for a network in two parts."""

    def __init__(self, base: pathlib.Path, program: pathlib.Path, rate: int = RATE):
        self.base, self.program, self.rate, self.procs = base, program, rate, []
        self.tag = f"tc{os.getpid() % 10000}"
        self.hub = f"{self.tag}s"
        self.before = {path: path.read_text() for path in NEIGHBOURS}
        for path, limit in NEIGHBOURS.items():
            path.write_text(str(limit))
        ip("netns", "add", self.hub)
        for switch in ("one", "two"):
            ip("-n", self.hub, "link", "add", switch, "type", "bridge")
            ip("-n", self.hub, "link", "set", switch, "up")
        self.site = Site(program, base, self.start, lambda: 6980)
        self.hosts: list[Wired] = []

    def start(self, argv, env=None) -> Proc:
        proc = Proc(argv, self.base / f"log{len(self.procs)}", env=env)
        self.procs.append(proc)
        return proc

    def host(self, *words) -> Wired:
        number = len(self.hosts)
        host = Wired(self.program, self.base / f"node{number}", self.start, f"node{number}")
        host.ns, host.wire = f"{self.tag}n{number}", f"w{number}"
        ip("netns", "add", host.ns)
        ip("link", "add", host.wire, "netns", self.hub, "type", "veth", "peer", "name", "eth0", "netns", host.ns)
        ip("-n", self.hub, "link", "set", host.wire, "master", "one", "up")
        ip("-n", host.ns, "link", "set", "lo", "up")
        ip("-n", host.ns, "addr", "add", f"10.77.{number // 200}.{number % 200 + 1}/16", "dev", "eth0")
        ip("-n", host.ns, "link", "set", "eth0", "up")
        subprocess.run(["tc", "-n", host.ns, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{self.rate}mbit", "burst", "256k", "latency", "50ms"], check=True)
        pem = self.site.certificate(f"host:node{number}")
        host.listen = f"10.77.{number // 200}.{number % 200 + 1}:6980"
        peer = ["--peer", self.hosts[0].listen] if self.hosts else []
        host.words = ["--listen", host.listen, "--trust", self.site.trust, "--certificate", pem, *peer, *words]
        self.hosts.append(host)
        return host

    def wire(self, host: Wired, switch: str | None) -> None:
        """Puts the host on a switch; None: cut off."""
        ip("-n", self.hub, "link", "set", host.wire, *(["master", switch] if switch else ["nomaster"]))

    def end(self) -> None:
        for proc in self.procs:
            if proc.process.poll() is None:
                proc.process.send_signal(signal.SIGCONT)
                proc.process.kill()
                proc.process.wait()
        for ns in [self.hub, *(host.ns for host in self.hosts)]:
            subprocess.run(["ip", "netns", "del", ns], check=False)
        for path, limit in self.before.items():
            path.write_text(limit)


def members(host: Host) -> int:
    return host.http("GET", "/v1/daemon")[1]["members"]


def holders(host: Host, name: str) -> set[str]:
    status, found = host.http("GET", f"/v1/where?name={name}")
    return {one["host"] for one in found} if status == 200 else set()


def took(what: str, test, timeout: float = 180) -> float:
    began = time.monotonic()
    wait_for(what, test, timeout)
    return round(time.monotonic() - began, 2)


def all_known(wires: Wires, count: int) -> float:
    for _ in range(count):
        wires.host()
    for host in wires.hosts:
        host.serve(*host.words)
    return took("all know each other", lambda: all(members(host) == count for host in wires.hosts))


def cpu(host: Host) -> float:
    fields = pathlib.Path(f"/proc/{host.daemon.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss(host: Host) -> int:
    text = pathlib.Path(f"/proc/{host.daemon.process.pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) >> 10


def content(base: pathlib.Path, size: int = CACHE) -> pathlib.Path:
    path = base / "data"
    path.write_bytes(os.urandom(size))
    return path


def figures(wires: Wires, count: int) -> dict:
    known = all_known(wires, count)
    first, *rest = wires.hosts
    first.create("nt", content(wires.base, 1 << 20), "--replicas", "3")
    learnt = took("news of a cache", lambda: all(holders(host, "node0/nt") for host in rest[-3:]))
    copies = took("three copies", lambda: len(holders(first, "node0/nt")) == 3)
    by_name = {host.name: host for host in wires.hosts}
    lost = by_name[next(name for name in holders(first, "node0/nt") if name != "node0")]
    lost.daemon.signal(signal.SIGKILL)
    lost.daemon.wait()
    dead = took("the death to be known everywhere", lambda: all(members(h) == count - 1 for h in wires.hosts if h is not lost))
    replaced = dead + took("another copy", lambda: len(holders(first, "node0/nt") - {lost.name}) == 3)
    time.sleep(10)
    before, began = {h: cpu(h) for h in wires.hosts if h is not lost}, time.monotonic()
    time.sleep(20)
    idle = [(cpu(h) - was) / (time.monotonic() - began) for h, was in before.items()]
    return {"hosts": count, "all_known_s": known, "cache_known_s": learnt, "three_copies_s": copies, "death_known_s": dead,
            "copy_replaced_s": round(replaced, 2), "idle_cpu_percent": round(100 * sum(idle) / len(idle), 2),
            "rss_mib": max(rss(h) for h in before)}


def half_lost(wires: Wires, how: str) -> dict:
    all_known(wires, 8)
    origin, keeper, *others = wires.hosts
    origin.create("nt", content(wires.base))
    keeper.cache("get", "node0/nt", "--wait", "2m")
    lost, left = [origin, *others[:3]], others[3:]
    took("the copy to be known", lambda: {"node0", "node1"} <= holders(left[0], "node0/nt"))
    began = time.monotonic()
    gets = {host: host.run("cache", "get", "node0/nt", "--wait", "5m", "--json") for host in others}
    time.sleep(1.5)
    done = sum(get.process.poll() is not None for get in gets.values())
    for host in lost:
        if how == "cut":
            wires.wire(host, None)
        else:
            host.daemon.signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    for host in left:
        gets[host].exits(0, timeout=300)
    complete = round(time.monotonic() - began, 2)
    living = {keeper, *left}
    forgotten = took("the lost to be forgotten", lambda: all(members(host) == 4 for host in living))
    assert all(holders(host, "node0/nt") == {h.name for h in living} for host in living), "names do not resolve"
    return {"lost": how, "done_before": done, "others_complete_s": complete, "then_forgotten_s": forgotten}


def parted(wires: Wires) -> dict:
    """Two parts of four; the name gets a new version in one of them, and both keep three copies."""
    all_known(wires, 8)
    origin, data = wires.hosts[0], content(wires.base, 1 << 20)
    origin.create("nt", data, "--replicas", "3")
    took("three copies", lambda: len(holders(origin, "node0/nt@1")) == 3)
    keep = {name for name in holders(origin, "node0/nt@1") if name != "node0"}
    ours = {"node0", min(keep)}
    for host in wires.hosts[1:]:
        if len(ours) < 4 and host.name not in keep:
            ours.add(host.name)
    there = [host for host in wires.hosts if host.name not in ours]
    for host in there:
        wires.wire(host, "two")
    parted = took("two parts", lambda: all(members(host) == 4 for host in wires.hosts))
    data.write_bytes(os.urandom(1 << 20))
    origin.create("nt", data, "--replicas", "3")
    both = took("three copies of the new version", lambda: len(holders(origin, "node0/nt@2")) == 3)
    keeper = next(host for host in there if host.name in keep)  # any other might be the one that is asked later
    assert keeper.cache("get", "node0/nt", "--wait", "1m")["name"] == "node0/nt@1"
    for host in there:
        wires.wire(host, "one")
    healed = took("all know each other again", lambda: all(members(host) == 8 for host in wires.hosts))
    known = took("the newest version", lambda: all(holders(host, "node0/nt@2") for host in there))
    late = next(host for host in there if not host.names())
    assert late.cache("get", "node0/nt", "--wait", "1m")["name"] == "node0/nt@2", "an older record has won"
    settled = took("the copies to settle", lambda: len(holders(origin, "node0/nt@1")) <= 4)
    return {"parted_s": parted, "copies_s": both, "healed_s": healed, "newest_known_s": known, "settled_s": settled,
            "old": len(holders(origin, "node0/nt@1")), "new": len(holders(origin, "node0/nt@2"))}


def knows(host: Host, count: int) -> bool:
    try:
        return members(host) == count
    except OSError:  # it is starting
        return False


def die(wires: Wires, lost: list[Wired], how: str) -> float:
    """Waits until all remaining daemons know of it; then starts the others again."""
    left = [host for host in wires.hosts if host not in lost]
    for host in lost:
        wires.wire(host, None) if how == "cut" else host.daemon.signal(signal.SIGKILL)
    known = took("the deaths to be known everywhere", lambda: all(knows(host, len(left)) for host in left))
    for host in lost:
        if how == "cut":
            wires.wire(host, "one")
        else:
            host.daemon.wait()
            host.serve(*host.words)
    took("all know each other again", lambda: all(knows(host, len(wires.hosts)) for host in wires.hosts))
    return known


def spared(wires: Wires, count: int, how: str) -> dict:
    """Some are stopped or cut off for 8 s: no daemon declares them dead, and their later messages are accepted at once."""
    some = random.sample(wires.hosts[1:], count)
    for host in some:
        wires.wire(host, None) if how == "cut" else host.daemon.signal(signal.SIGSTOP)
    time.sleep(8)
    for host in some:
        wires.wire(host, "one") if how == "cut" else host.daemon.signal(signal.SIGCONT)
    name, first = f"after-{how}", some[0]
    data = wires.base / "little"
    data.write_bytes(os.urandom(1000))
    began = time.monotonic()
    first.create(name, data)
    while not holders(wires.hosts[0], f"{first.name}/{name}"):
        time.sleep(0.05)
    heard, fewest = time.monotonic() - began, len(wires.hosts)
    while time.monotonic() < began + 20:
        fewest = min(fewest, *(members(host) for host in wires.hosts))
        time.sleep(0.2)
    return {f"{how}_for_8_s": count, "heard_again_s": round(heard, 2), "fewest_members": fewest}


def deaths(wires: Wires, count: int, rounds: int) -> dict:
    all_known(wires, count)
    time.sleep(20)
    tell = lambda what: print(json.dumps(what), flush=True)  # noqa: E731
    for how in ("stopped", "cut"):
        tell(spared(wires, count // 8, how))
    shares = [("killed", count // 2, rounds), ("killed", 1, 3), ("killed", count * 3 // 4, 3), ("cut", count // 2, 3), ("killed", count - 1, 1)]
    for how, dead, times in shares:
        took_s = []
        for _ in range(times):
            took_s.append(die(wires, random.sample(wires.hosts[1:], dead), how))
            time.sleep(10)
        took_s.sort()
        tell({"of": count, how: dead, "times": times, "median_s": took_s[times // 2], "most_s": took_s[-1]})
    return {"hosts": count, "rss_mib": max(rss(host) for host in wires.hosts)}


def found(wires: Wires, how: str) -> dict:
    """Three without a known peer: by multicast, or by the first one's DHT node."""
    for _ in range(3):
        host = wires.host()
        host.words = [word for word in host.words if word not in ("--peer", wires.hosts[0].listen) or host is wires.hosts[0]]
        nodes = [wires.hosts[0].listen] if host is not wires.hosts[0] else []
        settings = "" if how == "multicast" else f"local_discovery = false\ndht = {json.dumps(nodes)}\n"
        host.env["TIDECAST_CONFIG"] = str(host.home / "config.toml")
        (host.home / "config.toml").write_text(f"[daemon]\n{settings}")
    for host in wires.hosts:
        host.serve(*host.words)
    return {"found_by": how, "all_known_s": took("all know each other", lambda: all(members(host) == 3 for host in wires.hosts))}


def sent(host: Wired) -> int:
    """Bytes that have left by its wire."""
    text = subprocess.run(["ip", "-n", host.ns, "-j", "-s", "link", "show", "eth0"], check=True, capture_output=True).stdout
    return json.loads(text)[0]["stats64"]["tx"]["bytes"]


def gets(wires: Wires, count: int, mib: int, pause: float) -> dict:
    all_known(wires, count)
    origin, *others = wires.hosts
    origin.create("nt", content(wires.base, mib << 20))
    took("news of a cache", lambda: all(holders(host, "node0/nt") for host in others))
    before, busy, began, running, times = sent(origin), sum(map(cpu, wires.hosts)), time.monotonic(), {}, []
    left = list(others)
    while left or running:
        while left and time.monotonic() >= began + pause * (count - 1 - len(left)):
            running[left.pop(0).run("cache", "get", "node0/nt", "--wait", "10m", "--json")] = time.monotonic()
        for get in [get for get in running if get.process.poll() is not None]:
            get.exits(0)
            times.append(time.monotonic() - running.pop(get))
        time.sleep(0.02)
    bound = (mib << 23) / (wires.rate * 1e6)
    cores = (sum(map(cpu, wires.hosts)) - busy) / (time.monotonic() - began)
    return {"hosts": count, "mbit": wires.rate, "mib": mib, "pause_s": pause, "origin_copies": round((sent(origin) - before) / (mib << 20), 2),
            "slowest_of_bound": round(max(times) / bound, 2), "middle_of_bound": round(sorted(times)[len(times) // 2] / bound, 2),
            "cores_busy": round(cores, 2)}


def run(program: pathlib.Path, what, *words, rate: int = RATE) -> None:
    base = pathlib.Path(tempfile.mkdtemp(prefix="membership"))
    wires = Wires(base, program, rate)
    try:
        print(json.dumps(what(wires, *words)), flush=True)
    finally:
        wires.end()
        shutil.rmtree(base)


def main() -> None:
    program, *words = sys.argv[1:]
    program = pathlib.Path(program).resolve()
    if words == ["losses"]:
        for how in ("killed", "frozen", "cut"):
            run(program, half_lost, how)
        run(program, parted)
        return
    if words[:1] == ["deaths"]:
        count, rounds = (list(map(int, words[1:])) + [40, 10][len(words) - 1:])[:2]
        run(program, deaths, count, rounds)
        return
    if words == ["seeds"]:
        for how in ("multicast", "dht"):
            run(program, found, how)
        return
    if words[:1] == ["gets"]:
        count, rate, mib, pause = [*map(float, words[1:]), *(40, 8, 16, 0)[len(words) - 1:]]
        run(program, gets, int(count), int(mib), pause, rate=int(rate))
        return
    for count in map(int, words or ["8", "16"]):
        run(program, figures, count)


if __name__ == "__main__":
    main()
