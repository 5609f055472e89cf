"""`copy --explain` names the bottleneck of a copy, from the kernel's own counts: between two network namespaces, on a long link."""
import os
import subprocess

import pytest
from conftest import lab_works
from support.trees import blob


def sh(*lines: str) -> None:
    for line in lines:
        subprocess.run(line.split(), check=True, capture_output=True)


@pytest.fixture
def ends(built, start, request):
    """Two namespaces, 40 ms apart there and back, over a line of this rate (bits a second; 0: no limit)."""
    if why := lab_works():
        pytest.skip(why)
    a, b = (f"tcv{os.getpid()}{end}" for end in "ab")
    try:
        sh(f"ip netns add {a}", f"ip netns add {b}")
        line = start([built / "tidecast-wan", f"{a}:wan", f"{b}:wan", "--delay-us", "20000", "--rate", str(request.param)])
        for ns, here, there in ((a, 1, 2), (b, 2, 1)):
            up = ["ip", "-n", ns, "link", "set", "wan", "up"]
            line.until("its device", lambda: subprocess.run(up, capture_output=True).returncode == 0, 30)
            sh(f"ip -n {ns} addr add 10.77.0.{here} peer 10.77.0.{there} dev wan", f"ip -n {ns} link set lo up")
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


@pytest.mark.alone
@pytest.mark.parametrize("ends", [0], indirect=True)
def test_a_window_that_is_small_for_the_way_is_the_verdict(tide, start, ends, tmp_path):
    here, there = ends
    subprocess.run(within(there, "sysctl", "-qw", "net.ipv4.tcp_rmem=4096 65536 65536"), check=True)
    url = serve(tide, start, there, tmp_path / "served")
    data = blob(tmp_path / "data", 32 << 20)
    copy = start(within(here, tide.program, "copy", "--explain", "--streams", 2, "--plain", "--json", data, url + "/in"), env=tide.env).ok()
    end = copy.last("done")
    assert end["limit"].startswith("window limited: ") and "tcp_rmem" in end["limit"] and "10.77.0.2" in end["limit"], end
    assert end["wire"]["window_limited"] > end["wire"]["busy"] / 4 and end["wire"]["round_trip"] >= 0.04, end["wire"]


@pytest.mark.alone
@pytest.mark.parametrize("ends", [8_000_000], indirect=True)
def test_progress_moves_with_the_bytes_of_a_slow_link(tide, start, ends, tmp_path):
    """A link of 8 Mbit/s needs 4 s for a block of 4 MiB: the display advances in between."""
    here, there = ends
    url = serve(tide, start, there, tmp_path / "served")
    data = blob(tmp_path / "data", 5 << 20)
    copy = start(within(here, tide.program, "copy", "--plain", "--json", data, url + "/in"), env=tide.env).ok()
    shown = {event["bytes"] for event in copy.events() if event["event"] == "progress"}
    assert len([n for n in shown if 0 < n < 4 << 20 and n % (4 << 20)]) >= 3, sorted(shown)
