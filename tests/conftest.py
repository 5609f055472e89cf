"""Fixtures shared by all end-to-end tests: the built programs, bounded processes, free ports, a lab, mounts."""
from __future__ import annotations

import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
sys.path.insert(0, str(ROOT))

from support import alone  # noqa: E402
from support.daemons import Site  # noqa: E402
from support.mounts import Mounts, needs_mounts  # noqa: E402
from support.proc import Proc  # noqa: E402
from support.tidecast import Node  # noqa: E402
from support.wheels import beside, extension, fresh, package, script, wheel  # noqa: E402, F401

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
# Which build is tested: `make test` has a profile of its own (Cargo.toml).
PROFILE = os.environ.get("TIDECAST_PROFILE", "release")


def pytest_configure(config):
    config.addinivalue_line("markers", "root: needs root and network namespaces")
    alone.register(config)
    # A shell that starts the tests in the background ignores Ctrl-C for them, and every program that they start inherits that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    for item in items:
        # Labs change settings of the whole machine and put them back: with several workers, one of them has all labs.
        if "lab" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("lab"))


def pytest_runtest_setup(item):
    if item.get_closest_marker("root") and os.geteuid():
        pytest.skip("SKIPPED: this test needs root")


def needs(*programs: str) -> None:
    """Skip, saying why, when a program of somebody else is not installed."""
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"SKIPPED: {program} is not installed (make setup)")


@pytest.fixture(scope="session")
def built() -> pathlib.Path:
    """The folder of the programs, built once."""
    if not os.environ.get("TIDECAST_NO_BUILD"):
        # All of it, and for the profile of the tests these too: of some alone, dependencies have other features and are built again.
        words = ["--all-targets"] if PROFILE == "testing" else []
        subprocess.run(["cargo", "build", "--profile", PROFILE, "--quiet", "--workspace", *words], cwd=ROOT, check=True)
    return TARGET / PROFILE


@pytest.fixture
def start(tmp_path, request):
    """start(argv, ...) -> Proc; all of them are ended after the test, whatever happened."""
    running: list[Proc] = []

    def begin(argv, **kw) -> Proc:
        name = pathlib.Path(str(argv[0])).name
        proc = Proc(argv, tmp_path / f"{len(running):02d}-{name}", **kw)
        running.append(proc)
        return proc

    yield begin
    for proc in reversed(running):
        proc.kill()


@pytest.fixture
def launcher(tmp_path):
    """launcher(lines) -> a template for `bcast --launch`: a worker starts after these lines of shell, to which it is $host."""
    def write(lines: str) -> str:
        script = tmp_path / "launch"
        script.write_text(f'#!/bin/sh\nhost=$1; shift\n{lines}\nexec "$@"\n')
        script.chmod(0o755)
        return f"{script} {{host}} {{command}}"

    return write


@pytest.fixture
def port():
    """port() -> a TCP and UDP port that is free now, on every loopback address; outside of the system's range of ephemeral ports, and
    of other workers' ports."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    free = range(20_000 + 1000 * (worker % 12), 21_000 + 1000 * (worker % 12))
    taken: set[int] = set()

    def find() -> int:
        while True:
            number = random.choice(free)
            with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
                try:
                    tcp.bind(("", number))
                    udp.bind(("", number))
                except OSError:
                    continue
                if number not in taken:
                    taken.add(number)
                    return number

    return find


def lab_works() -> str | None:
    """Why no lab can be raised here, or None."""
    if os.geteuid():
        return "network namespaces need root"
    if not shutil.which("ip"):
        return "iproute2 is not installed"
    probe = f"tcprobe{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode:
        return "this system gives no network namespaces"
    subprocess.run(["ip", "netns", "del", probe], capture_output=True)
    return None


class Lab:
    """The lab command, under a name of this test's own."""

    def __init__(self, name: str):
        self.env = {**os.environ, "TIDECAST_LAB": name}
        self.name = name

    def argv(self, *words) -> list[str]:
        return [sys.executable, str(ROOT / "lab" / "lab"), *map(str, words)]

    def __call__(self, *words, code: int | None = 0) -> str:
        p = subprocess.run(self.argv(*words), env=self.env, capture_output=True, text=True, timeout=120)
        assert code is None or p.returncode == code, f"lab {words}: {p.returncode}\n{p.stdout}{p.stderr}"
        return p.stdout + p.stderr

    def address(self, node: int) -> str:
        return self("exec", node, "--", "sh", "-c", "hostname -I").split()[0]

    def counters(self) -> dict:
        """Bytes across each link and of each node so far."""
        return json.loads(self("counters"))

    def on(self, node, *argv) -> list[str]:
        """The command that runs argv on a node (for `start`, with env=lab.env)."""
        return self.argv("exec", node, "--", *argv)


@pytest.fixture
def lab():
    """A lab that is taken down exactly after the test."""
    reason = lab_works()
    if reason:
        pytest.skip(f"SKIPPED: {reason}")
    this = Lab("t" + uuid.uuid4().hex[:8])
    yield this
    this("down")


@pytest.fixture
def node(built, tmp_path, start):
    """node(name) -> a place to run tidecast on this machine; node(name, lab=lab, n=3) -> on a node of the lab."""
    def make(name: str = "node", lab=None, n: int | None = None) -> Node:
        return Node(built / "tidecast", tmp_path / "homes" / name, start, lab, n)

    return make


@pytest.fixture
def tide(node):
    """tidecast on this machine, for tests that need only one identity."""
    return node("only")


@pytest.fixture
def mounts(tmp_path):
    """Mounts of this test, gone after it."""
    needs_mounts()
    these = Mounts(tmp_path)
    yield these
    these.clear()


@pytest.fixture
def shared(node, port):
    """shared(tree) -> the origin's process and a ticket."""
    def begin(tree, *words):
        return node("origin").share(tree, f"127.0.0.1:{port()}", "--no-lsd", *words)

    return begin


@pytest.fixture
def here(node):
    return node("here")


@pytest.fixture
def site(built, tmp_path, start, port):
    """Hosts with daemons that trust one CA."""
    return Site(built / "tidecast", tmp_path, start, port)
