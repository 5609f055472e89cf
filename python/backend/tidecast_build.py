"""Builds the Python package: the PEP 517 backend that pyproject.toml names, and a command for scripts/wheel and scripts/dist.

A wheel holds the extension module, the program and the C library. One cargo command builds all three, because dependencies
are then compiled once; maturin would compile the extension alone, with other features of the same dependencies. So this
module packs the wheel, and maturin writes the metadata and the source distribution.

Environment:
  TIDECAST_PROFILE   profile of cargo (default: release)
  TIDECAST_NO_BUILD  pack what the target directory already holds, and run no compiler
  CARGO              the cargo to run (default: cargo)
"""
# ruff: noqa: ARG001 - PEP 517 names the arguments of its functions
from __future__ import annotations

import argparse
import base64
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator, Mapping

import maturin  # type: ignore[import-not-found, import-untyped, unused-ignore]
import tidecast_sbom

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python/tidecast"
PYTHON_TAG = "cp310-abi3"
# With tidecast-discovery all features are those of `cargo build --workspace`: after `make build` nothing compiles again.
PACKAGES = ("tidecast-cli", "tidecast-capi", "tidecast-python", "tidecast-discovery")
# The first instant that a zip archive can hold: two builds of one source give the same wheel.
EPOCH = (1980, 1, 1, 0, 0, 0)
Settings = Mapping[str, object] | None


@dataclasses.dataclass(frozen=True)
class Build:
    """The targets of the build, and their cargo command."""

    profile: str = "release"
    #: The target of rustc; None: this machine's.
    target: str | None = None
    #: The lowest glibc that the result runs with, e.g. "2.28": zig links it; None: this machine's.
    glibc: str | None = None
    compile: bool = True

    @classmethod
    def of_environment(cls) -> Build:
        """The settings of the environment variables."""
        return cls(profile=os.environ.get("TIDECAST_PROFILE") or "release", compile=not os.environ.get("TIDECAST_NO_BUILD"))

    def cargo(self, *command: str) -> list[str]:
        return [os.environ.get("CARGO") or "cargo", *command]

    def run(self) -> pathlib.Path:
        """Compiles, unless that is not wanted.

        :returns: the directory that holds the program and the libraries
        """
        if self.compile:
            if not (ROOT / "web/dist/index.html").exists():
                subprocess.run([ROOT / "scripts/web"], cwd=ROOT, check=True)
            command = self.cargo("zigbuild" if self.glibc else "build", "--locked", "--profile", self.profile)
            if self.target:
                command += ["--target", self.target + (f".{self.glibc}" if self.glibc else "")]
            subprocess.run([*command, *(f"--package={name}" for name in PACKAGES)], cwd=ROOT, check=True)
        metadata = self.cargo("metadata", "--no-deps", "--locked", "--offline", "--format-version", "1")
        target = json.loads(subprocess.check_output(metadata, cwd=ROOT))["target_directory"]
        return pathlib.Path(target) / (self.target or "") / ("debug" if self.profile == "dev" else self.profile)

    def platform(self) -> str:
        """The platform tag of the wheel."""
        if self.target and self.glibc:
            return f"manylinux_{self.glibc.replace('.', '_')}_{self.target.partition('-')[0]}"
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def stripped(file: pathlib.Path, build: Build, scratch: pathlib.Path) -> pathlib.Path:
    """The file without its symbols. The release profile strips them already; those of a foreign target are left."""
    strip = shutil.which("strip")
    if build.profile == "release" or build.target or not strip:
        return file
    copy = scratch / file.name
    subprocess.run([strip, "-o", copy, file], check=True)
    return copy


Members = Iterator[tuple[str, pathlib.Path]]


def members(programs: pathlib.Path, info: pathlib.Path, build: Build, scratch: pathlib.Path) -> Members:
    """Names in the wheel, and the files that they hold; those of the metadata come last."""
    for file in sorted(PACKAGE.rglob("*")):
        name = file.relative_to(PACKAGE)
        built = name.parts[0] in ("lib", "include") or file.suffix == ".so"
        hidden = any(part.startswith(".") or part == "__pycache__" for part in name.parts)
        if file.is_file() and not built and not hidden:
            yield f"tidecast/{name.as_posix()}", file
    yield "tidecast/_native.abi3.so", stripped(programs / "libtidecast_native.so", build, scratch)
    yield "tidecast/lib/libtidecast.so", stripped(programs / "libtidecast.so", build, scratch)
    yield "tidecast/include/tidecast.h", ROOT / "crates/capi/include/tidecast.h"
    yield from program_and_metadata(programs, info, build, scratch)


def program_and_metadata(programs: pathlib.Path, info: pathlib.Path, build: Build, scratch: pathlib.Path) -> Members:
    """What an editable installation has in its wheel, too."""
    stem = info.name.removesuffix(".dist-info")
    # An installer puts it beside the interpreter, and so on PATH.
    yield f"{stem}.data/scripts/tidecast", stripped(programs / "tidecast", build, scratch)
    materials = scratch / "sbom.json"
    materials.write_bytes(tidecast_sbom.sbom(build.cargo()[0], build.target))
    yield f"{info.name}/sboms/tidecast.cyclonedx.json", materials
    for file in sorted(info.rglob("*")):
        if file.is_file() and file.name not in ("WHEEL", "RECORD"):
            yield f"{info.name}/{file.relative_to(info).as_posix()}", file


