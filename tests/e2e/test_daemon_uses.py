"""The process that a cache is kept for, the reports of it, and callers that wait for space or for a daemon."""
import os
import pathlib
import pty
import shutil
import subprocess
import time

import pytest
from support.daemons import Host
from support.tidecast import wait_for

MIB = 1 << 20


@pytest.fixture
def host(built, tmp_path, start):
    """A host alone, with room for four caches of 5 MiB."""
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    host.serve("--capacity", "20MiB")
    return host


@pytest.fixture
def gate(tmp_path):
    """A pipe on which a job waits: it continues when something is written."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def make(host, tmp_path, name: str, *words, code: int = 0) -> dict:
    file = tmp_path / name
    file.write_bytes(os.urandom(5 * MIB))
    return host.create(name, file, *words, code=code)


def press(host, tmp_path, of: str) -> None:
    """More comes than the store has room for."""
    for number in range(5):
        make(host, tmp_path, f"{of}{number}")


def uses(host, name: str) -> list[dict]:
    return host.cache("show", name)["uses"]


def job(host, *words, **env) -> subprocess.Popen:
    return subprocess.Popen(words, env={**os.environ, **host.env, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_the_input_of_a_job_of_htcondor_stays_while_its_starter_runs(host, tmp_path, gate):
    make(host, tmp_path, "input")
    starter, plugin, scratch = tmp_path / "condor_starter", tmp_path / "tidecast_plugin", tmp_path / "scratch"
    shutil.copy(shutil.which("bash"), starter)
    plugin.symlink_to(host.program)
    scratch.mkdir()
    (tmp_path / "job.ad").write_text('MyType = "Job"\nClusterId = 12\nProcId = 3\n')
    (tmp_path / "in").write_text(f'[ Url = "tidecast://head/input"; LocalFileName = "{scratch / "input"}" ]')
    # The starter forks for the transfer; a site has put a script around the plugin.
    (tmp_path / "wrap.sh").write_text(f'{plugin} "$@"\nexit $?\n')
    (tmp_path / "starter.sh").write_text(
        f"( sh {tmp_path}/wrap.sh -infile {tmp_path}/in -outfile {tmp_path}/out; exit $? ) || exit 9\necho there\n"
        f"read _ <{gate}\ncksum <{scratch}/input\n")
    running = job(host, starter, tmp_path / "starter.sh", _CONDOR_JOB_AD=str(tmp_path / "job.ad"))
    assert running.stdout.readline() == "there\n"
    used, = uses(host, "input")
    assert (used["pid"], used["command"], used["job"], used["until"]) == (running.pid, "condor_starter", "HTCondor job 12.3", None), used
    assert f"process {running.pid} (condor_starter) of " in host("cache", "show", "input").out
    assert "head/input@1 is used by process" in (said := host("admin", "status").out) and "HTCondor job 12.3" in said
    assert host.http("GET", "/v1/daemon")[1]["limits"]["busy"], "a job runs"
    press(host, tmp_path, "a")
    host.daemon.kill()
    host.serve()
    press(host, tmp_path, "b")
    refused = host.cache("rm", "input", code=1)["message"]
    assert f"in use by process {running.pid} (condor_starter)" in refused, refused
    gate.write_text("go\n")
    expected = subprocess.run(["cksum"], stdin=(tmp_path / "input").open(), capture_output=True, text=True).stdout
    assert running.communicate(timeout=60)[0] == expected
    assert uses(host, "input") == []
    press(host, tmp_path, "c")
    assert "head/input@1" not in host.names(), "afterwards it goes like any other"


def test_a_script_is_what_its_subshells_are(host, tmp_path, gate):
    make(host, tmp_path, "input")
    script = f'P=$(timeout 60 {host.program} cache get input || exit 1)\nfor n in 1 2 3; do {host.program} cache get input >/dev/null; done\necho there\nread _ <{gate}\ncksum <$P\n'
    running = job(host, "bash", "-c", script, SLURM_JOB_ID="77")
    assert running.stdout.readline() == "there\n"
    used, = uses(host, "input")
    assert (used["pid"], used["command"], used["job"]) == (running.pid, "bash", "Slurm job 77"), used
    press(host, tmp_path, "a")
    gate.write_text("go\n")
    assert str(5 * MIB) in running.communicate(timeout=60)[0]
    assert host.cache("show", "input")["users"] == 0
    # A subshell that outlasts its script is still in the middle of it.
    script = f'(P=$({host.program} cache get input); echo there; read _ <{gate}; cksum <$P) & exit'
    running = job(host, "bash", "-c", script)
    assert running.stdout.readline() == "there\n"
    running.wait(60)
    press(host, tmp_path, "b")
    gate.write_text("go\n")
    assert str(5 * MIB) in running.stdout.read()
    wait_for("its end", lambda: host.cache("show", "input")["users"] == 0)


def test_a_shell_at_a_terminal_is_no_job(host, tmp_path):
    make(host, tmp_path, "input")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("bash", ["bash", "--norc", "-i"], {**os.environ, **host.env})
    try:
        for command in ("{} cache get input", "P=$({} cache get input)"):
            before = [used["since"] for used in uses(host, "input")]
            time.sleep(1.1 if before else 0)
            os.write(terminal, command.format(host.program).encode() + b"\n")
            wait_for("what the shell uses", lambda: [used["since"] for used in uses(host, "input")] not in (before, []))
            used, = uses(host, "input")
            assert (used["pid"], used["terminal"]) == (pid, True), used
        assert "a shell at a terminal" in host("cache", "show", "input").out
        assert not host.http("GET", "/v1/daemon")[1]["limits"]["busy"]
        # Whose shell it is may change his mind.
        host.cache("rm", "input")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def test_a_full_store_keeps_its_capacity_when_it_is_started_again(host, tmp_path):
    for start in "abc":
        press(host, tmp_path, start)
        status = host.http("GET", "/v1/daemon")[1]
        assert (status["capacity"], status["configured"]) == (20 * MIB, 20 * MIB) and status["bytes"] <= 20 * MIB, status
        host.daemon.kill()
        host.serve()


def test_create_waits_for_room_if_it_is_told_to(host, tmp_path):
    running = [subprocess.Popen(["sleep", "1000"]) for _ in range(3)]
    try:
        for number, one in enumerate(running):
            make(host, tmp_path, f"used{number}")
            host.cache("get", f"used{number}", "--pid", one.pid)
        refused = make(host, tmp_path, "new", code=1)
        assert refused["reason"] == "wait" and "running jobs use" in refused["message"] and "--wait" in refused["message"], refused
        cut = make(host, tmp_path, "new", "--wait", "1s", code=3)
        assert "was not created within" in cut["message"], cut
        waiting = host.run("cache", "create", "new", tmp_path / "new", "--wait", "2m", "--json")
        time.sleep(1)
        running[0].kill()
        running[0].wait()
        waiting.exits(0)
        assert "head/new@1" in host.names()
    finally:
        for one in running:
            one.kill()
            one.wait()


def test_get_waits_for_a_daemon_that_is_started_again(site, tmp_path):
    head, node = site.host("head"), site.host("node1")
    (tmp_path / "data").write_bytes(os.urandom(20 * MIB))
    head.create("nt", tmp_path / "data")
    node("admin", "limit", "--download", "4MB")
    waiting = node.run("cache", "get", "head/nt", "--wait", "2m", "--json")
    wait_for("the transfer", lambda: node.http("GET", "/v1/daemon")[1]["transfers"])
    node.daemon.signal(15)
    node.daemon.wait()
    node.serve()
    waiting.exits(0)
    path = pathlib.Path(waiting.events()[-1]["path"])
    assert path.read_bytes() == (tmp_path / "data").read_bytes()
