"""Caches that a host's daemon keeps, and that daemons bring to each other."""
import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.parse

import pytest
from support.callers import as_nobody, passable
from support.daemons import Host
from support.tidecast import wait_for

MIB = 1 << 20


@pytest.fixture
def host(built, tmp_path, start):
    """A host alone."""
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    host.serve()
    return host


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    """A directory worth keeping."""
    data = tmp_path / "data"
    (data / "sub").mkdir(parents=True)
    for number in range(20):
        (data / f"part{number}").write_bytes(os.urandom(number * 50_000))
    (data / "sub" / "run").write_text("#!/bin/sh\necho here\n")
    (data / "sub" / "run").chmod(0o755)
    (data / "sub" / "link").symlink_to("../part1")
    os.link(data / "part2", data / "again")
    return data


def same(a: pathlib.Path, b: pathlib.Path) -> None:
    subprocess.run(["diff", "-r", a, b], check=True)


def test_a_cache_has_versions_a_lease_and_an_end(host, data):
    made = host.create("nt", data, "--lease", "1h")
    assert (made["name"], made["state"], made["bytes"]) == ("head/nt@1", "committed", made["sent"] + 100_000), "a hard link is sent once"
    assert host.create("nt", data)["name"] == "head/nt@1", "the same content is the same version"
    (data / "part3").write_bytes(b"other")
    second = host.create("nt", data)
    assert (second["name"], second["sent"]) == ("head/nt@2", 5), "only what changed is sent"
    assert host.names() == ["head/nt@1", "head/nt@2"]
    same(data, pathlib.Path(second["path"]))

    assert host.cache("extend", "nt@1", "9d")["lease"] > made["lease"] + 7 * 86400
    longest = host("cache", "extend", "nt@1", "365d")
    assert "the lease is 90d" in longest.err and "instead of 365d" in longest.err, longest.err
    assert host.cache("pin", "nt@1")["pinned"]
    host.cache("rm", "nt@1", code=1)
    assert not host.cache("unpin", "nt@1")["pinned"]
    host.cache("rm", "nt@1")
    assert host.names() == ["head/nt@2"]
    assert "head/nt@2" in host("cache", "ls").out and "CacheName" in host("cache", "show", "nt").out
    whats = [event["what"] for event in host.cache("history", "nt")["events"]]
    assert whats.count("commit") == 3 and "remove" in whats
    absent = host.cache("show", "other", code=1)
    assert "no cache other" in absent["message"]


def test_a_cache_is_handed_out_by_every_kind_of_link(host, data, tmp_path):
    path = pathlib.Path(host.create("nt", data)["path"])
    for kind in ("symlink", "hardlink", "reflink", "copy"):
        to = tmp_path / kind
        to.mkdir()
        host.cache("get", "nt", "--to", to, "--link", kind)
        same(data, to / "nt")
    assert (tmp_path / "symlink" / "nt").readlink() == path
    assert (tmp_path / "hardlink" / "nt" / "part9").stat().st_ino == (path / "part9").stat().st_ino
    assert (tmp_path / "copy" / "nt" / "part9").stat().st_ino != (path / "part9").stat().st_ino
    assert (tmp_path / "hardlink" / "nt" / "sub" / "run").stat().st_mode & 0o777 == 0o555, "nobody writes what others share"
    assert subprocess.run([tmp_path / "symlink" / "nt" / "sub" / "run"], capture_output=True).stdout == b"here\n"
    for kind in ("hardlink", "copy"):
        assert os.path.samefile(tmp_path / kind / "nt/part2", tmp_path / kind / "nt/again"), "names of one file stay that"
    (tmp_path / "copy" / "nt" / "mine").write_text("a copy is the job's own")
    host.cache("get", "nt", "--to", tmp_path / "copy", "--link", "copy", code=1)


