"""`tidecast bcast`: which names are one host, which are this one, and the report of each; compared with getaddrinfo."""
import os
import pathlib
import random
import socket
import sys

import pytest
from support import resolver, trees
from support.seeds import seeds

# Always the same in the whole test, so that it shows changes of this project; `make hosts-soak` looks for unknown faults.
SEEDS = seeds(26, 27, 28, 29)
REASON = resolver.works()
SHORT = socket.gethostname().split(".")[0]
#: Addresses of documentation, which no machine has, in several forms; this machine's.
ELSEWHERE = ["192.0.2.1", "192.0.2.2", "::ffff:192.0.2.1", "2001:db8::1", "2001:db8:0:0:0:0:0:1", "2001:db8::2"]
HERE = ["127.0.0.1", "127.0.1.1", "::1"]


@pytest.fixture
def ssh(tide, tmp_path):
    """A stand-in for ssh that runs the command here; answers the hosts that it was asked to reach."""
    folder, log = tmp_path / "bin", tmp_path / "ssh.log"
    folder.mkdir()
    log.touch()
    options = 'while :; do case $1 in -o) shift 2 ;; -*) shift ;; *) break ;; esac; done'
    (folder / "ssh").write_text(f'#!/bin/sh\n{options}\necho "$1" >> {log}; shift\nexec sh -c "$*"\n')
    (folder / "ssh").chmod(0o755)
    tide.env |= {"PATH": f"{folder}:{os.environ['PATH']}"}
    return lambda: log.read_text().split()


def roster(rng: random.Random) -> tuple[list[str], list[str]]:
    """Lines of /etc/hosts, and entries of a host list."""
    bases = [SHORT, "node1", "node2", "localhost"]
    names = {rng.choice(bases) + rng.choice(["", ".a.example", ".b.example", ".a.example"]) for _ in range(9)}
    lines = [f"{rng.choice(ELSEWHERE + HERE)} {name}" for name in sorted(names) for _ in range(rng.choice([0, 1, 1, 1, 2]))]
    entries = []
    for name in sorted(names):
        entries.append(name)
        if rng.random() < 0.3:
            entries.append(rng.choice([name.upper(), name + ".", name.title()]))
    entries += [f"x{n}={rng.choice([*ELSEWHERE, *HERE, '0:0:0:0:0:0:0:1', *sorted(names)])}" for n in range(3)]
    rng.shuffle(entries)
    # One name twice in one list is one entry, by its text.
    return lines, list(dict.fromkeys(entries))


@pytest.mark.skipif(REASON is not None, reason=f"SKIPPED: {REASON}")
@pytest.mark.parametrize("seed", SEEDS)
def test_hosts_are_what_their_addresses_say(tide, ssh, start, tmp_path, seed):
    lines, entries = roster(random.Random(seed))
    names = resolver.Resolver(tmp_path / "names", lines)
    reach = {entry.split("=")[0]: entry.split("=")[-1] for entry in entries}
    known = names.judge(sorted(set(reach.values())))
    groups: dict = {}
    for name, at in reach.items():
        found = known[at]
        key = at.lower().removesuffix(".") if found is None else ("here" if found[1] else tuple(found[0]))
        groups.setdefault(key, []).append(name)
    data = trees.blob(tmp_path / "data", 1000)
    command = tide.argv("bcast", data, "--to", tmp_path / "copy", "--hosts", ",".join(entries), "--json")
    done = start(names.argv(*command), env=tide.env).exits(0).last("done")
    told = [[host["name"], *host.get("aliases", [])] for host in done["hosts"]]
    assert told == list(groups.values()), (lines, entries)
    elsewhere = [reach[names[0]] for key, names in groups.items() if key != "here"]
    assert sorted(ssh()) == sorted(elsewhere), (lines, entries)


def test_a_short_name_in_another_domain_is_another_host(tide, ssh, tmp_path):
    """The host list has `.invalid`, which never resolves: it is reached by ssh, or not at all."""
    data = trees.blob(tmp_path / "data", 1000)
    (pathlib.Path(tide.env["PATH"].split(":")[0]) / "ssh").write_text("#!/bin/sh\nexit 255\n")
    error = tide.run("bcast", data, "--to", tmp_path / "copy", "--hosts", f"{SHORT}.invalid", "--json").exits(1).last("error")
    assert error["hosts_failed"] == 1 and not (tmp_path / "copy").exists()


def test_each_name_with_a_path_of_its_own_is_served(tide, tmp_path):
    data = trees.blob(tmp_path / "data", 1000)
    done = tide.run("bcast", data, "--to", tmp_path / "{host}", "--hosts", "a=127.0.0.1,b=::1,c=127.0.0.1", "--json").ok().last("done")
    assert [host["name"] for host in done["hosts"]] == ["a", "b", "c"]
    assert all((tmp_path / name).read_bytes() == data.read_bytes() for name in "abc")


def scheduled(tide, tmp_path, program, lines):
    """A stand-in for a scheduler's launcher: it starts a task for each line of variables, and never passes `--host`."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / program).write_text(f"""#!{sys.executable}
