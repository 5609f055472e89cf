"""`tidecast mount`: the published tree is there before it has arrived, stays whatever happens, and never lies."""
from __future__ import annotations

import errno
import mmap
import os
import pathlib
import random
import signal
import subprocess
import threading

import pytest

from support.mounts import alive, small_disk
from support.tidecast import wait_for
from support.trees import assert_same, blob, rich

MIB = 1 << 20
# Requests that come whatever is cached: Python asks each file whether it is a terminal, and a tree how much room it has.
FEW = {"statfs", "ioctl"}


def read(path: pathlib.Path, offset: int, size: int) -> bytes:
    with open(path, "rb", buffering=0) as f:
        f.seek(offset)
        return f.read(size)


def test_the_tree_is_what_was_published(mounts, shared, here, tmp_path):
    source = rich(tmp_path / "src")
    os.setxattr(source / "one", "user.note", b"kept")
    _, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at")
    assert_same(source, at)
    for name in ["one", "bin/tool", "a", "nothing/here", "leaf"]:
        ours, theirs = os.stat(at / name), os.stat(source / name)
        assert (ours.st_mode, ours.st_mtime_ns) == (theirs.st_mode, theirs.st_mtime_ns), name
    assert os.readlink(at / "link") == "a/b/c/deep"
    assert os.stat(at / "leaf").st_ino == os.stat(at / "a/hard").st_ino and os.stat(at / "leaf").st_nlink == 2
    assert os.getxattr(at / "one", "user.note") == b"kept" and os.listxattr(at / "one") == ["user.note"]
    assert os.listdir(at / "nothing/here") == []
    assert os.statvfs(at).f_blocks * 4096 >= sum(f.stat().st_size for f in source.rglob("*") if f.is_file() and f.name != "sparse")
    here("umount", at)
    assert not os.path.ismount(at) and os.listdir(at) == []


def test_nothing_can_be_written(mounts, shared, here, tmp_path):
    _, ticket = shared(rich(tmp_path / "src"))
    at = mounts.mount(here, ticket, tmp_path / "at")
    attempts = {
        "create": lambda: open(at / "new", "w"), "write": lambda: open(at / "one", "r+"), "truncate": lambda: os.truncate(at / "one", 0),
        "mkdir": lambda: os.mkdir(at / "new"), "rmdir": lambda: os.rmdir(at / "nothing/here"), "unlink": lambda: os.unlink(at / "one"),
        "rename": lambda: os.rename(at / "one", at / "two"), "link": lambda: os.link(at / "one", at / "two"),
        "symlink": lambda: os.symlink("one", at / "two"), "chmod": lambda: os.chmod(at / "one", 0o777), "chown": lambda: os.chown(at / "one", 1, 1),
        "removexattr": lambda: os.removexattr(at / "one", "user.note"),
        "utime": lambda: os.utime(at / "one"), "setxattr": lambda: os.setxattr(at / "one", "user.x", b"x"), "mknod": lambda: os.mkfifo(at / "new"),
    }
    for name, attempt in attempts.items():
        with pytest.raises(OSError) as failed:
            attempt()
        assert failed.value.errno == errno.EROFS, name
    with pytest.raises(FileNotFoundError):
        os.stat(at / "no/such/name")
    with pytest.raises(NotADirectoryError):
        os.stat(at / "one/below")


def test_names_are_asked_for_once_and_need_no_network(mounts, shared, here, tmp_path):
    origin, ticket = shared(rich(tmp_path / "src"))
    at = mounts.mount(here, ticket, tmp_path / "at")
    origin.kill()

    def look():
        for dir, dirs, files in os.walk(at):
            for name in [*dirs, *files, "missing.so"]:
                path = pathlib.Path(dir, name)
                if os.path.lexists(path) and path.is_symlink():
                    os.readlink(path)

    look()
    look()  # directories are listed with attributes at first, and kept from the second time on
    assert mounts.asked(here, at, look) == set()


