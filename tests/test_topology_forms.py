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
    "dragonfly:1,1,1", "dragonfly:4,2,2@10gbit,local=5gbit,global=25gbit,delay=1us", "dragonfly:8,4,4",
]
REFUSED = [
    "", "ring:4", "single:0", "single:07", "single:200001", "single:2@1mbit,2mbit", "single:2@1mbit,delay=1ms",
    "single:2@7kbit", "single:2@1.mbit", "single:2,origin=", "bordeaux:4", "bordeaux:2,2,loss=1", "bordeaux:2,2,loss=1e-3",
    "bordeaux:2,2,delay=10.1s", "bordeaux:2,2,queue=2999", "nat:1", "nat:2,delay=1ms", "sites:8", "fattree:3",
    "fattree:94", "fattree:4,oversubscribe=0", "leafspine:2,2", "leafspine:1,1,1@8kbit,oversubscribe=2",
    "dragonfly:999999,999999,999999",
]


def printed(*command: str) -> str | None:
    """What a program prints; None where it refuses and says why."""
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
