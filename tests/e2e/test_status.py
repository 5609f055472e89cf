"""`tidecast status` shows this user's processes: peers, bytes, start time, and the last error."""
import os
import pathlib
import signal

from support.trees import blob


# Other tests mount trees meanwhile.
MOUNTS = pathlib.Path("/proc/self/mountinfo")


def processes(node, **of) -> list[dict]:
    found = node("status", "--json").last("done")["processes"]
    return [one for one in found if all(one.get(key) == value for key, value in of.items())]


def test_nothing_runs(tide, tmp_path):
    # The place where other tests' commands without a run-time directory announce themselves.
    tide.env["TMPDIR"] = str(tmp_path)
    mounted = " - fuse.tidecast "
    before = mounted in MOUNTS.read_text()
    status = tide("status")
    others = before or mounted in MOUNTS.read_text() or os.path.exists(f"/run/user/{os.getuid()}/tidecast")
    assert others or "no mount, and no running get" in status.out, status.story()


def test_a_share_and_a_get_are_shown_with_their_peers_and_troubles(tide, port, tmp_path):
    data = blob(tmp_path / "some data", 300_000)
    at, dead = f"127.0.0.1:{port()}", f"127.0.0.1:{port()}"
    share, ticket = tide.share(data, at, "--no-lsd")
    (tmp_path / "ticket").write_text(ticket)
    words = ("get", f"@{tmp_path}/ticket", "--no-lsd", "--to", tmp_path / "to", "--seed-for", "10m")
    get = tide.run(*words)
    [one] = get.until("the whole of it", lambda: [p for p in processes(tide, command="get") if p.get("bytes") == 300_000])
    assert one["pid"] == get.process.pid and one["name"] == "some data" and one["to"] == str(tmp_path / "to"), one
    [peer] = one["connected"] or [None]
    assert peer["addr"] == at and peer["received"] == 300_000 and peer["client"].startswith("Tidecast"), one
    assert one["last_error"] is None and one["since"] > 0 and one["seconds"] > 0
    [other] = get.until("what was sent", lambda: [p for p in processes(tide, command="share") if p.get("sent") == 300_000])
    assert other["pid"] == share.process.pid and other["listen"] == [at], other
    assert ticket not in str(other) and "magnet" not in other, "nothing in it lets anybody in"
    shown = tide("status").out
    assert f"get some data to {tmp_path}/to (process {get.process.pid}): " in shown and "300 kB sent" in shown, shown

    vain = tide.run("get", f"magnet:?xt=urn:btih:{'5a' * 20}", "--plain", "--no-lsd", "--peer", dead, "--to", tmp_path / "no")
    [one] = vain.until("its trouble", lambda: [p for p in processes(tide, pid=vain.process.pid) if p["last_error"]])
    assert one["last_error"]["message"] == f"peer {dead}: connection refused: no process listens there"
    assert f"peer {dead}: connection refused" in tide("status").out

    get.kill()
    assert not processes(tide, pid=get.process.pid), "what a dead process left is not shown"
    share.signal(signal.SIGSTOP)
    [stopped] = processes(tide, pid=share.process.pid)
    assert "does not answer" in stopped["last_error"]["message"]
    share.signal(signal.SIGCONT)
    share.signal(signal.SIGINT)
    share.exits(0)
    vain.signal(signal.SIGINT)
    vain.exits(3)
    assert not [one for one in processes(tide) if one["pid"] in (share.process.pid, vain.process.pid)]
    runtime = tide.home / "tidecast"
    assert runtime.stat().st_mode & 0o777 == 0o700 and not list(runtime.iterdir()), "each took its name away"


def test_a_broadcast_is_shown_with_its_hosts(tide, launcher, tmp_path):
    data, go = blob(tmp_path / "data", 1000), tmp_path / "go"
    launch = launcher(f"while ! [ -e {go} ]; do sleep .1; done")
    bcast = tide.run("bcast", data, "--to", tmp_path / "{host}/copy", "--hosts", "a,b", "--launch", launch)
    [one] = bcast.until("its hosts", lambda: [p for p in processes(tide, command="bcast") if p.get("hosts")])
    assert (one["pid"], one["hosts"], one["hosts_done"]) == (bcast.process.pid, 2, 0) and one["source"] == str(data), one
    assert f"bcast {data} to " in tide("status").out
    go.touch()
    bcast.exits(0)


def test_the_daemon_shows_what_is_on_its_way(site, tmp_path):
    origin, host = site.host("head"), site.host("node")
    origin.create("nt", blob(tmp_path / "nt", 4 << 20))

    def daemon():
        return host("status", "--json").last("done")["daemon"]

    assert daemon()["name"] == "node" and not daemon().get("coming")
    host("admin", "limit", "--download", "256KiB")
    get = host.run("cache", "get", "head/nt", "--wait", "2m")
    [one] = get.until("a cache on its way", lambda: [c for c in daemon().get("coming", []) if c["bytes"]])
    assert one["name"].startswith("head/nt") and one["total"] >= 4 << 20, one
    shown = host("status").out
    assert "daemon node: running" in shown and "1 transfer in progress" in shown and "% of 4" in shown, shown
    host("admin", "limit", "--download", "0")
    get.exits(0)
    assert not daemon().get("coming") and "0 transfers in progress" in host("status").out
