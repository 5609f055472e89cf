"""`tidecast copy` with --backup, --link-dest, --remove-source-files, --inplace and --append: files that stay, files that are removed,
and files that are changed."""
import os
import pathlib
import signal
import subprocess

import pytest
from conftest import needs
from support import changes
from support.tidecast import wait_for
from test_copy import done, server, ssh  # noqa: F401

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: other users and mounts need root")
WAYS = ["local", "push", "pull"]
MIB = 1 << 20


@pytest.fixture
def here(node):
    return node("here")


@pytest.fixture
def way(request, ssh):  # noqa: F811
    """way(source, dest) -> the words of a copy between them, and its flags."""
    return {"local": lambda source, dest: (source, dest), "push": lambda source, dest: (*ssh, source, f"host:{dest}"),
            "pull": lambda source, dest: (*ssh, f"host:{source}", dest)}[request.param]


def tree(top: pathlib.Path, *, when: int = changes.OLD, **files: bytes) -> pathlib.Path:
    for name, content in files.items():
        at = top / name.replace("__", "/")
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(content)
        os.utime(at, (when, when))
    return top


def older(top: pathlib.Path, **files: bytes) -> pathlib.Path:
    return tree(top, when=changes.OLD - 9, **files)


def content(top: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*")
            if path.is_file() and ".tidecast-copy-" not in str(path)}


# ------------------------------------------------------------------------------------------------ backups

@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_what_is_replaced_or_deleted_is_kept(way, here, tmp_path):
    source, dest = tree(tmp_path / "src", f=b"new", d__g=b"new"), older(tmp_path / "dest", f=b"old", d__g=b"old", d__gone=b"old", e__x=b"old")
    done(here, "-b", "--delete", *way(f"{source}/", dest))
    assert content(dest) == {"f": b"new", "f~": b"old", "d/g": b"new", "d/g~": b"old", "d/gone~": b"old", "e/x~": b"old"}
    # Backups are not deleted, nor are there backups of backups.
    done(here, "-b", "--delete", *way(f"{source}/", dest))
    assert (dest / "d/gone~").exists() and not list(dest.rglob("*~~")) and not list(dest.glob(".tidecast*"))


@pytest.mark.parametrize("way", WAYS, indirect=True)
@pytest.mark.parametrize("inside", [False, True])
def test_a_directory_of_backups_has_them_by_their_paths_and_is_not_deleted(inside, way, here, tmp_path):
    source, dest = tree(tmp_path / "src", f=b"new", d__g=b"new"), older(tmp_path / "dest", f=b"old", d__g=b"old", d__e__gone=b"old")
    bak = dest / "bak" if inside else tmp_path / "bak"
    flag = "--backup-dir=bak" if inside else "--backup-dir=../bak"
    (dest / "d").chmod(0o750)
    done(here, flag, "--delete", *way(f"{source}/", dest))
    assert content(bak) == {"f": b"old", "d/g": b"old", "d/e/gone": b"old"}
    assert (bak / "d").stat().st_mode & 0o777 == 0o750 and not (dest / "d/e").exists()
    (source / "f").write_bytes(b"newer")
    done(here, flag, "--delete", *way(f"{source}/", dest))
    assert content(bak) == {"f": b"new", "d/g": b"old", "d/e/gone": b"old"}
    assert {path: text for path, text in content(dest).items() if not path.startswith("bak")} == content(source)


def test_directories_of_backups_have_the_access_lists_of_theirs(here, tmp_path):
    needs("setfacl", "getfacl")
    source, dest = tree(tmp_path / "src", d__f=b"new"), older(tmp_path / "dest", d__f=b"old")
    for top in (source, dest):
        (top / "d").chmod(0o700)
        subprocess.run(["setfacl", "-m", "u:4242:rwx,d:u:4243:r-x", top / "d"], check=True)

    def listed(path: pathlib.Path) -> str:
        return subprocess.run(["getfacl", "-cpn", path], capture_output=True, text=True, check=True).stdout

    before = listed(dest / "d")
    for flags, name in ((["-a"], "kept"), (["-a", "--no-acls"], "without")):
        (source / "d/f").write_bytes(name.encode())
        done(here, *flags, f"--backup-dir=../{name}", f"{source}/", dest)
    assert listed(tmp_path / "kept/d") == before and "user:4242:rwx" in before and "default:user:4243:r-x" in before
    assert (tmp_path / "without/d").stat().st_mode & 0o777 == 0o700


