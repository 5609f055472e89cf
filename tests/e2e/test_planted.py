"""Files that another user has put where a transfer arrives: they do not count as delivered, and cannot be changed unnoticed."""
import os
import pathlib
import shutil

import pytest
from support import trees
from support.callers import passable
from support.tidecast import Node, wait_for

ALICE, BOB = 61001, 61002
SIZE = 3_000_000
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: becoming other users needs root")


class User(Node):
    """The commands of a user without privilege."""

    def __init__(self, program, home, start, uid: int):
        super().__init__(program, home, start)
        self.uid = uid
        os.chown(home, uid, uid)

    def argv(self, *words):
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--", *super().argv(*words)]

    def gets(self, manifest, to, peer, *words, code=0):
        return self("get", manifest, "--to", to, "--peer", peer, "--listen", "127.0.0.1:0", "--no-lsd", "--plain", "--timeout", "60s", *words, code=code)


@pytest.fixture
def place(tmp_path) -> pathlib.Path:
    """A directory as /tmp is."""
    passable(tmp_path)
    place = tmp_path / "shared"
    place.mkdir()
    place.chmod(0o1777)
    return place


@pytest.fixture
def alice(built, tmp_path, start):
    return User(built / "tidecast", tmp_path / "alice", start, ALICE)


@pytest.fixture
def root(built, tmp_path, start):
    return Node(built / "tidecast", tmp_path / "root", start)


def given_to(path: pathlib.Path, uid: int, mode=None) -> pathlib.Path:
    for one in [path, *path.rglob("*")] if path.is_dir() else [path]:
        os.chown(one, uid, uid, follow_symlinks=False)
    if mode is not None:
        path.chmod(mode)
    return path


def seeded(root: Node, tmp_path, source: pathlib.Path, listen: str) -> pathlib.Path:
    manifest = root.publish(source, tmp_path / "m.torrent")
    manifest.chmod(0o644)
    root.seed(manifest, source, listen, "--no-lsd", "--plain")
    return manifest


@pytest.mark.parametrize("mode", [0o1777, 0o777])
def test_a_file_of_another_user_is_not_delivered(root, alice, place, tmp_path, port, mode):
    place.chmod(mode)
    data, listen = trees.blob(tmp_path / "data", SIZE), f"127.0.0.1:{port()}"
    manifest = seeded(root, tmp_path, data, listen)
    planted = given_to(pathlib.Path(shutil.copy(data, place / "data")), BOB, 0o644)
    for words in ([], ["--force"]) if mode & 0o1000 else ([],):
        said = alice.gets(manifest, place, listen, *words, code=1)
        assert "belongs to another user" in said.err, said.err
        assert planted.stat().st_uid == BOB
    assert [p.name for p in place.iterdir()] == ["data"]
    if mode & 0o1000:
        assert "belongs to another user" in root("get", manifest, "--to", place, "--peer", listen, "--no-lsd", "--plain", code=1).err
        root("get", manifest, "--to", place, "--peer", listen, "--no-lsd", "--plain", "--force")
        assert planted.stat().st_uid == 0
    else:
        alice.gets(manifest, place, listen, "--force")
        assert planted.stat().st_uid == ALICE
    trees.assert_same(data, planted)


def test_a_directory_of_another_user_receives_nothing(root, alice, place, tmp_path, port):
    source, listen = tmp_path / "tree", f"127.0.0.1:{port()}"
    trees.blob(source / "in/file", SIZE)
    (source / "link").symlink_to("in/file")
    manifest = seeded(root, tmp_path, source, listen)
    (place / "tree").mkdir()
    given_to(place / "tree", BOB, 0o777)
    for words in ([], ["--force"]):
        assert "belongs to another user" in alice.gets(manifest, place, listen, *words, code=1).err
    assert not list((place / "tree").iterdir())
    given_to(place / "tree", ALICE, 0o1777)
    given_to(trees.blob(place / "tree/in/file", SIZE), ALICE)
    given_to(place / "tree/in", BOB, 0o777)
    assert "belongs to another user" in alice.gets(manifest, place, listen, "--force", code=1).err