def test_a_link_of_a_job_before_gives_way_to_the_cache_of_this_one(host, data, tmp_path):
    """The directory is shared or kept: the link leads to an older version, to a store of another host, or to nothing any more."""
    job, elsewhere = tmp_path / "job", tmp_path / "elsewhere"
    job.mkdir()
    host.create("nt", data)
    host.cache("get", "nt", "--to", job)
    (data / "part4").write_bytes(b"a new version")
    path = pathlib.Path(host.create("nt", data)["path"])
    for before in (None, "/var/lib/other/depot/caches/00000000000000ff/tree/nt", path.with_name("gone")):
        if before:
            (job / "nt").unlink()
            (job / "nt").symlink_to(before)
        host.cache("get", "nt", "--to", job)
        assert (job / "nt").readlink() == path
    elsewhere.mkdir()
    for theirs in (elsewhere, elsewhere / "caches/00000000000000ff/nt", elsewhere / "caches/short/tree/nt"):
        (job / "nt").unlink()
        (job / "nt").symlink_to(theirs)
        host.cache("get", "nt", "--to", job, code=1)
        assert (job / "nt").readlink() == theirs, "a link of the user's own stays"


def test_several_files_make_one_cache(host, data):
    made = host.create("some", data / "part4", data / "part5", data / "sub")
    assert sorted(p.name for p in pathlib.Path(made["path"]).iterdir()) == ["part4", "part5", "sub"]
    assert host.create("some", data / "part4", data / "part5", data / "sub")["name"] == made["name"]
    host.create("bad", data / "part4", data / "sub" / "run", code=1)


def test_more_than_was_declared_is_refused_and_less_is_no_cache(host, data, tmp_path):
    host("publish", data / "part9", "-o", tmp_path / "m.torrent", "--format", "v2")
    manifest = (tmp_path / "m.torrent").read_bytes()
    head = {"tidecast-create": json.dumps({"name": "p"}), "content-type": "application/x-bittorrent"}
    content = (data / "part9").read_bytes()
    for body, status in [(content + b"x", 413), (content[:-1], 400), (content[:-1] + b"x", 422), (content, 200)]:
        got, made = host.http("POST", "/v1/caches", manifest, head)
        assert got == 200, made
        got, answer = host.http("PUT", f"/v1/caches/{made['cache']}/content", body)
        assert got == status, answer
        assert status == 200 or "head/p@1" not in host.names()
    assert host.cache("show", "p")["state"] == "committed"
    got, _ = host.http("PUT", f"/v1/caches/{made['cache']}/content", content)
    assert got == 409, "what is committed never changes"
    for path in ("/v1/caches/zz", "/v1/caches?shape=1", "/v1/nothing"):
        assert host.http("GET", path)[0] in (400, 404)
    assert host.http("GET", "/v1/openapi.json")[1]["openapi"].startswith("3.")


def test_what_is_committed_survives_a_kill(host, data):
    host.create("nt", data)
    for _ in range(3):
        host.daemon.signal(signal.SIGKILL)
        host.daemon.wait()
        host.serve()
        assert host.names() == ["head/nt@1"]
    same(data, pathlib.Path(host.cache("show", "nt")["path"]))
    status, report = host.http("POST", "/v1/fsck")
    assert status == 200 and report["clean"], report


def test_a_host_brings_a_cache_from_another_and_serves_it_when_the_origin_is_gone(site, data, tmp_path):
    origin = site.host("head")
    first, second = site.host("node1"), site.host("node2")
    origin.create("nt", data)
    got = first.cache("get", "head/nt", "--to", tmp_path, "--wait", "1m")
    assert (got["name"], got["method"]) == ("head/nt@1", "SWARM")
    same(data, tmp_path / "nt")
    assert first.cache("get", "head/nt")["fetched_seconds"] == 0, "the second job has it at once"
    where = origin.cache("where", "nt")["holders"]
    assert {h["host"] for h in where} == {"head", "node1"}
    origin.daemon.signal(signal.SIGKILL)
    origin.daemon.wait()
    got = second.cache("get", "head/nt", "--wait", "1m")
    same(data, pathlib.Path(got["path"]))
    third = second.cache("get", "head/none", "--wait", "10s", code=1)
    assert third["reason"] == "absent"


