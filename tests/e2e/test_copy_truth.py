"""The reports of `tidecast copy`: a dry run lists the changes of the copy, a source is never deleted by its own copy, and missing
files at the destination have an exit code."""
import os
import random
import shutil
import socket
import stat
import subprocess

import pytest
from support import filters
from support.users import BECOME
from test_copy import done, ssh  # noqa: F401
from test_copy_restricted import place  # noqa: F401

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: other owners and users need root")
TREES = 8


@pytest.fixture
def here(node):
    return node("here")


def dress(rng: random.Random, top: bytes) -> None:
    """Gives some names other modes, times, owners and attributes, and some files a further name."""
    found = [os.path.join(at, name) for at, dirs, files in os.walk(top) for name in [*dirs, *files]]
    for path in [top, *found]:
        if rng.random() < 0.2 and not os.path.islink(path):
            os.chmod(path, rng.choice([0o700, 0o755, 0o644, 0o600, 0o2775]))
        if rng.random() < 0.15 and os.geteuid() == 0:
            os.chown(path, rng.choice([0, 1, 2]), rng.choice([0, 1, 2]), follow_symlinks=False)
        if rng.random() < 0.15 and not os.path.islink(path):
            os.setxattr(path, b"user.note", rng.choice([b"one", b"two"]))
        if rng.random() < 0.1 and os.path.isfile(path) and not os.path.islink(path):
            os.link(path, path + b".too")
    for path in sorted(found, reverse=True) + [top]:
        seconds = filters.OLD + rng.choice([0, 0, 0, 7])
        os.utime(path, (seconds, seconds), follow_symlinks=False)


def state(top: bytes) -> dict[bytes, tuple]:
    """The attributes that a copy may change, of the directory and all below it."""
    known = {b"": "dir", **filters.state(top)}
    for path, what in known.items():
        full = os.path.join(top, path)
        info = os.lstat(full)
        mode = 0 if stat.S_ISLNK(info.st_mode) else info.st_mode
        notes = [] if stat.S_ISLNK(info.st_mode) else [(name, os.getxattr(full, name)) for name in sorted(os.listxattr(full))]
        known[path] = (what, mode, info.st_uid, info.st_gid, info.st_mtime_ns, notes)
    return known


def named(end: dict, top) -> dict[bytes, str]:
    """The list of a dry run: path below the destination, and its change."""
    import base64
    full = lambda change: base64.b64decode(change["path_base64"]) if "path_base64" in change else change["path"].encode()  # noqa: E731
    return {os.path.relpath(full(change), bytes(top)).replace(b".", b"", 1) if full(change).rstrip(b"/") == bytes(top) else
            os.path.relpath(full(change), bytes(top)): change["what"] for change in end["planned"]}


@pytest.mark.root
@pytest.mark.parametrize("seed", range(4))
def test_a_dry_run_names_what_the_copy_changes_and_nothing_else(seed, here, tmp_path):
    rng = random.Random(f"dry {seed}")
    for number in range(TREES):
        source, dest = tmp_path / f"{number}/src", tmp_path / f"{number}/dest"
        filters.tree(rng, bytes(source), b"from\n", 60)
        filters.double(bytes(source), bytes(dest))
        filters.tree(rng, bytes(dest), b"it was here before\n", rng.randrange(40))
        for path in list(filters.state(bytes(dest))):
            if rng.random() < 0.1 and os.path.lexists(full := os.path.join(bytes(dest), path)):
                shutil.rmtree(full) if os.path.isdir(full) and not os.path.islink(full) else os.unlink(full)
        dress(rng, bytes(source))
        dress(rng, bytes(dest))
        flags = ["--delete", *(["--exclude", filters.pattern(rng).decode(errors="surrogateescape")] if rng.random() < 0.4 else [])]
        before = state(bytes(dest))
        inodes = {path: os.lstat(os.path.join(bytes(dest), path)).st_ino for path in before}
        plan = named(done(here, "-n", *flags, f"{source}/", dest), dest)
        assert state(bytes(dest)) == before, "a dry run changes nothing"
        end = done(here, *flags, f"{source}/", dest)
        after = state(bytes(dest))
        # A directory that stays only for its kept files loses the others: that changes its time, as with rsync.
        held = {path for path in after if path and not os.path.lexists(os.path.join(bytes(source), path)) and after[path][0] == "dir"}
        changed = {path for path in before.keys() | after if before.get(path) != after.get(path)} - held
        # A further name of a file is another name even if it looks the same.
        changed |= {path for path, what in plan.items() if what == "make the link" and path in after
                    and os.lstat(os.path.join(bytes(dest), path)).st_ino != inodes.get(path)}
        assert set(plan) == changed, (flags, {path: (plan.get(path), before.get(path), after.get(path)) for path in set(plan) ^ changed})
        assert sum(what == "delete" for what in plan.values()) == end["deleted"]
        again = done(here, "-n", *flags, f"{source}/", dest)
        assert again["planned"] == [] and again["planned_more"] == 0, again["planned"]


