"""The commands as a person or a script meets them: exit codes, JSON, selection, verification, Ctrl-C."""
import errno
import json
import os
import re
import signal
import subprocess

import pytest
from support import clients, trees


@pytest.fixture
def data(tmp_path):
    return trees.rich(tmp_path / "source/data")


@pytest.mark.parametrize("words", [
    [], ["frobnicate"], ["publish"], ["get", "m"], ["publish", ".", "--format", "v9"], ["publish", __file__, "--piece-size", "3"],
    ["publish", __file__, "--piece-size", "1GiB"], ["publish", __file__, "--piece-size", "64KB"], ["show", __file__, "--threads", "1025"],
    ["get", "m", "--to", "d", "--timeout", "soon"], ["seed", "m", "p", "--listen", "nowhere"]])
def test_wrong_usage_is_2(tide, words):
    assert tide(*words, code=2).err


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["copy", "-h"], ["completions", "bash"], ["show", __file__, "--help"]])
def test_a_text_that_cannot_be_written_is_no_success(tide, words):
    with open("/dev/full", "w") as full:
        ran = subprocess.run([tide.program, *words], env=tide.env, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert ran.returncode == 1 and "cannot write to standard output" in ran.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_offer_what_the_help_lists(shell, tide):
    script = tide("completions", shell).out
    assert "copy-server" in script
    assert "worker" not in re.findall(r"[\w-]+", script)


def test_a_closed_pipe_interrupts(tide):
    for words in (["--help"], ["completions", "bash"]):
        reader, writer = os.pipe()
        os.close(reader)
        ran = subprocess.run([tide.program, *words], env=tide.env, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=60)
        os.close(writer)
        assert ran.returncode == 3 and ran.stderr == "", (words, ran)


@pytest.mark.parametrize("source", ["@ticket", "-", "magnet:?xt=urn:btih:" + "5a" * 20, "m.torrent", "tidecast1abc"])
def test_a_mount_without_a_directory_is_refused(tide, source):
    tide.env["TIDECAST_TICKET"] = "magnet:?xt=urn:btih:" + "5a" * 20
    assert "missing mount point" in tide("mount", source, code=2).err and not os.path.exists(source)


def test_an_unknown_network_is_named_as_given(tide, data, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent")
    for net in ("nosuch", "203.0.113.0/24"):
        getting = tide.run("get", manifest, "--to", tmp_path / "got", "--net", net, "--plain")
        assert getting.wait(60) in (1, 2) and f"no address on the network {net}; it has " in getting.err, getting.story()


def test_a_state_directory_that_cannot_be_created_names_the_flag(tide, data, tmp_path):
    (tmp_path / "file").write_text("")
    err = tide("publish", data, "--state-dir", tmp_path / "file/state", "-o", tmp_path / "m.torrent", code=1).err
    assert f"cannot create {tmp_path}/file/state: " in err and "choose another directory with --state-dir" in err, err


def test_an_empty_name_is_told(tide):
    assert "an empty name" in tide("show", "", code=2).err


def test_a_file_that_is_no_manifest_is_1(tide, tmp_path):
    junk = trees.blob(tmp_path / "junk", 5000)
    for command in (["show", junk], ["verify", junk, tmp_path], ["get", junk, "--to", tmp_path / "got"]):
        assert "junk" in tide(*command, code=1).err


def test_nobody_there_is_3(tide, data, port, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent")
    proc = tide("get", manifest, "--to", tmp_path / "got", "--peer", f"127.0.0.1:{port()}", "--plain", "--timeout", "2s", "--json",
                code=3, timeout=30)
    assert proc.events()[-1]["event"] == "error"


@pytest.mark.parametrize("key, wrong", [
    ("policy", "none"), ("durable", "maybe"), ("format", "v9"), ("piece_size", "64KB"), ("piece_size", "1GiB"), ("exclude", "a[b"),
    ("tracker", "nowhere"), ("peer", "a:b:c"), ("net", "10.0.0.0/99"), ("threads", "1025"), ("upload_limit", "1bit"),
    ("state_dir", "~nosuch/x"), ("socket", "~nosuch/x"), ("log", "tidecast=loud")])
def test_a_wrong_setting_is_named_whatever_the_command(tide, data, tmp_path, key, wrong):
    """Also where a flag overrules it, or the command does not use it."""
    words = ("publish", data, "-o", tmp_path / "m.torrent", "--format", "v2", "--piece-size", "64KiB", "--threads", "2")
    config = tmp_path / "config.toml"
    value = {"exclude": f'["{wrong}"]', "tracker": f'["{wrong}"]', "peer": f'["{wrong}"]', "threads": wrong}.get(key, f'"{wrong}"')
    config.write_text(f"json = false\n{key} = {value}\n")
    err = tide(*words, "--config", config, code=2).err
    assert f"in {config}: line 2, column " in err and f"`{key} = " in err and "--" not in err.split(f"{key} = ")[1], err
    tide.env[f"TIDECAST_{key.upper()}"] = wrong
    err = tide(*words, code=2).err
    assert f"TIDECAST_{key.upper()}: " in err and not (tmp_path / "m.torrent").exists(), err


def test_a_path_setting_may_begin_with_the_home_directory(tide, data, tmp_path):
    (tmp_path / "home").mkdir()
    tide.env.update(HOME=str(tmp_path / "home"), TIDECAST_STATE_DIR="~/state")
    tide("publish", data, "-o", tmp_path / "m.torrent")
    assert (tmp_path / "home/state").is_dir() and not os.path.exists("~")
    config = tmp_path / "config.toml"
    config.write_text('state_dir = "~/other"\n')
    del tide.env["TIDECAST_STATE_DIR"]
    tide("publish", data, "-o", tmp_path / "n.torrent", "--config", config)
    assert (tmp_path / "home/other").is_dir()


@pytest.mark.parametrize("fmt", ["v1", "v2", "hybrid", "auto"])
def test_publish_show_verify(tide, data, tmp_path, fmt):
    proc = tide("publish", data, "-o", tmp_path / "m.torrent", "--format", fmt, "--json")
    proc.last("done")
    shown = json.loads(tide("show", tmp_path / "m.torrent", "--json").out)
    assert shown["name"] == "data"
    names = str(shown)
    assert "a/b/c/deep" in names and "big.bin" in names
    assert tide("show", tmp_path / "m.torrent").out
    tide("verify", tmp_path / "m.torrent", data)


def test_verify_names_damaged_missing_and_extra(tide, data, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent")
    with open(data / "big.bin", "r+b") as f:
        f.seek(777_777)
        f.write(b"?")
    (data / "piece").unlink()
    (data / "surplus").write_text("?")
    human = tide("verify", manifest, data, code=1)
    said = human.out + human.err
    assert "big.bin" in said and "piece" in said and "surplus" in said and "second.bin" not in said
    report = tide("verify", manifest, data, "--json", code=1).events()[-1]
    assert "big.bin" in str(report["damaged"]) and "piece" in str(report["missing"]) and "surplus" in str(report["extra"])


@pytest.mark.parametrize("fmt", ["v1", "v2", "hybrid"])
def test_every_version_gives_the_same_tree(tide, node, data, port, tmp_path, fmt):
    manifest = tide.publish(data, tmp_path / "m.torrent", "--format", fmt)
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, here, "--plain")
    done = node("getter")("get", manifest, "--to", tmp_path / "got", "--peer", here, "--plain", "--json").last("done")
    trees.assert_same(data, tmp_path / "got/data")
    tide("verify", manifest, tmp_path / "got/data")
    assert done["seconds"] >= 0


def test_a_single_file(tide, node, port, tmp_path):
    path = trees.blob(tmp_path / "source/one file", 3_000_001)
    manifest = tide.publish(path, tmp_path / "m.torrent")
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, path, here, "--plain")
    node("getter")("get", manifest, "--to", tmp_path / "got", "--peer", here, "--plain")
    trees.assert_same(path, tmp_path / "got/one file")


@pytest.mark.parametrize("fmt", ["v1", "v2"])
def test_only_the_files_asked_for(tide, node, data, port, tmp_path, fmt):
    manifest = tide.publish(data, tmp_path / "m.torrent", "--format", fmt)
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, here, "--plain")
    node("getter")("get", manifest, "--to", tmp_path / "got", "--peer", here, "--plain", "--file", "a/**", "--file", "one")
    got = {str(p.relative_to(tmp_path / "got/data")) for p in (tmp_path / "got/data").rglob("*") if p.is_file()}
    assert {"a/b/c/deep", "a/second.bin", "one"} <= got
    assert not got & {"big.bin", "leaf", "piece"}
    for name in ("a/b/c/deep", "a/second.bin", "one"):
        trees.assert_same(data / name, tmp_path / "got/data" / name)


def test_a_name_that_exists_is_no_glob(tide, node, port, tmp_path):
    data = tmp_path / "data"
    wanted, others = ["run[1].dat", "b\udcff", "*", "half["], ["run1.dat", "b\udcfe"]
    for name in wanted + others:
        trees.blob(data / name, 1000)
    manifest = tide.publish(data, tmp_path / "m.torrent")
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, here, "--plain")
    files = [word for name in ("run[1].dat", "data/b\udcff", "*", "half[") for word in ("--file", name)]
    node("getter")("get", manifest, "--to", tmp_path / "got", "--peer", here, "--plain", *files)
    assert sorted(p.name for p in (tmp_path / "got/data").iterdir()) == sorted(wanted)
    node("other")("get", manifest, "--to", tmp_path / "globs", "--peer", here, "--plain", "--file", "run[0-9].*", "--file", "b?")
    names = {p.name for p in (tmp_path / "globs/data").iterdir()}
    assert names == {*others, "b\udcff"}


