"""What `make dist` packs beside wheels: the container image, the RPM package, the files of the static program. `make dist-test`
installs and runs them."""
from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile

import pytest
from conftest import PROFILE, ROOT, TARGET


def image(tmp_path: pathlib.Path, name: str) -> pathlib.Path:
    program = tmp_path / "program"
    program.write_bytes(b"a program")
    subprocess.run([ROOT / "scripts/container", "x86_64", program, tmp_path / name], check=True, timeout=240, stdout=subprocess.DEVNULL)
    return tmp_path / name


def test_the_container_image_is_an_oci_layout(tmp_path):
    with tarfile.open(image(tmp_path, "image.tar")) as archive:
        def read(name: str) -> bytes:
            return archive.extractfile(name).read()

        def blob(descriptor: dict) -> bytes:
            data = read(f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}")
            assert descriptor == {**descriptor, "size": len(data), "digest": f"sha256:{hashlib.sha256(data).hexdigest()}"}
            return data

        assert json.loads(read("oci-layout")) == {"imageLayoutVersion": "1.0.0"}
        [entry] = json.loads(read("index.json"))["manifests"]
        manifest = json.loads(blob(entry))
        config = json.loads(blob(manifest["config"]))
        [layer] = manifest["layers"]
        tree = gzip.decompress(blob(layer))
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(tree).hexdigest()}"]
        assert (config["architecture"], config["config"]["Entrypoint"]) == ("amd64", ["/usr/bin/tidecast"])
        # Docker before 25 reads this.
        [older] = json.loads(read("manifest.json"))
        assert older["RepoTags"] == [f"localhost/tidecast:{entry['annotations']['org.opencontainers.image.ref.name']}"]
        for name in (older["Config"], *older["Layers"]):
            read(name)
    with tarfile.open(fileobj=io.BytesIO(tree)) as files:
        program = files.getmember("usr/bin/tidecast")
        assert (program.mode, program.uid, program.mtime) == (0o755, 0, 0)
        assert files.getmember("tmp").mode == 0o1777 and files.getmember("var/lib/tidecast").mode == 0o711


def test_equal_programs_give_equal_images(tmp_path):
    assert image(tmp_path, "a.tar").read_bytes() == image(tmp_path, "b.tar").read_bytes()
    assert not list(tmp_path.glob(".*"))


def installed(tmp_path: pathlib.Path, **env: str) -> set[str]:
    words = {"PATH": os.environ["PATH"], "PREFIX": "/usr", "DESTDIR": str(tmp_path / "root"), "PROGRAMS": str(TARGET / PROFILE), **env}
    subprocess.run([ROOT / "scripts/install"], check=True, cwd=ROOT, env=words, timeout=240, stdout=subprocess.DEVNULL)
    return {f"/{path.relative_to(tmp_path / 'root')}" for path in (tmp_path / "root").rglob("*") if path.is_file()}


def test_a_static_program_comes_without_the_library(tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "tidecast").symlink_to(TARGET / PROFILE / "tidecast")
    files = installed(tmp_path, NO_LIBRARY="1", PROGRAMS=str(programs))
    assert "/usr/bin/tidecast" in files and "/usr/share/man/man1/tidecast-cache-get.1" in files
    assert not [file for file in files if "include" in file or "pkgconfig" in file or file.endswith(".so")]


@pytest.mark.skipif(not shutil.which("rpmbuild"), reason="SKIPPED: rpmbuild is not installed (apt-get install rpm)")
def test_the_rpm_package_has_the_files_of_an_installation(tmp_path):
    files = installed(tmp_path, LIBDIR="/usr/lib64/tidecast")
    env = {**os.environ, "PROGRAMS": str(TARGET / PROFILE), "RPM_PAYLOAD": "w1.gzdio", "RELEASE": "7", "GLIBC": "2.30"}
    done = subprocess.run([ROOT / "scripts/rpm", "x86_64", tmp_path], check=True, env=env, timeout=240, text=True, stdout=subprocess.PIPE)
    package = done.stdout.strip()
    assert package.endswith("-7.x86_64.rpm")

    def asked(*words: str) -> set[str]:
        return set(subprocess.check_output(["rpm", "-qp", *words, package], timeout=240, text=True).splitlines())

    packed = asked("--list")
    elsewhere = {"/usr/share/tidecast/installed", "/usr/share/doc/tidecast/config.toml", "/usr/share/doc/tidecast/LICENSE",
                 "/usr/lib64/tidecast/pkgconfig/tidecast.pc"}
    compressed = {f"{file}.gz" if "/man/" in file else file for file in files - elsewhere}
    assert compressed <= packed
    assert {"/usr/share/licenses/tidecast/LICENSE", "/usr/lib64/pkgconfig/tidecast.pc",
            "/usr/lib/systemd/system-preset/50-tidecast.preset"} <= packed
    assert asked("--configfiles") == {"/etc/tidecast/config.toml"}
    assert "libc.so.6(GLIBC_2.30)(64bit)" in asked("--requires")
