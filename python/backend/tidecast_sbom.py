"""The bill of materials of a build: each crate that is linked in, with version, licence and checksum (CycloneDX 1.5)."""
from __future__ import annotations

import importlib
import json
import pathlib
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILT = ("tidecast-cli", "tidecast-capi", "tidecast-python")


def sbom(cargo: str = "cargo", target: str | None = None) -> bytes:
    """The document. It depends on the sources and the target alone, so equal builds have equal documents."""
    if not target:
        about = subprocess.check_output([cargo, "-vV"], text=True)
        target = next(line.removeprefix("host: ") for line in about.splitlines() if line.startswith("host: "))
    command = [cargo, "metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", target]
    metadata = json.loads(subprocess.check_output(command, cwd=ROOT))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    linked: dict[str, list[str]] = {}
    waiting = [key for key, package in packages.items() if package["name"] in BUILT]
    while waiting:
        key = waiting.pop()
        if key in linked:
            continue
        # Neither dependencies of tests, nor build dependencies.
        normal = [dep["pkg"] for dep in nodes[key]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        linked[key] = [dep for dep in normal if not procedural(packages[dep])]
        waiting += linked[key]
    sums = checksums()
    components = [component(packages[key], sums) for key in linked]
    dependencies = [
        {"ref": purl(packages[key]), "dependsOn": sorted(purl(packages[dep]) for dep in deps)} for key, deps in linked.items()
    ]
    version = next(package["version"] for package in packages.values() if package["name"] == BUILT[0])
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "tidecast", "version": version, "bom-ref": "tidecast"}},
        "components": sorted(components, key=lambda each: str(each["bom-ref"])),
        "dependencies": sorted(dependencies, key=lambda each: str(each["ref"])),
    }
    return json.dumps(document, indent=1).encode()


def procedural(package: dict[str, Any]) -> bool:
    """Whether the compiler runs it, so that nothing of it is linked."""
    return any("proc-macro" in target["kind"] for target in package["targets"])


def purl(package: dict[str, Any]) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package: dict[str, Any], sums: dict[tuple[str, str], str]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "library", "name": package["name"], "version": package["version"], "bom-ref": purl(package), "purl": purl(package),
    }
    if package["license"]:
        # Cargo's older form of "or" is not SPDX's.
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    digest = sums.get((package["name"], package["version"]))
    if digest:
        made["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return made


def checksums() -> dict[tuple[str, str], str]:
    """Those of Cargo.lock; none on Python 3.10, which has no reader of TOML."""
    try:
        tomllib = importlib.import_module("tomllib")
    except ModuleNotFoundError:
        return {}
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(package["name"], package["version"]): package["checksum"] for package in lock["package"] if "checksum" in package}


if __name__ == "__main__":
    sys.stdout.buffer.write(sbom(target=sys.argv[1] if len(sys.argv) > 1 else None))
