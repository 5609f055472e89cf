"""The Python package as its users have it: the wheel in a fresh environment, and nothing else."""
from __future__ import annotations

import os
import pathlib
import signal

import pytest

pytestmark = pytest.mark.xdist_group("wheel")


@pytest.fixture
def tree(tmp_path) -> pathlib.Path:
    place = tmp_path / "data"
    (place / "sub").mkdir(parents=True)
    (place / "a").write_bytes(os.urandom(700_000))
    (place / "sub/b.txt").write_text("b")
    return place


def test_the_wheel_has_the_program_the_library_and_the_header(fresh, script, tmp_path):
    given = script("""
        import ctypes, subprocess
        give(program=tidecast.find_tidecast_bin(), header=os.path.exists(tidecast.get_include() + "/tidecast.h"),
             opens=bool(ctypes.CDLL(tidecast.get_library()).tidecast_open), version=tidecast.__version__,
             says=subprocess.check_output(["tidecast", "--version"], text=True),
             module=subprocess.check_output([sys.executable, "-m", "tidecast", "--version"], text=True))
    """)
    assert given["program"] == str(fresh / "bin/tidecast") and given["header"] and given["opens"]
    assert given["says"] == given["module"] and given["says"].split()[1] == given["version"]


def test_import_loads_nothing_that_is_heavy(script):
    given = script("""
        import subprocess
        names = subprocess.check_output([sys.executable, "-c", "import sys, tidecast; print(*sys.modules)"], text=True).split()
        give(loaded=[name for name in ("numpy", "asyncio", "tqdm", "mpi4py", "ctypes", "distributed", "ray", "parsl", "tidecast._native") if name in names])
    """)
    assert given["loaded"] == []


def test_share_and_get(script, tree, tmp_path):
    given = script("""
        events = []
        with tidecast.share("data", swarm=alone) as shared:
            path = tidecast.get(shared.ticket, "to", swarm=alone, state_dir="other", progress=events.append)
            totals = shared.close
        give(path=path, events=[event["event"] for event in events], private=shared.ticket.startswith("tidecast1"))
    """)
    assert given["path"] == "to/data" and given["private"]
    assert (tmp_path / "to/data/a").read_bytes() == (tree / "a").read_bytes()
    assert given["events"][0] == "started" and given["events"][-1] == "done"


def test_a_revoked_ticket_is_refused(script, tree):
    given = script("""
        with tidecast.share("data", swarm=alone) as shared:
            shared.revoke()
            try:
                tidecast.get(shared.ticket, "to", swarm=alone, state_dir="other", timeout=20)
            except tidecast.FaultError as error:
                give(code=error.code, text=str(error))
    """)
    assert given["code"] == 1 and "revoked" in given["text"]


def test_publish_seed_and_verify(script, tree, tmp_path):
    given = script("""
        made = tidecast.publish("data", "data.torrent", tree=tidecast.Tree(exclude=["*.txt"]), private=True)
        with tidecast.seed(made.path, "data", swarm=alone) as seeded:
            path = tidecast.get(seeded.ticket, "to", swarm=alone, state_dir="other")
        good = tidecast.verify("data.torrent", path)
        os.truncate(path / "a", 5)
        try:
            tidecast.verify("data.torrent", path)
        except tidecast.FaultError as error:
            give(damaged=error.reached["damaged"] + error.reached["missing"], text=str(error))
        give(name=made.name, bytes=made.bytes, files=made.files, magnet=made.magnet, checked=good["bytes"])
    """)
    assert (given["name"], given["bytes"], given["files"], given["checked"]) == ("data", 700_000, 1, 700_000)
    assert given["damaged"] == ["a"] and given["magnet"].startswith("magnet:?")


def test_copy_is_a_function_and_a_module(script, tree, tmp_path):
    given = script("""
        done = tidecast.copy("data/", "copied/")
        again = tidecast.copy(["data/a", "data/sub"], "copied/", exclude=["b.*"])
        try:
            tidecast.copy(["data/a", "absent"], "copied/")
        except tidecast.FaultError as error:
            give(problems=error.reached["problems"])
        import tidecast.copy
        give(first=done["files_copied"], again=again["files_copied"],
             memory=sorted(file.path for file in tidecast.copy.files("data/")))
    """)
    assert (given["first"], given["again"]) == (2, 0) and [problem["path"] for problem in given["problems"]] == ["absent"]
    assert given["memory"] == ["a", "sub/b.txt"]
    assert (tmp_path / "copied/sub/b.txt").read_text() == "b"


