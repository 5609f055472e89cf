"""Web seeds (BEP 19): fetched from and written, judged by libtorrent and aria2, whatever a server does."""
import json
import re
import socket
import sys
import urllib.parse

import pytest
from conftest import needs
from support import certs, clients, trees
from support.webserver import WebServer

FORMATS = ("v1", "v2", "hybrid")
ODD = ("x b#c%d+e&f=g", "ünï/cödé", "q?x;y", "[1]{2}~", "%41", "plus+")


@pytest.fixture
def data(tmp_path):
    folder = trees.tree(tmp_path / "www/data")
    for number, name in enumerate(ODD):
        trees.blob(folder / name, 30_000 + number, 900 + number)
    return folder


def get(tide, source, tmp_path, *words, code=0, timeout=120):
    return tide("get", source, "--to", tmp_path / "got", "--plain", "--no-lsd", "--listen", "127.0.0.1:0", "--json", *words,
                code=code, timeout=timeout)


def torrent(start, tmp_path, path, fmt, *urls, name="t.torrent"):
    words = [word for url in urls for word in ("--web-seed", url)]
    return clients.make_torrent(start, tmp_path / name, path, fmt, *words)


def warnings(proc):
    return [event["message"] for event in proc.events() if event["event"] == "warning"]


@pytest.mark.parametrize("kind", ("tree", "file", "folder of file"))
@pytest.mark.parametrize("fmt", FORMATS)
def test_a_torrent_of_libtorrent_is_fetched(tide, start, data, tmp_path, fmt, kind):
    path = data if kind == "tree" else data / "big.bin"
    with WebServer(data.parent if kind == "tree" else data) as web:
        url = web.url + "big.bin" if kind == "file" else web.url
        done = get(tide, torrent(start, tmp_path, path, fmt, url), tmp_path).last("done")
        got = tmp_path / "got" / path.name
        assert trees.same(path, got, modes=False), trees.difference(path, got)
        assert done["web_seeds"] == [{"url": url, "received": done["received"], "error": None}] and done["peers"] == []
        # Padding is never asked for, and nothing twice.
        assert done["received"] == done["bytes"] and web.sent <= done["bytes"] + 1, (web.sent, done)


@pytest.mark.parametrize("kind", ("tree", "file"))
@pytest.mark.parametrize("fmt", FORMATS)
def test_libtorrent_fetches_what_was_published(tide, start, port, data, tmp_path, fmt, kind):
    path = data if kind == "tree" else data / "big.bin"
    with WebServer(path.parent) as web:
        url = web.url if kind == "tree" else web.url + "big.bin"
        manifest = tide.publish(path, tmp_path / "m.torrent", "--format", fmt, "--web-seed", url)
        clients.libtorrent(start, "get", manifest, tmp_path / "got", f"127.0.0.1:{port()}").ok()
        assert web.sent >= path.stat().st_size
    assert trees.same(path, tmp_path / "got" / path.name, modes=False)


@pytest.mark.parametrize("kind", ("tree", "file"))
@pytest.mark.parametrize("fmt", ("v1", "hybrid"))
def test_aria2_fetches_what_was_published(tide, start, port, data, tmp_path, fmt, kind):
    needs("aria2c")
    path = data if kind == "tree" else data / "big.bin"
    with WebServer(path.parent) as web:
        # Of a directory the slash is put there.
        url = web.url.rstrip("/") if kind == "tree" else web.url + "big.bin"
        manifest = tide.publish(path, tmp_path / "m.torrent", "--format", fmt, "--web-seed", url)
        proc = clients.aria2(start, "127.0.0.1", port(), tmp_path / "home", manifest, tmp_path / "got")
        proc.until("aria2 has it", lambda: trees.same(path, tmp_path / "got" / path.name, modes=False))
        assert web.sent >= path.stat().st_size


def test_what_is_published_says_where_it_is_fetched_from(tide, data, tmp_path):
    urls = ("https://data.example/pub", "http://other.example/a b/")
    words = [word for url in urls for word in ("--web-seed", url)]
    said = tide("publish", data / "ünï", "-o", tmp_path / "m.torrent", *words).out
    assert "from https://data.example/pub/%C3%BCn%C3%AF/c%C3%B6d%C3%A9" in said, said
    shown = json.loads(tide("show", tmp_path / "m.torrent", "--json").out)
    kept = ["https://data.example/pub/", "http://other.example/a%20b/"]
    assert shown["web_seeds"] == kept and "&ws=https%3A%2F%2Fdata.example%2Fpub%2F" in shown["magnet"]
    assert f"web seed     {kept[1]}" in tide("show", tmp_path / "m.torrent").out
    for bad in ("ftp://h/x", "h/x", "http://", "http://user:pw@h/", "http://h:0/", "http://h/" + "a" * 2100):
        err = tide("publish", data, "-o", tmp_path / "n.torrent", "--web-seed", bad, code=2).err
        assert "--web-seed" in err and "tracker" not in err, err


