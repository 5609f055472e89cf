"""`pip install -e .` in a fresh environment: modules of the sources, compiled parts of the build."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest
from conftest import PROFILE, ROOT, TARGET


@pytest.fixture
def sources(tmp_path) -> pathlib.Path:
    """A copy of what git knows: an editable installation writes into its sources."""
    place = tmp_path / "sources"
    names = subprocess.check_output(["git", "ls-files", "-z", "--", "crates", "python", "pyproject.toml", "Cargo.*", "README.md",
                                     "LICENSE", "fuzz", "rustfmt.toml"], cwd=ROOT, text=True)
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    return place


def environment(**env: str) -> dict[str, str]:
    """maturin is there, as it is in the environment that pip makes for a build; no compiler runs."""
    return {**os.environ, "TIDECAST_PROFILE": PROFILE, "TIDECAST_NO_BUILD": "1", "CARGO_TARGET_DIR": str(TARGET),
            "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": sysconfig.get_path("purelib"), **env}


def install(env: pathlib.Path, sources: pathlib.Path, **more: str) -> subprocess.CompletedProcess[str]:
    words = [env / "bin/python", "-m", "pip", "install", "--no-build-isolation", "--no-index", "--no-deps", "--disable-pip-version-check"]
    return subprocess.run([*words, "-e", sources], env=environment(**more), text=True, capture_output=True, timeout=240)


def test_an_editable_installation_runs_the_sources(sources, tmp_path):
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", env], check=True, timeout=240)
    done = install(env, sources)
    assert done.returncode == 0, done.stdout + done.stderr
    module = sources / "python/tidecast/_installed.py"
    module.write_text(module.read_text() + "\nCHANGED = True\n")
    (tmp_path / "data").write_text("x")
    text = """if True:
        import json, os, tidecast, tidecast._installed, tidecast._native, importlib.metadata as metadata
        print(json.dumps(dict(
            file=tidecast.__file__, native=os.path.realpath(tidecast._native.__file__), program=tidecast.find_tidecast_bin(),
            changed=tidecast._installed.CHANGED, bytes=tidecast.publish("data").bytes, version=metadata.version("tidecast"),
            same=metadata.version("tidecast") == tidecast.__version__, library=os.path.exists(tidecast.get_library()),
            header=os.path.exists(tidecast.get_include() + "/tidecast.h"))))
        """
    # Isolated: neither PYTHONPATH nor the working directory leads to a package.
    given = json.loads(subprocess.check_output([env / "bin/python", "-Ic", text], cwd=tmp_path, text=True, timeout=240))
    assert given["file"] == str(sources / "python/tidecast/__init__.py") and given["changed"]
    assert given["native"] == str((TARGET / PROFILE / "libtidecast_native.so").resolve())
    assert given["program"] == str(env / "bin/tidecast") and given["bytes"] == 1
    assert given["same"] and given["library"] and given["header"]
    # A second installation replaces the first; the removal takes the program along and leaves the sources.
    assert install(env, sources).returncode == 0
    subprocess.run([env / "bin/python", "-m", "pip", "uninstall", "--yes", "tidecast"], check=True, capture_output=True, timeout=240)
    assert not (env / "bin/tidecast").exists() and module.exists()


def test_an_editable_installation_says_what_is_missing(sources, tmp_path):
    env = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", env], check=True, timeout=240)
    rust = install(env, sources, PATH=f"{pathlib.Path(sys.executable).parent}:/nowhere", CARGO="/no/cargo")
    assert rust.returncode and "install Rust" in rust.stdout + rust.stderr
    built = install(env, sources, CARGO_TARGET_DIR=str(tmp_path / "empty"))
    assert built.returncode and "is not there: build it first" in built.stdout + built.stderr
    left = subprocess.run([env / "bin/python", "-Ic", "import tidecast"], capture_output=True, timeout=240)
    assert left.returncode, "nothing is half installed"
