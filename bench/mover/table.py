"""The tables: medians of runs, beside the rsync daemon and the place's maximum."""
from __future__ import annotations

import json
import pathlib
import statistics

from bench.mover import goals

GIB, MIB = 1 << 30, 1 << 20
# Unencrypted: beside the floor without a cipher.
PLAIN = ("tidecast-plain", "floor-plain", "floor-plain-final", "rsync-daemon", "tar-socat", "cp-parallel")


def read(paths: list[pathlib.Path]) -> list[dict]:
    return [json.loads(text) for path in paths for text in path.read_text().splitlines()]


def line(row: dict) -> str:
    """The line printed after a run."""
    if row["rival"] == "link":
        return f"{row['place']}: {row['bytes_per_second'] / 1e6:.0f} MB/s by iperf3 {row['iperf3']}"
    head = f"{row['place']:<10} {row['set']:<5} {row['rival']:<15}"
    if "failed" in row:
        return f"{head} failed: {row['failed'].strip()[:1000]}"
    if "done_bytes" in row:
        return f"{head} over after {row['seconds']:.0f} s: {row['done_files']} of {row['files']} files, {row['done_bytes'] / row['bytes']:.1%} of the bytes"
    return (f"{head} {row['seconds']:8.2f} s {row['bytes'] / row['seconds'] / 1e6:7.0f} MB/s {row['files'] / row['seconds']:8.0f} files/s"
            f" cpu {row['cpu']:6.2f} s, the link's {row['link_cpu']:.2f}, others {row['others_cpu']:.2f}, idle {row['idle']:.0%}")


def medians(rows: list[dict]) -> dict[tuple[str, str], dict[str, dict]]:
    """By place and set, then by rival: the medians of complete copies; for incomplete ones, the rate until their end."""
    cells: dict[tuple[str, str], dict[str, list[dict]]] = {}
    for row in rows:
        if "set" in row and "failed" not in row:
            cells.setdefault((row["place"], row["set"]), {}).setdefault(row["rival"], []).append(row)
    return {key: {rival: summary(runs) for rival, runs in rivals.items()} for key, rivals in cells.items()}


def summary(runs: list[dict]) -> dict:
    whole = [run for run in runs if "done_bytes" not in run] or runs
    part = max(min(run.get("done_bytes", run["bytes"]) / run["bytes"] for run in whole), 1e-9)
    middle = {key: statistics.median(run[key] for run in whole) for key in ("seconds", "cpu", "near_rss", "far_rss", "others_cpu", "link_cpu")}
    seconds = middle["seconds"] / part
    spread = (max(run["seconds"] for run in whole) - min(run["seconds"] for run in whole)) / middle["seconds"]
    return {**middle, "seconds": seconds, "cpu": middle["cpu"] / part, "spread": spread, "runs": len(whole), "whole": part == 1,
            "bytes": whole[0]["bytes"], "files": whole[0]["files"]} | {key: whole[-1][key] for key in ("modes", "times") if key in whole[-1]}


def table(rows: list[dict]) -> str:
    links = {row["place"]: row["bytes_per_second"] for row in rows if row["rival"] == "link"}
    out = []
    found = medians(rows)
    for (place, name), rivals in found.items():
        any_ = next(iter(rivals.values()))
        title = f"{place}, {name}: {any_['files']} files, {any_['bytes'] / 1e6:.0f} MB, medians of up to {max(r['runs'] for r in rivals.values())}"
        out += ["", title + (f"; the link carries {links[place] / 1e6:.1f} MB/s" if place in links else ""),
                f"  {'':<18}{'s':>9} {'+-':>5} {'MB/s':>7} {'files/s':>8} {'of link':>8} {'x rsync-d':>9} {'x floor':>7} {'its cpu':>7} {'cpu s/GiB':>9} {'MiB near':>8} {'far':>6} {'kept':>9}"]
        out += [cells(rival, r, links.get(place), rivals.get("rsync-daemon"), rivals.get(floor_of(rival))) for rival, r in sorted(rivals.items(), key=lambda item: item[1]["seconds"])]
    failed = sorted({(row["place"], row["set"], row["rival"]) for row in rows if "failed" in row})
    out += [f"failed: {' '.join(which)}" for which in failed]
    if verdicts := list(goals.verdicts(found, links)):
        out += ["", f"{sum(met for met, _ in verdicts)} of {len(verdicts)} goals", *(f"  {'met   ' if met else 'MISSED'} {text}" for met, text in verdicts)]
    return "\n".join(out)


def floor_of(rival: str) -> str:
    """The minimum for a copy of such small files with the same protection."""
    return "floor-plain-final" if rival in PLAIN else "floor-tls-final"


def cells(rival: str, r: dict, link: float | None, rsync: dict | None, floor: dict | None) -> str:
    rate = r["bytes"] / r["seconds"]
    kept = ("modes " if r["modes"] else "") + (r["times"] if r["times"] != "no" else "") if "modes" in r else ""
    beside = [f"{rate / link:8.2f}" if link else " " * 8, f"{rsync['seconds'] / r['seconds']:9.2f}" if rsync else " " * 9,
              f"{r['seconds'] / floor['seconds']:7.2f} {r['cpu'] / floor['cpu']:7.2f}" if floor else " " * 15]
    return (f"  {rival:<18}{'' if r['whole'] else '>'}{r['seconds']:{9 if r['whole'] else 8}.2f} {r['spread']:5.0%} {rate / 1e6:7.0f} {r['files'] / r['seconds']:8.0f} "
            f"{' '.join(beside)} {r['cpu'] / (r['bytes'] / GIB):9.2f} {r['near_rss'] / MIB:8.0f} {r['far_rss'] / MIB:6.0f} {kept:>9}")