def test_a_new_version_moves_only_what_changed(site, data):
    origin, node = site.host("head"), site.host("node1")
    origin.create("nt", data)
    node.cache("get", "head/nt@1", "--wait", "1m")
    (data / "part7").write_bytes(b"seven")
    origin.create("nt", data)
    before = node.http("GET", "/v1/daemon")[1]["received"]
    got = node.cache("get", "head/nt@2", "--wait", "1m")
    same(data, pathlib.Path(got["path"]))
    received = node.http("GET", "/v1/daemon")[1]["received"] - before
    assert received < 100_000, received
    shared = [pathlib.Path(p) / "part9" for p in (got["path"], node.cache("show", "head/nt@1")["path"])]
    assert shared[0].stat().st_ino == shared[1].stat().st_ino


def test_a_private_cache_travels_by_direct_and_replicas_are_offered(site, data):
    origin, node = site.host("head"), site.host("node1")
    made = origin.create("own", data, "--private")
    assert (made["mode"], made["methods"]) == (0o700, ["direct"])
    assert node.cache("get", "head/own", "--wait", "1m")["method"] == "DIRECT"
    origin.create("nt", data / "part9", "--replicas", "2", "--policy", 'TARGET.Name == "node1"')
    node.cache("get", "head/nt", "--wait", "1m")
    assert origin.cache("replicate", "nt", "--to", "node1")["offered"] == [{"host": "node1", "answer": "ok"}]
    assert origin.cache("replicate", "nt", "--to", "head")["offered"] == [{"host": "head", "answer": "ok", "why": "this host has it"}]
    other = origin.create("other", data / "part8", "--requirements", 'TARGET.Name == "elsewhere"')["name"]
    refused = node.cache("get", other, "--wait", "1m", code=1)
    assert "requirements" in refused["message"] and refused["reason"] == "rejected"


def test_strangers_and_the_revoked_get_nothing(site, data):
    origin = site.host("head")
    origin.create("nt", data)
    site.admin("ca", "init", site.base / "other", "--name", "another site")
    pem = site.certificate("host:mallory", ca=site.base / "other")
    stranger = site.host("mallory", pem=pem)
    failed = stranger.cache("get", "head/nt", "--wait", "20s", code=1)
    assert failed["reason"] == "unreachable"
    fine = site.host("node5")
    fine.cache("get", "head/nt", "--wait", "1m")
    late = site.host("node6")
    late.cache("get", "head/nt", "--wait", "1m")
    site.admin("ca", "revoke", site.ca, "host:node6")
    site.believe(site.ca, "trust")
    tries = iter(range(1000))

    def refused() -> bool:
        name = f"try{next(tries)}"
        origin.create(name, data / "part1")
        return late.cache("get", f"head/{name}", "--wait", "20s", code=None).get("reason") == "unreachable"

    wait_for("the revocation to be read", refused)


def test_another_user_gets_nothing_of_a_private_cache(host, data, tmp_path):
    if os.geteuid():
        pytest.skip("SKIPPED: becoming another user needs root")
    passable(host.home)
    made = host.create("own", data, "--private")
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]

    def other(*words) -> subprocess.CompletedProcess:
        return subprocess.run([*become, *host.argv(*words)], capture_output=True, text=True, env={**os.environ, **host.env}, timeout=60)

    assert json.loads(other("cache", "ls", "--json").stdout.splitlines()[-1])["caches"] == []
    for words in (["show", "own"], ["get", "own"], ["get", "head/own@1"], ["rm", "own"], ["extend", "own", "1d"], ["where", "own"]):
        done = other("cache", *words)
        assert done.returncode == 1, (words, done.stdout)
    # By its id, too, it appears not to exist.
    said = []
    for cache in (made["cache"], "00000000000000ff"):
        answer = as_nobody(lambda path=f"/v1/caches/{cache}": repr(host.http("GET", path)))
        said.append(answer.replace(cache, "ID"))
    assert said[0] == said[1] and said[0].startswith("(404")
    read = subprocess.run([*become, "ls", made["path"]], capture_output=True, text=True)
    assert read.returncode and "Permission denied" in read.stderr
    shared = host.create("all", data)
    assert subprocess.run([*become, "cat", f"{shared['path']}/part9"], capture_output=True).stdout == (data / "part9").read_bytes()
    write = subprocess.run([*become, "sh", "-c", f"echo x > {shared['path']}/part9"], capture_output=True, text=True)
    assert write.returncode


