"""Disk errors and changed sources: a clear error for each, and no wrong byte."""
import os
import re
import subprocess

import pytest
from support import trees


@pytest.fixture
def mounted(tmp_path):
    """mounted(options) -> a small tmpfs of its own."""
    made = []

    def mount(options: str):
        where = tmp_path / f"mount{len(made)}"
        where.mkdir()
        if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", where], capture_output=True).returncode:
            pytest.skip("SKIPPED: mounting a tmpfs needs root")
        made.append(where)
        return where

    yield mount
    for where in made:
        subprocess.run(["umount", "-l", where], check=True)


def failed(proc) -> str:
    """The message of a process that ended with exit code 1, from its last JSON line."""
    proc.exits(1, 60)
    error = proc.events()[-1]
    assert error["event"] == "error", proc.story()
    return str(error) + proc.err


@pytest.fixture
def data(tmp_path):
    return trees.tree(tmp_path / "source/data")


@pytest.fixture
def seeded(tide, port, data, tmp_path):
    """A seed of `data`: its manifest and address."""
    manifest = tide.publish(data, tmp_path / "m.torrent")
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, here, "--plain")
    return manifest, here


def get(node, seeded, to):
    manifest, here = seeded
    return node("getter").run("get", manifest, "--to", to, "--peer", here, "--plain", "--timeout", "40s", "--json")


@pytest.mark.root
def test_a_full_disk(node, seeded, mounted):
    where = mounted("size=4m")
    said = failed(get(node, seeded, where))
    assert str(where) in said
    needed, free = re.search(r": (\S+ MB|\S+ MiB) and .* still to be written, (\S+ \S+) and", said).groups()
    assert float(needed.split()[0]) > 6 and (free.endswith(" kB") or float(free.split()[0]) <= 4.2), said


@pytest.mark.root
def test_no_inodes_left(node, seeded, mounted):
    said = failed(get(node, seeded, mounted("size=64m,nr_inodes=8")))
    needed, free = map(int, re.search(r"and (\d+) files are still to be written, .* (\d+) files are free", said).groups())
    assert free < 8 < needed


@pytest.mark.root
def test_after_a_full_disk_it_goes_on(node, seeded, data, mounted):
    where = mounted("size=4m")
    failed(get(node, seeded, where))
    subprocess.run(["mount", "-o", "remount,size=64m", where], check=True)
    get(node, seeded, where).ok()
    trees.assert_same(data, where / "data")


@pytest.mark.root
def test_a_read_only_target(node, seeded, mounted):
    where = mounted("ro,size=4m")
    said = failed(get(node, seeded, where))
    assert "read-only" in said.lower() and str(where) in said


def test_a_missing_source(tide, port, data, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent")
    (data / "a/second.bin").unlink()
    proc = tide.run("seed", manifest, data, "--listen", f"127.0.0.1:{port()}", "--plain", "--json")
    assert "second.bin" in failed(proc)


def test_no_source_at_all(tide, port, data, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent")
    proc = tide.run("seed", manifest, tmp_path / "elsewhere", "--listen", f"127.0.0.1:{port()}", "--plain", "--json")
    assert "elsewhere" in failed(proc)


def test_a_source_that_changes_while_it_is_seeded(tide, node, port, data, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent")
    here = f"127.0.0.1:{port()}"
    seed = tide.seed(manifest, data, here, "--plain", "--json")
    with open(data / "big.bin", "r+b") as f:  # same size, other bytes
        f.seek(1 << 20)
        f.write(bytes(1 << 20))
    getter = get(node, (manifest, here), tmp_path / "got")
    getter.until("the seeder names the file", lambda: "big.bin" in seed.out + seed.err and "chang" in (seed.out + seed.err).lower())
    getter.kill()
    assert not (tmp_path / "got/data/big.bin").exists(), "a file that cannot be verified may not appear"