def test_a_server_that_knows_no_ranges(tide, start, port, data, tmp_path):
    number = port()
    start([sys.executable, "-m", "http.server", number, "--bind", "127.0.0.1"], cwd=data.parent)
    tide.wait_listening(start(["sleep", "1"]), f"127.0.0.1:{number}")
    made = torrent(start, tmp_path, data, "hybrid", f"http://127.0.0.1:{number}")
    done = get(tide, made, tmp_path).last("done")
    assert trees.same(data, tmp_path / "got/data", modes=False) and done["received"] == done["bytes"]


def test_a_magnet_names_a_web_seed(tide, start, port, data, tmp_path):
    here = f"127.0.0.1:{port()}"
    with WebServer(data.parent) as web:
        manifest = tide.publish(data, tmp_path / "m.torrent")
        tide.seed(manifest, data, here, "--plain")
        link = json.loads(tide("show", manifest, "--json").out)["magnet"]
        link += f"&x.pe={here}&ws={web.url.replace('/', '%2F')}"
        done = get(tide, link, tmp_path).last("done")
        assert done["web_seeds"][0]["url"] == web.url
    trees.assert_same(data, tmp_path / "got/data")


def test_web_seeds_can_be_left_alone(tide, start, data, tmp_path):
    with WebServer(data.parent) as web:
        made = torrent(start, tmp_path, data, "v1", web.url)
        get(tide, made, tmp_path, "--no-web-seeds", "--timeout", "2s", code=3)
        assert not web.requests
        get(tide, made, tmp_path)
        # All is there: nothing is asked.
        asked = len(web.requests)
        get(tide, made, tmp_path)
        assert len(web.requests) == asked


def once(what, path=None, times=1):
    """A fault for the first N requests after the very first."""
    count = iter(range(1 << 30))

    def fault(request):
        if path and not request.path.endswith(path) or (request.range or "").endswith("=0-0"):
            return None
        return what if next(count) < times else None

    return fault


@pytest.mark.parametrize("what", (500, 503, 429, "other-range", "multipart", "short", "garbage", "endless-headers", "gzip",
                                  "hangs-up", "other-size", "longer"))
def test_a_fault_that_passes_costs_a_moment(tide, start, data, tmp_path, what):
    with WebServer(data.parent, fault=once(what, times=2)) as web:
        done = get(tide, torrent(start, tmp_path, data, "hybrid", web.url), tmp_path)
        assert trees.same(data, tmp_path / "got/data", modes=False)
        said = warnings(done)
        assert what == "longer" or any(f"web seed {web.url}: " in text for text in said), said


def test_a_file_that_is_labelled_as_compressed_is_taken_as_it_is(tide, start, data, tmp_path):
    with WebServer(data.parent, fault=lambda request: "labelled") as web:
        done = get(tide, torrent(start, tmp_path, data, "hybrid", web.url), tmp_path)
        assert not [text for text in warnings(done) if "web seed" in text]
    trees.assert_same(data, tmp_path / "got/data")


def cut_when(tide, source, tmp_path, why):
    """Fetches until a warning has the reason why the web seed fails; returns the last event."""
    words = ("--to", tmp_path / "got", "--plain", "--no-lsd", "--listen", "127.0.0.1:0", "--json")
    getting = tide.run("get", source, *words)
    getting.until(f"a warning says {why}", lambda: any(why in text for text in warnings(getting)))
    getting.signal(2)
    return getting.exits(3).last("error")


@pytest.mark.parametrize("what,why", ((404, "HTTP status 404"), (403, "HTTP status 403"), (500, "HTTP status 500"),
                                      ("other-size", "and 5242880 in the manifest"), ("gzip", "compressed"),
                                      ("garbage", "HTTP"), ("endless-headers", "web seed http")))
def test_why_a_web_seed_gives_nothing_is_said(tide, start, data, tmp_path, what, why):
    with WebServer(data, fault=lambda request: what) as web:
        error = cut_when(tide, torrent(start, tmp_path, data / "big.bin", "v1", web.url), tmp_path, why)
        seed = error["web_seeds"][0]
        assert seed["received"] == 0 and seed["error"] and seed["url"] == web.url
        assert len(web.requests) < 40, "it is asked ever more rarely"


def test_a_server_that_is_away_is_named(tide, start, port, data, tmp_path):
    url = f"http://127.0.0.1:{port()}/"
    failed = get(tide, torrent(start, tmp_path, data, "v1", url), tmp_path, "--timeout", "5s", code=3)
    assert url in failed.last("error")["message"] and "refused" in failed.last("error")["message"]


