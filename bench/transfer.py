"""`make bench-transfer`: Tidecast beside libtorrent 2.x, the floor of system calls and ciphers, and this machine's own limits, medians of REPEATS runs.

Environment: REPEATS (5), SIZE (4GiB) of the one-to-one transfer, FORMAT (v2) of the manifest that both use, ONLY (a
list of: publish one four bcast bound memory small) to run a part, LARGE_FILES (100000), SMALL_FILES (50000). Data is in
/dev/shm, but for `small`, which is about a disk. rqbit is included if it is on the PATH. Prints a table, and writes the figures to
bench/results/.
"""
from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from bench import synthetic  # noqa: E402
from bench.measure import Failed, begin, median, save, size_of  # noqa: E402
from bench.programs import LTPEER, ROOT, Bench, free_port, repeat  # noqa: E402

REPEATS = int(os.environ.get("REPEATS", "5"))
SIZE = size_of(os.environ.get("SIZE", "4GiB"))
FORMAT = os.environ.get("FORMAT", "v2")
HOSTS = 8  # of a broadcast
CORES = os.cpu_count() or 1
GIB = 1 << 30


def make_blob(path: pathlib.Path, size: int) -> pathlib.Path:
    """Incompressible bytes: a megabyte of noise, each copy with its number."""
    noise = os.urandom((1 << 20) - 8)
    with open(path, "wb") as f:
        for i in range(size >> 20):
            f.write(i.to_bytes(8, "big") + noise)
    return path


def make_files(folder: pathlib.Path, count: int, size: int) -> pathlib.Path:
    noise = os.urandom(size - 8)
    for i in range(count):
        where = folder / f"{i // 1000:03d}"
        if i % 1000 == 0:
            where.mkdir(parents=True)
        (where / f"{i % 1000:03d}.dat").write_bytes(i.to_bytes(8, "big") + noise)
    return folder


def idle() -> tuple[int, int]:
    fields = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return fields[3] + fields[4], sum(fields)


def openssl_rate() -> float:
    """Bytes per second of SHA-256 on one core, by openssl, at the size of a leaf."""
    out = subprocess.run(["openssl", "speed", "-seconds", "2", "-bytes", "16384", "-evp", "sha256"], capture_output=True, text=True).stdout
    return float(re.findall(r"([\d.]+)k\s*$", out, re.M)[-1]) * 1000


def publish(bench: Bench, blob: pathlib.Path) -> dict:
    """Rate of hashing data in the page cache."""
    def once():
        done = bench.publish(blob, bench.shm / "p.torrent", "--format", "v2").last("done")
        return {"rate": blob.stat().st_size / done["seconds"], "reference": openssl_rate()}

    row, = repeat(REPEATS, once)
    return {**row, "of_all_cores": row["rate"] / (CORES * row["reference"])}


