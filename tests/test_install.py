"""`make install` and `make uninstall`: the installed files, their complete removal, and administrators' changes, which stay."""
from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import PROFILE, ROOT, TARGET

PROGRAM = TARGET / PROFILE / "tidecast"


@pytest.fixture
def make(tmp_path):
    """make(goal, prefix) -> its output; all of it happens below tmp_path/root."""
    (tmp_path / "root").mkdir()

    def run(goal: str, prefix: str = "/usr/local", failing: bool = False) -> str:
        command = [ROOT / "scripts/install", *(["remove"] if goal == "uninstall" else [])]
        env = {"PATH": os.environ["PATH"], "PREFIX": prefix, "DESTDIR": str(tmp_path / "root"), "PROGRAMS": str(TARGET / PROFILE)}
        done = subprocess.run(command, cwd=ROOT, env=env, text=True, capture_output=True, timeout=240)
        assert (done.returncode != 0) == failing, done.stderr
        return done.stdout + done.stderr

    run.root = tmp_path / "root"  # type: ignore[attr-defined]
    return run


def files(root: pathlib.Path) -> set[str]:
    return {f"/{path.relative_to(root)}" for path in root.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("prefix", ["/usr/local", "/usr", "/opt/tidecast"])
def test_uninstall_leaves_nothing(make, prefix):
    make("install", prefix)
    etc = "/etc" if prefix.startswith("/usr") else f"{prefix}/etc"
    there = files(make.root)
    assert {f"{prefix}/bin/tidecast", f"{prefix}/lib/libtidecast.so", f"{prefix}/include/tidecast.h", f"{etc}/tidecast/config.toml",
            f"{prefix}/share/man/man1/tidecast-get.1", f"{prefix}/share/bash-completion/completions/tidecast",
            f"{prefix}/lib/systemd/system/tidecast.socket", f"{prefix}/lib/sysusers.d/tidecast.conf"} <= there
    unit = (make.root / f"{prefix[1:]}/lib/systemd/system/tidecast.service").read_text()
    assert f"ExecStart={prefix}/bin/tidecast daemon" in unit and f"XDG_CONFIG_HOME={etc}\n" in unit
    said = subprocess.check_output([make.root / f"{prefix[1:]}/bin/tidecast", "--version"], text=True, timeout=240)
    assert said.startswith("tidecast ")
    # Again, over it: the same files, and none of them twice in the list.
    make("install", prefix)
    assert files(make.root) == there
    listed = (make.root / f"{prefix[1:]}/share/tidecast/installed").read_text().splitlines()
    assert len(listed) == len(set(listed))
    make("uninstall", prefix)
    assert list(make.root.iterdir()) == []
    assert "nothing is installed" in make("uninstall", prefix, failing=True)


def test_the_files_of_others_and_changed_settings_stay(make):
    other = make.root / "usr/local/share/man/man1/other.1"
    other.parent.mkdir(parents=True)
    other.write_text("other")
    make("install")
    settings = make.root / "etc/tidecast/config.toml"
    settings.write_text("timeout = '1m'\n")
    make("install")
    assert settings.read_text() == "timeout = '1m'\n"
    assert "keeping" in make("uninstall")
    assert files(make.root) == {"/usr/local/share/man/man1/other.1", "/etc/tidecast/config.toml"}


def test_a_file_that_only_the_older_version_had_goes(make):
    make("install")
    old = make.root / "usr/local/share/man/man1/tidecast-old.1"
    old.write_text("old")
    listed = make.root / "usr/local/share/tidecast/installed"
    listed.write_text(f"/usr/local/share/man/man1/tidecast-old.1\n{listed.read_text()}")
    make("install")
    assert not old.exists()


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="needs pkg-config")
def test_pkg_config_knows_the_library(make):
    make("install", "/opt/tidecast")
    env = {"PATH": os.environ["PATH"], "PKG_CONFIG_PATH": str(make.root / "opt/tidecast/lib/pkgconfig")}
    said = subprocess.check_output(["pkg-config", "--cflags", "--libs", "tidecast"], env=env, text=True, timeout=240)
    assert "-I/opt/tidecast/include" in said and "-L/opt/tidecast/lib" in said and "-ltidecast" in said


def test_each_setting_of_the_sample_is_one(tmp_path):
    """Without its comment signs before names, the sample is a configuration that the program takes."""
    lines = (ROOT / "dist/config.toml").read_text().splitlines()
    settings = [line[2:] for line in lines if line.startswith("# ") and (" = " in line or line == "# [daemon]")]
    assert len(settings) > 20
    file = tmp_path / "config.toml"

    def asked() -> subprocess.CompletedProcess:
        command = [PROGRAM, "show", "--config", file, tmp_path / "no-manifest"]
        return subprocess.run(command, env={"HOME": str(tmp_path)}, text=True, capture_output=True, timeout=240)

    file.write_text("\n".join(settings))
    assert "config.toml" not in asked().stderr
    file.write_text("\n".join([*settings, "no_such_setting = 1"]))
    assert "no_such_setting" in asked().stderr
