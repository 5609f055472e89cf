"""A destination that holds something else: one rule for `bcast` and `get`, and the same words."""
import json
import os
import random
import subprocess
import time

import pytest
from support import trees

LOCAL = "env TIDECAST_TEST_HOST={host} {command}"


def bcast(tide, source, to, *words, hosts="a,b"):
    return tide.run("bcast", source, "--to", to, "--hosts", hosts, "--launch", LOCAL, "--json", *words)


def told(event):
    return {h["name"]: h for h in event["hosts"]}


def outcomes(proc):
    return {name: host.get("action") for name, host in told(proc.last("done")).items()}


def leftovers(folder):
    return [p.name for p in folder.iterdir() if p.name.startswith(".tidecast")]


def test_the_next_version_of_a_file_replaces_it(tide, tmp_path):
    data, to = tmp_path / "data", tmp_path / "{host}/copy"
    for turn, content in enumerate([b"key = 1", b"key = 2", b"", os.urandom(300_000), os.urandom(300_000)]):
        data.write_bytes(content)
        assert outcomes(bcast(tide, data, to).ok()) == dict.fromkeys("ab", "replaced" if turn else "delivered")
        assert all((tmp_path / host / "copy").read_bytes() == content for host in "ab")
    assert outcomes(bcast(tide, data, to, hosts="a,b,c").ok()) == {"a": "unchanged", "b": "unchanged", "c": "delivered"}
    assert os.listdir(tmp_path / "a") == ["copy"], "records lie elsewhere"


@pytest.mark.parametrize("size", [0, 5, 200_000])
def test_an_older_copy_of_unknown_origin_is_replaced_and_told_of(tide, tmp_path, size):
    """As rsync, scp and sbcast -f do, whether or not any byte of it is the same."""
    data = trees.blob(tmp_path / "data", size)
    part = trees.blob(tmp_path / "c/copy", size)
    with open(part, "ab") as copy:
        copy.write(b"another end")
    mine = tmp_path / "b/copy"
    mine.parent.mkdir()
    mine.write_bytes(b"m" * 200_000)
    with open(mine, "rb") as reader:
        done = bcast(tide, data, tmp_path / "{host}/copy", hosts="a,b,c").ok()
        assert reader.read() == b"m" * 200_000, "who has it open keeps it"
    assert outcomes(done) == {"a": "delivered", "b": "replaced", "c": "replaced"}
    figures = {name: (host["replaced"], host["replaced_foreign"]) for name, host in told(done.last("done")).items()}
    assert figures == {"a": (0, 0), "b": (1, 1), "c": (1, 1)}, figures
    trees.assert_same(data, mine)
    trees.assert_same(data, part)
    assert not leftovers(tmp_path / "b")
    trees.blob(data, 300, seed=8)
    again = told(bcast(tide, data, tmp_path / "{host}/copy", hosts="a,b,c").ok().last("done"))
    assert {(host["replaced"], host["replaced_foreign"]) for host in again.values()} == {(1, 0)}, "now it is known"


def test_an_older_tree_of_unknown_origin_is_replaced_and_told_of(tide, tmp_path):
    source, mine = tmp_path / "t", tmp_path / "a"
    for name, size in [("same", 50_000), ("d/changed", 50_000), ("new", 10)]:
        trees.blob(source / name, size)
    trees.blob(mine / "same", 50_000)
    trees.blob(mine / "d/changed", 50_000, seed=4)
    (mine / "thesis").write_text("mine")
    text = tide("bcast", source, "--to", tmp_path / "{host}", "--hosts", "a,b", "--launch", LOCAL).out
    assert "replaced 1 file that was not delivered by tidecast in DEST on 1 host" in text, text
    assert "1 file that was not delivered by tidecast stays in DEST on 1 host" in text, text
    assert (mine / "thesis").read_text() == "mine" and (mine / "d/changed").read_bytes() == (source / "d/changed").read_bytes()
    (mine / "d/changed").write_text("my notes")
    hosts = told(bcast(tide, source, tmp_path / "{host}").exits(1).last("error"))
    assert hosts["b"]["action"] == "unchanged"
    assert f"cannot replace {mine / 'd/changed'}: it has changed since" in hosts["a"]["reason"], hosts["a"]
    assert (mine / "d/changed").read_text() == "my notes"


