"""`tidecast copy --to-memory`: files that another program works on in shared memory while others still come."""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest
from conftest import ROOT
from support.tidecast import wait_for

SHM = pathlib.Path("/dev/shm")
MIB = 1 << 20


@pytest.fixture
def tree(tmp_path):
    top = tmp_path / "src"
    (top / "deep/er").mkdir(parents=True)
    for n in range(300):
        (top / f"deep/{n:04}").write_bytes(os.urandom(n * 7))
    for name, size in (("none", 0), ("one", 1), ("three", 3 * MIB), ("twelve", 12 * MIB + 5)):
        (top / name).write_bytes(os.urandom(size))
    (top / "name with\nnewline").write_text("x")
    pathlib.Path(os.fsdecode(bytes(top) + b"/not \xff text")).write_text("y")
    (top / "link").symlink_to("one")
    with open(top / "sparse", "wb") as f:
        f.truncate(9 * MIB)
        f.seek(5 * MIB)
        f.write(b"data")
    return top


@pytest.fixture
def copying(built, node):
    """copying(words) -> a copy into memory whose lines the test reads, and whose files it returns explicitly."""
    running, here = [], node("here")

    def begin(*words) -> subprocess.Popen:
        argv = [str(w) for w in (here.program, "copy", *words)]
        running.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **here.env}))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.wait()


@pytest.fixture
def module(built, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "python"))
    monkeypatch.setenv("TIDECAST_PROGRAM", str(built / "tidecast"))
    import tidecast.copy
    return tidecast.copy


def started(process) -> pathlib.Path:
    event = json.loads(process.stdout.readline())
    assert event["event"] == "started", event
    return pathlib.Path(event["memory"])


def give_back(process, *words) -> None:
    process.stdin.write((" ".join(["release", *map(str, words)]) + "\n").encode())
    process.stdin.flush()


def name(event) -> bytes:
    return bytes.fromhex(event["path_hex"]) if "path_hex" in event else event["path"].encode()


def content(top: pathlib.Path) -> dict[bytes, bytes]:
    """Files by their names below the directory in which `top` is."""
    files = (path for path in top.rglob("*") if path.is_file() and not path.is_symlink())
    return {bytes(path.relative_to(top.parent)): path.read_bytes() for path in files}


def taken(place: pathlib.Path) -> int:
    """Bytes of memory."""
    total = 0
    for path in place.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_blocks * 512
    return total


def ended(process, code=0) -> dict:
    """The last line, of a copy that ends with that code."""
    last = [json.loads(line) for line in process.stdout][-1]
    assert process.wait(60) == code, (last, process.stderr.read())
    return last


def test_files_are_told_of_one_by_one_and_given_back(tree, copying):
    process = copying(tree, "--to-memory")
    place, files, others = started(process), {}, {}
    assert place.parent == SHM and place.stat().st_mode & 0o777 == 0o700
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "copied":
            break
        if event["event"] == "file":
            files[name(event)] = pathlib.Path(event["at"]).read_bytes()
            assert event["bytes"] == len(files[name(event)]) and event["mode"] & 0o777 == 0o644 and event["mtime"] > 1e9
            give_back(process, event["number"])
        else:
            others[event["path"]] = event["event"]
    assert files == content(tree)
    assert others == {"src": "directory", "src/deep": "directory", "src/deep/er": "directory", "src/link": "symlink"}
    last = ended(process)
    assert (last["event"], last["files"], last["failed"]) == ("done", len(files), 0)
    assert not place.exists()


def test_parts_are_told_of_as_they_come(tree, copying):
    process, budget = copying(tree, "--to-memory=6MiB", "--blocks"), 6 * MIB
    place, parts, whole = started(process), {}, set()
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "copied":
            break
        if event["event"] == "block":
            with open(event["at"], "rb") as file:
                file.seek(event["offset"])
                data = file.read(event["bytes"])
            parts.setdefault(name(event), {})[event["offset"]] = data
            # A block more for each writer that waits.
            assert taken(place) <= budget + 4 * 4 * MIB
            give_back(process, event["number"], event["offset"])
        if event["event"] == "file":
            whole.add(name(event))
    for path, data in content(tree).items():
        mine, got = parts.get(path, {}), bytearray(len(data))
        for offset, part in mine.items():
            got[offset:offset + len(part)] = part
        assert bytes(got) == data, path
        assert path in whole
    ended(process)
    assert not place.exists()


def test_a_slow_program_slows_the_copy_and_memory_is_bounded(tmp_path, copying):
    top = tmp_path / "src"
    top.mkdir()
    for n in range(60):
        (top / str(n)).write_bytes(os.urandom(MIB))
    (top / "large").write_bytes(os.urandom(20 * MIB))
    process = copying(f"{top}/", "--to-memory=8MiB", "--readers", "2")
    place, seen, most = started(process), 0, 0
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "copied":
            break
        if event["event"] == "file":
            seen += 1
            time.sleep(0.02)
            most = max(most, taken(place))
            give_back(process, event["number"])
    assert seen == 61
    # The large one is admitted when no file is held, beside the files that others have begun by then.
    assert 8 * MIB <= most <= 20 * MIB + 8 * MIB, most
    ended(process)


