"""The tuning study of the 100 Gbit/s paper on one machine: each setting that a network namespace has, changed alone.

Two namespaces are joined by `tidecast-wan`, which has the rate and the delay. iperf3 measures throughput and CPU before and after
each change; `tidecast doctor` predicts both rates in the same namespace, and the error of its prediction is stated.
"""
from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ... import build, netns, state
from ..process import Failed, Process
from ..results import Results
from ..runner import say
from ..tools.tidecast import PROGRAM
from .common import Experiment

DELAYS = (10, 50, 100)  # round-trip times, ms
RATE = 400  # Mbit/s: two cores carry both ends and the line between them
MTU = 1500
ADDRESSES = ("198.18.0.1", "198.18.0.2")
GIB = 1 << 30


@dataclass(frozen=True)
class Knobs:
    """The settings of both ends."""

    receive: int  # bytes, the most of tcp_rmem
    send: int  # bytes, the most of tcp_wmem
    mtu: int = MTU
    control: str = "reno"  # the one that every network namespace may use
    streams: int = 1
    pace: int = 0  # bit/s of each flow; 0: none
    cpus: tuple[str, str] | None = None  # of the sender and the receiver
    loss: float = 0.0


@dataclass(frozen=True)
class Case:
    """A setting before and after its change, and how the doctor is asked about it."""

    before: Knobs
    after: Knobs
    check: str = ""  # of the doctor; without one nothing is predicted
    purposes: tuple[str, str] = ("bcast", "bcast")
    about: str = ""


