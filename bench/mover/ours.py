"""`tidecast copy`: to and from a server of its own, and started by ssh; and the floor below it."""
from __future__ import annotations

import json
import re
import time

from bench.measure import Failed
from bench.mover.goals import SMALL
from bench.mover.rivals import Job, OverSsh, Rival
from bench.programs import TIDECAST

FLOOR = TIDECAST.parent / "examples/floor"


def outcome(job: Job) -> dict:
    """Its own report: seconds without its start, and how long each side was the limit."""
    lines = (job.tmp / "near.log").read_text(errors="replace").splitlines()
    ends = [event for text in lines if text.startswith("{") and (event := json.loads(text)).get("event") == "done"]
    return {key: ends[-1][key] for key in ("transfer_seconds", "limits") if key in ends[-1]} if ends else {}


class Ours(Rival):
    """To a server, or with `pull` from one."""

    def __init__(self, name: str, *words: str, pull: bool = False):
        self.name, self.words, self.pull = name, words, pull

    def missing(self) -> list[str]:
        return [] if TIDECAST.exists() else [str(TIDECAST)]

    def serve(self, job: Job) -> list:
        state = job.tmp / "state"
        state.mkdir()
        root = job.source if self.pull else job.target
        return [TIDECAST, "--state-dir", state, "copy-server", "--as-root", "--trust-metadata", "--listen", f"{job.host}:{job.port}", "--root", root, *self.words]

    def copy(self, job: Job) -> list:
        url = self.url(job)
        return [TIDECAST, "--json", "copy", *self.words, *([url, f"{job.target}/"] if self.pull else [f"{job.source}/", url])]

    def url(self, job: Job) -> str:
        """The first output of the server."""
        deadline = time.monotonic() + 5
        while not (found := re.search(r"tidecast://\S+", (job.tmp / "far.log").read_text())):
            if time.monotonic() > deadline:
                raise Failed("copy-server prints no URL")
            time.sleep(0.02)
        return found[0]

    def said(self, job: Job) -> dict:
        return outcome(job)


class OursSsh(OverSsh):
    """Started by ssh; data on connections of its own, or with `--via ssh` through ssh."""
    needs = ("sshd", "ssh", "ssh-keygen")

    def __init__(self, name: str, *words: str, cipher: str | None = None):
        self.name, self.words, self.cipher = name, words, cipher

    def copy(self, job: Job) -> list:
        there = ["--ssh", self.ssh(job), "--remote-program", TIDECAST]
        return [TIDECAST, "--json", "copy", *self.words, *there, f"{job.source}/", f"{job.host}:{job.target}/"]

    def said(self, job: Job) -> dict:
        return outcome(job)


class Floor(Rival):
    """The minimum work of any mover of small files: the system calls and the cipher, without anything else
    (crates/mover/examples/floor.rs).
    With `final`, files are written under their own names instead of renamed when they are whole."""
    loopback_only = True

    def __init__(self, name: str, *words: str):
        self.name, (self.guard, *self.words) = name, words

    def missing(self) -> list[str]:
        return [] if FLOOR.exists() else [str(FLOOR)]

    def takes(self, name: str) -> bool:
        return name in SMALL

    def copy(self, job: Job) -> list:
        return [FLOOR, self.guard, job.source, job.target, *self.words]


OURS: list[Rival] = [
    Ours("tidecast"), Ours("tidecast-plain", "--plain"), Ours("tidecast-pull", pull=True), OursSsh("tidecast-ssh"),
    OursSsh("tidecast-via-ssh", "--via", "ssh", cipher="aes128-gcm@openssh.com"), Floor("floor-plain", "plain"), Floor("floor-tls", "tls"),
    Floor("floor-plain-final", "plain", "final"), Floor("floor-tls-final", "tls", "final")]
