"""From memory to memory: the Python package and the C interface, on one host, between hosts, with ranks that die."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

import pytest
from conftest import ROOT, needs

RANK = pathlib.Path(__file__).with_name("rank.py")
HEADER = ROOT / "crates/capi/include"
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
       "OMPI_MCA_btl": "self,vader,tcp"}


@pytest.fixture
def env(package):
    return {"PYTHONPATH": package["PYTHONPATH"]}


@pytest.fixture
def tidecast(extension):
    """The package, in this process."""
    import tidecast
    return tidecast


@pytest.fixture
def hosts(tmp_path_factory):
    """Directories in memory: ranks that have different ones share nothing, as on different hosts."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="test-") as base:
        def make(name: str) -> str:
            path = pathlib.Path(base) / name
            path.mkdir(exist_ok=True)
            return str(path)

        yield make
        left = [str(p) for p in pathlib.Path(base).rglob("*") if p.is_file()]
    assert not left, f"left in shared memory: {left}"


def steps(proc) -> list[dict]:
    """The rank's report of its steps."""
    return [e for e in proc.events() if "step" in e]


def called(proc, word: str) -> bool:
    return any(e.get("calling") == word for e in proc.events())


def on_threads(tidecast, port: int, *works) -> list:
    """Runs works[rank](group) as the ranks of a group within this process."""
    results = [None] * len(works)

    def run(rank):
        with tidecast.Group(group=f"127.0.0.1:{port}", rank=rank, size=len(works), secret="s") as group:
            try:
                results[rank] = works[rank](group)
            except Exception as why:
                results[rank] = why

    threads = [threading.Thread(target=run, args=[rank]) for rank in range(len(works))]
    [t.start() for t in threads]
    [t.join(120) for t in threads]
    assert not any(t.is_alive() for t in threads)
    return results


def test_four_ranks_of_mpirun_on_one_host(env, start, tmp_path):
    needs("mpirun")
    words = ["0@0", "1@1", "1024@3", f"{64 << 20}@2", "5000000@0"]
    start(["mpirun", "-n", "4", sys.executable, RANK, f"mpi:{tmp_path}", *words], env={**MPI, **env}).ok()
    lines = [line for rank in range(4) for line in (tmp_path / str(rank)).read_text().splitlines()]
    said = [found for found in map(json.loads, lines) if "ok" in found]
    assert len(said) == 4 * len(words)
    assert all(s["ok"] and s["missed"] == [] for s in said), said


def test_the_one_call_within_mpi(env, start, tmp_path):
    """No group to be seen: by communicator, again and again, and on a part of the ranks."""
    needs("mpirun")
    program = tmp_path / "job.py"
    program.write_text("""
import numpy as np, pathlib, sys, tidecast
from mpi4py import MPI
comm = MPI.COMM_WORLD
a = np.full((30, 50), comm.rank, dtype=np.float64)
assert tidecast.bcast(a) == [] and (a == 0).all()
a[:] = comm.rank
for root in range(comm.size):
    tidecast.bcast(a, root=root)
    assert (a == 0).all()
half = comm.Split(comm.rank % 2, comm.rank)
b = bytearray(f"half {comm.rank}", "ascii")
tidecast.bcast(b, 0, half)
assert b == b"half %d" % (comm.rank % 2), b
half.Free()
# Not on standard output: mpirun mixes what several ranks print.
pathlib.Path(sys.argv[1], str(comm.rank)).write_text("fine")
""")
    start(["mpirun", "-n", "4", sys.executable, program, tmp_path], env={**MPI, **env}).ok()
    assert [(tmp_path / str(rank)).read_text() for rank in range(4)] == ["fine"] * 4


def start_rank(start, env, meeting: str, shared: str, *words, lab=None, node=None):
    argv = [sys.executable, RANK, meeting, *words]
    env = {**env, "TIDECAST_SHM_DIR": shared}
    if lab is None:
        return start(argv, env=env)
    return start(lab.on(node, *argv), env={**lab.env, **env})


def test_members_by_address_between_hosts_and_within(env, start, port, hosts):
    at, words = f"127.0.0.1:{port()}", ["0@0", "1@4", "1024@1", f"{64 << 20}@1", "7000000@0"]
    places = ["a", "a", "b", "b", "c"]
    procs = [start_rank(start, env, f"{at}/{rank}/5", hosts(place), *words) for rank, place in enumerate(places)]
    for proc in procs:
        assert [(s["ok"], s["missed"]) for s in steps(proc.ok())] == [(True, [])] * len(words)


