"""Raise and remove the cluster that a `Topology` describes.

One switch is one bridge in its own namespace, one node one namespace with eth0. Every end of every link
is shaped by a token bucket with a drop-tail queue, in both directions. A link with delay or loss is a
pair of tap devices with `tidecast-wan` between them (this kernel has no netem); a NAT is a router namespace that masquerades
connections from inside and drops other packets from outside.
"""
from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import defaultdict

from . import netns, state
from .netns import LabError
from .topology import Link, Topology, buildable

QUEUE = 256 << 10  # bytes behind a switch port
GSO = 8000  # largest unit handed to a link: keeps a token bucket from being one packet
BRIDGE = "link add br0 type bridge stp_state 0 mcast_snooping 0 forward_delay 0\nlink set lo up\nlink set br0 up\n"
NAMESPACE = {
    "net/ipv4/tcp_no_metrics_save": "1", "net/ipv4/icmp_ratelimit": "0",
    "net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/igmp_max_memberships": "200", "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/lo/disable_ipv6": "0",
    "net/bridge/bridge-nf-call-iptables": "0", "net/bridge/bridge-nf-call-arptables": "0",
    "net/bridge/bridge-nf-call-ip6tables": "0"}


def shape(dev: str, rate: int, queue: int = QUEUE) -> str:
    """The `tc` line for one end of a link: a bucket of 2 ms, never below two of the largest units."""
    burst = int(max(rate / 8 * 0.002, 2 * GSO))
    return f"qdisc replace dev {dev} root tbf rate {rate}bit burst {burst} limit {queue + burst}\n"


def port(link: Link, end: int) -> str:
    """Name of the bridge port of a link at its end 0 (switch a) or 1 (switch b)."""
    return f"t{link.a}to{link.b}" if end == 0 else f"t{link.b}to{link.a}"


class Plan:
    """The `ip` and `tc` batches, by namespace, that make a topology; computing them changes nothing on the machine."""

    def __init__(self, lab: str, topology: Topology):
        self.lab, self.t = lab, topology
        self.ip: dict[str, str] = defaultdict(str)
        self.tc: dict[str, str] = defaultdict(str)
        self.segment = topology.segments()
        self.switches = [f"{lab}.s{i}" for i in range(len(topology.switches))]
        self.nodes = [f"{lab}.n{i:03d}" for i in range(len(topology.nodes))]
        self.routers = {i: f"{lab}.r{i}" for i, link in enumerate(topology.links) if link.nat}
        for switch in self.switches:
            self.ip[switch] += BRIDGE
        for i, link in enumerate(topology.links):
            if link.nat:
                self._nat(i, link)
            elif not link.wan:
                self._trunk(link)
        for n in range(len(topology.nodes)):
            self._node(n)

    def _node(self, n: int) -> None:
        node, name, dev = self.t.nodes[n], self.nodes[n], f"p{n:03d}"
        switch = self.switches[node.switch]
        self.ip[switch] += f"link add {dev} type veth peer name eth0 netns {name}\nlink set {dev} master br0 up\n"
        gateway = self.gateway(self.segment[node.switch])
        self.ip[name] += (
            f"link set lo up\nlink set eth0 address 02:77:00:00:{n >> 8:02x}:{n & 255:02x} mtu 1500 gso_max_size {GSO}\n"
            f"addr add {self.t.address(n)}/16 brd + dev eth0\nlink set eth0 up\n"
            f"route add default {'via ' + gateway if gateway else 'dev eth0'}\n")
        self.tc[switch] += shape(dev, node.rate)
        self.tc[name] += shape("eth0", node.rate, 1 << 20)

    def _trunk(self, link: Link) -> None:
        for end, (here, there) in enumerate([(link.a, link.b), (link.b, link.a)]):
            dev = port(link, end)
            if end == 0:
                self.ip[self.switches[here]] += (
                    f"link add {dev} type veth peer name {port(link, 1)} netns {self.switches[there]}\n")
            self.ip[self.switches[here]] += f"link set {dev} master br0 up\n"
            self.tc[self.switches[here]] += shape(dev, link.rate, link.queue or QUEUE)

    def _nat(self, i: int, link: Link) -> None:
        router = self.routers[i]
        for end, (switch, dev) in enumerate([(link.a, "inside"), (link.b, "outside")]):
            self.ip[self.switches[switch]] += (
                f"link add {port(link, end)} type veth peer name {dev} netns {router}\n"
                f"link set {port(link, end)} master br0 up\n")
            self.ip[router] += f"addr add {self.router_address(i, end)}/16 dev {dev}\nlink set {dev} up\n"
            self.tc[self.switches[switch]] += shape(port(link, end), link.rate, link.queue or QUEUE)
            self.tc[router] += shape(dev, link.rate, link.queue or QUEUE)
        gateway = self.gateway(self.segment[link.b])
        self.ip[router] += "link set lo up\n" + (f"route add default via {gateway}\n" if gateway else "")

    def router_address(self, i: int, end: int) -> str:
        link = self.t.links[i]
        return f"10.{77 + self.segment[link.a if end == 0 else link.b]}.255.{i + 1}"

    def gateway(self, segment: int) -> str | None:
        """Address by which a subnet leaves through its NAT, if it is behind one."""
        for i in self.routers:
            if self.segment[self.t.links[i].a] == segment:
                return self.router_address(i, 0)
        return None


