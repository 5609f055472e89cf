"""`doctor` on a host of the test's own: network and mount namespaces with planted faults, and without them."""
from __future__ import annotations

import json
import pathlib
import subprocess

import pytest
from conftest import needs
from support.namespaces import enter, needs_namespaces

# Shared memory of its own, and a network with one interface of which the test knows every setting.
HOST = """ip link set lo up
ip link add data0 type veth peer name data1
ip link set data0 up; ip link set data1 up
ip addr add 198.18.0.1/30 dev data0
mount -t tmpfs -o size={shm} tmpfs /dev/shm
sysctl -q -w net.ipv4.tcp_rmem='4096 131072 {buffer}' net.ipv4.tcp_wmem='4096 16384 {buffer}' net.ipv4.tcp_sack={sack} \\
    net.ipv4.tcp_window_scaling={sack} net.ipv4.ip_local_port_range='{ports}' net.core.somaxconn={backlog}
{more}"""
GOOD = {"shm": "4G", "buffer": 1 << 28, "sack": 1, "ports": "20000 60000", "backlog": 4096, "more": ":"}
BAD = {"shm": "1M", "buffer": 1 << 18, "sack": 0, "ports": "40000 40100", "backlog": 8, "more": ":"}
# The checks of what is planted, and their verdict.
PLANTED = {
    **dict.fromkeys(["tcp-receive-buffer", "tcp-send-buffer", "tcp-window-scaling", "shm-size", "open-files", "free-space", "free-inodes"],
                    "costs"),
    **dict.fromkeys(["tcp-sack", "locked-memory", "ephemeral-ports", "listen-backlog"], "note"),
}
GOAL = ("--link", "10gbit", "--rtt", "50ms")


class Host:
    """Namespaces with these settings."""

    def __init__(self, program: pathlib.Path, base: pathlib.Path, start, settings: dict):
        self.program = program
        self.inside = enter(start, base, HOST.format(**settings))

    def run(self, *words) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self.inside, *map(str, words)], capture_output=True, text=True, timeout=240)

    def doctor(self, *words, before: tuple = ()) -> dict:
        """The findings by check; those about one object by check and object."""
        done = self.run(*before, self.program, "doctor", "--json", *words)
        assert done.returncode in (0, 1), done.stderr
        last = json.loads(done.stdout.strip().split("\n")[-1])
        assert last["event"] == ("error" if done.returncode else "done")
        assert bool(last["serious"]) == bool(done.returncode)
        return {key: of for of in last["findings"] for key in ((of["check"], of["object"]), of["check"])}


@pytest.fixture
def host(built, tmp_path, start):
    needs_namespaces("prlimit")
    return lambda **settings: Host(built / "tidecast", tmp_path, start, settings)


@pytest.mark.root
def test_each_planted_fault_is_found(host, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    bad = host(**{**BAD, "more": f"mount -t tmpfs -o size=64k,nr_inodes=20 tmpfs {small}"})
    limits = ("prlimit", "--nofile=128:128", "--memlock=65536:65536")
    found = bad.doctor(*GOAL, "--dir", small, before=limits)
    verdicts = {check: found[check]["verdict"] for check in PLANTED}
    assert verdicts == PLANTED, {check: found[check] for check in PLANTED if verdicts[check] != PLANTED[check]}
    assert all(found[check]["why"] and found[check]["read"] and found[check]["source"] for check in PLANTED)
    # 256 KiB of buffer and 8 streams at 50 ms: far below 1 Gbit/s.
    assert found["tcp-receive-buffer"]["cost"] > 0.9


@pytest.mark.root
def test_nothing_is_invented_on_a_host_without_faults(host, tmp_path):
    roomy = tmp_path / "roomy"
    roomy.mkdir()
    good = host(**{**GOOD, "more": f"mount -t tmpfs -o size=4G tmpfs {roomy}"})
    found = good.doctor(*GOAL, "--dir", roomy)
    # The limits are those of the machine, which root of a container cannot raise.
    planted = [check for check in PLANTED if check not in ("open-files", "locked-memory")]
    invented = {check: found[check] for check in planted if found[check]["verdict"] != "fit"}
    assert not invented


@pytest.mark.root
def test_without_root_it_finds_the_same(host):
    needs("setpriv")
    bad = host(**BAD)
    limits = ("prlimit", "--nofile=128:128", "--memlock=65536:65536")
    of_root = bad.doctor(*GOAL, before=limits)
    of_user = bad.doctor(*GOAL, before=(*limits, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"))
    for check in PLANTED:
        if check in of_root:
            assert of_user[check]["verdict"] == of_root[check]["verdict"], of_user[check]


@pytest.mark.root
def test_where_nothing_can_be_read_it_says_so(host):
    """A container that shows neither /sys nor most of /proc."""
    hidden = host(**{**GOOD, "more": "mount -t tmpfs tmpfs /sys; mount -t tmpfs tmpfs /proc/sys"})
    found = hidden.doctor(*GOAL)
    assert found["tcp-receive-buffer"]["verdict"] == "unknown" and found["tcp-receive-buffer"]["why"]
    serious = [of for of in found.values() if of["verdict"] == "costs" and of["read"] == ""]
    assert not serious, "what cannot be read costs nothing"


@pytest.mark.root
def test_a_slow_disk_is_measured(host, tmp_path):
    """A control group limits what its processes write to a disk of the test's own to 8 MiB/s; the machine's disk is not touched."""
    needs("mkfs.ext4", "findmnt")
    group = pathlib.Path("/sys/fs/cgroup/blkio/tidecast-slow-disk")
    if not group.parent.is_dir() or not pathlib.Path("/dev/loop-control").exists():
        pytest.skip("SKIPPED: no control groups of version 1, or no loop devices, to make a slow disk of")
    slow = tmp_path / "slow"
    slow.mkdir()
    disk = f"truncate -s 64M /dev/shm/disk; mkfs.ext4 -q /dev/shm/disk; mount -o loop /dev/shm/disk {slow}"
    good = host(**{**GOOD, "more": disk})
    device = good.run("findmnt", "-no", "MAJ:MIN", slow).stdout.strip()
    group.mkdir(exist_ok=True)
    try:
        (group / "blkio.throttle.write_bps_device").write_text(f"{device} {8 << 20}")
        limited = ("sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$0" "$@"')
        found = good.doctor(*GOAL, "--dir", slow, "--measure", before=limited)
    finally:
        group.rmdir()
    measured = next(of for of in found.values() if of["check"] == "disk-speed")
    assert measured["verdict"] == "costs" and measured["cost"] > 0.9 and "writes" in measured["read"], measured
    assert ".tidecast" not in good.run("ls", "-A", slow).stdout


def test_wrong_words_are_usage(tide):
    assert "positive" in tide.run("doctor", "--link", "0bit").exits(2).err
    for words, why in [(("--link", "0"), "0"), (("--for", "x"), "possible values"), (("--yes",), "--fix"), (("--dry-run",), "--fix"),
                       (("--fix", "--undo"), "cannot be used"), (("--rtt", "-1s"), "")]:
        assert why in tide("doctor", *words, code=2).err, words
