"""Lab and simulator read the same topologies: they print the same file for every form and refuse the same ones."""
import subprocess

import pytest

from conftest import ROOT

FORMS = [
    "single:16", "single:3@1.5mbit,origin=25gbit", "single:200000@100gbit",
    "bordeaux:32,25,7@20mbit", "bordeaux:2,2@200gbit",
    "bordeaux:2,3,1@4.35gbit,bottleneck=1gbit,trunk=9999bit,delay=2.5ms,loss=0.29%,dup=0.00001,reorder=5%,queue=64k",
    "bordeaux:2,2,delay=1ms,delay=0.5us,loss=0.0000001", "nat:8@100mbit", "nat:2,bottleneck=10MBIT,queue=2m",
    "sites:8,4,1@1gbit,wan=100mbit,delay=10ms,loss=0.1%", "sites:3,3@1gbit",
    "leafspine:4,2,16@10gbit", "leafspine:3,7,5@10gbit,oversubscribe=3", "fattree:2", "fattree:8@10gbit,origin=25gbit",
    "fattree:6@10gbit,oversubscribe=2.7", "fattree:24@400gbit",
    "single:2@1tbit", "single:2@10gbps", "single:2@10Gb/s", "single:2@125MB/s", "single:2@119MiB/s", "single:2@1gibit",
    "single:2@100MBps", "nat:2,bottleneck=12.5MBytes/sec", "single:2@10000Mb/s",
    "dragonfly:1,1,1", "dragonfly:4,2,2@10gbit,local=5gbit,global=25gbit,delay=1us", "dragonfly:8,4,4",
]
REFUSED = [
    "", "ring:4", "single:0", "single:07", "single:200001", "single:2@1mbit,2mbit", "single:2@1mbit,delay=1ms",
    "single:2@7kbit", "single:2@1.mbit", "single:2,origin=", "bordeaux:4", "bordeaux:2,2,loss=1", "bordeaux:2,2,loss=1e-3",
    "bordeaux:2,2,delay=10.1s", "bordeaux:2,2,queue=2999", "nat:1", "nat:2,delay=1ms", "sites:8", "fattree:3",
    "fattree:94", "fattree:4,oversubscribe=0", "leafspine:2,2", "leafspine:1,1,1@8kbit,oversubscribe=2",
    "single:2@10m", "single:2@10mb/s", "single:2@10MB", "single:2@5GBPS", "single:2@10gb", "single:2@2tbit",
    "dragonfly:999999,999999,999999",
]


def printed(*command: str) -> str | None:
    """The output of a program; None if it refuses with a reason."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 or (done.stderr and "panicked" not in done.stderr), done
    return done.stdout if done.returncode == 0 else None


def by_lab(form: str) -> str | None:
    return printed(str(ROOT / "lab/lab"), "topology", form)


def by_simulator(built, form: str) -> str | None:
    return printed(str(built / "tidecast"), "sim", form, "--print-topology")


@pytest.mark.parametrize("form", FORMS)
def test_both_print_the_same_file(built, form):
    text = by_lab(form)
    assert text is not None
    assert by_simulator(built, form) == text


@pytest.mark.parametrize("form", REFUSED)
def test_both_refuse(built, form):
    assert by_lab(form) is None
    assert by_simulator(built, form) is None


def test_the_simulator_reads_the_file_that_it_prints(built, tmp_path):
    file = tmp_path / "cluster"
    file.write_text(by_lab("sites:8,4,1@1gbit,wan=100mbit,delay=10ms,loss=0.1%,origin=25gbit"))
    assert by_simulator(built, str(file)) == file.read_text()


SLURM = "SwitchName=s0 Nodes=n[0-3]\nSwitchName=s1 Nodes=n[4-7]\nSwitchName=top Switches=s[0-1]\n"
YAML = """- topology: default
  cluster_default: true
  tree:
    switches:
      - switch: top
        children: s[0-1]
      - switch: s0
        nodes: n[0-3]
      - switch: s1
        nodes: n[4-7]
"""
RULES = "top/s0 n[0-3]\ntop/s1 n[4-7]\n"


def test_the_simulator_reads_what_a_broadcast_reads(built, tmp_path):
    shapes = []
    for text in (SLURM, YAML, RULES):
        file = tmp_path / "cluster"
        file.write_text(text)
        printed_text = printed(str(built / "tidecast"), "sim", str(file), "--rate", "25Gb/s", "--print-topology")
        lines = printed_text.splitlines()
        assert sum(line.startswith("nodes 4 ") and line.endswith(" 25gbit") for line in lines) == 2, text
        shapes.append(sorted(line.split()[-1] for line in lines if line.startswith("link ")))
    assert shapes == [["100gbit", "100gbit"]] * 3
    for bad in ("hello, world\n", "SwitchName=a Foo=1\n", "- topology: x\n  flat: true\n", "rack n-*\n"):
        file.write_text(bad)
        assert by_simulator(built, str(file)) is None, bad
