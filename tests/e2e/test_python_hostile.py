"""The Python API as a hostile or careless user calls it: it answers with an exception, and nothing hangs, crashes or is left open."""
from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.xdist_group("python-libraries")

# said(call) -> what a call gives, or the exception: its type and text. forked(call) -> the same of a child, which is given up after a minute.
PRELUDE = """
import gc, signal
nan, inf, huge, odd = float("nan"), float("inf"), 10 ** 400, "caf\\udce9"

def said(call):
    try:
        return ["result", repr(call())]
    except BaseException as error:
        return [type(error).__name__, str(error)]

def forked(call):
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(60)
        os.write(writes, json.dumps(said(call)).encode())
        gc.collect()
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        text = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(text) if code == 0 else ["exit code", code]

def at_once(call, count=8):
    given = []
    threads = [threading.Thread(target=lambda: given.append(said(call))) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return given
"""
DAEMON = """
import subprocess
words = ["tidecast", "daemon", "--dir", "store", "--socket", "s", "--name", "head", "--machine", os.getcwd()]
daemon = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
while "users ask at" not in daemon.stdout.readline(): pass
"""


def lines(text: str, *more: str) -> str:
    import textwrap
    return PRELUDE + "".join(more) + textwrap.dedent(text)


@pytest.fixture
def tree(tmp_path):
    place = tmp_path / "data"
    (place / "sub").mkdir(parents=True)
    (place / "a").write_bytes(os.urandom(700_000))
    (place / "sub/b.txt").write_text("b")
    return place


CALLS = [
    'tidecast.get("data.torrent", "to", timeout=nan)', 'tidecast.get("data.torrent", "to", timeout=inf)',
    'tidecast.get("data.torrent", "to", timeout=-1)', 'tidecast.get("data.torrent", "to", timeout=huge)', 'tidecast.get("magnet:?x", "to")',
    'tidecast.get("tidecast1", "to")', 'tidecast.get(odd, "to")', 'tidecast.get("@" + odd, "to")', 'tidecast.get("tidecast1" + "a" * 100_000, "to")',
    'tidecast.open(odd)', 'tidecast.mount(odd, "at")', 'tidecast.run(odd, ["true"])', 'tidecast.run("data.torrent", [])',
    'tidecast.publish("data", tree=tidecast.Tree(piece_length=1 << 40))', 'tidecast.publish("data", tree=tidecast.Tree(piece_length=-1))',
    'tidecast.share("data", uses=0)', 'tidecast.seed("data.torrent", "data", uses=10_001)',
    'tidecast.share("data", uses=-1)', 'tidecast.share("data", uses=1 << 40)', 'tidecast.share("data", expires=1e300)',
    'tidecast.share("data", swarm=tidecast.Swarm(upload_limit=1 << 64))', 'tidecast.share("data", swarm=tidecast.Swarm(upload_limit=-1))',
    'tidecast.copy("data/", "to", limit=-1)', 'tidecast.copy("", "to")', 'tidecast.copy.files()', 'tidecast.copy.files("data", memory=-1)',
    'tidecast.copy.files("a\\0b")', 'tidecast.sim.run("single:4", -1)', 'tidecast.sim.run("single:4", 1 << 70)',
    'tidecast.caches("s").extend("a/b", nan)', 'tidecast.caches("s").extend("a/b", -1)', 'tidecast.caches("s").extend("a/b", huge)',
    'tidecast.caches("s").create("x", "data", lease=inf)', 'tidecast.caches("s").create("x", "data", lease=-1)',
    'tidecast.caches("s").create("x", "data", mode=-1)', 'tidecast.caches("s").create("x", "data", replicas=1 << 40)',
    'tidecast.caches("s").create("x", [])', 'tidecast.caches("s").create(odd, "data")', 'tidecast.caches("s").show("a\\nb/c")',
    'tidecast.caches("s").get(odd)',
]


def test_arguments_that_make_no_sense_are_usage_errors(beside, tree):
    given = beside(lines(f"""
        import tidecast.sim
        tidecast.publish("data", "data.torrent")
        for call in {CALLS!r}:
            give(**{{call: said(lambda: eval(call))}})
    """))
    wrong = {call: given[call] for call in CALLS if given[call][0] != "UsageError" or not given[call][1]}
    assert wrong == {}
    for call in (call for call in CALLS if "uses=" in call):
        assert "from 1 to 10000" in given[call][1], call
    assert "piece_length" in given[CALLS[13]][1] and "timeout" in given[CALLS[3]][1] and "not UTF-8" in given[CALLS[6]][1]


