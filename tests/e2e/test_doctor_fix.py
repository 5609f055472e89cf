"""`doctor --fix`, `--dry-run` and `--undo` in network and mount namespaces, so that nothing of this machine changes."""
from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
from conftest import needs
from support.namespaces import enter, needs_namespaces
from support.tidecast import wait_for

# Of the whole host only the network namespace's own parameters can be written: all else below /proc/sys and /sys is read-only.
SETUP = """mount --rbind /proc/sys /proc/sys
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,bind,ro /proc/sys
mount -t sysfs -o ro sysfs /sys
mount --bind {base}/etc /etc
mount --bind {base}/lib /var/lib
ip link set lo up
ip link add data0 type veth peer name data1
ip link set data0 up; ip link set data1 up
ip addr add 198.18.0.1/30 dev data0
tc qdisc add dev data0 root handle 7: pfifo limit 77
sysctl -q -w net.ipv4.tcp_rmem='4096 131072 262144' net.ipv4.tcp_wmem='4096 16384 262144'
"""
DIRECTORIES = ("sysctl.d", "systemd/system/multi-user.target.wants")
FORMER = "# an administrator's file, byte for byte\n"
# Reads every parameter of the network namespace.
READ = """
import json, os
found = {}
for top, _, names in os.walk("/proc/sys/net"):
    for name in names:
        path = os.path.join(top, name)
        try:
            with open(path) as f:
                found[path] = f.read()
        except OSError as e:
            found[path] = str(e.errno)
print(json.dumps(found))
"""
# What the kernel changes by itself, and what all namespaces share, so that other tests change it.
RESTLESS = ("nf_conntrack_count", "stable_secret", "fib_multipath_hash_seed", "dev_weight", "tcp_allowed_congestion_control",
            "tcp_available_congestion_control")


class Host:
    """A host with buffers that are too small."""

    def __init__(self, program: pathlib.Path, base: pathlib.Path, start):
        self.program, self.base, self.start = program, base, start
        for directory in DIRECTORIES:
            (base / "etc" / directory).mkdir(parents=True)
        former = base / "etc/sysctl.d/90-tidecast-doctor.conf"
        former.write_text(FORMER)
        os.chown(former, 7, 7)
        (base / "lib").mkdir()
        self.before = enter(start, base, SETUP.format(base=base))

    def run(self, *words, code: int | None = 0) -> str:
        done = subprocess.run([*self.before, *map(str, words)], capture_output=True, text=True, timeout=240)
        assert code is None or done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def argv(self, *words) -> list[str]:
        return [str(self.program), "doctor", "--for", "copy", "--link", "10gbit", "--rtt", "50ms", *map(str, words)]

    def doctor(self, *words, code: int | None = 0) -> str:
        return self.run(*self.argv(*words), code=code)

    def snapshot(self) -> dict:
        """All parameters, interfaces and files."""
        parameters = json.loads(self.run(sys.executable, "-c", READ))
        kept = {k: v for k, v in parameters.items() if not k.endswith(RESTLESS)}
        assert len(kept) > 300
        files = {str(p): os.readlink(p) if p.is_symlink() else (p.stat().st_mode, p.stat().st_uid, p.read_bytes()) for folder in ("etc", "lib")
                 for p in sorted((self.base / folder).rglob("*")) if p.is_symlink() or p.is_file()}
        folders = [str(p) for folder in ("etc", "lib") for p in sorted((self.base / folder).rglob("*")) if p.is_dir()]
        return {"parameters": kept, "files": files, "folders": folders,
                "links": self.run("ip", "-o", "link"), "qdiscs": self.run("tc", "qdisc")}

    def sysctl(self, name: str) -> str:
        return self.run("sysctl", "-n", name).replace("\t", " ").strip()


@pytest.fixture
def host(built, tmp_path, start):
    needs_namespaces("tc")
    return Host(built / "tidecast", tmp_path, start)


@pytest.mark.root
def test_what_is_fixed_is_undone_exactly(host):
    before = host.snapshot()
    # It asks on a terminal only.
    host.doctor("--fix", code=2)
    assert host.snapshot() == before
    told = host.doctor("--fix", "--yes", code=None)
    most = int(host.sysctl("net.ipv4.tcp_rmem").split()[2])
    assert most > 1 << 20 and f"net.ipv4.tcp_rmem='4096 131072 {most}'" in told, told
    kept = (host.base / "etc/sysctl.d/90-tidecast-doctor.conf").read_text()
    assert f"net.ipv4.tcp_rmem = 4096 131072 {most}\n" in kept
    assert (host.base / "lib/tidecast-doctor/record").stat().st_mode & 0o777 == 0o600
    assert "tcp_rmem=" not in host.doctor("--fix", "--yes", code=None), "nothing is left to fix there"
    told = host.doctor("--undo")
    assert "restored net.ipv4.tcp_rmem to 4096 131072 262144" in told
    assert host.snapshot() == before
    assert "nothing to undo" in host.doctor("--undo")
    assert host.snapshot() == before