def test_a_small_file_is_not_asked_for_once_it_is_open(mounts, shared, here, tmp_path):
    source = tmp_path / "src"
    data = [blob(source / f"f{i}", 1 + i * 4093, i).read_bytes() for i in range(32)]
    _, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at")
    for _ in range(2):
        assert [(at / f"f{i}").read_bytes() for i in range(32)] == data
    # The kernel may drop a file before it is read, but not all of them.
    assert mounts.requests(here, at)["read"] < 8


def test_a_part_of_a_large_file_does_not_wait_for_the_rest(mounts, shared, here, tmp_path):
    source = tmp_path / "src"
    data = blob(source / "model", 96 * MIB).read_bytes()
    _, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at")
    with open(at / "model", "rb") as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as view:
        assert view[50 * MIB: 51 * MIB] == data[50 * MIB: 51 * MIB]
        assert view[:4096] == data[:4096]
    fetched = mounts.status(here, at)["from_origin"]
    assert fetched < 12 * MIB, "1% was touched"
    # A sequential reader gets the next data before it requests it.
    with open(at / "model", "rb", buffering=0) as f:
        assert f.read(24 * MIB) + f.read() == data
    assert mounts.status(here, at)["pieces_missing"] == 0


def test_a_library_is_whole_when_its_open_succeeds(mounts, shared, here, tmp_path):
    source = tmp_path / "src"
    blob(source / "plain", 24 * MIB, 1)
    (source / "lib.so").write_bytes(b"\x7fELF" + blob(tmp_path / "body", 24 * MIB, 2).read_bytes())
    origin, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at", "--timeout", "2s")
    with open(at / "lib.so", "rb") as library, open(at / "plain", "rb", buffering=0) as plain:
        origin.kill()
        assert library.read() == (source / "lib.so").read_bytes()
        plain.seek(20 * MIB)
        with pytest.raises(OSError) as failed:
            plain.read(4096)
        assert failed.value.errno == errno.EIO


def test_bulk_brings_everything_and_then_the_kernel_asks_no_more(mounts, shared, here, tmp_path):
    source = rich(tmp_path / "src")
    origin, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at", "--mode", "bulk")
    wait_for("all of it", lambda: mounts.status(here, at)["pieces_missing"] == 0)
    origin.kill()
    assert_same(source, at)
    assert mounts.asked(here, at, lambda: assert_same(source, at), FEW) <= FEW


def test_a_mount_outlives_its_server(mounts, shared, here, tmp_path):
    source = rich(tmp_path / "src")
    _, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at")
    with open(at / "big.bin", "rb", buffering=0) as f:
        f.read(4096)
        for _ in range(3):
            first = mounts.status(here, at)["pid"]
            mounts.kill_server(here, at)
            assert f.read(4096) == (source / "big.bin").read_bytes()[f.tell() - 4096: f.tell()]
            assert os.stat(at / "one").st_size == 1
            wait_for("a new server", lambda: mounts.status(here, at).get("pid", first) != first)
        here("status", at, "--restart")
        assert f.read() == (source / "big.bin").read_bytes()[4 * 4096:]
    assert_same(source, at)


def test_a_server_that_goes_on_tells_the_kernel_that_all_is_here(mounts, shared, here, tmp_path):
    source = rich(tmp_path / "src")
    _, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at")
    # Files that are open through the kernel's cache, and one that may be passed through, while the server is replaced.
    with open(at / "one", "rb") as small, open(at / "big.bin", "rb") as cached:
        assert small.read(1) and cached.read(1)
        with open(at / "a/second.bin", "rb"), open(at / "a/second.bin", "rb") as passed:
            for end in (lambda: mounts.kill_server(here, at), lambda: here("status", at, "--restart")):
                first = mounts.status(here, at)["pid"]
                end()
                wait_for("a new server", lambda: mounts.status(here, at).get("pid", first) != first)
                assert (at / "big.bin").read_bytes() == (source / "big.bin").read_bytes()
                assert (at / "a/second.bin").read_bytes() == (source / "a/second.bin").read_bytes()
                assert passed.read(4096) == (source / "a/second.bin").read_bytes()[passed.tell() - 4096: passed.tell()]
    assert_same(source, at)
    wait_for("that all is closed", lambda: quiet(mounts, here, at))
    assert_same(source, at)
    assert "open" not in mounts.asked(here, at, lambda: assert_same(source, at), FEW)


