"""The cache daemon with a full store.

    python -m bench.depot scale [CACHES FILES]   `cache ls`, and the daemon's start, with CACHES caches of FILES files each
    python -m bench.depot inflow [SECONDS]       a small store into which caches are put without pause: does it keep its watermark?

All of it by the program, as users run it. The store is in /tmp unless TMPDIR is set.
"""
import concurrent.futures
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from tests.support.daemons import Unix

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDECAST = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "tidecast"
MIB = 1 << 20
HANDS = 2  # commands at a time that fill the store


class Host:
    """A daemon on a store, and its users' commands."""

    def __init__(self, base: pathlib.Path, *words):
        self.base, self.socket, self.words = base, base / "sock", [str(word) for word in words]
        self.env = {**os.environ, "TIDECAST_SOCKET": str(self.socket), "TIDECAST_STATE_DIR": str(base / "state")}

    def start(self) -> float:
        """Starts the daemon; seconds until it answers a request."""
        began = time.monotonic()
        argv = [TIDECAST, "daemon", "--dir", self.base / "store", "--name", "here", "--machine", str(self.base), *self.words]
        with open(self.base / "log", "a") as log:
            self.daemon = subprocess.Popen(list(map(str, argv)), env=self.env, stdout=subprocess.DEVNULL, stderr=log)
        while True:
            try:
                connection = Unix(str(self.socket))
                connection.request("GET", "/v1/daemon")
                if connection.getresponse().status == 200:
                    return time.monotonic() - began
            except OSError:
                if self.daemon.poll() is not None:
                    raise SystemExit(f"the daemon has ended: see {self.base / 'log'}") from None
                time.sleep(0.002)

    def end(self, how: int = signal.SIGTERM) -> None:
        self.daemon.send_signal(how)
        self.daemon.wait()

    def __call__(self, *words) -> str:
        argv = [str(word) for word in (TIDECAST, *words)]
        return subprocess.run(argv, env=self.env, check=True, capture_output=True, text=True).stdout

    def kept(self) -> int:
        """Bytes in caches."""
        connection = Unix(str(self.socket))
        connection.request("GET", "/v1/daemon")
        return json.loads(connection.getresponse().read())["bytes"]


def fill(host: Host, caches: int, files: int) -> None:
    """Caches of small files, no two alike."""
    def hand(number: int) -> None:
        source = host.base / f"source{number}"
        source.mkdir()
        for cache in range(number, caches, HANDS):
            for file in range(files):
                (source / f"file{file:04}").write_text(f"file {file} of cache {cache}\n")
            host("cache", "create", f"cache{cache:05}", source)
        shutil.rmtree(source)

    with concurrent.futures.ThreadPoolExecutor(HANDS) as pool:
        list(pool.map(hand, range(HANDS)))


def seconds(work) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def scale(base: pathlib.Path, caches: int, files: int) -> None:
    host = Host(base)
    host.start()
    took = seconds(lambda: fill(host, caches, files))
    print(f"{caches} caches of {files} files: made in {took:.0f} s, {took / caches * 1000:.0f} ms each", flush=True)
    lines = len(host("cache", "ls").splitlines()) - 1
    assert lines == caches, lines
    times = [seconds(lambda: host("cache", "ls")) for _ in range(9)]
    print(f"cache ls: {statistics.median(times) * 1000:.0f} ms (slowest of 9: {max(times) * 1000:.0f}); goal 100", flush=True)
    # In good order; killed after a change; killed again before there was any.
    for what, how, change in [("a clean stop", signal.SIGTERM, False), ("kill -9", signal.SIGKILL, True), ("kill -9 of an idle one", signal.SIGKILL, False)]:
        if change:
            host("cache", "pin", "cache00000")
        host.end(how)
        print(f"start-up after {what}: {host.start():.2f} s; goal 5", flush=True)
    host.end()


def inflow(base: pathlib.Path, duration: float) -> None:
    capacity = 512 * MIB
    host = Host(base, "--capacity", capacity)
    host.start()
    source = base / "source"
    source.mkdir()
    sizes, made, until = [], 0, time.monotonic() + duration
    while time.monotonic() < until:
        (source / "data").write_bytes(os.urandom(8 * MIB))
        host("cache", "create", f"cache{made:05}", source, "--lease", "1d")
        made += 1
        sizes.append(host.kept())
    host.end()
    full = sizes[capacity // (8 * MIB):]
    if not full:
        raise SystemExit(f"only {made} caches came: give it longer")
    print(f"{made} caches of 8 MiB, {made / duration:.1f} a second, into {capacity // MIB} MiB: once it was full the store held "
          f"{min(full) / capacity:.1%} to {max(full) / capacity:.1%}; high watermark 95%")
    if max(full) > 0.95 * capacity:
        raise SystemExit("the watermark was passed")


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("scale", "inflow"):
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as place:
        if sys.argv[1] == "scale":
            scale(pathlib.Path(place), *map(int, sys.argv[2:] or (10_000, 100)))
        else:
            inflow(pathlib.Path(place), float((sys.argv[2:] or ["60"])[0]))
