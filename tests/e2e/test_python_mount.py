"""`tidecast.mount` and `tidecast.run`: trees that a process of Python shows, by the wheel alone."""
from __future__ import annotations

import os
import signal

import pytest

pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture
def tree(tmp_path):
    place = tmp_path / "data"
    (place / "sub").mkdir(parents=True)
    (place / "a").write_bytes(os.urandom(300_000))
    (place / "sub/b.txt").write_text("b")
    return place


def mounted(place) -> list[str]:
    """Mount points below a directory."""
    with open("/proc/self/mountinfo") as lines:
        return [line.split()[4] for line in lines if line.split()[4].startswith(str(place))]


def test_a_block_has_the_mount_and_takes_it_away(script, tree, mounts, tmp_path):
    given = script("""
        events = []
        how = dict(cache="cache", swarm=alone, state_dir="other", progress=events.append)
        with tidecast.share("data", swarm=alone) as shared:
            with tidecast.mount(shared.ticket, "at", **how) as path:
                same = (path / "a").read_bytes() == pathlib.Path("data/a").read_bytes()
                try:
                    (path / "new").write_text("x")
                except OSError as error:
                    give(refused=error.errno)
                kept = (path / "sub/b.txt").open()
                try:
                    tidecast.mount(shared.ticket, "at", **how)
                except tidecast.FaultError as error:
                    give(twice=str(error))
            # A file that is open does not keep the mount in sight.
            give(same=same, path=path, text=kept.read(), left=os.listdir("at"), events=[event["event"] for event in events])
            kept.close()
            mount = tidecast.mount(shared.ticket, "at", mode="bulk", prefetch=None, timeout=60, **how)
            give(again=sorted(os.listdir(mount)), closed=[mount.close(), mount.close()])
    """)
    assert given["same"] and given["path"] == str(tmp_path / "at") and given["text"] == "b" and given["left"] == []
    assert given["refused"] == 30 and "already mounted" in given["twice"] and given["events"].count("started") == 1
    assert given["again"] == ["a", "sub"] and given["closed"] == [None, None] and mounted(tmp_path) == []


def test_wrong_arguments_of_mounts(script, tree, tmp_path):
    given = script("""
        tidecast.publish("data", "data.torrent")
        kinds = []
        for source, how in [("data.torrent", dict(mode="all")), ("data.torrent", dict(timeout=-1)), ("none", {})]:
            try:
                tidecast.mount(source, "at", **how)
            except tidecast.Error as error:
                kinds.append(type(error).__name__)
        try:
            tidecast.mount("data.torrent", "/etc", swarm=alone)
        except tidecast.UsageError as error:
            give(system=str(error))
        give(kinds=kinds)
    """)
    assert given["kinds"][:2] == ["UsageError"] * 2 and given["kinds"][2] in ("UsageError", "FaultError") and "/etc" in given["system"]


def test_a_command_sees_the_tree(script, tree, mounts, tmp_path):
    given = script("""
        import asyncio, subprocess
        with tidecast.share("data", swarm=alone) as shared:
            how = dict(at=os.getcwd() + "/seen", cache="cache", swarm=alone, state_dir="other")
            text = "import os, sys; print(open('seen/sub/b.txt').read(), sys.stdin.read(), os.environ['WORD']); sys.exit(7)"
            done = tidecast.run(shared.ticket, [sys.executable, "-c", text], capture_output=True, text=True, input="in",
                                env={**os.environ, "WORD": "env"}, **how)
            give(code=done.returncode, out=done.stdout, words=done.args[0] == sys.executable)
            try:
                tidecast.run(shared.ticket, ["false"], check=True, **how)
            except subprocess.CalledProcessError as error:
                give(checked=error.returncode)
            waits = asyncio.run(tidecast.aio.run(shared.ticket, ["cat", "seen/sub/b.txt"], capture_output=True, **how))
            give(twin=waits.stdout.decode(), outside=os.path.exists("seen"))
            shown = tidecast.run("data", ["true"], capture_output=True, text=True, **how)
            give(failed=shown.returncode, why=shown.stderr)
    """)
    assert given["code"] == 7 and given["out"] == "b in env\n" and given["words"] and given["checked"] == 1
    assert given["twin"] == "b" and not given["outside"] and given["failed"] in (1, 2) and given["why"]


def test_the_ticket_is_on_no_command_line(script, tree, mounts, tmp_path):
    given = script("""
        with tidecast.share("data", swarm=alone) as shared:
            text = "import pathlib; print(*(line.read_bytes() for line in pathlib.Path('/proc').glob('[0-9]*/cmdline') if line.exists()))"
            done = tidecast.run(shared.ticket, [sys.executable, "-c", text], at=os.getcwd() + "/seen", cache="cache", swarm=alone,
                                state_dir="other", capture_output=True, text=True)
            give(code=done.returncode, found=shared.ticket in done.stdout, shown="--mode=hybrid" in done.stdout)
    """)
    assert given["code"] == 0 and not given["found"] and given["shown"]


@pytest.mark.parametrize("call", [
    'tidecast.run(shared.ticket, ["sh", "-c", "echo ready; exec sleep 1000"], at=os.getcwd() + "/seen", **how)',
    'tidecast.mount("magnet:?xt=urn:btih:" + "0" * 40, "at", **how)'])
def test_ctrl_c_ends_a_call(script, tree, mounts, tmp_path, call):
    process = script.popen(f"""
        how = dict(cache="cache", swarm=alone, state_dir="other")
        with tidecast.share("data", swarm=alone) as shared:
            try:
                if "magnet" in {call!r}:
                    print("ready")
                {call}
            except KeyboardInterrupt:
                print("interrupted")
    """)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert out == "interrupted\n", err
    assert mounted(tmp_path) == []