@pytest.mark.root
def test_the_script_does_the_same(host):
    before = host.snapshot()
    script = host.doctor("--fix", "--dry-run")
    assert script.startswith("#!/bin/sh\n") and "\nset -eu\n" in script
    assert host.snapshot() == before, "a dry run changes nothing"
    (host.base / "script").write_text("\n".join(line for line in script.split("\n") if "ssuming" not in line))
    host.doctor("--fix", "--yes", code=None)
    fixed = host.snapshot()
    host.doctor("--undo")
    host.run("sh", host.base / "script")
    scripted = host.snapshot()
    del fixed["files"][str(host.base / "lib/tidecast-doctor/record")]
    fixed["folders"].remove(str(host.base / "lib/tidecast-doctor"))
    assert scripted["parameters"] == fixed["parameters"] and scripted["links"] == fixed["links"]
    assert {k: v if isinstance(v, str) else v[-1] for k, v in scripted["files"].items()} == {
        k: v if isinstance(v, str) else v[-1] for k, v in fixed["files"].items()}


@pytest.mark.root
def test_killed_in_mid_fix_all_is_undone(host):
    before = host.snapshot()
    record = host.base / "lib/tidecast-doctor/record"
    for marks in range(4):
        fix = host.start([*host.before, *host.argv("--fix", "--yes")])

        def is_there(marks=marks, fix=fix):
            over = fix.process.poll() is not None
            return over or (record.exists() and record.read_bytes().count(b'{"made"') >= marks)

        wait_for("a change", is_there)
        if fix.process.poll() is None:
            fix.process.send_signal(signal.SIGKILL)
        fix.process.wait(60)
        host.doctor("--undo")
        assert host.snapshot() == before, f"after {marks} changes"


@pytest.mark.root
def test_what_somebody_else_has_changed_since_stays(host):
    host.doctor("--fix", "--yes", code=None)
    host.run("sysctl", "-q", "-w", "net.ipv4.tcp_rmem=4096 131072 1000000")
    told = host.doctor("--undo")
    assert "left net.ipv4.tcp_rmem at 4096 131072 1000000" in told
    assert host.sysctl("net.ipv4.tcp_rmem") == "4096 131072 1000000"
    assert host.sysctl("net.ipv4.tcp_wmem") == "4096 16384 262144"


@pytest.mark.root
def test_without_root_it_prints_what_root_should_run(host):
    needs("setpriv")
    before = host.snapshot()
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    told = host.run(*as_user, *host.argv("--fix", "--yes"), code=1)
    assert "sysctl -w net.ipv4.tcp_rmem='" in told and "root" in told
    assert "needs root" in host.run(*as_user, *host.argv("--undo"), code=2)
    assert host.snapshot() == before


@pytest.mark.root
def test_without_root_an_earlier_fix_is_not_overwritten_by_the_script(host):
    needs("setpriv")
    host.doctor("--fix", "--yes", code=None)
    host.run("sysctl", "-q", "-w", "net.ipv4.tcp_rmem=4096 131072 262144")
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    told = host.run(*as_user, *host.argv("--fix", "--dry-run"))
    assert "sysctl -w net.ipv4.tcp_rmem='" in told and "# Left out: the files" in told
    assert "90-tidecast-doctor.conf" not in told, "it would drop tcp_wmem"


@pytest.mark.root
def test_a_record_of_another_user_is_refused(host):
    record = host.base / "lib/tidecast-doctor"
    record.mkdir()
    planted = {"intent": {"target": {"sysctl": "net.x\nkernel.core_pattern"}, "before": "absent", "after": {"text": "|x"}}}
    (record / "record").write_text('{"version":1}\n' + json.dumps(planted) + "\n")
    os.chown(record, 7, 7)
    before = host.snapshot()
    for words in (["--fix", "--dry-run"], ["--fix", "--yes"], ["--undo"]):
        assert "remove it" in host.doctor(*words, code=1)
    # With the directory given to root, what the other user wrote is still no change of this program.
    os.chown(record, 0, 0)
    os.chown(record / "record", 7, 7)
    assert "remove it" in host.doctor("--undo", code=1)
    os.chown(record / "record", 0, 0)
    assert "damaged at line 2" in host.doctor("--undo", code=1)
    assert host.snapshot()["parameters"] == before["parameters"]


@pytest.mark.root
def test_a_setting_is_measured_alone(host):
    # Only the receive buffer is small: its change is worth three times the rate, whatever runs beside this.
    host.run("sysctl", "-q", "-w", "net.ipv4.tcp_wmem=4096 16384 33554432")
    words = ("doctor", "--for", "bcast", "--link", "200mbit", "--rtt", "20ms", "--measure", "--json")
    told = host.run(host.program, *words, code=None)
    last = json.loads(told.strip().split("\n")[-1])
    finding, = (f for f in last["findings"] if f["check"] == "tcp-receive-buffer")
    assert finding["measured"]["after"] > finding["measured"]["before"] > 0, finding
