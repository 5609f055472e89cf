"""New entries of `tidecast copy` in directories with default access lists get what rsync gives them, for random trees and flags."""
import os
import pathlib
import random
import subprocess

import pytest
from conftest import needs
from support.seeds import seeds
from test_copy import server  # noqa: F401

LISTS = [[], ["d:u::rwx,d:g::r-x,d:o::---"], ["d:u:1234:rwx"], ["d:u:1234:r--,d:g:77:rw-,d:m::r-x"], ["d:u::rw-,d:g::---,d:o::r--"]]
#: Ours, and what rsync needs besides for the same.
FLAGS = [(["-rlt"], []), (["-a"], ["-HAX"]), (["-rltp"], []), (["-a", "--no-A"], ["-HX"]), (["-rltE"], []), (["-r"], []),
         (["-rlt", "--chmod=Dg+w,F600"], []), (["-rltgoD"], []), (["-a", "--inplace"], ["-HAX"]), (["-rlt", "--inplace"], [])]
SEEDS = seeds(*range(24))


def lists(top: pathlib.Path) -> dict:
    """Modes and access lists of all entries."""
    found = {}
    for path in sorted(top.rglob("*")):
        said = subprocess.run(["getfacl", "-pcnE", "--", path], capture_output=True, text=True, check=True).stdout
        found[str(path.relative_to(top))] = (oct(path.lstat().st_mode), said)
    return found


def give(path: pathlib.Path, entries: list[str]):
    for entry in entries:
        subprocess.run(["setfacl", "-m", entry, path], check=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_new_entries_get_what_their_directory_passes_on(node, tmp_path, seed):
    needs("setfacl", "getfacl", "rsync")
    chance = random.Random(seed)
    source = tmp_path / "source"
    for n in range(chance.randint(1, 6)):
        file = source / chance.choice(["", "d", "d/e", "g"]) / f"f{n}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(chance.choice([0, 7, 7, 3_000_000])))
        file.chmod(chance.choice([0o644, 0o755, 0o600, 0o777, 0o400]))
    if chance.random() < 0.4:
        os.mkfifo(source / "pipe", 0o644)
    for directory in [path for path in source.rglob("*") if path.is_dir()]:
        directory.chmod(chance.choice([0o755, 0o700, 0o777, 0o750]))
    (flags, more), entries, below = chance.choice(FLAGS), chance.choice(LISTS), chance.choice([[], [], ["d:u:99:r-x"]])
    umask, has_directory, has_files, is_new = chance.choice([0o022, 0o077, 0o002]), *(chance.random() < 0.4 for _ in range(3))
    found = []
    before = os.umask(umask)
    try:
        for who in ("rsync", "tidecast"):
            dest = tmp_path / who
            dest.mkdir()
            give(dest, entries)
            if has_directory and not is_new:
                (dest / "d").mkdir()
                give(dest / "d", below)
            for n in range(3 if has_files and not is_new else 0):
                (dest / f"f{n}").write_bytes(b"old")
                (dest / f"f{n}").chmod(0o640)
            to = f"{dest / 'new'}/" if is_new else f"{dest}/"
            if who == "rsync":
                theirs = [flag for flag in flags if flag != "--no-A"]
                subprocess.run(["rsync", *theirs, *more, f"{source}/", to], check=True)
            else:
                node("here")("copy", *flags, f"{source}/", to)
            found.append(lists(dest))
    finally:
        os.umask(before)
    assert found[0] == found[1], f"{flags}, {entries}, {below}, umask {umask:o}, new {is_new}"


def test_so_do_entries_that_a_client_stores_on_a_server(node, server, tmp_path):  # noqa: F811
    needs("setfacl", "getfacl", "rsync")
    (tmp_path / "source/d").mkdir(parents=True)
    for name in ("f", "d/g"):
        (tmp_path / "source" / name).write_text(name)
    url = server(trust=("--as-root",))
    for top in (tmp_path / "served", tmp_path / "theirs"):
        top.mkdir(exist_ok=True)
        give(top, ["d:u:1234:rwx,d:g::---,d:o::---"])
    node("here")("copy", f"{tmp_path}/source/", f"{url}in/")
    subprocess.run(["rsync", "-rlpt", f"{tmp_path}/source/", f"{tmp_path}/theirs/in/"], check=True)
    assert lists(tmp_path / "served") == lists(tmp_path / "theirs")