def up(lab: str, topology: Topology, cc: str = "cubic") -> None:
    """Raise the cluster; whatever was up under this name goes first, and a failure leaves nothing."""
    if os.geteuid():
        raise LabError("network namespaces need root")
    buildable(topology)
    with state.locked():
        _down(lab)
        os.makedirs(state.folder(lab), exist_ok=True)
        try:
            state.prepare_machine(cc)
            _raise(Plan(lab, topology), cc)
            state.save(lab, topology, cc)
        except BaseException:
            _down(lab)
            raise


def _raise(plan: Plan, cc: str) -> None:
    everyone = [*plan.switches, *plan.routers.values(), *plan.nodes]
    netns.run(["ip", "-batch", "-"], "".join(f"netns add {n}\n" for n in everyone))
    for name in everyone:  # switches come first: they make the cables, into namespaces that exist
        netns.run(["ip", "-n", name, "-batch", "-"], plan.ip[name]) if name in plan.switches else None
    for name in everyone:
        if name not in plan.switches:
            netns.run(["ip", "-n", name, "-batch", "-"], plan.ip[name])
    for name, text in plan.tc.items():
        netns.run(["tc", "-n", name, "-batch", "-"], text)
    settings = {"net/ipv4/tcp_congestion_control": cc, **NAMESPACE}
    for name in everyone:
        forward = {"net/ipv4/ip_forward": "1"} if name in plan.routers.values() else {}
        netns.in_namespace(name, lambda extra=forward: netns.sysctl({**settings, **extra}))
    for router in plan.routers.values():
        masquerade(router)
    for i, link in enumerate(plan.t.links):
        if link.wan:
            start_wan(plan, link, i)


def masquerade(router: str) -> None:
    """Make `router` a NAT: replies pass, nothing else from outside does."""
    if shutil.which("nft"):
        rules = ("table ip lab {\n chain out { type nat hook postrouting priority 100; oifname outside masquerade; }\n"
                 " chain in { type filter hook forward priority 0; policy accept;\n"
                 "  iifname outside ct state established,related accept; iifname outside drop; }\n}\n")
        netns.run(["ip", "netns", "exec", router, "nft", "-f", "-"], rules)
    elif shutil.which("iptables"):
        for rule in ("-t nat -A POSTROUTING -o outside -j MASQUERADE",
                     "-A FORWARD -i outside -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
                     "-A FORWARD -i outside -j DROP"):
            netns.run(["ip", "netns", "exec", router, "iptables", *rule.split()])
    else:
        raise LabError("a NAT needs nft or iptables (Debian: apt-get install nftables)")


def wan_program() -> str:
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    target, profile = os.environ.get("CARGO_TARGET_DIR", f"{here}/target"), os.environ.get("TIDECAST_PROFILE", "release")
    for path in (os.environ.get("TIDECAST_WAN", ""), f"{target}/{profile}/tidecast-wan"):
        if path and os.access(path, os.X_OK):
            return path
    raise LabError("delay and loss need tidecast-wan: cargo build --release -p tidecast-wan")


def start_wan(plan: Plan, link: Link, seed: int) -> None:
    """Put the user-space link between two switches: a tap device as a port of each bridge."""
    ends = [(plan.switches[link.a], port(link, 0)), (plan.switches[link.b], port(link, 1))]
    queue = link.queue or max(QUEUE, int(link.rate / 8 * 2 * link.delay_us / 1e6))
    command = [wan_program(), "--tap", *(f"{ns}:{dev}" for ns, dev in ends), "--rate", str(link.rate),
               "--queue", str(queue), "--delay-us", str(link.delay_us), "--loss", repr(link.loss),
               "--dup", repr(link.dup), "--reorder", repr(link.reorder), "--seed", str(seed + 1)]
    log = open(f"{state.folder(plan.lab)}/wan{seed}.log", "w")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                               preexec_fn=lambda: netns.enter(ends[0][0]), start_new_session=True)
    deadline = time.monotonic() + 10
    for ns, dev in ends:
        while subprocess.run(["ip", "-n", ns, "link", "set", dev, "master", "br0", "up"], capture_output=True).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                with open(log.name) as f:
                    raise LabError(f"tidecast-wan did not start: {f.read().strip()}")
            time.sleep(0.01)


def down(lab: str) -> None:
    """Remove everything of this lab and put the machine's settings back."""
    with state.locked():
        _down(lab)


def _down(lab: str) -> None:
    netns.remove_all(lab)
    if os.path.isdir(state.folder(lab)):
        for name in os.listdir(state.folder(lab)):
            if name.startswith("wan"):
                os.unlink(f"{state.folder(lab)}/{name}")
    state.forget(lab)
    state.restore_machine()
