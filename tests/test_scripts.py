"""The scripts around the project: the purity and containment checks find what they are for; each says what it is for."""
import importlib.machinery
import importlib.util
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture
def purity(tmp_path, monkeypatch):
    """The purity script on a copy of one crate, its dependencies taken as harmless."""
    loader = importlib.machinery.SourceFileLoader("purity", str(ROOT / "scripts/purity"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("purity", loader))
    loader.exec_module(module)
    shutil.copytree(ROOT / "crates/wire/src", tmp_path / "crates/wire/src")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PURE", ("wire",))
    monkeypatch.setattr(module, "REPEATABLE", ())
    monkeypatch.setattr(module, "dependencies", lambda crate: {"bytes"})
    module.file = tmp_path / "crates/wire/src/impure.rs"
    return module


def test_a_pure_crate_passes(purity):
    assert purity.main() == 0


@pytest.mark.parametrize("line", [
    "let now = std::time::Instant::now();", "use std::time::SystemTime;", "std::fs::read(path)", "use std::{fs, io};",
    "use std::{\n    collections::HashMap,\n    thread,\n};", "let t = Instant::now();", "use std::net::TcpStream;",
    "use std::time::{Duration, Instant};", "std::env::var(\"X\")"])
def test_impurity_is_found(purity, line):
    purity.file.write_text(line + "\n")
    assert purity.main() == 1


@pytest.mark.parametrize("line", ["let share = left as f64 / 3.0;", "use std::collections::{BTreeMap, HashMap};"])
def test_what_differs_from_run_to_run_is_found_where_it_may_decide(purity, monkeypatch, line):
    purity.file.write_text(line + "\n")
    monkeypatch.setattr(purity, "REPEATABLE", ("wire",))
    assert purity.main() == 1


@pytest.mark.parametrize("line", ["// std::fs is not for us", "use std::time::Duration;", "use std::net::SocketAddr;",
                                  "#[cfg(test)]\nmod tests { use std::fs; }"])
def test_harmless_lines_pass(purity, line):
    purity.file.write_text(line + "\n")
    assert purity.main() == 0


def test_a_forbidden_dependency_is_found(purity, monkeypatch):
    monkeypatch.setattr(purity, "dependencies", lambda crate: {"bytes", "tokio"})
    assert purity.main() == 1


@pytest.fixture
def contained(tmp_path, monkeypatch):
    """The containment script on a tree of its own."""
    loader = importlib.machinery.SourceFileLoader("contained", str(ROOT / "scripts/contained"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("contained", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    for crate in module.CRATES:
        (tmp_path / f"crates/{crate}/src").mkdir(parents=True)
    module.file = tmp_path / "crates/depot/src/astray.rs"
    return module


@pytest.mark.parametrize("line", [
    "std::fs::remove_dir_all(path)?;", "fs::rename(from, to)?;", "let f = File::open(&path)?;", "OpenOptions::new().read(true)",
    "if path.is_dir() {", "if path.exists() {", "let m = path.metadata()?;", "let p = path.canonicalize()?;", "fs::hard_link(a, b)",
    "tempfile::tempfile()?;", "openat(CWD, path, flags, mode)", "std::os::unix::fs::symlink(a, b)?;", "fs::set_permissions(p, m)?;",
    "rustix::fs::open(path, flags, mode)?;", "xattr::get(path, name)", "for e in path.read_dir()? {", "std::os::unix::fs::chown(p, u, g)",
    "let x = self.dir.join(name).symlink_metadata();", "File::create(path)"])
def test_a_way_around_paths_is_found(contained, line):
    contained.file.write_text(line + "\n")
    assert contained.main() == 1


@pytest.mark.parametrize("line", [
    "// std::fs::read(path) would follow links", "let m = file.metadata()?;", "root.open_file(path)?;", "use std::fs::File;",
    "self.0.layout.is_dir(&path)", "if meta.is_dir() {", "#[cfg(test)]\nmod tests { fn f() { std::fs::read(p); } }"])
def test_what_goes_by_paths_passes(contained, line):
    contained.file.write_text(line + "\n")
    assert contained.main() == 0


def test_the_daemons_store_is_looked_at_too(contained):
    path = contained.ROOT / "crates/daemon/src/api/upload.rs"
    path.parent.mkdir(parents=True)
    path.write_text("let f = std::fs::File::create(path)?;\n")
    assert contained.main() == 1


def test_every_exception_is_still_needed(contained):
    for path, words in contained.ALLOWED.items():
        there = [f for f in (ROOT / "crates").rglob("*.rs") if str(f.relative_to(ROOT / "crates")).startswith(path)]
        for text in words:
            assert any(text in f.read_text() for f in there), (path, text)


def test_make_alone_lists_what_it_can():
    out = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("test", "demo", "bench-transfer", "fuzz", "lint", "clean"):
        assert f"make {target} " in out