def case(knob: str, rtt_ms: int, mbit: int) -> Case:
    """The change of one setting on a path of this round-trip time."""
    path = mbit * 1_000_000 // 8 * rtt_ms // 1000  # bytes in flight when the link is full
    fit = Knobs(receive=max(8 * path, 1 << 20), send=max(8 * path, 1 << 20))
    match knob:
        case "receive-buffer":
            return Case(replace(fit, receive=path // 2), fit, "tcp-receive-buffer", about="tcp_rmem: half of rate x delay, then 8 times it")
        case "send-buffer":
            return Case(replace(fit, send=path // 2), fit, "tcp-send-buffer", about="tcp_wmem: half of rate x delay, then 8 times it")
        case "mtu":
            return Case(replace(fit, mtu=1500), replace(fit, mtu=9000), "mtu", about="MTU 1500, then 9000")
        case "streams":
            few = replace(fit, receive=path // 8)
            return Case(few, replace(few, streams=8), "tcp-receive-buffer", ("bcast", "copy"), "1 stream, then 8, small buffers")
        case "congestion":
            lossy = replace(fit, loss=0.0005)
            return Case(lossy, replace(lossy, control="bbr"), about="reno, then bbr, one packet of 2000 lost")
        case "pacing":
            return Case(fit, replace(fit, pace=mbit * 900_000), about="no pacing, then 90% of the rate")
        case "affinity":
            return Case(replace(fit, cpus=("0", "0")), replace(fit, cpus=("0", "1")), about="both ends on one CPU, then on two")
    raise Failed(f"no setting {knob}")


KNOBS = ("receive-buffer", "send-buffer", "mtu", "streams", "congestion", "pacing", "affinity")


class Tuning(Experiment):
    about = "each setting of a host alone, at 10, 50 and 100 ms: throughput and CPU before and after, beside the doctor's prediction"
    cases = tuple(f"{knob}-{ms}" for ms in DELAYS for knob in KNOBS)

    def run(self, results: Results, a: argparse.Namespace) -> int:
        wanted = [name for name in self.cases if not a.only or name in a.only]
        left = [name for name in wanted if not any(self.is_row(row, "line", name) for row in results.rows)]
        mbit, failed = a.sizes[0] if a.sizes else RATE, 0
        if left:
            say(f"\ntuning: {self.about}; {mbit} Mbit/s (--sizes MBIT: another rate)")
        for name in left:
            knob, _, ms = name.rpartition("-")
            try:
                row = figures(case(knob, int(ms), mbit), int(ms), mbit)
            except (Failed, netns.LabError) as e:
                row, failed = {"failed": str(e)}, failed + 1
            row = results.add({"experiment": self.name(), "setting": "line", "case": name, "mbit": mbit, "rtt_ms": int(ms), **row})
            say("  " + line(row))
        return failed

    def table(self, rows: list[dict]) -> str:
        good = [row for row in rows if "failed" not in row]
        if not good:
            return ""
        columns = ["setting", "RTT", "before", "after", "CPU before", "CPU after", "predicted before", "predicted after"]
        lines = ["## Settings of a host, one at a time", "",
                 "Mbit/s measured by iperf3, CPU seconds a GiB of both ends, and what `tidecast doctor` predicted with its error.", "",
                 *("| " + " | ".join(words) + " |" for words in (columns, ["---"] * len(columns)))]
        for row in good:
            cells = [f"{row['case'].rpartition('-')[0]}: {row['about']}", f"{row['rtt_ms']} ms",
                     *(str(row[when][key]) for key in ("mbit", "cpu") for when in ("before", "after")),
                     *(predicted(row, when) for when in ("before", "after"))]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"


def predicted(row: dict, when: str) -> str:
    one = row[when]
    return "-" if one.get("predicted") is None else f"{one['predicted']} ({one['error']:+.0%})"


def line(row: dict) -> str:
    if "failed" in row:
        return f"{row['case']}: FAILED {row['failed']}"
    told = (f"{when} {row[when]['mbit']} Mbit/s, {row[when]['cpu']} CPU s/GiB, predicted {predicted(row, when)}"
            for when in ("before", "after"))
    return f"{row['case']}: " + ", ".join(told)


def figures(change: Case, rtt_ms: int, mbit: int) -> dict:
    """Both measurements of a case and both predictions."""
    row: dict = {"about": change.about}
    for when, knobs, purpose in (("before", change.before, change.purposes[0]), ("after", change.after, change.purposes[1])):
        with Line(knobs, rtt_ms, mbit) as ends:
            told = ends.predict(change.check, purpose) if change.check else None
            row[when] = beside(ends.measure(), told)
    return row


def beside(measured: dict, told: float | None) -> dict:
    """A measurement with the doctor's prediction, Mbit/s, and the error of that: 0.1 where it is a tenth too high."""
    if told is None:
        return {**measured, "predicted": None}
    return {**measured, "predicted": round(told, 1), "error": round(told / max(measured["mbit"], 1e-6) - 1, 3)}


class Line:
    """Two namespaces and the line between them."""

    def __init__(self, knobs: Knobs, rtt_ms: int, mbit: int):
        self.knobs, self.rtt_ms, self.mbit = knobs, rtt_ms, mbit
        self.lab = state.lab_name()
        self.names = [f"{self.lab}.n{n:03d}" for n in (0, 1)]

    def __enter__(self) -> Line:
        netns.remove_all(self.lab)
        self.folder = tempfile.TemporaryDirectory(prefix="tidecast-tuning.")
        try:
            self._raise()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        netns.remove_all(self.lab)
        self.folder.cleanup()

    def _raise(self) -> None:
        path = self.mbit * 125 * self.rtt_ms  # bytes
        netns.run(["ip", "-batch", "-"], "".join(f"netns add {name}\n" for name in self.names))
        log = pathlib.Path(self.folder.name) / "wan.log"
        command = [build.wan_program(), *(f"{name}:wan" for name in self.names), "--rate", str(self.mbit * 1_000_000),
                   "--queue", str(max(2 * path, 1 << 20)), "--delay-us", str(self.rtt_ms * 500), "--loss", repr(self.knobs.loss)]
        # In the namespace of an end, so that it ends with the lab.
        wan = Process(["ip", "netns", "exec", self.names[0], *command], log)
        settings = {"net/ipv4/tcp_rmem": triple(self.knobs.receive), "net/ipv4/tcp_wmem": triple(self.knobs.send),
                    "net/ipv4/tcp_congestion_control": self.knobs.control, "net/ipv4/tcp_no_metrics_save": "1"}
        for name, address in zip(self.names, ADDRESSES, strict=True):
            wan.until("the line is there", lambda name=name: not subprocess.run(
                ["ip", "-n", name, "link", "show", "wan"], capture_output=True).returncode, 10)
            netns.run(["ip", "-n", name, "-batch", "-"], f"link set wan mtu {self.knobs.mtu} txqueuelen 10000\n"
                      f"addr add {address}/30 dev wan\nlink set wan up\nlink set lo up\n")
            netns.in_namespace(name, lambda: netns.sysctl(settings))

    def predict(self, check: str, purpose: str) -> float | None:
        """The rate that the doctor predicts in the sender's namespace as it is, Mbit/s; of all if it finds no loss."""
        argv = ["ip", "netns", "exec", self.names[0], PROGRAM, "--json", "doctor", "--for", purpose, "--link", f"{self.mbit}mbit",
                "--rtt", f"{self.rtt_ms}ms"]
        told = subprocess.run(argv, capture_output=True, text=True, timeout=120)
        findings = [json.loads(text) for text in told.stdout.splitlines() if text.startswith("{")][-1].get("findings")
        if findings is None:
            raise Failed(f"tidecast doctor gave no findings: {told.stdout[-500:]}{told.stderr[-500:]}")
        costs = [f["cost"] or 0.0 for f in findings if f["check"] == check]
        # No TCP flow brings more than what headers leave of each packet.
        whole = self.mbit * (self.knobs.mtu - 52) / self.knobs.mtu
        return min(whole, self.mbit * (1 - max(costs))) if costs else whole

    def measure(self) -> dict:
        """Throughput in Mbit/s, and CPU seconds a GiB of sender and receiver together."""
        warm, seconds = max(1, round(self.rtt_ms * 0.03)), max(2, round(self.rtt_ms * 0.04))
        knobs, folder = self.knobs, pathlib.Path(self.folder.name)
        pins = [["taskset", "-c", cpu] for cpu in knobs.cpus] if knobs.cpus else [[], []]
        with contextlib.ExitStack() as stack:
            server = Process(["ip", "netns", "exec", self.names[1], *pins[1], "iperf3", "-s", "-1", "--forceflush"], folder / "server.log")
            stack.callback(server.stop)
            server.until("iperf3 listens", lambda: "listening" in server.out(), 10)
            argv = ["ip", "netns", "exec", self.names[0], *pins[0], "iperf3", "-J", "-c", ADDRESSES[1], "-t", seconds, "-O", warm,
                    "-P", knobs.streams, *(["--fq-rate", knobs.pace] if knobs.pace else [])]
            client = Process(argv, folder / "client.log")
            stack.callback(client.stop)
            told = json.loads(client.end(60 + 2 * (warm + seconds)))
        end = told["end"]
        received, cpu = end["sum_received"], end["cpu_utilization_percent"]
        gib = max(received["bytes"], 1) / GIB
        spent = (cpu["host_total"] + cpu["remote_total"]) / 100 * received["seconds"]
        return {"mbit": round(received["bits_per_second"] / 1e6, 1), "cpu": round(spent / gib, 2),
                "retransmits": end["sum_sent"].get("retransmits", 0)}


def triple(most: int) -> str:
    """Least, default and most of a TCP buffer."""
    return f"4096 {min(131072, most)} {max(most, 4096)}"


def errors(rows: list[dict]) -> Iterator[tuple[str, str, float]]:
    """Each prediction's error: case, before or after, and the share."""
    for row in rows:
        for when in ("before", "after"):
            if row.get(when, {}).get("predicted") is not None:
                yield row["case"], when, row[when]["error"]

