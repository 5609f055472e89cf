"""The daemon as the service of a host: an ordinary user who serves all users, its units, and the socket that it makes."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess

import pytest
from support.tidecast import wait_for

DIST = pathlib.Path(__file__).parents[2] / "dist"
SERVICE, ALICE, BOB = 64101, 64102, 64103
MOST = 2.5


def as_user(uid: int, *words) -> list[str]:
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *map(str, words)]


@pytest.fixture
def system(built, tmp_path):
    """system() -> a daemon that serves all users, run by an ordinary user, and ask(uid, *words) to ask it as another."""
    if os.geteuid() != 0:
        pytest.skip("SKIPPED: several users need root")
    for dir in [tmp_path, *tmp_path.parents]:
        if dir.stat().st_mode & 0o001 == 0:
            dir.chmod(dir.stat().st_mode | 0o711)
    home = tmp_path / "service"
    home.mkdir(mode=0o755)
    os.chown(home, SERVICE, SERVICE)
    program, sock, log = tmp_path / "tidecast", home / "daemon.sock", (tmp_path / "log").open("wb")
    shutil.copy(built / "tidecast", program)
    argv = as_user(SERVICE, program, "--json", "daemon", "--system", "--dir", home / "store", "--socket", sock, "--name", "head", "--machine", tmp_path)
    env = {"HOME": str(home), "PATH": os.environ["PATH"]}
    daemon = subprocess.Popen(argv, env=env, stdout=log, stderr=log)

    def ask(uid: int, *words, cwd=tmp_path) -> dict:
        env = {"HOME": "/nonexistent", "PATH": os.environ["PATH"], "TIDECAST_SOCKET": str(sock)}
        done = subprocess.run(as_user(uid, program, "--json", *words), env=env, cwd=cwd, capture_output=True, text=True, timeout=120)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return {"code": done.returncode, "err": done.stderr, **(lines[-1] if lines else {})}

    def answers() -> bool:
        assert daemon.poll() is None, (tmp_path / "log").read_text()
        return sock.exists() and ask(ALICE, "cache", "ls")["code"] == 0

    wait_for("the daemon answers", answers)
    yield daemon, sock, ask
    daemon.send_signal(signal.SIGTERM)
    daemon.wait(60)


def test_an_ordinary_user_serves_all_users_of_the_host(system, tmp_path):
    daemon, sock, ask = system
    assert stat.S_IMODE(sock.stat().st_mode) == 0o666 and sock.stat().st_uid == SERVICE
    uids = re.search(r"^Uid:(.*)$", pathlib.Path(f"/proc/{daemon.pid}/status").read_text(), re.M)[1].split()
    assert set(uids) == {str(SERVICE)}
    for uid, mode in ((ALICE, "755"), (BOB, "700")):
        tree = tmp_path / f"tree{uid}"
        tree.mkdir(mode=0o755)
        (tree / "file").write_text(f"of {uid}\n")
        (tree / "file").chmod(0o644)
        os.chown(tree, uid, uid)
        os.chown(tree / "file", uid, uid)
        made = ask(uid, "cache", "create", f"c{uid}", tree, "--mode", mode)
        assert made["code"] == 0, made
    # Each user sees the caches that the user may read; the kernel identifies the user.
    assert len(ask(BOB, "cache", "ls")["caches"]) == 2
    assert [c["owner"] for c in ask(ALICE, "cache", "ls")["caches"]] == [f"uid{ALICE}"]
    assert ask(ALICE, "cache", "rm", f"c{BOB}")["code"] != 0
    assert ask(ALICE, "admin", "pause")["code"] != 0 and ask(BOB, "cache", "rm", f"c{ALICE}")["code"] != 0
    status = ask(BOB, "admin", "status")
    assert status["serves"] == "everyone" and status["user"] == SERVICE
    assert ask(SERVICE, "admin", "pause")["code"] == 0 and ask(0, "admin", "resume")["code"] == 0


def test_the_service_is_hardened():
    if not shutil.which("systemd-analyze"):
        pytest.skip("SKIPPED: systemd-analyze is not here: the service's hardening was not measured")
    unit = DIST / "systemd" / "tidecast.service"
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--no-pager", unit], capture_output=True, text=True)
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    if not level:
        pytest.skip(f"SKIPPED: this systemd-analyze does not measure files: {done.stderr}")
    assert float(level[1]) <= MOST, done.stdout


def test_the_service_needs_no_root_and_no_configuration(built, tmp_path):
    unit = (DIST / "systemd" / "tidecast.service").read_text()
    assert "User=tidecast\n" in unit and "CapabilityBoundingSet=\n" in unit and "AmbientCapabilities=\n" in unit
    assert "u tidecast " in (DIST / "sysusers" / "tidecast.conf").read_text()
    assert re.search(r"^d /var/lib/tidecast +0711 tidecast tidecast", (DIST / "tmpfiles" / "tidecast.conf").read_text(), re.M)
    env = dict(line.split("=", 1) for line in re.findall(r"^Environment=(.*)$", unit, re.M))
    env = {key: value.replace("/etc", str(tmp_path / "etc")) for key, value in env.items()}
    argv = [built / "tidecast", "daemon", "--system", "--dir", tmp_path / "store", "--socket", tmp_path / "sock", "--machine", tmp_path]
    # Without a configuration it starts; the values of a configuration apply.
    for name in (None, "configured"):
        if name:
            (tmp_path / "etc" / "tidecast").mkdir(parents=True)
            (tmp_path / "etc" / "tidecast" / "config.toml").write_text(f'[daemon]\nname = "{name}"\n')
        daemon = subprocess.Popen(argv, env={"PATH": os.environ["PATH"], **env}, stdout=subprocess.PIPE, text=True)
        said = daemon.stdout.readline()
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)
        assert "users ask at" in said and (not name or said.startswith(f"{name}: ")), said


@pytest.mark.parametrize("kind", ["file", "directory", "link", "dangling link", "pipe", "live socket", "shared directory"])
def test_what_is_no_dead_socket_is_left_as_it_is(built, tmp_path, kind):
    path, listener = tmp_path / "sock", socket.socket(socket.AF_UNIX)
    (tmp_path / "precious").write_text("precious")
    match kind:
        case "file":
            path.write_text("precious")
        case "directory":
            path.mkdir()
        case "link":
            path.symlink_to("precious")
        case "dangling link":
            path.symlink_to("absent")
        case "pipe":
            os.mkfifo(path)
        case "live socket":
            listener.bind(str(path))
            listener.listen()
        case "shared directory":
            (tmp_path / "shared").mkdir()
            (tmp_path / "shared").chmod(0o777)
            path = tmp_path / "shared" / "sock"
    before = path.lstat() if kind != "shared directory" else None
    argv = [built / "tidecast", "daemon", "--dir", tmp_path / "store", "--socket", path, "--name", "x", "--machine", tmp_path]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and str(path) in done.stderr, done
    if before:
        after = path.lstat()
        assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    else:
        assert not path.exists()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_store_that_is_a_file_is_left_as_it_is(built, tmp_path):
    (tmp_path / "store").write_text("precious")
    argv = [built / "tidecast", "daemon", "--dir", tmp_path / "store", "--socket", tmp_path / "sock", "--name", "x", "--machine", tmp_path]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and str(tmp_path / "store") in done.stderr
    assert (tmp_path / "store").read_text() == "precious"


def test_the_kernel_holds_the_daemon_to_its_own_files(built, tmp_path):
    """A catalogue's file is replaced by a link to a place that the settings do not name: its target is not read."""
    outside, named = tmp_path / "outside", tmp_path / "named"
    outside.mkdir()
    named.mkdir()
    (outside / "peers").write_text("# nobody\n")
    (named / "peers").write_text("# nobody\n")
    (named / "config.toml").write_text("[daemon]\nconfine = true\n")
    log = tmp_path / "log"
    argv = [built / "tidecast", "-v", "--json", "--config", named / "config.toml", "daemon", "--dir", tmp_path / "store", "--socket", tmp_path / "run" / "sock", "--name", "x",
            "--machine", tmp_path, "--catalogue", f"file:{named}/peers"]
    with log.open("wb") as out:
        daemon = subprocess.Popen(argv, stdout=out, stderr=out)
    try:
        wait_for("it has started", lambda: '"started"' in log.read_text())
        started = next(json.loads(line) for line in log.read_text().splitlines() if '"started"' in line)
        if not started["confined"].startswith("confined: landlock ABI "):
            pytest.skip(f"SKIPPED: {started['confined']}: that the daemon is held to its files was not seen")
        (named / "peers").unlink()
        (named / "peers").symlink_to(outside / "peers")
        wait_for("the file is not the daemon's to read", lambda: "Permission denied" in log.read_text())
        status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
        assert re.search(r"^NoNewPrivs:\t1$", status, re.M)
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait(60)


def test_an_elder_of_the_same_user_leaves_a_daemon_unconfined(built, tmp_path):
    """It takes links from the elder's store, which no rule of its own could name."""
    daemons = []
    config = tmp_path / "config.toml"
    config.write_text("[daemon]\nconfine = true\n")
    try:
        for name, said in (("elder", "confined: landlock"), ("younger", "not confined: uses links")):
            argv = [built / "tidecast", "--json", "--config", config, "daemon", "--dir", tmp_path / name, "--socket", tmp_path / f"{name}.sock", "--name", name,
                    "--machine", tmp_path]
            daemons.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
            confined = json.loads(daemons[-1].stdout.readline())["confined"]
            assert confined.startswith(said) or "kernel" in confined, (name, confined)
    finally:
        for daemon in daemons:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)