def test_what_a_member_of_a_group_has_received_counts_for_the_others(root, alice, place, tmp_path, port):
    source, listen = tmp_path / "tree", f"127.0.0.1:{port()}"
    trees.blob(source / "in/file", SIZE)
    manifest = seeded(root, tmp_path, source, listen)
    os.chown(place, 0, ALICE)
    place.chmod(0o2775)
    given_to(pathlib.Path(shutil.copytree(source, place / "tree")), BOB)
    alice.gets(manifest, place, listen)
    assert (place / "tree/in/file").stat().st_uid == BOB
    own = tmp_path / "of-bob"
    own.mkdir()
    given_to(pathlib.Path(shutil.copytree(source, own / "tree")), BOB)
    given_to(own, BOB, 0o777)
    alice.gets(manifest, own, listen)


def test_a_file_that_changes_after_its_check_with_its_old_time_is_noticed(root, alice, place, tmp_path, port):
    place.chmod(0o2770)
    os.chown(place, 0, ALICE)
    data, listen = trees.blob(tmp_path / "data", SIZE), f"127.0.0.1:{port()}"
    manifest = root.publish(data, tmp_path / "m.torrent")
    manifest.chmod(0o644)
    planted = pathlib.Path(shutil.copy(data, place / "data"))
    with open(planted, "r+b") as file:
        file.seek(SIZE - 100)
        file.write(bytes(100))
    given_to(planted, BOB, 0o666)
    get = alice.run("get", manifest, "--to", place, "--peer", listen, "--listen", "127.0.0.1:0", "--no-lsd", "--plain", "--force", "--timeout", "60s", "--json")
    get.until("the file to be checked", lambda: any(event.get("pieces") for event in get.events()))
    times = planted.stat()
    with open(planted, "r+b") as file:
        file.write(b"EVIL" * 1000)
    os.utime(planted, ns=(times.st_atime_ns, times.st_mtime_ns))
    root.seed(manifest, data, listen, "--no-lsd", "--plain")
    assert get.wait() == 1, get.story()
    assert "changed" in get.story()
    alice.gets(manifest, place, listen, "--force")
    trees.assert_same(data, planted)


def test_occupied_names_of_staging_areas_stop_nobody(root, alice, place, tmp_path, port):
    data, listen = trees.blob(tmp_path / "data", SIZE), f"127.0.0.1:{port()}"
    manifest = root.publish(data, tmp_path / "m.torrent")
    manifest.chmod(0o644)
    waits = alice.run("get", manifest, "--to", place, "--peer", listen, "--listen", "127.0.0.1:0", "--no-lsd", "--plain")
    waits.until("its staging area", lambda: list(place.iterdir()))
    waits.process.kill()
    waits.wait()
    (stage,) = place.iterdir()
    shutil.rmtree(stage)
    for name in (stage, pathlib.Path(f"{stage}-2")):
        name.mkdir()
        given_to(name, BOB, 0o777)
    root.seed(manifest, data, listen, "--no-lsd", "--plain")
    alice.gets(manifest, place, listen)
    trees.assert_same(data, place / "data")
    assert sorted(place.iterdir()) == sorted([stage, pathlib.Path(f"{stage}-2"), place / "data"])