def test_the_umask_decides_who_else_may_change_what_was_got(tide, node, port, tmp_path):
    data = tmp_path / "data"
    trees.blob(data / "open/prog", 1000).chmod(0o777)
    trees.blob(data / "group", 1000).chmod(0o664)
    (data / "open").chmod(0o1777)
    manifest = tide.publish(data, tmp_path / "m.torrent")
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, here, "--plain")
    for mask, modes in ((0o077, [0o644, 0o1755, 0o755]), (0o002, [0o664, 0o1775, 0o775]), (0, [0o664, 0o1777, 0o777])):
        to, before = tmp_path / f"{mask}", os.umask(mask)
        try:
            node(f"getter{mask}")("get", manifest, "--to", to, "--peer", here, "--plain")
        finally:
            os.umask(before)
        assert [path.stat().st_mode & 0o7777 for path in sorted(to.glob("data/**/*"))] == modes
        tide("verify", manifest, to / "data")
    (tmp_path / "63/data/group").chmod(0o646)
    assert "mode" in tide("verify", manifest, tmp_path / "63/data", code=1).out


def test_no_file_of_that_name_is_1(tide, node, data, port, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent")
    proc = tide("get", manifest, "--to", tmp_path / "got", "--plain", "--file", "*.nothing", code=1)
    assert "*.nothing" in proc.err


def test_exclude(tide, data, tmp_path):
    tide("publish", data, "-o", tmp_path / "m.torrent", "--exclude", "*.bin")
    names = tide("show", tmp_path / "m.torrent", "--json").out
    assert "leaf" in names and "big.bin" not in names


def test_ctrl_c_stops_cleanly_and_the_next_run_goes_on(tide, start, port, tmp_path):
    data = trees.blob(tmp_path / "source/data", 30 << 20)
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, "hybrid")
    here = f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", torrent, data.parent, here, "--rate", 10 << 20)
    get = ("get", torrent, "--to", tmp_path / "got", "--peer", here, "--plain", "--json")
    proc = tide.run(*get)
    proc.until("progress", lambda: any(e.get("pieces") for e in proc.events()))
    proc.signal(signal.SIGINT)
    proc.exits(3, 20)
    assert proc.events()[-1]["event"] == "error"
    tide(*get)
    trees.assert_same(data, tmp_path / "got/data")


