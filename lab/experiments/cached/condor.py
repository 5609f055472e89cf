"""HTCondor's own file transfer in a real pool. It runs on one host: 50 slots, and the pool's loopback, over which the submit daemon
sends everything, has the rate of the origin's link. There is no other limit, so the emulation does not slow it down."""
from __future__ import annotations

import pathlib
import shutil
import statistics
import sys

from ..process import Failed
from ..stage import ROOT
from .database import size
from .site import PROGRAM

sys.path.insert(0, str(ROOT / "tests"))

SLOTS = 50
LONG = 3600


def stage_in(data: pathlib.Path, jobs: int, rate: str) -> dict:
    """Runs jobs that take the database as a plain input directory; the stage-in of a job is taken from its ad."""
    from support.condor import Pool
    try:
        with Pool(PROGRAM, SLOTS, rate) as pool:
            home = pool.root / "home" / "tester"
            shutil.copytree(data, home / "nt")
            pool.run("chown -R tester: /home/tester")
            cluster = pool.submit({"executable": "/bin/true", "transfer_input_files": "nt", "request_disk": f"{2 * size(data) >> 10}K"}, jobs)
            ads = pool.ended(cluster, LONG)
    except (AssertionError, RuntimeError) as e:
        raise Failed(str(e)[:500]) from None
    # From when the input began to be sent; a job that waits for its turn to send waits for its input.
    seconds = sorted(ad["TransferInFinished"] - ad.get("TransferInQueued", ad["TransferInStarted"]) for ad in ads)
    return {"jobs": len(seconds), "mean": round(statistics.mean(seconds), 3), "slowest": seconds[-1], "total": sum(seconds), "seconds": seconds}