def test_a_source_that_is_not_there_is_the_datas_fault(beside):
    given = beside(lines("""
        give(errors=[said(lambda source=source: tidecast.get(source, "to"))[0] for source in ("none", "a\\0b", "/dev/null", ".")], empty=said(lambda: tidecast.get("", "to"))[0])
    """))
    assert given["errors"] == ["FaultError"] * 4 and given["empty"] == "UsageError"


def test_wrong_types_are_type_errors_that_name_the_argument(beside, tree):
    calls = {'tidecast.get("x", "to", timeout="5")': "timeout", 'tidecast.share("data", swarm=tidecast.Swarm(listen=5))': "listen",
             'tidecast.get(None, "to")': "NoneType", 'tidecast.get(b"x", "to")': "bytes",
             'tidecast.publish("data", tree=tidecast.Tree(piece_length="1"))': "piece_length",
             'tidecast.get("x", "to", swarm={"plain": True})': "write swarm=tidecast.Swarm(plain=True)",
             'tidecast.share("data", swarm=None)': "swarm is a tidecast.Swarm, not NoneType",
             'tidecast.open("x", swarm={"plain": True})': "swarm=tidecast.Swarm(plain=True)",
             'tidecast.mount("x", "at", swarm={"plain": True})': "swarm=tidecast.Swarm(plain=True)",
             'tidecast.publish("data", tree={"name": "x"})': "write tree=tidecast.Tree(name='x')",
             'tidecast.get("x", "to", files=5)': "files is a list, not int: write [5]"}
    given = beside(lines(f"""
        for call in {list(calls)!r}:
            give(**{{call: said(lambda: eval(call))}})
    """))
    assert {call: given[call] for call, word in calls.items() if given[call][0] != "TypeError" or word not in given[call][1]} == {}


def test_errors_of_fields_are_errors_of_tidecast(beside):
    given = beside(lines("""
        import tidecast.field
        from tidecast._field_values import NotReal, check
        kinds = {}
        for name, call in (("field", lambda: tidecast.field.open("none-of-this-name")), ("values", lambda: check("complex64"))):
            try:
                call()
            except tidecast.Error as error:
                kinds[name] = [isinstance(error, RuntimeError), isinstance(error, TypeError), error.code]
        give(kinds=kinds, closed=issubclass(tidecast.field.Closed, tidecast.Error))
    """))
    assert given["kinds"] == {"field": [True, False, 1], "values": [True, True, 2]} and given["closed"]


def test_every_function_takes_paths_as_objects(beside, tree):
    given = beside(lines("""
        path = pathlib.Path
        tidecast.publish(path("data"), path("data.torrent"))
        with tidecast.share(path("data"), swarm=alone) as shared:
            path("ticket").write_text(shared.ticket)
            path("ticket").chmod(0o600)
            got = tidecast.get(path("ticket"), path("to"), swarm=alone, state_dir=path("other"))
            with tidecast.open(path("ticket"), swarm=alone, state_dir=path("other"), cache=path("cache")) as reader:
                give(read=len(reader.read("a")))
        tidecast.verify(path("data.torrent"), got)
        give(copied=[tidecast.copy(path("data"), path("one"))["files"], tidecast.copy([path("data"), path("to")], path("two"))["files"]])
        with tidecast.copy.files(path("data")) as files:
            give(files=sorted(file.path for file in files))
    """))
    assert given["read"] == 700_000 and given["copied"] == [2, 4] and len(given["files"]) == 2


