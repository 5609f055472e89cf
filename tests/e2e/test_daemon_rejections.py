"""Requests are refused at once, with the reason, and logged: between daemons, of users, of administrators."""
import json
import os
import pathlib
import time

import pytest
from support.callers import as_nobody, passable
from support.daemons import Host
from support.tidecast import wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: becoming another user needs root")


@pytest.fixture
def host(built, tmp_path, start):
    host = Host(built / "tidecast", tmp_path / "host", start, "head")
    host.serve()
    passable(host.home)
    return host


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    data = tmp_path / "data"
    data.mkdir()
    for number in range(3):
        (data / f"part{number}").write_bytes(os.urandom(20_000))
    return data


def audit(host: Host) -> list[dict]:
    return [json.loads(line) for line in (host.dir / "audit.log").read_text().splitlines()]


def log(host: Host) -> str:
    return host.daemon.err


def test_a_daemon_that_is_not_believed_hears_why_and_both_sides_log_it(site, data):
    origin = site.host("head")
    origin.create("nt", data)
    site.admin("ca", "init", site.base / "other", "--name", "another site")
    stranger = site.host("mallory", pem=site.certificate("host:mallory", ca=site.base / "other"))
    assert "would reject its own certificate" in log(stranger), "it can see by itself that something is wrong"
    failed = stranger.cache("get", "head/nt", "--wait", "20s", code=1)
    why = "certificate was issued by an untrusted CA"
    assert failed["reason"] == "unreachable" and why in failed["message"] and "head" in failed["message"], failed
    assert why in stranger.cache("where", "head/nt", code=1)["message"]
    wait_for("both to log it", lambda: why in log(origin) and why in log(stranger))
    lines = [event for event in audit(origin) if event["what"] == "connect"]
    assert lines and all("mallory at 127.0.0.1" in line["who"] and why in line["outcome"] for line in lines)
    # It calls again and again: once a minute is enough.
    for _ in range(5):
        stranger.cache("get", "head/nt", "--wait", "5s", code=1)
    assert log(origin).count("rejected a daemon") <= 2
    assert len([event for event in audit(origin) if event["what"] == "connect"]) <= 2
    # The reverse: a daemon that does not trust the origin reports that itself.
    doubter = site.host("node2", trust=site.believe(site.base / "other", "elsewhere"))
    failed = doubter.cache("get", "head/nt", "--wait", "20s", code=1)
    assert "was rejected" in failed["message"] and "head" in failed["message"], failed


def test_one_whose_certificate_is_revoked_hears_it_on_the_open_channel(site, data):
    origin = site.host("head")
    origin.create("nt", data)
    late = site.host("node6")
    late.cache("get", "head/nt", "--wait", "1m")
    site.admin("ca", "revoke", site.ca, "host:node6")
    site.believe(site.ca, "trust")
    wait_for("the revocation to be told", lambda: "chain was revoked" in log(late))
    assert "revoked" in log(origin)
    origin.create("other", data / "part1")
    failed = late.cache("get", "head/other", "--wait", "20s", code=1)
    assert "revoked" in failed["message"], failed


def test_a_certificate_that_can_never_serve_is_an_error_at_the_start(site):
    host = Host(site.program, site.base / "new", site.start, "bobd")

    def said(pem, name="bobd", trust=None, code=1) -> str:
        listen = f"127.0.0.1:{site.free_port()}"
        return host("daemon", "--dir", host.dir, "--name", name, "--listen", listen, "--trust", trust or site.trust, "--certificate", pem, code=code).err

    wrong = said(site.certificate("user:bob"))
    assert "bob.HOST" in wrong and "bobd" in wrong, wrong
    assert "host:node4" in said(site.certificate("host:node4"))
    short = site.certificate("host:bobd", "--lifetime", "1s")
    time.sleep(2)
    assert "has expired" in said(short)
    soon = site.host("soon", pem=site.certificate("host:soon", "--lifetime", "3d"))
    assert "certificate expires in 2 d 23 h" in log(soon) or "certificate expires in 3 d" in log(soon)
    fine = site.host("fine", pem=site.certificate("host:fine", "--lifetime", "30d"))
    assert "certificate" not in log(fine)


def test_an_offer_that_will_be_refused_is_refused_at_once(site, data):
    origin, node = site.host("head"), site.host("node1")
    settings = site.base / "owners.toml"
    settings.write_text('[daemon]\nowners = ["somebody"]\n')
    picky = Host(site.program, site.base / "picky", site.start, "picky")
    listen = f"127.0.0.1:{site.free_port()}"
    picky.serve("--listen", listen, "--trust", site.trust, "--certificate", site.certificate("host:picky"), "--config", settings, "--peer", origin.listen)
    origin.create("only", data, "--requirements", 'TARGET.Name == "elsewhere"')
    refused = origin.cache("replicate", "only", "--to", "node1", code=1)["offered"]
    assert [(one["host"], one["answer"]) for one in refused] == [("node1", "rejected")] and "requirements" in refused[0]["why"]
    origin.create("nt", data / "part1")
    for _ in range(2):
        refused = origin.cache("replicate", "nt", "--to", listen, code=1)["offered"]
        assert refused[0]["answer"] == "rejected" and "accepts no caches of user" in refused[0]["why"], refused
    assert origin.cache("replicate", "nt", "--to", "node1")["offered"][0]["answer"] in ("ok", "wait")
    lines = [event for event in audit(picky) if event["what"] == "offer"]
    assert lines and lines[0]["who"] == "head" and "accepts no caches of user" in lines[0]["outcome"]
    assert any("rejected" not in event["outcome"] and "node1: " in event["outcome"] for event in audit(origin) if event["what"] == "replicate")


