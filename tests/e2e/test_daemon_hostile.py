"""A user who is not the owner, a host without right, and a disk without room: they get nothing, learn nothing and break nothing."""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import time

import pytest
from support.callers import NOBODY, Calls, as_nobody, passable
from support.daemons import Host, Site
from support.tidecast import wait_for

MIB = 1 << 20
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: becoming another user, and mounting, need root")


@pytest.fixture
def host(built, tmp_path, start):
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    host.serve()
    passable(host.home)
    return host


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    data = tmp_path / "secret"
    data.mkdir()
    for number in range(12):
        (data / f"part{number}").write_bytes(os.urandom(20_000))
    return data


@pytest.fixture
def place(tmp_path):
    """A directory of the other user's."""
    place = tmp_path / "theirs"
    place.mkdir()
    os.chown(place, NOBODY, NOBODY)
    return place


@needs_root
def test_every_call_says_the_same_of_anothers_cache_and_of_none(host, data, place):
    made = host.create("own", data, "--private")
    before = host.cache("show", "own")
    host.create("mine", data / "part1", "--mode", "700")
    calls = Calls(host.http("GET", "/v1/openapi.json")[1])
    said: dict[str, list] = {}
    targets = [("head/own@1", made["cache"]), ("head/ghost@7", "00000000000000ff")]
    for name, id in targets:
        before_it = sum(json.loads(line)["who"] == "nobody" for line in (host.dir / "audit.log").read_text().splitlines())

        def ask(name=name, id=id):
            return {key: host.http(method, path, body, headers) for key, method, path, body, headers in calls.all(name, id, str(place))}
        for key, (status, answer) in as_nobody(ask).items():
            if "/v1/history" in key:
                # His own tries, with their times: those of before were about the other one.
                assert all(event["who"] == "nobody" for event in answer), answer
                answer = [{**event, "at": 0} for event in answer[before_it if key.endswith(" 0") else 0:]]
            text = json.dumps(answer).replace(name, "NAME").replace(id, "ID").replace(name.split("/")[1].split("@")[0], "SHORT")
            said.setdefault(key, []).append((status, text))
    assert len(said) > 15
    for key, (real, none) in said.items():
        # What everybody is told is the same for everybody; times of events and free space may differ by themselves.
        if key.startswith(("GET /v1/daemon ", "GET /v1/openapi")) or ("/v1/site/" in key and real[0] == 200):
            continue
        assert real == none, key
        if "{id}" in key:
            # 426: it asks for an upgrade that only the caller's own client knows, before it looks for the cache.
            assert real[0] in (404, 403, 400, 426), (key, real)
        if "/admin/" in key or "fsck" in key:
            assert real[0] == 403, (key, real)
        assert "secret" not in real[1] and "part1" not in real[1], (key, real)
    after = host.cache("show", "own")
    for word in ("state", "lease", "pinned", "owner", "mode", "users", "path"):
        assert after[word] == before[word], "nothing has come of it"
    assert not list(place.iterdir())
    assert host.http("POST", "/v1/fsck")[1]["clean"]


@pytest.mark.alone
@needs_root
def test_what_is_anothers_takes_as_long_as_what_is_not_there(host, data):
    made = host.create("own", data, "--private")

    def times() -> dict[str, list[float]]:
        all: dict[str, list[float]] = {}
        for _ in range(150):
            for kind, id, name in (("real", made["cache"], "head/own@1"), ("none", "00000000000000ff", "head/ghost@1")):
                for method, path, body in (("GET", f"/v1/caches/{id}", None), ("POST", f"/v1/caches/{id}/pin", {}), ("POST", "/v1/get", {"name": name})):
                    start = time.perf_counter()
                    assert host.http(method, path, body)[0] >= 400
                    all.setdefault(f"{kind} {path.split('/')[-1] if path != '/v1/get' else 'get'}".replace(id, "show"), []).append(time.perf_counter() - start)
        return all

    took = {key: statistics.median(all) for key, all in as_nobody(times).items()}
    for call in ("show", "pin", "get"):
        real, none = took[f"real {call}"], took[f"none {call}"]
        # Asking over the socket takes a few hundred microseconds; a look at the disk or a manifest would be seen.
        assert abs(real - none) < 0.25 * max(real, none) + 100e-6, (call, took)


