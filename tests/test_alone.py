"""The second look at failures, and the tests that run alone (support/alone.py), in a small suite of their own."""
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parent

CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support import alone
def pytest_configure(config):
    alone.register(config)
"""

SUITE = """
import os, pathlib, time, pytest
HERE = pathlib.Path(__file__).parent

def first(name):
    seen = HERE / name
    there = seen.exists()
    seen.touch()
    return not there

def test_fails_once():
    assert not first("call"), "the first time"

@pytest.fixture
def place():
    yield
    assert not first("teardown")

def test_is_left_badly_once(place):
    pass

def test_bad():
    assert 0

@pytest.mark.parametrize("n", range(4))
def test_beside_others(n):
    busy = HERE / f"busy{n}"
    busy.touch()
    for _ in range(50):
        if len(list(HERE.glob("busy*"))) > 1:
            break
        time.sleep(0.02)
    busy.rename(HERE / f"was{n}")

@pytest.mark.alone
@pytest.mark.xdist_group("lab")
def test_measures():
    assert not list(HERE.glob("busy*")) and len(list(HERE.glob("was*"))) in (0, 4)

@pytest.mark.alone
def test_measures_once():
    assert not first("alone")

@pytest.mark.alone
def test_ends_python():
    os._exit(3)

@pytest.mark.parametrize("n", range(21))
def test_many(n):
    with (HERE / "many").open("a") as out:
        print(n, file=out)
    assert 0
"""


@pytest.fixture
def suite(tmp_path):
    """suite(*words) -> how a pytest of it ends."""
    def run(*words) -> subprocess.CompletedProcess:
        (tmp_path / "conftest.py").write_text(CONFTEST)
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -ra --strict-markers -p no:cacheprovider -p no:zarr\n")
        (tmp_path / "test_it.py").write_text(SUITE)
        return subprocess.run([sys.executable, "-m", "pytest", *words], cwd=tmp_path, capture_output=True, text=True, timeout=300)

    return run


def test_failures_are_tried_again_alone_and_what_measures_runs_after_all_others(suite):
    done = suite("-n", "2", "-k", "not many")
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and "2 failed, 5 passed, 3 flaky" in lines[-1], done.stdout
    assert lines[-4:-1] == [f"FLAKY test_it.py::test_{name}" for name in ("fails_once", "is_left_badly_once", "measures_once")], done.stdout
    failed = {line.split()[1] for line in lines if line.startswith("FAILED ")}
    assert failed == {f"test_it.py::test_{name}" for name in ("bad", "ends_python")}
    assert "the first time" in done.stdout


def test_a_run_with_flaky_tests_only_is_good(suite):
    done = suite("-q", "-k", "measures")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1].startswith("1 passed, ") and "1 flaky" in lines[-1], done.stdout
    assert lines[-2] == "FLAKY test_it.py::test_measures_once", done.stdout


def test_many_failures_are_not_tried_again(suite, tmp_path):
    done = suite("-q", "-k", "many")
    assert done.returncode == 1 and "21 failed" in done.stdout and len((tmp_path / "many").read_text().split()) == 21, done.stdout
