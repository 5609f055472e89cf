"""`make bench-simgrid`: the simulator's network model against SimGrid's, an independent one.

The same broadcasts on the same topologies are run by `tidecast sim` and by SimGrid (bench/simgrid/broadcast.cpp, with its
own parser, routes and schedules; its settings are named there). With --exact (no headers, no ramp-up) against
CM02 each receiver's completion time is compared: goal, within 5%. Where arithmetic gives the last receiver's time, it is a
third witness. For information, the ordinary model (TCP over Ethernet) is compared with LV08, SimGrid's own idea of TCP.
ONLY (words) chooses cases by name. Prints a table, and writes all figures to bench/results/.
"""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.measure import Failed, begin, conclude  # noqa: E402
from bench.simulator import simulate  # noqa: E402
from lab.forms import parse  # noqa: E402

SOURCE = ROOT / "bench/simgrid/broadcast.cpp"
PROGRAM = ROOT / ".cache/simgrid-broadcast"
GOAL = 0.05
MB = 1_000_000
KIB = 1024

# A switch for each node, on two hubs in turn: a chain in the order of the switches crosses the hubs' link all the time.
INTERLEAVED = "switch a\nswitch b\n" + "".join(f"switch t{n}\nnodes 1 t{n} 50mbit\n" for n in range(16)) \
    + "".join(f"link t{n} {'ab'[n % 2]} 50mbit\n" for n in range(16)) + "link a b 100mbit\n"
# Cards of three kinds, so that no two flows of a flat tree need have the same share.
MIXED = "switch a\nnodes 6 a 1gbit\nnodes 5 a 100mbit\nnodes 5 a 20mbit\n"


@dataclass(frozen=True)
class Case:
    algorithm: str
    form: str  # as on the command line, or the text of a topology file
    size: int
    segment: int = 128 * KIB
    name: str = ""  # of the topology, where `form` is a text
    expected: float | None = None  # seconds, by arithmetic


CASES = [
    Case("chain", "single:8@100mbit", 50 * MB, expected=4 + 6 * 128 * KIB * 8 / 100e6),
    Case("chain", "single:64@20mbit", 10 * MB, 64 * KIB, expected=4 + 62 * 64 * KIB * 8 / 20e6),
    Case("chain", "bordeaux:32,25,7@20mbit", 10 * MB, 256 * KIB, expected=4 + 62 * 256 * KIB * 8 / 20e6),
    Case("chain", "bordeaux:8,8@100mbit,bottleneck=20mbit,delay=20ms", 20 * MB, 512 * KIB),
    Case("chain", INTERLEAVED, 20 * MB, name="16 nodes alternate between hubs"),
    Case("binomial", "single:8@100mbit", 50 * MB, expected=3 * 4.0),
    Case("binomial", "single:50@20mbit", 10 * MB),
    Case("binomial", "bordeaux:8,6,2@50mbit,bottleneck=20mbit", 50 * MB),
    Case("binomial", "bordeaux:32,25,7@20mbit", 10 * MB),
    Case("binomial-segmented", "single:16@50mbit", 20 * MB, 256 * KIB),
    Case("binomial-segmented", INTERLEAVED, 20 * MB, name="16 nodes alternate between hubs"),
    Case("flat", "single:8@100mbit", 50 * MB, 50 * MB, expected=7 * 4.0),
    Case("flat", "bordeaux:32,25,7@20mbit,bottleneck=5mbit", 2 * MB, 2 * MB, expected=32 * 2 * 8 / 5),
    Case("flat", MIXED, 10 * MB, 10 * MB, name="16 nodes of 3 rates"),
    Case("binary", "single:32@50mbit", 20 * MB, 64 * KIB),
    Case("binary", "bordeaux:32,25,7@20mbit,bottleneck=10mbit", 10 * MB),
    Case("binary", MIXED, 10 * MB, 64 * KIB, name="16 nodes of 3 rates"),
    Case("scatter-allgather", "single:16@50mbit", 50 * MB, expected=2 * 15 / 16 * 8),
    Case("scatter-allgather", "single:64@20mbit", 10 * MB),
    Case("scatter-allgather", "single:13@100mbit", 50 * MB),
    Case("scatter-allgather", "bordeaux:32,25,7@20mbit", 10 * MB),
    Case("scatter-allgather", "bordeaux:8,8@50mbit,bottleneck=10mbit,delay=10ms", 20 * MB),
]


