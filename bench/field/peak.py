"""The maximum rate of one receiving core, beside iperf3 -u.

One stream over loopback in datagrams of the paper's size (8,968 bytes); sender and receiver have a core each. The requested rate is
raised as long as less than 0.1% is lost: the highest is the receiver's maximum. On loopback the sender may be the limit, so bits for
each second of the receiver's CPU are printed too. The paper's receivers took 2.7 Gbit/s a core; iperf3 discards received data.
"""
import json
import statistics
import subprocess
import time

from bench.field.ends import PORT, Place, lost, window

RATES = (2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32)  # Gbit/s
WAYS = {"run, key": ((), "run"), "run, plain": (("--plain",), "run"), "xyz, key": ((), "xyz"), "xyz, plain": (("--plain",), "xyz")}
PAPER = 2.7e9
NOTHING = {"rate": 0.0, "loss": 1.0, "per_cpu": 0.0}


def ours(place: Place, source, way: str, rate: float, seconds: float) -> dict:
    """One transfer at a rate in Gbit/s: received bits a second, the lost share, bits for a second of CPU."""
    flags, packing = WAYS[way]
    seen = window(place, source, 1, seconds, ("--cpus", "1", *flags),
                  ("--rate", f"{rate * 1000:.0f}mbit", "--packing", packing, "--cpus", "0"))
    if not seen.came:
        return NOTHING
    return {"rate": seen.rate, "loss": lost(seen.came), "per_cpu": seen.rate * seen.seconds / max(seen.cpu, 0.01)}


def iperf(rate: float, seconds: float) -> dict:
    """The same by iperf3: the data that its server received."""
    server = subprocess.Popen(["iperf3", "-s", "-1", "-A", "1", "-p", str(PORT)], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.3)
        out = subprocess.run(["iperf3", "-u", "-c", "127.0.0.1", "-p", str(PORT), "-l", "8968", "-b", f"{rate}G", "-t", str(seconds), "-A", "0",
                              "-w", "4M", "-J"], capture_output=True, text=True, check=True)
        end = json.loads(out.stdout)["end"]
        total = end.get("sum_received") or end["sum"]
        busy = end["cpu_utilization_percent"]["remote_total"] / 100
        return {"rate": total["bits_per_second"], "loss": total["lost_percent"] / 100, "per_cpu": total["bits_per_second"] / max(busy, 0.01)}
    finally:
        server.kill()
        server.wait()


def highest(attempt) -> dict:
    """The best of all rates with less than 0.1% lost."""
    best = NOTHING
    for rate in RATES:
        got = attempt(rate)
        if got["loss"] < 0.001 and got["rate"] > best["rate"]:
            best = got
        if got["loss"] >= 0.001 or got["rate"] < 0.9 * rate * 1e9:
            break
    return best


def measure(place: Place, source, repeats: int, seconds: float) -> dict:
    runs = {name: [] for name in (*WAYS, "iperf3 -u")}
    for _ in range(repeats):
        for way in WAYS:
            runs[way].append(highest(lambda rate: ours(place, source, way, rate, seconds)))  # noqa: B023
        runs["iperf3 -u"].append(highest(lambda rate: iperf(rate, seconds)))
    results = {}
    for name, all_of in runs.items():
        results[name] = {key: statistics.median(r[key] for r in all_of) for key in NOTHING}
        rate, loss, per_cpu = (results[name][key] for key in ("rate", "loss", "per_cpu"))
        print(f"{name:12} {rate / 1e9:6.2f} Gbit/s ({rate / PAPER:.1f} x the paper's), {loss:.3%} lost, {per_cpu / 1e9:6.2f} Gbit "
              "for a second of CPU")
    return results
