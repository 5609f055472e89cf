"""Steps a second from end to end on this machine, as fast as they arrive: 256^3 in 8 streams, and the paper's 1024^3 in 32.

Both from a file in memory, over and over. 1024^3 needs 16 GiB of memory.
"""
import statistics

import numpy as np

from bench.field.ends import Place, lost, window

SIZES = {256: 8, 1024: 32}


def measure(place: Place, repeats: int, seconds: float, sides: list[int]) -> list[dict]:
    results = []
    for side in sides:
        source, rows = place.home / "field.raw", []
        with source.open("wb") as out:  # by planes: the whole of it twice would not fit
            for z in range(side):
                np.random.default_rng(z).standard_normal((side, side), dtype="f4").tofile(out)
        times = repeats if side < 1024 else 1
        for _ in range(times):
            seen = window(place, source, SIZES.get(side, 8), seconds * (1 if side < 1024 else 5), (), ("--shape", f"{side},{side},{side}"))
            rows.append({"sent": seen.sent / seen.seconds, "received": len(seen.came) / seen.seconds,
                         "complete": sum(s["missing"] == 0 for s in seen.came) / seen.seconds, "rate": seen.rate,
                         "loss": lost(seen.came) if seen.came else 1.0})
        got = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        results.append({"side": side, **got})
        print(f"{side}^3: {got['sent']:.2f} steps a second sent, {got['received']:.2f} received, {got['complete']:.2f} without a gap; "
              f"{got['rate'] / 1e9:.2f} Gbit/s, {got['loss']:.2%} lost")
        source.unlink()
    return results
