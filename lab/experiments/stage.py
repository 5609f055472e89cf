"""The running cluster of a setting: programs on its nodes, the data, every node's copy, and the goodput of TCP."""
from __future__ import annotations

import json
import mmap
import os
import pathlib
import signal

from .. import build, netns
from .process import Failed, Process
from .settings import Setting

LAB = os.environ.get("TIDECAST_LAB", "experiment")
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHUNK = 1 << 20


class Stage:
    """As a context: the lab is up inside and down after it.

    Node n's copy is to be at `target(n)`. `goodput` is the rate of one TCP flow from the origin to the last node, in bytes a second:
    no broadcast is faster than size / goodput, since every link on that way has at most that rate.
    """

    def __init__(self, setting: Setting, folder: pathlib.Path):
        self.setting, self.folder, self.lab = setting, folder, LAB
        self.topology = setting.topology()
        self.count = len(self.topology.nodes)
        self.order = setting.order()
        self.receivers = range(1, self.count)
        self.logs = folder / "logs"
        self.started: list[Process] = []

    def __enter__(self) -> "Stage":
        self.logs.mkdir(parents=True, exist_ok=True)
        build.up(self.lab, self.topology)
        try:
            for n in range(self.count if self.setting.sysctl else 0):
                netns.in_namespace(f"{self.lab}.{self.name(n)}", lambda: netns.sysctl(self.setting.sysctl))
            self.goodput = self._goodput()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.clear()
        build.down(self.lab)

    def address(self, n: int) -> str:
        return self.topology.address(n)

    def name(self, n: int) -> str:
        return f"n{n:03d}"

    def home(self, n: int) -> pathlib.Path:
        return self.folder / "out" / self.name(n)

    def target(self, n: int) -> pathlib.Path:
        return self.home(n) / "copy"

    def start(self, n: int, argv: list, name: str, env: dict | None = None) -> Process:
        """Runs `argv` on node n; its output goes to the log `name`."""
        process = Process(argv, self.logs / f"{name}.log", self.lab, n, env)
        self.started.append(process)
        return process

    def clear(self) -> None:
        """Ends every program on the nodes."""
        for pid in self.pids(range(self.count)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.started:
            process.stop()
        self.started.clear()

    def pids(self, nodes) -> list[int]:
        return netns.pids([n for n in (f"{self.lab}.{self.name(i)}" for i in nodes) if n in netns.of_lab(self.lab)])

    def source(self, size: int) -> pathlib.Path:
        """A file of this many incompressible bytes, the same each time; only the last one is kept."""
        path = self.folder / f"source-{size}"
        if not path.exists():
            for old in self.folder.glob("source-*"):
                old.unlink()
            with open(path, "wb") as f:
                for at in range(0, size, CHUNK):
                    f.write(os.urandom(min(CHUNK, size - at)))
        return path

    def fresh(self) -> None:
        """Empties every node's place. The folders stay: something may be mounted on them."""
        for n in range(self.count):
            self.home(n).mkdir(parents=True, exist_ok=True)
            netns.run(["find", str(self.home(n)), "-mindepth", "1", "-delete"])

    def wrong(self, source: pathlib.Path) -> list[str]:
        """The nodes whose copy is not, byte for byte, the source."""
        return [self.name(n) for n in self.receivers if not same(source, self.target(n))]

    def verify(self, source: pathlib.Path) -> None:
        if wrong := self.wrong(source):
            raise Failed(f"copies that are not the source: {wrong}")

    def _goodput(self) -> float:
        # The last node calls the origin, which sends: where there is a NAT, it is outside.
        server = self.start(0, ["iperf3", "-s", "-1", "--forceflush"], "iperf3-server")
        server.until("iperf3 listens", lambda: "listening" in server.out(), 10)
        out = self.start(self.count - 1, ["iperf3", "-c", self.address(0), "-R", "-t", "4", "-O", "2", "-J"], "iperf3").end(30)
        self.clear()
        rate = json.loads(out)["end"]["sum_received"]["bits_per_second"]
        if rate <= 0:
            raise Failed("iperf3 brought nothing")
        return rate / 8


def same(a: pathlib.Path, b: pathlib.Path) -> bool:
    """Whether two files have the same bytes."""
    try:
        with open(a, "rb") as f, open(b, "rb") as g:
            size = os.fstat(f.fileno()).st_size
            if size != os.fstat(g.fileno()).st_size:
                return False
            if size == 0:
                return True
            with mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as x, mmap.mmap(g.fileno(), 0, prot=mmap.PROT_READ) as y:
                return all(x[at:at + CHUNK] == y[at:at + CHUNK] for at in range(0, size, CHUNK))
    except FileNotFoundError:
        return False