@pytest.mark.parametrize("command", ["verify", "seed", "seed --data"])
def test_a_manifest_that_never_comes_through_a_pipe_is_waited_for_until_a_signal(tide, data, tmp_path, command):
    pipe, second = tmp_path / "pipe", tmp_path / "second"
    for name in (pipe, second):
        os.mkfifo(name)
    words = ["seed", pipe, second, "--data", data] if "--data" in command else [command, pipe, data]
    run = tide.run(*words)

    def opened() -> int | None:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return None

    writer = run.until("the pipe has a reader", opened)
    run.signal(signal.SIGTERM)
    run.exits(3)
    os.close(writer)


def test_an_open_manifest_is_said_to_be_open(tide, node, data, port, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent")
    here = f"127.0.0.1:{port()}"
    seed = tide.seed(manifest, data, here)
    got = node("getter")("get", manifest, "--to", tmp_path / "got", "--peer", here)
    assert "open" in seed.err.lower() and "open" in got.err.lower()
    quiet = node("quiet")("get", manifest, "--to", tmp_path / "quiet", "--peer", here, "--plain")
    assert "--plain" not in quiet.err


def test_tidecast_tracker_brings_peers_together(tide, node, data, port, tmp_path):
    at = port()
    tracker = tide.run("tracker", "--listen", f"127.0.0.1:{at}")
    tide.wait_listening(tracker, f"127.0.0.1:{at}")
    for scheme in ("http", "udp"):
        url = f"{scheme}://127.0.0.1:{at}/announce"
        manifest = tide.publish(data, tmp_path / f"{scheme}.torrent", "--tracker", url)
        tide.seed(manifest, data, f"127.0.0.1:{port()}", "--plain")
        node(scheme)("get", manifest, "--to", tmp_path / scheme, "--plain", "--timeout", "60s")
        trees.assert_same(data, tmp_path / scheme / "data")


@pytest.mark.parametrize("words", [["share"], ["seed"], ["tracker"], ["copy-server"], ["field", "recv"], ["field", "view"]])
def test_the_help_of_servers_says_how_they_end(tide, words):
    """test_daemon_certificates.py sends them SIGHUP."""
    text = " ".join(tide(*words, "--help").out.split())
    assert "continues when the terminal is closed" in text and "Ctrl-C or SIGTERM (kill PID)" in text


def test_nothing_to_do_the_second_time(tide, node, data, port, tmp_path):
    manifest = tide.publish(data, tmp_path / "m.torrent")
    here = f"127.0.0.1:{port()}"
    seed = tide.seed(manifest, data, here, "--plain")
    getter = node("getter")
    getter("get", manifest, "--to", tmp_path / "got", "--peer", here, "--plain")
    seed.kill()
    getter("get", manifest, "--to", tmp_path / "got", "--peer", here, "--plain", "--timeout", "20s")