@needs_root
def test_a_manifest_that_names_anothers_files_gets_none_of_them(host, data, place, tmp_path):
    host.create("own", data, "--private")
    other = tmp_path / "other"
    other.mkdir()
    for number in range(12):
        (other / f"part{number}").write_bytes(os.urandom(20_000))
    manifests = {}
    for kind, path in (("real", data), ("none", other)):
        host("publish", path, "-o", tmp_path / f"{kind}.torrent", "--format", "v2")
        manifests[kind] = (tmp_path / f"{kind}.torrent").read_bytes()

    def create() -> dict:
        return {kind: host.http("POST", "/v1/caches", manifest, {"tidecast-create": json.dumps({"name": kind})}) for kind, manifest in manifests.items()}

    made = as_nobody(create)
    assert made["real"][0] == made["none"][0] == 200
    assert made["real"][1]["files"] == made["none"][1]["files"], "all of it would have to be sent"
    # Without the bytes there is no cache, and what nobody sends nobody gets.
    tried = as_nobody(lambda: host.http("PUT", f"/v1/caches/{made['real'][1]['cache']}/content", b"\0" * 240_000))
    assert tried[0] == 422, tried
    assert as_nobody(lambda: host.http("POST", "/v1/get", {"name": "real", "wait": 20, "place": {"dir": str(place), "name": "x"}}))[0] >= 400
    assert not list(place.iterdir())
    assert host.http("POST", "/v1/fsck")[1]["clean"]


@needs_root
def test_tricks_with_places_and_links_get_nowhere(host, data, place, tmp_path):
    host.create("all", data)
    outside = tmp_path / "outside"
    outside.mkdir()
    (place / "link").symlink_to(outside)
    (place / "taken").mkdir()
    tricks = [
        {"dir": "/etc", "name": "x"}, {"dir": str(outside), "name": "x"}, {"dir": str(place / "link"), "name": "x"},
        {"dir": str(place), "name": "../x"}, {"dir": str(place), "name": "a/b"}, {"dir": str(place), "name": ".."}, {"dir": str(place), "name": ""},
        {"dir": str(place), "name": "taken"}, {"dir": str(place), "name": "x", "subpath": "../../.."}, {"dir": str(place), "name": "x", "subpath": "/etc/passwd"},
        {"dir": str(place), "name": "x", "subpath": "part1/../../manifest"}, {"dir": "relative", "name": "x"}, {"dir": str(place / ".." / "outside"), "name": "x"},
    ]
    for how in ("hardlink", "copy"):
        answers = as_nobody(lambda how=how: [host.http("POST", "/v1/get", {"name": "all", "place": {"how": how, **trick}}) for trick in tricks])
        for trick, (status, answer) in zip(tricks, answers):
            assert 400 <= status < 500, (how, trick, status, answer)
    assert sorted(p.name for p in place.iterdir()) == ["link", "taken"] and not list(outside.iterdir())
    for path in ("/v1/caches/../caches", "/v1/caches/%2e%2e%2f", "/v1//caches", "/v1/caches/0/../0"):
        assert as_nobody(lambda path=path: host.http("GET", path))[0] in (400, 404), path
    # One's own process is kept for, another's is not.
    assert as_nobody(lambda: host.http("POST", "/v1/get", {"name": "all", "pid": 1}))[0] == 403


class Users(Host):
    """A daemon that a user without privilege runs."""

    def __init__(self, site: Site, name: str):
        super().__init__(site.program, site.base / name, site.start, name)
        pem = site.certificate(f"user:{name.split('.')[0]}")
        for path in (self.home, pem):
            os.chown(path, NOBODY, NOBODY)
        passable(site.base)
        peers = [word for known in site.hosts for word in ("--peer", f"{known.name}={known.listen}")]
        self.serve("--listen", f"127.0.0.1:{site.free_port()}", "--trust", site.trust, "--certificate", pem, *peers)

    def argv(self, *words) -> list[str]:
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", *super().argv(*words)]


@needs_root
def test_a_users_daemon_gets_nothing_of_anothers(site, data):
    origin = site.host("head")
    origin.create("own", data, "--private")
    eve = Users(site, "nobody.node1")
    eve.create("hers", data / "part2")
    answers = [eve.cache("get", name, "--wait", "20s", code=1) for name in ("head/own", "head/ghost")]
    assert [a["reason"] for a in answers] == ["absent", "absent"]
    assert answers[0]["message"].replace("own", "NAME") == answers[1]["message"].replace("ghost", "NAME")


class Disk:
    """A small file system of its own for a daemon."""

    def __init__(self, at: pathlib.Path, options: str):
        self.at = at
        at.mkdir(parents=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", at], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"SKIPPED: no file system can be mounted here: {done.stderr.strip()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.at], check=True)

    def fill(self, what: str) -> None:
        """Somebody else takes all of it."""
        junk = self.at / "junk"
        junk.mkdir(exist_ok=True)
        try:
            if what == "bytes":
                with open(junk / "big", "wb") as big:
                    while True:
                        big.write(b"x" * 65536)
            for number in range(1_000_000):
                (junk / str(number)).touch()
        except OSError:
            pass

    def empty(self) -> None:
        shutil.rmtree(self.at / "junk")


