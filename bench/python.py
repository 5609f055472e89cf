"""The cost of reading through the Python package, by the wheel in target/wheel, on one host.

    python -m bench.python [--size GIB] [--weights GIB] [--get GIB] [--repeats N]

- a call to a daemon that is ready;
- a cache of `size` (default 4 GiB), read through fsspec in parts of 8 MiB, beside its file read by `readinto`;
- weights of `weights` (default 1 GiB) in the daemon's store: loaded, and loaded and read, beside `safetensors`;
- the same weights from a peer over loopback: how much has arrived when the first tensor is usable;
- `get` of `get` (default 1 GiB) from a peer over loopback: by the program, by a call in a process of Python that runs already, and by a
  new process of Python.

Medians of N (default 5), in turn, from the page cache; the first call of a turn changes with each turn, so that no call always
follows the same one. Data lies in TMPDIR: it takes about twice `size`, four times `weights` and twice `get`.
"""
from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parent.parent
PART = 8 << 20
GIB = 1 << 30
ALONE = dict(listen="127.0.0.1:0", lsd=False)


def environment(place: str) -> dict[str, str]:
    """The directory of the wheel's content for Python."""
    wheels = list((ROOT / "target/wheel").glob("*.whl"))
    if not wheels:
        raise SystemExit("no wheel in target/wheel: make wheel")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check", "--target", place]
    subprocess.run([*install, wheels[0]], check=True)
    return {**os.environ, "PYTHONPATH": place, "PATH": f"{place}/bin:{os.environ['PATH']}", "HOME": place, "TIDECAST_BENCH_INSIDE": place}


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def turns(repeats: int, *calls: Callable[[], object], before: Callable[[], object] = int) -> list[list[float]]:
    """Seconds of each call in each turn: one after another, so that other load affects all. `before` is not timed."""
    rows = []
    # The first turn warms up.
    for turn in range(repeats + 1):
        row = [0.0] * len(calls)
        for number in range(len(calls)):
            at = (turn + number) % len(calls)
            before()
            row[at] = seconds(calls[at])
        rows.append(row)
    return rows[1:]


def in_turn(repeats: int, theirs: Callable[[], object], ours: Callable[[], object]) -> tuple[float, float, float]:
    """Median seconds of each, and the median of ours / theirs."""
    pairs, median = turns(repeats, theirs, ours), statistics.median
    return median(a for a, _ in pairs), median(b for _, b in pairs), median(b / a for a, b in pairs)


def say(what: str, value: str) -> None:
    print(f"{what:<58} {value}", flush=True)


def drain(opened) -> None:
    """Reads all of a file into one buffer."""
    buffer = memoryview(bytearray(PART))
    with opened as file:
        while file.readinto(buffer):
            pass


