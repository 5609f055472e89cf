"""The methods that bring a tree to nodes, by name: the commands at the origin and on each node."""
from __future__ import annotations

import pathlib
import shutil
import sys
from dataclasses import dataclass

from ..stage import Stage
from ..tools.tidecast import PROGRAM, events

PORT = 7000
SERVE = pathlib.Path(__file__).with_name("serve.py")
SFTP = "/usr/lib/openssh/sftp-server"
# No encryption, which ours has; the kernel keeps all it has read, names that are not there among them.
SSHFS = f"ro,directport={PORT},max_conns=4,kernel_cache,dir_cache=yes,dcache_timeout=86400,dcache_max_size=1000000," \
        "entry_timeout=86400,attr_timeout=86400,negative_timeout=86400"


@dataclass
class Software:
    """The program to start: the tree, the command line, the files of the tree whose ELF headers name all libraries of the program,
    and how many bytes of the tree are read."""

    at: pathlib.Path
    start: str
    program: str
    touched: int = 0


@dataclass(frozen=True)
class Way:
    """Brings the tree of this stage to `at`, the path that it has at the origin too."""

    name: str
    about: str
    words: str = ""

    def missing(self) -> str:
        """A program that it needs and that is not here."""
        return ""

    def begin(self, stage: Stage, at: pathlib.Path) -> None:
        """At the origin, before the nodes start."""

    def bring(self, stage: Stage, software: Software, n: int) -> str:
        """On a node: words for a shell."""
        raise NotImplementedError

    def ask(self, at: pathlib.Path) -> str:
        """On a node, when all is over: words whose output has figures."""
        return "true"


class Mount(Way):
    """`tidecast mount` with these words; {list} and {program} stand for a recorded list and the program that is started."""

    def missing(self) -> str:
        return "" if PROGRAM.exists() else "target/release/tidecast (cargo build --release --workspace)"

    def policy(self) -> list[str]:
        """The origin has the same."""
        words = self.words.split()
        return words[words.index("--policy"):][:2] if "--policy" in words else []

    def begin(self, stage: Stage, at: pathlib.Path) -> None:
        words = ["--listen", f"{stage.address(0)}:6881", *self.policy()]
        share = stage.start(0, [PROGRAM, "--json", "--state-dir", stage.folder / "state", "share", at, *words], "share")
        share.until("the origin shares", lambda: self.ticket(stage), 300)

    def ticket(self, stage: Stage) -> str:
        (share,) = [p for p in stage.started if p.log.stem == "share"]
        return next((e["ticket"] for e in events(share) if e["event"] == "started"), "")

    def bring(self, stage: Stage, software: Software, n: int) -> str:
        at, home = software.at, stage.home(n)
        words = self.words.replace("{list}", f"{stage.folder}/{at.name}.list").replace("{program}", software.program)
        return f"{PROGRAM} -q --state-dir {home}/state mount {self.ticket(stage)} {at} --cache {home}/cache {words}"

    def ask(self, at: pathlib.Path) -> str:
        return f"{PROGRAM} --json status {at}"


class Sshfs(Way):
    def missing(self) -> str:
        return next((p for p in ("sshfs", SFTP) if not shutil.which(p)), "")

    def begin(self, stage: Stage, at: pathlib.Path) -> None:
        serve(stage, SFTP)

    def bring(self, stage: Stage, software: Software, n: int) -> str:
        return f"sshfs {stage.address(0)}:{software.at} {software.at} -o {SSHFS}"


class Tar(Way):
    def begin(self, stage: Stage, at: pathlib.Path) -> None:
        serve(stage, "tar", "-C", str(at), "-cf", "-", ".")

    def bring(self, stage: Stage, software: Software, n: int) -> str:
        at, home = software.at, stage.home(n)
        return f"mkdir {home}/tree && mount --bind {home}/tree {at} && tar -C {at} -xf - < /dev/tcp/{stage.address(0)}/{PORT}"


class Here(Way):
    """To compare with: each node has all of it, in memory."""

    def bring(self, stage: Stage, software: Software, n: int) -> str:
        return f"mount --bind {stage.folder}/here {software.at}"

    def begin(self, stage: Stage, at: pathlib.Path) -> None:
        copy = stage.folder / "here"
        if not copy.exists():
            shutil.copytree(at, copy, symlinks=True)


def serve(stage: Stage, *command: str) -> None:
    server = stage.start(0, [sys.executable, SERVE, PORT, *command], "serve")
    server.until("the origin listens", lambda: "listening" in server.out(), 30)


RECORD = Mount("record", "one node writes down what it reads", "--mode file --record {list}")
HYBRID_LIST = Mount("hybrid-list", "Tidecast, hybrid, a recorded list, --group", "--group --prefetch {list}")
HYBRID = Mount("hybrid", "Tidecast, hybrid, no list, --group", "--group")
HYBRID_EXE = Mount("hybrid-exe", "Tidecast, hybrid, --prefetch-exe, --group", "--group --prefetch-exe {program}")
FILE = Mount("file", "Tidecast, file, no --group", "--mode file")
LIST_ALONE = Mount("list-alone", "Tidecast, hybrid, a recorded list, no --group", "--prefetch {list}")
BULK = Mount("bulk", "Tidecast, bulk, --group", "--mode bulk --group")
SSH = Sshfs("sshfs", "sshfs, not encrypted")
TAR = Tar("tar", "tar over TCP, unpacked in memory")
HERE = Here("here", "all of it there, in memory")
