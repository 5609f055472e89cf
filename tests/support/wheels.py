"""Fixtures of tests of the Python package, as its users have it: the wheel and nothing else, or beside other libraries."""
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# The beginning of all scripts: this host alone, and a place of their own.
PRELUDE = """
import json, os, pathlib, sys, threading
import tidecast
alone = tidecast.Swarm(listen="127.0.0.1:0", lsd=False)
def give(**what): print(json.dumps(what, default=str))
"""


@pytest.fixture(scope="session")
def wheel() -> pathlib.Path:
    """The wheel of this build; `make test` has made it."""
    found = list((ROOT / "target/wheel").glob("*.whl"))
    if not found or not os.environ.get("TIDECAST_NO_BUILD"):
        # Workers of one run build one after another: each build replaces the directory.
        (ROOT / "target").mkdir(exist_ok=True)
        with (ROOT / "target/wheel.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run([ROOT / "scripts/wheel"], check=True, env={**os.environ, "PYTHON": sys.executable})
        found = list((ROOT / "target/wheel").glob("*.whl"))
    return found[0]


@pytest.fixture(scope="session")
def package(wheel, tmp_path_factory) -> dict[str, str]:
    """The environment variables with which the Python of the tests finds the content of the wheel, beside the libraries of the tests."""
    place = tmp_path_factory.mktemp("package")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*install, "--target", place, wheel], check=True, timeout=240)
    path = f"{place}/bin:{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    return {"PYTHONPATH": str(place), "PATH": path}


@pytest.fixture
def extension(package, monkeypatch) -> None:
    """Modules that the tests' own process imports from the sources use the extension module of the wheel."""
    monkeypatch.syspath_prepend(ROOT / "python")
    import tidecast
    monkeypatch.setattr(tidecast, "__path__", [*tidecast.__path__, f"{package['PYTHONPATH']}/tidecast"])


@pytest.fixture(scope="session")
def fresh(wheel, tmp_path_factory) -> pathlib.Path:
    """An environment that has the wheel alone."""
    place = tmp_path_factory.mktemp("wheel") / "env"
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    install = [place / "bin/python", "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel]
    subprocess.run(install, check=True)
    return place


class Script:
    """script(text) -> its result; ``popen`` of one that is interrupted. Each runs in a directory and home of its own."""

    def __init__(self, python: str | pathlib.Path, environment: dict[str, str], place: pathlib.Path):
        self._argv, self._place = [python, "-uc"], place
        self._environment = {"HOME": str(place), "LANG": "C.UTF-8", **environment}
        self._running: list[subprocess.Popen] = []

    def __call__(self, text: str, **env: str) -> dict:
        out, err = self.run(text, **env)
        given: dict = {"stderr": err}
        for line in out.splitlines():
            if line.startswith("{"):
                given.update(json.loads(line))
        return given

    def run(self, text: str, **env: str) -> tuple[str, str]:
        """The output of a script, to standard output and to standard error."""
        # A session of its own: the processes that it has started end with it, whatever happens.
        process = subprocess.Popen([*self._argv, PRELUDE + textwrap.dedent(text)], cwd=self._place, text=True, start_new_session=True,
                                   env={**self._environment, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=240)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.returncode == 0, out + err
        return out, err

    def popen(self, text: str) -> subprocess.Popen:
        """A script that keeps running; it ends with the test at the latest."""
        self._running.append(subprocess.Popen([*self._argv, PRELUDE + textwrap.dedent(text)], cwd=self._place, text=True,
                                              env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True))
        return self._running[-1]

    def close(self) -> None:
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def script(fresh, tmp_path) -> Iterator[Script]:
    """Runs scripts in an environment that has the wheel alone."""
    with contextlib.closing(Script(fresh / "bin/python", {"PATH": f"{fresh}/bin:{os.environ['PATH']}"}, tmp_path)) as script:
        yield script


@pytest.fixture
def beside(package, tmp_path) -> Iterator[Script]:
    """Runs scripts with the wheel beside the libraries that the tests have."""
    with contextlib.closing(Script(sys.executable, package, tmp_path)) as script:
        yield script
