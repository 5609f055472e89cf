"""The lab itself: its clusters carry data at their rate, fail silently, and are removed completely."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.root
NODE = pathlib.Path(__file__).with_name("node.py")


def serve(start, lab, node, port=7000):
    server = start(lab.on(node, sys.executable, NODE, "serve", port), env=lab.env)
    server.until("serving", lambda: "ready" in server.out)
    return server


def flood(lab, node, ip, size) -> float:
    """Seconds to move `size` bytes from a node to ip."""
    return float(lab("exec", node, "--", sys.executable, NODE, "flood", ip, 7000, size))


def namespaces(lab) -> list[str]:
    return [n for n in os.listdir("/run/netns") if n.startswith(lab.name + ".")] if os.path.isdir("/run/netns") else []


def machine() -> list[str]:
    keys = [f"ipv4/neigh/default/gc_thresh{i}" for i in (1, 2, 3)] + ["ipv4/tcp_allowed_congestion_control"]
    return [pathlib.Path("/proc/sys/net", k).read_text() for k in keys]


def test_up_exec_each_down_leaves_nothing(lab, tmp_path):
    lab("up", "single:3@50mbit")
    assert len(namespaces(lab)) == 4
    assert lab("exec", "n001", "--", "hostname").strip() == "n001"
    results = json.loads(lab("each", "--json", "--logs", tmp_path, "--", "sh", "-c", "echo {n} {ip} {N} {root}; exit {n}", code=1))
    assert [r["rc"] for r in results] == [0, 1, 2]
    assert (tmp_path / "n002.log").read_text() == "2 10.77.0.3 3 10.77.0.1\n"
    lab("down")
    assert namespaces(lab) == []
    assert "not up" in lab("status", code=1)


def test_each_ends_what_overruns(lab):
    lab("up", "single:2@50mbit")
    results = json.loads(lab("each", "--json", "--timeout", "0.3", "--nodes", "1-", "--", "sleep", "60", code=1))
    assert [(r["n"], r["rc"]) for r in results] == [(1, -9)]


def test_kill_9_of_the_tool_leaves_nothing(lab, start):
    lab("up", "single:2@50mbit")
    tool = start(lab.argv("each", "--", "sleep", "1000"), env=lab.env)
    alive = lambda: subprocess.run(["ip", "netns", "pids", f"{lab.name}.n001"], capture_output=True, text=True).stdout.split()
    tool.until("nodes busy", alive)
    tool.process.send_signal(signal.SIGKILL)
    tool.process.wait()
    deadline = time.monotonic() + 10
    while alive() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(), "commands must die with the tool"
    lab("down")
    assert namespaces(lab) == []


def test_kill_9_while_going_up_leaves_nothing(lab, start):
    before = machine()
    tool = start(lab.argv("up", "single:60@20mbit"), env=lab.env)
    tool.until("half-way", lambda: len(namespaces(lab)) > 20)
    tool.kill()
    lab("down")
    assert namespaces(lab) == []
    others = [n for n in os.listdir("/run/netns") if ".n000" in n]
    assert others or machine() == before


def test_a_failed_up_leaves_nothing(lab):
    lab.env["TIDECAST_WAN"] = "/bin/false"
    assert "tidecast-wan did not start" in lab("up", "bordeaux:1,1@10mbit,delay=1ms", code=1)
    assert namespaces(lab) == []


def test_rate_of_a_node_and_of_the_bottleneck(lab, start):
    lab("up", "bordeaux:2,2@40mbit,bottleneck=10mbit")
    serve(start, lab, 0)
    near = flood(lab, 1, "10.77.0.1", 4_000_000)   # 0.8 s at 40 mbit
    far = flood(lab, 2, "10.77.0.1", 2_000_000)    # 1.6 s at 10 mbit
    assert near > 0.9 * 0.8 and far > 0.9 * 1.6, "no link may be faster than it says"
    assert near < far, "the bottleneck is on the way to the far node only"
    counted = json.loads(lab("counters"))
    assert 2_000_000 < counted["links"]["s0-s1"]["back"] < 2_400_000
    assert counted["nodes"][1]["tx"] > 4_000_000 and counted["nodes"][0]["rx"] > 6_000_000


def test_slow_and_heal(lab, start):
    lab("up", "single:2@100mbit")
    serve(start, lab, 0)
    lab("slow", "n001", "4mbit")
    slowed = flood(lab, 1, "10.77.0.1", 500_000)
    assert slowed > 0.9 * 1.0
    assert json.loads(lab("status"))["faults"] == {"n001": {"rate": "4mbit"}}
    lab("heal")
    assert flood(lab, 1, "10.77.0.1", 500_000) < slowed / 2
    assert json.loads(lab("status"))["faults"] == {}


@pytest.mark.parametrize("what", ["1", "s0-s1"])
def test_cut_is_silent_and_heals(lab, start, what):
    lab("up", "bordeaux:1,1@50mbit")
    serve(start, lab, 0)
    caller = start(lab.on(1, sys.executable, NODE, "call", "10.77.0.1", 7000), env=lab.env)
    caller.until("talking", lambda: "echo" in caller.out)
    lab("cut", what)
    caller.until("the echo stops", lambda: caller.out.endswith("silence\n" * 10))
    link = json.loads(lab("exec", 1, "--", "ip", "-j", "link", "show", "eth0"))[0]
    assert "NO-CARRIER" not in link["flags"] and "LOWER_UP" in link["flags"]
    assert "error" not in caller.out and "closed" not in caller.out
    lab("heal", what)
    at = len(caller.out)
    caller.until("the same connection goes on", lambda: "echo" in caller.out[at:])


def test_nat_lets_calls_out_and_none_in(lab, start):
    lab("up", "nat:3@50mbit")
    serve(start, lab, 0)
    serve(start, lab, 1)
    flood(lab, 1, "10.77.0.1", 100_000)
    flood(lab, 2, "10.78.0.2", 100_000)  # inside, nodes reach each other
    refused = lab("exec", 0, "--", sys.executable, "-c",
                  "import socket\ntry: socket.create_connection(('10.78.0.2', 7000), 1.5)\n"
                  "except OSError as e: print('refused', e)")
    assert "refused" in refused


def test_two_labs_at_once(lab):
    lab("up", "single:1@10mbit")
    other = type(lab)(lab.name + "b")
    try:
        other("up", "single:1@10mbit")
        lab("down")
        assert len(namespaces(other)) == 2
    finally:
        other("down")


def test_errors_say_what_to_do(lab):
    lab("up", "single:2@10mbit")
    assert "no node or link 'x'" in lab("cut", "x", code=1)
    assert "nodes 0 to 1" in lab("each", "--nodes", "5", "--", "true", code=1)
    assert "no command given" in lab("exec", "0", "--", code=1)
