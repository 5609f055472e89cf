"""Which cells the two matrices have. The short one ends within half an hour; the long one is the paper's figures, and more."""
from __future__ import annotations

from .results import Cell
from .runner import Wish
from .settings import SETTINGS
from .tools import TOOLS

SIZES = [1, 5, 10, 50, 100, 239]  # MB, the paper's
REPEATS = 3
PLANNED = ["tidecast", "tidecast-auto"]
CLIENTS = ["ctorrent", "aria2", "libtorrent"]

#: Setting, size, tools that are repeated, tools that run once.
SHORT = [
    ("one16", 50, [*PLANNED, "ompi-pipe"], ["tidecast-swarm", "ompi-ring", "ompi-binomial", "sbcast", *CLIENTS, "udpcast"]),
    ("site16", 50, [*PLANNED, "ompi-pipe"], ["tidecast-swarm", "ompi-ring", *CLIENTS]),
    ("site16-shuffled", 50, PLANNED, ["ompi-pipe", "ompi-ring"]),
    ("site16-delay", 50, [], [*PLANNED, "ompi-pipe"]),
    ("one64", 10, [*PLANNED, "ompi-pipe"], ["ctorrent", "libtorrent"]),
    ("site64", 10, [*PLANNED], ["ompi-pipe", *CLIENTS]),
    ("site64-shuffled", 10, [], [*PLANNED, "ompi-pipe"]),
]

#: In the long matrix only by name: slow, or hardly another figure than one that is there.
SPARED = {"tidecast-plain", "mpich", "mpich-ring", "sbcast-fanout4"}


def short() -> list[Wish]:
    return [Wish(Cell(setting, tool, mb), times)
            for setting, mb, often, seldom in SHORT for tools, times in ((often, REPEATS), (seldom, 1)) for tool in tools]


def long() -> list[Wish]:
    """All tools; in settings that change only the order of hosts, only the tools that use the order."""
    return [Wish(Cell(s.name, t.name, mb), REPEATS) for s in SETTINGS.values() for t in TOOLS.values() for mb in SIZES
            if t.name not in SPARED and (t.ordered or not s.shuffled)]


def chosen(wishes: list[Wish], tools: list[str], settings: list[str], sizes: list[int], repeats: int) -> list[Wish]:
    """The matrix with other tools, settings, sizes or repeats, where any are named."""
    made = []
    for setting in settings or unique(w.cell.setting for w in wishes):
        here = [w for w in wishes if w.cell.setting == setting]
        times = {w.cell.tool: w.repeats for w in here}
        for tool in tools or times or unique(w.cell.tool for w in wishes):
            if TOOLS[tool].ordered or not SETTINGS[setting].shuffled:
                made += [Wish(Cell(setting, tool, mb), repeats or times.get(tool, 1))
                         for mb in sizes or unique(w.cell.mb for w in here) or SIZES]
    return made


def unique(items) -> list:
    return list(dict.fromkeys(items))
