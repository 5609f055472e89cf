"""A daemon that stays within its limits on the host, and that is started and ended on demand."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import pytest
from support.callers import passable
from support.daemons import Host
from support.tidecast import wait_for

MIB = 1 << 20


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    data = tmp_path / "data"
    data.mkdir()
    (data / "one").write_bytes(os.urandom(6 * MIB))
    return data


def limits(host: Host) -> dict:
    return host.http("GET", "/v1/daemon")[1]["limits"]


def test_rates_hold_and_a_job_lowers_them(site, data):
    origin, node = site.host("head"), site.host("node")
    origin.create("nt", data)
    origin.create("small", data / "one")
    usual = limits(node)
    assert usual["cores"] == os.cpu_count() / 2 and usual["memory"] == 256 * MIB and not usual["busy"]
    node("admin", "limit", "--download", "4MiB", "--upload", "2MiB", "--busy", "0.5")
    assert limits(node)["download"] == 4 * MIB
    began = time.monotonic()
    job = subprocess.Popen(["sleep", "1000"])
    try:
        node.cache("get", "head/nt", "--wait", "2m", "--pid", job.pid)
        assert time.monotonic() - began > 1.2, "6 MiB at 4 MiB/s"
        wait_for("the job to be noticed", lambda: limits(node)["busy"])
        now = limits(node)
        assert (now["download"], now["upload"], now["cores"]) == (2 * MIB, MIB, usual["cores"] / 2)
    finally:
        job.kill()
        job.wait()
    wait_for("the end of the job to be noticed", lambda: not limits(node)["busy"])
    node("admin", "limit", "--download", "0", "--cores", "0")
    assert limits(node)["download"] is None and limits(node)["cores"] is None
    said = node("admin", "status").out
    assert "caches received: 6 MiB from the origin" in said and "cgroup" in said, said
    shown = node.cache("show", "head/nt")["came"]
    assert shown["origin"] == 6 * MIB and shown["peers"] == 0
    node("admin", "limit", "--cores", "-1", code=2)
    node.cache("rm", "head/nt")
    assert node.cache("get", "head/nt", "--wait", "1m")["method"] == "SWARM", "what was removed comes again"


def test_what_another_sends_is_limited_by_its_upload(site, data):
    origin, node = site.host("head"), site.host("node")
    origin.create("nt", data)
    origin("admin", "limit", "--upload", "3MiB")
    began = time.monotonic()
    got = node.cache("get", "head/nt", "--wait", "2m")
    assert time.monotonic() - began > 1.5, "6 MiB at 3 MiB/s"
    assert (pathlib.Path(got["path"]) / "one").stat().st_size == 6 * MIB


def test_a_service_manager_hands_the_socket_over_and_hears_when_it_is_ready(built, tmp_path):
    """A stand-in for systemd: a listening socket as descriptor 3, and a socket for notifications."""
    news = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    news.bind(str(tmp_path / "news"))
    news.settimeout(60)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "sock"))
    listener.listen(16)
    script = 'exec 3<&"$1"; export LISTEN_FDS=1 LISTEN_PID=$$; shift; exec "$@"'
    argv = [built / "tidecast", "daemon", "--dir", tmp_path / "store", "--name", "x", "--machine", "x", "--socket", tmp_path / "sock"]
    daemon = subprocess.Popen(["bash", "-c", script, "-", str(listener.fileno()), *map(str, argv)], pass_fds=[listener.fileno()],
                              stdout=subprocess.DEVNULL, env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "news")})
    try:
        assert news.recv(100) == b"READY=1"
        env = {**os.environ, "TIDECAST_SOCKET": str(tmp_path / "sock")}
        done = subprocess.run([built / "tidecast", "cache", "ls", "--json"], env=env, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        daemon.send_signal(signal.SIGTERM)
        assert news.recv(100) == b"STOPPING=1"
        daemon.wait(60)
        assert (tmp_path / "sock").exists(), "the manager's socket stays"
    finally:
        daemon.kill()


def test_units_are_right():
    if not shutil.which("systemd-analyze"):
        pytest.skip("SKIPPED: systemd-analyze is not here")
    units = pathlib.Path(__file__).parents[2] / "dist" / "systemd"
    done = subprocess.run(["systemd-analyze", "verify", *map(str, units.glob("tidecast.*"))], capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if "tidecast." in line and "not executable" not in line]
    assert not ours, ours


def test_a_user_without_a_daemon_gets_one_that_ends_by_itself(built, tmp_path, data):
    home = tmp_path / "home"
    home.mkdir()
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    become = []
    if os.geteuid() == 0:
        passable(data)
        os.chown(home, 65534, 65534)
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
        if pathlib.Path("/run/tidecast/daemon.sock").exists():
            pytest.skip("SKIPPED: this host has a daemon")

    def tidecast(*words) -> subprocess.CompletedProcess:
        argv = [*become, str(built / "tidecast"), *map(str, words), "--json"]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120)

    (home / "off.toml").write_text("[daemon]\non_demand = false\n")
    off = tidecast("--config", home / "off.toml", "cache", "ls")
    assert off.returncode == 1 and "no daemon answers" in off.stdout
    first = [subprocess.Popen([*become, built / "tidecast", "cache", "ls", "--json"], env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [one.communicate(timeout=120)[0] for one in first]
    assert [one.returncode for one in first] == [0, 0, 0], f"started by several at the same time, one serves them: {said}"
    made = tidecast("cache", "create", "nt", data)
    assert made.returncode == 0, made.stdout
    status = json.loads(tidecast("admin", "status").stdout.splitlines()[-1])
    assert status["caches"] == 1
    state = home / ".local" / "state" / "tidecast" / "daemon"
    pids = [int(p.name) for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and serves(p, home)]
    assert len(pids) == 1, pids
    os.kill(pids[0], signal.SIGTERM)
    wait_for("its end", lambda: not (state / "daemon.sock").exists())


def serves(process: pathlib.Path, home: pathlib.Path) -> bool:
    try:
        return b"daemon\0--idle" in (process / "cmdline").read_bytes() and f"HOME={home}".encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def test_an_idle_daemon_ends_but_not_while_a_job_uses_a_cache(built, tmp_path, start, data):
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    daemon = host.serve("--idle", "1s")
    job = subprocess.Popen(["sleep", "1000"])
    try:
        host.create("nt", data)
        host.cache("get", "nt", "--pid", job.pid)
        time.sleep(7)
        assert host.http("GET", "/v1/daemon")[0] == 200, "a job uses it"
    finally:
        job.kill()
        job.wait()
    daemon.exits(0)
