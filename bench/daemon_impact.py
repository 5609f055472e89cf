"""The effect of the cache daemon on other processes of its host.

    python -m bench.daemon_impact children [N]     N daemons of one host take 1 GiB from their parent: seconds, and bytes written to disk
    python -m bench.daemon_impact blast [ROUNDS]   a timed blastn beside a daemon that fetches without end: with the usual caps, and without

`blast` needs blastn and makeblastdb. The job and its host's daemon share one CPU; the other host has another one.
"""
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIDECAST = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "tidecast"
MIB = 1 << 20


class Host:
    """A daemon, on some CPUs, and its users' commands."""

    def __init__(self, base: pathlib.Path, name: str, *words, config="", cpu=None, machine=None):
        self.home, self.name = base / name, name
        self.home.mkdir()
        (self.home / "config.toml").write_text(config)
        self.env = {**os.environ, "TIDECAST_SOCKET": str(self.home / "sock"), "TIDECAST_CONFIG": str(self.home / "config.toml")}
        self.pin = ["taskset", "-c", str(cpu)] if cpu is not None else []
        argv = [*self.pin, TIDECAST, "daemon", "--dir", self.home / "store", "--name", name, "--machine", machine or name, *words]
        self.daemon = subprocess.Popen(list(map(str, argv)), env=self.env, stdout=subprocess.DEVNULL, stderr=open(self.home / "log", "w"))

    def start(self, *words) -> subprocess.Popen:
        return subprocess.Popen(list(map(str, [*self.pin, TIDECAST, "--json", *words])), env=self.env, stdout=subprocess.PIPE, text=True)

    def __call__(self, *words) -> dict:
        done = self.start(*words)
        out, _ = done.communicate()
        if done.returncode:
            raise SystemExit(f"{self.name}: {words}: {out}")
        return json.loads(out.splitlines()[-1])

    def wait(self):
        while not (self.home / "sock").exists():
            time.sleep(0.05)


def written() -> int:
    """Bytes written to all disks so far."""
    lines = pathlib.Path("/proc/diskstats").read_text().splitlines()
    return sum(int(line.split()[9]) * 512 for line in lines if not line.split()[2].startswith(("loop", "ram", "dm")))