def test_a_directory_that_gives_way_is_kept_and_so_is_a_file(here, tmp_path):
    source, dest = tree(tmp_path / "src", x=b"file", y__f=b"2"), older(tmp_path / "dest", x__f=b"old", y=b"old")
    done(here, "--backup-dir=../bak", "--delete", f"{source}/", dest)
    assert content(tmp_path / "bak") == {"x/f": b"old", "y": b"old"} and content(dest) == content(source)


def test_what_the_source_calls_as_a_backup_is_called_is_not_lost(here, tmp_path):
    source = tree(tmp_path / "src", **{"f": b"new", "f~": b"the source's"})
    dest = older(tmp_path / "dest", **{"f": b"old f", "f~": b"old backup"})
    done(here, "-b", f"{source}/", dest)
    assert content(dest) == {"f": b"new", "f~": b"the source's", "f~~": content(dest)["f~~"]}
    assert content(dest)["f~~"] in (b"old f", b"old backup")


def test_the_backup_of_a_deleted_name_takes_no_name_of_the_source(here, tmp_path):
    source = tree(tmp_path / "src", **{"a.bak": b"precious"})
    dest = tree(tmp_path / "dest", **{"a": b"v1"})
    done(here, f"{source}/", dest)
    end = done(here, "-b", "--suffix=.bak", "--delete", f"{source}/", dest)
    assert end["deleted"] == 1 and content(dest) == {"a.bak": b"precious", "a.bak.bak": b"v1"}


def test_a_backup_that_cannot_be_kept_leaves_the_file_as_it_was(here, tmp_path):
    source, dest = tree(tmp_path / "src", f=b"new"), older(tmp_path / "dest", f=b"old")
    tree(dest, **{"f~__x": b"kept"})
    end = done(here, "-b", f"{source}/", dest, code=1)
    assert "the name of the backup" in str(end["problems"]) and content(dest) == {"f": b"old", "f~/x": b"kept"}
    here("copy", "-b", "--suffix=", f"{source}/", dest, code=2)
    here("copy", "-b", "--suffix=/../x", f"{source}/", dest, code=2)
    assert "destination itself" in here("copy", "--backup-dir=.", f"{source}/", dest, code=2).err


def test_a_served_directory_keeps_its_backups_inside(here, server, tmp_path):  # noqa: F811
    url = server()
    source = tree(tmp_path / "src", f=b"new")
    older(tmp_path / "served", d__f=b"old")
    assert "outside of the served directory" in here("copy", "--backup-dir=../../bak", f"{source}/", url + "d", code=1).err
    done(here, "--backup-dir=../bak", f"{source}/", url + "d")
    assert content(tmp_path / "served") == {"d/f": b"new", "bak/f": b"old"} and not (tmp_path / "bak").exists()


@ROOT
def test_backups_on_another_file_system_are_copies(here, tmp_path):
    tree(tmp_path / "src", f=b"new")
    older(tmp_path / "dest", f=b"old")
    (tmp_path / "bak").mkdir()
    script = f'mount -t tmpfs none {tmp_path}/bak && "$0" copy --backup-dir={tmp_path}/bak {tmp_path}/src/ {tmp_path}/dest && cat {tmp_path}/bak/f && stat -c " %Y" {tmp_path}/bak/f'
    ran = subprocess.run(["unshare", "-m", "sh", "-c", script, here.program], env=here.env, check=True, capture_output=True)
    assert ran.stdout.endswith(b"old %d\n" % (changes.OLD - 9)) and content(tmp_path / "dest") == {"f": b"new"}


# ------------------------------------------------------------------------------------------------ links to an older copy

@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_what_is_the_same_is_linked_from_an_older_copy(way, here, tmp_path):
    source = tree(tmp_path / "src", same=b"1", content=b"2x", mode=b"3", d__big=os.urandom(9 * MIB))
    (source / "link").symlink_to("same")
    done(here, f"{source}/", tmp_path / "monday")
    (source / "content").write_bytes(b"2y")
    (source / "mode").chmod(0o600)
    end = done(here, "--link-dest=../no", "--link-dest=../monday", *way(f"{source}/", tmp_path / "tuesday"))
    linked = {name: os.path.samestat((tmp_path / "monday" / name).lstat(), (tmp_path / "tuesday" / name).lstat()) for name in ("same", "content", "mode", "d/big", "link")}
    assert linked == {"same": True, "content": False, "mode": False, "d/big": True, "link": True}
    assert end["files_copied"] == 1 and end["bytes_copied"] == 2 and "no such directory" in str(end["problems"]), end
    assert content(tmp_path / "tuesday") == content(source) and (tmp_path / "tuesday/mode").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "monday/mode").stat().st_mode & 0o777 != 0o600


