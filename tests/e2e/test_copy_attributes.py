"""`tidecast copy`: access control lists, devices, mounts below the destination, and durability of files."""
import json
import os
import stat
import subprocess

import pytest
from conftest import needs
from support.callers import passable
from test_copy import done, same, server, tree  # noqa: F401

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: devices and mounting need root")


def test_access_control_lists_arrive(node, tmp_path):
    needs("setfacl", "getfacl", "rsync")
    source, dest = tmp_path / "src", tmp_path / "dest"
    (source / "sub").mkdir(parents=True)
    for name in ("one", "sub/two", "sub/three"):
        (source / name).write_text(name)
    subprocess.run(["setfacl", "-m", "u:1234:rw,g:2345:r", source / "one"], check=True)
    subprocess.run(["setfacl", "-m", "d:u:1234:rwx,u:77:x", source / "sub"], check=True)
    (source / "sub/later").write_text("it has what its directory says")
    here = node("here")
    done(here, f"{source}/", dest)
    same(source, dest)
    said = subprocess.run(["getfacl", "-n", "one", "sub", "sub/later"], cwd=dest, capture_output=True, text=True, check=True).stdout
    assert "user:1234:rw-" in said and "default:user:1234:rwx" in said and "user:77:--x" in said
    # One that has changed, of a file that has not.
    subprocess.run(["setfacl", "-m", "u:1234:r", source / "one"], check=True)
    done(here, f"{source}/", dest)
    same(source, dest)
    # One that is taken back, of a file that has the same mode without it.
    subprocess.run(["setfacl", "-b", source / "one"], check=True)
    (source / "one").chmod((dest / "one").stat().st_mode & 0o777)
    os.setxattr(dest / "sub/two", "user.extra", b"of somebody")
    assert done(here, f"{source}/", dest)["files_copied"] == 0
    same(source, dest)
    # The default list of a directory does not apply to files that are copied into it.
    other = tmp_path / "other"
    other.mkdir()
    subprocess.run(["setfacl", "-m", "d:u:4321:rwx", other], check=True)
    done(here, source / "sub", other)
    same(source / "sub", other / "sub")


@pytest.mark.parametrize("chmod", ["F600", "go=", "D755,F644,o-r", "u+rwX,g=u"])
def test_modes_are_changed_beside_an_access_control_list(chmod, node, tmp_path):
    needs("setfacl", "getfacl", "rsync")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/f").write_text("secret")
    (tmp_path / "src/f").chmod(0o666)
    subprocess.run(["setfacl", "-m", "u:1:r", tmp_path / "src/f"], check=True)
    done(node("here"), f"--chmod={chmod}", f"{tmp_path}/src/", tmp_path / "ours")
    subprocess.run(["rsync", "-aAX", f"--chmod={chmod}", f"{tmp_path}/src/", tmp_path / "theirs"], check=True)
    lists = [subprocess.run(["getfacl", "-n", "f"], cwd=tmp_path / at, capture_output=True, text=True, check=True).stdout for at in ("ours", "theirs")]
    assert lists[0] == lists[1]