def received(lab, node) -> int:
    """Bytes that have come over a node's network."""
    lines = lab("exec", node, "--", "cat", "/proc/net/dev").splitlines()
    cards = [line.split(":") for line in lines if ":" in line]
    return sum(int(numbers.split()[0]) for name, numbers in cards if name.strip() != "lo")


@pytest.mark.root
def test_on_a_network_the_data_comes_once_a_host(env, start, lab, hosts):
    lab("up", "single:4@200mbit")
    ip = lab("exec", "n000", "--", "hostname", "-I").split()[0]
    size, nodes = 16 << 20, ["n000", "n001", "n001", "n002", "n002", "n003"]
    before = {node: received(lab, node) for node in set(nodes)}
    procs = [start_rank(start, env, f"{ip}:7000/{rank}/6", hosts(node), f"{size}@0", "100@0", lab=lab, node=node)
             for rank, node in enumerate(nodes)]
    for proc in procs:
        assert [(s["ok"], s["missed"]) for s in steps(proc.ok())] == [(True, [])] * 2
    for node in ("n001", "n002", "n003"):
        # Twice means once a rank; on a busy machine some data is requested and sent again.
        assert size < received(lab, node) - before[node] < 1.6 * size, node


@pytest.mark.root
@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_killed_on_the_way(env, start, lab, hosts, victim):
    """The failure of a host's leader affects its own host only; without the root (here rank 0 too) all end."""
    lab("up", "single:3@40mbit")
    ip = lab("exec", "n000", "--", "hostname", "-I").split()[0]
    word, nodes = f"{32 << 20}@0", ["n000", "n000", "n001", "n001", "n002"]
    procs = [start_rank(start, env, f"{ip}:7000/{rank}/5", hosts(node), word, lab=lab, node=node)
             for rank, node in enumerate(nodes)]
    for proc in procs:
        proc.until("the call", lambda: called(proc, word))
    before = received(lab, "n001")
    procs[2].until("data moves", lambda: received(lab, "n001") - before > 4 << 20)
    procs[victim].kill()
    others = [proc.ok() and steps(proc)[0] for rank, proc in enumerate(procs) if rank != victim]
    if victim == 2:
        assert [s.get("ok") for s in others] == [True, True, None, True]
        assert others[0]["missed"] == [2, 3] and "rank 2" in others[2]["error"]
    else:
        assert others[0]["ok"], "rank 1 had it from shared memory before"
        assert all(s.get("ok") or "error" in s for s in others), others
    subprocess.run(["sh", "-c", f"rm -rf {hosts(nodes[victim])}/tidecast-*"], check=True)


@pytest.mark.root
def test_a_host_with_too_little_memory_fails_alone_and_says_so(env, start, port, hosts):
    small = hosts("small")
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", small]).returncode:
        pytest.skip("SKIPPED: mounting needs root")
    try:
        at = f"127.0.0.1:{port()}"
        places = [hosts("a"), hosts("a"), small, small, hosts("b")]
        procs = [start_rank(start, env, f"{at}/{rank}/5", place, f"{8 << 20}@0", "100@1")
                 for rank, place in enumerate(places)]
        first = [steps(proc.ok())[0] for proc in procs]
    finally:
        subprocess.run(["umount", small], check=True)
    assert [s.get("ok") for s in first] == [True, True, None, None, True]
    assert first[0]["missed"] == [2, 3] and first[0]["seconds"] < 40, "nobody waits for a host that has failed"
    assert "not enough space" in first[2]["error"] and "rank 2" in first[3]["error"]
    assert all(steps(proc)[1]["ok"] for proc in procs), "the next call is as good as any"


def test_a_rank_that_dies_before_it_calls_is_not_waited_for(env, start, port, hosts):
    at = f"127.0.0.1:{port()}"
    words = [["2000000@0", "5@0"], ["wait"], ["2000000@0", "5@0"]]
    procs = [start_rank(start, env, f"{at}/{rank}/3", hosts("a"), *w) for rank, w in enumerate(words)]
    procs[1].until("it is in the group", lambda: '"waiting"' in procs[1].out)
    procs[0].until("it has called", lambda: called(procs[0], "2000000@0"))
    procs[1].kill()
    first = steps(procs[0].ok())
    assert [s["missed"] for s in first] == [[1], [1]] and first[0]["seconds"] < 25, "at once, not after the timeout"
    assert all(s["ok"] for s in steps(procs[2].ok()))
    # The next group there removes the files of dead ones after a minute, so the test removes them here.
    subprocess.run(["sh", "-c", f"rm -rf {hosts('a')}/tidecast-*"], check=True)


