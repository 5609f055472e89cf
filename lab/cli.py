"""The command line of the lab: `lab COMMAND`, one line of usage each (README.md has the manual)."""
from __future__ import annotations

import argparse
import json
import sys

from . import build, counters, faults, netns, run, state
from .forms import parse
from .netns import LabError
from .units import TopologyError

USAGE = """an emulated cluster in network namespaces

  lab up TOPOLOGY [--cc cubic]      single:16@100mbit  bordeaux:32,25,7@20mbit[,bottleneck=R,trunk=R,delay=T,loss=P]
                                    nat:8@100mbit (node 0 outside)  sites:8,8,8@1gbit,wan=100mbit,delay=10ms
                                    more forms in README.md  or a file
  lab exec NODE -- COMMAND..        on one node (number, n003 or address), in place of this process
  lab each [--nodes 0,3-5] [--timeout S] [--logs DIR] [--json] -- COMMAND..
                                    on all at once; {n} {ip} {name} {root} {N} are filled in
  lab counters                      JSON: bytes across each link and of each node
  lab cut NODE|LINK                 silently: packets vanish, nobody is told        lab heal [NODE|LINK]
  lab slow NODE RATE                another rate for a node; heal puts it back
  lab status | hosts | topology TOPOLOGY | down
  lab experiment short|long|..      broadcasts by Tidecast and others, compared (experiments/README.md)
"""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="lab", description=USAGE, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = p.add_subparsers(dest="command", required=True)

    def add(name: str, *words: str) -> argparse.ArgumentParser:
        q = sub.add_parser(name)
        for word in words:
            q.add_argument(word)
        return q

    add("up", "topology").add_argument("--cc", default="cubic", help="TCP congestion control of every node")
    add("exec", "node").add_argument("argv", nargs=argparse.REMAINDER)
    each = add("each")
    each.add_argument("--nodes")
    each.add_argument("--timeout", type=float)
    each.add_argument("--logs")
    each.add_argument("--json", action="store_true")
    each.add_argument("argv", nargs=argparse.REMAINDER)
    add("cut", "what")
    add("slow", "node", "rate")
    add("heal").add_argument("what", nargs="?")
    add("topology", "topology")
    for name in ("counters", "status", "hosts", "down"):
        add(name)
    return p


def print_each(results: list[dict], as_json: bool) -> None:
    if as_json:
        print(json.dumps(results))
        return
    for r in results:
        print(f"n{r['n']:03d} rc={r['rc']} wall={r['wall']:.3f} cpu={r['cpu']:.3f} rss={r['rss_kib'] >> 10}MiB")
    walls = sorted(r["wall"] for r in results)
    good = sum(r["rc"] == 0 for r in results)
    print(f"max {walls[-1]:.3f} median {walls[len(walls) // 2]:.3f} min {walls[0]:.3f}, {good} of {len(results)} rc=0")


def act(a: argparse.Namespace) -> int:
    lab = state.lab_name()
    argv = getattr(a, "argv", None)
    if argv is not None:
        argv = argv[1:] if argv[:1] == ["--"] else argv
        if not argv:
            raise LabError(f"lab {a.command}: no command given after --")
    match a.command:
        case "up":
            topology = parse(a.topology)
            build.up(lab, topology, a.cc)
            print(f"up: {len(topology.nodes)} nodes on {len(topology.switches)} switches")
        case "down":
            build.down(lab)
            print(f"down: left {netns.of_lab(lab) or 'nothing'}")
        case "exec":
            run.execute(lab, a.node, argv)
        case "each":
            topology, _ = state.load(lab)
            results = run.each(lab, argv, run.pick(a.nodes, len(topology.nodes)), a.timeout, a.logs)
            print_each(results, a.json)
            return int(any(r["rc"] for r in results))
        case "counters":
            print(json.dumps(counters.read(lab)))
        case "cut":
            faults.cut(lab, a.what)
        case "heal":
            faults.heal(lab, a.what)
        case "slow":
            faults.slow(lab, a.node, a.rate)
        case "status":
            print(json.dumps(faults.describe(lab), indent=1))
        case "hosts":
            topology, _ = state.load(lab)
            print("\n".join(topology.address(n) for n in range(len(topology.nodes))))
        case "topology":
            print(parse(a.topology).to_text(), end="")
    return 0


def main() -> int:
    if sys.argv[1:2] == ["experiment"]:  # a command line of its own
        from .experiments import cli
        return cli.main(sys.argv[2:])
    a = parser().parse_args()
    try:
        return act(a)
    except (LabError, TopologyError) as e:
        print(f"lab: {e}", file=sys.stderr)
        return 1
