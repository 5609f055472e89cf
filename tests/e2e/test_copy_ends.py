"""`tidecast copy` whose other end freezes, whose shell prints, whose disk is full or limited: each is an error within the time limit,
with the reason."""
import os
import signal
import subprocess
import time

import pytest
from support.tidecast import wait_for
from test_copy import ended

SIZE = 40_000_000


@pytest.fixture
def ssh(built, tmp_path):
    """ssh(*lines) -> flags for a program in ssh's place, which runs these lines of shell first; its process is in `far.pid`."""
    def make(*lines: str):
        script = tmp_path / "ssh"
        script.write_text("\n".join(["#!/bin/bash", f"echo $$ > {tmp_path}/far.pid", *lines, "shift 2",
                                     'SSH_CONNECTION="127.0.0.1 9 127.0.0.1 22" exec "$@"', ""]))
        script.chmod(0o755)
        return "--ssh", script, "--remote-program", built / "tidecast"

    return make


@pytest.mark.parametrize("way", ["push", "pull", "via-ssh-push", "via-ssh-pull"])
@pytest.mark.parametrize("frozen", ["far", "near"])
def test_a_frozen_end_ends_the_copy_at_the_other(frozen, way, here, ssh, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"
    source.write_bytes(os.urandom(SIZE))
    words = (source, f"host:{dest}") if way.endswith("push") else (f"host:{source}", dest)
    via = ("--via", "ssh") if way.startswith("via") else ()
    proc = here.run("--json", "copy", *ssh(), *via, "--timeout", "2s", "--limit", "80mbit", *words)
    proc.until("some of it", lambda: any(e.get("bytes", 0) > SIZE / 8 for e in proc.events()))
    far, near = int((tmp_path / "far.pid").read_text()), proc.process.pid
    stopped = far if frozen == "far" else near
    os.kill(stopped, signal.SIGSTOP)
    try:
        if frozen == "far":
            proc.exits(3)
            assert "no data from the other end for 2 s" in proc.last("error")["message"]
        else:
            # It is a child of the one that stands still, and stays until that looks.
            wait_for("the end of the other end", lambda: ended(far))
    finally:
        if not ended(stopped):
            os.kill(stopped, signal.SIGCONT)
    if frozen == "near":
        assert proc.wait() in (1, 3)
    assert not dest.exists()


@pytest.mark.parametrize("lines, shown", [
    (["echo Welcome!"], 'printed "Welcome!"'),
    (["echo hi"], 'printed "hi"'),
    (["printf 'no newline'"], 'printed "no newline'),
    (["echo; echo a banner of many words; head -c 100000 /dev/zero"], 'printed "a banner of many words"'),
    (["printf '\\e[2J\\x02\\n'"], 'printed "\\x1b[2J\\x02"'),
    (["printf '\\x02\\0\\0\\0\\x10\\0\\0\\0'; head -c 100 /dev/zero"], "printed"),
    (["echo 'This account is not available'; exit 1"], 'printed "This account is not available"'),
])
@pytest.mark.parametrize("via", [(), ("--via", "ssh")])
def test_what_the_shell_prints_is_named(via, lines, shown, here, ssh, tmp_path):
    (tmp_path / "f").write_text("x")
    said = here("--json", "copy", *ssh(*lines), *via, tmp_path / "f", f"host:{tmp_path}/d", code=1).last("error")["message"]
    assert shown in said and "shell" in said and "\x1b" not in said, said


def test_an_end_that_never_answers_is_given_up(here, ssh, tmp_path):
    if os.access("/dev/tty", os.R_OK):
        try:
            os.close(os.open("/dev/tty", os.O_RDONLY))
            pytest.skip("SKIPPED: with a terminal a password may be asked for, which is waited for longer")
        except OSError:
            pass
    (tmp_path / "f").write_text("x")
    began = time.monotonic()
    proc = here("--json", "copy", *ssh("exec sleep 1000"), "--timeout", "1s", tmp_path / "f", f"host:{tmp_path}/d", code=3)
    assert "does not answer" in proc.last("error")["message"] and time.monotonic() - began >= 1


def test_a_limit_on_file_sizes_is_an_error_that_names_the_file(here, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"
    source.mkdir()
    (source / "big").write_bytes(os.urandom(20_000_000))
    (source / "middle").write_bytes(os.urandom(3_000_000))
    (source / "small").write_text("small")
    run = subprocess.run(["bash", "-c", 'ulimit -f 2000; "$0" --json copy "$1/" "$2"', here.program, source, dest],
                         capture_output=True, text=True)
    assert run.returncode == 1, run
    for name in ("big", "middle"):
        assert f"{name}: cannot" in run.stderr + run.stdout and "ulimit -f" in run.stdout, run
    assert sorted(name for name in os.listdir(dest) if not name.startswith(".")) == ["small"]


def test_what_another_copy_has_left_is_named_when_there_is_no_room(here, tmp_path):
    if os.geteuid():
        pytest.skip("SKIPPED: mounting a tmpfs needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", disk], check=True)
    try:
        for name, size in {"one": 40_000_000, "two": 20_000_000}.items():
            (tmp_path / name).mkdir()
            (tmp_path / name / name).write_bytes(os.urandom(size))
        said = here("--json", "copy", f"{tmp_path}/one/", disk / "d", code=1).last("error")["message"]
        (left,) = disk.glob(".tidecast-copy-*")
        assert "No space left" in said and f"{left} holds" in said and "kept for the next run of this command" in said, said
        said = here("--json", "copy", f"{tmp_path}/two/", disk / "d", code=1).last("error")["message"]
        assert f"{left} holds" in said and "left by an unfinished copy" in said, said
        subprocess.run(["rm", "-r", left], check=True)
        here("copy", f"{tmp_path}/two/", disk / "d")
        assert os.listdir(disk / "d") == ["two"]
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