def bound(blob: pathlib.Path) -> dict:
    """The limit of this machine: the bytes through a loopback socket while their SHA-256 is computed."""
    size, rows = blob.stat().st_size, []
    for _ in range(REPEATS):
        port = str(free_port())
        server = subprocess.Popen(["iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port], stdout=subprocess.DEVNULL)
        time.sleep(0.3)
        start = time.monotonic()
        jobs = [subprocess.Popen(argv, stdout=subprocess.DEVNULL) for argv in (
            ["iperf3", "-c", "127.0.0.1", "-p", port, "-n", str(size)], ["openssl", "dgst", "-sha256", str(blob)])]
        for job in jobs:
            job.wait()
        rows.append({"seconds": time.monotonic() - start})
        server.wait()
    return median(rows)


def transfers(bench: Bench, blob: pathlib.Path, getters: int) -> dict:
    """Tidecast, plain and TLS, and libtorrent, in turn."""
    plain, private = bench.shm / "plain.torrent", bench.shm / "private.torrent"
    theirs = bench.shm / "libtorrent.torrent"  # of the same version, with the piece size that it chooses
    bench.run([sys.executable, LTPEER, "make", theirs, blob, "--format", FORMAT]).wait()
    bench.publish(blob, plain, "--format", FORMAT)
    bench.publish(blob, private, "--format", FORMAT, "--private")
    libtorrent, open_, tls, floor_plain, floor_tls = repeat(
        REPEATS,
        lambda: bench.by_libtorrent(blob, theirs, getters),
        lambda: bench.by_tidecast(blob, plain, getters),
        lambda: bench.by_tidecast(blob, private, getters, private=True),
        lambda: bench.by_floor(blob, "plain", getters), lambda: bench.by_floor(blob, "tls", getters))
    rows = {"libtorrent": libtorrent, "plain": open_, "tls": tls}
    # A byte that reaches a getter was sent, received, hashed and written once, whoever sent it.
    for name, floor in (("plain", floor_plain), ("tls", floor_tls)):
        rows[name]["of_floor"] = rows[name]["cpu"] / floor["cpu"]
    rows["floor plain"], rows["floor tls"] = floor_plain, floor_tls
    if getters == 1 and shutil.which("rqbit"):
        v1 = bench.shm / "v1.torrent"
        bench.run([sys.executable, LTPEER, "make", v1, blob, "--format", "v1"]).wait()
        rows["rqbit"], = repeat(REPEATS, lambda: bench.by_rqbit(blob, v1))
    return rows


def broadcasts(bench: Bench, blob: pathlib.Path) -> dict:
    """A broadcast to workers of this host, plain and TLS, beside as many transfers at once at the floor's cost."""
    plain, tls, *floors = repeat(
        REPEATS,
        lambda: bench.by_broadcast(blob, HOSTS, private=False), lambda: bench.by_broadcast(blob, HOSTS, private=True),
        lambda: bench.by_floor(blob, "plain", HOSTS), lambda: bench.by_floor(blob, "tls", HOSTS))
    for row, floor in zip((plain, tls), floors):
        row["of_floor"] = row["cpu"] / floor["cpu"]
    return {"plain": plain, "tls": tls, "floor plain": floors[0], "floor tls": floors[1]}


def tell_broadcasts(size: int, rows: dict) -> None:
    print(f"\nbroadcast of {size / GIB:g} GiB to {HOSTS} workers of this host")
    for name, r in rows.items():
        text = f"  {name:<11} {r['seconds']:7.2f} s  cpu {r['cpu'] / HOSTS / (size / GIB):5.2f} s/GiB"
        print(text + (f"  {r['of_floor']:4.2f} x the CPU of the floor (goal 1.15)" if "of_floor" in r else ""))


def memory(bench: Bench) -> dict:
    """Peak resident bytes with the pieces of 100 GiB, and with 100,000 files."""
    large = bench.shm / "large.torrent"
    synthetic.large(large, 100 * GIB)
    rows = {}
    rows["show, 100 GiB of pieces"] = bench.tidecast("show", "show", large).wait().rss
    get = bench.tidecast("large", "get", large, "--to", bench.shm / "large", "--file", "tiny", "--plain", "--no-lsd", "--timeout", "3s")
    try:
        get.wait()
    except Failed:  # no peer has the data; only the work of joining is measured
        pass
    rows["get, 100 GiB of pieces"] = get.rss
    count = int(os.environ.get("LARGE_FILES", "100000"))
    files = make_files(bench.shm / "many", count, 1000)
    rows[f"publish, {count} files"] = bench.publish(files, bench.shm / "many.torrent", "--format", "v2").rss
    rows[f"seed and get, {count} files"] = bench.by_tidecast(files, bench.shm / "many.torrent")["rss"]
    shutil.rmtree(files)
    return rows


def small(bench: Bench, disk: pathlib.Path) -> dict:
    """Small files received durably on a disk, against tar and sync."""
    count, size = int(os.environ.get("SMALL_FILES", "50000")), 10_000
    files = make_files(bench.shm / "small", count, size)
    manifest = bench.shm / "small.torrent"
    bench.publish(files, manifest, "--format", "v2")
    archive = bench.shm / "small.tar"
    subprocess.run(["tar", "cf", archive, "-C", bench.shm, "small"], check=True)

    def fresh() -> pathlib.Path:
        """A folder of its own for each run: ext4 is slow to make files for half a minute after many were deleted."""
        where = pathlib.Path(tempfile.mkdtemp(dir=disk))
        subprocess.run(["sync"], check=True)
        return where

    def by_tar():
        where = fresh()
        start = time.monotonic()
        subprocess.run(["tar", "xf", archive, "-C", where], check=True)
        subprocess.run(["sync", "-f", where], check=True)
        return {"seconds": time.monotonic() - start}

    def by_tidecast():
        return bench.by_tidecast(files, manifest, to=fresh())

    tar, tidecast = repeat(min(REPEATS, 3), by_tar, by_tidecast)
    shutil.rmtree(files)
    return {"tar": tar, "tidecast": tidecast, "files": count}


def tell_transfer(title: str, size: int, getters: int, rows: dict, goal: float, limit: dict | None) -> None:
    print(f"\n{title}")
    reference = rows["libtorrent"]
    for name, r in rows.items():
        ratio = reference["seconds"] / r["seconds"]
        text = f"  {name:<11} {r['seconds']:7.2f} s  {size / r['seconds'] / 1e6:7.0f} MB/s  cpu {r['cpu'] / getters / (size / GIB):5.2f} s/GiB"
        if name != "libtorrent" and not name.startswith("floor"):
            text += f"  {ratio:5.2f} x libtorrent" + (f" (goal {goal:g})" if name == "plain" else "")
        if "of_floor" in r:
            text += f"  {r['of_floor']:4.2f} x the CPU of the floor"
        if limit:
            text += f"  {limit['seconds'] / r['seconds'] * 100:4.0f}% of the machine"
        print(text)
        stages = {k[4:]: v for k, v in r.items() if k.startswith("cpu_") and k != "cpu_process"}
        if stages:  # of all processes from their start, the seeder's own check of its files included
            parts = "  ".join(f"{k} {v / getters / (size / GIB):.3f}" for k, v in stages.items())
            print(f"              cpu s/GiB by stage: {parts}; engine {stages['engine'] / max(r['cpu_process'], 1e-9) * 100:.1f}% (goal 5%)")


def main() -> int:
    only = os.environ.get("ONLY", "publish bound one four bcast memory small").split()
    results = {"size": SIZE, "repeats": REPEATS, "format": FORMAT, "cores": CORES, "when": time.strftime("%F %T")}
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tidecast-bench.") as shm, \
            tempfile.TemporaryDirectory(prefix="tidecast-bench.") as logs:
        bench = Bench(pathlib.Path(shm), pathlib.Path(logs))
        print(f"bench-transfer: {SIZE / GIB:g} GiB, medians of {REPEATS}, {CORES} cores, manifests {FORMAT}, load {os.getloadavg()[0]:.1f} at the start")
        before = idle()
        if {"publish", "bound", "one"} & set(only):
            blob = make_blob(bench.shm / "blob", SIZE)
            if "publish" in only:
                r = results["publish"] = publish(bench, blob)
                print(f"\npublish: {r['rate'] / 1e9:.2f} GB/s = {r['of_all_cores']:.2f} x ({CORES} cores x openssl's {r['reference'] / 1e9:.2f} GB/s) (goal 0.75)")
            if "bound" in only:
                results["bound"] = bound(blob)
                print(f"\nthis machine: the same bytes by iperf3 on loopback beside openssl's SHA-256: {results['bound']['seconds']:.2f} s")
            if "one" in only:
                results["one"] = transfers(bench, blob, 1)
                tell_transfer(f"one seeder, one getter, {SIZE / GIB:g} GiB", SIZE, 1, results["one"], 4, results.get("bound"))
            blob.unlink()
        if "four" in only:
            size = max(SIZE // 4, 1 << 20)
            blob = make_blob(bench.shm / "quarter", size)
            results["four"] = transfers(bench, blob, 4)
            tell_transfer(f"one seeder, four getters, {size / GIB:g} GiB", size, 4, results["four"], 2, None)
            blob.unlink()
        if "bcast" in only:
            size = max(SIZE // 8, 1 << 20)
            blob = make_blob(bench.shm / "eighth", size)
            results["bcast"] = broadcasts(bench, blob)
            tell_broadcasts(size, results["bcast"])
            blob.unlink()
        if "memory" in only:
            results["memory"] = memory(bench)
            print("\nmemory, peak resident (goal 200 MiB)")
            for name, rss in results["memory"].items():
                print(f"  {name:<32} {rss / (1 << 20):6.0f} MiB")
        if "small" in only:
            disk = ROOT / ".cache/bench"
            disk.mkdir(parents=True, exist_ok=True)
            r = results["small"] = small(bench, disk)
            shutil.rmtree(disk)
            ratio = r["tar"]["seconds"] / r["tidecast"]["seconds"]
            print(f"\n{r['files']} files of 10 KB, durable on disk: tar + sync {r['tar']['seconds']:.2f} s, tidecast {r['tidecast']['seconds']:.2f} s: {ratio:.2f} x (goal 0.5)")
        after = idle()
        free = (after[0] - before[0]) / (after[1] - before[1]) * 100
        print(f"\n{free:.0f}% of the CPU was idle over the run")
    print(f"written to {save('transfer', results)}")
    return 0


if __name__ == "__main__":
    begin(main)
