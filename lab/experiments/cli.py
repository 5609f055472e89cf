"""The command line: `lab experiment WHAT..`; README.md here is the manual."""
from __future__ import annotations

import argparse
import os
import pathlib
import signal
import sys

from ..netns import LabError
from ..topology import TopologyError
from . import matrix, plot, runner, table
from .cached import figures
from .more import MORE
from .process import Failed
from .results import Results
from .settings import SETTINGS
from .stage import ROOT
from .tools import TOOLS

MATRICES = {"short": matrix.short, "long": matrix.long}


def words(text: str) -> list[str]:
    return text.split(",")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="lab experiment", description="the broadcasts of the paper, and what else a broadcast must bear",
                                formatter_class=argparse.RawDescriptionHelpFormatter,
                                epilog="tools:    " + " ".join(TOOLS) + "\nsettings: " + " ".join(SETTINGS) + "\n\n" +
                                "\n".join(f"{name:<14} {e.about}" for name, e in MORE.items()))
    p.add_argument("what", nargs="+", choices=[*MATRICES, *MORE, "report"], metavar="WHAT",
                   help=f"short, long, report (tables and plots of what is there), {', '.join(MORE)}")
    p.add_argument("--only", type=words, default=[], metavar="TOOL,..", help="these tools, or cases of the others")
    p.add_argument("--settings", type=words, default=[], metavar="SETTING,..", help="these settings")
    p.add_argument("--sizes", type=lambda t: [int(x) for x in words(t)], default=[], metavar="MB,..",
                   help="these sizes, in million bytes")
    p.add_argument("--repeats", type=int, default=0, metavar="N")
    p.add_argument("--resume", action="store_true", help="go on where it was interrupted: what is measured is not measured again")
    p.add_argument("--out", type=pathlib.Path, metavar="DIR", help="where the results go [bench/results/experiment-WHAT]")
    p.add_argument("--data", type=pathlib.Path, metavar="DIR", help="where the nodes' data is, for tree and loopback [in memory]")
    p.add_argument("--files", type=int, default=1_000_000, metavar="N", help="files of which manifest is about")
    return p


def wrong(a: argparse.Namespace) -> str | None:
    """The names that do not exist."""
    cases = [case for e in MORE.values() for case in e.cases]
    for given, known in ((a.only, [*TOOLS, *cases]), (a.settings, SETTINGS)):
        for name in given:
            if name not in known:
                return f"no {name!r}: wanted {', '.join(known)}"
    return None


def write(results: Results) -> None:
    """The tables and the plots beside the results."""
    folder = results.folder
    tables = [table.markdown(results.rows)] if any("tool" in r for r in results.rows) else []
    tables += [e.table([r for r in results.rows if r.get("experiment") == name]) for name, e in MORE.items()]
    (folder / "results.md").write_text("\n".join(t for t in tables if t))
    plots = plot.all_of(results.rows) | figures.all_of([r for r in results.rows if r.get("experiment") == "cached"])
    for name, svg in plots.items():
        (folder / name).write_text(svg)
    runner.say(f"\n{folder / 'results.md'}" + (f" and {len(plots)} plots" if plots else ""))


def main(argv: list[str]) -> int:
    a = parser().parse_args(argv)
    if mistake := wrong(a):
        print(f"lab experiment: {mistake}", file=sys.stderr)
        return 2
    if os.geteuid() and a.what != ["report"]:
        print("lab experiment: network namespaces need root", file=sys.stderr)
        return 2
    unfinished = 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # `timeout` too leaves nothing behind
    try:
        for what in a.what:
            results = Results(a.out or ROOT / f"bench/results/experiment-{what}", a.resume or what == "report")
            if what in MATRICES:
                wishes = matrix.chosen(MATRICES[what](), a.only, a.settings, a.sizes, a.repeats)
                try:
                    unfinished += runner.run(wishes, results)
                finally:
                    write(results)
            elif what in MORE:
                try:
                    unfinished += MORE[what].run(results, a)
                finally:
                    write(results)
            else:
                write(results)
    except (Failed, LabError, TopologyError) as e:
        print(f"lab experiment: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nlab experiment: interrupted; --resume goes on", file=sys.stderr)
        return 3
    return int(bool(unfinished))