def test_names_of_one_file_stay_one_where_the_first_is_linked(here, tmp_path):
    source = tree(tmp_path / "src", a=b"1")
    os.link(source / "a", source / "b")
    done(here, f"{source}/", tmp_path / "old")
    done(here, "--link-dest=../old", f"{source}/", tmp_path / "new")
    assert len({(top / name).stat().st_ino for top in (tmp_path / "old", tmp_path / "new") for name in "ab"}) == 1


@ROOT
def test_a_link_from_another_file_system_is_a_copy_made_here(here, tmp_path):
    source = tree(tmp_path / "src", f=os.urandom(MIB))
    (tmp_path / "old").mkdir()
    script = f'mount -t tmpfs none {tmp_path}/old && cp -a {source}/. {tmp_path}/old && "$0" --json copy --link-dest={tmp_path}/old {source}/ {tmp_path}/new'
    ran = subprocess.run(["unshare", "-m", "sh", "-c", script, here.program], env=here.env, check=True, capture_output=True)
    assert b'"bytes_copied":0' in ran.stdout.replace(b" ", b"") + ran.stderr.replace(b" ", b"")
    assert content(tmp_path / "new") == content(source) and (tmp_path / "new/f").stat().st_mtime == changes.OLD


@ROOT
def test_what_others_have_planted_in_an_older_copy_is_not_linked(here, tmp_path):
    source = tree(tmp_path / "src", f=b"right", g=b"right", d__h=b"right")
    old = tree(tmp_path / "old", f=b"wrong")
    os.chown(old / "f", 1234, 1234)
    tree(tmp_path / "elsewhere", g=b"wrong", h=b"wrong")
    (old / "g").symlink_to(tmp_path / "elsewhere/g")
    (old / "d").symlink_to(tmp_path / "elsewhere")
    done(here, "-rt", "--link-dest=../old", "--checksum", f"{source}/", tmp_path / "new")
    assert content(tmp_path / "new") == content(source)
    done(here, "-rt", "--link-dest=../old", f"{source}/", tmp_path / "newer")
    assert (tmp_path / "newer/f").stat().st_uid == 0 and not os.path.samefile(tmp_path / "newer/f", old / "f")
    assert (tmp_path / "newer/g").read_bytes() == (tmp_path / "newer/d/h").read_bytes() == b"right"


# ------------------------------------------------------------------------------------------------ sources that go

@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_sources_go_that_the_destination_has(way, here, tmp_path):
    source = tree(tmp_path / "src", f=b"1", d__g=b"2", d__big=os.urandom(9 * MIB), there=b"3")
    (source / "link").symlink_to("f")
    os.link(source / "f", source / "d/again")
    os.mkfifo(source / "pipe")
    dest, before = tree(tmp_path / "dest", there=b"3"), content(source)
    assert done(here, "-n", "--remove-source-files", *way(f"{source}/", dest))["failed"] == 0 and content(source) == before
    end = done(here, "--remove-source-files", *way(f"{source}/", dest))
    assert end["failed"] == 0 and [str(path.relative_to(source)) for path in source.rglob("*")] == ["d"], end
    assert content(dest) == {**before, "link": b"1"} and os.path.samefile(dest / "f", dest / "d/again")


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_a_source_stays_that_could_not_be_copied_or_was_not_to_be(way, here, tmp_path):
    source = tree(tmp_path / "src", f=b"1", dir=b"2", big=b"3" * 100, old=b"4")
    dest = older(tmp_path / "dest", dir__x=b"in the way", old=b"newer")
    os.utime(dest / "old", (changes.OLD + 9, changes.OLD + 9))
    end = done(here, "--remove-source-files", "-u", "--max-size=99", *way(f"{source}/", dest), code=1)
    assert content(source) == {"dir": b"2", "big": b"3" * 100, "old": b"4"} and "dir" in str(end["problems"]), end


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_a_source_stays_that_changes_while_it_is_copied(way, here, tmp_path):
    source, dest = tree(tmp_path / "src", first=b"1", big=os.urandom(40 * MIB)), tree(tmp_path / "dest", first=b"1")
    proc = here.run("--json", "copy", "--remove-source-files", "--limit", "60mbit", *way(f"{source}/", dest))
    proc.until("some of it", lambda: any(e.get("bytes", 0) > MIB for e in proc.events()))
    (source / "first").write_bytes(b"2")
    assert proc.wait() == 1
    assert content(source) == {"first": b"2"} and (dest / "big").exists(), proc.err
    assert "it changed after it was read" in str(proc.last("error")["problems"])