def test_buffers_of_all_kinds_are_filled_in_place(tidecast, port):
    import numpy as np

    class Tensor:
        """Speaks DLPack and nothing else."""

        def __init__(self, array):
            self.array = array

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

        def __dlpack__(self, **kw):
            return self.array.__dlpack__(**kw)

    class Old(Tensor):
        def __dlpack__(self):
            return self.array.__dlpack__()

    def kinds():
        return [np.zeros((4, 6), np.float32), np.zeros((4, 6), np.float32, order="F"), bytearray(96),
                memoryview(bytearray(96)), Tensor(np.zeros((4, 6), np.float32)), Old(np.zeros(12)), np.zeros(()),
                np.zeros((3, 0))]

    def contents(kind):
        kind = getattr(kind, "array", kind)
        return kind.tobytes(order="A") if hasattr(kind, "tobytes") else bytes(kind)

    def root(group):
        for kind in kinds():
            length = len(contents(kind))
            assert group.bcast(bytes(range(length))) == []

    def other(group):
        for kind in kinds():
            group.bcast(kind)
            assert contents(kind) == bytes(range(len(contents(kind)))), kind
        return "all"

    assert on_threads(tidecast, port(), root, other) == [None, "all"]


def test_every_kind_of_a_fixed_size_goes_as_its_bytes(tidecast, port):
    """Also arrays for which NumPy gives no buffer: times, number formats of other packages, any names of fields."""
    import ml_dtypes
    import numpy as np
    kinds = ["M8[s]", "m8[ns]", "M8", ">f8", "c16", "?", "g", "U7", "S3", "V5", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.int4,
             [("Order", "i4"), ("CO2", "f4"), ("O", "u1")], [("a:b", "f4", (2, 3)), ("when", "M8[D]")], ("f4", (3,)),
             np.dtype([("x", "u1"), ("y", "f8")], align=True)]
    shapes = [(4, 3), (), (0, 2)]

    def sent(kind, shape):
        made = np.zeros(shape, kind)
        return np.random.default_rng(1).integers(0, 64, made.nbytes, np.uint8), made

    def root(group):
        return [group.bcast(sent(kind, shape)[0]) for kind in kinds for shape in shapes]

    def other(group):
        for kind in kinds:
            for shape in shapes:
                data, place = sent(kind, shape)
                group.bcast(place)
                assert place.tobytes() == data.tobytes(), (kind, shape)
        return "all"

    assert on_threads(tidecast, port(), root, other) == [[[]] * len(kinds) * len(shapes), "all"]


def test_what_is_not_all_in_the_buffer_is_refused(tidecast):
    import ctypes

    import numpy as np
    refused = [np.zeros(4, object), np.zeros(4, [("n", "i4"), ("o", object)]), np.zeros(2, [("in", [("o", object, (2,))])]),
               np.zeros(3, np.dtypes.StringDType()), (ctypes.py_object * 2)(), (ctypes.c_char_p * 2)(), (ctypes.c_void_p * 2)()]
    with tidecast.Group(group=":0", rank=0, size=1, secret="s") as group:
        for buffer in refused:
            with pytest.raises(ValueError, match="objects or pointers"):
                group.bcast(buffer)
        with pytest.raises(ValueError, match="mask lies elsewhere"):
            group.bcast(np.ma.masked_equal(np.arange(4), 2))
        scattered = np.zeros((8, 8), "M8[s]")[:, ::2]
        with pytest.raises(ValueError, match="not contiguous"):
            group.bcast(scattered)
        assert group.bcast(np.ma.arange(4).data) == [] and group.bcast(np.arange(6).reshape(2, 3).T) == []


