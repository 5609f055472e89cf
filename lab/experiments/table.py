"""Results as Markdown: for each size a table with a row for each tool and a column for each setting."""
from __future__ import annotations

from .results import Cell, cells
from .settings import SETTINGS
from .tools import TOOLS

HEAD = """\
Multiples of the bound: seconds from all workers ready until the slowest node has all, verified byte for byte, over
size / goodput of one TCP flow on the same links. In brackets the copies of the data that crossed the bottleneck, there and
back, as the switches counted them (headers included). Medians. `*`: less than 10% of the CPU was idle in a run, so that
the figure may be the machine's; `>`: still at it when its time was over; `-`: not measured. The second table of each size has
the seconds: ready, and the whole command.
"""


def markdown(rows: list[dict]) -> str:
    found = cells(rows)
    parts = [HEAD]
    for mb in sorted({c.mb for c in found}):
        here = {c: s for c, s in found.items() if c.mb == mb}
        columns = [s for s in SETTINGS if any(c.setting == s for c in here)]
        tools = [t for t in TOOLS if any(c.tool == t for c in here)]
        parts.append(f"## {mb} MB\n\n" + grid(here, mb, columns, tools, multiple))
        parts.append(grid(here, mb, columns, tools, seconds))
    parts.append(bounds(rows))
    return "\n".join(parts)


def grid(found: dict[Cell, dict], mb: int, columns: list[str], tools: list[str], show) -> str:
    lines = ["| tool | " + " | ".join(SETTINGS[c].name for c in columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for tool in tools:
        shown = [show(found.get(Cell(c, tool, mb)), SETTINGS[c].bottleneck) for c in columns]
        lines.append(f"| {TOOLS[tool].about} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def multiple(result: dict | None, link: str | None) -> str:
    """`1.10 [1.05 0.00]`."""
    if not result:
        return "-"
    if "x" not in result:
        return f"> {result['limit_x']:.0f}" if "ended" in result else "failed"
    copies = " [{:.2f} {:.2f}]".format(*result["links"][link]) if link else ""
    return f"{result['x']:.2f}{'*' if result.get('busy') else ''}{copies}"


def seconds(result: dict | None, _link: str | None) -> str:
    return "-" if not result or "ready" not in result else f"{result['ready']:.2f}, {result['whole']:.2f}"


def bounds(rows: list[dict]) -> str:
    """The goodput of each setting's links, as measured in the runs."""
    lines = ["| setting | what it is | goodput, Mbit/s |", "|---|---|---|"]
    for name, setting in SETTINGS.items():
        rates = sorted(r["goodput"] for r in rows if r.get("setting") == name and "goodput" in r)
        if rates:
            lines.append(f"| {name} | {setting.about} | {rates[len(rates) // 2] * 8 / 1e6:.2f} |")
    return "\n".join(lines) + "\n"