def install() -> None:
    """SimGrid's library, and the program made with it."""
    if not pathlib.Path("/usr/include/simgrid/s4u.hpp").exists():
        print("installing libsimgrid-dev", flush=True)
        quiet = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
        for words in (["update"], ["install", "-y", "--no-install-recommends", "libsimgrid-dev", "g++"]):
            subprocess.run(["apt-get", "-qq", *words], check=True, **quiet)
    if not PROGRAM.exists() or PROGRAM.stat().st_mtime < SOURCE.stat().st_mtime:
        PROGRAM.parent.mkdir(exist_ok=True)
        subprocess.run(["g++", "-std=c++17", "-O2", "-Wall", "-Wextra", SOURCE, "-o", PROGRAM, "-lsimgrid"], check=True)


def run(argv: list, text: str | None = None) -> str:
    p = subprocess.run([str(a) for a in argv], input=text, capture_output=True, text=True)
    if p.returncode:
        raise Failed(f"{' '.join(map(str, argv))}\n{p.stderr[-2000:]}")
    return p.stdout


def by_simgrid(case: Case, text: str, *model: str) -> list[float]:
    """Seconds of each receiver."""
    return json.loads(run([PROGRAM, case.algorithm, case.size, case.segment, *model], text))


def by_tidecast(case: Case, topology: str, *model: str) -> list[float]:
    words = topology, "--size", case.size, "--segment", case.segment, "--algorithm", case.algorithm
    return simulate(*words, *model)["finished"]


def compare(case: Case, topology: str, text: str) -> dict:
    """All figures of a case; `topology` is its name on the command line, `text` its file."""
    theirs, ours = by_simgrid(case, text), by_tidecast(case, topology, "--exact")
    return {"algorithm": case.algorithm, "name": case.name or case.form, "topology": text, "size": case.size,
            "segment": case.segment, "arithmetic": case.expected, "simgrid": theirs, "tidecast": ours,
            "last": max(ours) / max(theirs) - 1, "worst": max((a / b - 1 for a, b in zip(ours, theirs, strict=True)), key=abs),
            "last_as_tcp": max(by_tidecast(case, topology)) / max(by_simgrid(case, text, "LV08")) - 1}


def tell(case: Case, row: dict) -> bool:
    """A line of the table; whether it is within the goal."""
    good = max(abs(row["last"]), abs(row["worst"])) <= GOAL
    sum_ = "" if case.expected is None else f"{case.expected:.3f}"
    print(f"{row['algorithm']:<19}{row['name']:<51}{case.size // MB:>4}{case.segment // KIB:>7}{sum_:>11}{max(row['simgrid']):>9.3f}"
          f"{max(row['tidecast']):>9.3f}{row['last']:>8.2%}{row['worst']:>8.2%}{row['last_as_tcp']:>9.1%}{'' if good else '  OUT OF BOUNDS'}", flush=True)
    return good


def main() -> int:
    install()
    only = os.environ.get("ONLY", "").split()
    cases = [c for c in CASES if not only or any(word in f"{c.algorithm} {c.name or c.form}" for word in only)]
    version = run(["dpkg-query", "-W", "-f", "${Version}", "libsimgrid-dev"])
    print(f"bench-simgrid: SimGrid {version}; goal: every receiver within {GOAL:.0%} of CM02 without TCP's corrections\n")
    print(f"{'':<81}{'the last receiver, seconds':>29}{'off by':>16}{'as TCP,':>9}")
    print(f"{'algorithm':<19}{'topology':<51}{'MB':>4}{'KiB':>7}{'arithmetic':>11}{'SimGrid':>9}{'Tidecast':>9}{'last':>8}{'worst':>8}{'to LV08':>9}")
    rows, bad = [], 0
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "topology"
        for case in cases:
            text = case.form if case.name else parse(case.form).to_text()
            file.write_text(text)
            rows.append(compare(case, str(file) if case.name else case.form, text))
            bad += not tell(case, rows[-1])
    return conclude("simgrid", {"simgrid": version, "cases": rows}, bad, len(cases), GOAL)


if __name__ == "__main__":
    begin(main)
