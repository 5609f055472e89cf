"""Tickets and keys: how they are passed, that no other user sees them, and that stored ones are not readable by others."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
from support import trees
from support.cmdlines import Watch
from support.tidecast import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEY = "a" * 52


@pytest.fixture
def data(tmp_path):
    return trees.rich(tmp_path / "source/data")


@pytest.fixture
def ticket(shared, data):
    return shared(data)[1]


@pytest.fixture
def kept(tmp_path, ticket):
    """The ticket in a file for its owner alone."""
    return keep(tmp_path / "ticket", ticket)


def keep(path: pathlib.Path, secret: str) -> pathlib.Path:
    path.touch(0o600)
    path.write_text(f"{secret}\n")
    return path


def run(node, *words, stdin: str = "", env: dict | None = None, **kw) -> subprocess.CompletedProcess:
    """The program to its end, with this on its standard input."""
    return subprocess.run(node.argv(*words), input=stdin, env={**os.environ, **node.env, **(env or {})}, capture_output=True, text=True,
                          timeout=120, **kw)


@pytest.mark.parametrize("way", ["@file", "file", "-", "environment", "@ in the environment", "pipe", "among lines"])
def test_a_ticket_is_given_in_every_way(way, here, ticket, kept, data, tmp_path):
    words, stdin, env = [], "", {}
    if way == "@file":
        words = [f"@{kept}"]
    elif way == "file":
        words = [str(kept)]
    elif way == "-":
        words, stdin = ["-"], f"\n {ticket}\nwhat follows is not its"
    elif way == "environment":
        env = {"TIDECAST_TICKET": ticket}
    elif way == "@ in the environment":
        env = {"TIDECAST_TICKET": f"@{kept}"}
    elif way == "pipe":
        os.mkfifo(tmp_path / "pipe", 0o600)
        threading.Thread(target=(tmp_path / "pipe").write_text, args=(ticket,), daemon=True).start()
        words = [f"@{tmp_path / 'pipe'}"]
    else:
        words = [f"@{keep(tmp_path / 'lines', ticket + chr(10) + 'shared by somebody')}"]
    with Watch(ticket):
        done = run(here, "get", *words, "--to", str(tmp_path / "got"), "--no-lsd", "--timeout", "60s", stdin=stdin, env=env)
    assert done.returncode == 0, done.stderr
    assert "command line" not in done.stderr and "other users" not in done.stderr
    trees.assert_same(data, tmp_path / "got/data")


def test_a_plain_ticket_is_taken_off_the_command_line(node, shared, data, tmp_path):
    origin, ticket = shared(data)
    origin.signal(signal.SIGSTOP)
    try:
        proc = node("here").run("get", ticket, "--to", tmp_path / "got", "--no-lsd", "--timeout", "60s")
        line = pathlib.Path(f"/proc/{proc.process.pid}/cmdline")
        proc.until("it is gone", lambda: (now := line.read_bytes()) and ticket.encode() not in now, timeout=10)
        words = line.read_bytes().split(b"\0")
        assert words[0] == proc.argv[0].encode() and words[1] == b"get" and words[2].startswith(b"@/proc/self/fd/")
        assert pathlib.Path(f"/proc/{proc.process.pid}/comm").read_text() == "tidecast\n"
        proc.until("the warning", lambda: "use @FILE, - or TIDECAST_TICKET" in proc.err)
        proc.until("that it runs", lambda: "requesting the manifest" in proc.err)
        links = [os.readlink(fd) for fd in pathlib.Path(f"/proc/{proc.process.pid}/fd").iterdir()]
        assert not any("tidecast-secret" in link for link in links), links
        proc.signal(signal.SIGINT)
        proc.exits(3)
        assert proc.err.count("warning") == 1 and ticket not in proc.err
    finally:
        origin.signal(signal.SIGCONT)


def test_exit_codes_and_signals_survive(here, ticket, tmp_path):
    damaged = ticket[:-8] + ("a" * 8 if ticket[-8:] != "a" * 8 else "b" * 8)
    done = run(here, "get", damaged, "--to", str(tmp_path / "got"))
    assert done.returncode == 2 and "ticket is damaged" in done.stderr and damaged not in done.stderr
    # A hang-up that is ignored, as by nohup, stays ignored.
    argv = here.argv("get", ticket, "--to", str(tmp_path / "got"), "--no-lsd")
    script = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    proc = here.start([sys.executable, "-c", script, *argv], env=here.env)
    proc.ok()


def test_what_cannot_be_read_is_told(here, tmp_path):
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "large").write_text("a" * 100_000)
    for word, said in [(f"@{tmp_path / 'none'}", "No such file"), (f"@{tmp_path / 'empty'}", "has no ticket"),
                       (f"@{tmp_path / 'binary'}", "not text"), (f"@{tmp_path / 'large'}", "too long"),
                       (f"@{tmp_path}", "not a regular file"), ("-", "standard input has no ticket")]:
        done = run(here, "get", word, "--to", str(tmp_path / "got"))
        assert done.returncode == 2 and said in done.stderr, (word, done.stderr)
    done = run(here, "get", "--to", str(tmp_path / "got"))
    assert done.returncode == 2 and "TIDECAST_TICKET" in done.stderr


def test_a_ticket_file_that_others_may_read_is_named(here, kept, tmp_path):
    kept.chmod(0o644)
    done = run(here, "get", f"@{kept}", "--to", str(tmp_path / "got"), "--no-lsd")
    assert done.returncode == 0 and f"chmod 600 {kept}" in done.stderr


def test_other_commands_take_a_ticket_in_these_ways(node, ticket, kept):
    origin = node("origin")
    for words, env in [([f"@{kept}"], {}), ([], {"TIDECAST_TICKET": ticket}), ([str(kept)], {})]:
        shown = run(origin, "show", "--json", *words, env=env)
        event = json.loads(shown.stdout.splitlines()[-1])
        assert event["private"] and event["name"] == "data" and ticket not in shown.stdout
    assert run(origin, "revoke", "-", stdin=ticket).returncode == 0
    done = run(node("late"), "get", "-", "--to", str(node("late").home / "got"), "--timeout", "20s", "--no-lsd", stdin=ticket)
    assert done.returncode in (1, 3) and "revoked" in done.stderr


@pytest.mark.parametrize("way", ["@file", "argument"])
def test_the_processes_of_a_mount_do_not_show_the_ticket(way, here, ticket, kept, mounts, tmp_path):
    with Watch(ticket, grace=way == "argument"):
        at = mounts.mount(here, f"@{kept}" if way == "@file" else ticket, tmp_path / "at")
        kept.unlink()
        server = mounts.status(here, at)["pid"]
        for pid in (server, parent(server)):
            assert ticket.encode() not in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
            assert ticket.encode() not in pathlib.Path(f"/proc/{pid}/environ").read_bytes()
        mounts.kill_server(here, at)
        wait_for("a new server", lambda: alive(here, mounts, at) not in (None, server))
        assert (at / "one").read_bytes()


def alive(here, mounts, at):
    try:
        return mounts.status(here, at)["pid"]
    except (AssertionError, KeyError):
        return None


def parent(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_run_takes_a_ticket_from_standard_input_and_leaves_the_rest(here, ticket, mounts, tmp_path):
    words = ["run", "-", "--cache", here.home / "cache", "--no-lsd", "--at", tmp_path / "tree", "--"]
    with Watch(ticket):
        done = run(here, *words, "sh", "-c", f"test -s {tmp_path}/tree/one && cat", stdin=f"{ticket}\nthe rest\n")
    assert done.returncode == 0 and "the rest" in done.stdout and ticket not in done.stdout, done.stderr


@pytest.mark.parametrize("way", ["@file in the URL", "- in the URL", "--key @file", "--key -", "environment", "argument"])
def test_the_key_of_a_server_is_given_in_every_way(way, node, port, tmp_path):
    (tmp_path / "root").mkdir()
    listen = f"127.0.0.1:{port()}"
    server = node("server").run("copy-server", "--root", tmp_path / "root", "--listen", listen, *as_root(node("server")))
    url = server.until("its URL", lambda: server.out.split("\n")[0] if "\n" in server.out else "")
    key = key_of(url, node("server"))
    kept = keep(tmp_path / "key", key)
    (tmp_path / "file").write_text("some bytes")
    words, stdin, env = {
        "@file in the URL": ([f"tidecast://@{kept}@{listen}/"], "", {}),
        "- in the URL": ([f"tidecast://-@{listen}/"], key, {}),
        "--key @file": (["--key", f"@{kept}", f"tidecast://{listen}/"], "", {}),
        "--key -": (["--key", "-", f"tidecast://{listen}/"], key, {}),
        "environment": ([f"tidecast://{listen}/"], "", {"TIDECAST_COPY_KEY": key}),
        "argument": ([f"tidecast://{key}@{listen}/"], "", {}),
    }[way]
    with Watch(key, grace=way == "argument"):
        done = run(node("here"), "copy", str(tmp_path / "file"), *words, stdin=stdin, env=env)
    assert done.returncode == 0 and (tmp_path / "root/file").read_text() == "some bytes", done.stderr
    assert ("command line" in done.stderr) == (way == "argument")
    wrong = run(node("here"), "copy", str(tmp_path / "file"), f"tidecast://{listen}/")
    assert wrong.returncode == 2 and "TIDECAST_COPY_KEY" in wrong.stderr


def as_root(node) -> list[str]:
    """A server run by root needs --as or --as-root, in every form."""
    told = "--as-root" in node("copy-server", "--help").out
    return ["--as-root"] if told and os.geteuid() == 0 else []


def key_of(url: str, node) -> str:
    """The key that a server's URL has, or whose file it names."""
    key = url.removeprefix("tidecast://").rpartition("@")[0]
    return pathlib.Path(key[1:]).read_text().strip() if key.startswith("@") else key