class Starter:
    """HTCondor's starter, as a plugin sees it."""

    def __init__(self, host, tmp_path):
        self.host, self.dir = host, tmp_path / "scratch"
        self.dir.mkdir()
        self.plugin = tmp_path / "tidecast_plugin"
        self.plugin.symlink_to(host.program)

    def run(self, *words) -> subprocess.CompletedProcess:
        return subprocess.run([self.plugin, *map(str, words)], capture_output=True, text=True, env={**os.environ, **self.host.env},
                              cwd=self.dir, timeout=120)

    def begin(self, *words) -> subprocess.Popen:
        return subprocess.Popen([self.plugin, *map(str, words)], env={**os.environ, **self.host.env}, cwd=self.dir)

    def given(self, text: str | None) -> tuple[subprocess.CompletedProcess, list[str]]:
        """The result for this input; None: there is no such file."""
        name = self.dir / (".in" if text is not None else ".none")
        if text is not None:
            name.write_text(text)
        (self.dir / ".out").write_text(" " * 4096)
        done = self.run("-infile", name, "-outfile", self.dir / ".out")
        return done, [line for line in (self.dir / ".out").read_text().splitlines() if line.strip()]

    def transfer(self, *urls, upload=False) -> tuple[int, list[str]]:
        ads = "".join(f'[ LocalFileName = "{self.dir / url.rsplit("/", 1)[-1]}"; Url = "{url}" ]\n' for url in urls)
        (self.dir / ".in").write_text(ads + "[ PluginData = [ a = 1 ] ]\n")
        (self.dir / ".out").write_text(" " * 4096)
        done = self.run("-infile", self.dir / ".in", "-outfile", self.dir / ".out", *(["-upload"] if upload else []))
        out = (self.dir / ".out").read_text()
        assert len(out) >= 4096, "the room that HTCondor made is kept"
        return done.returncode, [line for line in out.splitlines() if line.strip()]


def test_the_plugin_says_what_it_is_and_brings_what_a_job_names(site, data, tmp_path):
    origin, node = site.host("head"), site.host("node1")
    origin.create("nt", data)
    starter = Starter(node, tmp_path)
    said = starter.run("-classad").stdout
    for line in ('PluginType = "FileTransfer"', "ProtocolVersion = 4", 'SupportedMethods = "tidecast"', "MultipleFileSupport = true", "PluginVersion = "):
        assert line in said
    code, ads = starter.transfer("tidecast://head/nt", "tidecast://head/nt@1/part9")
    assert code == 0 and len(ads) == 2
    assert all("TransferSuccess = true" in ad for ad in ads), ads
    assert f"TransferFileBytes = {(data / 'part9').stat().st_size}" in ads[1]
    same(data, starter.dir / "nt")
    assert (starter.dir / "nt").is_symlink()
    assert (starter.dir / "part9").read_bytes() == (data / "part9").read_bytes()


def test_the_plugin_fails_whatever_fails(site, data, tmp_path):
    node = site.host("node1")
    starter = Starter(node, tmp_path)
    node.create("nt", data)
    bad = ["tidecast://node1/none", "tidecast://node1", "tidecast://node1/nt/../../../etc/passwd", "tidecast://node1/nt/absent", "http://x/y"]
    for url in bad:
        code, ads = starter.transfer("tidecast://node1/nt", url)
        assert code != 0, url
        assert "TransferSuccess = true" in ads[0] and "TransferSuccess = false" in ads[1] and "TransferErrorData" in ads[1], ads
        (starter.dir / "nt").unlink()
    code, ads = starter.transfer("tidecast://node1/nt", upload=True)
    assert code != 0 and "TransferSuccess = false" in ads[0] and 'TransferType = "upload"' in ads[0]


def test_the_plugin_gives_up_at_once_on_a_host_that_does_not_exist(host, tmp_path):
    starter = Starter(host, tmp_path)
    began = time.monotonic()
    code, (ad,) = starter.transfer("tidecast://no-such-host.invalid/nt")
    assert code != 0 and 'ErrorType = "Resolution"' in ad and "Retryable = 0" in ad, ad
    assert "trusts no other" in ad and time.monotonic() - began < 60, ad


