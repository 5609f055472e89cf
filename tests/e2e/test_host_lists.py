"""Host lists as people, MPI libraries and schedulers write them; clustershell and Slurm's own `scontrol` are the judges."""
import os
import random
import re
import shutil
import subprocess

import pytest
from support import trees
from support.seeds import seeds

SEEDS = seeds(31, 32, 33, 34)
SCONTROL = shutil.which("scontrol")


@pytest.fixture
def listed(tide, start, tmp_path):
    """The hosts that the program reads out of a list, by starting nothing on them; None where it rejects the list."""
    data = trees.blob(tmp_path / "data", 10)

    def read(*words, env=None):
        command = ["bcast", data, "--to", tmp_path / "{host}/data", "--launch", "false {command}", *words, "--json"]
        proc = start(tide.argv(*command), env=tide.env | (env or {}))
        code = proc.wait(60)
        assert code in (1, 2), proc.err
        return [host["name"] for host in proc.last("error")["hosts"]] if code == 1 else None

    return read


@pytest.fixture
def stand_in(tide, tmp_path):
    """A program of this name that logs its arguments, one a line, and runs `then`. Several may run at once: each logs all in one write."""
    folder = tmp_path / "bin"
    folder.mkdir()
    tide.env |= {"PATH": f"{folder}:{os.environ['PATH']}"}

    def make(name, then="exit 1"):
        log = tmp_path / f"{name}.log"
        (folder / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {log}\n{then}\n')
        (folder / name).chmod(0o755)
        return lambda: log.read_text().splitlines() if log.exists() else []

    return make


def numbers(rng: random.Random, steps: bool) -> str:
    def one():
        low, more = rng.randrange(120), rng.randrange(1, 12)
        width = rng.choice([0, 0, 0, 3])
        # Where the width is that of the first number, both judges agree.
        low, high = (f"{n:0{width}d}" for n in (low, low + more))
        step = f"/{rng.randrange(1, 5)}" if steps and rng.random() < 0.4 else ""
        return rng.choice([low, f"{low}-{high}{step}", f"{low}-{high}{step}"])
    return "[" + ",".join(one() for _ in range(rng.choice([1, 1, 2, 3]))) + "]"


def item(rng: random.Random, steps: bool, suffix: bool) -> str:
    """Neither judge takes brackets side by side, and Slurm nothing after the last."""
    parts = [rng.choice(["n", "node-", "r", "gpu"]), *(rng.choice(["x", "c"]) for _ in range(rng.choice([0, 1, 1, 2])))]
    text = parts[0] + "".join(numbers(rng, steps) + part for part in parts[1:])
    return text if suffix and rng.random() < 0.5 else text.removesuffix("x").removesuffix("c")


@pytest.mark.parametrize("seed", SEEDS)
def test_clustershell_reads_the_same(listed, seed):
    nodeset = pytest.importorskip("ClusterShell.NodeSet", reason="clustershell is not installed (scripts/setup)")
    rng = random.Random(seed)
    for _ in range(8):
        text = item(rng, True, True)
        for _ in range(rng.randrange(4)):
            text += rng.choice([",", ",", "!", "&", "^", " ! "]) + item(rng, True, True)
        judged = list(nodeset.NodeSet(text))
        if len(judged) <= 200:
            read = listed("--hosts", text)
            assert (sorted(read) if read else read) == (sorted(judged) or None), text


@pytest.mark.skipif(SCONTROL is None, reason="SKIPPED: no scontrol (apt-get install slurm-client)")
@pytest.mark.parametrize("seed", SEEDS)
def test_slurm_reads_the_same(listed, tmp_path, seed):
    rng = random.Random(seed)
    (tmp_path / "slurm.conf").write_text("ClusterName=x\nSlurmctldHost=localhost\nNodeName=localhost\nPartitionName=p Nodes=localhost\n")

    def judge(text):
        env = os.environ | {"SLURM_CONF": str(tmp_path / "slurm.conf")}
        done = subprocess.run([SCONTROL, "show", "hostnames", text], env=env, capture_output=True, text=True, timeout=60)
        return list(dict.fromkeys(done.stdout.split())) if done.returncode == 0 else None

    for _ in range(8):
        text = ",".join(item(rng, False, False) for _ in range(rng.randrange(1, 4)))
        judged = judge(text)
        assert judged is not None, text
        if len(judged) <= 200:
            assert listed(env={"SLURM_JOB_NODELIST": text}) == judged, text
    for wrong in ("n[3-1]", "n[1-", "n[a-b]", "n[]"):
        assert listed("--hosts", wrong) is None


def test_the_files_of_mpi_libraries_and_schedulers(listed, tmp_path):
    file = tmp_path / "hosts"
    for text, hosts in (
        ("a slots=4\nb slots=8 max_slots=16 # rack 2\n", "a b"),
        ("a:96\nb:96 binding=user:0,1\nme@c:2222\n", "a b c"),
        ("a 4 all.q@a UNDEFINED\nb 4 all.q@b UNDEFINED\n", "a b"),
        ("n[0-6/2]\n!n4\n", "n0 n2 n6"),
    ):
        file.write_text(text)
        assert listed("--hosts", f"@{file}") == hosts.split(), text
    assert listed("--hosts", str(file)) is None, "a file without its @ is no host"
    file.write_text("a\na\nb\n")
    for name in ("PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "OAR_NODEFILE"):
        assert listed(env={name: str(file)}) == ["a", "b"], name
    assert listed("--exclude", "a", env={"PBS_NODEFILE": str(file)}) == ["b"]
    assert listed("-x", f"@{file}", "--hosts", "[a,b]") is None, "no range"
    assert listed("-x", f"@{file}", "--hosts", "a,b") is None, "nobody is left"
    file.write_text("# none is drained today\n")
    for empty in ("", f"@{file}"):
        assert listed("-x", empty, "--hosts", "a,b") == ["a", "b"], "a list of none takes none away"


def test_a_job_of_flux_is_asked_for_its_hosts(listed, stand_in):
    asked = stand_in("flux", "[ $1 = hostlist ] && echo 'f[1-2]'")
    assert listed(env={"FLUX_JOB_ID": "f7"}) == ["f1", "f2"]
    assert asked() == ["hostlist", "local"]


def test_ssh_gets_the_user_and_the_port(tide, stand_in, tmp_path):
    words = stand_in("ssh")
    data = trees.blob(tmp_path / "data", 10)
    tide.run("bcast", data, "--to", tmp_path / "copy", "--launch", "ssh", "--hosts", "me@h.invalid:2222").exits(1)
    assert words()[:2] == ["-p", "2222"] and "me@h.invalid" in words()
    (tmp_path / "ssh.log").unlink()
    tide.run("bcast", data, "--to", tmp_path / "copy", "--launch", "ssh", "--hosts", "[fd00::1]:2200").exits(1)
    assert words()[:2] == ["-p", "2200"] and "fd00::1" in words()


def test_thousands_of_hosts_are_given_to_srun_in_one_word(tide, start, stand_in, tmp_path):
    words = stand_in("srun", 'for word in "$@"; do case $word in --nodelist=/*) cp "${word#*=}" "$0.list" ;; esac; done; exit 1')
    data = trees.blob(tmp_path / "data", 10)
    for nodes, count in (("frontier[00001-09408]", 9408), ("a-long-name-of-a-node[0001-9000].cluster.example", 9000)):
        env = {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": nodes}
        start(tide.argv("bcast", data, "--to", tmp_path / "copy", "--json"), env=tide.env | env).exits(1)
        assert f"--nodes={count}" in words()
    assert "--nodelist=frontier[00001-09408]" in words()
    names = (tmp_path / "bin/srun.list").read_text().split()
    assert len(names) == 9000 and names[-1] == "a-long-name-of-a-node9000.cluster.example"


def test_hosts_outside_the_job_are_named_and_the_others_started(tide, start, stand_in, tmp_path):
    words = stand_in("srun")
    data = trees.blob(tmp_path / "data", 10)
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]"}
    command = tide.argv("bcast", data, "--to", tmp_path / "copy", "--hosts", "n[2-4]", "--json")
    error = start(command, env=tide.env | env).exits(1).last("error")
    reasons = {host["name"]: host["reason"] for host in error["hosts"]}
    assert "n4 is not a node of Slurm job 7 (n[1-3])" in reasons["n4"] and "--exclude" in reasons["n4"]
    assert "--nodelist=n2,n3" in words() and "not a node" not in reasons["n2"]


def test_each_component_of_a_heterogeneous_job_is_started(tide, start, stand_in, tmp_path):
    words = stand_in("srun")
    data = trees.blob(tmp_path / "data", 10)
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "c1", "SLURM_HET_SIZE": "2",
           "SLURM_JOB_NODELIST_HET_GROUP_0": "c1", "SLURM_JOB_NODELIST_HET_GROUP_1": "g[1-2]"}
    error = start(tide.argv("bcast", data, "--to", tmp_path / "copy", "--json"), env=tide.env | env).exits(1).last("error")
    assert [host["name"] for host in error["hosts"]] == ["c1", "g1", "g2"]
    started = " ".join(words())
    assert re.search(r"--het-group=0 --nodelist=c1 --nodes=1 ", started)
    assert re.search(r"--het-group=1 --nodelist=g1,g2 --nodes=2 ", started)


def test_a_topology_of_another_cluster_is_rejected(tide, tmp_path):
    data, file = trees.blob(tmp_path / "data", 10), tmp_path / "topology"

    def bcast(text, *words, code):
        file.write_text(text)
        line = ["bcast", data, "--to", tmp_path / "{host}/data", "--hosts", "h1,h2", "--launch", "env {command}", "--topology", file]
        return tide(*line, *words, code=code).err

    for text in ("hello world\nthis is not a topology\n", "SwitchName=s0 Nodes=n[1-4]\n",
                 "- topology: x\n  tree:\n    switches:\n    - switch: s\n      nodes: n[1-4]\n"):
        assert "contains none of the hosts (h1, h2)" in bcast(text, code=2), text
    assert "line 2" in bcast("r1 h1\nwhat is this?\n", code=2)
    assert "line 3" in bcast("SwitchName=s0 \\\n Nodes=h1\nSwitchName=s1 Node=h2\n", code=2)
    assert "nosuchname" in bcast("r1 h1\nr2 h2\n", "--origin", "nosuchname", code=2)
    assert "does not contain 1 of 2 hosts (h2)" in bcast("r1 h1\n", code=0)
    assert "warning" not in bcast("r1 h1\nr2 h2\n", "--origin", "h1", code=0)
    # As Slurm takes it: leaves below two spines, a node on two leaves.
    fat = "SwitchName=p1 Switches=s[0-1]\nSwitchName=p2 Switches=s[0-1]\nSwitchName=s0 Nodes=h1\nSwitchName=s1 Nodes=h[1-2]\n"
    assert "h1 and 2 more are on several switches; the first one is used" in bcast(fat, code=0)