@pytest.mark.parametrize("what,sent", (("silent", "sent no complete block"), (None, r"sent \d+")))
def test_a_web_seed_that_is_too_slow_is_named_with_its_bytes(tide, start, data, tmp_path, what, sent):
    stalls = lambda request: None if (request.range or "").endswith("=0-0") else what  # noqa: E731
    with WebServer(data.parent, fault=stalls, rate=300_000) as web:
        failed = get(tide, torrent(start, tmp_path, data, "hybrid", web.url), tmp_path, "--timeout", "4s", code=3)
        message = failed.last("error")["message"]
        assert re.search(re.escape(f"(web seed {web.url} ") + sent, message) and "name one with --peer" not in message, message


@pytest.mark.parametrize("what", ("silent", "drips"))
def test_a_server_that_stalls_holds_nothing_up(tide, start, data, tmp_path, what):
    stalls = lambda request: None if (request.range or "").endswith("=0-0") else what  # noqa: E731
    with WebServer(data.parent, fault=stalls) as slow, WebServer(data.parent) as other:
        get(tide, torrent(start, tmp_path, data, "hybrid", slow.url, other.url), tmp_path)
        assert trees.same(data, tmp_path / "got/data", modes=False)


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_file_that_is_not_there_comes_from_a_peer(tide, start, port, data, tmp_path, fmt):
    here = f"127.0.0.1:{port()}"
    gone = lambda request: 404 if request.path.endswith("big.bin") else None  # noqa: E731
    with WebServer(data.parent, fault=gone) as web:
        made = torrent(start, tmp_path, data, fmt, web.url)
        getting = tide.run("get", made, "--to", tmp_path / "got", "--plain", "--no-lsd", "--listen", here, "--json")
        getting.until("the file is missed", lambda: any("big.bin is not available" in text for text in warnings(getting)))
        clients.libtorrent(start, "seed", made, data.parent, "127.0.0.1:0", "--peer", here)
        getting.ok()
        assert web.sent > 0
    assert trees.same(data, tmp_path / "got/data", modes=False)


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_web_seed_that_lies_is_dropped(tide, start, data, tmp_path, fmt):
    with WebServer(data.parent, fault=lambda request: "lies") as liar, WebServer(data.parent) as honest:
        made = torrent(start, tmp_path, data, fmt, liar.url, honest.url)
        done = get(tide, made, tmp_path)
        assert trees.same(data, tmp_path / "got/data", modes=False)
        seeds = {seed["url"]: seed for seed in done.last("done")["web_seeds"]}
        assert "do not match their hashes" in seeds[liar.url]["error"], seeds
        assert seeds[honest.url]["error"] is None and any(f"web seed {liar.url}: dropped" in w for w in warnings(done))


def test_only_the_web_seed_is_blamed_for_its_lies(tide, start, port, data, tmp_path):
    """A peer at the same address is not blamed."""
    here = f"127.0.0.1:{port()}"
    with WebServer(data.parent, fault=lambda request: "lies") as liar:
        manifest = tide.publish(data, tmp_path / "m.torrent", "--format", "v2", "--web-seed", liar.url)
        tide.seed(manifest, data, here, "--plain")
        done = get(tide, manifest, tmp_path, "--peer", here)
        assert not any("banned" in text for text in warnings(done)), warnings(done)
    trees.assert_same(data, tmp_path / "got/data")


def test_redirects_are_followed_and_bounded(tide, start, data, tmp_path):
    with WebServer(data.parent) as mirror:
        elsewhere = lambda request: mirror.url + urllib.parse.quote(request.path.lstrip("/"))  # noqa: E731
        with WebServer(tmp_path, fault=elsewhere) as web:
            done = get(tide, torrent(start, tmp_path, data, "hybrid", web.url), tmp_path).last("done")
            assert trees.same(data, tmp_path / "got/data", modes=False)
            assert done["web_seeds"][0]["received"] == done["bytes"] and mirror.sent >= done["bytes"]
    with WebServer(data.parent, fault=lambda request: urllib.parse.quote(request.path)) as loop:
        made = torrent(start, tmp_path, data / "a", "v1", loop.url, name="loop.torrent")
        cut_when(tide, made, tmp_path, "more than five redirects")


@pytest.mark.parametrize("target", ("ftp://127.0.0.1/x", "udp://127.0.0.1:1/x", "http://user:pw@127.0.0.1/x"))
def test_redirects_to_elsewhere_are_not_followed(tide, start, data, tmp_path, target):
    with WebServer(data.parent, fault=lambda request: target) as web:
        cut_when(tide, torrent(start, tmp_path, data, "v1", web.url), tmp_path, "redirect not followed")