@pytest.mark.parametrize("flags, words, why", [
    (["--delete"], ["d/sub/", "d"], "is inside"), (["--delete"], ["alias/sub/", "d"], "is inside"), (["--delete"], ["d/sub/", "alias"], "is inside"),
    (["--delete"], ["d/sub/", "host:{top}/d"], "is inside"), (["--delete"], ["host:{top}/d/sub/", "d"], "is inside"),
    (["--delete"], ["other", "d/other/one", "d"], "is inside"), (["--delete"], ["other/", "d/file", "d"], "onto itself"),
    (["--delete", "-n"], ["d/sub/", "d"], "is inside"), ([], ["d/", "host:{top}/d"], "onto itself"), ([], ["d", "host:{top}"], "onto itself"),
    ([], ["d", "host:{top}/d/sub"], "never end"),
])
def test_a_copy_that_would_delete_or_multiply_its_source_is_refused(flags, words, why, here, ssh, tmp_path):  # noqa: F811
    for name in ("d/sub/x", "d/other/one", "other"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "f").write_text(name)
    (tmp_path / "d/file").write_text("1")
    (tmp_path / "alias").symlink_to("d")
    before = filters.state(bytes(tmp_path / "d"))
    words = [word.format(top=tmp_path) if ":" in word else f"{tmp_path}/{word}" for word in words]
    far = ":" in words[-1]
    end = done(here, *flags, *(ssh if any(":" in word for word in words) else ()), *words, code=1 if far else 2)
    assert why in end["message"], end
    assert filters.state(bytes(tmp_path / "d")) == before


def test_a_source_that_is_kept_from_deletion_is_copied(here, tmp_path):
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/sub/new").write_text("1")
    (tmp_path / "d/old").write_text("1")
    done(here, "--delete", "--exclude", "/sub", f"{tmp_path}/d/sub/", tmp_path / "d")
    assert sorted(os.listdir(tmp_path / "d")) == ["new", "sub"] and (tmp_path / "d/sub/new").exists()
    done(here, "--delete", tmp_path / "d/sub", tmp_path / "e")
    done(here, "--delete", f"{tmp_path}/d/", tmp_path / "d2")


@needs_root
def test_a_source_that_is_mounted_elsewhere_is_not_deleted(here, tmp_path):
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "m").mkdir()
    (tmp_path / "d/sub/f").write_text("1")
    (tmp_path / "d/old").write_text("1")
    script = f'mount --bind {tmp_path}/d/sub {tmp_path}/m && exec "$0" copy --delete {tmp_path}/m/ {tmp_path}/d'
    ran = subprocess.run(["unshare", "-m", "sh", "-c", script, here.program], env=here.env, capture_output=True, text=True)
    assert ran.returncode == 1 and "it is a source of this copy" in ran.stderr, ran.stderr
    assert (tmp_path / "d/sub/f").exists() and not (tmp_path / "d/old").exists()


def test_sockets_are_copied_as_rsync_does(here, tmp_path, monkeypatch):
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path / "src")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        done(here, f"{tmp_path}/src/", tmp_path / "dest")
        assert stat.S_ISSOCK((tmp_path / "dest/socket").lstat().st_mode)
        assert done(here, "-n", f"{tmp_path}/src/", tmp_path / "dest")["planned"] == []