def test_the_plugin_makes_no_difference_for_a_slash_or_an_earlier_answer(host, data, tmp_path):
    host.create("nt", data)
    starter = Starter(host, tmp_path)
    # HTCondor takes the name from the end of the URL: for a slash, the job's directory.
    texts = [f'[ Url = "tidecast://head/nt{path}/"; LocalFileName = "{starter.dir}/" ]' for path in ("", "/sub")]
    done, ads = starter.given("\n".join(texts))
    assert done.returncode == 0 and len(ads) == 2, (done, ads)
    same(data, starter.dir / "nt")
    same(data / "sub", starter.dir / "sub")
    # Up to 23.3 it gives one outfile to several transfers.
    for name in ("in", "out"):
        (starter.dir / name).write_text((starter.dir / f".{name}").read_text())
    (starter.dir / "in").write_text(f'[ Url = "tidecast://head/nt"; LocalFileName = "{starter.dir / "again"}" ]')
    assert starter.run("-infile", starter.dir / "in", "-outfile", starter.dir / "out").returncode == 0
    assert len((starter.dir / "out").read_text().split()) > 3 and (starter.dir / "out").read_text().count("TransferSuccess") == 1
    # A job in a container sees its own directory only.
    ad = tmp_path / "job.ad"
    ad.write_text('MyType = "Job"\nWantContainer = true\n')
    os.environ["_CONDOR_JOB_AD"] = str(ad)
    try:
        assert starter.transfer("tidecast://head/nt/sub")[0] != 0, "the link of before is in its place"
        (starter.dir / "sub").unlink()
        assert starter.transfer("tidecast://head/nt/sub")[0] == 0 and not (starter.dir / "sub").is_symlink()
    finally:
        del os.environ["_CONDOR_JOB_AD"]


def test_the_plugin_takes_no_input_that_it_does_not_understand_for_none(site, data, tmp_path):
    node = site.host("node1")
    starter = Starter(node, tmp_path)
    node.create("nt", data)
    for text in ("[ Url = ", "garbage", "", "\n", 'Url: "tidecast://node1/nt"'):
        done, ads = starter.given(text)
        assert done.returncode != 0 and "cannot parse" in done.stderr, (text, done)
        assert len(ads) == 1 and "TransferSuccess = false" in ads[0] and "ErrorType" in ads[0], (text, ads)
    # Of an ad without a place only that file is missing.
    files = [f'[ Url = "tidecast://node1/nt/{part}"; LocalFileName = "{starter.dir / part}" ]' for part in ("part1", "part2")]
    done, ads = starter.given("\n".join([files[0], '[ Url = "tidecast://node1/nt" ]', "[ PluginData = [ a = 1 ] ]", files[1]]))
    assert done.returncode != 0 and "LocalFileName" in done.stderr, done
    assert ["TransferSuccess = true" in ad for ad in ads] == [True, False, True], ads
    assert (starter.dir / "part2").exists()
    # The old syntax is understood too.
    old = f'LocalFileName = "{starter.dir / "all"}"\nUrl = "tidecast://node1/nt"\n\nUrl = "tidecast://node1/nt/part3"\nLocalFileName = "{starter.dir / "part3"}"\n'
    done, ads = starter.given(old)
    assert done.returncode == 0 and len(ads) == 2, (done, ads)
    same(data, starter.dir / "all")
    assert (starter.dir / "part3").exists()
    # Without a file to read it says so, too; and it is called by either name.
    done, ads = starter.given(None)
    assert done.returncode != 0 and "cannot read" in done.stderr and "TransferSuccess = false" in ads[0]
    assert 'PluginType = "FileTransfer"' in node("plugin", "-classad").out


def test_the_plugin_follows_no_link_out_of_a_cache(site, data, tmp_path):
    node = site.host("node1")
    starter = Starter(node, tmp_path)
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside/secret").write_text("of this host")
    for name, target in (("out", tmp_path / "beside"), ("up", "../../.."), ("file", tmp_path / "beside/secret"), ("in", "sub"), ("none", "gone")):
        (data / name).symlink_to(target)
    node.create("nt", data)
    outside = ["out/secret", "out", "up/tree", "file"]
    for path in (*outside, "none", "in/none"):
        code, (ad,) = starter.transfer(f"tidecast://node1/nt/{path}")
        assert code != 0 and 'ErrorType = "Resolution"' in ad, ad
        assert ("leads out of the cache" in ad) == (path in outside), ad
        assert not os.path.lexists(starter.dir / pathlib.Path(path).name)
    inside = next((data / "sub").iterdir())
    code, (ad,) = starter.transfer("tidecast://node1/nt/in/" + inside.name)
    assert code == 0, ad
    assert (starter.dir / inside.name).read_bytes() == inside.read_bytes()


