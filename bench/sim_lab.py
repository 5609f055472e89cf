"""`make bench-sim-lab`: the simulator against the real program on the emulated cluster.

For each case the real program broadcasts on the lab (network namespaces, lab/README.md) while `tidecast sim` is asked
about the same topology, size, piece size and faults; the comparison has the times until the median and the last receiver had all data
(goal: within 15%), the bytes that the origin sent, and the bytes over the first link. Needs root.

Environment: REPEATS (3) lab runs a case, of which the median counts; SEEDS (5) simulated ones; ONLY (words) to choose
cases by name. The lab's rates are low so that two cores carry it: a run during which less than a fifth of the CPU was idle may not
reflect the network and is marked. Prints a table, and writes all figures to bench/results/.
"""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.measure import Failed, begin, conclude  # noqa: E402
from bench.programs import TIDECAST  # noqa: E402
from bench.simulator import simulate  # noqa: E402

REPEATS = int(os.environ.get("REPEATS", "3"))
SEEDS = int(os.environ.get("SEEDS", "5"))
ENV = {**os.environ, "TIDECAST_LAB": os.environ.get("TIDECAST_LAB", "simlab")}
LAB = [sys.executable, str(ROOT / "lab/lab")]
PORT = 6881
LIMIT = 240  # seconds until a lab run counts as failed
GOAL = 0.15
MB = 1_000_000


@dataclass(frozen=True)
class Happening:
    """A fault of a node this many seconds after the start."""

    at: float
    kind: str  # late: it joins only then; kill: its process dies; cut: silence; slow: its rate is `rate`
    node: int
    rate: str = ""


@dataclass(frozen=True)
class Case:
    name: str
    form: str
    size: int
    happenings: tuple[Happening, ...] = ()
    piece: str = "256KiB"

    @property
    def link(self) -> str | None:
        """The link that is compared, where there is one."""
        return "s0-s1" if self.form.startswith("bordeaux") else None

    def lost(self) -> set[int]:
        """Receivers that are not waited for."""
        return {h.node for h in self.happenings if h.kind in ("kill", "cut")}


CASES = [
    Case("one switch, 8", "single:8@40mbit", 60 * MB),
    Case("one switch, 16", "single:16@20mbit", 40 * MB),
    Case("large pieces", "single:8@40mbit", 60 * MB, piece="2MiB"),
    Case("three switches", "bordeaux:8,6,2@20mbit", 40 * MB),
    Case("narrow link", "bordeaux:4,4@40mbit,bottleneck=20mbit", 50 * MB),
    Case("long link", "bordeaux:4,4@40mbit,bottleneck=20mbit,delay=20ms", 50 * MB),
    Case("slow node", "single:8@40mbit", 50 * MB, (Happening(0, "slow", 3, "10mbit"),)),
    Case("late joiner", "single:8@40mbit", 60 * MB, (Happening(6, "late", 5),)),
    Case("killed node", "single:8@40mbit", 60 * MB, (Happening(5, "kill", 3),)),
    Case("silent node", "single:8@40mbit", 60 * MB, (Happening(5, "cut", 3),)),
]


def lab(*words) -> str:
    p = subprocess.run([*LAB, *map(str, words)], env=ENV, capture_output=True, text=True, timeout=120)
    if p.returncode:
        raise Failed(f"lab {' '.join(map(str, words))}: {p.stderr}")
    return p.stdout


def idle() -> tuple[int, int]:
    """CPU ticks of the whole machine so far: idle, all."""
    fields = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return fields[3] + fields[4], sum(fields)


def wait(what: str, test) -> None:
    deadline = time.monotonic() + LIMIT
    while not test():
        if time.monotonic() > deadline:
            raise Failed(f"not within {LIMIT} s: {what}")
        time.sleep(0.02)


