"""The user-space long-distance link between two sites of a lab: delay, rate, loss by packet, and whole data."""
import pathlib
import sys

import pytest

from lab.forms import parse

pytestmark = pytest.mark.root

# A server that answers each datagram; a client that prints round trips (ms), or how many of 4000 came back. 33 is
# SO_RCVBUFFORCE: the system's limit for ordinary users is not enough everywhere.
ECHO = """
import socket, sys
s = socket.socket(type=socket.SOCK_DGRAM); s.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)
s.bind(("0.0.0.0", 7001)); print("ready", flush=True)
while True:
    data, who = s.recvfrom(2000); s.sendto(data, who)
"""
ROUND_TRIPS = """
import socket, time
s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(5); s.connect(("10.77.0.1", 7001))
for _ in range(20):
    t = time.monotonic(); s.send(b"x"); s.recv(10); print((time.monotonic() - t) * 1000)
"""
BURST = """
import socket, time
s = socket.socket(type=socket.SOCK_DGRAM); s.connect(("10.77.0.1", 7001))
s.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)
for i in range(4000):
    s.send(b"%06d" % i)
    if i % 20 == 0: time.sleep(0.002)
s.settimeout(1); seen = []
try:
    while True: seen.append(int(s.recv(10)))
except TimeoutError: pass
order = sum(b < a for a, b in zip(seen, seen[1:]))
print(len(set(seen)), len(seen) - len(set(seen)), order)
"""
# TCP with content: the receiver checks a hash, so that a badly taken-apart unit cannot pass.
SINK = """
import hashlib, socket
s = socket.create_server(("0.0.0.0", 7002)); print("ready", flush=True)
c, _ = s.accept(); h = hashlib.sha256()
while part := c.recv(1 << 16): h.update(part)
print(h.hexdigest(), flush=True)
"""
SOURCE = """
import hashlib, random, socket
data = random.Random(1).randbytes(6_000_000); print(hashlib.sha256(data).hexdigest())
socket.create_connection(("10.77.0.1", 7002)).sendall(data)
"""


@pytest.fixture
def sites(built, lab, start):
    """sites(options, server) -> the lab, two sites of one node each, with `server` running on node 0."""
    def raise_it(options: str, server: str, form: str = "bordeaux:1,1@200mbit"):
        lab("up", f"{form},{options}")
        proc = start(lab.on(0, sys.executable, "-c", server), env=lab.env)
        proc.until("server", lambda: "ready" in proc.out)
        return proc

    return raise_it


def test_delay(lab, sites):
    sites("delay=20ms", ECHO)
    trips = sorted(map(float, lab("exec", 1, "--", sys.executable, "-c", ROUND_TRIPS).split()))
    assert trips[0] >= 40, "nothing arrives early"
    assert trips[0] < 60, "nor much late (the quickest of 20, whatever else runs here)"


def test_between_sites_the_line_is_passed_twice(lab, sites):
    sites("delay=10ms", ECHO, form="sites:1,1@200mbit,wan=100mbit")
    trips = sorted(map(float, lab("exec", 1, "--", sys.executable, "-c", ROUND_TRIPS).split()))
    assert 40 <= trips[0] < 60


#: Of 4000. One run in many had 16, and the cause is not proven: a sender that is moved to another core meanwhile may overtake
#: itself, since each core has a queue of its own.
MOVED = (0, 40)


@pytest.mark.parametrize("options, lost, twice, overtaken", [
    ("delay=5ms", (0, 0), (0, 0), MOVED),
    ("loss=5%", (250, 550), (0, 0), (0, 0)),          # both ways: 9.75% of 4000 do not come back
    ("dup=5%", (0, 0), (280, 560), (0, 0)),
    ("delay=5ms,reorder=5%", (0, 0), (0, 0), (50, 800))])
def test_chances(lab, sites, options, lost, twice, overtaken):
    sites(options, ECHO)
    came, again, order = map(int, lab("exec", 1, "--", sys.executable, "-c", BURST).split())
    assert lost[0] <= 4000 - came <= lost[1]
    assert twice[0] <= again <= twice[1]
    assert overtaken[0] <= order <= overtaken[1]


def test_data_is_whole_over_the_worst_line(lab, sites):
    sink = sites("delay=2ms,loss=1%,dup=1%,reorder=1%", SINK)
    sent = lab("exec", 1, "--", sys.executable, "-c", SOURCE).strip()
    sink.ok()
    assert sent in sink.out
    counts = lab("exec", 0, "--", "cat", "/proc/net/snmp").splitlines()
    tcp = dict(zip(*(line.split() for line in counts if line.startswith("Tcp:"))))
    assert tcp["InCsumErrors"] == "0", "units were taken apart with wrong sums"


def test_it_goes_down_with_the_lab(lab, sites):
    sites("delay=1ms", ECHO)

    def alive():
        lines = (p.read_bytes() for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if p.exists())
        return any(b"tidecast-wan" in line and lab.name.encode() in line for line in lines)

    assert alive()
    lab("down")
    assert not alive()


def test_a_cut_of_the_line_is_silent_too(lab, sites):
    sites("delay=1ms", ECHO)
    lab("cut", "s0-s1")
    assert "TimeoutError" in lab("exec", 1, "--", sys.executable, "-c", ROUND_TRIPS.replace("settimeout(5)", "settimeout(1)"), code=1)
    lab("heal")
    assert len(lab("exec", 1, "--", sys.executable, "-c", ROUND_TRIPS).split()) == 20


def test_the_topology_knows_which_links_need_it():
    assert [link.wan for link in parse("bordeaux:1,1,1@1mbit,delay=1ms").links] == [True, False]