def test_python_hands_keys_over_by_descriptor(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "python"))
    from tidecast._secret import by_descriptor
    words = ["copy", "tidecast://secret1@h:1/x@y", b"tidecast://h/z", "--key", "secret2", "--key=@file", "tidecast://@f@h/", "a"]
    with by_descriptor(words) as (found, fds):
        assert len(fds) == 2 and not any("secret" in word for word in found)
        assert found[1] == f"tidecast://@/proc/self/fd/{fds[0]}@h:1/x@y" and found[2] == "tidecast://h/z"
        assert pathlib.Path(found[4][1:]).read_text() == "secret2" and found[5:] == ["--key=@file", "tidecast://@f@h/", "a"]
    assert all(not pathlib.Path(f"/proc/self/fd/{fd}").exists() or "secret" not in os.readlink(f"/proc/self/fd/{fd}") for fd in fds)


def test_an_error_does_not_show_what_stands_in_place_of_a_key(node):
    for words in (["field", "send", "x", "--key", "abcdef"], ["field", "send", "x", "--key", "abcdef", "--json"]):
        ran = node("here")(*words, code=2)
        told = ran.out if "--json" in words else ran.err
        assert "'<the key given>' for '--key <KEY>'" in told, ran.story()
        assert "/proc/self/fd" not in ran.out + ran.err and "abcdef" not in ran.out + ran.err, ran.story()


