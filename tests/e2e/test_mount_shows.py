"""Real programs over a mount: a Python environment, hundreds of libraries, git, a part of a very large file, bad peers."""
from __future__ import annotations

import mmap
import os
import pathlib
import random
import shutil
import subprocess
import sys
import sysconfig

from conftest import needs
from support.tidecast import wait_for
from support.trees import assert_same, blob, rich

MIB = 1 << 20
LIBRARIES = 300
# Requests that opening a present file may cost; Python asks each file whether it is a terminal.
OPENING = {"open", "release", "ioctl"}


def interpreter(at: pathlib.Path) -> pathlib.Path:
    """A Python of its own at `at`, an environment `env` made with it, and a package and a script in that."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (at / "bin").mkdir(parents=True)
    shutil.copy2(os.path.realpath(sys.executable), at / "bin" / version)
    leave = shutil.ignore_patterns("test", "tests", "site-packages", "dist-packages", "idlelib", "lib2to3", "ensurepip", "__pycache__", "config-*")
    shutil.copytree(sysconfig.get_path("stdlib"), at / "lib" / version, ignore=leave, symlinks=True)
    python = [at / "bin" / version, "-I"]
    subprocess.run([*python, "-m", "venv", "--copies", "--without-pip", at / "env"], check=True)
    package = at / "env/lib" / version / "site-packages/tide"
    package.mkdir()
    (package / "__init__.py").write_text("import json, ssl, sqlite3, ctypes\nHERE = __file__\n")
    script = at / "env/bin/tide"
    script.write_text(f"#!{at}/env/bin/python\nimport sys, tide\nprint(sys.prefix, sys.base_prefix, tide.HERE)\n")
    script.chmod(0o755)
    return script


def test_a_python_environment_runs_where_it_was_built(mounts, node, here, port, tmp_path):
    built = tmp_path / "opt/python"
    script = interpreter(built)
    plain = subprocess.run([script], capture_output=True, text=True, check=True).stdout
    manifest = here.publish(built, tmp_path / "python.torrent")
    os.rename(built, tmp_path / "away")
    (tmp_path / "opt").rmdir()
    listen = f"127.0.0.1:{port()}"
    node("origin").seed(manifest, tmp_path / "away", listen, "--plain", "--no-lsd")
    words = ["run", manifest, "--cache", here.home / "cache", "--plain", "--no-lsd", "--peer", listen]
    assert here(*words, "--", script).out == plain
    nowhere = tmp_path / "moved"
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert here(*words, "--at", nowhere, "--", nowhere / "bin" / python, "-I", "-c", "import tarfile; print(tarfile.__file__)").out \
        == f"{nowhere}/lib/{python}/tarfile.py\n"
    assert not built.exists() and not nowhere.exists()


def libraries(at: pathlib.Path) -> pathlib.Path:
    """A program that opens hundreds of libraries, each by its name, and prints the sum of their functions."""
    (at / "lib").mkdir(parents=True)
    (at / "bin").mkdir()
    magic = 0x11223344
    source = at / "one.c"
    source.write_text(f"static const volatile int own = {magic}; int value(void) {{ return own; }}\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", at / "lib/one", source], check=True)
    body = (at / "lib/one").read_bytes()
    (at / "lib/one").unlink()
    mark = magic.to_bytes(4, sys.byteorder)
    assert body.count(mark) == 1
    for i in range(LIBRARIES):
        (at / f"lib/libpart{i}.so").write_bytes(body.replace(mark, i.to_bytes(4, sys.byteorder)) + i.to_bytes(4) * 4096)
    source.write_text(f"""
        #include <dlfcn.h>
        #include <stdio.h>
        int main(void) {{
            int sum = 0;
            for (int i = 0; i < {LIBRARIES}; i++) {{
                char name[64];
                snprintf(name, sizeof name, "libpart%d.so", i);
                void *part = dlopen(name, RTLD_NOW);
                if (!part) {{ puts(dlerror()); return 1; }}
                sum += ((int (*)(void))dlsym(part, "value"))();
            }}
            printf("%d\\n", sum);
        }}""")
    program = at / "bin/parts"
    subprocess.run(["cc", "-Wl,-rpath,$ORIGIN/../missing:$ORIGIN/../lib", "-o", program, source, "-ldl"], check=True)
    return program


def test_a_program_with_hundreds_of_libraries(mounts, shared, here, tmp_path):
    needs("cc")
    source = tmp_path / "src"
    libraries(source)
    origin, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at")
    wanted = f"{sum(range(LIBRARIES))}\n"

    def run():
        assert here.start([at / "bin/parts"]).ok().out == wanted

    run()
    origin.kill()
    assert mounts.asked(here, at, run, OPENING) <= OPENING


def test_a_list_that_came_with_the_tree_is_fetched_first(mounts, shared, node, tmp_path):
    source = rich(tmp_path / "src")
    (source / ".tidecast-prefetch").write_text("a/\nno such file\n")
    wanted = sum(f.stat().st_size for f in [*(source / "a").rglob("*"), source / ".tidecast-prefetch"] if f.is_file())
    origin, ticket = shared(source)
    auto, none = node("auto"), node("none")
    at = mounts.mount(auto, ticket, tmp_path / "one")
    wait_for("what the list names", lambda: mounts.status(auto, at)["from_origin"] >= wanted)
    (tmp_path / "without").mkdir()
    other = mounts.mount(none, ticket, tmp_path / "two", "--prefetch", "none")
    (other / "one").read_bytes()
    assert mounts.status(none, other)["from_origin"] == 1
    origin.kill()
    assert (at / "a/second.bin").read_bytes() == (source / "a/second.bin").read_bytes()
    status = mounts.status(auto, at)
    assert (status["misses"], status["from_origin"]) == (0, wanted)


def test_a_list_beside_the_manifest_is_fetched_first_and_files_alone_are_found_in_it(mounts, node, here, port, tmp_path):
    data = blob(tmp_path / "alone.bin", 3 * MIB)
    manifest = here.publish(data, tmp_path / "alone.torrent")
    (tmp_path / "alone.list").write_text("alone.bin\t0+65536\n")
    listen = f"127.0.0.1:{port()}"
    node("origin").seed(manifest, data, listen, "--plain", "--no-lsd")
    at = mounts.mount(here, manifest, tmp_path / "at", "--plain", "--peer", listen)
    wait_for("what the list names", lambda: mounts.status(here, at)["from_origin"] > 0)
    status = mounts.status(here, at)
    assert status["listed_pieces"] > 0 and status["requests"]["open"] == 0
    assert (at / "alone.bin").read_bytes() == data.read_bytes()


def test_git_finds_a_mounted_repository_clean(mounts, shared, here, tmp_path):
    needs("git")
    source = tmp_path / "src"
    for i in range(200):
        blob(source / f"d{i % 11}/f{i}", 100 + 97 * i, i)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, source, *words], check=True)
    _, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at")

    def status():
        done = subprocess.run([*git, at, "status", "--porcelain"], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    assert status() == ""
    (source / "d3/f3").write_text("changed")
    assert_same(at, at)
    assert status() == ""
    log = subprocess.run([*git, at, "fsck", "--full"], capture_output=True, text=True, check=True)
    assert "error" not in log.stdout + log.stderr


def test_one_percent_of_a_very_large_file(mounts, shared, here, tmp_path):
    source, size = tmp_path / "src", 2 << 30
    source.mkdir()
    rng = random.Random(5)
    # Cheap to make, and no hole in it: as much to fetch as 2 GiB of anything.
    with open(source / "model", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, size)
        for at in range(0, size, 8 * MIB):
            f.seek(at)
            f.write(rng.randbytes(64 << 10))
    _, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at")
    touched = 0
    with open(source / "model", "rb") as a, open(at / "model", "rb") as b:
        with mmap.mmap(a.fileno(), 0, prot=mmap.PROT_READ) as ours, mmap.mmap(b.fileno(), 0, prot=mmap.PROT_READ) as theirs:
            for tensor in range(5):
                start = rng.randrange(0, size - 4 * MIB, 4096)
                touched += 4 * MIB
                assert ours[start: start + 4 * MIB] == theirs[start: start + 4 * MIB], tensor
    status = mounts.status(here, at)
    fetched = status["from_origin"] + status["from_peers"]
    print(f"touched {touched / MIB:.1f} MiB, fetched {fetched / MIB:.1f} MiB")
    assert fetched <= 2 * touched


def test_a_corrupt_peer_costs_nothing_but_its_own_place(mounts, node, here, port, tmp_path):
    source = rich(tmp_path / "src")
    blob(source / "more.bin", 24 * MIB, 77)
    manifest = here.publish(source, tmp_path / "m.torrent")
    bad = tmp_path / "bad"
    subprocess.run(["cp", "-a", source, bad], check=True)
    addresses = [f"127.0.0.1:{port()}" for _ in range(2)]
    seed = node("bad").seed(manifest, bad, addresses[1], "--plain", "--no-lsd", "--json")
    # It does not serve data that it finds damaged before it has hashed it.
    seed.until("it has hashed its files", lambda: any(event.get("stage") == "seed" for event in seed.events()))
    for name in ("more.bin", "big.bin"):
        times = os.stat(bad / name)
        with open(bad / name, "r+b") as f:
            for at in range(0, times.st_size, 16 << 10):
                f.seek(at)
                f.write(b"\0" * 16)
        os.utime(bad / name, ns=(times.st_atime_ns, times.st_mtime_ns))
    at = mounts.mount(here, manifest, tmp_path / "at", "--plain", "--peer", addresses[0], "--peer", addresses[1], "--mode", "bulk")
    wait_for("what the corrupt peer gives", lambda: mounts.status(here, at)["corrupt"] > 0)
    node("good").seed(manifest, source, addresses[0], "--plain", "--no-lsd")
    assert_same(source, at)