def as_old(path: pathlib.Path, model: pathlib.Path, content: bytes) -> int:
    """Writes another content with the size and time of `model`; its inode."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content.ljust(model.stat().st_size)[: model.stat().st_size])
    times = model.stat()
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return path.stat().st_ino


def test_a_planted_file_does_not_become_a_program_of_root(root, tmp_path):
    source, dest = tmp_path / "source", tmp_path / "dest"
    for name, owner, mode in (("suid", 0, 0o4755), ("script", 0, 0o755), ("daemons", ALICE, 0o4755), ("notes", ALICE, 0o644)):
        trees.blob(source / name, 5000)
        os.chown(source / name, owner, owner)
        (source / name).chmod(mode)
    dest.mkdir()
    planted = {name: as_old(dest / name, source / name, b"evil") for name in os.listdir(source)}
    given_to(dest, BOB)
    root("copy", f"{source}/", dest)
    for name, inode in planted.items():
        copied = dest / name
        assert (copied.stat().st_uid, copied.stat().st_mode) == ((source / name).stat().st_uid, (source / name).stat().st_mode)
        # As rsync, size and time tell whether other files have changed.
        if "4" in oct((source / name).stat().st_mode)[-4]:
            trees.assert_same(source / name, copied)
            assert copied.stat().st_ino != inode, "its former owner may have it open"


def test_a_planted_file_does_not_count_as_copied(alice, place, tmp_path):
    source = tmp_path / "source"
    trees.blob(source / "data", 5000)
    given_to(source, ALICE)
    as_old(place / "data", source / "data", b"evil")
    given_to(place / "data", BOB, 0o644)
    said = alice.run("copy", source / "data", place)
    assert said.wait() != 0 and "data" in said.err, said.story()


def test_a_file_of_another_host_makes_no_program_that_runs_with_the_rights_of_who_copies(alice, root, tmp_path, port):
    passable(tmp_path)
    listen, there = f"127.0.0.1:{port()}", tmp_path / "there"
    trees.blob(there / "run", 5000)
    (there / "project").mkdir()
    given_to(there, ALICE)
    (there / "run").chmod(0o6755)
    (there / "project").chmod(0o2775)
    given_to(tmp_path / "alice", ALICE)
    serve = root.run("copy-server", "--root", there, "--listen", listen, "--as-root", "--trust-metadata")
    url = serve.until("its URL", lambda: serve.out.split("\n")[0] if "\n" in serve.out else "")
    pulled, copied, asked = (tmp_path / "alice" / name for name in ("pulled", "copied", "asked"))
    said = alice.run("copy", url, pulled)
    said.wait()
    assert "set-user-ID" in said.story(), said.story()
    alice("copy", f"{there}/", copied)
    alice("copy", "--chmod", "F4755", url, asked)
    modes = [(at / "run").stat().st_mode & 0o7777 for at in (pulled, copied, asked)]
    assert modes == [0o755, 0o6755, 0o4755], list(map(oct, modes))
    assert (pulled / "project").stat().st_mode & 0o7777 == 0o2775


def test_a_copy_writes_nothing_into_a_planted_directory(alice, place, tmp_path):
    source = tmp_path / "source"
    trees.blob(source / "in/file", 5000)
    (source / "link").symlink_to("in/file")
    given_to(source, ALICE)
    (place / "source").mkdir()
    given_to(place / "source", BOB, 0o777)
    said = alice.run("copy", "-rl", "--no-times", source, place)
    assert said.wait() != 0 and "belongs to another user" in said.err, said.story()
    assert not list((place / "source").iterdir())
    (place / "link").symlink_to("in/file")
    os.chown(place / "link", BOB, BOB, follow_symlinks=False)
    assert alice.run("copy", "-rl", "--no-times", source / "link", place).wait() != 0
    own = tmp_path / "own"
    own.mkdir()
    given_to(own, BOB, 0o777)
    alice("copy", "-rl", "--no-times", source, own)
    trees.assert_same(source / "in/file", own / "source/in/file")


def test_a_private_key_goes_into_no_file_or_pipe_of_another_user(alice, place, tmp_path):
    authority = tmp_path / "alice/ca"
    alice("ca", "init", authority)
    pipe = place / "host.pem"
    os.mkfifo(pipe)
    given_to(pipe, BOB, 0o666)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert "belongs to another user" in alice("ca", "issue", authority, "host:node01", "-o", pipe, code=1).err
        assert not os.read(reader, 100)
    finally:
        os.close(reader)
    data = trees.blob(tmp_path / "alice/data", SIZE)
    given_to(data, ALICE)
    (place / "peer.key").touch()
    planted = given_to(place / "peer.key", BOB, 0o666)
    alice("publish", data, "-o", tmp_path / "alice/m.torrent", "--ssl-torrent", "--ssl-export", place, code=1)
    assert planted.read_bytes() == b""


def test_an_authority_lies_in_a_directory_of_its_user_alone(root, place):
    theirs, own = place / "theirs", place / "own"
    theirs.mkdir()
    given_to(theirs, BOB, 0o755)
    assert f"belongs to user {BOB}" in root("ca", "init", theirs, code=1).err
    assert not list(theirs.iterdir())
    own.mkdir()
    own.chmod(0o777)
    root("ca", "init", own)
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o770)
    assert "chmod go-w" in root("ca", "issue", own, "host:node01", "-o", place / "key", code=1).err


def test_a_recording_changes_nothing_outside_its_directory(root, place, tmp_path, port):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    record = place / "run"
    record.mkdir()
    for name in ("zarr.json.part", "steps.jsonl", "series.xdmf.part"):
        (record / name).symlink_to(victim)
    given_to(record, BOB)
    recv = root.run("field", "recv", "--plain", "--listen", f"127.0.0.1:{port()}", "--name", f"planted-{os.getpid()}", "--record", record, "--steps", "1")
    recv.until("the receiver to listen", lambda: "listening" in recv.err)
    recv.signal(2)
    recv.wait()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o1770])
def test_a_state_directory_that_others_fill_is_refused(alice, place, tmp_path, mode):
    state = tmp_path / "alice/shared-state"
    state.mkdir()
    given_to(state, ALICE)
    (state / "delivered").symlink_to(tmp_path)
    given_to(state, ALICE, mode)
    data = given_to(trees.blob(tmp_path / "alice/data", SIZE), ALICE)
    said = alice("publish", data, "-o", tmp_path / "alice/m.torrent", "--ssl-torrent", "--ssl-export", tmp_path / "alice/keys", "--state-dir", state, code=1)
    assert "other users can write to" in said.err


def test_the_configuration_of_another_user_is_not_obeyed(alice, place, tmp_path):
    config = tmp_path / "alice/config/tidecast/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("no_such_setting = 1\n")
    given_to(tmp_path / "alice", ALICE)
    harmless = ["sim", "single:2@1gbit", "--print-topology"]
    assert "no_such_setting" in alice(*harmless, code=2).err
    os.chown(config, BOB, BOB)
    alice(*harmless)


def test_nothing_is_mounted_where_another_user_could_put_another_directory(root, alice, place, tmp_path, port):
    source = tmp_path / "src"
    source.mkdir()
    trees.blob(source / "file", 100)
    listen = f"127.0.0.1:{port()}"
    manifest = seeded(root, tmp_path, source, listen)
    words = ["--peer", listen, "--no-lsd", "--plain", "--cache"]
    given_to((place / "env").mkdir() or place / "env", BOB)
    (place / "link").symlink_to(given_to((tmp_path / "hers").mkdir() or tmp_path / "hers", ALICE))
    os.chown(place / "link", BOB, BOB, follow_symlinks=False)
    for user in (alice, root):
        cache = user.home / "cache"
        for at in (place / "env", place / "env/below", place / "link", place / "link/below"):
            said = user("run", manifest, *words, cache, "--at", at, "--", "ls", at, code=2)
            assert "user 61002 could put another directory there" in said.err, said.err
    at = place / "mine"
    assert root("run", manifest, *words, root.home / "cache", "--at", at, "--", "ls", at).out == "file\n"
    assert "could put another directory" in root("mount", manifest, place / "env", *words, root.home / "cache", code=2).err


def test_a_link_of_another_user_leads_no_output_elsewhere(root, alice, place, tmp_path, port):
    source = trees.blob(tmp_path / "data", SIZE)
    listen = f"127.0.0.1:{port()}"
    manifest = seeded(root, tmp_path, source, listen)
    hers = tmp_path / "hers"
    hers.mkdir()
    (hers / "precious").write_text("hers")
    given_to(hers, ALICE)
    for name, target in (("dir", hers), ("out", hers / "precious")):
        (place / name).symlink_to(target)
        os.chown(place / name, BOB, BOB, follow_symlinks=False)
    # A directory that Bob has planted, with a link of his.
    (place / "bobs").mkdir()
    (place / "bobs/dir").symlink_to(hers)
    given_to(place / "bobs", BOB)
    one = given_to(trees.blob(tmp_path / "one/file", 10).parent, ALICE)
    for to in (place / "dir", place / "dir/new", place / "bobs/dir"):
        assert "belongs to another user" in alice("copy", "--delete", f"{one}/", f"{to}/", code=1).err
        alice.gets(manifest, to, listen, code=1)
    alice("copy", "--backup", "--backup-dir", place / "dir", f"{one}/", given_to((tmp_path / "to").mkdir() or tmp_path / "to", ALICE), code=1)
    assert "belongs to another user" in alice("publish", one, "-o", place / "out", code=1).err
    assert [file.name for file in hers.iterdir()] == ["precious"] and (hers / "precious").read_text() == "hers"


def test_a_copy_goes_into_no_planted_pipe(root, alice, place, tmp_path):
    secret = given_to(trees.blob(tmp_path / "alice/secret", 100), ALICE, 0o600)
    os.mkfifo(place / "pipe")
    given_to(place / "pipe", BOB, 0o666)
    for name, target in (("link", place / "pipe"), ("null", "/dev/null")):
        (place / name).symlink_to(target)
        os.chown(place / name, BOB, BOB, follow_symlinks=False)
    reader = os.open(place / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        for user in (alice, root):
            for name in ("pipe", "link", "null"):
                assert "belongs to another user" in user("copy", secret, place / name, code=1).err, name
        assert not os.read(reader, 100)
    finally:
        os.close(reader)


@pytest.mark.parametrize("path", ["", ":", ":/nowhere", "/nowhere:"])
def test_a_module_of_the_working_directory_is_not_run(alice, place, path):
    """`python3 -m` puts the working directory first among the places of modules."""
    ran = place / "ran"
    (place / "tidecast").mkdir()
    for name in ("tidecast/__init__.py", "tidecast/field.py", "runpy.py", "importlib.py", "encodings.py", "sitecustomize.py"):
        (place / name).write_text(f"open({str(ran)!r}, 'w')")
    (place / "data.nc").write_bytes(b"CDF\x01")
    given_to(place / "tidecast", BOB)
    said = alice.start(alice.argv("field", "send", "data.nc:v", "--to", "127.0.0.1:9", "--plain"), env=alice.env | {"PYTHONPATH": path}, cwd=place)
    assert said.wait() != 0 and not ran.exists(), said.story()


def test_root_leaves_nothing_in_the_home_of_another_user(root, place, tmp_path):
    """As where sudo has left HOME as it was."""
    data = trees.blob(tmp_path / "data", 100)
    home, own = tmp_path / "bob", tmp_path / "own"
    for path in (home, own):
        path.mkdir(0o755)
    given_to(home, BOB)
    env = {name: value for name, value in root.env.items() if not name.startswith("XDG_")} | {"HOME": str(home)}

    def refused(*words) -> str:
        return root.start(root.argv(*words, "publish", data, "-o", tmp_path / "m.torrent"), env=env).exits(1).err

    assert "in a directory of user 61002" in refused() and not list(home.iterdir())
    (home / ".local/state").mkdir(parents=True)
    (home / ".local/state/tidecast").symlink_to(own)
    given_to(home, BOB)
    assert "is a link of user 61002" in refused()
    (place / "state").symlink_to(own)
    os.chown(place / "state", BOB, BOB, follow_symlinks=False)
    assert "belongs to another user" in refused("--state-dir", place / "state")
    assert not list(own.iterdir()) and own.stat().st_mode & 0o777 == 0o755


def test_a_broadcast_has_its_manifest_where_no_other_user_reads_or_exchanges_it(root, place, tmp_path):
    source = tmp_path / "many"
    source.mkdir()
    for number in range(200):
        (source / f"a long name of a file {number}").touch()
    own = tmp_path / "tmp"
    own.mkdir()
    seen = tmp_path / "seen"
    # Looks for the manifest's directory beside the worker.
    look = f"for i in $(seq 3000); do ls -ld {own}/.tmp* >> {seen} && break; sleep 0.01; done"
    launch = f"sh -c '({look}) < /dev/null > /dev/null 2>&1 & exec env TMPDIR={place} \"$@\"' sh {{command}}"
    words = ["bcast", source, "--to", f"{tmp_path}/to/{{host}}", "--hosts", "n1=127.0.0.1", "--net", "127.0.0.0/8", "--manifest-limit", 1000, "--launch", launch]
    root.start(root.argv(*words), env={**root.env, "TMPDIR": str(own)}).exits(0)
    modes = [line.split()[0] for line in seen.read_text().splitlines()]
    assert modes and all(mode.startswith("drwx------") for mode in modes) and not list(own.iterdir())
    given_to(own, BOB)
    said = root.start(root.argv(*words), env={**root.env, "TMPDIR": str(own)}).exits(1).err
    assert "TMPDIR" in said and not list(own.iterdir())


def test_root_announces_nothing_in_the_runtime_directory_of_another_user(root, place, tmp_path, port):
    runtime = tmp_path / "run"
    runtime.mkdir(0o700)
    given_to(runtime, BOB)
    data = trees.blob(tmp_path / "data", 100)
    manifest = root.publish(data, tmp_path / "m.torrent", "--plain")
    proc = root.start(root.argv("seed", manifest, data, "--listen", f"127.0.0.1:{port}", "--no-lsd", "--plain"),
                      env={**root.env, "XDG_RUNTIME_DIR": str(runtime)})
    wait_for("the seed", lambda: "127.0.0.1" in proc.out + proc.err)
    assert not list(runtime.iterdir())


def test_a_namespace_that_does_not_know_root_trusts_no_unknown_owner(alice, place, tmp_path):
    """There root and all other users have one number."""
    hers = tmp_path / "hers"
    hers.mkdir()
    (hers / "precious").write_text("hers")
    given_to(hers, ALICE)
    for name, target in (("dir", hers), ("out", hers / "precious")):
        (place / name).symlink_to(target)
        os.chown(place / name, BOB, BOB, follow_symlinks=False)
    one = given_to(trees.blob(tmp_path / "one/file", 10).parent, ALICE)
    for words in (("copy", f"{one}/", f"{place}/dir/"), ("publish", one, "-o", place / "out")):
        argv = alice.argv(*words)
        at = argv.index("--") + 1
        said = alice.start([*argv[:at], "unshare", "-Ur", *argv[at:]], env=alice.env).exits(1)
        assert "belongs to another user" in said.err, said.story()
    assert [file.name for file in hers.iterdir()] == ["precious"] and (hers / "precious").read_text() == "hers"


def test_a_tree_is_at_home_where_no_other_user_can_exchange_it(root, alice, place, tmp_path, port):
    source = tmp_path / "src"
    source.mkdir()
    trees.blob(source / "file", 100)
    listen = f"127.0.0.1:{port()}"
    manifest = seeded(root, tmp_path, source, listen)
    words = ["run", manifest, "--peer", listen, "--no-lsd", "--plain"]
    command = ["--at", tmp_path / "at", "--", "true"]
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (place / "cache").mkdir()
    given_to(place / "cache", BOB, 0o1777)
    for user in (alice, root):
        said = user.start(user.argv(*words, *command), env=user.env | {"TMPDIR": str(tmp_path / "open")}).exits(1).err
        assert "TMPDIR" in said and "--cache" in said, said
        assert "belongs to another user" in user(*words, "--cache", place / "cache", *command, code=1).err
    assert not list((tmp_path / "open").iterdir()) and not list((place / "cache").iterdir())


def test_a_prefetch_list_is_no_pipe_and_not_another_users(root, place, tmp_path, port):
    source = tmp_path / "src"
    source.mkdir()
    trees.blob(source / "file", 100)
    listen = f"127.0.0.1:{port()}"
    manifest = shutil.copy(seeded(root, tmp_path, source, listen), place / "m.torrent")
    words = ["run", manifest, "--peer", listen, "--no-lsd", "--plain", "--cache", root.home / "cache"]
    command = ["--at", tmp_path / "at", "--", "cat", tmp_path / "at/file"]
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in root(*words, "--prefetch", tmp_path / "pipe", *command, code=1).err
    os.truncate(os.open(tmp_path / "long", os.O_CREAT | os.O_WRONLY), 4 << 30)
    assert "longer than" in root(*words, "--prefetch", tmp_path / "long", *command, code=1).err
    os.truncate(os.open(place / "m.list", os.O_CREAT | os.O_WRONLY), 4 << 30)
    given_to(place / "m.list", BOB)
    assert "m.list belongs to user 61002" in root(*words, *command).err