def test_the_key_of_a_field_is_given_in_every_way(node, port, tmp_path):
    kept = keep(tmp_path / "field", KEY)
    (tmp_path / "three.raw").write_bytes(os.urandom(3 * 8**3 * 4))
    first, name = port(), f"secrets{os.getpid()}"
    with Watch(KEY):
        recv = node("recv").start(node("recv").argv("--json", "field", "recv", "--listen", f"127.0.0.1:{first}", "--streams", 1, "--name", name,
                                                    "--key", f"@{kept}", "--steps", 3), env=node("recv").env)
        started = recv.until("it listens", lambda: [e for e in recv.events() if e["event"] == "started"])[0]
        assert f"--key @{kept}" in started["send"] and KEY not in started["send"]
        # A file: a live source sends to any receiver that is there, and does not wait until the receiver has accepted its
        # session.
        words = ["field", "send", str(tmp_path / "three.raw"), "--shape", "8,8,8", "--to", f"127.0.0.1:{first}", "--streams", "1", "--rate", "2mbit",
                 "--steps"]
        for at, (how, stdin, env) in enumerate([(["--key", f"@{kept}"], "", {}), (["--key", "-"], KEY, {}), ([], "", {"TIDECAST_FIELD_KEY": KEY})]):
            done = run(node("send"), *words, f"{at}:{at + 1}", *how, stdin=stdin, env=env)
            assert done.returncode == 0, done.stderr
        recv.ok()


