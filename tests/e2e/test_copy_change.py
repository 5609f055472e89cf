"""`tidecast copy` of files that change: while they are copied, and between two copies. Each delivered file has one state of the source."""
import os
import pathlib
import signal

import pytest
from test_copy import done

PART = 4 << 20
SIZE = 6 * PART + 1234
TIME = 1_700_000_000


@pytest.fixture
def ssh(built, tmp_path):
    script = tmp_path / "ssh"
    script.write_text('#!/bin/sh\nshift 2\nSSH_CONNECTION="127.0.0.1 9 127.0.0.1 22" exec "$@"\n')
    script.chmod(0o755)
    return "--ssh", script, "--remote-program", built / "tidecast"


def make(path: pathlib.Path, data: bytes) -> bytes:
    """Every file has the same length and time, as files of reproducible builds have."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (TIME, TIME))
    return data


def staged(dest: pathlib.Path) -> list[pathlib.Path]:
    """Parts of files, in the destination or beside one that is not there yet."""
    return [*dest.glob(".tidecast-copy-*/f*"), *dest.parent.glob(".tidecast-copy-*/f*")]


def begun(here, *words):
    """A copy that has brought some of a file."""
    proc = here.run("--json", "copy", "--limit", "150mbit", *words)
    proc.until("a third of it", lambda: any(e.get("bytes", 0) > SIZE / 3 for e in proc.events()))
    return proc


def interrupted(here, *words) -> None:
    proc = begun(here, *words)
    proc.process.send_signal(signal.SIGKILL)
    proc.wait()


@pytest.mark.parametrize("flags", [(), ("--checksum",), ("--update", "--fsync=each"), ("--streams", "4", "--readers", "4")])
@pytest.mark.parametrize("how", ["renamed", "rewritten", "one-part"])
def test_an_interrupted_copy_is_not_joined_with_another_file(how, flags, here, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"
    old = make(source / "big", os.urandom(SIZE))
    interrupted(here, *flags, f"{source}/", dest)
    assert staged(dest) and not (dest / "big").exists()
    new = os.urandom(SIZE) if how != "one-part" else os.urandom(PART) + old[PART:]
    if how == "renamed":
        make(tmp_path / "new", new)
        (tmp_path / "new").rename(source / "big")
    else:
        make(source / "big", new)
    end = done(here, *flags, f"{source}/", dest)
    assert (dest / "big").read_bytes() == new
    assert (end["bytes_resumed"] > 0) == (how == "one-part"), end
    assert not [*dest.glob(".tidecast*"), *tmp_path.glob(".tidecast*")]


@pytest.mark.parametrize("way", ["push", "pull"])
def test_parts_that_were_left_are_proven_at_both_ends(way, here, ssh, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"
    data = make(source / "big", os.urandom(SIZE))
    words = (*ssh, f"{source}/", f"host:{dest}") if way == "push" else (*ssh, f"host:{source}/", dest)
    interrupted(here, *words)
    with open(staged(dest)[0], "r+b") as left:
        left.seek(100)
        left.write(b"damaged")
    end = done(here, *words)
    assert (dest / "big").read_bytes() == data
    assert 0 < end["bytes_resumed"] <= SIZE - PART and end["bytes_copied"] + end["bytes_resumed"] == SIZE, end


def test_parts_of_a_sparse_file_leave_nothing_where_another_has_a_hole(here, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"

    def sparse(data: bytes, at: int) -> bytes:
        with open(source / "big", "wb") as f:
            f.truncate(SIZE)
            f.seek(at)
            f.write(data)
        os.utime(source / "big", (TIME, TIME))
        return (source / "big").read_bytes()

    source.mkdir()
    sparse(os.urandom(SIZE - PART), 0)
    interrupted(here, f"{source}/", dest)
    new = sparse(os.urandom(1000), 5 * PART + 7)
    done(here, f"{source}/", dest)
    assert (dest / "big").read_bytes() == new
    assert (dest / "big").stat().st_blocks * 512 < 2 * PART


@pytest.mark.parametrize("how", ["renamed", "rewritten", "touched", "shrunk", "grown"])
def test_a_file_that_changes_while_it_is_copied_arrives_as_one_state_or_not_at_all(how, here, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"
    big = source / "big"
    # More than both ends hold in memory, so that some of it is not read yet when it changes.
    old, new = make(big, os.urandom(3 * SIZE)), make(tmp_path / "new", os.urandom(3 * SIZE))
    (source / "other").write_text("other")
    proc = begun(here, "--pool", "8MiB", f"{source}/", dest)
    match how:
        case "renamed":
            (tmp_path / "new").rename(big)
        case "rewritten":
            with open(big, "r+b") as f:
                f.write(new)
            os.utime(big, (TIME, TIME))
        case "touched":
            os.link(big, tmp_path / "link")
            big.chmod(0o640)
        case "shrunk":
            os.truncate(big, 2 * PART)
            os.utime(big, (TIME, TIME))
        case "grown":
            with open(big, "ab") as f:
                f.write(b"more")
            os.utime(big, (TIME, TIME))
    if how in ("renamed", "touched"):
        proc.exits(0)
        assert (dest / "big").read_bytes() == old
    else:
        proc.exits(1)
        told = proc.last("error")["problems"]
        assert [p["what"] for p in told] == ["not copied: it changed while it was read"], told
        assert not (dest / "big").exists()
    assert (dest / "other").read_text() == "other"


def test_a_file_of_equal_size_and_time_stays_unless_contents_are_compared(here, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"
    old = make(source / "f", os.urandom(1000))
    done(here, f"{source}/", dest)
    new = make(source / "f", os.urandom(1000))
    done(here, f"{source}/", dest)
    assert (dest / "f").read_bytes() == old
    done(here, "--checksum", f"{source}/", dest)
    assert (dest / "f").read_bytes() == new