@needs_root
def test_what_is_refused_is_in_the_audit_log(host, data):
    made = host.create("nt", data)
    own = host.create("own", data / "part1", "--private")

    def tries() -> list[int]:
        calls = [("DELETE", "", None), ("POST", "/pin", {}), ("POST", "/unpin", {}), ("POST", "/extend", {"lease": 9}), ("POST", "/replicate", {"to": []})]
        answers = [host.http(method, f"/v1/caches/{made['cache']}{path}", body)[0] for method, path, body in calls]
        answers.append(host.http("DELETE", f"/v1/caches/{own['cache']}")[0])
        for path, body in (("/v1/admin/pause", {}), ("/v1/admin/limit", {"transfers": 9}), ("/v1/site/drain", {}), ("/v1/fsck", {})):
            answers.append(host.http("POST", path, body)[0])
        answers.append(host.http("POST", "/v1/get", {"name": "head/none"})[0])
        return answers

    assert as_nobody(tries) == [403] * 5 + [404] + [403] * 4 + [404]
    lines = [line for line in audit(host) if line["who"] != "root" and line["who"] != "tidecast"]
    assert [line["what"] for line in lines] == ["remove", "pin", "unpin", "extend", "replicate", "remove", "pause", "limit transfers=9",
                                                "drain at all hosts", "fsck", "get"]
    assert [line["cache"] for line in lines] == ["head/nt@1"] * 5 + [own["cache"]] + [""] * 4 + ["head/none"], "what is another's has no name for him"
    assert all(line["outcome"] != "ok" for line in lines)

    host("admin", "limit", "--capacity", "1MB", "--busy", "0.5")
    (data / "big").write_bytes(os.urandom(2_000_000))
    denied = host.create("big", data / "big", code=1)
    host("admin", "pause")
    host.create("more", data / "part2", code=1)
    host("admin", "status")
    last = [(line["what"], line["cache"], line["outcome"]) for line in audit(host)[-4:]]
    assert [what for what, _, _ in last] == ["limit capacity=1000000 busy=0.5", "create", "pause", "create"], last
    assert last[0][2] == last[2][2] == "ok" and last[1][1:] == ("head/big", denied["message"]) and "paused" in last[3][2], last


def test_what_is_wrong_with_an_upload_is_said(host, data, tmp_path):
    (tmp_path / "short").write_bytes(b"thirteen byte")
    host("publish", tmp_path / "short", "-o", tmp_path / "m.torrent", "--format", "v2")
    head = {"tidecast-create": json.dumps({"name": "p"}), "content-type": "application/x-bittorrent"}

    def upload(body: bytes) -> tuple[int, str]:
        status, made = host.http("POST", "/v1/caches", (tmp_path / "m.torrent").read_bytes(), head)
        assert status == 200, made
        status, answer = host.http("PUT", f"/v1/caches/{made['cache']}/content", body)
        return status, answer.get("error", "")

    status, why = upload(b"thirteen b")
    assert (status, why) == (400, "the upload ended within short: 10 of 13 bytes received")
    assert upload(b"THIRTEEN BYTE")[0] == 422
    status, why = upload(b"thirteen bytes")
    assert status == 413 and "received more than the expected 13 bytes" in why
    assert upload(b"thirteen byte")[0] == 200
    # Once more, all data is here: nothing is transferred, and the declared size is reported correctly.
    status, why = upload(b"THIRTEEN BYTE")
    assert status == 413 and "no data expected" in why, why


def test_what_makes_no_sense_is_refused_before_anything_is_done(host, data):
    for words in (["--mode", "777"], ["--mode", "775"], ["--replicas", "0"], ["--policy", "1 +"], ["--requirements", "(("]):
        done = host("cache", "create", "nt", data, *words, code=2)
        assert words[0] in done.err, done.err
    for words in (["limit", "--busy", "7"], ["limit"], ["fsck", "--all"], ["fsck", "--host", "x"]):
        host("admin", *words, code=2)
    assert host.http("POST", "/v1/admin/limit", {"busy": 7})[0] == 400
    status, answer = host.http("POST", "/v1/caches", b"", {"tidecast-create": json.dumps({"name": "nt", "mode": 0o777}), "content-type": "application/x-bittorrent"})
    assert status == 400 and "caches are read-only" in answer["error"]
    missing = host("cache", "create", "nt", data / "none", code=1).err
    assert missing.count("os error 2") == 1, missing


def test_a_drained_host_stays_drained(host, data):
    host("admin", "drain")
    host.daemon.kill()
    host.serve()
    assert host.http("GET", "/v1/daemon")[1]["state"] == "draining"
    host("admin", "resume")
    assert host.create("nt", data)["state"] == "committed"


def test_of_a_damaged_cache_it_is_said_what_to_do(host, data):
    made = host.create("nt", data)
    file = pathlib.Path(made["path"]) / "part1"
    file.chmod(0o644)
    file.write_bytes(os.urandom(20_000))
    host("admin", "fsck", code=1)
    for name in ("nt", "head/nt", "head/nt@1"):
        failed = host.cache("get", name, code=1)
        assert failed["reason"] == "invalid" and "damaged" in failed["message"] and "create it again" in failed["message"], failed