def a_cache(caches, base: pathlib.Path, size: int, repeats: int) -> None:
    import fsspec

    data = base / "data"
    data.mkdir()
    with open(data / "file", "wb") as out:
        for _ in range(size // PART):
            out.write(os.urandom(PART))
    caches.create("data", data, lease=3600)
    (data / "file").unlink()
    fs = fsspec.filesystem("tidecast", socket=str(caches.socket))
    url = "tidecast://bench/data/file"
    place = fs.local_path(url)
    file, ours, ratio = in_turn(repeats, lambda: drain(open(place, "rb")), lambda: drain(fs.open(url)))
    say(f"cache of {size / GIB:.1f} GiB: the file", f"{size / file / 1e9:.2f} GB/s")
    say("  through fsspec", f"{size / ours / 1e9:.2f} GB/s, {1 / ratio:.3f} of the file")


def weights(caches, base: pathlib.Path, size: int, repeats: int) -> None:
    import numpy
    import safetensors.numpy
    import tidecast
    from tidecast import safetensors as ours

    data, count = base / "weights", 64
    data.mkdir()
    each = size // count // 4
    made = {f"layer.{n:02}": numpy.random.default_rng(n).random(each, dtype="f4").reshape(-1, 1024) for n in range(count)}
    safetensors.numpy.save_file(made, data / "model.safetensors")
    del made
    caches.create("weights", data, lease=3600)
    place = caches.get("bench/weights") / "model.safetensors"

    def read(loaded: dict) -> None:
        for array in loaded.values():
            array.max()

    def open_ours() -> dict:
        return ours.load_file("bench/weights", socket=caches.socket)

    for what, call in (("load", len), ("load and read all", read)):
        theirs, took, ratio = in_turn(repeats, lambda call=call: call(safetensors.numpy.load_file(place)), lambda call=call: call(open_ours()))
        say(f"weights of {size / GIB:.1f} GiB in the store: safetensors, {what}", f"{theirs * 1e3:.1f} ms")
        say(f"  tidecast.safetensors, {what}", f"{took * 1e3:.1f} ms, {ratio:.3f} of it")

    alone = tidecast.Swarm(**ALONE)
    with tidecast.share(data, swarm=alone) as shared:
        began = time.perf_counter()
        with tidecast.open(shared.ticket, swarm=alone, state_dir=base / "other", cache=base / "cache") as reader:
            opened, first = time.perf_counter(), None
            for _ in ours.iterate(reader):
                if first is None:
                    first = time.perf_counter()
                    say("from a peer: arrived when the first tensor is usable", f"{reader.received / size * 100:.2f} %")
            ended = time.perf_counter()
            say("  opened, first tensor, all", f"{opened - began:.3f} s, {first - began:.3f} s, {ended - began:.3f} s")


def get(base: pathlib.Path, size: int, repeats: int) -> None:
    import tidecast

    data, ticket, state = base / "got", base / "ticket", str(base / "receiver")
    data.mkdir()
    with open(data / "file", "wb") as out:
        for _ in range(size // PART):
            out.write(os.urandom(PART))
    words = ["--listen", "127.0.0.1:0", "--no-lsd", "--state-dir"]
    origin = subprocess.Popen(["tidecast", "share", data, *words, base / "origin"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    text = "import sys, tidecast; tidecast.get(sys.argv[1], sys.argv[2], swarm=tidecast.Swarm(listen='127.0.0.1:0', lsd=False), state_dir=sys.argv[3])"
    try:
        ticket.touch(0o600)
        ticket.write_text(next(line for line in origin.stdout if line.startswith("tidecast1")))
        source, places = f"@{ticket}", (base / f"to{number}" for number in range(1000))

        def program() -> None:
            subprocess.run(["tidecast", "get", source, "--to", next(places), *words, state], check=True, capture_output=True)

        def call() -> None:
            tidecast.get(source, next(places), swarm=tidecast.Swarm(**ALONE), state_dir=state)

        def process() -> None:
            subprocess.run([sys.executable, "-c", text, source, next(places), state], check=True, capture_output=True)

        def clear() -> None:
            """Each begins with the same: what was fetched is gone, and nothing is on its way to the disk."""
            for old in base.glob("to*"):
                shutil.rmtree(old)
            os.sync()

        median, rows = statistics.median, turns(repeats, program, call, process, before=clear)
        ours = [median(column) for column in zip(*rows, strict=True)]
        for took, what in zip(ours, (f"get of {size / GIB:.1f} GiB: the program", "  a call in Python", "  a new process of Python"), strict=True):
            say(what, f"{size / took / 1e9:.2f} GB/s, {took:.3f} s, {took / ours[0]:.3f} of the program's")
    finally:
        origin.terminate()
        origin.wait(timeout=60)


def inside(options: argparse.Namespace) -> None:
    import tidecast

    with tempfile.TemporaryDirectory() as place:
        base = pathlib.Path(place)
        words = ["tidecast", "daemon", "--dir", base / "store", "--socket", base / "s", "--name", "bench", "--machine", base]
        daemon = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True)
        try:
            while "users ask at" not in daemon.stdout.readline():
                if daemon.poll() is not None:
                    raise SystemExit("the daemon does not start")
            caches = tidecast.caches(base / "s")
            (base / "x").write_text("x")
            caches.create("x", base / "x", lease=3600)
            times = [seconds(lambda: caches.show("bench/x")) for _ in range(300)]
            say("a call to a ready daemon", f"{statistics.median(times) * 1e3:.3f} ms, the slowest of 300: {max(times) * 1e3:.3f} ms")
            a_cache(caches, base, int(options.size * GIB), options.repeats)
            weights(caches, base, int(options.weights * GIB), options.repeats)
            get(base, int(options.get * GIB), options.repeats)
        finally:
            daemon.terminate()
            daemon.wait(timeout=60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=4)
    parser.add_argument("--weights", type=float, default=1)
    parser.add_argument("--get", type=float, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    if os.environ.get("TIDECAST_BENCH_INSIDE"):
        inside(options)
        return
    with tempfile.TemporaryDirectory() as place:
        done = subprocess.run([sys.executable, "-m", "bench.python", *sys.argv[1:]], cwd=ROOT, env=environment(place), check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
