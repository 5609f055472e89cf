"""`copy --explain` names what holds a copy up, from the kernel's own counts: between two network namespaces, on a long way."""
import os
import subprocess

import pytest
from support.trees import blob


def sh(*lines: str) -> None:
    for line in lines:
        subprocess.run(line.split(), check=True, capture_output=True)


@pytest.fixture
def ends():
    """Two namespaces, 40 ms apart, the second with small windows."""
    if os.geteuid():
        pytest.skip("network namespaces need root")
    a, b = (f"tcv{os.getpid()}{end}" for end in "ab")
    try:
        sh(f"ip netns add {a}", f"ip netns add {b}")
        sh(f"ip link add va netns {a} type veth peer name vb netns {b}")
        for ns, link, last in ((a, "va", 1), (b, "vb", 2)):
            sh(f"ip -n {ns} addr add 10.77.0.{last}/24 dev {link}", f"ip -n {ns} link set {link} up", f"ip -n {ns} link set lo up")
            try:
                sh(f"tc -n {ns} qdisc add dev {link} root netem delay 20ms limit 100000")
            except (OSError, subprocess.CalledProcessError):
                pytest.skip("this system has no netem")
        yield a, b
    finally:
        for ns in (a, b):
            subprocess.run(["ip", "netns", "del", ns], capture_output=True)


def within(ns: str, *words) -> list[str]:
    return ["ip", "netns", "exec", ns, *map(str, words)]


def serve(tide, start, ns, root):
    root.mkdir(exist_ok=True)
    words = (tide.program, "copy-server", "--root", root, "--listen", "10.77.0.2:7000", "--as-root", "--plain")
    server = start(within(ns, *words), env=tide.env)
    return server.until("its URL", lambda: server.out.split("\n")[0] if "\n" in server.out else "")


def test_a_window_that_is_small_for_the_way_is_the_verdict(tide, start, ends, tmp_path):
    here, there = ends
    subprocess.run(within(there, "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 65536 65536"), check=True)
    url = serve(tide, start, there, tmp_path / "served")
    data = blob(tmp_path / "data", 4 << 20)
    copy = start(within(here, tide.program, "copy", "--explain", "--plain", "--json", data, url + "/in"), env=tide.env).ok()
    end = copy.last("done")
    assert end["limit"].startswith("window limited: ") and "tcp_rmem" in end["limit"] and "10.77.0.2" in end["limit"], end["limit"]
    assert end["wire"]["window_limited"] > end["wire"]["busy"] / 2 and end["wire"]["round_trip"] >= 0.04, end["wire"]


def test_progress_moves_with_the_bytes_of_a_slow_link(tide, start, ends, tmp_path):
    """A link of 8 Mbit/s needs 4 s for a block of 4 MiB: what is shown moves between."""
    here, there = ends
    sh(f"tc -n {here} qdisc change dev va root netem delay 20ms rate 8mbit limit 1000")
    url = serve(tide, start, there, tmp_path / "served")
    data = blob(tmp_path / "data", 5 << 20)
    copy = start(within(here, tide.program, "copy", "--plain", "--json", data, url + "/in"), env=tide.env).ok()
    shown = {event["bytes"] for event in copy.events() if event["event"] == "progress"}
    assert len([n for n in shown if 0 < n < 4 << 20 and n % (4 << 20)]) >= 3, sorted(shown)
