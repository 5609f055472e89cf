"""The wheel is well formed; a source distribution has all that its build needs, and gives the same wheel."""
from __future__ import annotations

import base64
import email
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import PROFILE, ROOT

BACKEND = "python/backend/tidecast_build.py"
# Packs the results of the tests' build: no compiler runs.
ENVIRONMENT = {**os.environ, "TIDECAST_PROFILE": PROFILE, "TIDECAST_NO_BUILD": "1",
               "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}


def packed(tree: pathlib.Path, out: pathlib.Path, **env: str) -> pathlib.Path:
    """The wheel of a source tree."""
    subprocess.run([sys.executable, tree / BACKEND, out], check=True, env={**ENVIRONMENT, **env}, timeout=240)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    return packed(ROOT, tmp_path_factory.mktemp("wheel"))


def test_a_wheel_records_each_of_its_files(wheel):
    name, version, *tag = wheel.name.removesuffix(".whl").split("-")
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        recorded = {}
        for line in archive.read(f"{info}/RECORD").decode().splitlines():
            path, digest, size = line.rsplit(",", 2)
            recorded[path] = digest, size
        assert recorded.pop(f"{info}/RECORD") == ("", "")
        assert sorted([*recorded, f"{info}/RECORD"]) == sorted(archive.namelist())
        for path, (digest, size) in recorded.items():
            data = archive.read(path)
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={expected}", str(len(data))), path
        about = email.message_from_bytes(archive.read(f"{info}/WHEEL"))
        assert about["Tag"] == "-".join(tag) and about["Root-Is-Purelib"] == "false"
        materials = json.loads(archive.read(f"{info}/sboms/tidecast.cyclonedx.json"))
        named = {component["name"] for component in materials["components"]}
        assert {"tidecast", "tidecast-cli", "pyo3", "rustls"} <= named and not {"proptest", "serde_derive", "windows-sys"} & named
        program = archive.getinfo(f"{name}-{version}.data/scripts/tidecast")
        assert program.external_attr >> 16 == 0o100755


def test_a_source_distribution_gives_the_same_wheel(wheel, tmp_path):
    build = "import sys; sys.path.insert(0, 'python/backend'); import tidecast_build; tidecast_build.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, tmp_path], check=True, cwd=ROOT, env=ENVIRONMENT, timeout=240)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    tree = next(tmp_path.glob("tidecast-*/"))
    assert (tree / "web/dist/index.html").exists() == (ROOT / "web/dist/index.html").exists()
    target = os.environ.get("CARGO_TARGET_DIR") or ROOT / "target"
    again = packed(tree, tmp_path / "wheel", CARGO_TARGET_DIR=str(target))
    assert again.read_bytes() == wheel.read_bytes()


def test_after_make_build_a_wheel_compiles_nothing_again():
    """Its crates have the features that they have in a build of the workspace."""
    code = "import sys; sys.path.insert(0, 'python/backend'); import tidecast_build; print(*tidecast_build.PACKAGES)"
    names = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True, timeout=240).split()

    def crates(*which: str) -> set[str]:
        command = ["cargo", "tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--no-dedupe", "--format", "{p} {f}", *which]
        return set(subprocess.check_output(command, cwd=ROOT, text=True, timeout=240).splitlines())

    assert crates(*(f"--package={name}" for name in names)) <= crates("--workspace")


def test_a_build_without_rust_says_where_to_get_it(tmp_path):
    wanted = {**ENVIRONMENT, "PATH": str(tmp_path), "CARGO": "", "TIDECAST_NO_BUILD": ""}
    build = "import sys; sys.path.insert(0, 'python/backend'); import tidecast_build; tidecast_build.build_wheel(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", build, tmp_path], cwd=ROOT, env=wanted, text=True, capture_output=True, timeout=240)
    assert done.returncode == 1 and "https://rustup.rs" in done.stderr and not list(tmp_path.iterdir())