def test_the_only_copy_is_never_removed(here, server, tmp_path):  # noqa: F811
    source, dest = tree(tmp_path / "src", f=b"1"), tmp_path / "dest"
    dest.mkdir()
    os.link(source / "f", dest / "f")
    done(here, "--remove-source-files", f"{source}/", dest, code=1)
    assert (source / "f").exists()
    tree(tmp_path / "served", f=b"1")
    assert "read-only" in here("copy", "--remove-source-files", server("--read-only"), tmp_path / "new", code=1).err
    for flags in (["-L"], ["--append"], ["--to-null"]):
        here("copy", "--remove-source-files", *flags, f"{source}/", tmp_path / "other", code=2)
    assert content(source) == {"f": b"1"}


@pytest.mark.parametrize("way", ["local", "pull"], indirect=True)
def test_a_copy_that_is_killed_has_removed_nothing_that_is_not_there(way, here, tmp_path):
    files = {f"d{n % 7}__f{n}": bytes([n % 251]) * 1000 for n in range(3000)}
    source, dest = tree(tmp_path / "src", **files, big=os.urandom(20 * MIB)), tmp_path / "dest"
    wanted = content(source)
    proc = here.run("--json", "copy", "--remove-source-files", "--limit", "100mbit", *way(f"{source}/", dest))
    proc.until("some of it", lambda: any(e.get("bytes", 0) > MIB for e in proc.events()))
    proc.process.send_signal(signal.SIGKILL)
    proc.wait()
    assert {**content(dest), **content(source)} == wanted
    done(here, "--remove-source-files", *way(f"{source}/", dest))
    assert content(dest) == wanted and not content(source)


# ------------------------------------------------------------------------------------------------ files that are written to

@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_a_file_is_updated_where_it_is_and_only_what_differs_is_sent(way, here, tmp_path):
    big = bytearray(os.urandom(21 * MIB))
    source, dest = tree(tmp_path / "src", big=bytes(big), small=b"new"), older(tmp_path / "dest", small=b"older")
    big[9 * MIB:9 * MIB + 4] = b"diff"
    older(dest, big=bytes(big) + b"longer")
    os.link(dest / "big", tmp_path / "other")
    inodes = [(dest / name).stat().st_ino for name in ("big", "small")]
    end = done(here, "--inplace", *way(f"{source}/", dest))
    assert content(dest) == content(source) and (tmp_path / "other").read_bytes() == (source / "big").read_bytes()
    assert [(dest / name).stat().st_ino for name in ("big", "small")] == inodes and end["bytes_copied"] == 4 * MIB + 3, end
    assert (dest / "big").stat().st_mtime == changes.OLD and not list(dest.glob(".tidecast*"))


def test_an_update_in_place_keeps_a_backup_that_is_a_file_of_its_own(here, tmp_path):
    source, dest = tree(tmp_path / "src", f=b"new", big=b"n" * 5 * MIB), older(tmp_path / "dest", f=b"older", big=b"o" * 5 * MIB + b"x")
    inode = (dest / "f").stat().st_ino
    done(here, "--inplace", "-b", f"{source}/", dest)
    assert content(dest) == {"f": b"new", "f~": b"older", "big": b"n" * 5 * MIB, "big~": b"o" * 5 * MIB + b"x"}
    assert (dest / "f").stat().st_ino == inode


@pytest.mark.parametrize("way", ["local", "push"], indirect=True)
@pytest.mark.parametrize("flag", ["--inplace", "--append-verify"])
def test_an_update_that_is_killed_has_not_touched_the_file_and_goes_on(flag, way, here, tmp_path):
    old = os.urandom(10 * MIB)
    source, dest = tree(tmp_path / "src", big=old + os.urandom(30 * MIB)), older(tmp_path / "dest", big=old)
    proc = here.run("--json", "copy", flag, "--limit", "80mbit", *way(f"{source}/", dest))
    proc.until("some of it", lambda: any(e.get("bytes", 0) > 9 * MIB for e in proc.events()))
    proc.process.send_signal(signal.SIGKILL)
    proc.wait()
    assert (dest / "big").read_bytes() == old
    end = done(here, flag, *way(f"{source}/", dest))
    assert content(dest) == content(source) and 0 < end["bytes_copied"] < 32 * MIB and end["bytes_resumed"] > 0, end