def test_a_dry_run_names_the_directory_in_the_way_of_a_file(here, tmp_path):
    (tmp_path / "src").mkdir()
    for name in ("full", "bare"):
        (tmp_path / "src" / name).write_text("1")
        (tmp_path / "dest" / name).mkdir(parents=True)
    (tmp_path / "dest/full/own").touch()
    words = ("copy", "-a", f"{tmp_path}/src/", tmp_path / "dest")
    assert "dest/full: cannot replace it: a non-empty directory" in here(*words, "-n", code=1).err
    assert done(here, "-n", "--delete", f"{tmp_path}/src/", tmp_path / "dest")["failed"] == 0
    assert "dest/full: cannot replace it: a non-empty directory" in here(*words, code=1).err
    assert (tmp_path / "dest/bare").is_file() and (tmp_path / "dest/full/own").exists()


def test_a_dry_run_names_what_gives_way_to_a_file(here, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/x").write_text("1")
    (tmp_path / "dest/x/y").mkdir(parents=True)
    for name in ("x/two", "x/y/one"):
        (tmp_path / "dest" / name).touch()
    words = (f"{tmp_path}/src/", tmp_path / "dest")
    gone = sorted(change["path"] for change in done(here, "-n", "--delete", *words)["planned"] if change["what"] == "delete")
    assert gone == [f"{tmp_path}/dest/{name}" for name in ("x", "x/two", "x/y", "x/y/one")]
    assert done(here, "-n", "--delete", "--max-delete", "2", *words, code=1)["failed"] == 2
    assert done(here, "-n", "-b", "--force", *words, code=1)["failed"] == 1, "the backups are in the directory"
    end = done(here, "--delete", *words)
    assert end["deleted"] == 4 and (tmp_path / "dest/x").is_file()


@needs_root
def test_what_a_user_cannot_keep_is_an_exit_code_and_named(built, place):  # noqa: F811
    source, dest = place / "src", place / "home/dest"
    source.mkdir()
    (place / "home").mkdir(exist_ok=True)
    os.chown(place / "home", 65534, 65534)
    (source / "tool").write_text("1")
    (source / "tool").chmod(0o4755)
    os.mknod(source / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (source / "closed").mkdir(mode=0o700)
    import json
    ran = subprocess.run([*BECOME, built / "tidecast", "--json", "copy", f"{source}/", dest], capture_output=True, text=True,
                         env={"HOME": str(place / "home"), "XDG_RUNTIME_DIR": str(place / "home")})
    end = json.loads(ran.stdout.splitlines()[-1])
    told = {os.path.basename(problem["path"]): (problem["failed"], problem["lost"]) for problem in end["problems"]}
    assert ran.returncode == 1 and told == {"tool": (False, True), "null": (True, False), "closed": (True, False)}, end


@needs_root
def test_an_owner_removes_what_is_in_directories_they_may_not_write_to(built, place):  # noqa: F811
    source, dest = place / "src", place / "dest"
    source.mkdir()
    for name, mode in (("gone/ro", 0o555), ("gone/closed", 0o000), ("half/kept", 0o555), ("half", 0o555)):
        (dest / name).mkdir(parents=True, exist_ok=True)
        (dest / name / "f").write_text("1")
    for name, mode in (("gone/ro", 0o555), ("gone/closed", 0o000), ("half/kept", 0o555), ("half", 0o555)):
        (dest / name).chmod(mode)
    subprocess.run(["chown", "-R", "65534:65534", place], check=True)
    subprocess.run([*BECOME, built / "tidecast", "copy", "--delete", "--exclude", "kept/f", f"{source}/", dest], check=True, capture_output=True,
                   env={"HOME": str(place), "XDG_RUNTIME_DIR": str(place)})
    assert sorted(filters.state(bytes(dest))) == [b"half", b"half/kept", b"half/kept/f"]
    assert (dest / "half/kept").stat().st_mode & 0o777 == 0o555 and (dest / "half").stat().st_mode & 0o777 == 0o555
