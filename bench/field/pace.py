"""How near the rate that is asked is met, and what is lost at four fifths of the receiver's maximum.

The rate is that of UDP payload, as the sender counts it over its own seconds; the receiver's count of packets says whether that is so.
"""
import statistics

from bench.field.ends import Place, lost, window


def measure(place: Place, source, repeats: int, seconds: float, most: float) -> list[dict]:
    """At 100 Mbit/s, 1 Gbit/s, four fifths of `most` (bits a second), and all of it."""
    results = []
    for name, asked in {"100 Mbit/s": 1e8, "1 Gbit/s": 1e9, "4/5 of the maximum": 0.8 * most, "the maximum": most}.items():
        rates, losses = [], []
        for _ in range(repeats):
            seen = window(place, source, 1, seconds, ("--cpus", "1"), ("--rate", f"{asked / 1e6:.3f}mbit", "--cpus", "0"))
            rates.append(seen.sender["rate"])
            losses.append(lost(seen.came) if seen.came else 1.0)
        rate, loss = statistics.median(rates), statistics.median(losses)
        results.append({"asked": asked, "rate": rate, "loss": loss, "losses": losses})
        print(f"{name:18} {asked / 1e6:9.1f} Mbit/s asked, {rate / 1e6:9.1f} achieved ({rate / asked - 1:+.2%}), {loss:.3%} lost "
              f"(at worst {max(losses):.3%})")
    return results

