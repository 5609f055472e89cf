"""The two sides of a copy: where their programs run, the CPU that they use, and their termination."""
from __future__ import annotations

import contextlib
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

from bench.measure import TICK, Failed
from bench.programs import TIDECAST
from lab import netns

CGROUPS = pathlib.Path("/sys/fs/cgroup")


class Group:
    """A control group, for the CPU seconds of all its processes and the ids of the running ones."""

    old = (CGROUPS / "cpuacct").is_dir()
    base = CGROUPS / ("cpuacct" if old else "")

    def __init__(self, name: str, new: bool = True):
        self.path = self.base / name
        try:
            self.path.mkdir(exist_ok=not new)
        except OSError as e:
            raise Failed(f"{self.path}: {e.strerror}; CPU seconds are counted by control groups, as root") from None

    def cpu(self) -> float:
        if self.old:
            return int((self.path / "cpuacct.usage").read_text()) / 1e9
        words = (self.path / "cpu.stat").read_text().split()
        return int(words[words.index("usage_usec") + 1]) / 1e6

    def pids(self) -> list[int]:
        return [int(pid) for pid in (self.path / "cgroup.procs").read_text().split()]

    def rss(self) -> int:
        """Bytes: the sum of the peak memory of each process there."""
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                status = pathlib.Path(f"/proc/{pid}/status").read_text().split()
                total += int(status[status.index("VmHWM:") + 1]) * 1024 if "VmHWM:" in status else 0
        return total

    def remove(self) -> None:
        """Ends all that runs there."""
        for attempt in range(500):
            left = self.pids()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if attempt < 50 else signal.SIGKILL)
            if not left:
                break
            time.sleep(0.02)
        self.path.rmdir()


class Side:
    """One end: perhaps a network namespace of its own, and the programs that run there."""

    def __init__(self, name: str, namespace: str | None, log: pathlib.Path):
        self.name, self.namespace, self.log = name, namespace, log
        self.group = Group(f"tidecast-bench-{os.getpid()}-{name}")
        self.peak = 0

    def start(self, argv: list, output: int | None = None) -> subprocess.Popen:
        """A program on this side. It ends when we do, however we do."""
        hosts = self.log.with_name("hosts")
        if self.namespace:  # there is no name service there, and some programs want their host's
            hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in Wan.ADDRESSES.items()))

        def settle() -> None:
            netns.die_with_parent()
            (self.group.path / "cgroup.procs").write_text(str(os.getpid()))
            if self.namespace:
                netns.enter(self.namespace, self.name, str(hosts))

        # A session of its own: the terminal interrupts only the benchmark, which then ends them in order.
        with open(self.log, "a") as log:
            return subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=output or log, stderr=log,
                                    preexec_fn=settle, start_new_session=True, text=True)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-1500:] if self.log.exists() else ""

    def end(self) -> None:
        self.group.remove()


def ended(process: subprocess.Popen, limit: float) -> int | None:
    """Its exit code; None if it still runs after this many seconds. Popen.wait, with a limit, looks only every 50 ms."""
    with os.fdopen(os.pidfd_open(process.pid)) as handle:
        over, _, _ = select.select([handle], [], [], limit)
    return process.wait() if over else None


def sweep(data: pathlib.Path) -> None:
    """Removes the remains of killed benchmarks: groups, namespaces, and their folders in `data`."""
    def dead(pattern: str, name: str) -> bool:
        found = re.fullmatch(pattern, name)
        return bool(found) and not pathlib.Path("/proc", found[1]).exists()

    for path in Group.base.glob("tidecast-bench-*"):
        if dead(r"tidecast-bench-(\d+)-\w+", path.name):
            Group(path.name, new=False).remove()
    for line in netns.run(["ip", "netns", "list"]).splitlines():
        if dead(r"tcbench(\d+)[ab]", line.split()[0]):
            netns.run(["ip", "netns", "del", line.split()[0]], check=False)
    for path in data.glob("tidecast-bench.*"):
        if dead(r"tidecast-bench\.(\d+)\.\w+", path.name):
            shutil.rmtree(path, ignore_errors=True)


