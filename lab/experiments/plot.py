"""The paper's figures 3, 4 and 5 of our results, as SVG: time against size; and the traffic of each switch and link."""
from __future__ import annotations

import math
from collections import defaultdict
from xml.sax.saxutils import escape

from .results import Cell, cells
from .settings import SETTINGS
from .tools import TOOLS

COLOURS = ["#0b6e99", "#d1495b", "#edae49", "#66a182", "#6a4c93", "#2e4057", "#a0522d", "#8d99ae", "#c71585", "#556b2f"]
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 460, 70, 50, 250, 50


def all_of(rows: list[dict]) -> dict[str, str]:
    """Every plot for which there is something to show, by file name."""
    found = {c: r for c, r in cells(rows).items() if "ready" in r}
    plots = {}
    for setting in SETTINGS.values():
        here = {c: r for c, r in found.items() if c.setting == setting.name}
        sizes = {c.mb for c in here}
        if len(sizes) > 1:
            plots[f"time-{setting.name}.svg"] = times(here, setting.about)
        if sizes and setting.bottleneck:
            plots[f"flow-{setting.name}.svg"] = flow(here, max(sizes), setting.about)
    return plots


def svg(width: float, height: float, parts: list[str]) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            'font-family="sans-serif" font-size="12">\n'
            '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n")


def text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = "black", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" font-size="{size}">{escape(words)}</text>'


def line(x: float, y: float, to_x: float, to_y: float, colour: str = "#ddd", width: float = 1) -> str:
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" stroke="{colour}" stroke-width="{width}"/>'


def decades(least: float, most: float) -> list[float]:
    """1, 2, 5, 10.. from at or below `least` to at or above `most`."""
    steps = [m * 10.0 ** e for e in range(-3, 6) for m in (1, 2, 5)]
    first = max((s for s in steps if s <= least), default=steps[0])
    last = min((s for s in steps if s >= most), default=steps[-1])
    return [s for s in steps if first <= s <= last]


class Axis:
    """A logarithmic axis from `start` to `end` (pixels)."""

    def __init__(self, values: list[float], start: float, end: float):
        self.ticks = decades(min(values), max(values))
        self.start, self.end = start, end

    def at(self, value: float) -> float:
        low, high = math.log(self.ticks[0]), math.log(self.ticks[-1])
        return self.start + (self.end - self.start) * (math.log(value) - low) / (high - low or 1)


def times(found: dict[Cell, dict], title: str) -> str:
    """Seconds until the slowest node has all, against size; both logarithmic. Grey: the bound."""
    lines: dict[str, dict[int, float]] = defaultdict(dict)
    for cell, result in found.items():
        lines[TOOLS[cell.tool].about][cell.mb] = result["ready"]
        lines["size / goodput of one flow"][cell.mb] = result["bound"]
    x = Axis([mb for by in lines.values() for mb in by], LEFT, WIDTH - RIGHT)
    y = Axis([s for by in lines.values() for s in by.values()], HEIGHT - BOTTOM, TOP)
    parts = [text(LEFT, 24, title, size=15), text(12, TOP - 12, "seconds"),
             text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "MB", anchor="middle")]
    for tick in x.ticks:
        parts += [line(x.at(tick), y.start, x.at(tick), y.end), text(x.at(tick), y.start + 18, f"{tick:g}", anchor="middle")]
    for tick in y.ticks:
        parts += [line(x.start, y.at(tick), x.end, y.at(tick)), text(x.start - 8, y.at(tick) + 4, f"{tick:g}", anchor="end")]
    colours = iter(COLOURS * 2)
    order = [t.about for t in TOOLS.values()]
    for row, name in enumerate(sorted(lines, key=lambda n: order.index(n) if n in order else -1)):
        colour = next(colours) if name in order else "#999"
        points = [(x.at(mb), y.at(seconds)) for mb, seconds in sorted(lines[name].items())]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
        key = TOP + 20 * row
        parts += [line(x.end + 16, key, x.end + 36, key, colour, 3), text(x.end + 42, key + 4, name)]
    return svg(WIDTH, HEIGHT, parts)


def flow(found: dict[Cell, dict], mb: int, title: str) -> str:
    """The switches in a row and the links between them: below each switch the bytes that its nodes sent, at each link its traffic."""
    shown = [(TOOLS[c.tool].about, r) for c, r in sorted(found.items(), key=lambda f: list(TOOLS).index(f[0].tool)) if c.mb == mb]
    switches, links = list(shown[0][1]["switches"]), list(shown[0][1]["links"])
    step, box, top, row = 220, 90, 110, 18
    parts = [text(20, 24, f"{title}, {mb} MB to each", size=15),
             text(20, 44, "MB that the nodes of each switch sent, and that crossed each link")]
    middle = {name: 360 + step * i for i, name in enumerate(switches)}
    bottom = top + row * len(shown) + 20
    for name, at in middle.items():
        parts.append(f'<rect x="{at - box / 2}" y="{top - 34}" width="{box}" height="{bottom - top + 34}" '
                     'fill="#f3f6f8" stroke="#2e4057"/>')
        parts.append(text(at, top - 14, name, anchor="middle"))
    for name in links:
        a, b = (middle[end] for end in name.split("-"))
        parts += [line(a + box / 2, top - 18, b - box / 2, top - 18, "#2e4057", 3),
                  text((a + b) / 2, top - 26, "both ways", anchor="middle")]
    for i, (about, result) in enumerate(shown):
        y, colour = top + 10 + row * i, COLOURS[i % len(COLOURS)]
        parts.append(text(20, y, about, colour=colour))
        parts += [text(middle[s], y, f"{result['switches'][s] * mb:,.0f}", anchor="middle", colour=colour) for s in switches]
        for link in links:
            at = sum(middle[end] for end in link.split("-")) / 2
            parts.append(text(at, y, f"{sum(result['links'][link]) * mb:,.0f}", anchor="middle", colour=colour))
    return svg(360 + step * len(switches) - step / 2, bottom + 20, parts)
