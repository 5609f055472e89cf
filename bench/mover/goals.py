"""The goals of `tidecast copy` beside the others, and whether it meets them."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

SMALL, LARGE = ("1KB", "10KB"), ("10MB", "1GB")
ALIKE = 1.05  # rates of different sizes of files over a long link: the highest over the lowest
MEMORY = 64 + 64  # MiB of an end: its pool of blocks, and everything else


@dataclass(frozen=True)
class Goal:
    """In these sets, `ours` has at least `factor` times the rate of `rival`; with `cpu`, needs at most `factor` times its CPU seconds."""
    sets: tuple[str, ...]
    ours: str
    factor: float
    rival: str
    cpu: bool = False


LOOPBACK = (
    Goal(LARGE, "tidecast-plain", 0.9, "iperf3-file"), Goal(LARGE, "tidecast", 0.9, "iperf3-file"),
    Goal(SMALL, "tidecast-plain", 4, "rsync-daemon"), Goal(SMALL, "tidecast", 3, "rsync-daemon"),
    Goal(SMALL, "tidecast-plain", 1, "tar-socat"), Goal(SMALL, "tidecast", 1, "tar-socat"),
    Goal(SMALL, "tidecast-plain", 1.15, "floor-plain-final", cpu=True), Goal(SMALL, "tidecast", 1.15, "floor-tls-final", cpu=True),
    Goal(SMALL + LARGE, "tidecast-plain", 1, "rsync-daemon", cpu=True), Goal(SMALL + LARGE, "tidecast", 1 / 3, "rsync-ssh", cpu=True))


def verdicts(cells: dict[tuple[str, str], dict[str, dict]], links: dict[str, float]) -> Iterator[tuple[bool, str]]:
    """For all goals with both sides measured: whether the goal is met, and the reached value."""
    for (place, name), rivals in cells.items():
        if place == "loopback":
            yield from near(name, rivals)
        elif place in links:
            yield from far(place, name, rivals, links[place])
        for ours in ("tidecast", "tidecast-plain"):
            if ours in rivals:
                peak = max(rivals[ours]["near_rss"], rivals[ours]["far_rss"]) / (1 << 20)
                yield peak <= MEMORY, f"{place}, {name}: {ours} has {peak:.0f} MiB in memory (at most {MEMORY})"
    for place in links:
        for ours in ("tidecast", "tidecast-plain"):
            rates = [rate(rivals[ours]) for (where, name), rivals in cells.items() if where == place != "loopback" and ours in rivals and name not in SMALL]
            if len(rates) > 1:
                apart = max(rates) / min(rates)
                yield apart <= ALIKE, f"{place}: {ours}: sizes apart by {apart - 1:.1%} (at most {ALIKE - 1:.0%})"


def near(name: str, rivals: dict[str, dict]) -> Iterator[tuple[bool, str]]:
    for goal in LOOPBACK:
        if name not in goal.sets or goal.ours not in rivals or goal.rival not in rivals:
            continue
        ours, other = rivals[goal.ours], rivals[goal.rival]
        reached = ours["cpu"] / other["cpu"] if goal.cpu else rate(ours) / rate(other)
        text = f"loopback, {name}: {goal.ours} has {reached:.2f} x {'the CPU seconds' if goal.cpu else 'the rate'} of {goal.rival}"
        yield (reached <= goal.factor if goal.cpu else reached >= goal.factor), f"{text} (at {'most' if goal.cpu else 'least'} {goal.factor:.3g})"


def far(place: str, name: str, rivals: dict[str, dict], link: float) -> Iterator[tuple[bool, str]]:
    """Beside the link; for small files, beside the rate at which this machine creates small files if that is lower."""
    bound, what = link, "the link"
    if name in SMALL and "cp-parallel" in rivals and rate(rivals["cp-parallel"]) < link:
        bound, what = rate(rivals["cp-parallel"]), "a local copy"
    factor = 0.8 if place.endswith("-loss") else 0.93
    for ours in ("tidecast", "tidecast-plain"):
        if ours in rivals:
            reached = rate(rivals[ours]) / bound
            yield reached >= factor, f"{place}, {name}: {ours} has {reached:.3f} of {what} (at least {factor})"


def rate(cell: dict) -> float:
    return cell["bytes"] / cell["seconds"]