def test_no_process_of_a_broadcast_shows_its_ticket(node, launcher, tmp_path):
    (tmp_path / "src").write_bytes(os.urandom(1 << 20))
    launch = launcher("exec 3>&2")
    with Watch("tidegroup1"):
        node("origin")("bcast", tmp_path / "src", "--to", str(tmp_path / "{host}/copy"), "--hosts", "n[1-3]", "--launch", launch)
    assert all((tmp_path / f"n{n}/copy").exists() for n in (1, 2, 3))


# The stored secrets.

def test_what_is_kept_is_closed_to_others(node, port, data, tmp_path):
    origin = node("origin")
    state = origin.home / "state/tidecast"
    state.mkdir(parents=True)
    state.chmod(0o755)
    origin.share(data, f"127.0.0.1:{port()}", "--no-lsd")
    origin("publish", data, "-o", tmp_path / "m.torrent", "--private")
    origin.seed(tmp_path / "m.torrent", data, f"127.0.0.1:{port()}", "--no-lsd")
    assert (tmp_path / "m.torrent").stat().st_mode & 0o077 == 0
    assert state.stat().st_mode & 0o7777 == 0o700
    files = [p for p in state.rglob("*") if p.is_file()]
    assert {"node.key", "authority.json"} < {p.name for p in files} and any(p.parent.name == "seed" for p in files)
    assert not [p for p in state.rglob("*") if p.lstat().st_mode & 0o077]


def test_a_state_directory_of_somebody_else_is_refused(node, data, tmp_path):
    if os.geteuid():
        pytest.skip("giving files away needs root")
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 61001, 61001)
    done = run(node("here"), "share", str(data), "--state-dir", str(tmp_path / "theirs"))
    assert done.returncode == 1 and "belongs to user 61001" in done.stderr and not list((tmp_path / "theirs").iterdir())


def test_a_private_key_that_others_may_read_is_refused(node, data, kept, tmp_path):
    here = node("origin")
    key = here.home / "state/tidecast/node.key"
    key.chmod(0o640)
    done = run(here, "share", str(data))
    assert done.returncode == 1 and f"chmod 600 {key}" in done.stderr


def test_a_daemon_refuses_a_key_that_others_may_read(node, site, port, tmp_path):
    pem = site.certificate("host:wide")
    assert "PRIVATE KEY" in pem.read_text()
    pem.chmod(0o644)
    done = run(node("here"), "daemon", "--dir", str(tmp_path / "d"), "--socket", str(tmp_path / "s"), "--name", "wide", "--listen",
               f"127.0.0.1:{port()}", "--trust", str(site.trust), "--certificate", str(pem))
    assert done.returncode == 1 and f"chmod 600 {pem}" in done.stderr


# One home for all.

def test_owner_and_getters_share_a_home(node, shared, data, tmp_path):
    _, ticket = shared(data)
    origin = node("origin")
    both = [origin.run("get", ticket, "--to", tmp_path / f"got{n}", "--no-lsd", "--timeout", "60s") for n in (1, 2)]
    for n, proc in enumerate(both, 1):
        proc.ok()
        trees.assert_same(data, tmp_path / f"got{n}/data")


def test_owner_and_mount_share_a_home(node, shared, data, mounts, tmp_path):
    _, ticket = shared(data)
    at = mounts.mount(node("origin"), ticket, tmp_path / "at")
    assert (at / "one").read_bytes() == (data / "one").read_bytes()