def listening(process: subprocess.Popen, port: int, side: Side) -> None:
    """Wait until `process` or something in its network listens at `port`."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(OSError):  # it has just ended
                lines = pathlib.Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]
                if any(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A" for line in lines):
                    return
        time.sleep(0.02)
    raise Failed(f"nothing listens at port {port}: {' '.join(map(str, process.args))}\n{side.tail()}")


@contextlib.contextmanager
def watched(*sides: Side) -> Iterator[None]:
    """Notes the peak memory of sides, looking every 20 ms."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            for side in sides:
                side.peak = max(side.peak, side.group.rss())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def machine() -> tuple[float, float]:
    """CPU seconds of this machine so far: used, idle."""
    fields = [int(x) / TICK for x in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(fields) - fields[3] - fields[4], fields[3] + fields[4]


class Loopback:
    """Both sides on this machine, which it shares with nothing in between."""
    name, namespaces, far = "loopback", (None, None), "127.0.0.1"

    def __enter__(self) -> Loopback:
        return self

    def __exit__(self, *_) -> None:
        pass

    def cpu(self) -> float:
        return 0.0

    def ways(self) -> list[list[str]]:
        """Settings of iperf3; the best result is the place's maximum."""
        return [["-P", "1"], ["-P", "2"]]


class Wan:
    """Two namespaces joined by `tidecast-wan`: 1 Gbit/s, a queue of one bandwidth x delay, cubic and buffers of 64 MiB for all programs."""
    RATE = 10**9
    BUFFER = 64 << 20
    ADDRESSES = {"near": "10.79.0.1", "far": "10.79.0.2"}

    far = ADDRESSES["far"]

    LIMITS = "net/core/rmem_max", "net/core/wmem_max"
    ALLOWED = "net/ipv4/tcp_allowed_congestion_control"

    def __init__(self, name: str, rtt_ms: int, loss: float):
        self.name, self.rtt, self.loss = name, rtt_ms, loss
        self.namespaces = (f"tcbench{os.getpid()}a", f"tcbench{os.getpid()}b")

    def __enter__(self) -> Wan:
        self.before = {key: pathlib.Path("/proc/sys", key).read_text().strip() for key in (*self.LIMITS, self.ALLOWED)}
        self.link = None
        try:
            # The kernel has one limit for buffers that a program asks for, and one list of algorithms that a namespace may have, for
            # all namespaces; __exit__ puts them back.
            netns.sysctl({key: str(max(self.BUFFER, int(self.before[key]))) for key in self.LIMITS})
            netns.sysctl({self.ALLOWED: " ".join({*self.before[self.ALLOWED].split(), "cubic"})})
            for name in self.namespaces:
                netns.run(["ip", "netns", "add", name])
            delay = self.rtt * 500
            self.link = subprocess.Popen(
                [str(TIDECAST.with_name("tidecast-wan")), *(f"{name}:wan" for name in self.namespaces), "--rate", str(self.RATE),
                 "--queue", str(self.RATE // 8 * self.rtt // 1000), "--delay-us", str(delay), "--loss", str(self.loss), "--stdin"],
                stdin=subprocess.PIPE, text=True, preexec_fn=netns.die_with_parent)
            for name, address in zip(self.namespaces, self.ADDRESSES.values()):
                self.settle(name, address)
        except BaseException:
            self.__exit__()
            raise
        return self

    def settle(self, name: str, address: str) -> None:
        deadline = time.monotonic() + 10
        while not netns.run(["ip", "-n", name, "link", "show", "wan"], check=False):
            if time.monotonic() > deadline or self.link.poll() is not None:
                raise Failed(f"tidecast-wan has made no device in {name}")
            time.sleep(0.05)
        for words in (["addr", "add", f"{address}/30", "dev", "wan"], ["link", "set", "wan", "up"], ["link", "set", "lo", "up"]):
            netns.run(["ip", "-n", name, *words])
        netns.in_namespace(name, lambda: netns.sysctl({
            "net/ipv4/tcp_rmem": f"4096 131072 {self.BUFFER}", "net/ipv4/tcp_wmem": f"4096 65536 {self.BUFFER}",
            "net/ipv4/tcp_congestion_control": "cubic", "net/ipv4/tcp_no_metrics_save": "1"}))

    def __exit__(self, *_) -> None:
        if self.link:
            self.link.kill()
            self.link.wait()
        for name in self.namespaces:
            netns.run(["ip", "netns", "del", name], check=False)
        netns.sysctl(self.before)

    def change(self, settings: str) -> None:
        """Another link from now on: `rate=100000000 delay-us=5000 loss=0.001`."""
        print(settings, file=self.link.stdin, flush=True)

    def cpu(self) -> float:
        """CPU seconds of the link itself so far: they are this machine's too."""
        fields = pathlib.Path(f"/proc/{self.link.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def ways(self) -> list[list[str]]:
        return [["-P", "1"], ["-P", "4"], ["-P", "4", "-C", "bbr"]]


PLACES = {"loopback": Loopback, "wan50": lambda: Wan("wan50", 50, 0.0), "wan100": lambda: Wan("wan100", 100, 0.0),
          "wan50-loss": lambda: Wan("wan50-loss", 50, 1e-4), "wan100-loss": lambda: Wan("wan100-loss", 100, 1e-4)}