@pytest.mark.parametrize("stands", ["link", "directory"])
def test_what_is_no_file_and_was_not_delivered_is_refused(tide, tmp_path, stands):
    data, mine = trees.blob(tmp_path / "data", 1000), tmp_path / "b/copy"
    mine.parent.mkdir()
    if stands == "link":
        mine.symlink_to(trees.blob(tmp_path / "elsewhere", 10))
    else:
        trees.blob(mine / "in", 10)
    refused = told(bcast(tide, data, tmp_path / "{host}/copy").exits(1).last("error"))
    assert refused["a"]["ok"] and not refused["b"]["ok"]
    assert refused["b"]["reason"].startswith(f"cannot replace {mine}: ") and "--force" in refused["b"]["reason"]
    assert not leftovers(tmp_path / "b")
    if stands == "link":
        assert outcomes(bcast(tide, data, tmp_path / "{host}/copy", "--force").ok()) == {"a": "unchanged", "b": "replaced"}
        trees.assert_same(data, mine)
        assert (tmp_path / "elsewhere").stat().st_size == 10


def test_an_edited_file_stays_until_it_is_forced(tide, tmp_path):
    data, to = trees.blob(tmp_path / "data", 100_000), tmp_path / "{host}/copy"
    bcast(tide, data, to).ok()
    (tmp_path / "a/copy").write_text("my notes")
    trees.blob(data, 100_000, seed=5)
    hosts = told(bcast(tide, data, to).exits(1).last("error"))
    assert "--force" in hosts["a"]["reason"] and hosts["b"]["action"] == "replaced"
    assert (tmp_path / "a/copy").read_text() == "my notes"
    os.chmod(tmp_path / "b/copy", 0o600)
    trees.blob(data, 100_000, seed=6)
    assert told(bcast(tide, data, to, "--force").ok().last("done"))["a"]["replaced"] == 1


def test_versions_that_come_at_the_same_time_replace_one_another(tide, tmp_path):
    data = [trees.blob(tmp_path / f"v{n}", 2_000_000, seed=n) for n in range(5)]
    for proc in [bcast(tide, version, tmp_path / "{host}/copy", hosts="a") for version in data]:
        if proc.wait(120):
            assert "during the transfer" in told(proc.last("error"))["a"]["reason"]
    whole = (tmp_path / "a/copy").read_bytes()
    assert any(whole == version.read_bytes() for version in data), "one of them, whole"
    bcast(tide, data[0], tmp_path / "{host}/copy", hosts="a").ok()
    trees.assert_same(data[0], tmp_path / "a/copy")


def test_a_worker_without_a_home_records_nothing_and_says_so_next_time(tide, tmp_path):
    data = trees.blob(tmp_path / "data", 1000)
    words = ("bcast", data, "--to", tmp_path / "{host}/copy", "--hosts", "a", "--json",
             "--launch", "env -u HOME -u XDG_STATE_HOME {command}")
    tide(*words)
    trees.blob(data, 1000, seed=3)
    assert told(tide(*words).last("done"))["a"]["replaced_foreign"] == 1, "it is taken for another's"
    trees.assert_same(data, tmp_path / "a/copy")


