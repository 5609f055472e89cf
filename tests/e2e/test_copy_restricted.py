"""`tidecast copy` and its servers beside other users: the user of a server, files that guests may leave, trusted directories and mode
bits, the cost of unknown clients, and names that look like options or escape sequences."""
import json
import os
import pathlib
import socket
import ssl
import stat
import struct
import subprocess
import time

import pytest
from conftest import needs
from support.tidecast import peak_rss
from test_copy import done, server, ssh, tree  # noqa: F401

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users")

ALICE, BOB = 61001, 61002


@pytest.fixture
def place(tmp_path):
    """A directory that every user reaches."""
    for at in [tmp_path, *tmp_path.parents]:
        if at != pathlib.Path("/") and at.stat().st_uid == os.geteuid() and at.is_relative_to("/tmp") and at != pathlib.Path("/tmp"):
            at.chmod(0o755)
    return tmp_path


def owned(path, uid, mode=0o755):
    path.mkdir(parents=True)
    os.chown(path, uid, uid)
    path.chmod(mode)
    return path


def become(uid, *argv) -> list:
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *map(str, argv)]


def as_user(uid, home, *argv, code=0):
    said = subprocess.run(become(uid, *argv), env={"HOME": str(home), "PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=120)
    assert code is None or said.returncode == code, said.stdout + said.stderr
    return said


def mode(path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_root_says_as_whom_it_serves(built, here, node, start, port, place):
    (place / "served").mkdir()
    words = ("copy-server", "--root", place / "served", "--listen", f"127.0.0.1:{port()}")
    said = here(*words, code=2)
    assert "--as USER" in said.err and "--as-root" in said.err and said.out == ""
    assert "cannot be used with" in here(*words, "--as-root", "--as", ALICE, code=2).err
    assert "does not exist on this host" in here(*words, "--as", "nobody-of-that-name", code=2).err
    assert "--as-root" in here(*words, "--as", "root", code=1).err
    (place / "daemon.toml").write_text(f'[daemon]\nserve = "{place}/served"\nserve_listen = "127.0.0.1:{port()}"\n')
    said = here("--config", place / "daemon.toml", "daemon", "--dir", place / "d", "--socket", place / "s", code=1)
    assert "serve_as" in said.err and "serve_as_root" in said.err


def begin(node, place, root, listen, *flags):
    proc = node("server").run("copy-server", "--root", root, "--listen", listen, *flags)
    proc.url = proc.until("its URL", lambda: proc.out.split("\n")[0] if "\n" in proc.out else "")
    return proc


def test_a_server_is_another_user_before_it_listens(here, node, port, place):
    root = owned(place / "served", ALICE)
    proc = begin(node, place, root, f"127.0.0.1:{port()}", "--as", f"{ALICE}:{ALICE}")
    status = pathlib.Path(f"/proc/{proc.process.pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    assert set(fields["Uid"].split()) == set(fields["Gid"].split()) == {str(ALICE)}
    assert fields["Groups"].split() == [str(ALICE)] and int(fields["CapEff"], 16) == 0 and int(fields["NoNewPrivs"]) == 1
    (place / "file").write_text("x")
    done(here, place / "file", proc.url)
    assert (root / "file").stat().st_uid == ALICE
    # Files that this user may not write stay unchanged.
    owned(root / "closed", 0)
    assert "denied" in done(here, place / "file", proc.url + "closed/", code=1)["message"]
    # Nor served, if it may not be read.
    secret = owned(place / "secret", 0, 0o700)
    words = ("copy-server", "--root", secret, "--listen", f"127.0.0.1:{port()}", "--as", ALICE)
    assert "denied" in here(*words, code=1).err


def test_the_kernel_holds_a_server_to_its_root(here, node, port, place):
    """The server's directory is replaced by another one of its name: that is not the server's to read."""
    root = owned(place / "served", ALICE)
    (root / "file").write_text("served")
    proc = begin(node, place, root, f"127.0.0.1:{port()}", "--as", f"{ALICE}:{ALICE}")
    proc.until("how it is confined", lambda: "confined: " in proc.err)
    if "confined: landlock ABI" not in proc.err:
        pytest.skip(f"SKIPPED: {proc.err}: that the server is held to its root was not seen")
    assert done(here, proc.url + "file", place / "got")["files_copied"] == 1
    root.rename(place / "aside")
    (owned(root, ALICE) / "file").write_text("another")
    assert "denied" in done(here, proc.url + "file", place / "got2", code=1)["message"]
    assert not (place / "got2").exists()


def test_a_root_daemon_serves_as_another_user(built, here, start, port, place):
    from support.daemons import Host
    root = owned(place / "served", ALICE)
    host = Host(built / "tidecast", place / "host", start, "head")
    (place / "daemon.toml").write_text(f'[daemon]\nserve_listen = "127.0.0.1:{port()}"\nserve_as = "{ALICE}"\n')
    host.env["TIDECAST_CONFIG"] = str(place / "daemon.toml")
    daemon = host.serve("--serve", root)
    daemon.until("its URL", lambda: "tidecast://" in daemon.out and daemon.out.endswith("\n"))
    url = daemon.out.split()[-1]
    (place / "file").write_text("x")
    done(here, place / "file", url)
    assert (root / "file").stat().st_uid == ALICE
    daemon.kill()
    host_port = url.rpartition("@")[2].strip("/").rpartition(":")
    until = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((host_port[0], int(host_port[2])), 5).close()
        except OSError:
            break
        assert time.monotonic() < until, "the server outlives its daemon"
        time.sleep(0.05)


def acl(*entries) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, perm, who) for tag, perm, who in entries)


@pytest.fixture
def rights(place):
    """A tree of entries that a guest must not create."""
    top = place / "src"
    (top / "dir").mkdir(parents=True)
    for name, bits in (("uid", 0o4755), ("gid", 0o2755), ("both", 0o6755), ("plain", 0o640)):
        (top / name).write_text(name)
        (top / name).chmod(bits)
    (top / "big").write_bytes(os.urandom(9 << 20))
    (top / "big").chmod(0o6755)
    (top / "hole").write_bytes(b"")
    os.truncate(top / "hole", 8 << 20)
    (top / "hole").chmod(0o4755)
    os.link(top / "uid", top / "uid-too")
    os.chown(top / "plain", BOB, BOB)
    (top / "dir").chmod(0o3777)
    os.mkfifo(top / "pipe")
    os.mknod(top / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.setxattr(top / "plain", "user.note", b"kept")
    (top / "listed").write_text("x")
    try:
        undefined = 2**32 - 1
        os.setxattr(top / "listed", "system.posix_acl_access",
                    acl((1, 6, undefined), (2, 6, BOB), (4, 0, undefined), (16, 6, undefined), (32, 0, undefined)))
    except OSError:
        pass
    try:
        os.setxattr(top / "gid", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 12, 0, 0, 0))
    except OSError:
        pass
    return top


@pytest.mark.parametrize("way", ["push", "plain", "server"])
def test_what_a_guest_leaves_gives_no_rights(way, here, server, rights, place, port):  # noqa: F811
    url = server(*(["--plain"] if way == "plain" else []), trust=("--as-root",))
    source = f"{rights}/"
    if way == "server":
        source = server("--read-only", root="src", name="another", trust=("--as-root",))
    end = done(here, source, url + "in", *(["--plain"] if way == "plain" else []), code=1)
    assert end["failed"] == 0 and "attributes" in end["message"] and end["attributes_lost"] >= 6, end
    at = place / "served/in"
    found = [at, *at.rglob("*")]
    assert len(found) >= 9
    for path in found:
        assert mode(path) & 0o7000 == 0 or path.is_symlink(), path
        assert (path.lstat().st_uid, path.lstat().st_gid) == (0, 0), path
        assert stat.S_IFMT(path.lstat().st_mode) in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK), path
        assert all(name.startswith("user.") for name in os.listxattr(path, follow_symlinks=False)), path
    assert not (at / "pipe").exists() and not (at / "null").exists()
    assert os.getxattr(at / "plain", "user.note") == b"kept" and (at / "big").read_bytes() == (rights / "big").read_bytes()
    # Without the list of which its group bits were the mask, its group gets nothing.
    assert mode(at / "listed") & 0o077 == 0 or mode(rights / "listed") & 0o070 == 0o040
    told = {pathlib.Path(problem["path"]).name for problem in end["problems"]}
    assert {"uid", "gid", "both", "big", "hole", "pipe", "null", "dir"} <= told, told
    # Existing files are recognised, and still have no such bits.
    (at / "uid").chmod(0o4755)
    end = done(here, f"{rights}/", url + "in", *(["--plain"] if way == "plain" else []), code=1)
    assert end["files_copied"] == 0 and mode(at / "uid") == 0o755


def test_with_trust_all_of_it_arrives(here, server, rights, place):  # noqa: F811
    done(here, f"{rights}/", server() + "in")
    assert mode(place / "served/in/both") == 0o6755 and (place / "served/in/plain").stat().st_uid == BOB


def test_one_key_is_for_reading_and_one_for_writing(here, node, server, place):  # noqa: F811
    url = server(trust=("--as-root",))
    (place / "served/file").write_text("x")
    state = next(place.rglob("copy-server.key")).parent
    keys = {name: (state / name).read_text().strip() for name in ("copy-server.key", "copy-server-read.key")}
    assert all(mode(state / name) == 0o600 for name in keys) and len(set(keys.values())) == 2
    assert url.startswith(f"tidecast://{keys['copy-server.key']}@")
    bare = url.rpartition("@")[2]
    reading = f"tidecast://{keys['copy-server-read.key']}@{bare}"
    assert done(here, reading + "file", place / "got")["files_copied"] == 1
    for words in ((place / "got", reading + "new"), ("--delete", f"{place}/got", reading + "file")):
        assert "reading only" in done(here, *words, code=1)["message"]
    assert not (place / "served/new").exists()
    assert server.proc.out.count("\n") == 1, "only the URL, which programs read"
    assert "copy-server-read.key" in server.proc.err and keys["copy-server.key"] not in server.proc.err
    read_only = server("--read-only", root="served", name="third", trust=("--as-root",))
    assert done(here, read_only + "file", place / "got2")["files_copied"] == 1
    (state / "copy-server-read.key").chmod(0o640)
    said = node("server")("copy-server", "--root", place / "served", "--listen", "127.0.0.1:0", "--as-root", code=1)
    assert "0640" in said.err and "chmod 600" in said.err


@pytest.mark.parametrize("size", [1000, 9 << 20, 0])
def test_set_id_bits_go_where_the_owner_cannot_be_kept(size, built, place):
    theirs, mine = owned(place / "bob", BOB), owned(place / "alice", ALICE)
    (theirs / "dir").mkdir()
    for path, owner, group, bits in ((theirs / "tool", BOB, BOB, 0o6755), (theirs / "dir", BOB, BOB, 0o2755),
                                     (theirs / "own", ALICE, ALICE, 0o6755), (theirs / "own-uid", ALICE, BOB, 0o6755)):
        if not path.exists():
            path.write_bytes(os.urandom(size))
        os.chown(path, owner, group)
        path.chmod(bits)
    os.link(theirs / "tool", theirs / "too")
    for _ in range(2):
        said = as_user(ALICE, mine, built / "tidecast", "--json", "copy", f"{theirs}/", mine / "in", code=1)
        end = json.loads(said.stdout.splitlines()[-1])
        assert end["failed"] == 0 and end["attributes_lost"] > 0
        assert {name: mode(mine / "in" / name) for name in ("tool", "too", "dir", "own", "own-uid")} == {
            "tool": 0o755, "too": 0o755, "dir": 0o755, "own": 0o6755, "own-uid": 0o755}
    assert end["files_copied"] == 0 and (mine / "in/tool").stat().st_ino == (mine / "in/too").stat().st_ino
    # Of a file that was there with these bits, too.
    (mine / "in/tool").chmod(0o4755)
    as_user(ALICE, mine, built / "tidecast", "copy", f"{theirs}/", mine / "in", code=1)
    assert mode(mine / "in/tool") == 0o755


def staging(source, name="") -> str:
    import hashlib
    identity = hashlib.sha256(os.uname().nodename.encode() + b"\0" + str(source.parent).encode() + b"\0\0" + source.name.encode()).hexdigest()
    return ".tidecast-copy-" + hashlib.sha256(identity.encode() + b"\0" + name.encode()).hexdigest()[:16]


@pytest.mark.parametrize("plant", ["open", "closed", "link", "file", "own"])
def test_a_staging_directory_of_another_user_is_not_used(plant, here, place):
    source, to, bait = place / "src/conf", place / "pub", place / "bait"
    source.parent.mkdir()
    source.write_bytes(os.urandom(9 << 20))
    to.mkdir()
    to.chmod(0o1777)
    bait.mkdir()
    (bait / "kept").write_text("x")
    at = to / staging(source)
    if plant in ("open", "closed"):
        at.mkdir()
        os.chown(at, BOB, BOB)
        at.chmod(0o777 if plant == "open" else 0o700)
    elif plant == "link":
        at.symlink_to(bait)
    elif plant == "file":
        at.write_text("x")
    else:
        # One of the copying user's own, which another moved there.
        bait.chmod(0o700)
        bait.rename(at)
        bait = at
    before = at.lstat()
    done(here, source, f"{to}/")
    assert (to / "conf").read_bytes() == source.read_bytes() and (to / "conf").stat().st_uid == 0
    after = at.lstat()
    assert (after.st_ino, after.st_uid, after.st_mode) == (before.st_ino, before.st_uid, before.st_mode)
    assert (bait / "kept").read_text() == "x" and (not at.is_dir() or plant in ("link", "own") or not list(at.iterdir()))
    assert len(list(to.iterdir())) == 2, "its own is removed"


def test_names_of_hosts_are_no_options(here, place):
    (place / "file").write_text("x")
    flag = place / "pwned"
    for bad in ("-oProxyCommand=touch pwned:x", "me@-oProxyCommand=touch${IFS}pwned:x", "[-oX]:x", "[-a,b]:/x", "a,-b:/x", "-l@h:x", "a b:/x",
                "h\n:/x", "h;true:/x", "$(true):/x", "host::module/x", "::1:/x", "tidecast://-h/x"):
        for words in ((bad, place / "to"), (place / "file", bad)):
            said = here("copy", "--", *words, code=2)
            assert "\x1b" not in said.err
    assert not pathlib.Path("pwned").exists() and not (place / "to").exists()
    # A host is refused before it is called, and behind -- a name of this host is a name.
    script = place / "ssh"
    script.write_text(f"#!/bin/sh\ntouch {flag}\nexit 255\n")
    script.chmod(0o755)
    assert "-h" in here("copy", "--ssh", script, "--", "-h:x", place / "to", code=2).err
    assert not flag.exists()
    (place / "-v").write_text("dash")
    said = subprocess.run(here.argv("copy", "--", "-v", "to"), cwd=place, env={**os.environ, **here.env}, capture_output=True, timeout=60)
    assert said.returncode == 0 and (place / "to").read_text() == "dash"
    (place / "to").unlink()
    for words in ("", "'unclosed", "''"):
        assert "--ssh" in here("copy", f"--ssh={words}", "h:/x", place / "to", code=2).err


def test_the_words_of_ssh_are_read_as_by_a_shell(built, here, place):
    (place / "a b").mkdir()
    script, log = place / "a b/ssh", place / "words"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {log}\nshift 2\n[ "$1" = me@h ] && shift\n[ "$1" = -- ] && shift\neval "exec $*"\n')
    script.chmod(0o755)
    program = place / "my bin/tide cast"
    program.parent.mkdir()
    program.symlink_to(built / "tidecast")
    (place / "file").write_text("x")
    done(here, place / "file", f"me@h:{place}/-to", "--ssh", f"'{script}' -o 'Port 7'", "--remote-program", program)
    assert (place / "-to").read_text() == "x"
    assert log.read_text().splitlines() == ["-o", "Port 7", "me@h", "--", f"'{program}'", "copy-end"]


def test_bcast_launches_on_hosts_only(here, place, monkeypatch):
    (place / "file").write_text("x")
    flag = place / "pwned"
    (place / "hosts").write_text(f"a\n-oProxyCommand=touch\t{flag}\n")
    for hosts in (f"-oProxyCommand=touch${{IFS}}{flag}", "a,-b", "a=-oX", "a=me@-oX", "@" + str(place / "hosts"), "a[1-2]=-b[1-2]", "a;b", "n:70000"):
        here("bcast", place / "file", "--to", place / "{host}", f"--hosts={hosts}", code=2)
    for variable in ("SLURM_JOB_NODELIST", "LSB_HOSTS"):
        here.env[variable] = "a1 -oProxyCommand=x"
        here("bcast", place / "file", "--to", place / "{host}", code=2)
        del here.env[variable]
    here.env["PBS_NODEFILE"] = str(place / "hosts")
    here("bcast", place / "file", "--to", place / "{host}", code=2)
    assert not flag.exists()


def test_python_sources_are_never_options(built, place):
    (place / "in").mkdir()
    (place / "in/-v.nc").write_text("x")
    (place / "in/--to-memory=1").write_text("y")
    (place / "t.py").write_text("""
import os, tidecast.copy
for bad in (("--ssh=touch pwned", "h:/x"), ("-oProxyCommand=touch pwned:/x",), ("",), ("a\\0b",)):
    try: list(tidecast.copy.files(*bad))
    except tidecast.Error as e: assert e.code, e
    else: raise SystemExit(f"{bad} is taken")
for bad in ("--", ):
    try: list(tidecast.copy.files("x", options=[bad]))
    except tidecast.Error as e: assert e.code == 2
    else: raise SystemExit(f"{bad} is taken")
os.chdir("in")
assert sorted(f.path for f in tidecast.copy.files("-v.nc", "--to-memory=1")) == ["--to-memory=1", "-v.nc"]
assert sum(b.bytes for b in tidecast.copy.blocks("-v.nc")) == 1
""")
    import sys
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parents[2] / "python"), "TIDECAST_PROGRAM": str(built / "tidecast")}
    said = subprocess.run([sys.executable, "-B", "t.py"], cwd=place, env=environment, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    assert not list(place.rglob("pwned"))


def test_names_are_shown_without_escape_sequences(here, ssh, place):  # noqa: F811
    evil = "x\x1b]0;title\x07\n\u202e"
    top = place / "a"
    top.mkdir()
    (top / evil).write_text("x")
    os.mkfifo(top / f"p{evil}")
    (place / "b").mkdir()
    (place / "b" / f"old{evil}").write_text("x")

    def clean(*words, code=0):
        said = here("copy", *words, code=code)
        text = said.out_path.read_bytes() + said.err_path.read_bytes()
        assert b"\x1b" not in text and b"\x07" not in text and "\u202e".encode() not in text, text
        return text.decode()

    said = clean("--dry-run", "--delete", f"{top}/", f"{place}/b/")
    assert "x\\x1b]0;title\\x07\\n\\u{202e}" in said and "delete: " in said
    clean(place / f"none{evil}", place / "c", code=1)
    clean(top, place / f"b/old{evil}", code=2)
    clean(f"{evil}:x", place / "c", code=2)
    clean(place / f"none{evil}", f"host:{place}/c", *ssh, code=1)
    # A program has them as they are.
    end = done(here, "--dry-run", f"{top}/", place / "c")
    assert any(change["path"].endswith(evil) for change in end["planned"])


# The cost of unknown clients

def certificate(place) -> ssl.SSLContext:
    needs("openssl")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-keyout", place / "k", "-out", place / "c", "-days", "3", "-subj", "/CN=x"],
                   check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(place / "c", place / "k")
    context.set_alpn_protocols(["tidecast-copy/1"])
    return context


def rss(proc) -> int:
    status = pathlib.Path(f"/proc/{proc.process.pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))


def frame(table: bytes, length=None, kind=2) -> bytes:
    import hashlib
    return struct.pack("<B3xIIQ", kind, len(table) if length is None else length, 0, 0) + table + hashlib.sha256(table).digest()


@pytest.mark.parametrize("plain", [False, True], ids=["tls", "plain"])
def test_strangers_without_the_key_cost_little(plain, here, server, place):  # noqa: F811
    """Six unknown clients that send as much as they can, at each step before authentication."""
    url = server(*(["--plain"] if plain else []), trust=("--as-root",))
    (place / "served/file").write_text("x")
    at = int(url.rpartition(":")[2].strip("/"))
    context, before = None if plain else certificate(place), rss(server.proc)
    request = frame(json.dumps({"version": 1, "session": None, "purpose": "request"}).encode())
    huge = [struct.pack("<B3xIIQ", 2, 64 << 20, 0, 0), struct.pack("<B3xIIQ", 1, 128 << 20, 4 << 20, 0)]
    kept = []
    for opening in (b"", request):
        for lie in huge:
            for _ in range(6):
                sock = socket.create_connection(("127.0.0.1", at), 20)
                kept.append(sock)
                try:
                    if context:
                        sock = context.wrap_socket(sock)
                        kept[-1] = sock
                    sock.settimeout(20)
                    if opening:
                        sock.sendall(opening)
                        sock.recv(300)
                    sock.sendall(lie)
                    for _ in range(8):
                        sock.sendall(bytes(1 << 20))
                except OSError:
                    continue
                pytest.fail("what is far too long is read on and on")
    assert rss(server.proc) - before < 32 << 20
    assert done(here, url + "file", place / "got", *(["--plain"] if plain else []))["files_copied"] == 1
    del kept


def test_a_handshake_ends_in_time_however_slowly_it_goes(server):  # noqa: F811
    url = server(trust=("--as-root",))
    sock = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2].strip("/"))), 20)
    began = time.monotonic()
    sock.settimeout(0.5)
    sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    while time.monotonic() - began < 60:
        try:
            sock.sendall(b"\0")
            if not sock.recv(100):
                break
        except TimeoutError:
            continue
        except OSError:
            break
    assert 5 < time.monotonic() - began < 30