class Broadcast:
    """One broadcast of the real program on the lab, which is up."""

    def __init__(self, case: Case, folder: pathlib.Path, manifest: pathlib.Path, data: pathlib.Path):
        self.case, self.folder, self.manifest, self.data = case, folder, manifest, data
        self.count = len(lab("hosts").split())
        self.running: list[subprocess.Popen] = []

    def launch(self, nodes: str, command: str) -> subprocess.Popen:
        """A shell command on some nodes at one instant; when it began and its process are in files."""
        notes = f"date +%s.%N >{self.folder}/{{n}}.start; echo $$ >{self.folder}/{{n}}.pid; "
        process = subprocess.Popen([*LAB, "each", "--nodes", nodes, "--logs", self.folder, "--", "sh", "-c", notes + "exec " + command],
                                   env=ENV, stdout=subprocess.DEVNULL)
        self.running.append(process)
        return process

    def tidecast(self, words: str) -> str:
        return f"{TIDECAST} --json --state-dir {self.folder}/{{n}}.state {words} --listen {{ip}}:{PORT} --plain"

    def events(self, n: int) -> list[dict]:
        log = self.folder / f"n{n:03d}.log"
        return [json.loads(line) for line in log.read_text().split("\n")[:-1] if line.startswith("{")] if log.exists() else []

    def target(self, n: int) -> pathlib.Path:
        return self.folder / f"{n}.got" / self.data.name

    def seed(self) -> None:
        self.launch("0", self.tidecast(f"seed {self.manifest} {self.data}"))
        wait("the origin seeds", lambda: {"started", "progress"} <= {e["event"] for e in self.events(0)})

    def get(self, nodes: list[int]) -> None:
        command = self.tidecast(f"get {self.manifest} --to {self.folder}/{{n}}.got --peer {{root}}:{PORT} --durable none --seed-for 1h")
        self.launch(",".join(map(str, nodes)), command)

    def befall(self, happening: Happening) -> None:
        match happening.kind:
            case "late":
                self.get([happening.node])
            case "kill":
                os.kill(int((self.folder / f"{happening.node}.pid").read_text()), signal.SIGKILL)
            case "cut":
                lab("cut", happening.node)
            case "slow":
                lab("slow", happening.node, happening.rate)

    def run(self) -> dict:
        """Seconds from the start of the first getter to each awaited one's end; bytes of the origin and the link."""
        self.seed()
        lost, late = self.case.lost(), {h.node for h in self.case.happenings if h.kind == "late"}
        awaited = [n for n in range(1, self.count) if n not in lost]
        todo = sorted(self.case.happenings, key=lambda h: h.at)
        for happening in [h for h in todo if h.at == 0]:
            self.befall(happening)
        todo = [h for h in todo if h.at > 0]
        before, wire = idle(), json.loads(lab("counters"))
        first = [n for n in range(1, self.count) if n not in late]
        self.get(first)
        wait("all getters start", lambda: all((self.folder / f"{n}.start").exists() for n in first))
        begun = time.monotonic()

        def step() -> bool:
            while todo and time.monotonic() - begun >= todo[0].at:
                self.befall(todo.pop(0))
            return all(self.target(n).exists() for n in awaited)

        wait("all receivers have it", step)
        after, wires = idle(), json.loads(lab("counters"))
        begin = {n: float((self.folder / f"{n}.start").read_text()) for n in awaited}
        start = min(begin[n] for n in first if n in begin)
        tardy = {h.node: begin[h.node] - start - h.at for h in self.case.happenings if h.kind == "late"}
        # Its final name is the last thing that a file gets, and that is its change time. The time that this program needs to
        # start a late joiner is not counted.
        seconds = {n: self.target(n).stat().st_ctime_ns / 1e9 - start - tardy.get(n, 0) for n in awaited}
        link = self.case.link
        return {"seconds": seconds, "idle": (after[0] - before[0]) / (after[1] - before[1]),
                "origin": (wires["nodes"][0]["tx"] - wire["nodes"][0]["tx"]) / self.case.size,
                "link": (wires["links"][link]["fwd"] - wire["links"][link]["fwd"]) / self.case.size if link else None}

    def stop(self) -> None:
        for process in self.running:  # processes started by `lab each` die with it
            process.kill()
            process.wait()


