"""`python3 -m bench.mover.course`: a copy of noise over a link that changes during it; its number of streams, and its reports.

The sending end opens the connections, so that it sets the number of streams. As root, after `cargo build --release`.
"""
from __future__ import annotations

import json
import pathlib
import re
import subprocess
import tempfile
import time

from bench.measure import Failed, begin
from bench.mover.sides import Wan
from bench.programs import TIDECAST, free_port
from lab import netns

#: Seconds, and the link from then on.
COURSE = [(0, "rate=1000000000 delay-us=5000 queue=1250000 loss=0"), (20, "rate=1000000000 delay-us=50000 queue=12500000 loss=0"),
          (50, "rate=1000000000 delay-us=50000 queue=12500000 loss=0.01"), (80, "rate=100000000 delay-us=5000 queue=125000 loss=0"),
          (130, "rate=1000000000 delay-us=5000 queue=1250000 loss=0")]
END = 160


def inside(name: str, words: list, **more) -> subprocess.Popen:
    return subprocess.Popen(["ip", "netns", "exec", name, *map(str, words)], text=True, preexec_fn=netns.die_with_parent, **more)


def main() -> int:
    with tempfile.TemporaryDirectory() as tmp, Wan("course", 10, 0.0) as link:
        near, far = link.namespaces
        log, port = pathlib.Path(tmp, "server"), free_port()
        state = lambda name: ["--state-dir", pathlib.Path(tmp, name)]
        with open(log, "w") as out:
            server = inside(far, [TIDECAST, *state("far"), "copy-server", "--as-root", "--trust-metadata", "--root", tmp, "--listen", f"{link.far}:{port}"], stdout=out)
        deadline = time.monotonic() + 10
        while not (url := re.search(r"tidecast://\S+", log.read_text())):
            if time.monotonic() > deadline or server.poll() is not None:
                raise Failed("copy-server prints no URL")
            time.sleep(0.05)
        copy = inside(near, [TIDECAST, *state("near"), "--json", "copy", "--from-null", "1TB,10MB", "--to-null", url[0] + "x"],
                      stdout=subprocess.PIPE)
        try:
            watch(copy, link)
        finally:
            copy.kill()
            server.kill()
    return 0


def watch(copy: subprocess.Popen, link: Wan) -> None:
    began, course, before = time.monotonic(), list(COURSE), None
    for text in copy.stdout:
        at = time.monotonic() - began
        if at > END:
            return
        if course and at >= course[0][0]:
            settings = course.pop(0)[1]
            link.change(settings)
            print(f"{at:6.1f} s  the link: {settings}", flush=True)
        event = json.loads(text)
        if event["event"] == "progress" and "streams" in event:
            now = at, event["bytes"]
            if before and now[0] - before[0] < 1.5:
                continue
            rate = (now[1] - before[1]) / (now[0] - before[0]) / 1e6 if before else 0
            before = now
            print(f"{at:6.1f} s  {rate:6.1f} MB/s  {event['streams']:2} streams, {event['readers']} readers, {event['writers']} writers, "
                  f"{event['blocks']} blocks; limit: {event['limit']}", flush=True)
    raise Failed(f"the copy ended with {copy.wait()}")


if __name__ == "__main__":
    begin(main)
