"""Two users of one host and a daemon that serves both: one user can neither change the other's caches nor, unless they are open, read
them."""
import json
import os
import pathlib
import subprocess

import pytest
from support.callers import Calls, passable
from support.daemons import Host

ALICE, BOB, SERVICE = 61001, 61002, 61003
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: becoming other users needs root")


def become(uid: int) -> list:
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"]


class Mine(Host):
    """The commands of one user at a daemon of another."""

    def __init__(self, daemon: Host, uid: int, start, base: pathlib.Path):
        super().__init__(daemon.program, base / str(uid), start, daemon.name)
        self.uid = uid
        self.home.mkdir(exist_ok=True)
        os.chown(self.home, uid, uid)
        self.env["TIDECAST_SOCKET"] = str(daemon.socket)
        self.env["HOME"] = str(self.home)

    def argv(self, *words):
        return [*become(self.uid), *super().argv(*words)]

    def does(self, *words) -> subprocess.CompletedProcess:
        return subprocess.run([*become(self.uid), *words], capture_output=True, cwd="/")

    def tree(self, name: str, **modes: int) -> pathlib.Path:
        """A directory with a file of each of these modes."""
        tree = self.home / name
        tree.mkdir(mode=0o755)
        for file, mode in modes.items():
            (tree / file).write_text(f"{name} {file}")
            (tree / file).chmod(mode)
            os.chown(tree / file, self.uid, self.uid)
        os.chown(tree, self.uid, self.uid)
        return tree


class Served(Host):
    """A daemon that serves all users, as root or as an ordinary user."""

    uid = 0

    def argv(self, *words):
        return [*(become(self.uid) if self.uid else []), *super().argv(*words)]


@pytest.fixture(params=[0, SERVICE], ids=["root", "service"])
def users(request, built, tmp_path, start):
    passable(tmp_path)
    home = tmp_path / "daemon"
    home.mkdir(mode=0o755)
    os.chown(home, request.param, request.param)
    daemon = Served(built / "tidecast", home, start, "host")
    daemon.uid = request.param
    daemon.serve("--system")
    home.chmod(0o755)
    return daemon, Mine(daemon, ALICE, start, tmp_path), Mine(daemon, BOB, start, tmp_path)


def top(cache: dict) -> pathlib.Path:
    """caches/ID of the store."""
    return pathlib.Path(cache["path"]).parent.parent


def test_the_owner_cannot_change_what_is_committed(users):
    daemon, alice, bob = users
    made = alice.create("tool", alice.tree("tool", run=0o755))
    path, there = pathlib.Path(made["path"]), top(made)
    assert made["mode"] == 0o755
    for inode in [there, *there.rglob("*"), *there.parents[1:3]]:
        assert inode.lstat().st_uid == daemon.uid, inode
    for user in (alice, bob):
        for words in (["chmod", "777", there], ["mv", there / "tree", there / "old"], ["rm", "-rf", there], ["touch", path / "new"],
                      ["sh", "-c", f"echo evil >{path}/run"], ["ln", "-s", "/", there / "link"], ["mv", there, f"{there}x"],
                      ["chmod", "644", path / "run"], ["setfacl", "-m", f"u:{user.uid}:rwx", there]):
            assert user.does(*words).returncode, words
    assert (path / "run").read_text() == "tool run"
    bob.cache("get", "tool", "--to", bob.home)
    assert (bob.home / "tool" / "run").read_text() == "tool run"


def test_private_files_make_a_cache_for_their_owner_alone(users):
    daemon, alice, bob = users
    for name, modes, mode in (("open", {"a": 0o644, "b": 0o755}, 0o755), ("mixed", {"a": 0o644, "key": 0o600}, 0o700)):
        made = alice.create(name, alice.tree(name, **modes))
        assert made["mode"] == mode, made
        assert bool(made["mode_reason"]) == (mode == 0o700)
        file = pathlib.Path(made["path"]) / "a"
        assert alice.does("cat", file).stdout == f"{name} a".encode(), "its owner reads it in place"
        assert (bob.does("cat", file).returncode == 0) == (mode == 0o755)
    opened = alice.create("opened", alice.home / "mixed", "--mode", "755")
    assert opened["mode"] == 0o755 and not opened["mode_reason"]
    assert bob.does("cat", pathlib.Path(opened["path"]) / "key").returncode == 0
    closed = alice.home / "closed"
    closed.mkdir()
    (closed / "in").mkdir()
    (closed / "in" / "f").write_text("x")
    os.chown(closed, ALICE, ALICE)
    closed.chmod(0o700)
    assert alice.create("below", closed / "in")["mode"] == 0o700, "others could not reach it"