@pytest.mark.parametrize("held", [0, 5 << 20, 8 << 20])
def test_attributes_of_a_file_that_is_mostly_or_all_hole_arrive(held, node, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"
    source.mkdir()
    with open(source / "sparse", "wb") as f:
        f.truncate(30 << 20)
        f.seek(20 << 20)
        f.write(os.urandom(held))
    os.setxattr(source / "sparse", "user.units", b"K")
    done(node("here"), f"{source}/", dest)
    same(source, dest)
    assert os.getxattr(dest / "sparse", "user.units") == b"K"


@needs_root
def test_devices_arrive(node, tmp_path):
    needs("rsync")
    source, dest = tmp_path / "src", tmp_path / "dest"
    source.mkdir()
    os.mknod(source / "null", 0o622 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(source / "disk", 0o640 | stat.S_IFBLK, os.makedev(259, 70_000))
    os.chown(source / "disk", 0, 6)
    here = node("here")
    done(here, f"{source}/", dest)
    same(source, dest)
    assert (dest / "disk").stat().st_rdev == os.makedev(259, 70_000) and stat.S_ISCHR((dest / "null").stat().st_mode)
    # Another number under the same name.
    (source / "null").unlink()
    os.mknod(source / "null", 0o622 | stat.S_IFCHR, os.makedev(1, 5))
    done(here, f"{source}/", dest)
    same(source, dest)


@needs_root
@pytest.mark.parametrize("where, how", [("deep", "bind"), ("deep", "tmpfs"), ("deep/er", "tmpfs")])
def test_what_is_mounted_below_the_destination_is_written_through(where, how, node, tree, server, tmp_path):  # noqa: F811
    below, aside = tmp_path / "dest/data" / where, tmp_path / "aside"
    below.mkdir(parents=True)
    aside.mkdir()
    words = ["--bind", aside, below] if how == "bind" else ["-t", "tmpfs", "none", below]
    subprocess.run(["mount", *words], check=True)
    try:
        here = node("here")
        # If a hard link is not possible, the file is copied, with a warning.
        across = where == "deep/er"
        end = done(here, tree, tmp_path / "dest", "--streams", "2", code=int(across))
        told = [problem["what"] for problem in end["problems"]]
        assert all("hard link" in what for what in told) and len(told) == across, told
        same(tree, tmp_path / "dest/data", *(["--no-hard-links"] if across else []))
        assert not list((tmp_path / "dest").rglob(".tidecast*")), "nothing of ours is left"
        (tree / "deep/er/new").write_bytes(os.urandom(9 << 20))
        (tree / "deep/0005").unlink()
        done(here, tree, tmp_path / "dest", "--delete", code=int(across))
        same(tree, tmp_path / "dest/data", *(["--no-hard-links"] if across else []))
    finally:
        subprocess.run(["umount", below], check=True)


@pytest.mark.parametrize("when", ["never", "end", "each"])
def test_files_are_on_disk_when_that_was_asked(when, node, built, start, tmp_path):
    needs("strace")
    source, dest = tmp_path / "src", tmp_path / "dest"
    source.mkdir()
    for n in range(20):
        (source / f"{n}").write_bytes(os.urandom(5000))
    (source / "big").write_bytes(os.urandom(9 << 20))
    here = node("here")
    log = tmp_path / "calls"
    trace = ["strace", "-f", "-qq", "-o", log, "-e", "trace=fsync,syncfs,renameat,renameat2", built / "tidecast"]
    start([*trace, "copy", f"{source}/", dest, "--fsync", when], env=here.env).ok()
    calls = log.read_text()
    fsyncs, syncs = calls.count("fsync("), calls.count("syncfs(")
    match when:
        case "never":
            assert syncs == 0 and fsyncs < 21
        case "end":
            assert syncs >= 1 and fsyncs < 21
        case "each":
            assert fsyncs >= 21
            # No file has its name before it is on disk: a new destination gets its own after all syncs of files, else each thread
            # syncs the files that it renames.
            root = calls.index('"root"')
            assert calls[:root].count("fsync(") >= 21 and calls[:root].count("syncfs(") >= 1
            for thread in {line.split()[0] for line in calls.splitlines()}:
                own = [line.split(None, 1)[1] for line in calls.splitlines() if line.split()[0] == thread and not any(name in line for name in (".status", '"root"'))]
                unsynced = 0
                for call in own:
                    unsynced += 1 if call.startswith("fsync(") else -1 if call.startswith("renameat") else 0
                    assert unsynced >= 0, call


@needs_root
@pytest.mark.parametrize("blocked", ["a", "b", "c"])
def test_no_hard_link_is_made_to_an_older_file(node, tmp_path, blocked):
    here, source, dest = node("here"), tmp_path / "source", tmp_path / "dest"
    source.mkdir()
    dest.mkdir()
    (source / "a").write_text("new")
    for name in ("b", "c"):
        (source / name).hardlink_to(source / "a")
    (dest / blocked).write_text("older")
    copy = f"mount --bind {dest}/{blocked} {dest}/{blocked} && {here.program} --json copy {source}/ {dest}"
    ran = subprocess.run(["unshare", "--mount", "sh", "-c", copy], env={**os.environ, **here.env}, capture_output=True, text=True, timeout=120)
    told = {os.path.basename(problem["path"]) for problem in json.loads(ran.stdout.splitlines()[-1])["problems"]}
    assert ran.returncode == 1 and blocked in told, ran
    for name in {"a", "b", "c"} - {blocked}:
        assert (dest / name).read_text() == "new" if name not in told else not (dest / name).exists(), (name, told)
    assert (dest / blocked).read_text() == "older"


@needs_root
@pytest.mark.parametrize("older", ["a", "b", "c"])
def test_no_hard_link_is_made_in_place_of_a_file_that_cannot_be_read(node, tmp_path, older):
    passable(tmp_path)
    here, source, dest = node("here"), tmp_path / "source", tmp_path / "dest"
    source.mkdir()
    dest.mkdir()
    (source / "a").write_text("new")
    (source / "a").chmod(0o600)
    for name in ("b", "c"):
        (source / name).hardlink_to(source / "a")
    (dest / older).write_text("older")
    for path in (here.home, dest, dest / older):
        os.chown(path, 61001, 61001)
    words = ["setpriv", "--reuid=61001", "--regid=61001", "--clear-groups", "--", here.program, "--json", "copy", "--no-perms", f"{source}/", dest]
    ran = subprocess.run(words, env={**os.environ, **here.env}, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1 and len(json.loads(ran.stdout.splitlines()[-1])["problems"]) >= 3, ran
    assert os.listdir(dest) == [older] and (dest / older).read_text() == "older"
