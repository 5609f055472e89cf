"""The deviation from the requested rate, and the loss at four fifths of the receiver's maximum.

The rate is that of UDP payload, as the sender counts it over its own seconds; the receiver's count of packets confirms it.
"""
import statistics

from bench.field.ends import Place, lost, window
from bench.field.peak import RATES


def measure(place: Place, source, repeats: int, seconds: float, most: float) -> list[dict]:
    """At 100 Mbit/s, 1 Gbit/s, four fifths of `most` (bits a second), the highest of the rates tried that is within it, and all of it, where
    nothing is left to make up for anything."""
    results, highest = [], max(rate * 1e9 for rate in RATES if rate * 1e9 <= max(most, 1e9 * RATES[0]))
    for name, asked in {"100 Mbit/s": 1e8, "1 Gbit/s": 1e9, "4/5 of the maximum": 0.8 * most, "the highest reached": highest,
                        "the maximum": most}.items():
        rates, losses = [], []
        for _ in range(repeats):
            seen = window(place, source, 1, seconds, ("--cpus", "1"), ("--rate", f"{asked / 1e6:.3f}mbit", "--cpus", "0"))
            rates.append(seen.sender["rate"])
            losses.append(lost(seen.came) if seen.came else 1.0)
        rate, loss = statistics.median(rates), statistics.median(losses)
        results.append({"asked": asked, "rate": rate, "loss": loss, "losses": losses})
        print(f"{name:19} {asked / 1e6:9.1f} Mbit/s asked, {rate / 1e6:9.1f} achieved ({rate / asked - 1:+.2%}), {loss:.3%} lost "
              f"(at worst {max(losses):.3%})")
    return results