def test_bcast_files_says_which_hosts_failed(script, tree, tmp_path):
    given = script("""
        program, launch = tidecast.find_tidecast_bin(), "env {command}"
        done = tidecast.bcast_files("data", os.getcwd() + "/{host}/data", ["a", "b"], launch=launch, program=program)
        pathlib.Path("c").write_text("not a directory")
        try:
            tidecast.bcast_files("data", os.getcwd() + "/{host}/data", "a,c", launch=launch, program=program)
        except tidecast.FaultError as error:
            give(failed=error.reached["hosts_failed"], completed=error.reached["hosts_done"])
        give(hosts=done["hosts_done"])
    """)
    assert (given["hosts"], given["failed"], given["completed"]) == (2, 1, 1)
    assert (tmp_path / "b/data/sub/b.txt").read_text() == "b"


@pytest.mark.parametrize("call", [
    'tidecast.get("tidecast1xyz", "to")', 'tidecast.get("magnet:?xt=none", "to")', 'tidecast.share("data", expires=-1)',
    'tidecast.copy([], "to")', 'tidecast.bcast_files("data", "/x", "n[1-")', 'tidecast.caches("s").show("a/b/c/d")',
    'tidecast.share("data", swarm=tidecast.Swarm(listen="here"))', 'tidecast.copy("data", "to", key="none")'])
def test_wrong_arguments_are_usage_errors(script, tree, call):
    given = script(f"""
        try:
            {call}
        except ValueError as error:
            give(code=error.code, kind=type(error).__name__, text=str(error))
    """)
    assert given["code"] == 2 and given["kind"] == "UsageError" and given["text"]


def test_a_timeout_is_a_cut(script, tmp_path):
    given = script("""
        try:
            tidecast.get("magnet:?xt=urn:btih:" + "0" * 40, "to", swarm=alone, timeout=0.3)
        except tidecast.CutError as error:
            give(code=error.code)
    """)
    assert given["code"] == 3