@needs_root
@pytest.mark.parametrize(("what", "options"), [("bytes", "size=48m"), ("inodes", "size=200m,nr_inodes=600")])
def test_a_full_disk_is_said_and_nothing_is_broken(site, tmp_path, what, options):
    origin = site.host("head")
    trees = []
    for number in range(3):
        tree = tmp_path / f"tree{number}"
        tree.mkdir()
        for file in range(40):
            (tree / f"f{file}").write_bytes(os.urandom(100_000))
        trees.append(tree)
    with Disk(tmp_path / "node1" / "store", options) as disk:
        node = site.host("node1")
        first = node.create("first", trees[0])
        node.cache("pin", "first")
        disk.fill(what)
        # Before any transfer the reason is reported, for create and for get; present caches are still available.
        for name, said in (("made", node.create("made", trees[1], code=1)), ("fetched", origin.create("fetched", trees[1]) and node.cache("get", "head/fetched", "--wait", "20s", code=1))):
            assert any(word in said["message"] for word in ("no space", "disk is full")), (name, said)
        assert node.cache("get", "first")["path"] == first["path"]
        disk.empty()
        assert node.create("made", trees[1])["state"] == "committed"
        node.cache("pin", "made")  # else it is evicted when the disk is full, and there is room
        # In the midst of it: room was kept, and somebody else has taken it.
        node("publish", trees[2], "-o", tmp_path / "m.torrent", "--format", "v2")
        manifest = (tmp_path / "m.torrent").read_bytes()
        content = b"".join((trees[2] / f).read_bytes() for f in sorted(p.name for p in trees[2].iterdir()))
        status, begun = node.http("POST", "/v1/caches", manifest, {"tidecast-create": json.dumps({"name": "late"})})
        assert status == 200, begun
        disk.fill(what)
        status, said = node.http("PUT", f"/v1/caches/{begun['cache']}/content", content)
        assert (status, said.get("kind")) == (507, "full"), (status, said)
        assert "late" not in json.dumps([c for c in node.http("GET", "/v1/caches")[1] if c["state"] == "committed"])
        # Killed and started while the disk is full; removals make room, and then it continues.
        node.daemon.kill()
        node.serve()
        node.cache("unpin", "first")
        node.cache("rm", "first", code=None)  # or it was evicted: others need the room
        disk.empty()
        assert node.create("late", trees[2])["state"] == "committed"
        assert node.cache("get", "head/fetched", "--wait", "1m")["state"] == "committed"
        assert node.http("POST", "/v1/fsck")[1]["clean"]
        node.daemon.kill()


def test_under_pressure_the_expired_go_and_the_pinned_and_used_stay(built, tmp_path, start):
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    host.serve("--capacity", "20MiB")
    trees = {}
    for name in ("expired", "pinned", "used", "old", "new", "large"):
        trees[name] = tmp_path / name
        trees[name].write_bytes(os.urandom(17 * MIB if name == "large" else 5 * MIB))
    host.create("expired", trees["expired"], "--lease", "1s")
    host.create("pinned", trees["pinned"])
    host.cache("pin", "pinned")
    job = start(["sleep", "1000"])
    host.create("used", trees["used"])
    host.cache("get", "used", "--pid", job.process.pid)
    time.sleep(1.1)
    host.create("old", trees["old"])
    assert host.names() == ["head/old@1", "head/pinned@1", "head/used@1"], "whose lease is over goes first"
    host.create("new", trees["new"])
    assert host.names() == ["head/new@1", "head/pinned@1", "head/used@1"], "then what was used longest ago, and is not in use"
    denied = host.create("large", trees["large"], code=1)
    assert "pinned" in denied["message"], denied
    assert "too" in (said := host.create("huge", *[trees[n] for n in ("large", "old")], code=1))["message"] or "can hold at most" in said["message"]
    host.cache("rm", "pinned", code=1)
    host.cache("rm", "used", code=1)
    job.kill()
    host.cache("rm", "used")
    assert host.http("POST", "/v1/fsck")[1]["clean"]


def test_an_expired_certificate_is_worth_nothing(site, data):
    origin = site.host("head")
    origin.create("before", data)
    late = site.host("late", pem=site.certificate("host:late", "--lifetime", "15s"))
    assert late.cache("get", "head/before", "--wait", "10s")["method"] == "SWARM"
    tries = iter(range(1000))

    def refused() -> bool:
        name = f"try{next(tries)}"
        (data / name).write_text(name)
        origin.create(name, data / name)
        return late.cache("get", f"head/{name}", "--wait", "10s", code=None).get("reason") == "unreachable"

    wait_for("the certificate to be worth nothing", refused)
    # Nor does a daemon start with it.
    late.daemon.kill()
    assert "has expired" in late("daemon", "--dir", late.dir, "--name", "late", *late.words, code=1).err