def test_delete_removes_only_what_was_delivered_and_force_the_rest(tide, tmp_path):
    source, mine = tmp_path / "t", tmp_path / "a"
    for name in ("keep", "gone"):
        trees.blob(source / name, 1000)
    (source / "empty").touch()
    mine.mkdir()
    (mine / "empty").touch()
    (mine / "thesis").write_text("mine")
    bcast(tide, source, tmp_path / "{host}", hosts="a").ok()
    (source / "gone").unlink()
    words = ("bcast", source, "--to", tmp_path / "{host}", "--hosts", "a", "--launch", LOCAL)
    text = tide(*words, "--delete").out
    assert "1 file that was not delivered by tidecast stays in DEST on 1 host; --delete --force removes it too" in text, text
    assert sorted(os.listdir(mine)) == ["empty", "keep", "thesis"]
    (source / "empty").unlink()
    host = told(bcast(tide, source, tmp_path / "{host}", "--delete", hosts="a").ok().last("done"))["a"]
    assert (host["stale"], host["foreign"], host["deleted"]) == (2, 2, 0), "the same file by another hand"
    bcast(tide, source, tmp_path / "{host}", "--delete", "--force", hosts="a").ok()
    trees.assert_same(source, mine)


@pytest.mark.parametrize("words", [["--delete"], ["--force"], ["--delete", "--force"]])
def test_a_source_in_its_destination_stays(tide, tmp_path, words):
    source = tmp_path / "a/data"
    trees.blob(source / "k", 1000)
    (tmp_path / "a/k").write_bytes((source / "k").read_bytes())
    (tmp_path / "a/notes").write_text("mine")
    reason = told(bcast(tide, source, tmp_path / "{host}", *words, hosts="a").exits(1).last("error"))["a"]["reason"]
    assert "SRC is inside DEST" in reason, reason
    reason = told(bcast(tide, source, source / "{host}", *words, hosts="a").exits(1).last("error"))["a"]["reason"]
    assert "DEST is inside SRC" in reason, reason
    (tmp_path / "a/k").write_text("mine too")
    reason = told(bcast(tide, source, tmp_path / "{host}", hosts="a").exits(1).last("error"))["a"]["reason"]
    assert "a/k" in reason and "--force" in reason, "around SRC nothing is replaced that is not known"
    same = told(bcast(tide, source, tmp_path / "{host}/data", *words, hosts="a").ok().last("done"))["a"]
    assert same["action"] == "unchanged"
    assert (source / "k").exists() and (tmp_path / "a/notes").exists() and os.listdir(source) == ["k"]


def test_a_record_that_cannot_be_kept_is_told_of(tide, tmp_path):
    data = trees.blob(tmp_path / "data", 1000)
    (tmp_path / "file").touch()
    for name, launch in [("a", f"env TIDECAST_STATE_DIR={tmp_path}/file {{command}}"),
                         ("b", "env -u HOME -u XDG_STATE_HOME {command}")]:
        proc = tide.run("bcast", data, "--to", tmp_path / "{host}", "--hosts", name, "--launch", launch, "--json").ok()
        warnings = [e["message"] for e in proc.events() if e["event"] == "warning"]
        assert len([w for w in warnings if "cannot record the files delivered to " in w]) == 1, warnings


def test_a_state_directory_that_is_named_has_the_records_of_this_host(tide, tmp_path):
    data, state = trees.blob(tmp_path / "data", 1000), tmp_path / "state"
    bcast(tide, data, tmp_path / "{host}", "--state-dir", state, hosts="a").ok()
    assert len(os.listdir(state / "delivered")) == 1


def versions(folder):
    """A tree, and its next version in which everything that can change has changed."""
    old, new = folder / "old/t", folder / "new/t"
    trees.blob(old / "same", 200_000)
    trees.blob(new / "same", 200_000)
    for name in ("file-link", "file-dir", "deep/gone/too", "gone", "edit"):
        trees.blob(old / name, 30_000, seed=len(name))
    (old / "link-file").symlink_to("same")
    (old / "link-dir").symlink_to("deep")
    trees.blob(old / "dir-file/a/b", 3000)
    trees.blob(old / "dir-link/c", 3000)
    (new / "file-link").symlink_to("same")
    trees.blob(new / "file-dir/x/y", 3000)
    trees.blob(new / "link-file", 3000)
    trees.blob(new / "link-dir/z", 3000)
    trees.blob(new / "dir-file", 3000)
    (new / "dir-link").symlink_to("file-dir")
    trees.blob(new / "edit", 30_000, seed=99)
    (new / "deep").mkdir()
    return old, new