def test_a_share_that_is_closed_again_and_by_many(beside, tree):
    given = beside(lines("""
        shared = tidecast.share("data", swarm=alone)
        give(revoke=forked(shared.revoke), fork=forked(shared.close), dropped=forked(lambda: globals().pop("shared") and None))
        first = shared.close()
        give(same=shared.close() == first, total=first["total"], revoked=[said(shared.revoke)[0], said(shared.revoke)[0]])
        other = tidecast.share("data", swarm=alone)
        give(many=at_once(other.close))
        with tidecast.share("data", swarm=alone) as inner:
            inner.close()
    """))
    assert given["revoke"][0] == "RuntimeError" and "fork" in given["revoke"][1]
    assert given["fork"][0] == "RuntimeError" and "fork" in given["fork"][1] and given["dropped"] == ["result", "None"]
    assert given["same"] and given["total"] == 700_001 and given["revoked"] == ["result", "result"]
    assert len({text for _, text in given["many"]}) == 1 and given["many"][0][0] == "result"


def test_reads_beyond_and_before_a_file_and_after_the_end(beside, tree):
    given = beside(lines("""
        shared = tidecast.share("data", swarm=alone)
        reader = tidecast.open(shared.ticket, swarm=alone, state_dir="other", cache="cache")
        give(beyond=[len(reader.read("a", 1 << 80)), len(reader.read("a", 0, 1 << 80)), reader.readinto("a", bytearray(5), 1 << 80)],
             ranges=[len(part) for part in reader.read_ranges([("a", 5, 2), ("a", 1 << 80, 1 << 90), ("a", 699_990, 1 << 70), ("a", 1, 1)])],
             negative=[said(lambda: reader.read("a", -1))[0], said(lambda: reader.read("a", 0, -1))[0],
                       said(lambda: reader.readinto("a", bytearray(5), -1))[0], said(lambda: reader.read_ranges([("a", -1, 5)]))[0],
                       said(lambda: reader.want([("a", 0, -5)]))[0]],
             names=[said(lambda: reader.read(name))[0] for name in ("a\\0", odd, "x" * 100_000, "a\\nb", "../a", "/etc/passwd")],
             readonly=said(lambda: reader.readinto("a", b"123"))[0], many=at_once(lambda: len(reader.read("a"))))
        file, mapped = reader.open("a"), reader.map("a")
        give(fork=[forked(lambda: reader.read("a")), forked(reader.close), forked(lambda: globals().pop("reader") and None)])
        give(closed=[said(reader.close), said(reader.close)])
        give(after=[said(call)[0] for call in (lambda: reader.read("a"), reader.ls, lambda: reader.find("a"), lambda: reader.received,
                                               lambda: file.read(5), lambda: reader.open("a"), lambda: reader.fetch([("a", 0, 1)]))])
        file.close(), file.close()
        give(file=[said(lambda: file.read(5))[0], said(lambda: file.read(1 << 20))[0]], mapped=len(bytes(mapped)))
        shared.close()
    """))
    assert given["beyond"] == [0, 700_000, 0] and given["ranges"] == [0, 0, 10, 0] and given["negative"] == ["ValueError"] * 5
    assert given["names"] == ["FileNotFoundError"] * 6 and given["readonly"] in ("BufferError", "TypeError")
    assert given["many"] == [["result", "700000"]] * 8
    assert [kind for kind, _ in given["fork"]] == ["RuntimeError", "RuntimeError", "result"]
    assert given["closed"] == [["result", "None"]] * 2 and given["after"] == ["ValueError"] * 7
    assert given["file"] == ["ValueError"] * 2 and given["mapped"] == 700_000


def test_a_daemons_client_in_many_threads_and_forks(beside, tree):
    given = beside(lines("""
        try:
            caches = tidecast.caches("s")
            caches.create("nt", "data", lease=3600)
            give(many=at_once(lambda: [caches.show("head/nt")["name"] for _ in range(20)], 16))
            give(fork=forked(caches.ls), dropped=forked(lambda: globals().pop("caches") and None),
                 new=forked(lambda: len(tidecast.caches("s").ls())))
            give(after=len(caches.ls()))
        finally:
            daemon.terminate()
            daemon.wait(60)
    """, DAEMON))
    assert given["many"] == [["result", repr(["head/nt@1"] * 20)]] * 16
    assert given["fork"][0] == "RuntimeError" and given["dropped"] == ["result", "None"] and given["new"] == ["result", "1"]
    assert given["after"] == 1


