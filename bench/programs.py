"""One transfer over loopback from a seeder to getters, by Tidecast or by libtorrent, measured alike.

The seconds are the slowest getter's, until all is there and verified. CPU is that of all getters from their start, and
of the seeder from the start of the transfer (what it did to check its files before is not part of it).
"""
from __future__ import annotations

import os
import pathlib
import shutil
import socket
import sys
import time

from bench.measure import Failed, Run, median

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDECAST = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/tidecast"
FLOOR = TIDECAST.parent / "examples/transfer_floor"
LTPEER = ROOT / "tests/support/ltpeer.py"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Bench:
    """A folder for the data (in memory) and one for logs and states."""

    def __init__(self, shm: pathlib.Path, logs: pathlib.Path):
        self.shm, self.logs = shm, logs
        self.count = 0

    def run(self, argv: list, **kw) -> Run:
        self.count += 1
        return Run(argv, self.logs / f"{self.count:03d}-{pathlib.Path(str(argv[0])).name}.log", **kw)

    def tidecast(self, name: str, *words) -> Run:
        """A tidecast with a state of its own; equal names share one."""
        return self.run([TIDECAST, "--json", "--state-dir", self.logs / f"state-{name}", *words])

    def publish(self, path: pathlib.Path, manifest: pathlib.Path, *words) -> Run:
        return self.tidecast("seed", "publish", path, "-o", manifest, "--name", path.name, *words).wait()

    def target(self, n: int) -> pathlib.Path:
        where = self.shm / f"got{n}"
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir()
        return where

    def by_tidecast(self, path: pathlib.Path, manifest: pathlib.Path, getters: int = 1, private: bool = False, to=None) -> dict:
        """Seed `path` and get it `getters` times."""
        here = f"127.0.0.1:{free_port()}"
        plain = [] if private else ["--plain"]
        seed = self.tidecast("seed", "seed", manifest, path, "--listen", here, "--no-lsd", *plain)
        try:
            started = seed.until("seeding", lambda: seed.last("progress") and seed.last("started"))
            source = started.get("ticket", manifest)
            before = seed.cpu_so_far()
            ports = [free_port() for _ in range(getters)]
            targets = [to or self.target(n) for n in range(getters)]
            gets = []
            for n, port in enumerate(ports):
                peers = [w for p in [here, *(f"127.0.0.1:{q}" for q in ports[:n])] for w in ("--peer", p)]
                stay = ["--seed-for", "1h"] if getters > 1 else []
                state = f"get{n}"
                shutil.rmtree(self.logs / f"state-{state}", ignore_errors=True)
                gets.append(self.tidecast(state, "get", source, "--to", targets[n], "--listen", f"127.0.0.1:{port}", "--no-lsd",
                                          *peers, *plain, *stay))
            if getters > 1:
                for get, target in zip(gets, targets):
                    get.until("all data", lambda: (target / path.name).exists())
                for get in gets:
                    get.process.send_signal(2)
            for get in gets:
                get.wait()
            cpu = sum(g.cpu for g in gets) + seed.cpu_so_far() - before
            done = [g.last("done") for g in gets]
            rss = max(*(g.rss for g in gets), seed.peak_rss())
            seed.stop()
            stages = [d["cpu_seconds"] for d in (*done, seed.last("done"))]
            return {"seconds": max(d["get_seconds"] for d in done), "cpu": cpu, "rss": rss,
                    **{f"cpu_{k}": sum(s[k] for s in stages) for k in stages[0]}}
        finally:
            seed.stop()
            for n in range(getters):
                shutil.rmtree(self.shm / f"got{n}", ignore_errors=True)

    def by_broadcast(self, path: pathlib.Path, hosts: int, private: bool) -> dict:
        """Broadcast `path` to so many workers of this host; CPU of all processes from their start."""
        names = ",".join(f"h{n}=127.0.0.1" for n in range(1, hosts + 1))
        plain = [] if private else ["--plain"]
        try:
            bcast = self.tidecast("bcast", "bcast", path, "--to", f"{self.shm}/bcast/{{host}}/{path.name}", "--hosts", names,
                                  "--launch", "env {command}", "--net", "127.0.0.0/8", *plain).wait()
            there = len(list((self.shm / "bcast").glob(f"*/{path.name}")))
            if there != hosts:
                raise Failed(f"the broadcast reached {there} of {hosts} hosts")
            return {"seconds": bcast.seconds, "cpu": bcast.cpu, "rss": bcast.rss}
        finally:
            shutil.rmtree(self.shm / "bcast", ignore_errors=True)

    def by_libtorrent(self, path: pathlib.Path, torrent: pathlib.Path, getters: int = 1) -> dict:
        """The same by libtorrent, tuned, peers named to each other."""
        here = f"127.0.0.1:{free_port()}"
        seed = self.run([sys.executable, LTPEER, "seed", torrent, path.parent, "--listen", here, "--tuned"])
        try:
            seed.until("seeding", lambda: "ready" in seed.out())
            before = seed.cpu_so_far()
            ports = [free_port() for _ in range(getters)]
            gets = []
            for n, port in enumerate(ports):
                peers = [w for p in [here, *(f"127.0.0.1:{q}" for q in ports[:n])] for w in ("--peer", p)]
                stay = ["--stay"] if getters > 1 else []
                gets.append(self.run([sys.executable, LTPEER, "get", torrent, self.target(n), "--listen", f"127.0.0.1:{port}",
                                      "--tuned", *peers, *stay]))
            for get in gets:
                if getters > 1:
                    get.until("all data", lambda: "flushed" in get.out())
                else:
                    get.wait()
            cpu = sum(g.cpu if g.cpu is not None else g.cpu_so_far() for g in gets) + seed.cpu_so_far() - before
            times = [float(line.split()[1]) for g in gets for line in g.out().splitlines() if line.startswith("done ")]
            if len(times) != getters:
                raise Failed("libtorrent printed no time")
            rss = max(g.rss or g.peak_rss() for g in gets)
            for get in gets:
                get.stop(9)
            return {"seconds": max(times), "cpu": cpu, "rss": rss}
        finally:
            seed.stop(9)
            for n in range(getters):
                shutil.rmtree(self.shm / f"got{n}", ignore_errors=True)

    def by_floor(self, path: pathlib.Path, guard: str, at_once: int) -> dict:
        """The cost of the kernel, the cipher and SHA-256 alone (crates/net/examples/transfer_floor.rs), of so many transfers at once:
        they share the caches, as receivers do."""
        start = time.monotonic()
        floors = [self.run([FLOOR, guard, path, self.target(n) / path.name]) for n in range(at_once)]
        for floor in floors:
            floor.wait()
        seconds = time.monotonic() - start
        for n in range(at_once):
            shutil.rmtree(self.shm / f"got{n}")
        return {"seconds": seconds, "cpu": sum(floor.cpu for floor in floors), "rss": max(floor.rss for floor in floors)}

    def by_rqbit(self, path: pathlib.Path, torrent: pathlib.Path) -> dict:
        """The same by rqbit (v1 only), one to one; its seconds are those of the whole process."""
        port = free_port()
        quiet = ["--disable-dht", "--disable-lsd", "--disable-trackers", "--disable-upnp-port-forward", "-v", "error"]

        def rqbit(listen: int, *words) -> Run:
            return self.run([shutil.which("rqbit"), *quiet, "--listen-ip", "127.0.0.1", "--listen-port", str(listen),
                             "download", "--disable-http-api", *words, torrent])

        seed = rqbit(port, "--overwrite", "-o", path.parent)
        try:
            spent = -1.0
            while (now := seed.cpu_so_far()) != spent or now < 0.1:  # it has checked its files when it rests
                spent = now
                time.sleep(1.5)
            get = rqbit(free_port(), "-e", "--initial-peers", f"127.0.0.1:{port}", "-o", self.target(0)).wait()
            if not (self.shm / "got0" / path.name).stat().st_size == path.stat().st_size:
                raise Failed("rqbit did not bring the file")
            return {"seconds": get.seconds, "cpu": get.cpu + seed.cpu_so_far() - spent, "rss": get.rss}
        finally:
            seed.stop(9)
            shutil.rmtree(self.shm / "got0", ignore_errors=True)


def repeat(times: int, *what) -> list[dict]:
    """Medians of each of `what`, called in turn so that a change of the machine affects all alike."""
    rows = [[] for _ in what]
    for _ in range(times):
        for row, call in zip(rows, what):
            row.append(call())
    return [median(r) for r in rows]