def quiet(mounts, here, at) -> bool:
    """Whether no request has come for a moment: the kernel reports closed files with a delay."""
    before = mounts.requests(here, at)
    return mounts.requests(here, at) == before


def test_who_waits_when_the_server_dies_gets_its_data(mounts, node, here, port, tmp_path):
    source = rich(tmp_path / "src")
    listen = f"127.0.0.1:{port()}"
    origin, ticket = node("origin").share(source, listen, "--no-lsd")
    at = mounts.mount(here, ticket, tmp_path / "at")
    origin.kill()
    got = []
    reader = threading.Thread(target=lambda: got.append((at / "big.bin").read_bytes()), daemon=True)
    reader.start()
    wait_for("somebody who waits", lambda: mounts.status(here, at)["waiting"] > 0)
    mounts.kill_server(here, at)
    node("origin").share(source, listen, "--no-lsd")
    reader.join(100)
    assert got == [(source / "big.bin").read_bytes()]


def test_what_nobody_gives_is_an_error_in_time_and_is_shown_meanwhile(mounts, shared, here, tmp_path):
    origin, ticket = shared(rich(tmp_path / "src"))
    at = mounts.mount(here, ticket, tmp_path / "at", "--timeout", "4s")
    origin.kill()
    failed = []

    def reads():
        try:
            (at / "big.bin").read_bytes()
        except OSError as error:
            failed.append(error.errno)

    reader = threading.Thread(target=reads, daemon=True)
    reader.start()
    wait_for("somebody who waits", lambda: mounts.status(here, at)["waits"])
    assert mounts.status(here, at)["waits"][0]["path"] == "big.bin"
    reader.join(60)
    assert failed == [errno.EIO]
    [log] = (here.home / "cache").glob("*/log")
    assert "big.bin" in log.read_text()


def test_a_killed_process_does_not_wait_for_its_data(mounts, shared, here, start, tmp_path):
    origin, ticket = shared(rich(tmp_path / "src"))
    at = mounts.mount(here, ticket, tmp_path / "at")
    origin.kill()
    reader = start(["cat", at / "big.bin"])
    wait_for("somebody who waits", lambda: mounts.status(here, at)["waiting"] > 0)
    reader.signal(signal.SIGKILL)
    assert reader.wait(30) == -signal.SIGKILL
    wait_for("that it waits no more", lambda: mounts.status(here, at)["waiting"] == 0)


def test_a_shared_file_system_stands_in_for_peers_and_is_not_believed(mounts, shared, here, tmp_path):
    source = rich(tmp_path / "src")
    subprocess.run(["cp", "-a", source, tmp_path / "copy"], check=True)
    blob(tmp_path / "copy/leaf+1", 16385, 99)
    origin, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at", "--fallback", tmp_path / "copy", "--timeout", "5s")
    origin.kill()
    assert (at / "big.bin").read_bytes() == (source / "big.bin").read_bytes()
    with pytest.raises(OSError) as failed:
        (at / "leaf+1").read_bytes()
    assert failed.value.errno == errno.EIO


def test_mounts_of_one_tree_share_a_server_and_its_cache(mounts, shared, here, tmp_path):
    source = rich(tmp_path / "src")
    origin, ticket = shared(source)
    one, two = tmp_path / "one", tmp_path / "two"
    mounts.mount(here, ticket, one)
    assert_same(source, one)
    origin.kill()
    mounts.mount(here, ticket, two)
    assert mounts.status(here, one)["pid"] == mounts.status(here, two)["pid"]
    assert_same(source, two)
    server = mounts.status(here, one)["pid"]
    here("umount", one)
    assert_same(source, two)
    here("umount", two)
    wait_for("the end of the server", lambda: not alive(server))
    # The next job finds the data, and needs no peer.
    mounts.mount(here, ticket, one)
    assert_same(source, one)