def test_fields_after_the_end_and_in_a_fork(beside):
    import uuid
    name = "test-" + uuid.uuid4().hex[:12]
    given = beside(lines(f"""
        import time, numpy as np, tidecast.field
        key, shape, files = "", (4, 4, 4), len(os.listdir("/proc/self/fd"))
        def sender(shape=shape, **more): return tidecast.field.Sender("127.0.0.1:9", shape, key=key, **more)
        give(wrong=[said(lambda: sender((1 << 31,) * 3))[0], said(lambda: sender((1, 1)))[0], said(lambda: sender(streams=-1))[0],
                    said(lambda: sender(name=odd))[0], said(lambda: sender(sync="here"))[0], said(lambda: sender(cpus="x"))[0],
                    said(lambda: sender(cpus=[-1]))[0], said(lambda: sender(rate=nan))[0], said(lambda: sender(fec=-1))[0]])
        # The extension's threads of those that had begun may be about to end.
        until = time.monotonic() + 100
        while len(os.listdir("/proc/self/fd")) != files and time.monotonic() < until: time.sleep(0.01)
        give(left=len(os.listdir("/proc/self/fd")) - files, threads=threading.active_count())
        sends = sender()
        give(put=[said(lambda: sends.put(np.zeros(shape), step=step))[0] for step in (-1, 1 << 70)],
             fork=[forked(lambda: sends.put(np.zeros(shape)))[0], forked(sends.close)[0]])
        sends.close(5), sends.close()
        give(closed=said(lambda: sends.put(np.zeros(shape))))
        here = tidecast.field.Receiver("127.0.0.1:0", name={name!r}, key=key)
        give(recv_fork=[forked(here.close)[0], forked(lambda: here.wait(1))[0]])
        give(same=here.close() == here.close(), ended=said(here.open), files=tidecast.field.names())
    """), PYTHONWARNINGS="ignore")
    assert given["wrong"][:2] == ["ValueError"] * 2 and given["wrong"][2:] == ["UsageError"] * 7
    assert given["left"] == 0 and given["threads"] == 1
    assert given["put"] == ["ValueError"] * 2 and given["fork"] == ["RuntimeError"] * 2
    assert given["closed"] == ["FieldError", "the sender is closed"] and given["recv_fork"] == ["RuntimeError"] * 2
    assert given["same"] and given["ended"][0] == "FieldError" and "ended" in given["ended"][1] and name not in given["files"]


def test_threads_that_put_into_one_sender(beside):
    """Lines of the dialogue do not run into each other, and numbers rise."""
    given = beside(lines("""
        import numpy as np, tidecast.field
        key, shape = "", (4, 4, 4)
        sends = tidecast.field.Sender("127.0.0.1:9", shape, key=key)
        def puts():
            for _ in range(200):
                sends.put(np.zeros(shape), timeout=0.001)
        give(puts=at_once(puts), count=sends.sent + sends.dropped)
        sends.close()
        give(steps=sends.progress["steps"], sent=sends.sent)
    """), PYTHONWARNINGS="ignore")
    assert given["puts"] == [["result", "None"]] * 8 and given["count"] == 1600 and given["steps"] == given["sent"]


def test_names_with_new_lines_and_no_utf_8(beside, tmp_path):
    place = tmp_path / "odd"
    place.mkdir()
    names = [b"a\nb \x1b[31m", b"\xff\xfe", b"  ", b"#?%2F", "ü".encode()]
    for name in names:
        (place / os.fsdecode(name)).write_bytes(name)
    given = beside(lines("""
        import fsspec
        with tidecast.share("odd", swarm=alone) as shared, tidecast.open(shared.ticket, swarm=alone, state_dir="s1", cache="c1") as reader:
            give(read={os.fsencode(entry.path).hex(): reader.read(entry.path).hex() for entry in reader.ls()})
            fs = fsspec.filesystem("tidecast", source=shared.ticket, swarm=alone, state_dir="s1", cache="c2", skip_instance_cache=True)
            give(url={os.fsencode(name).hex(): fs.cat_file(name).hex() for name in fs.ls("", detail=False)})
            path = tidecast.get(shared.ticket, "to", swarm=alone, state_dir="s2")
            give(got={os.fsencode(name).hex(): (path / name).read_bytes().hex() for name in os.listdir(path)})
    """))
    same = {name.hex(): name.hex() for name in names}
    assert given["read"] == given["url"] == given["got"] == same
