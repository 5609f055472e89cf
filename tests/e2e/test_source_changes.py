"""Sources that change or cannot be read while they are served: it is reported once, with the reason, on both sides."""
import os
import resource
import signal

from support.tidecast import wait_for
from support.trees import assert_same, blob

GET = ("--plain", "--no-lsd", "--listen", "127.0.0.1:0")


def seeded(node, start, tmp_path, listen, sizes):
    """A seed of files of these sizes; the seed, the manifest, the files."""
    seeder, source = node("seeder"), tmp_path / "source"
    for name, size in sizes.items():
        blob(source / name, size, len(name))
    manifest = seeder.publish(source, tmp_path / "m.torrent", "--plain")
    seed = seeder.run("seed", manifest, source, "--plain", "--no-lsd", "--listen", listen)
    seeder.wait_listening(seed, listen)
    return seed, manifest, source


def all_checked(node, manifest, listen, tmp_path):
    """Once another has got everything, the seed has checked all of it."""
    node("first").run("get", manifest, "--to", tmp_path / "first", *GET, "--peer", listen, "--timeout", "60s").exits(0)


def test_one_file_that_changes_is_named_once_and_the_getter_hears_of_it(node, start, port, tmp_path):
    listen = f"127.0.0.1:{port()}"
    seed, manifest, source = seeded(node, start, tmp_path, listen, {"large": 20_000_000, "small": 9999})
    all_checked(node, manifest, listen, tmp_path)
    os.utime(source / "large", (0, 0))
    got = node("getter").run("get", manifest, "--to", tmp_path / "out", *GET, "--peer", listen, "--timeout", "5s").exits(3)
    assert "no longer has all pieces that it announced" in got.err.splitlines()[-1], got.err
    seed.process.send_signal(signal.SIGINT)
    seed.exits(1)
    named = [line for line in seed.err.splitlines() if "changed while" in line and "again" not in line]
    # Once in the log, once as a warning, once as the reason of the exit code.
    assert len(named) <= 3 and str(source / "large") in seed.err, seed.err
    assert "times since" in seed.err or len(seed.err.splitlines()) < 12, seed.err


def test_a_seed_that_has_nothing_left_ends_with_the_reason(node, start, port, tmp_path):
    listen = f"127.0.0.1:{port()}"
    seed, manifest, source = seeded(node, start, tmp_path, listen, {"only": 3_000_000})
    all_checked(node, manifest, listen, tmp_path)
    os.utime(source / "only", (0, 0))
    getter = node("getter").run("get", manifest, "--to", tmp_path / "out", *GET, "--peer", listen, "--timeout", "60s")
    seed.exits(1)
    assert "changed while it was being served" in seed.err.splitlines()[-1], seed.err
    getter.kill()


def test_a_seed_without_descriptors_blames_nobody_and_goes_on(node, start, port, tmp_path):
    """Out of descriptors for a while: no data is damaged, no peer is banned, and all data arrives when descriptors are free again."""
    listen = f"127.0.0.1:{port()}"
    seed, manifest, source = seeded(node, start, tmp_path, listen, {f"f{n:03}" * (n % 3 + 1): 50_000 + n for n in range(300)})
    pid = seed.process.pid
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # A connection and a few files fit.
    few = len(os.listdir(f"/proc/{pid}/fd")) + 4
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, usual[1]))
    got = node("getter").run("get", manifest, "--to", tmp_path / "out", *GET, "--peer", listen, "--timeout", "90s")
    wait_for("a file that cannot be opened, or all of them", lambda: "Too many open files" in seed.err or got.process.poll() is not None)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
    got.exits(0)
    assert_same(source, tmp_path / "out/source")
    for line in (seed.err + got.err).splitlines():
        assert "banned" not in line and "does not match" not in line and "damaged" not in line, line
