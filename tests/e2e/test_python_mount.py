"""`tidecast.mount` and `tidecast.run`: trees that a process of Python shows, by the wheel alone."""
from __future__ import annotations

import os
import signal

import pytest
from support.tidecast import wait_for

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


def test_a_prefetch_list_of_another_user_is_not_used(script, tree, tmp_path):
    given = script("""
        import logging
        from tidecast._mount import _how
        heard = []
        logging.getLogger("tidecast").addFilter(lambda record: heard.append(record.getMessage()))
        rest = dict(prefetch_exe=(), record=None, cache=None, group=False, timeout=None, fallback=None)
        tidecast.publish("data", "data.torrent")
        words = [_how("data.torrent", "hybrid", "auto", **rest).prefetch]
        pathlib.Path("data.list").write_text("a\\n")
        words.append(_how("data.torrent", "hybrid", "auto", **rest).prefetch)
        if os.geteuid() == 0:
            os.chown("data.list", 61001, 61001)
            give(foreign=_how("data.torrent", "hybrid", "auto", **rest).prefetch)
        give(words=words, heard=heard)
    """)
    assert given["words"] == ["auto", str(tmp_path / "data.list")]
    if os.geteuid() == 0:
        assert given["foreign"] == "auto" and "belongs to user 61001" in given["heard"][0]


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
            shell = tidecast.run(shared.ticket, "echo $0; cat seen/sub/b.txt", shell=True, capture_output=True, text=True, **how)
            give(twin=waits.stdout.decode(), outside=os.path.exists("seen"), shell=shell.stdout)
            try:
                tidecast.run(shared.ticket, ["true"], executable="/bin/sh", **how)
            except ValueError as error:
                give(executable=str(error))
    """)
    assert given["code"] == 7 and given["out"] == "b in env\n" and given["words"] and given["checked"] == 1
    assert given["twin"] == "b" and not given["outside"]
    assert given["shell"].endswith("sh\nb") and "executable" in given["executable"]


def test_own_failures_are_exceptions_and_the_commands_code_is_a_result(script, tree, mounts, tmp_path):
    """A command may end with the codes 1, 2 and 3 and by a signal, as the program does where it fails itself."""
    given = script(r"""
        import asyncio, logging, subprocess
        said = []
        class Hears(logging.Handler):
            def emit(self, record): said.append(record.getMessage())
        logging.getLogger("tidecast").addHandler(Hears())
        def failure(call, **more):
            try:
                return call().returncode
            except tidecast.Error as error:
                return [type(error).__name__, error.code, str(error)]
        with tidecast.share("data", swarm=alone) as shared:
            how = dict(cache="cache", swarm=alone, state_dir="other", capture_output=True, text=True)
            def run(command, source=shared.ticket, at=os.getcwd() + "/seen", **more):
                return tidecast.run(source, command, at=at, **{**how, **more})
            os.mkdir("there")
            for name, at in [("there", os.getcwd() + "/there"), ("made", os.getcwd() + "/made")]:
                codes = [run(["sh", "-c", f"echo command >&2; exit {code}"], at=at) for code in (0, 1, 2, 3, 255)]
                give(**{f"codes_{name}": [done.returncode for done in codes], f"err_{name}": [done.stderr for done in codes],
                        f"signal_{name}": run(["sh", "-c", "kill -9 $$"], at=at).returncode,
                        f"absent_{name}": failure(lambda: run(["/no/such/program"], at=at))})
            give(denied=failure(lambda: run(["seen/sub/b.txt"])), system=failure(lambda: run(["true"], at="/etc")),
                 inside=run(["sh", "-c", "env; ls -l /proc/self/fd"]).stdout, empty=failure(lambda: run([])),
                 directory=failure(lambda: run(["true"], source="data")), twin=failure(lambda: asyncio.run(
                     tidecast.aio.run(shared.ticket, ["/no/such/program"], at=os.getcwd() + "/seen", **how))))
        # No peer: the program says so, and the command runs all the same.
        tidecast.publish("data", "data.torrent")
        give(lonely=run(["true"], source="data.torrent", swarm=tidecast.Swarm(listen="127.0.0.1:0", lsd=False, peers=["127.0.0.1:1"]),
                        cache="lonely").returncode, said=said)
    """)
    for name in ("there", "made"):
        assert given[f"codes_{name}"] == [0, 1, 2, 3, 255] and given[f"signal_{name}"] == -signal.SIGKILL
        assert given[f"err_{name}"] == ["command\n"] * 5
        assert given[f"absent_{name}"][:2] == ["UsageError", 2] and "/no/such/program" in given[f"absent_{name}"][2]
    assert given["denied"][0] == "UsageError" and given["system"][0] == "UsageError" and "/etc" in given["system"][2]
    assert given["twin"][0] == "UsageError" and given["empty"][0] == "UsageError" and given["directory"][1] in (1, 2)
    # The command has none of what the program was given.
    assert "TIDECAST_RUN" not in given["inside"] and "memfd" not in given["inside"]
    assert given["lonely"] == 0 and any("no peer answers" in text for text in given["said"]), given["said"]
    assert given["stderr"] == ""


def test_a_program_that_does_not_report_is_no_result(script, tree, tmp_path):
    """Another program in the place of tidecast, or one that the system ends: its code is not the command's."""
    given = script(r"""
        tidecast.publish("data", "data.torrent")
        from tidecast import _mount
        for name, text in dict(code="exit 3", signal="kill -9 $$", zero="exit 0", noise="echo '{' >&2; exit 1").items():
            program = pathlib.Path(name)
            program.write_text(f"#!/bin/sh\n{text}\n")
            program.chmod(0o755)
            _mount.find_tidecast_bin = lambda: str(program.absolute())
            try:
                tidecast.run("data.torrent", ["true"], capture_output=True)
            except tidecast.Error as error:
                give(**{name: [type(error).__name__, str(error)]})
    """)
    assert given["code"][0] == "CutError" and "code 3" in given["code"][1] and given["signal"][0] == "CutError"
    assert given["zero"][0] == given["noise"][0] == "FaultError"


def test_a_cancelled_task_ends_its_command(script, tree, mounts, tmp_path):
    given = script("""
        import asyncio, time
        async def main(shared):
            how = dict(at=os.getcwd() + "/seen", cache="cache", swarm=alone, state_dir="other", capture_output=True)
            async def cancelled(text, ready):
                task = asyncio.create_task(tidecast.aio.run(shared.ticket, ["sh", "-c", text], **how))
                while not os.path.exists(ready):
                    await asyncio.sleep(0.01)
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    return True
            # The second one has the pipes of one that goes on, and no ear for SIGTERM.
            give(plain=await cancelled("echo $$ > pid; exec sleep 1000", "pid"),
                 deaf=await cancelled("trap '' TERM; setsid sleep 1000 & echo $! > left; echo $$ > deaf; while :; do sleep 1; done", "deaf"))
            until = time.monotonic() + 100
            while [thread for thread in threading.enumerate() if thread.name == "tidecast"] and time.monotonic() < until:
                await asyncio.sleep(0.01)
            give(threads=sorted(thread.name for thread in threading.enumerate()))
        with tidecast.share("data", swarm=alone) as shared:
            asyncio.run(main(shared))
        os.kill(int(open("left").read()), 9)
    """)
    assert given["plain"] and given["deaf"] and given["threads"] == ["MainThread", "tidecast-share"]
    for name in ("pid", "deaf"):
        wait_for(f"the end of {name}", lambda name=name: not os.path.exists(f"/proc/{(tmp_path / name).read_text().strip()}"))


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
