"""Symbolic links that lead out of a tree, as virtual environments have them: every command keeps them as they are, reports their
number, and never follows them."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from support import trees
from support.daemons import Host
from support.mounts import needs_mounts

SAYS = "out of the tree"
PREFIX = "import sys; print(sys.prefix)"


@pytest.fixture
def venv(tmp_path) -> pathlib.Path:
    """The output of `python3 -m venv`, unchanged."""
    at = tmp_path / "opt/venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", at], check=True)
    assert any(os.path.isabs(os.readlink(path)) for path in (at / "bin").iterdir() if path.is_symlink())
    return at


@pytest.fixture
def published(venv, node, port, tmp_path) -> list:
    """Words that bring the environment: it is not where it was made any more, as on another host."""
    origin, listen = node("origin"), f"127.0.0.1:{port()}"
    manifest = tmp_path / "venv.torrent"
    said = origin("publish", venv, "-o", manifest, "--plain")
    assert said.err.count(SAYS) == 1 and "must exist on each node" in said.err
    (tmp_path / "there").mkdir()
    venv.rename(tmp_path / "there/venv")
    origin.seed(manifest, tmp_path / "there/venv", listen, "--no-lsd", "--plain")
    return [manifest, "--peer", listen, "--no-lsd", "--plain"]


def prefix(venv: pathlib.Path) -> str:
    done = subprocess.run([venv / "bin/python", "-c", PREFIX], capture_output=True, text=True)
    assert done.returncode == 0, done
    return done.stdout.strip()


def test_a_virtual_environment_runs_on_the_other_side(published, venv, node, tmp_path):
    there = node("there")
    assert SAYS in there("get", *published, "--to", venv.parent).err
    assert prefix(venv) == str(venv)
    trees.assert_same(tmp_path / "there/venv", venv)
    there("verify", published[0], venv)
    shown = there("show", published[0])
    assert SAYS in shown.err and f"-> {os.path.realpath(venv / 'bin/python')}" in shown.out


def test_a_virtual_environment_runs_by_run_and_mount(published, venv, node, mounts, tmp_path):
    needs_mounts()
    there = node("there")
    at = tmp_path / "m"
    at.mkdir()
    mounts.mount(there, published[0], at, *(word for word in published[1:] if word != "--no-lsd"))
    assert prefix(at) == str(at)
    ran = there("run", *published, "--cache", there.home / "rc", "--", venv / "bin/python", "-c", PREFIX)
    assert ran.out.strip() == str(venv)


def test_a_missing_target_is_named(node, port, tmp_path):
    needs_mounts()
    tree, origin, listen = tmp_path / "env", node("origin"), f"127.0.0.1:{port()}"
    (tree / "bin").mkdir(parents=True)
    (tree / "bin/python").symlink_to("/no/such/python3.9")
    (tree / "bin/python3").symlink_to("python")
    script = tree / "bin/tool"
    script.write_text("#!/no/such/shell -e\n")
    script.chmod(0o755)
    manifest = origin.publish(tree, tmp_path / "env.torrent", "--plain")
    origin.seed(manifest, tree, listen, "--no-lsd", "--plain")
    for name, why in {"python3": "leads to /no/such/python3.9, which is not on this host", "python": "leads to /no/such/python3.9",
                      "tool": "interpreter /no/such/shell is not on this host", "absent": "No such file"}.items():
        words = ["run", manifest, "--peer", listen, "--no-lsd", "--plain", "--cache", origin.home / "rc", "--at", tmp_path / "at"]
        assert why in origin(*words, "--", tmp_path / "at/bin" / name, code=2).err, name


def test_caches_of_virtual_environments(built, start, venv, tmp_path):
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    host.serve()
    assert SAYS in host("cache", "create", "venv", venv).err
    for link in ("symlink", "copy", "hardlink", "reflink"):
        to = tmp_path / link
        to.mkdir()
        host.cache("get", "venv", "--to", to, "--link", link)
        assert prefix(to / "venv") == str(to / "venv")
    assert host.run("admin", "fsck", "--json").ok()


def versions(base: pathlib.Path, victim: pathlib.Path) -> list[pathlib.Path]:
    """A link out of the tree in one version becomes a directory, a file, or another link in the next."""
    first, second = base / "1/tree", base / "2/tree"
    for tree in (first, second):
        trees.blob(tree / "kept/file", 50_000)
    for name in ("dir", "file", "deep"):
        (first / name).symlink_to(victim / name)
    (first / "up").symlink_to(os.path.relpath(victim, first))
    trees.blob(second / "dir/inner", 70_000)
    trees.blob(second / "file", 40_000)
    trees.blob(second / "deep/er/inner", 30_000)
    (second / "up").symlink_to("kept")
    return [first, second]


def test_nothing_is_reached_by_way_of_a_link(node, port, tmp_path):
    victim = tmp_path / "victim"
    for name in ("dir/inner", "dir/other", "deep/er/inner", "file"):
        trees.blob(victim / name, 1000)
    before = tmp_path / "before"
    shutil.copytree(victim, before)
    origin, there = node("origin"), node("there")
    words = []
    for number, tree in enumerate(versions(tmp_path, victim)):
        listen = f"127.0.0.1:{port()}"
        manifest = origin.publish(tree, tmp_path / f"{number}.torrent", "--plain")
        origin.seed(manifest, tree, listen, "--no-lsd", "--plain")
        words.append([manifest, "--peer", listen, "--no-lsd", "--plain"])
    for turn, more in enumerate([[], ["--delete"], ["--force"], ["--delete", "--force"]]):
        to = tmp_path / "to" / str(turn)
        for number in (0, 1, 0, 1):
            there("get", *words[number], "--to", to, *more)
            if "--delete" in more:
                subprocess.run(["diff", "-r", "--no-dereference", tmp_path / str(number + 1) / "tree", to / "tree"], check=True)
            assert os.path.islink(to / "tree/dir") == (number == 0)
            trees.assert_same(before, victim)
    # A directory that somebody has replaced by a link since.
    to = tmp_path / "to/0/tree"
    shutil.rmtree(to / "dir")
    (to / "dir").symlink_to(victim / "dir")
    assert "cannot replace" in there("get", *words[1], "--to", to.parent, code=1).err
    there("get", *words[1], "--to", to.parent, "--force")
    assert not (to / "dir").is_symlink()
    there("verify", words[1][0], to)
    trees.assert_same(before, victim)