@pytest.mark.parametrize("how", ["revoked", "moved"])
def test_a_ticket_that_is_accepted_no_longer_gives_way_to_that_of_the_next_mount(how, mounts, node, port, here, tmp_path):
    source = rich(tmp_path / "src")
    origin, where = node("origin"), f"127.0.0.1:{port()}"
    proc, ticket = origin.share(source, where, "--no-lsd")
    one, two = tmp_path / "one", tmp_path / "two"
    mounts.mount(here, ticket, one, "--prefetch", "none")
    assert (one / "leaf").read_bytes() == (source / "leaf").read_bytes()
    if how == "revoked":
        origin("revoke", ticket)
    else:
        proc.kill()
    _, other = origin.share(source, f"127.0.0.1:{port()}", "--no-lsd")
    mounts.mount(here, other, two, "--prefetch", "none")
    assert_same(source, two)
    assert_same(source, one)


def test_a_dead_mount_is_taken_away_by_the_next(mounts, shared, here, tmp_path):
    source = rich(tmp_path / "src")
    _, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at")
    mounts.kill_all(here, at)
    with pytest.raises(OSError) as failed:
        os.listdir(at)
    assert failed.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)
    assert "dead" in here("status", at).out
    mounts.mount(here, ticket, at)
    assert_same(source, at)


def test_a_mount_is_found_by_links_that_lead_to_it(mounts, shared, here, tmp_path):
    """The mount table has its path without links. A dead one is found too, and is replaced."""
    source = rich(tmp_path / "src")
    _, ticket = shared(source)
    real, way, link = tmp_path / "real", tmp_path / "way", tmp_path / "link"
    real.mkdir()
    way.symlink_to(real)
    link.symlink_to(real / "env")
    mounts.mount(here, ticket, way / "env")
    server = mounts.status(here, real / "env")["pid"]
    for name in (way / "env", link, real / "../way/env"):
        assert mounts.status(here, name)["pid"] == server, name
    assert "already mounted" in here("mount", ticket, way / "env", "--cache", here.home / "cache", code=1).err
    here("status", way / "env", "--restart")
    wait_for("the new server", lambda: "pid" in mounts.status(here, link))
    mounts.servers.add(mounts.status(here, link)["pid"])
    mounts.kill_all(here, way / "env")
    for name in (way / "env", link):
        assert "dead" in here("status", name).out, name
    mounts.mount(here, ticket, way / "env")
    assert_same(source, real / "env")
    here("umount", link)
    assert not os.path.ismount(real / "env")


def test_abort_frees_all_who_wait(mounts, shared, here, start, tmp_path):
    origin, ticket = shared(rich(tmp_path / "src"))
    at = mounts.mount(here, ticket, tmp_path / "at")
    origin.kill()
    reader = start(["cat", at / "big.bin"])
    wait_for("somebody who waits", lambda: mounts.status(here, at)["waiting"] > 0)
    here("umount", at, "--abort")
    assert reader.wait(30) == 1
    assert not os.path.ismount(at)


def test_a_full_cache_is_an_error_and_no_hang(mounts, shared, here, tmp_path):
    source = tmp_path / "src"
    blob(source / "small", 100_000)
    blob(source / "large", 40 * MIB)
    _, ticket = shared(source)
    disk = small_disk(tmp_path / "disk", "16m")
    here("mount", ticket, tmp_path / "at", "--cache", disk, "--no-lsd")
    at = tmp_path / "at"
    mounts.servers.add(mounts.status(here, at)["pid"])
    assert (at / "small").read_bytes() == (source / "small").read_bytes()
    with pytest.raises(OSError) as failed:
        (at / "large").read_bytes()
    assert failed.value.errno == errno.EIO
    assert (at / "small").read_bytes() == (source / "small").read_bytes()