import os, subprocess, sys
words = sys.argv[1:]
at = next(i for i, w in enumerate(words) if w == "worker") - 1
tasks = [subprocess.Popen(words[at:], env=os.environ | env, stdin=subprocess.DEVNULL) for env in {lines!r}]
sys.exit(max(t.wait() for t in tasks))
""")
    (folder / program).chmod(0o755)
    tide.env |= {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_a_scheduler_says_which_host_a_task_is_on(tide, tmp_path):
    """Tasks of one machine have one host name; Slurm's names of their nodes distinguish them."""
    data = trees.blob(tmp_path / "data", 1000)
    scheduled(tide, tmp_path, "srun", [{"SLURMD_NODENAME": "x2"}, {"SLURMD_NODENAME": "x1"}])
    tide.env |= {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "x[1-2]"}
    done = tide.run("bcast", data, "--to", tmp_path / "{host}/copy", "--json").ok().last("done")
    assert [(host["name"], host["ok"]) for host in done["hosts"]] == [("x1", True), ("x2", True)]


@pytest.mark.skipif(REASON is not None, reason=f"SKIPPED: {REASON}")
def test_a_task_is_placed_by_its_address_and_not_by_a_short_name(tide, start, tmp_path):
    names = resolver.Resolver(tmp_path / "names", [f"127.0.1.1 {SHORT}.here.example", "192.0.2.7 other"])
    data = trees.blob(tmp_path / "data", 1000)
    scheduled(tide, tmp_path, "mpirun", [{}])

    def bcast(hosts):
        command = tide.argv("bcast", data, "--to", tmp_path / "{host}/copy", "--hosts", hosts, "--launch", "mpirun", "--json")
        return start(names.argv(*command), env=tide.env)

    done = bcast(f"{SHORT}.here.example").exits(0).last("done")
    assert done["hosts"][0]["action"] == "delivered"
    error = bcast(f"{SHORT}.invalid").exits(1).last("error")
    assert "NAME=ADDRESS" in error["hosts"][0]["reason"], error
    assert not (tmp_path / f"{SHORT}.invalid").exists()


def test_what_was_done_to_each_copy_is_said(tide, tmp_path):
    data = trees.blob(tmp_path / "data", 1000)
    for name, text in (("same", data.read_bytes()), ("none", None)):
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / "copy").write_bytes(text)
    words = ("bcast", data, "--to", tmp_path / "{host}/copy", "--hosts", "same,none,bad", "--launch",
             f"sh -c '[ {{host}} = bad ] && exit 9; exec {{command}}'")
    error = tide.run(*words, "--json").exits(1).last("error")
    assert {host["name"]: host["action"] for host in error["hosts"]} == {"same": "unchanged", "none": "delivered", "bad": "failed"}
    out = tide.run(*words).exits(1).out
    assert "unchanged: 2 hosts (same none)" in out and "FAILED bad" in out, out


def test_a_source_that_changes_before_it_is_served_ends_it(tide, launcher, tmp_path):
    data, go = trees.blob(tmp_path / "data", 3_000_000), tmp_path / "go"
    proc = tide.run("bcast", data, "--to", tmp_path / "{host}/copy", "--hosts", "a,b", "--json",
                    "--launch", launcher(f"touch {tmp_path}/$host.up; while ! [ -e {go} ]; do sleep .1; done"))
    proc.until("the workers start", lambda: all((tmp_path / f"{host}.up").exists() for host in "ab"))
    with open(data, "r+b") as f:
        f.seek(1000)
        f.write(b"changed")
    go.touch()
    error = proc.exits(1, 50).last("error")
    assert "changed while it was being served" in error["message"] and str(data) in error["message"], error
    assert not any((tmp_path / host / "copy").exists() for host in "ab")


def test_extras_never_cost_the_report(tide, tmp_path):
    """The topology cannot be written: the broadcast completes nevertheless, with a warning at the start."""
    data = trees.blob(tmp_path / "data", 1000)
    words = ("bcast", data, "--to", tmp_path / "{host}/copy", "--hosts", "a,b", "--launch", "env {command}")
    proc = tide.run(*words, "--plain", "--torrent", tmp_path / "no/such/dir.torrent", "--json").ok()
    assert proc.last("done")["hosts_done"] == 2
    assert any("no/such" in event["message"] for event in proc.events() if event["event"] == "warning")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_closed_pipe_does_not_end_a_broadcast(tide, start, tmp_path, stream):
    data = trees.blob(tmp_path / "data", 1000)
    words = [*tide.argv("bcast", data, "--to", tmp_path / "{host}/copy", "--hosts", "a,b", "--launch", "sh -c 'sleep 1; exec {command}'"), "--json"]
    script = '"$@" | true' if stream == "stdout" else '"$@" 2>&1 >out | true'
    start(["bash", "-o", "pipefail", "-c", f"cd {tmp_path}; {script}", "sh", *words], env=tide.env).exits(0)
    assert all((tmp_path / host / "copy").exists() for host in "ab")


def test_a_launch_that_waits_says_for_whom(tide, launcher, tmp_path):
    data, go = trees.blob(tmp_path / "data", 1000), tmp_path / "go"
    launch = launcher(f"[ $host = late ] && {{ echo the queue is full >&2; while ! [ -e {go} ]; do sleep .1; done; }}")
    proc = tide.run("bcast", data, "--to", tmp_path / "{host}/copy", "--hosts", "a,late", "--json", "--launch", launch)
    proc.until("it is told", lambda: any(event["event"] == "waiting" for event in proc.events()))
    told = next(event for event in proc.events() if event["event"] == "waiting")
    assert [host["name"] for host in told["hosts"]] == ["late"] and told["hosts"][0]["seconds"] >= 4
    assert told["launchers"] == [str(tmp_path / "launch")] and told["said"] == "the queue is full"
    go.touch()
    proc.wait()
