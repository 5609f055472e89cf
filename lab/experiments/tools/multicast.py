"""udpcast and uftp: IP multicast, for which the origin's link is not the bound, so they stand apart in the table."""
from __future__ import annotations

import time

from ..process import wait
from .base import Done, Job, Times, Tool

SHARE = 0.93  # of the link's rate; above that the receivers lose too much


def rate(job: Job) -> int:
    """Kilobits a second to send at."""
    return int(job.stage.topology.nodes[0].rate * SHARE / 1000)


class Udpcast(Tool):
    name, about, multicast = "udpcast", "udpcast (multicast)", True
    needs = ("udp-sender", "udp-receiver")

    def run(self, job: Job) -> Times:
        stage = job.stage
        receivers = [stage.start(n, ["udp-receiver", "--file", stage.target(n), "--interface", "eth0", "--nokbd", "--nosync"],
                                 f"udpcast-{stage.name(n)}") for n in stage.receivers]
        time.sleep(2)
        job.meter.go()
        sender = stage.start(0, ["udp-sender", "--file", job.source, "--interface", "eth0", "--nokbd", "--min-receivers",
                                 len(receivers), "--max-bitrate", f"{rate(job)}k"], "udpcast-sender")
        wait("receivers end", lambda: not any(r.running() for r in receivers), job.limit)
        seconds = time.time() - sender.began
        job.meter.end()
        stage.clear()
        return Times(seconds, seconds)


class Uftp(Tool):
    name, about, multicast = "uftp", "uftp (multicast)", True
    needs = ("uftp", "uftpd")

    def run(self, job: Job) -> Times:
        stage = job.stage
        named = stage.folder / "uftp/copy"
        named.parent.mkdir(exist_ok=True)
        named.unlink(missing_ok=True)
        named.hardlink_to(job.source)
        done = Done(stage)
        for n in stage.receivers:
            argv = ["uftpd", "-d", "-D", stage.home(n), "-I", "eth0", "-s", done.hook, "-B", "1000000"]
            stage.start(n, argv, f"uftp-{stage.name(n)}")
        time.sleep(2)
        job.meter.go()
        argv = ["uftp", "-R", rate(job), "-I", "eth0", "-r", "0.1:0.05:1", "-B", "1000000", named]
        sender = stage.start(0, argv, "uftp-sender")
        wait("every file is there", lambda: all(map(done.at, stage.receivers)), job.limit)
        seconds = max(map(done.at, stage.receivers)) - sender.began
        job.meter.end()
        wait("the sender ends", lambda: not sender.running(), job.limit)
        stage.clear()
        return Times(seconds, seconds)
