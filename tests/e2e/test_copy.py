"""`tidecast copy`: any mix of files from host to host, by a server, by ssh's start-up, through ssh. rsync verifies the result."""
import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest
from conftest import needs
from support.daemons import Host
from support.tidecast import wait_for

BIG = 60_000_000


def ended(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def same(source, dest, *flags) -> None:
    """Rsync finds nothing to do: names, contents, modes, times, owners, links, attributes, access control lists."""
    needs("rsync")
    said = subprocess.run(["rsync", "-anHAXc", "--delete", "--itemize-changes", *flags, f"{source}/", f"{dest}/"],
                          capture_output=True, text=True, check=True)
    assert said.stdout == "", said.stdout
    assert not [*pathlib.Path(dest).glob(".tidecast*"), *pathlib.Path(dest).parent.glob(".tidecast*")]


@pytest.fixture
def tree(tmp_path):
    """A little of everything."""
    top = tmp_path / "src" / "data"
    (top / "deep/er/still").mkdir(parents=True)
    (top / "empty dir").mkdir()
    for n in range(1500):
        (top / f"deep/{n:04}").write_bytes(os.urandom(n))
    (top / "big").write_bytes(os.urandom(BIG // 4))
    (top / "none").touch()
    (top / "deep/er/name with\nnewline and \xe4").write_text("x")
    (top / "link").symlink_to("deep/0007")
    (top / "nowhere").symlink_to("/does/not/exist")
    os.link(top / "deep/0100", top / "deep/er/same")
    os.mkfifo(top / "pipe")
    with open(top / "sparse", "wb") as f:
        f.truncate(30 << 20)
        f.seek(13 << 20)
        f.write(b"data")
    os.setxattr(top / "deep/0001", "user.note", b"kept")
    (top / "deep/0002").chmod(0o4750)
    os.utime(top / "deep/0003", ns=(10**18, 1_234_567_890_123_456_789))
    os.utime(top / "deep/er", ns=(10**18, 10**18 + 5))
    (top / "deep/er/still").chmod(0o555)
    return top


@pytest.fixture
def server(node, port, tmp_path):
    """server(*flags) -> the URL of a copy-server of `tmp_path/served`; servers of one name have one key. As root, and with all
    attributes unless `trust` is false."""
    def begin(*flags, root="served", name="server", listen=None, trust=("--as-root", "--trust-metadata")) -> str:
        (tmp_path / root).mkdir(exist_ok=True)
        listen = listen or f"127.0.0.1:{port()}"
        proc = node(name).run("copy-server", "--root", tmp_path / root, "--listen", listen, *trust, *flags)
        url = proc.until("its URL", lambda: proc.out.split("\n")[0] if "\n" in proc.out else "")
        begin.proc = proc
        return url

    return begin


@pytest.fixture
def ssh(built, tmp_path):
    """Flags for a program in ssh's place, which runs the other end on this host."""
    script = tmp_path / "ssh"
    script.write_text('#!/bin/sh\n[ "$1" = unknown ] && exit 255\nshift 2\nSSH_CONNECTION="127.0.0.1 9 127.0.0.1 22" exec "$@"\n')
    script.chmod(0o755)
    return "--ssh", script, "--remote-program", built / "tidecast"


def done(node, *words, code=0) -> dict:
    return node(*("--json", "copy"), *words, code=code).last("done" if code == 0 else "error")


@pytest.mark.parametrize("how", ["local", "push", "pull", "plain", "ssh", "ssh-pull", "via-ssh", "via-ssh-pull", "between"])
def test_all_of_a_tree_arrives_as_it_was_whatever_the_way(how, node, tree, server, ssh, tmp_path):
    here, dest = node("here"), tmp_path / "dest"
    served = tmp_path / "served"
    via = ("--via", "ssh") if how.startswith("via") else ()
    match how:
        case "local":
            end = done(here, tree, dest)
        case "push" | "plain":
            plain = ("--plain",) if how == "plain" else ()
            end = done(here, tree, server(*plain) + "in", *plain)
            dest = served / "in"
        case "pull":
            served.mkdir()
            tree.rename(served / "data")
            tree = served / "data"
            end = done(here, server("--read-only") + "data", dest)
        case "ssh" | "via-ssh":
            end = done(here, tree, f"host:{dest}", *ssh, *via)
        case "ssh-pull" | "via-ssh-pull":
            end = done(here, f"host:{tree}", dest, *ssh, *via)
        case "between":
            end = done(here, f"one:{tree}", f"two:{dest}", *ssh)
    assert end["failed"] == 0 and end["problems"] == [], end
    assert end["files_copied"] == end["files"] and BIG // 4 < end["bytes_copied"] < end["bytes"]
    same(tree, dest / "data")
    assert (dest / "data/sparse").stat().st_blocks * 512 < 5 << 20


def test_a_second_copy_moves_only_what_differs(here, tree, server, tmp_path):
    url, dest = server() + "in/", tmp_path / "served/in"
    done(here, f"{tree}/", url)
    assert done(here, f"{tree}/", url)["files_copied"] == 0
    (tree / "deep/0500").write_text("new")
    (tree / "added").write_text("new")
    (dest / "extra").write_text("old")
    (dest / "deep/extra dir").mkdir()
    wet = {"files_copied": 2, "deleted": 2}
    dry = done(here, "-n", "--delete", f"{tree}/", url)
    assert {k: dry[k] for k in wet} == wet and (dest / "extra").exists() and not (dest / "added").exists()
    end = done(here, "--delete", f"{tree}/", url)
    assert {k: end[k] for k in wet} == wet
    same(tree, dest)
    # Other bytes, same size and time: seen only by content.
    stat = (dest / "deep/0900").stat()
    (dest / "deep/0900").write_bytes(b"?" * 900)
    os.utime(dest / "deep/0900", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert done(here, f"{tree}/", url)["files_copied"] == 0
    assert done(here, "--checksum", f"{tree}/", url)["files_copied"] == 1
    # Newer files there stay, with --update; a different mode alone sends no bytes.
    (dest / "deep/0901").write_text("newer")
    assert done(here, "--update", f"{tree}/", url)["files_copied"] == 0
    assert done(here, f"{tree}/", url)["files_copied"] == 1
    (tree / "deep/0902").chmod(0o600)
    assert done(here, f"{tree}/", url)["files_copied"] == 0
    same(tree, dest)


def test_names_are_as_with_rsync(here, tmp_path):
    one = tmp_path / "one"
    one.write_text("1")
    (tmp_path / "dir/sub").mkdir(parents=True)
    (tmp_path / "dir/sub/a.nc").write_text("a")
    (tmp_path / "dir/sub/b.txt").write_text("b")
    done(here, one, tmp_path / "two")
    assert (tmp_path / "two").read_text() == "1"
    done(here, one, tmp_path / "dir")
    done(here, one, str(tmp_path / "new") + "/")
    assert (tmp_path / "dir/one").is_file() and (tmp_path / "new/one").is_file()
    done(here, tmp_path / "dir", tmp_path / "x")
    done(here, str(tmp_path / "dir") + "/", tmp_path / "y")
    assert (tmp_path / "x/dir/sub/a.nc").is_file() and (tmp_path / "y/sub/a.nc").is_file()
    done(here, str(tmp_path / "dir/*/*.nc"), f"{tmp_path}/z/")
    done(here, "--exclude", "*.txt", str(tmp_path / "dir") + "/", tmp_path / "w")
    assert os.listdir(tmp_path / "z") == ["a.nc"] and os.listdir(tmp_path / "w/sub") == ["a.nc"]
    assert "is a file" in done(here, tmp_path / "dir", one, code=2)["message"]
    assert one.read_text() == "1"


def test_of_several_sources_contents_the_first_wins_as_with_rsync(here, tmp_path):
    sources = []
    for number in range(4):
        sources.append(f"{tmp_path}/{number}/")
        for name in range(number, 40, number + 1):
            path = tmp_path / f"{number}/d{name % 5}/f{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{number} {name}")
    sources.append(f"{tmp_path}/3/d4")
    subprocess.run(["rsync", "-aHAX", *sources, tmp_path / "rsync"], check=True)
    done(here, *sources, tmp_path / "ours")
    same(tmp_path / "rsync", tmp_path / "ours")


@pytest.mark.parametrize("killed", ["sender", "receiver"])
def test_what_a_killed_copy_has_brought_is_not_sent_again(killed, here, node, ssh, start, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"
    source.mkdir()
    (source / "big").write_bytes(os.urandom(BIG))
    for n in range(300):
        (source / f"{n}").write_bytes(os.urandom(10_000))
    words = (f"{source}/", f"host:{dest}", *ssh)
    proc = here.run("--json", "copy", *words, "--limit", "80mbit", "--streams", "2")
    proc.until("a third of it", lambda: any(e.get("bytes", 0) > BIG / 3 for e in proc.events()))
    if killed == "sender":
        proc.process.send_signal(signal.SIGKILL)
        proc.wait()
    else:
        # Of this copy alone: other tests have ends of theirs.
        ends = subprocess.run(["pgrep", "-s", str(proc.process.pid), "-f", "copy-end"], capture_output=True, text=True).stdout.split()
        assert ends
        [os.kill(int(pid), signal.SIGKILL) for pid in ends]
        proc.exits(1)
    assert not dest.exists() and list(tmp_path.glob(".tidecast-copy-*/root"))
    end = done(here, *words)
    same(source, dest)
    assert end["bytes_resumed"] > BIG / 5
    assert end["bytes_copied"] < BIG + 3_000_000 - end["bytes_resumed"] + (4 << 20)


@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("killed", ["sender", "receiver"])
def test_a_new_destination_has_all_of_it_or_nothing(killed, empty, here, node, ssh, start, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "new/dest"
    for n in range(4000):
        path = source / f"d{n % 50}/{n}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(10_000))
    (source / "d3").chmod(0o500)
    if empty:
        dest.mkdir(parents=True)
    words = (f"{source}/", f"host:{dest}", *ssh)
    copied = 0
    for _ in range(2):
        proc = here.run("--json", "copy", *words, "--limit", "30mbit")
        # Of what is left.
        proc.until("some of it", lambda: any(e.get("bytes", 0) > 1_000_000 for e in proc.events()))
        ends = subprocess.run(["pgrep", "-s", str(proc.process.pid), "-f", "copy-end"], capture_output=True, text=True).stdout.split()
        [os.kill(int(pid), signal.SIGKILL) for pid in (ends if killed == "receiver" else [proc.process.pid])]
        proc.wait()
        # A receiver writes its received data before it ends.
        wait_for("the end of the other end", lambda: all(ended(int(pid)) for pid in ends))
        assert dest.exists() == empty and not [name for name in dest.glob("*") if not name.name.startswith(".tidecast-copy-")]
        left = [path for path in (tmp_path / "new").rglob(".tidecast-copy-*/root/**/*") if path.is_file() and path.stat().st_size == 10_000]
        assert len(left) > copied
        copied = len(left)
    end = done(here, *words)
    same(source, dest)
    assert os.listdir(tmp_path / "new") == ["dest"] and end["files_copied"] < 4000 - copied // 2, end


def test_a_disk_that_is_full_leaves_no_new_destination(here, server, tmp_path):
    if os.geteuid():
        pytest.skip("SKIPPED: mounting a tmpfs needs root")
    source, disk = tmp_path / "src", tmp_path / "served/in"
    source.mkdir()
    for n in range(300):
        (source / str(n)).write_bytes(os.urandom(100_000))
    url = server()
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", disk], check=True)
    try:
        said = done(here, f"{source}/", url + "in/new", code=1)["message"]
        (left,) = disk.iterdir()
        assert "No space left" in said and f"/in/{left.name} holds" in said and left.name.startswith(".tidecast-copy-"), said
        subprocess.run(["mount", "-o", "remount,size=50m", disk], check=True)
        end = done(here, f"{source}/", url + "in/new")
        assert end["files_copied"] < 200, end
        same(source, disk / "new")
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_is_an_error_and_the_rest_follows_when_there_is_room(here, server, tmp_path):
    if os.geteuid():
        pytest.skip("SKIPPED: mounting a tmpfs needs root")
    served = tmp_path / "served"
    url = server()
    (served / "in").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", served / "in"], check=True)
    try:
        (tmp_path / "big").write_bytes(os.urandom(30_000_000))
        said = done(here, tmp_path / "big", url + "in/", code=1)
        assert "No space left" in said["message"], said
        subprocess.run(["mount", "-o", "remount,size=50m", served / "in"], check=True)
        end = done(here, tmp_path / "big", url + "in/")
        assert end["bytes_resumed"] > 8 << 20
        assert (served / "in/big").read_bytes() == (tmp_path / "big").read_bytes()
    finally:
        subprocess.run(["umount", "-l", served / "in"], check=True)


def test_what_cannot_be_read_is_told_and_the_rest_completes(here, tmp_path, monkeypatch):
    source, dest = tmp_path / "src", tmp_path / "dest"
    source.mkdir()
    (source / "good").write_text("good")
    with socket.socket(socket.AF_UNIX) as s:
        # The path as a whole may be longer than a socket's may be.
        monkeypatch.chdir(source)
        s.bind("socket")
    end = done(here, f"{source}/", dest)
    assert end["problems"] == [] and (dest / "socket").is_socket()
    end = done(here, f"{source}/", tmp_path / "absent", dest, code=1)
    assert end["failed"] == 1 and (dest / "good").read_text() == "good"


def test_a_file_that_grows_all_the_time_is_told_and_has_no_final_name(here, start, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"
    source.mkdir()
    (source / "good").write_text("good")
    log = source / "log"
    log.write_bytes(bytes(50_000_000))
    growing = start(["sh", "-c", f"while :; do echo line >> '{log}'; done"])
    growing.until("it grows", lambda: log.stat().st_size > 50_000_000)
    end = done(here, f"{source}/", dest, code=1)
    assert "changed while it was read" in end["problems"][0]["what"], end
    assert [name for name in os.listdir(dest) if not name.startswith(".tidecast-copy-")] == ["good"]
    growing.kill()
    done(here, f"{source}/", dest)
    assert sorted(os.listdir(dest)) == ["good", "log"] and (dest / "log").read_bytes() == log.read_bytes()


def test_refusals_are_clear(here, server, ssh, tmp_path):
    url = server("--read-only")
    (tmp_path / "served/open").write_text("o")
    (tmp_path / "secret").write_text("s")
    (tmp_path / "served/out").symlink_to(tmp_path)
    key, _, rest = url.removeprefix("tidecast://").partition("@")

    def message(*words, code=1):
        return done(here, *words, code=code)["message"]

    assert "read-only" in message(tmp_path / "secret", url + "new")
    for way_out in ("../secret", "out/secret", "out/", "/../../secret"):
        message(url + way_out, tmp_path / "got")
    assert not (tmp_path / "got").exists()
    other = ("a" if key[60] != "a" else "b").join([key[:60], key[61:]])
    assert "wrong key" in message(f"tidecast://{other}@{rest}open", tmp_path / "got")
    wrong = ("a" if key[5] != "a" else "b").join([key[:5], key[6:]])
    message(f"tidecast://{wrong}@{rest}open", tmp_path / "got")
    assert "key" in message(f"tidecast://{rest}open", tmp_path / "got", code=2)
    assert "ssh to unknown failed" in message(tmp_path / "secret", "unknown:/tmp/x", *ssh)
    assert "nothing-here was not found on host" in message(tmp_path / "secret", "host:/tmp/x", *ssh[:2], "--remote-program", "nothing-here")
    assert "plain" in message(url + "open", tmp_path / "got", "--plain")
    assert done(here, url + "open", tmp_path / "got")["files_copied"] == 1


def test_noise_into_nothing_climbs_the_ladder(here, server, tmp_path):
    url = server()
    end = done(here, "--from-null", "100MB,1MB", url, "--to-null")
    assert end["files_copied"] == 100 and os.listdir(tmp_path / "served") == []
    end = done(here, "--from-null", "10MB,1MB", url + "noise")
    assert len(list((tmp_path / "served/noise").rglob("0*"))) >= 10 and end["bytes_copied"] == 10_000_000


@pytest.mark.parametrize("way", ["local", "ssh-pull"])
def test_explain_climbs_copies_and_leaves_nothing_else(way, here, tree, ssh, tmp_path):
    dest = tmp_path / "dest"
    dest.mkdir()
    words = {"local": (f"{tree}/", dest), "ssh": (*ssh, f"{tree}/", f"there:{dest}"), "ssh-pull": (*ssh, f"there:{tree}/", dest)}
    end = done(here, "--explain", *words[way])
    assert len(end["ladder"]) == 4 and all(step["bytes_per_second"] > 0 for step in end["ladder"])
    assert end["limit"]
    same(tree, dest)


def test_a_daemon_serves_a_directory_too(built, here, tree, start, port, tmp_path):
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    (tmp_path / "served").mkdir()
    (tmp_path / "daemon.toml").write_text(f'[daemon]\nserve_listen = "127.0.0.1:{port()}"\nserve_as_root = true\nserve_trust_metadata = true\n')
    host.env["TIDECAST_CONFIG"] = str(tmp_path / "daemon.toml")
    daemon = host.serve("--serve", tmp_path / "served")
    daemon.until("its URL", lambda: "tidecast://" in daemon.out and daemon.out.endswith("\n"))
    url = daemon.out.split()[-1]
    done(here, f"{tree}/", url + "in")
    same(tree, tmp_path / "served/in")
    daemon.signal(signal.SIGTERM)
    daemon.ok()
    assert here("copy", tree, url + "again", code=1).err


def test_a_copy_keeps_to_its_cores(here, node, tmp_path):
    core = min(os.sched_getaffinity(0))
    copy = node("pinned").run("copy", "--cpus", core, "--from-null", "1TB", "--to-null", tmp_path)
    tasks = pathlib.Path(f"/proc/{copy.process.pid}/task")
    copy.until("it works on one core", lambda: len(list(tasks.iterdir())) > 4)
    assert all(os.sched_getaffinity(int(task.name)) == {core} for task in tasks.iterdir())
    assert here("copy", "--cpus", "4095", "--from-null", "1MB", "--to-null", tmp_path, code=2).err
    assert here("copy", "--cpus", "node:999", "--from-null", "1MB", "--to-null", tmp_path, code=2).err


@pytest.mark.root
@pytest.mark.parametrize("pull", [False, True], ids=["push", "pull"])
def test_a_link_that_is_cut_for_a_while_costs_that_while(pull, lab, node, tmp_path):
    lab("up", "single:2@100mbit")
    (tmp_path / "served").mkdir()
    source = tmp_path / ("served" if pull else "") / "big"
    source.write_bytes(os.urandom(2 * BIG))
    listen = f"{lab.address(0)}:6870"
    server = node("server", lab, 0)
    proc = server.run("copy-server", "--root", tmp_path / "served", "--listen", listen, "--as-root")
    url = proc.until("its URL", lambda: proc.out.split("\n")[0] if "\n" in proc.out else "")
    server.wait_listening(proc, listen)
    words = (url + "big", tmp_path / "got") if pull else (source, url + "got")
    copy = node("here", lab, 1).run("--json", "copy", *words)
    copy.until("a third of it", lambda: any(e.get("bytes", 0) > 2 * BIG / 3 for e in copy.events()))
    lab("cut", "0")
    # Longer than it takes to see that nothing comes, shorter than to give up.
    time.sleep(20)
    lab("heal")
    end = copy.ok().last("done")
    got = tmp_path / "got" if pull else tmp_path / "served/got"
    assert got.read_bytes() == source.read_bytes()
    # Of 29 blocks: one on each of the streams, and as many in their buffers.
    assert end["blocks_again"] <= 16, end