def test_seed_and_get_share_a_home(node, port, data, tmp_path):
    origin, listen = node("origin"), f"127.0.0.1:{port()}"
    manifest = origin.publish(data, tmp_path / "m.torrent", "--private")
    seed = origin.seed(manifest, data, listen, "--no-lsd")
    ticket = seed.until("the ticket", lambda: seed.out.split("\n")[0] if "\n" in seed.out else "")
    origin("get", ticket, "--to", tmp_path / "got", "--no-lsd", "--timeout", "60s")
    trees.assert_same(data, tmp_path / "got/data")


# Terms.

def test_a_ticket_lets_in_as_many_nodes_as_it_says(node, port, data, tmp_path):
    origin, listen = node("origin"), f"127.0.0.1:{port()}"
    share, ticket = origin.share(data, listen, "--no-lsd", "--uses", 2)
    words = [ticket, "--no-lsd", "--timeout", "60s", "--to"]
    for again in range(2):
        for who in ("one", "two"):
            node(who)("get", *words, tmp_path / f"{who}{again}")
    refused = node("three")("get", *words, tmp_path / "three", code=1)
    assert "used up" in refused.err and "2 nodes" in refused.err
    share.until("the owner says so too", lambda: "used up" in share.err)
    share.signal(signal.SIGINT)
    share.ok()
    share, _ = origin.share(data, listen, "--no-lsd")
    assert "used up" in node("three")("get", *words, tmp_path / "three", code=1).err, "a restart forgets nobody"
    shown = origin("show", ticket, "--json").last("done")
    assert (shown["uses"], shown["used"], shown["expires"]) == (2, 2, None)


def test_a_ticket_ends_when_it_says(node, port, data, tmp_path):
    share, ticket = node("origin").share(data, f"127.0.0.1:{port()}", "--no-lsd", "--expires", "1s")
    ends = node("here")("show", ticket, "--json").last("done")["expires"]
    wait_for("its end", lambda: time.time() > ends + 0.1, timeout=30)
    late = node("late")("get", ticket, "--to", tmp_path / "got", "--no-lsd", "--timeout", "60s", code=1)
    assert "expired" in late.err
    share.until("the owner says so too", lambda: "expired" in share.err)
    assert "expired" in node("here")("show", ticket).out


def test_terms_are_for_private_tickets(node, data):
    for words in (["--plain", "--uses", "1"], ["--plain", "--expires", "1h"], ["--uses", "0"], ["--expires", "0s"], ["--ssl-torrent", "--uses", "1"]):
        assert run(node("here"), "share", str(data), *words).returncode == 2, words


@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: becoming another user needs root")
@pytest.mark.parametrize("form", [["--tracker", "{}"], ["--tracker={}"]])
def test_another_user_reads_no_secret_of_a_running_get(form, node, shared, data, tmp_path):
    """Neither the ticket nor a tracker's passkey, though both were given as arguments."""
    origin, ticket = shared(data)
    origin.signal(signal.SIGSTOP)
    try:
        passkey = "0123456789abcdef" * 2
        words = [word.format(f"http://127.0.0.1:9/{passkey}/announce") for word in form]
        proc = node("here").run("get", ticket, *words, "--to", tmp_path / "got", "--no-lsd", "--timeout", "60s")
        proc.until("that it runs", lambda: "requesting the manifest" in proc.err)
        become = ["setpriv", "--reuid=61002", "--regid=61002", "--clear-groups", "--"]
        line = subprocess.run([*become, "cat", f"/proc/{proc.process.pid}/cmdline"], capture_output=True, text=True, check=True).stdout
        assert "get" in line.split("\0") and ticket not in line and passkey not in line, line
        for word, hidden in (("cat", "environ"), ("ls", "fd")):
            tried = subprocess.run([*become, word, f"/proc/{proc.process.pid}/{hidden}"], capture_output=True, text=True)
            assert tried.returncode and "Permission denied" in tried.stderr, tried
        assert "use @FILE, - or TIDECAST_TRACKER" in proc.err
        proc.signal(signal.SIGINT)
        proc.exits(3)
    finally:
        origin.signal(signal.SIGCONT)
