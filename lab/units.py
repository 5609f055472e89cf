"""Rates, delays, chances and sizes as people write them. Exact: computed without floats, rounded down to the unit."""
from __future__ import annotations

import re

MIN_RATE, MAX_RATE = 8_000, 1_000_000_000_000  # bits per second


class TopologyError(ValueError):
    """The text names no topology, or one that the lab cannot build; the message has the expected form."""


def decimal(text: str, scale: int) -> int:
    """`digits` or `digits.digits` times `scale`; -1 where it is no such number."""
    m = re.fullmatch(r"([0-9]{1,13})(?:\.([0-9]{1,9}))?", text)
    behind = m and m[2] or ""
    return int(m[1] + behind) * scale // 10 ** len(behind) if m else -1


def rate(text: str) -> int:
    """Bits per second of `40mbit`, `1.5gbit`, `9600bit`, `10Gbps`, `125MB/s`: the spellings that crate `text` takes."""
    m = re.fullmatch(r"([0-9.]+) *(?:(?i:([kmgtp]i?)?(?:(bit)s?|(byte)s?))|((?i:[kmgtp]i?))?([bB]))((?i:/s|/sec|/second)|(?i:ps))?", text.strip())
    bits = -1
    if m:
        prefix, capital, per = (m[2] or m[5] or ""), (m[5] or "").lower() != (m[5] or ""), m[7] or ""
        byte = m[4] or m[6] == "B"
        told = m[3] or (per and not (per == "PS" and m[6] == "B") if byte else capital or per.lower() == "ps")
        if told and not (per.lower() == "ps" and (m[3] or m[4])):
            power = " kmgtp".index(prefix[:1].lower() or " ")
            bits = decimal(m[1], (1024 if len(prefix) == 2 else 1000) ** power * (8 if byte else 1))
    if not MIN_RATE <= bits <= MAX_RATE:
        raise TopologyError(f"bad rate {text!r}: wanted for example 40mbit (8kbit to 1000gbit)")
    return bits


def format_rate(bits: int) -> str:
    for unit, scale in (("g", 10**9), ("m", 10**6), ("k", 10**3)):
        if bits % scale == 0:
            return f"{bits // scale}{unit}bit"
    return f"{bits}bit"


def delay(text: str) -> int:
    """Microseconds of `10ms`, `250us`, `1s`; at most ten seconds."""
    m = re.fullmatch(r"(.*?)(us|ms|s)", text)
    us = decimal(m[1], {"us": 1, "ms": 10**3, "s": 10**6}[m[2]]) if m else -1
    if not 0 <= us <= 10_000_000:
        raise TopologyError(f"bad delay {text!r}: wanted for example 10ms (at most 10s)")
    return us


def chance(text: str) -> float:
    """A probability, `0.1%` or `0.001`, in whole parts per million."""
    ppm = decimal(text[:-1], 10_000) if text.endswith("%") else decimal(text, 1_000_000)
    if not 0 <= ppm < 1_000_000:
        raise TopologyError(f"bad probability {text!r}: wanted for example 0.1% (below 100%)")
    return ppm / 1_000_000


def format_chance(p: float) -> str:
    return f"{p:.6f}".rstrip("0")


def size(text: str) -> int:
    """Bytes of `65536`, `64k`, `2m`."""
    m = re.fullmatch(r"([0-9]{1,13})([km]?)", text.lower())
    n = int(m[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20}[m[2]] if m else 0
    if not 3000 <= n <= 1 << 30:
        raise TopologyError(f"bad queue {text!r}: wanted bytes, for example 256k (3000 to 1024m)")
    return n


def ratio(text: str) -> int:
    """Millionths of a ratio, `3` or `2.5`."""
    millionths = decimal(text, 1_000_000)
    if not 1_000 <= millionths <= 1_000_000_000:
        raise TopologyError(f"bad ratio {text!r}: wanted for example 2.5 (0.001 to 1000)")
    return millionths


def count(text: str) -> int:
    """A number of nodes, links or switches; 0 if it is not a number."""
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,5}", text) else 0