def bulk(path: pathlib.Path, size: int) -> pathlib.Path:
    with path.open("wb") as file:
        for _ in range(size // (4 * MIB)):
            file.write(os.urandom(4 * MIB))
    return path


def children(base: pathlib.Path, count: int) -> None:
    parent = Host(base, "parent", machine="one")
    parent.wait()
    parent("cache", "create", "big", bulk(base / "big", 1024 * MIB))
    (base / "big").unlink()
    kin = [Host(base, f"child{n}", machine="one") for n in range(count)]
    [child.wait() for child in kin]
    os.sync()
    before, began = written(), time.monotonic()
    running = [child.start("cache", "get", "parent/big", "--wait", "10m") for child in kin]
    got = [json.loads(one.communicate()[0].splitlines()[-1]) for one in running]
    seconds = time.monotonic() - began
    os.sync()
    blocks = {pathlib.Path(one["path"]).stat().st_ino for one in got}
    methods = {one["method"] for one in got}
    print(f"{count} children: {seconds:.1f} s in all, slowest {max(one['seconds'] for one in got):.1f} s, by {methods}")
    print(f"written to disk meanwhile: {(written() - before) / MIB:.1f} MiB; inodes that hold the data: {len(blocks)}")
    rss = sum(int(pathlib.Path(f"/proc/{c.daemon.pid}/statm").read_text().split()[1]) * 4096 for c in kin)
    print(f"memory of {count} daemons: {rss / MIB:.0f} MiB resident")
    [host.daemon.terminate() for host in [parent, *kin]]
    [host.daemon.wait() for host in [parent, *kin]]


BUSY = 0.06
FREE = "[daemon]\ncores = 0\nbusy = 1.0\nnice = 0\n"


def blast(base: pathlib.Path, rounds: int) -> None:
    database = base / "db"
    database.mkdir()
    rng = random.Random(1)
    with (base / "db.fa").open("w") as file:
        sequences = ["".join(rng.choices("ACGT", k=100_000)) for _ in range(300)]
        file.writelines(f">s{n}\n{sequence}\n" for n, sequence in enumerate(sequences))
    with (base / "query.fa").open("w") as file:
        for n in range(400):
            text = list(rng.choice(sequences)[(at := rng.randrange(90_000)) : at + 2000])
            for _ in range(200):
                text[rng.randrange(len(text))] = rng.choice("ACGT")
            file.write(f">q{n}\n{''.join(text)}\n")
    subprocess.run(["makeblastdb", "-in", base / "db.fa", "-dbtype", "nucl", "-out", database / "db"], check=True, stdout=subprocess.DEVNULL)
    key = subprocess.run([TIDECAST, "ca", "init", base / "ca", "--name", "bench"], capture_output=True)
    key.check_returncode()
    (base / "ca" / "trust.toml").write_text('[[root]]\ncertificate = "ca.crt"\ncrl = "ca.crl"\n')

    def host(name: str, port: int, *words, **more) -> Host:
        pem = base / f"{name}.pem"
        subprocess.run([TIDECAST, "ca", "issue", base / "ca", f"host:{name}", "-o", pem], check=True, capture_output=True)
        listen = ["--listen", f"127.0.0.1:{port}", "--trust", base / "ca" / "trust.toml", "--certificate", pem]
        made = Host(base, name, *listen, *words, **more)
        made.wait()
        return made

    head = host("head", 17000, cpu=1, config="[daemon]\ncores = 0\n")
    head("cache", "create", "db", database)
    head("cache", "create", "bulk", bulk(base / "bulk", 1024 * MIB))
    (base / "bulk").unlink()
    nodes = {"usual caps": host("usual", 17001, "--peer", "head=127.0.0.1:17000", cpu=0),
             "no caps": host("free", 17002, "--peer", "head=127.0.0.1:17000", cpu=0, config=FREE)}

    def cpu(node: Host) -> float:
        """CPU seconds of a daemon so far."""
        fields = pathlib.Path(f"/proc/{node.daemon.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def job(node: Host) -> tuple[float, float]:
        """One job: takes its database from the daemon, then computes. Its seconds; and the seconds that it and the daemon used of its
        CPU, which is the time without other load on that CPU."""
        place = pathlib.Path(node("cache", "get", "head/db", "--pid", str(os.getpid()), "--wait", "10m")["path"])
        began, before = time.monotonic(), cpu(node)
        argv = ["taskset", "-c", "0", "blastn", "-db", place / "db", "-query", base / "query.fa", "-outfmt", "6", "-word_size", "11", "-out", "/dev/null"]
        _, status, used = os.wait4(subprocess.Popen(list(map(str, argv))).pid, 0)
        if status:
            raise SystemExit("blastn failed")
        return time.monotonic() - began, used.ru_utime + used.ru_stime + cpu(node) - before

    times: dict[str, list[tuple[float, float]]] = {"alone": [], **{name: [] for name in nodes}}
    moved: dict[str, list[float]] = {name: [] for name in nodes}
    caps = nodes["usual caps"]("admin", "status")["limits"]
    for node in nodes.values():
        job(node)
    for _ in range(rounds):
        # Pending writes of the last round must not count for this one.
        os.sync()
        time.sleep(1)
        times["alone"].append(job(nodes["usual caps"]))
        for name, node in nodes.items():
            before = node("admin", "status")["received"]
            over = base / "over"
            # Each in a shell of its own: the cache is in use as long as the shell runs.
            loop = f"while [ ! -e {over} ]; do ({TIDECAST} cache get head/bulk --wait 10m; true); {TIDECAST} cache rm head/bulk; done"
            fetching = subprocess.Popen(["taskset", "-c", "1", "bash", "-c", loop], env=node.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(1)
            seconds = job(node)
            times[name].append(seconds)
            moved[name].append((node("admin", "status")["received"] - before) / (seconds[0] + 1) / 1e6)
            over.touch()
            node("admin", "limit", "--cores", "0", "--busy", "1")
            fetching.wait()
            over.unlink()
            if name == "usual caps":
                node("admin", "limit", "--cores", str(caps["cores"]), "--busy", str(BUSY))
    def medians(name: str) -> list[float]:
        return [statistics.median(each) for each in zip(*times[name])]

    alone = medians("alone")
    for name in times:
        wall, both = medians(name)
        rate = f"; {statistics.median(moved[name]):.0f} MB/s arrived meanwhile" if name in moved else ""
        print(f"blastn, {name}: {wall:.2f} s ({wall / alone[0] - 1:+.1%}); CPU seconds of job and daemon {both:.2f} ({both / alone[1] - 1:+.1%}){rate}")
    [one.daemon.terminate() for one in [head, *nodes.values()]]
    [one.daemon.wait() for one in [head, *nodes.values()]]


if __name__ == "__main__":
    what, count = sys.argv[1:2], [int(n) for n in sys.argv[2:3]]
    base = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("BENCH_DIR")))
    try:
        if what == ["children"]:
            children(base, *(count or [100]))
        elif what == ["blast"]:
            blast(base, *(count or [5]))
        else:
            raise SystemExit(__doc__)
    finally:
        subprocess.run(["chmod", "-R", "u+w", base])
        shutil.rmtree(base, ignore_errors=True)
