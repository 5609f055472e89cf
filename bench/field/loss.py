"""A field over the lab's link, which drops one packet of twenty: the missing values, with and without parity.

8 streams of gray-scott, 64 x 64 x 64, at 200 Mbit/s over 1 Gbit/s in datagrams of an ethernet (1,472 bytes). The overhead of `run`
packing is printed too.
"""
from bench.field.ends import Place, receiving, send, steps
from bench.mover.sides import Wan

SIDE = 64
LIMIT = 900


def once(place: Place, fec: str, count: int) -> dict:
    with receiving(place, 8, "--steps", count) as (recv, how):
        sender = send(place, f"demo:gray-scott:{SIDE}", *how, "--rate", "200mbit", "--fec", fec)
        try:
            recv.process.wait(LIMIT)
        finally:
            sender.stop()
        came = steps(recv)
    done = sender.last("error") or sender.last("done")  # to have one's receiver go before the end is an error
    expected = sum(s["expected"] for s in came)
    return {
        "fec": fec, "steps": len(came), "complete": sum(s["missing"] == 0 for s in came) / len(came),
        "lost": 1 - sum(s["received"] for s in came) / expected, "recovered": sum(s["recovered"] for s in came) / expected,
        "missing": sum(s["missing"] for s in came) / (len(came) * SIDE**3), "rate": done["rate"],
        "overhead": done["bytes"] / (done["steps"] * SIDE**3 * 4) - 1,
    }


def measure(place: Place, counts: tuple = (500, 3000)) -> list[dict]:
    results = []
    with Wan("field", 2, 0.05) as link:
        near, far = (("ip", "netns", "exec", name) for name in link.namespaces)
        there = Place(place.home, near, far, link.far)
        for fec, count in zip(("0", "10%"), counts):
            got = once(there, fec, count)
            results.append(got)
            print(f"parity {fec:4} {got['steps']} steps: {got['lost']:.3%} of packets lost, {got['recovered']:.3%} made up for, "
                  f"{got['missing']:.3%} of values missing, {got['complete']:.2%} of steps complete; {got['rate'] / 1e6:.1f} Mbit/s, "
                  f"{got['overhead']:.2%} more than the values")
    return results
