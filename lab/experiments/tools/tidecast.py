"""Tidecast: `tidecast bcast`, with the topology, without it, or as a swarm without a plan."""
from __future__ import annotations

import json
import os
import pathlib
import signal

from ..process import Failed, Process
from ..stage import ROOT, Stage
from .base import Job, Times, Tool

PROGRAM = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / os.environ.get("TIDECAST_PROFILE", "release") / "tidecast"


def events(process: Process) -> list[dict]:
    return [json.loads(line) for line in process.out().split("\n")[:-1] if line.startswith("{")]


def command(stage: Stage, source: pathlib.Path, *words, told: bool = True) -> list:
    """The broadcast of `source` to all receivers, in the setting's order; with or without the topology."""
    hosts = ",".join(f"{stage.name(n)}={stage.address(n)}" for n in stage.order[1:])
    (stage.folder / "hosts").write_text(hosts.replace(",", "\n") + "\n")
    (stage.folder / "topology").write_text(stage.topology.to_text())
    place = ["--topology", stage.folder / "topology", "--origin", stage.name(0)] if told else []
    return [PROGRAM, "--json", "--state-dir", stage.folder / "state", "bcast", source, "--to", stage.folder / "out/{host}/copy",
            "--hosts", f"@{stage.folder}/hosts", "--launch", f"ip netns exec {stage.lab}.{{host}} {{command}}", *place, *words]


def transferring(process: Process) -> bool:
    """Whether the first data flows."""
    return any(e["event"] in ("done", "error") or e.get("stage") == "bcast" for e in events(process))


class Tidecast(Tool):
    ordered = True  # the order should not matter to it, which this run shows

    def __init__(self, name: str, about: str, *words: str, told: bool = False):
        self.name, self.about, self.words, self.told = name, about, words, told

    def missing(self) -> list[str]:
        return [] if PROGRAM.exists() else ["target/release/tidecast (cargo build --release -p tidecast-cli)"]

    def run(self, job: Job) -> Times:
        process = job.stage.start(0, command(job.stage, job.source, *self.words, told=self.told), self.name)
        process.until("workers are ready", lambda: transferring(process), job.limit)
        job.meter.go()
        try:
            process.until_over(job.limit)
        except Failed:
            process.stop(signal.SIGINT)
            raise
        job.meter.end()
        last = events(process)[-1]
        if last["event"] != "done":
            raise Failed(process.words())
        slowest = max(h["seconds"] for h in last["hosts"])
        return Times(max(last["transfer_seconds"], slowest), last["seconds"], {
            k: last[k] for k in ("algorithm", "hash_seconds", "gather_seconds", "duplicate", "piece_length")})