def test_a_small_cache_is_not_filled_with_what_others_open(mounts, shared, node, here, tmp_path):
    source = tmp_path / "src"
    for i in range(10):
        blob(source / f"f{i}", 4 * MIB, i)
    _, ticket = shared(source)
    disk = small_disk(tmp_path / "disk", "16m")
    at, other = tmp_path / "at", node("other")
    said = here("mount", ticket, at, "--cache", disk, "--no-lsd", "--group").err
    mounts.servers.add(mounts.status(here, at)["pid"])
    assert "ignores --group" in said
    large = mounts.mount(other, ticket, tmp_path / "large", "--group")
    for i in range(10):
        assert (large / f"f{i}").read_bytes() == (source / f"f{i}").read_bytes()
    for i in (8, 9):
        assert (at / f"f{i}").read_bytes() == (source / f"f{i}").read_bytes()


def test_many_threads_read_at_once(mounts, shared, here, tmp_path):
    source = tmp_path / "src"
    data = [blob(source / f"d{i % 7}/f{i}", 1000 + 37_111 * (i % 9), i).read_bytes() for i in range(200)]
    big = blob(source / "big", 48 * MIB, 1000).read_bytes()
    _, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at")
    wrong = []

    def reads(seed):
        chance = random.Random(seed)
        try:
            for _ in range(40):
                i, offset = chance.randrange(200), chance.randrange(48 * MIB - 70_000)
                if (at / f"d{i % 7}/f{i}").read_bytes() != data[i] or read(at / "big", offset, 70_000) != big[offset: offset + 70_000]:
                    wrong.append(i)
        except OSError as error:
            wrong.append(error)

    threads = [threading.Thread(target=reads, args=(seed,)) for seed in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_corrupt_origin_is_never_seen(mounts, shared, here, tmp_path):
    source = rich(tmp_path / "src")
    origin, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at", "--timeout", "3s")
    assert (at / "a/b/c/deep").read_bytes() == (source / "a/b/c/deep").read_bytes()
    before = os.stat(source / "big.bin")
    with open(source / "big.bin", "r+b") as f:
        f.seek(MIB)
        f.write(b"\0" * 4096)
    os.utime(source / "big.bin", ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(OSError) as failed:
        (at / "big.bin").read_bytes()
    assert failed.value.errno == errno.EIO


def test_a_recorded_run_tells_the_next_what_it_needs(mounts, shared, node, tmp_path):
    source = rich(tmp_path / "src")
    _, ticket = shared(source)
    record = tmp_path / "app.list"
    first, second = node("first"), node("second")
    at = mounts.mount(first, ticket, tmp_path / "one", "--record", record)
    (at / "a/second.bin").read_bytes()
    (at / "one").read_bytes()
    first("umount", at)
    wait_for("the list", record.exists)
    lines = [line for line in record.read_text().splitlines() if not line.startswith("#")]
    assert [line.split("\t")[0] for line in lines if "tidecast" not in line] == ["a/second.bin", "one"]
    at = mounts.mount(second, ticket, tmp_path / "two", "--prefetch", record)
    wanted = sum(os.path.getsize(source / name) for name in ("a/second.bin", "one"))
    wait_for("what the list names", lambda: mounts.status(second, at)["from_origin"] >= wanted)
    (at / "a/second.bin").read_bytes()
    (at / "one").read_bytes()
    status = mounts.status(second, at)
    assert (status["misses"], status["from_origin"]) == (0, wanted)


def test_a_group_takes_what_one_opens_from_the_origin_about_once(mounts, shared, node, tmp_path):
    source = tmp_path / "src"
    for i in range(40):
        blob(source / f"lib{i}.so", 400_000, i)
    _, ticket = shared(source)
    nodes = [node(f"n{i}") for i in range(6)]
    ats = [mounts.mount(n, ticket, tmp_path / f"at{i}", "--group") for i, n in enumerate(nodes)]
    wrong = []

    def start_up(at):
        try:
            for i in range(20):
                if (at / f"lib{i}.so").read_bytes() != (source / f"lib{i}.so").read_bytes():
                    wrong.append((at, i))
        except OSError as error:
            wrong.append(error)

    threads = [threading.Thread(target=start_up, args=(at,)) for at in ats]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    touched = 20 * 400_000
    from_origin = sum(mounts.status(n, at)["from_origin"] for n, at in zip(nodes, ats))
    assert touched <= from_origin <= 1.3 * touched
    # A file that one node opens is sent to all.
    (ats[0] / "lib30.so").read_bytes()
    missing = mounts.status(nodes[0], ats[0])["pieces_missing"]
    for n, at in zip(nodes, ats):
        wait_for("what another has opened", lambda: mounts.status(n, at)["pieces_missing"] == missing)


def test_run_shows_the_tree_where_it_was_built(mounts, shared, here, tmp_path):
    source = rich(tmp_path / "src")
    script = source / "bin/where"
    script.write_text(f"#!/bin/sh\necho $0; cat {source}/a/b/c/deep | wc -c; pwd; exit 9\n")
    script.chmod(0o755)
    _, ticket = shared(source)
    away = tmp_path / "no/such/place"
    words = ["run", ticket, "--cache", here.home / "cache", "--no-lsd"]
    # Existing files stay visible unless the caller names the place.
    assert "not empty" in here(*words, "--", script, code=2).err
    done = here(*words, "--at", source, "--", script, code=9)
    assert done.out.split("\n")[:2] == [str(script), "40000"]
    assert here(*words, "--at", away, "--", "cat", away / "leaf", code=0).out_path.read_bytes() == (source / "leaf").read_bytes()
    # The server removes it if it sees the end of the mount later than the command.
    wait_for("nothing is left", lambda: not (tmp_path / "no").exists())
    here(*words, "--at", away, "--", "/no/such/program", code=2)
    # Where it was built, and nothing is now: made for the command, and removed.
    source.rename(tmp_path / "elsewhere")
    assert here(*words, "--", script, code=9).out.split("\n")[:2] == [str(script), "40000"]
    wait_for("nothing is left", lambda: not source.exists())


def test_commands_that_come_as_the_last_one_ends_find_a_server(shared, here, tmp_path):
    _, ticket = shared(rich(tmp_path / "src"))
    words = ["run", ticket, "--cache", here.home / "cache", "--no-lsd", "--at", tmp_path / "tree", "--"]
    for _ in range(100):
        both = [here.run(*words, "stat", "-c", "%s", tmp_path / "tree/leaf") for _ in range(2)]
        assert [one.ok().out for one in both] == ["16384\n"] * 2


def test_mistakes_are_named(mounts, shared, here, tmp_path):
    source = rich(tmp_path / "src")
    _, ticket = shared(source)
    at = mounts.mount(here, ticket, tmp_path / "at")
    assert "already mounted" in here("mount", ticket, at, "--cache", here.home / "cache", code=1).err
    cache = ["--cache", here.home / "cache"]
    assert "fallback" in here("mount", ticket, tmp_path / "absent", *cache, "--fallback", tmp_path / "none", code=1).err
    beside = here("mount", ticket, tmp_path / "beside", *cache, "--no-lsd", "--record", tmp_path / "list").err
    assert "is not written: the tree is mounted already" in beside
    here("umount", tmp_path / "beside")
    assert "is not a tidecast mount" in here("umount", tmp_path, code=1).err
    assert "is not a tidecast mount" in here("status", tmp_path, code=1).err
    bad = tmp_path / "bad.list"
    bad.write_text("a\tx-y\n")
    other = tmp_path / "other"
    blob(other / "f", 10)
    _, ticket = shared(other)
    assert "bad.list" in here("mount", ticket, tmp_path / "two", "--cache", here.home / "cache", "--no-lsd", "--prefetch", bad, code=1).err
    assert not os.path.ismount(tmp_path / "two")


def test_of_many_that_mount_at_one_place_one_does(mounts, shared, here, tmp_path):
    _, ticket = shared(rich(tmp_path / "src"))
    mounts.mount(here, ticket, tmp_path / "other")
    at = tmp_path / "at"
    tries = [here.run("mount", ticket, at, "--cache", here.home / "cache", "--no-lsd") for _ in range(4)]
    codes = sorted(one.wait() for one in tries)
    assert codes == [0, 1, 1, 1], [one.err for one in tries]
    assert all("already mounted" in one.err for one in tries if one.wait())
    here("umount", at)
    assert not os.path.ismount(at)
