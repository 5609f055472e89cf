"""What has decayed in a store: given to nobody, and repaired from other hosts. And what owners and administrators change."""
import json
import os
import pathlib
import subprocess
import time

import pytest
from support.callers import as_nobody, passable
from support.daemons import Host
from support.tidecast import wait_for

MIB = 1 << 20
NOBODY, OTHER = 65534, 65533
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: becoming another user needs root")


@pytest.fixture
def host(built, tmp_path, start):
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    host.serve()
    return host


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    for number in range(5):
        (data / f"part{number}").write_bytes(os.urandom(100_000 + number * 300_000))
    os.link(data / "part2", data / "sub" / "again")
    return data


def same(a: pathlib.Path, b: pathlib.Path) -> None:
    subprocess.run(["diff", "-r", a, b], check=True)


def decay(path: pathlib.Path) -> None:
    """Another byte in the midst of a file, which looks as before."""
    before = path.stat()
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(before.st_size // 2)
        byte = file.read(1)[0]
        file.seek(before.st_size // 2)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    path.chmod(before.st_mode)


def fsck(host, code: int = 0) -> dict:
    done = host.run("admin", "fsck", "--json")
    done.exits(code)
    return done.events()[-1]


def states(host) -> list[tuple[str, str]]:
    return [(cache["name"], cache["state"]) for cache in host.cache("ls")["caches"]]


def test_what_is_damaged_is_handed_to_nobody_and_comes_anew(site, data, tmp_path, start):
    origin, node = site.host("h1"), site.host("h2")
    origin.create("solo", data)
    job = start(["sleep", "1000"])
    got = node.cache("get", "h1/solo", "--wait", "1m", "--pid", job.process.pid)
    node.cache("pin", "h1/solo")
    origin.daemon.kill()
    decay(pathlib.Path(got["path"]) / "part2")
    for _ in range(2):
        report = fsck(node, code=1)
        assert (report["damaged"], report["repaired"], report["lost"], report["invalid"]) == (1, 0, 1, ["h1/solo@1"]), report
    assert states(node) == [("h1/solo@1", "invalid")]
    assert "path" not in node.cache("get", "h1/solo@1", "--wait", "2s", code=None)
    origin.serve()
    # The address was left alone for a while after it did not answer.
    wait_for("the origin to be asked again", lambda: node.cache("get", "h1/solo", "--wait", "5s", code=None).get("state") == "committed", timeout=90)
    again = node.cache("get", "h1/solo", "--to", tmp_path)
    same(data, pathlib.Path(again["path"]))
    same(data, tmp_path / "solo")
    assert again["pinned"]
    job.kill()
    wait_for("what was damaged to be gone", lambda: states(node) == [("h1/solo@1", "committed")])
    assert fsck(node)["clean"]


@pytest.mark.parametrize("private", [False, True])
def test_a_check_repairs_from_other_hosts_at_the_origin_too(site, data, private):
    origin, node = site.host("h1"), site.host("h2")
    made = origin.create("nt", data, *(["--private"] if private else []))
    got = node.cache("get", "h1/nt", "--wait", "1m")
    for host, path in ((node, got["path"]), (origin, made["path"])):
        before = host.cache("show", "h1/nt")
        decay(pathlib.Path(path) / "part2")
        (pathlib.Path(path) / "part4").chmod(0o644)
        (pathlib.Path(path) / "part4").write_bytes(b"short")
        report = fsck(host)
        assert (report["damaged"], report["repaired"], report["lost"]) == (2, 2, 0), report
        assert (report["restored"], report["invalid"], report["clean"]) == (["h1/nt@1"], [], False), report
        same(data, pathlib.Path(path))
        after = host.cache("show", "h1/nt")
        for word in ("cache", "name", "state", "mode", "lease", "path", "private"):
            assert after[word] == before[word], word
        assert fsck(host)["clean"]
    assert "repaired" in origin("admin", "fsck").out or fsck(origin)["clean"]


def test_a_damaged_manifest_is_brought_again(site, data):
    origin, node = site.host("h1"), site.host("h2")
    made = origin.create("nt", data)
    got = node.cache("get", "h1/nt", "--wait", "1m")
    for host, path in ((node, got["path"]), (origin, made["path"])):
        before = host.cache("show", "h1/nt")
        manifest = next(p / "manifest" for p in pathlib.Path(path).parents if (p / "manifest").exists())
        manifest.unlink()
        manifest.write_bytes(b"d4:infode")
        decay(pathlib.Path(path) / "part2")
        report = fsck(host)
        assert (report["restored"], report["invalid"], report["lost"]) == (["h1/nt@1"], [], 0), report
        same(data, pathlib.Path(path))
        after = host.cache("show", "h1/nt")
        assert {**after, "seconds": 0} == {**before, "seconds": 0}
        assert fsck(host)["clean"]


def test_without_a_copy_elsewhere_it_is_said_what_is_lost(host, data):
    made = host.create("nt", data)
    decay(pathlib.Path(made["path"]) / "part1")
    began = time.monotonic()
    report = fsck(host, code=1)
    assert time.monotonic() - began < 30 and report["lost"] == 1 and "head/nt@1" in report["message"], report
    host.cache("get", "nt", code=1)
    # Made again of the same files it is whole again, under the same number.
    assert host.create("nt", data)["name"] == "head/nt@1"
    assert states(host) == [("head/nt@1", "committed")] and fsck(host)["clean"]


def test_what_is_said_anew_of_a_cache_holds_or_is_refused(site, data, start):
    origin, node = site.host("h1"), site.host("h2")
    first = origin.create("nt", data, "--mode", "755")
    assert (first["mode"], first["private"], first["replicas"]) == (0o755, False, 1)
    own = origin.create("nt", data, "--private")
    assert (own["name"], own["cache"], own["mode"], own["private"], own["methods"]) == ("h1/nt@1", first["cache"], 0o700, True, ["direct"])
    assert pathlib.Path(own["path"]).parent.parent.stat().st_mode & 0o077 == 0, "its owner alone may enter"
    assert origin.create("nt", data)["private"], "what is not said stays"
    job = start(["sleep", "1000"])
    node.cache("get", "h1/nt", "--wait", "1m", "--pid", job.process.pid)
    wait_for("the copy to be known", lambda: "copies on other hosts (h2)" in origin.cache("create", "nt", data, "--mode", "755", code=None).get("message", ""))
    assert origin.create("nt", data)["private"], "nothing new is said"
    job.kill()
    node.cache("rm", "h1/nt")
    wait_for("the copy to be gone", lambda: origin.cache("create", "nt", data, "--mode", "750", "--replicas", "2", "--methods", "swarm", code=None).get("mode") == 0o750)
    shown = origin.cache("show", "nt")
    assert (shown["private"], shown["replicas"], shown["methods"]) == (False, 2, ["swarm"])
    for words in (["--private", "--mode", "755"], ["--private", "--methods", "swarm,direct"]):
        assert "private" in origin.create("other", data, *words, code=2)["message"]
        create = {"name": "other", "private": True, **({"mode": 0o755} if "--mode" in words else {"methods": ["swarm"]})}
        status, said = origin.http("POST", "/v1/caches", b"", {"tidecast-create": json.dumps(create)})
        assert status == 400 and "private" in said["error"], said
    assert origin.create("other", data, "--private", "--mode", "700", "--methods", "direct")["private"]


@needs_root
def test_who_may_not_read_any_more_reads_no_more(host, data, tmp_path):
    passable(host.home)
    path = host.create("nt", data)["path"]
    other = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]
    reads = lambda: subprocess.run([*other, "ls", path], capture_output=True).returncode == 0  # noqa: E731
    assert reads()
    host.create("nt", data, "--private")
    assert not reads() and as_nobody(lambda: host.http("GET", "/v1/caches")[1]) == []
    host.create("nt", data, "--mode", "755")
    assert reads()
    decay(pathlib.Path(path) / "part1")
    fsck(host, code=1)
    assert not reads(), "nor what is damaged"


@needs_root
def test_what_is_denied_leaves_nothing_and_no_claim(built, tmp_path, start):
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    passable(host.home)
    host.serve("--capacity", "5MiB")
    (tmp_path / "large").write_bytes(os.urandom(6 * MIB))
    (tmp_path / "small").write_bytes(os.urandom(1000))
    assert "no space in the store" in host.create("nt", tmp_path / "large", code=1)["message"]
    assert states(host) == []
    host("publish", tmp_path / "small", "-o", tmp_path / "m.torrent", "--format", "v2")
    manifest, head = (tmp_path / "m.torrent").read_bytes(), {"tidecast-create": json.dumps({"name": "nt"})}
    status, made = as_nobody(lambda: host.http("POST", "/v1/caches", manifest, head))
    assert status == 200, made
    refused = host.create("nt", tmp_path / "small", code=1)["message"]
    assert "is not available" in refused and "owner" not in refused and "nobody" not in refused


@needs_root
def test_a_users_daemon_serves_its_user_and_root_and_nobody_else(built, tmp_path, start, data):
    class Users(Host):
        def argv(self, *words):
            return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", *super().argv(*words)]

    host = Users(built / "tidecast", tmp_path / "users", start, "nobody.head")
    host.home.mkdir(exist_ok=True)
    os.chown(host.home, NOBODY, NOBODY)
    for path in [*tmp_path.parents, tmp_path, host.home]:
        path.chmod(path.stat().st_mode | 0o055)
    host.serve()
    made = host.create("nt", data)
    assert host.socket.stat().st_mode & 0o777 == 0o600
    become = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", "--"]
    ask = lambda path: [*become, "curl", "-s", "--unix-socket", host.socket, f"http://daemon{path}"]  # noqa: E731
    if subprocess.run(["curl", "--version"], capture_output=True).returncode:
        pytest.skip("SKIPPED: curl is not installed")
    assert subprocess.run(ask("/v1/caches")).returncode, "it cannot even connect"
    # Where the file lets him, the kernel tells who he is.
    host.socket.chmod(0o666)
    for path in ("/v1/caches", "/v1/daemon", f"/v1/caches/{made['cache']}/manifest", "/v1/openapi.json"):
        said = json.loads(subprocess.run(ask(path), capture_output=True, check=True).stdout)
        assert said["kind"] == "forbidden", said
    assert host.http("GET", "/v1/caches")[0] == 200, "root may ask"
    # The name by which other daemons find it gives them no more than what they need.
    names = [line.split()[-1] for line in pathlib.Path("/proc/net/unix").read_text().splitlines() if f"/{NOBODY}/{host.daemon.process.pid}" in line]
    kin = lambda *words: [*become, "curl", "-s", "--abstract-unix-socket", names[0].lstrip("@"), *words]  # noqa: E731
    answer = lambda *words: json.loads(subprocess.run(kin(*words), capture_output=True, check=True).stdout)  # noqa: E731
    assert answer("http://daemon/v1/daemon")["name"] == "nobody.head"
    get = ["-H", "content-type: application/json", "-d"]
    place = {"name": "nt", "place": {"dir": str(tmp_path), "name": "x"}}
    for words in (["http://daemon/v1/caches"], ["-X", "POST", "http://daemon/v1/fsck"], [*get, json.dumps({"name": "nt"}), "http://daemon/v1/get"],
                  [*get, json.dumps({**place, "copy_for": f"uid{OTHER}"}), "http://daemon/v1/get"]):
        assert answer(*words)["kind"] == "forbidden", words


def test_a_lower_capacity_takes_nothing_that_is_still_wanted(host, tmp_path):
    for name in ("kept", "over"):
        (tmp_path / name).write_bytes(os.urandom(2 * MIB))
    host.create("kept", tmp_path / "kept")
    host.create("over", tmp_path / "over", "--lease", "1s")
    time.sleep(1.1)
    refused = host.run("admin", "limit", "--capacity", "1kB", "--json")
    refused.exits(1)
    assert "leased caches" in refused.events()[-1]["message"]
    host("admin", "limit", "--capacity", "3MiB")
    wait_for("what is over to be evicted", lambda: host.names() == ["head/kept@1"])
    # Nor when the daemon is started so.
    host.daemon.kill()
    host.serve("--capacity", "1MiB")
    time.sleep(6)
    assert host.names() == ["head/kept@1"]
    status = host.http("GET", "/v1/daemon")[1]
    assert status["capacity"] > 2 * MIB and status["configured"] == MIB
    assert "capacity 1 MiB, exceeded until" in host("admin", "status").out
