"""`tidecast.sim` as pandas takes it, and the words and numbers of its arguments."""
from __future__ import annotations

import pytest

pytestmark = pytest.mark.xdist_group("python-libraries")


def test_a_table_for_pandas(beside):
    given = beside("""
        import asyncio, pandas, tidecast.sim
        events = []
        table = tidecast.sim.run("single:8@10gbit", 64 << 20, algorithms=["plan", "chain"], progress=events.append)
        frame = pandas.DataFrame(table).set_index("algorithm")
        give(rows=list(frame.index), last=frame["last"].tolist(), bound=table.bound, complete=frame["complete"].tolist(),
             finished=[len(row) for row in table.finished], links=len(table.links[0]), columns=list(frame.columns),
             events=[events[0]["event"], events[-1]["event"]])
        words = asyncio.run(tidecast.aio.simulate("single:4", "64MiB", algorithms="plan", nodes=8, rate="10gbit"))
        numbers = tidecast.sim.run("single:4", 64 << 20, nodes=8, rate=1_250_000_000, seed=1)
        give(traces=[table[0]["trace"], words[0]["trace"], numbers[0]["trace"]])
        broken = tidecast.sim.run("single:8@10gbit", "64MiB", faults=["crash:3@0s"])
        give(lost=broken[0]["lost"])
        for wrong in [dict(faults=["x"]), dict(algorithms=["x"]), dict(rate="fast")]:
            try:
                tidecast.sim.run("single:8@10gbit", "64MiB", **wrong)
            except tidecast.UsageError as error:
                give(**{f"wrong_{next(iter(wrong))}": str(error)})
    """)
    assert given["rows"] == ["plan", "chain"] and all(last >= given["bound"] for last in given["last"])
    assert given["complete"] == [7, 7] and given["finished"] == [7, 7] and given["links"] > 0 and given["lost"] == 1
    assert {"narrowest_link", "narrowest_load", "efficiency", "origin_sent"} < set(given["columns"])
    assert given["events"] == ["started", "done"] and len(set(given["traces"])) == 1
    assert all(given[f"wrong_{name}"] for name in ("faults", "algorithms", "rate"))