def test_a_tree_whose_kinds_change_and_what_it_has_no_more(tide, tmp_path):
    old, new = versions(tmp_path)
    to = tmp_path / "got/{host}"
    first = bcast(tide, old, to).ok().last("done")
    done = bcast(tide, new, to).ok().last("done")
    assert 0 < done["received"] < first["received"] / 3, "what is the same is not sent"
    assert {h["action"] for h in done["hosts"]} == {"replaced"}
    assert {(h["stale"], h["deleted"]) for h in done["hosts"]} == {(2, 0)}, done
    for host in "ab":
        assert (tmp_path / "got" / host / "file-link").is_symlink() and (tmp_path / "got" / host / "gone").exists()
    text = tide("bcast", new, "--to", to, "--hosts", "a,b", "--launch", LOCAL).out
    assert "4 files that the source does not have stay in DEST on 2 hosts; remove them with --delete" in text, text
    done = bcast(tide, new, to, "--delete").ok().last("done")
    assert {(h["stale"], h["deleted"]) for h in done["hosts"]} == {(0, 2)}, done
    for host in "ab":
        trees.assert_same(new, tmp_path / "got" / host)
    assert not leftovers(tmp_path / "got")


def test_a_refused_tree_is_left_as_it_was(tide, tmp_path):
    old, new = versions(tmp_path)
    to = tmp_path / "got/{host}"
    bcast(tide, old, to).ok()
    (tmp_path / "got/a/dir-file/a/mine").write_text("mine")
    hosts = told(bcast(tide, new, to, "--delete").exits(1).last("error"))
    assert "dir-file/a/mine" in hosts["a"]["reason"] and hosts["b"]["ok"]
    os.remove(tmp_path / "got/a/dir-file/a/mine")
    trees.assert_same(old, tmp_path / "got/a")


def test_a_destination_that_is_a_directory_or_a_device_is_never_replaced(tide, tmp_path):
    data = trees.blob(tmp_path / "data", 1000)
    trees.blob(tmp_path / "a/mine", 10)
    os.mkfifo(tmp_path / "b")
    hosts = told(bcast(tide, data, tmp_path / "{host}", "--force", "--delete").exits(1).last("error"))
    assert "directory" in hosts["a"]["reason"] and "pipe" in hosts["b"]["reason"]
    assert (tmp_path / "a/mine").exists() and (tmp_path / "b").is_fifo()


def test_a_source_that_is_a_link_has_the_name_that_was_given(tide, tmp_path):
    trees.blob(tmp_path / "model-v7.bin", 1000)
    trees.blob(tmp_path / "real/x", 1000)
    (tmp_path / "current.bin").symlink_to("model-v7.bin")
    (tmp_path / "tree").symlink_to("real")
    bcast(tide, tmp_path / "current.bin", f"{tmp_path}/{{host}}/").ok()
    bcast(tide, f"{tmp_path}/tree/", f"{tmp_path}/{{host}}/").ok()
    bcast(tide, f"{tmp_path}/real/.", f"{tmp_path}/{{host}}/").ok()
    assert sorted(os.listdir(tmp_path / "a")) == ["current.bin", "real", "tree"]
    trees.assert_same(tmp_path / "real", tmp_path / "a/tree")


@pytest.fixture
def published(tide, tmp_path, port):
    """Seeds a tree; returns a function that gets it into `got`, with more words."""
    def get(source, *words, code=0):
        here = f"127.0.0.1:{port()}"
        torrent = tide.publish(source, tmp_path / f"{time.time_ns()}.torrent", "--plain")
        with tide.seed(torrent, source, here, "--plain", "--no-lsd"):
            return tide("get", torrent, "--to", tmp_path / "got", "--plain", "--no-lsd", "--listen", "127.0.0.1:0",
                        "--peer", here, "--json", *words, code=code)
    return get