def test_what_will_not_do_is_refused_and_the_others_go_on(tidecast, port):
    import numpy as np
    strided, fixed = np.zeros((8, 8), np.uint8)[:, ::2], np.zeros(32, np.uint8)
    fixed.flags.writeable = False

    def refused(group):
        for bad, why in [(strided, "not contiguous"), (fixed, "read-only"), (b"x" * 32, "read-only"),
                         (np.array([None] * 4), "Python objects")]:
            with pytest.raises(ValueError, match=why):
                group.bcast(bad)
        with pytest.raises(TypeError, match="neither the buffer protocol nor"):
            group.bcast(7)
        with pytest.raises(tidecast.Error, match="sends 32 bytes, this rank's buffer has 31"):
            group.bcast(bytearray(31))
        with pytest.raises(tidecast.Error, match="the root, rank 0, cannot send: .*not contiguous"):
            group.bcast(bytearray(32))
        good = bytearray(32)
        group.bcast(good)
        return bytes(good)

    def root(group):
        missed = [group.bcast(fixed) for _ in range(6)]
        with pytest.raises(ValueError, match="not contiguous"):
            group.bcast(strided)
        return missed, group.bcast(b"y" * 32)

    def third(group):
        return [bytes(b) for b in map(bytearray, [32] * 6) if group.bcast(b) == []]

    def third_and_rest(group):
        got = third(group)
        with pytest.raises(tidecast.Error):
            group.bcast(bytearray(32))
        group.bcast(bytearray(32))
        return got

    got = on_threads(tidecast, port(), root, refused, third_and_rest)
    assert got == [([[1]] * 6, []), b"y" * 32, [bytes(32)] * 6], got


def test_arguments_that_make_no_sense(tidecast, port):
    with pytest.raises(ValueError, match="secret"):
        tidecast.Group(group="127.0.0.1:1", rank=0, size=1)
    for rank, size in [(1, 1), (-1, 3), (0, 0)]:
        with pytest.raises(ValueError):
            tidecast.Group(group="127.0.0.1:1", rank=rank, size=size, secret="s")
    with pytest.raises(tidecast.Error, match="rank 0 is not found"):
        tidecast.Group(group=f"127.0.0.1:{port()}", rank=1, size=2, secret="s", timeout=0.5)
    with tidecast.Group(group=":0", rank=0, size=1, secret="s") as group:
        assert group.bcast(bytearray(b"alone")) == []
        with pytest.raises(ValueError, match="invalid rank 1"):
            group.bcast(bytearray(1), 1)
    with pytest.raises(ValueError, match="closed"):
        group.bcast(bytearray(1))


PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tidecast.h"

static int fail(const char *what, int code) {
    fprintf(stderr, "%s: %s: %s\n", what, tidecast_strerror(code), tidecast_last_error());
    return 1;
}

