"""The plots: mean stage-in time by nodes (the paper's figure 3), how the jobs' times are spread (4), total by jobs (5)."""
from __future__ import annotations

from ..plot import COLOURS, line, svg, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 70, 200, 50, 50
BINS = 40


def all_of(rows: list[dict]) -> dict[str, str]:
    """Every plot for which there is something to show, by file name."""
    rows = [row for row in rows if "mean" in row and row["case"].count("-") == 2]
    by = {tuple(row["case"].split("-")): row for row in rows}
    plots = {}
    for net, title in (("open", "one network"), ("nat", "the origin before a NAT")):
        lines = curves(by, net, "mean")
        if any(len(points) > 1 for points in lines.values()):
            plots[f"figure-3-{net}.svg"] = drawn(lines, f"100 jobs stage in at once, {title}", "distinct nodes", "mean stage-in, s")
    lines = curves(by, "jobs", "total")
    if any(len(points) > 1 for points in lines.values()):
        plots["figure-5.svg"] = drawn(lines, "jobs on 50 nodes of one slot", "jobs", "total stage-in, s")
    spread = {way: by["open", way, "25"]["seconds"] for way in ("swarm", "direct") if ("open", way, "25") in by}
    if spread:
        plots["figure-4.svg"] = histogram(spread, "100 jobs on 25 nodes: how long each waits", "stage-in, s", "jobs")
    return plots


def curves(by: dict, net: str, key: str) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for (kind, way, number), row in by.items():
        if kind == net:
            found.setdefault(way, []).append((float(number), row[key]))
    return {way: sorted(points) for way, points in found.items()}


class Axis:
    """From 0 to a round number at or above the greatest value."""

    def __init__(self, most: float, start: float, end: float):
        step = next(m * 10.0 ** e for e in range(-3, 7) for m in (1, 2, 5) if m * 10.0 ** e * 6 >= most)
        self.ticks = [step * i for i in range(int(most / step - 1e-9) + 2)]
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        return self.start + (self.end - self.start) * value / self.ticks[-1]


def frame(x: Axis, y: Axis, title: str, below: str, beside: str) -> list[str]:
    parts = [text(LEFT, 24, title, size=15), text(12, TOP - 12, beside), text((x.start + x.end) / 2, HEIGHT - 12, below, anchor="middle")]
    for tick in x.ticks:
        parts += [line(x.at(tick), y.start, x.at(tick), y.end), text(x.at(tick), y.start + 18, f"{tick:g}", anchor="middle")]
    for tick in y.ticks:
        parts += [line(x.start, y.at(tick), x.end, y.at(tick)), text(x.start - 8, y.at(tick) + 4, f"{tick:g}", anchor="end")]
    return parts


def drawn(lines: dict[str, list[tuple[float, float]]], title: str, below: str, beside: str) -> str:
    points = [point for each in lines.values() for point in each]
    x = Axis(max(p[0] for p in points), LEFT, WIDTH - RIGHT)
    y = Axis(max(p[1] for p in points), HEIGHT - BOTTOM, TOP)
    parts = frame(x, y, title, below, beside)
    for row, (name, each) in enumerate(lines.items()):
        colour, at = COLOURS[row], [(x.at(a), y.at(b)) for a, b in each]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in at]
        parts += key(x, row, colour, name)
    return svg(WIDTH, HEIGHT, parts)


def histogram(values: dict[str, list[float]], title: str, below: str, beside: str) -> str:
    x = Axis(max(max(each) for each in values.values()), LEFT, WIDTH - RIGHT)
    width = x.ticks[-1] / BINS
    bins = {name: [sum(int(v / width) == b for v in each) for b in range(BINS)] for name, each in values.items()}
    y = Axis(max(max(each) for each in bins.values()), HEIGHT - BOTTOM, TOP)
    parts = frame(x, y, title, below, beside)
    for row, (name, each) in enumerate(bins.items()):
        for b, count in enumerate(each):
            if count:
                left, top = x.at(b * width), y.at(count)
                parts.append(f'<rect x="{left:.1f}" y="{top:.1f}" width="{x.at(width) - LEFT:.1f}" height="{y.start - top:.1f}" '
                             f'fill="{COLOURS[row]}" fill-opacity="0.7"/>')
        parts += key(x, row, COLOURS[row], name)
    return svg(WIDTH, HEIGHT, parts)


def key(x: Axis, row: int, colour: str, name: str) -> list[str]:
    at = TOP + 20 * row
    about = {"swarm": "swarm", "direct": "DIRECT", "condor": "HTCondor's transfer"}.get(name, name)
    return [line(x.end + 16, at, x.end + 36, at, colour, 3), text(x.end + 42, at + 4, about)]