def test_get_has_the_same_rule(tide, tmp_path, published):
    old, new = versions(tmp_path)
    got = tmp_path / "got/t"
    assert published(old).last("done")["action"] == "delivered"
    done = published(new).last("done")
    assert (done["action"], done["files_stale"], done["files_deleted"]) == ("replaced", 2, 0), done
    (got / "edit").write_text("my notes")
    error = published(new, code=1).last("error")
    assert "got/t/edit" in error["message"] and "--force" in error["message"]
    assert (got / "edit").read_text() == "my notes" and not leftovers(tmp_path / "got")
    done = published(new, "--force", "--delete").last("done")
    assert (done["files_replaced"], done["files_stale"], done["files_deleted"]) == (1, 0, 2), done
    trees.assert_same(new, got)
    assert published(new).last("done")["action"] == "unchanged"


def test_a_kill_at_any_instant_leaves_the_old_or_the_new(tide, tmp_path):
    """Of each file, and the same command ends it; the record then knows both."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    instants = random.Random(seed)
    source, to = tmp_path / "source", tmp_path / "got/{host}"
    turn = 0

    def write():
        for n in range(300):
            (source / f"d{n % 7}").mkdir(parents=True, exist_ok=True)
            (source / f"d{n % 7}/{n}").write_text(f"{turn} {n}")
    write()
    began = time.monotonic()
    bcast(tide, source, to, hosts="a").ok()
    whole = time.monotonic() - began
    for turn in range(1, 7):
        write()
        proc = bcast(tide, source, to, hosts="a")
        time.sleep(instants.uniform(whole / 2, whole))
        children = subprocess.run(["pgrep", "-P", str(proc.process.pid)], capture_output=True, text=True).stdout.split()
        for pid in [*children, str(proc.process.pid)]:
            subprocess.run(["kill", "-9", pid], stderr=subprocess.DEVNULL)
        proc.process.wait()
        for n in range(300):
            found = (tmp_path / f"got/a/d{n % 7}/{n}").read_text()
            assert found in (f"{turn} {n}", f"{turn - 1} {n}"), f"seed {seed}"
        done = bcast(tide, source, to, hosts="a").ok().last("done")
        assert done["hosts_done"] == 1, json.dumps(done)
        trees.assert_same(source, tmp_path / "got/a")


@pytest.mark.root
def test_a_user_s_read_only_directories_take_the_next_version(tide, tmp_path):
    """As a user without privilege, since modes do not limit root."""
    def as_user(*words):
        for at in (tmp_path, *tmp_path.rglob("*")):
            os.chown(at, 65534, 65534, follow_symlinks=False)
        home = tmp_path / "home"
        proc = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", f"HOME={home}", f"XDG_STATE_HOME={home}",
                               str(tide.program), "bcast", source, "--to", to, "--hosts", "a", "--launch", "env {command}", *words],
                              capture_output=True, text=True, cwd="/")
        assert proc.returncode == 0, proc.stdout + proc.stderr
    for at in (*list(tmp_path.parents)[:-2], tmp_path):
        if at.stat().st_mode & 0o005 != 0o005:
            os.chmod(at, at.stat().st_mode | 0o055)
    (tmp_path / "home").mkdir()
    source, to = tmp_path / "source", tmp_path / "{host}"
    trees.blob(source / "d/old", 1000)
    trees.blob(source / "d/x/y", 1000)
    os.chmod(source / "d/x", 0o555)
    os.chmod(source / "d", 0o555)
    as_user()
    os.chmod(source / "d", 0o755)
    os.chmod(source / "d/x", 0o755)
    subprocess.run(["rm", "-r", source / "d/old", source / "d/x"], check=True)
    trees.blob(source / "d/x", 500)
    trees.blob(source / "d/new", 500)
    os.chmod(source / "d", 0o555)
    as_user("--delete")
    trees.assert_same(source, tmp_path / "a")