int main(int argc, char **argv) {
    (void)argc;
    uint32_t rank = (uint32_t)atoi(argv[2]), size = (uint32_t)atoi(argv[3]);
    size_t length = (size_t)atol(argv[4]), missed = 99;
    tidecast_group *group = NULL;
    int code = tidecast_open(argv[1], rank, size, "of the test", 30.0, TIDECAST_PLAIN, &group);
    if (code) return fail("open", code);
    if (!strchr(tidecast_address(group), ':')) return 2;
    unsigned char *buffer = calloc(length + 1, 1);
    if (rank == 1) memset(buffer, 0x5a, length);
    code = tidecast_bcast(group, buffer, length, 1, 30.0, &missed);
    if (code) return fail("bcast", code);
    for (size_t i = 0; i < length; i++) if (buffer[i] != 0x5a) return 3;
    if (buffer[length] || missed != 0 || tidecast_missed(NULL, 0) != 0) return 4;
    code = tidecast_bcast(group, NULL, 5, 1, 30.0, NULL);
    if (code != TIDECAST_USAGE || !strstr(tidecast_last_error(), "no buffer")) return 5;
    if (tidecast_bcast(NULL, buffer, 1, 0, 1.0, NULL) != TIDECAST_USAGE) return 6;
    tidecast_close(group);
    tidecast_close(NULL);
    printf("fine %s %s\n", tidecast_version(), tidecast_strerror(0));
    return 0;
}
"""


def test_a_program_in_c(built, start, port, hosts, tmp_path):
    needs("cc")
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", HEADER, "-o", program, source,
                    "-L", built, "-ltidecast", f"-Wl,-rpath,{built}"], check=True)
    for length in (1000, 5_000_000):
        at = f"127.0.0.1:{port()}"
        procs = [start([program, at, rank, 3, length], env={"TIDECAST_SHM_DIR": hosts("ab"[rank // 2])})
                 for rank in range(3)]
        for proc in procs:
            assert proc.ok().out.startswith("fine 0.")


THREADS = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tidecast.h"

enum { SIZE = 3, LENGTH = 3000000 };
static char address[4096];
static tidecast_group *first;
static void *failed(const char *what) { fprintf(stderr, "%s: %s\n", what, tidecast_last_error()); return (void *)what; }

static void *rank(void *number) {
    uint32_t me = (uint32_t)(size_t)number;
    tidecast_group *group = me ? (tidecast_group *)8 : first;
    if (me && tidecast_open(address, me, SIZE, "s", 60.0, 0, &group)) return failed("open");
    unsigned char *buffer = malloc(LENGTH);
    for (uint32_t root = 0; root < SIZE; root++) {
        memset(buffer, me == root ? 7 + root : 0, LENGTH);
        if (tidecast_bcast(group, buffer, LENGTH, root, 60.0, NULL)) return failed("bcast");
        for (size_t i = 0; i < LENGTH; i++) if (buffer[i] != 7 + root) return failed("data");
    }
    free(buffer);
    tidecast_close(group);
    return NULL;
}

int main(void) {
    for (int turn = 0; turn < 3; turn++) {
        tidecast_group *none = (tidecast_group *)8;
        if (tidecast_open(":0", 7, SIZE, "s", 1.0, 0, &none) != TIDECAST_USAGE || none) return 2;
        if (tidecast_open(":0", 0, SIZE, "s", 60.0, 0, &first)) return 3;
        snprintf(address, sizeof address, "%s", tidecast_address(first));
        pthread_t threads[SIZE];
        for (size_t i = 0; i < SIZE; i++) pthread_create(&threads[i], NULL, rank, (void *)i);
        for (size_t i = 0; i < SIZE; i++) {
            void *why;
            pthread_join(threads[i], &why);
            if (why) return 4;
        }
    }
    puts("fine");
    return 0;
}
"""


def test_ranks_are_threads_of_a_program_in_c(built, start, hosts, tmp_path):
    """Linked by the library's path, as build systems do; the program finds it by its name."""
    needs("cc")
    source, program = tmp_path / "threads.c", tmp_path / "threads"
    source.write_text(THREADS)
    subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", "-pthread", "-I", HEADER, "-o", program, source, built / "libtidecast.so"],
                   check=True)
    moved = tmp_path / "lib"
    moved.mkdir()
    (moved / "libtidecast.so").symlink_to(built / "libtidecast.so")
    env = {"TIDECAST_SHM_DIR": hosts("a"), "LD_LIBRARY_PATH": str(moved)}
    assert start([program], env=env).ok().out == "fine\n"
    needs("readelf")
    needed = subprocess.run(["readelf", "-d", program], capture_output=True, text=True, check=True).stdout
    assert "[libtidecast.so]" in needed and str(built) not in needed


def test_the_one_call_by_ranks_that_are_threads(tidecast, port, hosts, monkeypatch):
    """The others call first, and rank 0 last: no rank blocks it."""
    monkeypatch.setenv("TIDECAST_SHM_DIR", hosts("a"))
    at, size, results = f"127.0.0.1:{port()}", 3, {}
    here = threading.Barrier(size)

    def work(rank):
        here.wait(60)
        for turn in range(3):
            buffer = bytearray([turn + 1] * 1000) if rank == turn else bytearray(1000)
            tidecast.bcast(buffer, turn, group=at, rank=rank, size=size, secret="s")
            results[rank, turn] = bytes(buffer)

    threads = [threading.Thread(target=work, args=[rank]) for rank in (2, 1, 0)]
    [t.start() for t in threads]
    [t.join(120) for t in threads]
    assert results == {(rank, turn): bytes([turn + 1] * 1000) for rank in range(size) for turn in range(3)}


def test_the_header_and_the_library_agree(built):
    """The library has every function of the header, and no other symbol with its prefix."""
    needs("nm")
    exported = subprocess.run(["nm", "-D", "--defined-only", built / "libtidecast.so"], capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in exported.stdout.splitlines() if " T tidecast_" in line}
    header = (HEADER / "tidecast.h").read_text()
    assert names == set(re.findall(r"\b(tidecast_\w+)\(", re.sub(r"/\*.*?\*/", "", header, flags=re.S)))