def real(case: Case, folder: pathlib.Path) -> list[dict]:
    """The case on the lab, REPEATS times."""
    data, manifest, runs = folder / "data", folder / "data.torrent", []
    data.write_bytes(os.urandom(case.size))
    subprocess.run([TIDECAST, "--state-dir", folder / "publish", "publish", data, "-o", manifest, "--format", "v2",
                    "--piece-size", case.piece], check=True, capture_output=True)
    for number in range(REPEATS):
        here = folder / f"run{number}"
        here.mkdir()
        lab("up", case.form)
        broadcast = Broadcast(case, here, manifest, data)
        try:
            runs.append(broadcast.run())
        finally:
            broadcast.stop()
            lab("down")
            shutil.rmtree(here)
    return runs


def fault(h: Happening) -> str:
    """The same happening in the simulator's words."""
    return {"late": f"join:{h.node}@{h.at}s", "kill": f"crash:{h.node}@{h.at}s", "cut": f"die:{h.node}@{h.at}s",
            "slow": f"slow:{h.node}={h.rate}@{h.at}s"}[h.kind]


def simulated(case: Case) -> list[dict]:
    """The case in the simulator, with SEEDS seeds."""
    faults = [word for h in case.happenings for word in ("--fault", fault(h))]
    runs = []
    for seed in range(1, SEEDS + 1):
        run = simulate(case.form, "--algorithm", "swarm", "--size", case.size, "--piece-size", case.piece, "--seed", seed, *faults)
        lost = case.lost()
        runs.append({"seconds": {n: t for n, t in enumerate(run["finished"], 1) if n not in lost},
                     "origin": run["origin_copies"], "link": (run["narrowest"] or {}).get("copies")})
    return runs


def figures(runs: list[dict]) -> dict:
    """Medians over the runs: seconds of the median and the last receiver, copies, idle CPU."""
    for run in runs:
        times = sorted(run["seconds"].values())
        run["median"], run["last"] = statistics.median(times), times[-1]
    names = [k for k in ("median", "last", "origin", "link", "idle") if runs[0].get(k) is not None]
    return {k: statistics.median(r[k] for r in runs) for k in names}


def tell(case: Case, lab_: dict, sim: dict) -> bool:
    """A line of the table; whether it is within the goal."""
    off = [sim[k] / lab_[k] - 1 for k in ("median", "last")]
    good = max(map(abs, off)) <= GOAL
    text = f"{case.name:<16}{case.form:<50}{case.size // MB:>4}"
    for k, o in zip(("median", "last"), off):
        text += f"{lab_[k]:>8.2f}{sim[k]:>8.2f}{o:>7.0%}"
    for k in ("origin", "link"):
        text += f"{lab_[k]:>7.2f}{sim[k]:>6.2f}" if k in lab_ and k in sim else " " * 13
    busy = "" if lab_["idle"] > 0.2 else "  the CPU was busy"
    print(f"{text}{lab_['idle']:>6.0%}{'' if good else '  OUT OF BOUNDS'}{busy}", flush=True)
    return good


def main() -> int:
    if os.geteuid():
        raise Failed("network namespaces need root")
    only = os.environ.get("ONLY", "").split()
    cases = [c for c in CASES if not only or any(word in c.name for word in only)]
    print(f"bench-sim-lab: medians of {REPEATS} lab runs and {SEEDS} seeds; goal: median and last receiver within {GOAL:.0%}\n")
    print(f"{'':<16}{'':<50}{'':>4}{'median receiver, s':>23}{'last receiver, s':>23}{'origin copies':>13}{'link copies':>13}{'idle':>6}")
    print(f"{'case':<16}{'topology':<50}{'MB':>4}" + f"{'lab':>8}{'sim':>8}{'':>7}" * 2 + f"{'lab':>7}{'sim':>6}" * 2)
    rows, bad = [], 0
    for case in cases:
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tidecast-simlab.") as folder:
            lab_runs = real(case, pathlib.Path(folder))
        sim_runs = simulated(case)
        lab_, sim = figures(lab_runs), figures(sim_runs)
        bad += not tell(case, lab_, sim)
        rows.append({"case": case.name, "form": case.form, "size": case.size, "piece": case.piece,
                     "faults": [fault(h) for h in case.happenings], "lab": lab_, "sim": sim, "lab_runs": lab_runs, "sim_runs": sim_runs})
    return conclude("sim-lab", rows, bad, len(cases), GOAL)


if __name__ == "__main__":
    begin(main)
