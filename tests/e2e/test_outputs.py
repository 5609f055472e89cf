"""The outputs of commands: files are replaced whole, links, pipes and devices are written to."""
import os
import pathlib
import signal
import socket
import stat

import pytest


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"some bytes")
    return path


@pytest.fixture
def manifest(tide, data, tmp_path):
    return tide.publish(data, tmp_path / "plain.torrent", "--plain").read_bytes()


def needs_root():
    if os.geteuid():
        pytest.skip("SKIPPED: only root makes device nodes")


def test_a_link_is_followed(tide, data, manifest, tmp_path):
    target, link, dangling = tmp_path / "target", tmp_path / "link", tmp_path / "dangling"
    target.write_text("old, and longer than what replaces it" * 100)
    link.symlink_to("target")
    dangling.symlink_to("made")
    for path in (link, dangling):
        tide.publish(data, path, "--plain")
        assert path.is_symlink() and path.read_bytes() == manifest


def test_a_pipe_is_written_to_and_its_reader_waited_for(tide, start, data, manifest, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = tide.run("publish", data, "-o", pipe, "--plain")
    reader = start(["sh", "-c", f"cat {pipe} > {tmp_path}/read"])
    writer.ok()
    reader.ok()
    assert (tmp_path / "read").read_bytes() == manifest and stat.S_ISFIFO(pipe.stat().st_mode)


def content(path: pathlib.Path) -> str:
    """Of a thread's file; empty when the thread has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


def test_the_wait_for_a_reader_can_be_ended(tide, data, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for words in (["publish", data, "-o", pipe, "--plain"], ["copy", data, pipe]):
        writer = tide.run(*words, "-v")
        state = f"/proc/{writer.process.pid}"

        def waits(state=state):
            """Some thread sleeps, and the signal does not end the process as one without a handler."""
            caught = next(line for line in open(f"{state}/status") if line.startswith("SigCgt")).split()[1]
            threads = pathlib.Path(state, "task").glob("*/wchan")
            return any("nanosleep" in content(path) for path in threads) and int(caught, 16) & 1 << signal.SIGINT - 1

        writer.until("it waits", waits)
        writer.process.send_signal(signal.SIGINT)
        writer.exits(3)
        assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_stays_one(tide, data, tmp_path):
    needs_root()
    null, full = tmp_path / "null", tmp_path / "full"
    os.mknod(null, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(full, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
    tide.publish(data, null, "--plain")
    assert "no space" in tide("publish", data, "-o", full, "--plain", code=1).err.lower()
    assert "null" in tide("sim", "single:2@1gbit", "--size", "1MiB", "--plot", null).out
    assert all(stat.S_ISCHR(path.stat().st_mode) for path in (null, full))


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/proc/self/fd/1"])
def test_standard_output_has_the_manifest_and_nothing_else(tide, start, data, manifest, tmp_path, name):
    for redirect in (f"> {tmp_path}/out", f"| cat > {tmp_path}/out"):
        command = " ".join(tide.argv("publish", data, "-o", name, "--plain"))
        done = start(["sh", "-c", f"{command} {redirect}"], env=tide.env).ok()
        assert (tmp_path / "out").read_bytes() == manifest
        assert "1 file" in done.err
    # Both cannot be there.
    command = " ".join(tide.argv("publish", data, "-o", name, "--plain", "--json"))
    start(["sh", "-c", f"{command} > {tmp_path}/out"], env=tide.env).exits(2)


def test_a_file_in_a_directory_that_takes_none_is_written_to(tide, start, data, manifest, tmp_path):
    """As a file that is bound into a container: it can be written, and not replaced."""
    if os.geteuid():
        pytest.skip("SKIPPED: only root makes mounts")
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.write_bytes(b"")
    outside.write_bytes(b"old")
    command = " ".join(tide.argv("publish", data, "-o", inside, "--plain"))
    start(["unshare", "-m", "sh", "-c", f"mount --bind {outside} {inside} && {command}"], env=tide.env).ok()
    assert outside.read_bytes() == manifest and inside.read_bytes() == b""


def test_a_certificate_goes_to_standard_output_and_over_no_file(tide, start, tmp_path):
    tide("ca", "init", tmp_path / "ca")
    there = tmp_path / "there"
    issue = ["ca", "issue", tmp_path / "ca", "host:node01"]
    command = " ".join(tide.argv(*issue, "-o", "-"))
    start(["sh", "-c", f"{command} > {tmp_path}/stdout"], env=tide.env).ok()
    assert (tmp_path / "stdout").read_text().startswith("-----BEGIN")
    there.write_text("mine")
    (tmp_path / "link").symlink_to("there")
    for path in (there, tmp_path / "link"):
        assert "exists" in tide(*issue, "-o", path, code=2).err
    assert there.read_text() == "mine"


def test_a_certificate_for_a_stock_client_is_written_through_links(tide, start, data, tmp_path):
    cert, torrent, new = tmp_path / "cert", tmp_path / "m.torrent", tmp_path / "new"
    export = ["publish", data, "-o", torrent, "--ssl-torrent", "--ssl-export"]
    tide(*export, new)
    assert (new / "peer.key").stat().st_mode & 0o777 == 0o600 and new.stat().st_mode & 0o777 == 0o700
    cert.mkdir()
    (cert / "peer.crt").symlink_to("../the.crt")
    (cert / "peer.key").symlink_to("../the.key")
    (tmp_path / "the.crt").write_text("old")
    tide(*export, cert)
    assert all((cert / name).is_symlink() for name in ("peer.crt", "peer.key"))
    assert "BEGIN CERTIFICATE" in (tmp_path / "the.crt").read_text()
    assert "PRIVATE KEY" in (tmp_path / "the.key").read_text() and (tmp_path / "the.key").stat().st_mode & 0o777 == 0o600
    # No key is written where others would read it.
    (tmp_path / "the.key").write_text("old")
    (tmp_path / "the.key").chmod(0o644)
    assert "other users" in tide(*export, cert, code=1).err and (tmp_path / "the.key").read_text() == "old"
    (cert / "peer.key").unlink()
    os.mkfifo(cert / "peer.key")
    writer = tide.run(*export, cert)
    start(["sh", "-c", f"cat {cert}/peer.key > {tmp_path}/read"]).ok()
    writer.ok()
    assert "PRIVATE KEY" in (tmp_path / "read").read_text() and (cert / "peer.key").is_fifo()


def test_manual_pages_are_written_through_links(tide, tmp_path):
    pages, page = tmp_path / "pages", tmp_path / "page"
    pages.mkdir()
    (pages / "tidecast.1").symlink_to("../page")
    tide("man", pages)
    assert (pages / "tidecast.1").is_symlink() and ".TH" in page.read_text()


def test_a_copy_of_a_file_is_written_to_a_pipe(tide, start, data, tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("pipe")
    for name in (pipe, link):
        writer = tide.run("copy", data, name, "--json")
        start(["sh", "-c", f"cat {pipe} > {tmp_path}/read"]).ok()
        assert writer.ok().last("done")["bytes_copied"] == data.stat().st_size
        assert (tmp_path / "read").read_bytes() == data.read_bytes() and stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_copy_replaces_no_pipe_device_or_socket_that_is_named(tide, data, tmp_path):
    needs_root()
    pipe, null, full, unix, link = (tmp_path / name for name in ("pipe", "null", "full", "socket", "link"))
    os.mkfifo(pipe)
    os.mknod(null, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    os.mknod(full, 0o600 | stat.S_IFCHR, os.makedev(1, 7))
    link.symlink_to("null")
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(unix))
    tree = tmp_path / "tree"
    tree.mkdir()
    for path, kind in ((pipe, "pipe"), (null, "device"), (unix, "socket"), (link, "device")):
        before = path.lstat()
        assert f"is a {kind}" in tide("copy", "-r", tree, path, code=2).err
        assert os.path.samestat(before, path.lstat())
    assert "is a socket" in tide("copy", data, unix, code=2).err
    bound.close()
    for path in (null, link):
        assert tide("copy", data, path, "--json").last("done")["bytes_copied"] == data.stat().st_size
    assert "no space" in tide("copy", data, full, code=1).err.lower()
    assert all(stat.S_ISCHR(path.stat().st_mode) for path in (null, full, link))


def test_a_manifest_is_read_from_a_pipe(tide, start, data, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent", "--plain")
    command = " ".join(tide.argv("show", "/dev/stdin"))
    shown = start(["sh", "-c", f"cat {manifest} | {command}"], env=tide.env).ok().out
    assert shown == tide("show", manifest).out
    assert "not a valid manifest" in start(["sh", "-c", f"echo nonsense | {command}"], env=tide.env).exits(1).err


def test_a_manifest_in_its_tree_is_not_published(tide, tmp_path, monkeypatch):
    """`publish .` writes it there."""
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "file").write_text("of the tree")
    monkeypatch.chdir(tree)
    for words, manifest in (([], "tree.torrent"), (["--name", "x"], "x.torrent"), (["-o", "sub/[a]*.torrent"], "sub/[a]*.torrent")):
        for _ in range(2):
            tide("publish", ".", "--plain", *words)
            assert "not compared: 1 entry" in tide("verify", manifest, ".").err
        (tree / manifest).unlink()
    (tmp_path / "link").symlink_to(tree)
    for _ in range(2):
        tide("publish", "../link", "--plain")
        assert "not compared: 1 entry" in tide("verify", "link.torrent", ".").err
    (tree / "link.torrent").unlink()
    for name in ("a/b", "..", "."):
        assert "one component" in tide("publish", ".", "--name", name, code=2).err
    assert "one component" in tide("publish", ".", "--name=", code=2).err