def test_ctrl_c_ends_a_call(script):
    process = script.popen("""
        def told(event): pass
        print("ready")
        try:
            tidecast.get("magnet:?xt=urn:btih:" + "0" * 40, "to", swarm=alone, timeout=1000)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    # It may come before the call; then Python's own traceback reports it.
    assert "interrupted" in out or "KeyboardInterrupt" in err


def test_python_runs_while_a_call_waits(script):
    given = script("""
        counted = threading.Event()
        def count():
            for n in range(100_000): pass
            counted.set()
        def told(event): pass
        thread = threading.Thread(target=count)
        thread.start()
        try:
            tidecast.get("magnet:?xt=urn:btih:" + "0" * 40, "to", swarm=alone, timeout=3)
        except tidecast.CutError:
            give(counted=counted.is_set())
    """)
    assert given["counted"]


def test_an_exception_of_the_progress_function_stops_the_operation(script, tree):
    given = script("""
        def told(event): raise KeyError("stop")
        with tidecast.share("data", swarm=alone) as shared:
            try:
                tidecast.get(shared.ticket, "to", swarm=alone, state_dir="other", progress=told)
            except KeyError as error:
                give(error=str(error))
    """)
    assert "stop" in given["error"]


def test_an_operation_does_not_outlive_a_fork(script, tree):
    given = script("""
        shared = tidecast.share("data", swarm=alone)
        child = os.fork()
        if not child:
            try:
                shared.close()
            except RuntimeError as error:
                os._exit(0 if "fork" in str(error) else 1)
            os._exit(2)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        give(code=code, received=shared.close()["received"])
    """)
    assert (given["code"], given["received"]) == (0, 0)


def test_asyncio_runs_several_at_once_and_cancels(script, tree):
    given = script("""
        import asyncio
        async def main():
            shared = await tidecast.aio.share("data", swarm=alone)
            events, threads = [], set()
            def told(event):
                events.append(event["event"])
                threads.add(threading.get_ident())
            how = dict(swarm=alone, progress=told)
            paths = await asyncio.gather(*(tidecast.aio.get(shared.ticket, f"to{n}", state_dir=f"s{n}", **how) for n in range(3)))
            endless = asyncio.create_task(tidecast.aio.get("magnet:?xt=urn:btih:" + "0" * 40, "x", swarm=alone))
            await asyncio.sleep(0)
            endless.cancel()
            try:
                await endless
            except asyncio.CancelledError:
                give(cancelled=True)
            await asyncio.to_thread(shared.close)
            give(paths=paths, done=events.count("done"), loop=threads == {threading.get_ident()})
        asyncio.run(main())
    """)
    assert given["paths"] == ["to0/data", "to1/data", "to2/data"]
    assert given["cancelled"] and given["done"] == 3 and given["loop"]


def test_names_that_are_not_utf_8(script, tmp_path):
    place = tmp_path / os.fsdecode(b"caf\xe9")
    place.mkdir()
    (place / os.fsdecode(b"\xff")).write_text("x")
    given = script(r"""
        name = os.fsdecode(b"caf\xe9")
        with tidecast.share(name, swarm=alone) as shared:
            path = tidecast.get(shared.ticket, "to", swarm=alone, state_dir="other")
        give(name=os.fsencode(path.name).hex(), inside=os.fsencode(os.listdir(path)[0]).hex())
    """)
    assert (given["name"], given["inside"]) == (b"caf\xe9".hex(), "ff")


def test_the_environment_sets_what_no_argument_does(script, tree, tmp_path):
    given = script("""
        with tidecast.share("data") as shared:
            give(address=shared.addresses[0])
    """, TIDECAST_STATE_DIR=str(tmp_path / "state"), TIDECAST_LISTEN="127.0.0.1:0", TIDECAST_LSD="false")
    assert given["address"].startswith("127.0.0.1:") and (tmp_path / "state").is_dir()
    assert "UsageError" in script("""
        try:
            tidecast.share("data")
        except ValueError as error:
            give(kind=type(error).__name__)
    """, TIDECAST_UPLOAD_LIMIT="fast")["kind"]


def test_warnings_go_to_logging(script, tree, tmp_path):
    (tree / "out").symlink_to("/no/such/place")
    given = script("""
        import logging
        said = []
        class Hears(logging.Handler):
            def emit(self, record): said.append(record.getMessage())
        logging.getLogger("tidecast").addHandler(Hears())
        tidecast.publish("data")
        give(said=said)
    """)
    assert any("out" in text for text in given["said"])


def test_caches_of_a_daemon(script, tree, tmp_path):
    given = script("""
        import subprocess
        words = ["tidecast", "daemon", "--dir", "store", "--socket", "s", "--name", "here", "--machine", os.getcwd()]
        daemon = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            while "users ask at" not in daemon.stdout.readline(): pass
            caches = tidecast.caches("s")
            made = caches.create("nt", "data", lease=3600)
            path = caches.get("here/nt")
            linked = caches.get("here/nt", to=".")
            held = caches.show("here/nt")
            pinned = caches.pin("here/nt")["pinned"]
            caches.pin("here/nt", False)
            give(name=made["name"], inside=sorted(os.listdir(path)), linked=linked.name, uses=len(held["uses"] or []), pinned=pinned,
                 listed=len(caches.ls()), where=[holder for holder in caches.where("here/nt")],
                 extended=caches.extend("here/nt", 7200)["lease"] > made["lease"])
            try:
                caches.show("here/absent")
            except tidecast.FaultError as error:
                give(absent=str(error))
            try:
                caches.get("here/absent", wait=1)
            except tidecast.Error as error:
                give(kind=type(error).__name__)
        finally:
            daemon.terminate()
            daemon.wait()
        try:
            tidecast.caches("s").ls()
        except tidecast.FaultError as error:
            give(gone=str(error))
    """)
    assert given["name"].startswith("here/nt") and given["inside"] == ["a", "sub"] and given["linked"] == "nt"
    assert given["uses"] >= 1 and given["pinned"] and given["listed"] == 1 and given["extended"] and len(given["where"]) == 1
    assert "absent" in given["absent"] and "no daemon answers" in given["gone"]


def test_progress_as_a_bar_needs_no_tqdm(script, tree):
    given = script("""
        give(bytes=tidecast.publish("data", progress=True).bytes)
    """)
    assert given["bytes"] == 700_001 and given["stderr"] == ""