@ROOT
def test_a_file_that_cannot_be_written_to_is_left_alone(here, tmp_path):
    source, dest = tree(tmp_path / "src", f=b"new", big=b"n" * 5 * MIB), older(tmp_path / "dest", f=b"older", big=b"o" * 5 * MIB)
    for path in (tmp_path, source, dest, source / "f", source / "big", dest / "f", dest / "big"):
        os.chown(path, 1234, 1234)
    (dest / "f").chmod(0o444)
    (dest / "big").chmod(0o444)
    script = 'exec setpriv --reuid 1234 --regid 1234 --clear-groups "$0" copy --inplace "$1/" "$2"'
    at = tmp_path
    while at != at.parent:
        at.chmod(at.stat().st_mode | 0o055)
        at = at.parent
        if at == pathlib.Path("/tmp"):
            break
    ran = subprocess.run(["sh", "-c", script, here.program, source, dest], env={**here.env, "HOME": str(tmp_path)}, capture_output=True)
    assert ran.returncode == 1 and b"cannot write to it" in ran.stderr, ran.stderr
    assert content(dest) == {"f": b"older", "big": b"o" * 5 * MIB}


@ROOT
def test_what_another_may_have_linked_is_replaced_and_not_written_to(here, tmp_path):
    source = tree(tmp_path / "src", f=b"new")
    victim, dest = tree(tmp_path / "victim", f=b"secret"), tmp_path / "dest"
    dest.mkdir()
    dest.chmod(0o1777)
    os.link(victim / "f", dest / "f")
    done(here, "--inplace", f"{source}/", dest)
    assert (victim / "f").read_bytes() == b"secret" and (dest / "f").read_bytes() == b"new"


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_files_that_grow_get_what_they_lack(way, here, tmp_path):
    log = os.urandom(10 * MIB)
    source = tree(tmp_path / "src", log=log, small=b"12345", shorter=b"1", same=b"1", fresh=b"1" * 99)
    dest = older(tmp_path / "dest", log=log[:9 * MIB], small=b"xxx", shorter=b"longer", same=b"2")
    for path in dest.iterdir():
        os.utime(path, (changes.OLD - 9, changes.OLD - 9))
    inode = (dest / "log").stat().st_ino
    end = done(here, "--append", *way(f"{source}/", dest))
    assert content(dest) == {"log": log, "small": b"xxx45", "shorter": b"longer", "same": b"2", "fresh": b"1" * 99}
    assert (dest / "log").stat().st_ino == inode and end["bytes_copied"] < 3 * MIB, end
    (source / "log").write_bytes(log + b"more")
    (source / "small").write_bytes(b"123456")
    end = done(here, "--append-verify", *way(f"{source}/", dest))
    assert content(dest)["log"] == log + b"more" and content(dest)["small"] == b"123456" and (dest / "log").stat().st_ino == inode
    assert end["bytes_copied"] < 3 * MIB, end


@pytest.mark.parametrize("flags", [["--append", "--inplace"], ["--inplace", "--append"], ["--append-verify", "--inplace"]], ids=" ".join)
def test_a_longer_file_is_left_alone_whichever_flag_comes_last(flags, here, tmp_path):
    for name, text in (("src", "abc"), ("dest", "abcdef")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(text)
    done(here, *flags, f"{tmp_path}/src/", tmp_path / "dest")
    assert (tmp_path / "dest/f").read_text() == "abcdef"


@pytest.mark.parametrize("flag", ["--append", "--append-verify", "--inplace"])
def test_two_names_of_a_file_are_updated_once(flag, here, tmp_path):
    data = os.urandom(9 * MIB)
    source, dest = tree(tmp_path / "src", a=data), older(tmp_path / "dest", a=data[:len(data) // 2])
    for top in (source, dest):
        for name in ("b", "c"):
            os.link(top / "a", top / name)
    done(here, "-a", flag, f"{source}/", dest)
    assert all((dest / name).read_bytes() == data for name in "abc")


@pytest.mark.parametrize("flag", ["--append", "--append-verify"])
def test_a_file_that_grows_is_a_beginning_of_the_source_at_any_time(flag, here, tmp_path):
    """Killed while it is written to, and given again."""
    log = os.urandom(60 * MIB)
    source, dest = tree(tmp_path / "src", log=log), older(tmp_path / "dest", log=log[:5 * MIB])
    for _ in range(3):
        proc = here.run("copy", "--quiet", flag, f"{source}/", dest)
        wait_for("a byte more, or the end", lambda: (dest / "log").stat().st_size > 5 * MIB or proc.process.poll() is not None)
        proc.process.send_signal(signal.SIGKILL)
        proc.wait()
        now = (dest / "log").read_bytes()
        assert log.startswith(now)
    done(here, flag, f"{source}/", dest)
    assert (dest / "log").read_bytes() == log