def test_the_plugin_without_a_daemon_ends_and_says_so(site, data, tmp_path):
    node = site.host("node1")
    node.create("nt", data)
    node.daemon.signal(signal.SIGTERM)
    node.daemon.wait()
    assert not node.socket.exists()
    starter = Starter(node, tmp_path)
    began = time.monotonic()
    code, ads = starter.transfer("tidecast://node1/nt", "tidecast://node1/nt/part1")
    assert code != 0 and len(ads) == 2 and all('ErrorType = "Contact"' in ad for ad in ads), ads
    assert time.monotonic() - began < 60
    # A daemon that is started anew meanwhile is waited for.
    (starter.dir / ".in").write_text(f'[ Url = "tidecast://node1/nt"; LocalFileName = "{starter.dir / "nt"}" ]')
    words = ["-infile", starter.dir / ".in", "-outfile", starter.dir / ".out"]
    waiting = starter.begin(*words)
    time.sleep(3)
    assert waiting.poll() is None
    node.serve()
    assert waiting.wait(60) == 0
    same(data, starter.dir / "nt")
    # Told to stop, it says what it did not do.
    node.daemon.signal(signal.SIGTERM)
    node.daemon.wait()
    (starter.dir / ".out").unlink()
    waiting = starter.begin(*words)
    time.sleep(2)
    waiting.terminate()
    assert waiting.wait(10) != 0
    assert "TransferSuccess = false" in (starter.dir / ".out").read_text()


def test_a_name_without_a_version_is_the_newest_that_its_origin_has(site, data):
    origin, node = site.host("head"), site.host("node1")
    origin.create("nt", data)
    assert node.cache("get", "head/nt", "--wait", "1m")["name"] == "head/nt@1"
    for version, name in [(2, "head/nt"), (3, "nt")]:
        (data / "part7").write_bytes(b"%d" % version)
        origin.create("nt", data)
        assert node.cache("get", name, "--offline")["name"] == f"head/nt@{version - 1}"
        got = node.cache("get", name, "--wait", "1m")
        assert (got["name"], got["older"]) == (f"head/nt@{version}", None)
        assert node.cache("get", name)["fetched_seconds"] == 0
    assert node.cache("get", "head/nt@1")["name"] == "head/nt@1", "a version that is named is that one"
    origin.daemon.signal(signal.SIGSTOP)
    try:
        for words in ([], ["--wait", "1m"]):
            got = node.cache("get", "nt", *words)
            assert got["name"] == "head/nt@3" and "may not be the newest version: head" in got["older"], got
        assert node.cache("get", "nt", "--offline")["older"] is None
        said = node("cache", "get", "head/nt").err
        assert "warning: head/nt@3 may not be the newest version" in said
    finally:
        origin.daemon.signal(signal.SIGCONT)


def test_what_cannot_be_renewed_is_given_as_it_is(site, data):
    origin, node = site.host("head"), site.host("node1")
    origin.create("nt", data)
    node.cache("get", "head/nt", "--wait", "1m")
    (data / "part7").write_bytes(b"seven")
    origin.create("nt", data, "--requirements", 'TARGET.Name == "elsewhere"')
    got = node.cache("get", "head/nt", "--wait", "1m")
    assert got["name"] == "head/nt@1" and "cannot get head/nt@2: " in got["older"] and "requirements" in got["older"], got
    origin.cache("rm", "head/nt@2")
    origin.cache("rm", "head/nt@1")
    got = node.cache("get", "head/nt")
    assert got["name"] == "head/nt@1" and "no longer provides nt" in got["older"], got


