"""One small cell of the experiments on a lab, by the command that a person gives."""
import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT, needs


@pytest.mark.root
def test_a_cell_is_measured_verified_and_remembered(lab, built, tmp_path):
    needs("iperf3")
    words = ["experiment", "short", "--only", "tidecast", "--settings", "site16", "--sizes", "1", "--repeats", "1", "--out", tmp_path]

    def experiment(*more):
        p = subprocess.run([sys.executable, ROOT / "lab/lab", *words, *more], env=lab.env, capture_output=True, text=True)
        assert p.returncode == 0, p.stdout + p.stderr
        return p.stdout

    experiment()
    row, = map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines())
    assert row["x"] > 1 and row["whole"] >= row["ready"] and row["nodes"] == 16
    assert 1 <= row["links"]["s0-s1"][0] < 16, "it came across, and not once for each node"
    assert row["origin"] >= 1 and set(row["switches"]) == {"s0", "s1", "s2"} and 0 < row["goodput"] < 6.25e6
    assert "| Tidecast, told the topology |" in (tmp_path / "results.md").read_text()
    assert "0 of 1 cells to measure" in experiment("--resume")
    assert not [n for n in os.listdir("/run/netns") if n.startswith(f"{lab.name}.")], "the lab is down again"


@pytest.mark.root
def test_a_setting_is_changed_alone_and_predicted(lab, built, tmp_path):
    needs("iperf3", "ip")
    words = ["experiment", "tuning", "--only", "receive-buffer-10", "--sizes", "50", "--out", tmp_path]
    p = subprocess.run([sys.executable, ROOT / "lab/lab", *words], env=lab.env, capture_output=True, text=True, timeout=240)
    assert p.returncode == 0, p.stdout + p.stderr
    row, = map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines())
    # Half of rate x delay as buffer is no more than half of the rate, whatever else this machine does.
    assert 0 < row["before"]["mbit"] < 30 and row["before"]["cpu"] > 0
    assert row["before"]["predicted"] < 20 < row["after"]["predicted"]
    assert "| receive-buffer: tcp_rmem" in (tmp_path / "results.md").read_text()
    assert not [n for n in os.listdir("/run/netns") if n.startswith(f"{lab.name}.")], "the lab is down again"