def test_a_redirect_from_outside_to_this_host_is_not_followed(tide, start, data, tmp_path):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("SKIPPED: this host has no address but loopback")
        own = probe.getsockname()[0]
    if own.startswith("127."):
        pytest.skip("SKIPPED: this host has no address but loopback")
    with WebServer(data.parent) as inner:
        inside = lambda request: inner.url + urllib.parse.quote(request.path.lstrip("/"))  # noqa: E731
        with WebServer(data.parent, fault=inside, ip=own) as web:
            cut_when(tide, torrent(start, tmp_path, data, "v1", web.url), tmp_path, "redirect from a public address")
        assert not inner.requests


def test_over_tls(tide, start, data, tmp_path):
    """A server whose certificate the system's authorities signed is asked; a redirect away from TLS is not followed."""
    ca, pair = certs.web(tmp_path, "127.0.0.1")
    with WebServer(data.parent, tls=pair) as web:
        made = torrent(start, tmp_path, data, "hybrid", web.url)
        cut_when(tide, made, tmp_path, "TLS")
        tide.env["SSL_CERT_FILE"] = str(ca)
        assert get(tide, made, tmp_path).last("done")["web_seeds"][0]["received"] > 0
        assert trees.same(data, tmp_path / "got/data", modes=False)
    with WebServer(data.parent) as bare:
        plain = lambda request: bare.url + urllib.parse.quote(request.path.lstrip("/"))  # noqa: E731
        with WebServer(data.parent, fault=plain, tls=pair) as web:
            made = torrent(start, tmp_path, data / "a", "v1", web.url, name="away.torrent")
            cut_when(tide, made, tmp_path, "it leaves TLS")
        assert not bare.requests


def test_at_an_address_of_ipv6(tide, start, data, tmp_path):
    with WebServer(data.parent, ip="::1") as web:
        done = get(tide, torrent(start, tmp_path, data, "v1", web.url), tmp_path).last("done")
        assert done["web_seeds"][0] == {"url": web.url, "received": done["bytes"], "error": None}


def test_what_was_fetched_is_gone_on_with(tide, start, data, tmp_path):
    with WebServer(data.parent, rate=2 << 20) as web:
        made = torrent(start, tmp_path, data, "hybrid", web.url)
        first = tide.run("get", made, "--to", tmp_path / "got", "--plain", "--no-lsd", "--listen", "127.0.0.1:0", "--json")
        first.until("some is there", lambda: first.events() and first.events()[-1].get("pieces", 0) > 5)
        first.signal(2)
        first.exits(3)
        web.rate = None
        done = get(tide, made, tmp_path).last("done")
        assert trees.same(data, tmp_path / "got/data", modes=False) and done["received"] < done["bytes"]


def test_without_ranges_a_large_file_is_fetched_in_order(tide, start, tmp_path):
    data = trees.blob(tmp_path / "www/data.bin", 40 << 20)
    with WebServer(data.parent, ranges=False) as web:
        done = get(tide, torrent(start, tmp_path, data, "v1", web.url), tmp_path).last("done")
        assert done["received"] == data.stat().st_size and len(web.requests) <= 3, web.requests
    trees.assert_same(data, tmp_path / "got/data.bin")


@pytest.mark.parametrize("fmt,ranges,most", (("v1", True, 1.2), ("v2", True, 1.2), ("v2", False, 1.8)))
def test_nodes_beside_one_web_seed_fetch_one_copy_together(tide, start, port, tmp_path, fmt, ranges, most):
    data = trees.blob(tmp_path / "www/data.bin", 24 << 20)
    here = [f"127.0.0.1:{port()}" for _ in range(3)]
    with WebServer(data.parent, rate=8 << 20, ranges=ranges) as web:
        manifest = tide.publish(data, tmp_path / "m.torrent", "--format", fmt, "--web-seed", web.url + "data.bin")
        getting = [tide.run("get", manifest, "--to", tmp_path / f"got{n}", "--plain", "--no-lsd", "--listen", address, "--json",
                            "--seed-for", "20s", *(word for other in here if other != address for word in ("--peer", other)))
                   for n, address in enumerate(here)]
        for n, proc in enumerate(getting):
            proc.until("it is there", lambda: trees.same(data, tmp_path / f"got{n}/data.bin"))
        copies = web.sent / data.stat().st_size
        print(f"copies fetched: {copies:.2f}")
        assert copies <= most


def test_a_mount_reads_through_a_web_seed(mounts, tide, data, tmp_path):
    with WebServer(data.parent) as web:
        manifest = tide.publish(data, tmp_path / "m.torrent", "--web-seed", web.url)
        trees.assert_same(data, mounts.mount(tide, manifest, tmp_path / "at", "--plain"))