@pytest.mark.alone
def test_half_open_connections_of_one_address_delay_nobody_of_another(here, server, place):  # noqa: F811
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    url = server(trust=("--as-root",))
    (place / "served/file").write_text("x" * 1000)
    at = int(url.rpartition(":")[2].strip("/"))

    def fetch() -> float:
        times = []
        for n in range(5):
            began = time.monotonic()
            assert done(here, url + "file", place / f"got{time.monotonic_ns()}")["files_copied"] == 1
            times.append(time.monotonic() - began)
        return sorted(times)[2]

    fetch()
    usual, before, strangers = fetch(), rss(server.proc), []
    try:
        for n in range(2300):
            sock = socket.socket()
            sock.bind(("127.0.0.9", 0))
            sock.settimeout(10)
            sock.connect(("127.0.0.1", at))
            strangers.append(sock)
            if n >= 2000:
                sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert len(os.listdir(f"/proc/{server.proc.process.pid}/task")) < 200
        times = []
        for _ in range(3):
            for sock in strangers[2000:]:
                try:
                    sock.sendall(b"\0")
                except OSError:
                    pass
            times.append(fetch())
        # Less than twice as long, with room for a busy machine.
        assert min(times) < max(2 * usual, usual + 1.0), (usual, times)
        assert peak_rss(server.proc) - before < 64 << 20
    finally:
        for sock in strangers:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
