"""The scripts around the project: the purity, layer and containment checks find the faults that they are made for."""
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
def layers(tmp_path, monkeypatch):
    """The layers script on a crate of three modules."""
    loader = importlib.machinery.SourceFileLoader("layers", str(ROOT / "scripts/layers"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("layers", loader))
    loader.exec_module(module)
    source = tmp_path / "crates/x/src"
    (source / "top").mkdir(parents=True)
    (tmp_path / "crates/x/layers").write_text("# from the ground up\nground\nmiddle other # two\ntop\n")
    for name, text in {
        "lib.rs": "mod ground;\nmod middle;\nmod other;\nmod top;\npub use top::a::Thing;\n", "ground.rs": "pub struct G;\n",
        "middle.rs": "use crate::ground::G;\n", "other.rs": "", "top/mod.rs": "mod a;\nmod b;\n", "top/a.rs": "use crate::middle;\n",
        "top/b.rs": "use super::a::Thing;\n"}.items():
        (source / name).write_text(text)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    module.add = lambda name, text: (source / name).write_text((source / name).read_text() + text)
    return module


def test_a_crate_in_layers_passes(layers):
    assert layers.main() == 0


@pytest.mark.parametrize("file, line", [
    ("ground.rs", "use crate::middle::M;"), ("ground.rs", "fn f() { crate::top::b::go() }"), ("middle.rs", "use crate::other::O;"),
    ("middle.rs", "use crate::{ground::{G, H}, top::a};"), ("ground.rs", "use crate::Thing;"), ("ground.rs", "use super::middle::M;"),
    ("middle.rs", "use crate::{\n    top::a::Thing,\n};")])
def test_an_upward_import_is_found(layers, capsys, file, line):
    layers.add(file, line + "\n")
    assert layers.main() == 1
    assert f"x/src/{file} uses" in capsys.readouterr().err


@pytest.mark.parametrize("file, line", [("top/a.rs", "use super::b::B;"), ("top/a.rs", "use crate::top::b::{B, C};"),
                                        ("top/b.rs", "use super::Shared;\n"), ("top/a.rs", "fn f() { super::b::go() }")])
def test_a_circle_of_files_is_found(layers, capsys, file, line):
    layers.add("top/mod.rs", "fn f() { b::go() }\n")
    layers.add(file, line + "\n")
    assert layers.main() == 1
    assert "a circle of files" in capsys.readouterr().err


@pytest.mark.parametrize("line", [
    "// use crate::top::a;", "/* crate::top::a */", 'const S: &str = "crate::top::a";', "#[cfg(test)]\nmod tests {\n    use crate::top::a;\n}",
    "#[cfg(test)]\n#[allow(dead_code)]\nmod tests {\n    fn f() { if true { crate::top::a::go() } }\n}\nuse std::io;",
    "use other::crate_name;", "pub(in crate::ground) fn f() {}"])
def test_what_imports_nothing_upward_passes(layers, line):
    layers.add("ground.rs", line + "\n")
    assert layers.main() == 0


def test_a_module_without_a_layer_is_found(layers, capsys):
    layers.add("lib.rs", "mod more;\n")
    (layers.ROOT / "crates/x/src/more.rs").write_text("")
    assert layers.main() == 1
    assert "more is in no layer" in capsys.readouterr().err


@pytest.fixture
def contained(tmp_path, monkeypatch):
    """The containment script on a tree of its own."""
    loader = importlib.machinery.SourceFileLoader("contained", str(ROOT / "scripts/contained"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("contained", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    for place in module.PLACES:
        (tmp_path / "crates" / place).mkdir(parents=True)
    module.file = tmp_path / "crates/depot/src/astray.rs"
    return module


@pytest.mark.parametrize("line", [
    "std::fs::remove_dir_all(path)?;", "fs::rename(from, to)?;", "let f = File::open(&path)?;", "OpenOptions::new().read(true)",
    "if path.is_dir() {", "if path.exists() {", "let m = path.metadata()?;", "let p = path.canonicalize()?;", "fs::hard_link(a, b)",
    "tempfile::tempfile()?;", "openat(CWD, path, flags, mode)", "std::os::unix::fs::symlink(a, b)?;", "fs::set_permissions(p, m)?;",
    "rustix::fs::open(path, flags, mode)?;", "xattr::get(path, name)", "for e in path.read_dir()? {", "std::os::unix::fs::chown(p, u, g)",
    "let x = self.dir.join(name).symlink_metadata();", "File::create(path)",
    "use std::fs::read;\nlet a = read(path)?;", "use std::fs::{File, remove_file as gone};\ngone(path)?;", "use std::fs as disk;\ndisk::write(p, b)?;",
    "use std::{io, fs::{self as disk, File}};\ndisk::rename(a, b)?;", "use std::fs::*;\nremove_dir_all(p)?;", "use std::fs::File as F;\nF::open(p)?;",
    "use std::{\n    fs::{\n        create_dir,\n    },\n};\npaths.map(create_dir);", "use std::os::unix::fs::symlink;\nsymlink(a, b)?;",
    "use rustix::fs::{self as rfs, Mode};\nlet d = rfs::open(p, flags, Mode::empty())?;", "use rustix::fs;\nlet s = fs::stat(path)?;",
    "use rustix::fs::{CWD, Mode, OFlags, openat};\nopenat(CWD, p, OFlags::PATH, Mode::empty())?;", "use rustix::fs::CWD as HERE;\nopenat(HERE, p, f, m)",
    "use rustix::fs::{chmod, stat};\nchmod(p, m)?;", "use rustix::fs::{lsetxattr};\nlsetxattr(p, n, v, f)?;", "tokio::fs::read(p).await",
    "use tokio::fs;\nfs::copy(a, b).await", "use nix::unistd::unlink;\nunlink(p)?;", "let there = Path::exists(&p);", "use tempfile::tempdir;\ntempdir()",
    "use xattr::set;\nset(p, n, v)?;", "std::fs::exists(p)?", "use std::fs::OpenOptions as How;\nHow::new().open(p)"])
def test_a_way_around_paths_is_found(contained, line):
    contained.file.write_text(line + "\n")
    assert contained.main() == 1


@pytest.mark.parametrize("line", [
    "// std::fs::read(path) would follow links", "let m = file.metadata()?;", "root.open_file(path)?;", "use std::fs::File;",
    "self.0.layout.is_dir(&path)", "if meta.is_dir() {",
    "use std::fs::{File, Permissions};\nfn read(f: File) {}\nself.read(x); f.read(&mut b)?; io::copy(a, b)?;",
    "use rustix::fs::{self, Mode, openat, fstat};\nlet d = openat(&dir, name, flags, Mode::empty())?; fs::openat(&d, n, f, m)?; fs::fstat(&d)?;",
    "use rustix::fs::{CWD, Mode};\nuse std::io::{Read, copy};\ncopy(a, b)?;", "use rustix::fs::stat;\nlet x = s.stat; let stat = 1; y.stat(p);",
    "#[cfg(test)]\nmod tests { fn f() { std::fs::read(p); } }"])
def test_what_goes_by_paths_passes(contained, line):
    contained.file.write_text(line + "\n")
    assert contained.main() == 0


def test_the_daemon_is_looked_at_too(contained):
    path = contained.ROOT / "crates/daemon/src/http/new.rs"
    path.parent.mkdir(parents=True)
    path.write_text("let f = std::fs::File::create(path)?;\n")
    assert contained.main() == 1


def test_every_exception_is_still_needed(contained, monkeypatch):
    monkeypatch.setattr(contained, "ROOT", ROOT)
    assert not contained.faults()
    assert {(path, words) for path, all_ in contained.ALLOWED.items() for words in all_} == contained.USED


@pytest.mark.parametrize("cargo, rustc", [("1.65.0", "1.63.0"), ("1.96.0", "1.63.0"), ("1.9.0", "1.96.0"), (None, "1.96.0")])
@pytest.mark.parametrize("what", [[], ["demo"], ["programs"]])
def test_setup_rejects_an_old_toolchain_before_it_installs_anything(tmp_path, cargo, rustc, what):
    programs, ran = tmp_path / "bin", tmp_path / "ran"
    programs.mkdir()
    versions = {"cargo": cargo, "rustc": rustc}
    for name in ("cargo", "rustc", "apt-get", "python3"):
        told = f'echo "{name} {versions[name]} (x 2024-01-01)"' if name in versions else f"echo {name} >> {ran}; exit 1"
        if versions.get(name, "") is not None:
            (programs / name).write_text(f"#!/bin/sh\n{told}\n")
            (programs / name).chmod(0o755)
    for name in ("bash", "dirname", "sed", "head", "cut", "sort", "id"):
        (programs / name).symlink_to(shutil.which(name))
    done = subprocess.run([ROOT / "scripts/setup", *what], env={"PATH": str(programs)}, capture_output=True, text=True)
    assert done.returncode == 1 and not ran.exists(), done
    assert "1.95 or newer" in done.stderr and "https://sh.rustup.rs" in done.stderr


def test_make_alone_lists_what_it_can():
    out = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for target in ("test", "demo", "bench-transfer", "fuzz", "lint", "clean"):
        assert f"make {target} " in out