@pytest.mark.parametrize("how", ["server", "ssh", "via-ssh"])
def test_from_elsewhere(how, tree, copying, node, port, tmp_path, built):
    words = []
    if how == "server":
        listen = f"127.0.0.1:{port()}"
        proc = node("server").run("copy-server", "--root", tree.parent, "--listen", listen, "--read-only", "--as-root")
        source = proc.until("its URL", lambda: proc.out.split("\n")[0] if "\n" in proc.out else "") + "src"
    else:
        script = tmp_path / "ssh"
        script.write_text('#!/bin/sh\nshift 2\nSSH_CONNECTION="127.0.0.1 9 127.0.0.1 22" exec "$@"\n')
        script.chmod(0o755)
        words = ["--ssh", script, "--remote-program", built / "tidecast", *(("--via", "ssh") if how == "via-ssh" else ())]
        source = f"host:{tree}"
    process, files = copying(source, "--to-memory", *words), {}
    place = started(process)
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "copied":
            break
        if event["event"] == "file":
            files[name(event)] = pathlib.Path(event["at"]).read_bytes()
            give_back(process, event["number"])
    assert files == content(tree)
    ended(process)
    assert not place.exists()


def test_every_end_leaves_nothing(tree, copying):
    """A program that goes before the end, one that is killed, Ctrl-C; and a killed copy's memory is freed by the next."""
    process = copying(tree, "--to-memory=64KiB")
    place = started(process)
    process.stdin.close()
    last = ended(process, code=1)
    assert last["event"] == "error" and "closed standard input" in last["message"] and not place.exists()

    process = copying(tree, "--to-memory=64KiB")
    place = started(process)
    process.stdout.close()
    give_back(process, 1)
    # It waits for room; its later messages are not read.
    process.stdin.close()
    assert process.wait(60) == 3 and not place.exists()

    process = copying(tree, "--to-memory=64KiB")
    place = started(process)
    # By then it listens for signals.
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert ended(process, code=3)["event"] == "error" and not place.exists()

    process = copying(tree, "--to-memory=64KiB")
    place = started(process)
    wait_for("something in memory", lambda: len(list(place.iterdir())) > 1)
    process.kill()
    process.wait()
    assert place.exists()
    process = copying(tree / "none", "--to-memory")
    started(process)
    assert not place.exists()
    process.stdin.close()
    process.wait(60)


def test_what_makes_no_sense_is_refused(tree, node):
    here = node("here")
    for words in (["--to-memory", "--delete"], ["--blocks"], ["--to-memory", "--dry-run"], ["--to-memory", "--to-null"], ["--to-memory=lots"]):
        here("copy", tree, *words, code=2)
    last = here("copy", tree / "absent", "--to-memory", code=1).last("error")
    assert "absent" in last["message"]


def test_python_iterates_files(tree, module):
    files = {}
    with module.files(tree, memory=16 * MIB) as copy:
        for file in copy:
            files[os.fsencode(file.path)] = bytes(file.array)
            with file.file as opened:
                assert opened.read() == files[os.fsencode(file.path)]
            assert not file.array.flags.writeable
    assert files == content(tree)
    assert copy.summary["event"] == "done"
    assert list(copy) == []


def test_python_iterates_blocks(tree, module):
    found = {}
    for block in module.blocks(tree, memory=8 * MIB):
        data = found.setdefault(os.fsencode(block.path), bytearray())
        data.extend(bytes(max(0, block.offset + block.bytes - len(data))))
        data[block.offset:block.offset + block.bytes] = bytes(block.array)
    for path, data in content(tree).items():
        assert bytes(found.get(path, b"").ljust(len(data), b"\0")) == data, path


def test_python_opens_hdf5_while_others_come(tmp_path, module):
    h5py, numpy = pytest.importorskip("h5py"), pytest.importorskip("numpy")
    for n in range(12):
        with h5py.File(tmp_path / f"{n:02}.h5", "w") as file:
            file["tas"] = numpy.full((300, 300), n, "f4")
    means, kept = {}, []
    with module.files(tmp_path / "*.h5", memory=MIB) as copy:
        for n, file in enumerate(copy):
            with h5py.File(file.at) as data:
                means[file.path] = float(data["tas"][:].mean())
            if n == 3:
                file.keep()
                kept.append(file)
                # With so little memory the others have not all come.
                assert len(list(pathlib.Path(file.at).parent.iterdir())) < 8
        view = kept[0].array
        with h5py.File(kept[0].at) as data:
            assert data["tas"].shape == (300, 300)
        kept[0].release()
        assert bytes(view[1:4]) == b"HDF", "a view outlives its file"
    assert means == {f"{n:02}.h5": n for n in range(12)}


def test_python_says_what_went_wrong(tmp_path, module):
    import tidecast
    (tmp_path / "here").write_text("x")
    with pytest.raises(tidecast.Error, match="nowhere"):
        list(module.files(tmp_path / "nowhere"))
    with pytest.raises(tidecast.Error):
        list(module.files(tmp_path / "here", tmp_path / "nowhere"))
    with module.files(tmp_path / "here") as copy:
        next(copy)
    assert copy.summary["event"] in ("done", "error")