def pack(wheel: pathlib.Path, info: str, tag: str, files: Members, level: int) -> None:
    """Writes the archive with WHEEL and RECORD, whole or not at all."""
    part = wheel.with_name(f".{wheel.name}.{os.getpid()}")
    record = []
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:

            def add(name: str, data: bytes, executable: bool = False) -> None:
                entry = zipfile.ZipInfo(name, EPOCH)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (0o100755 if executable else 0o100644) << 16
                archive.writestr(entry, data, compresslevel=level)
                digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                record.append(f"{name},sha256={digest},{len(data)}\n")

            for name, file in files:
                add(name, file.read_bytes(), executable=".data/scripts/" in name or name.endswith(".so"))
            add(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: tidecast-build\nRoot-Is-Purelib: false\nTag: {tag}\n".encode())
            add(f"{info}/RECORD", "".join([*record, f"{info}/RECORD,,\n"]).encode())
        part.replace(wheel)
    finally:
        part.unlink(missing_ok=True)


def metadata_of(directory: str) -> str:
    """Writes the metadata that pyproject.toml asks for, as a directory in ``directory``; returns its name."""
    command = ["maturin", "pep517", "write-dist-info", "--metadata-directory", directory, "--interpreter", sys.executable]
    done = subprocess.run(command, cwd=ROOT, check=False, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"maturin cannot write the metadata:\n{done.stderr}")
    return done.stdout.strip().splitlines()[-1]


def linked(programs: pathlib.Path) -> None:
    """Links what was compiled into the package of the sources, which git ignores there. The next build is then used at once."""
    parts = {"_native.abi3.so": programs / "libtidecast_native.so", "lib/libtidecast.so": programs / "libtidecast.so",
             "include/tidecast.h": ROOT / "crates/capi/include/tidecast.h"}
    for name, built in parts.items():
        if not built.exists():
            sys.exit(f"{built} is not there: build it first (cargo build), or unset TIDECAST_NO_BUILD")
        place = PACKAGE / name
        place.parent.mkdir(exist_ok=True)
        part = place.with_name(f".{place.name}.{os.getpid()}")
        part.symlink_to(built)
        part.replace(place)


def editable_members(programs: pathlib.Path, info: pathlib.Path, build: Build, scratch: pathlib.Path) -> Members:
    """The program, the metadata, and a line that has Python import the package from the sources."""
    linked(programs)
    path = scratch / "tidecast.pth"
    path.write_text(f"{PACKAGE.parent}\n")
    yield "tidecast-editable.pth", path
    yield from program_and_metadata(programs, info, build, scratch)


def wheel(out: pathlib.Path, build: Build, metadata: pathlib.Path | None = None, *, editable: bool = False) -> pathlib.Path:
    """Builds the wheel into the directory ``out``, with ``metadata`` (a .dist-info directory) or new ones."""
    programs = build.run()
    with tempfile.TemporaryDirectory(prefix="tidecast-build-") as name:
        scratch = pathlib.Path(name)
        if metadata is None:
            metadata = scratch / metadata_of(name)
        tag = f"{PYTHON_TAG}-{build.platform()}"
        out.mkdir(parents=True, exist_ok=True)
        path = out / f"{metadata.name.removesuffix('.dist-info')}-{tag}.whl"
        # A wheel for tests is packed in a fifth of the time.
        level = 9 if build.profile == "release" else 1
        files = editable_members if editable else members
        pack(path, metadata.name, tag, files(programs, metadata, build, scratch), level)
    return path


def checked_toolchain() -> None:
    """:raises SystemExit: there is no cargo; the message names a way to install it"""
    if not shutil.which(os.environ.get("CARGO") or "cargo"):
        sys.exit("tidecast is built by Rust, and cargo is not in PATH: install Rust from https://rustup.rs, or a wheel of tidecast")


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    checked_toolchain()
    return []


get_requires_for_build_editable = get_requires_for_build_wheel
get_requires_for_build_sdist = get_requires_for_build_wheel


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    checked_toolchain()
    return metadata_of(metadata_directory)


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    checked_toolchain()
    metadata = pathlib.Path(metadata_directory) if metadata_directory else None
    return wheel(pathlib.Path(wheel_directory), Build.of_environment(), metadata).name


def build_editable(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Modules of Python are those of the sources, so that a change counts at once; the rest is compiled, as for a wheel."""
    checked_toolchain()
    metadata = pathlib.Path(metadata_directory) if metadata_directory else None
    return wheel(pathlib.Path(wheel_directory), Build.of_environment(), metadata, editable=True).name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """The files that git knows, and the built page, which would need npm."""
    checked_toolchain()
    if Build.of_environment().compile:
        subprocess.run([ROOT / "scripts/web"], cwd=ROOT, check=True)
    return str(maturin.build_sdist(sdist_directory, config_settings))


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the wheel into a directory.")
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--target", help="target of rustc; default: this machine's")
    parser.add_argument("--glibc", help="lowest glibc that the wheel runs with, e.g. 2.28; links with zig; default: this machine's")
    asked = parser.parse_args()
    # Of an environment that is not activated, too.
    os.environ["PATH"] = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    print(wheel(asked.out, dataclasses.replace(Build.of_environment(), target=asked.target, glibc=asked.glibc)))


if __name__ == "__main__":
    main()