@pytest.mark.parametrize("job", ["WantContainer = false", "WantContainer = true", "Docker = true\nWantDocker = Docker"])
def test_the_plugin_reads_urls_as_urls(host, tmp_path, monkeypatch, job):
    """Percent-encoded, as submit files have names with blanks; a name that has a `%` itself may be written as it is."""
    odd = tmp_path / "odd"
    (odd / "sub dir").mkdir(parents=True)
    names = ["my file.txt", "100%", "a%20b", "50%25", "ü+&=;.dat", "sub dir/x"]
    for name in names:
        (odd / name).write_text(name)
    host.create("odd", odd)
    ad = tmp_path / "job.ad"
    ad.write_text(f'MyType = "Job"\n{job}\n')
    monkeypatch.setenv("_CONDOR_JOB_AD", str(ad))
    starter = Starter(host, tmp_path)
    for number, (name, quote) in enumerate([*((name, urllib.parse.quote(name)) for name in names), *((name, name) for name in names[:4])]):
        local = starter.dir / str(number)
        done, (said,) = starter.given(f'[ Url = "tidecast://head/odd/{quote}"; LocalFileName = "{local}" ]')
        if quote == "50%25":
            name = "50%25"  # no file is called `50%`
        assert done.returncode == 0 and local.read_text() == name, (said, name)
        assert local.is_symlink() == (job == "WantContainer = false")
    for path in ("%2e%2e/%2e%2e/x", "sub%20dir/..%2f..%2fx", "%00", "no%20such"):
        done, (said,) = starter.given(f'[ Url = "tidecast://head/odd/{path}"; LocalFileName = "{starter.dir / "bad"}" ]')
        assert done.returncode and "TransferSuccess = false" in said and not os.path.lexists(starter.dir / "bad"), said
    assert starter.given(f'[ Url = "TIDECAST://he%61d/od%64%401/100%25"; LocalFileName = "{starter.dir / "last"}" ]')[0].returncode == 0


def test_a_get_that_is_cut_off_says_for_what_it_waited(site, data):
    origin, node = site.host("head"), site.host("node1")
    origin.create("nt", data)
    origin("admin", "pause")
    run = node.run("cache", "get", "head/nt", "--json")
    run.until("it waits", lambda: any("no data of head/nt" in event.get("message", "") for event in run.events()))
    run.process.send_signal(signal.SIGINT)
    run.exits(3)
    assert "interrupted before head/nt arrived: " in run.last("error")["message"]
    assert "to resume" in run.last("error")["message"]


def test_a_cache_of_thousands_of_tiny_files_arrives(site, tmp_path):
    """A connection queues messages, which are many where pieces are small."""
    tree = tmp_path / "tiny"
    tree.mkdir()
    for number in range(9000):
        (tree / f"{number:04}").write_text(f"{number:05}")
    origin, node = site.host("head"), site.host("node1")
    origin.create("tiny", tree)
    got = node.cache("get", "head/tiny", "--wait", "2m")
    assert got["method"] == "SWARM"
    same(tree, pathlib.Path(got["path"]))


def test_a_job_that_sees_no_store_gets_what_links_of_a_cache_lead_to(host, tmp_path, monkeypatch):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "data-v2").write_text("the cache's")
    (tree / "sub/own").write_text("own")
    for link, to in {"current": "data-v2", "sub/db": "../current", "linked": "sub", "host": "/etc/hostname"}.items():
        (tree / link).symlink_to(to)
    host.create("c", tree)
    ad = tmp_path / "job.ad"
    ad.write_text('MyType = "Job"\nWantContainer = true\n')
    monkeypatch.setenv("_CONDOR_JOB_AD", str(ad))
    starter = Starter(host, tmp_path)
    for name in ("data-v2", "current"):
        (starter.dir / name).write_text("the job's own")

    def given(path, local):
        done, (said,) = starter.given(f'[ Url = "tidecast://head/c/{path}"; LocalFileName = "{starter.dir / local}" ]')
        return done.returncode, said

    assert given("current", "db")[0] == 0 and (starter.dir / "db").read_text() == "the cache's"
    for path in ("sub", "linked"):
        code, said = given(path, path)
        assert code == 0 and "TransferFileBytes = 14" in said, said
        assert {file.name: file.read_text() for file in (starter.dir / path).iterdir()} == {"db": "the cache's", "own": "own"}
    code, said = given("host", "host")
    assert code and "leads out of the cache" in said and not os.path.lexists(starter.dir / "host"), said