@pytest.mark.parametrize("kind", ["copy", "reflink", "hardlink", "symlink"])
def test_files_come_back_as_they_were_made_by_the_caller(users, kind):
    daemon, alice, bob = users
    alice.create("data", alice.tree("data", key=0o600, run=0o755, set=0o4755), "--mode", "755")
    to = bob.home / kind
    to.mkdir()
    os.chown(to, BOB, BOB)
    assert bob.cache("get", "data", "--to", to, "--link", kind)["made"] == str(to / "data")
    if kind != "symlink":
        modes = {path.name: path.stat().st_mode & 0o7777 for path in (to / "data").iterdir()}
        assert modes["key"] == 0o600 and not modes["set"] & 0o7000 and modes["run"] & 0o111 == 0o111, modes
        assert (to / "data").stat().st_uid == (to / "data" / "key").stat().st_uid == BOB
    assert sorted(os.listdir(to)) == ["data"], "nothing is left beside it"
    bob.cache("get", "data", "--to", to, "--link", kind)
    if kind == "copy":
        (to / "data" / "run").write_text("data RUN")
        os.utime(to / "data" / "run", ns=(0, (alice.home / "data" / "run").stat().st_mtime_ns))
        assert "--force" in bob.cache("get", "data", "--to", to, "--link", kind, code=1)["message"]
        bob.cache("get", "data", "--to", to, "--link", kind, "--force")
        assert (to / "data" / "run").read_text() == "data run" and os.listdir(to) == ["data"]


def test_a_caller_that_does_not_see_the_store_gets_a_copy(users, tmp_path):
    daemon, alice, bob = users
    made = alice.create("data", alice.tree("data", f=0o644))
    hidden = f"mount -t tmpfs none {top(made).parent} && exec setpriv --reuid={BOB} --regid={BOB} --clear-groups -- "
    hidden += f"{bob.program} cache get data --to {bob.home}"
    done = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", hidden], env={**os.environ, **bob.env}, capture_output=True, text=True)
    assert done.returncode == 0 and "copy" in done.stderr, done
    assert not (bob.home / "data").is_symlink() and (bob.home / "data" / "f").read_text() == "data f"


def test_to_another_user_a_private_cache_is_as_if_it_were_not_there(users, tmp_path):
    daemon, alice, bob = users
    made = alice.create("own", alice.tree("own", key=0o600))
    before = alice.cache("show", "own")
    description = json.loads(bob.does("curl", "-s", "--unix-socket", daemon.socket, "http://d/v1/openapi.json").stdout)
    for key, method, url, body, headers in Calls(description).all(made["name"], made["cache"], str(bob.home)):
        heads = [word for name, value in headers.items() for word in ("-H", f"{name}: {value}")]
        data = ["--data-binary", body.decode()] if body else []
        said = bob.does("curl", "-s", "-m", "20", "-X", method, *heads, *data, "--unix-socket", daemon.socket, f"http://d{url}").stdout
        assert b"own key" not in said and str(top(made)).encode() not in said, key
    files = ["-H", "Connection: Upgrade", "-H", "Upgrade: tidecast-files"]
    said = bob.does("curl", "-s", "-m", "20", *files, "--unix-socket", daemon.socket, f"http://d/v1/caches/{made['cache']}/files").stdout
    assert json.loads(said)["kind"] == "absent"
    assert bob.does("ls", top(made)).returncode and bob.does("cat", pathlib.Path(made["path"]) / "key").returncode
    after = alice.cache("show", "own")
    assert [after[key] for key in ("mode", "lease", "pinned", "path")] == [before[key] for key in ("mode", "lease", "pinned", "path")]
    assert bob.cache("get", "own", "--to", bob.home, code=1)["reason"] in ("absent", "unreachable", "denied")


def test_the_daemon_writes_into_no_directory_of_a_caller(users):
    daemon, alice, bob = users
    alice.create("data", alice.tree("data", f=0o644))
    get = json.dumps({"name": "data", "place": {"dir": str(bob.home), "name": "x"}})
    json_head = ["-H", "content-type: application/json"]
    said = bob.does("curl", "-s", *json_head, "-d", get, "--unix-socket", daemon.socket, "http://d/v1/get").stdout
    assert json.loads(said)["kind"] == "malformed" and not (bob.home / "x").exists()


@pytest.mark.parametrize("kind", ["hardlink", "reflink", "copy", "get"])
def test_in_a_project_directory_what_is_made_is_the_projects(users, tmp_path, port, node, kind):
    """Its group, and that of later files in it, as `cp` makes it."""
    daemon, alice, bob = users
    tree = alice.tree("data", f=0o644)
    (tree / "sub").mkdir()
    (tree / "sub/g").write_text("g")
    project = tmp_path / "project"
    project.mkdir()
    os.chown(project, 0, 61999)
    project.chmod(0o2775)
    member = ["setpriv", f"--reuid={BOB}", f"--regid={BOB}", "--groups=61999", "--", "sh", "-c", 'umask 002; exec "$@"', "sh"]
    if kind == "get":
        listen, origin = f"127.0.0.1:{port()}", node("origin")
        manifest = origin.publish(tree, tmp_path / "data.torrent", "--plain")
        manifest.chmod(0o644)
        origin.seed(manifest, tree, listen, "--no-lsd", "--plain")
        words = ["get", manifest, "--to", project, "--peer", listen, "--no-lsd", "--plain"]
    else:
        alice.create("data", tree)
        words = ["cache", "get", "data", "--to", project, "--link", kind]
    done = subprocess.run([*member, bob.program, *map(str, words)], env={**os.environ, **bob.env}, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done
    for path in (project / "data", project / "data/f", project / "data/sub", project / "data/sub/g"):
        # A hard link has the group that the store's file has.
        assert path.stat().st_gid == 61999 or kind == "hardlink" and path.is_file(), path
        assert not path.is_dir() or path.stat().st_mode & 0o2000, path
