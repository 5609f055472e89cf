"""`tidecast field view`: its page in a real browser (Debian's chromium, software rendering), and the refusals of its API.

With TIDECAST_SHOTS=DIR pictures of the page are kept there."""
import http.client
import io
import json
import os
import pathlib
import signal
import socket
import stat
import urllib.parse

import numpy as np
import pytest
from PIL import Image
from support import browser
from support.fieldlink import Link
from support.fieldpeer import field, forget, unique
from support.fieldsink import neighbours
from support.tidecast import wait_for

KEY = "a" * 52
STREAMS = 4
MOST = 600  # seconds: only so that nothing hangs


@pytest.fixture
def recv(node):
    """recv(*flags) -> name and first port of a receiver."""
    def begin(*flags):
        sockets, first = neighbours(STREAMS)
        for s in sockets:
            s.close()
        name = unique()
        proc = node(name).run("--json", "field", "recv", "--listen", f"127.0.0.1:{first}", "--streams", STREAMS, "--name", name,
                              "--key", KEY, *flags)
        proc.until("it listens", lambda: '"started"' in proc.out)
        procs.append((proc, name))
        return name, first

    procs = []
    yield begin
    for proc, name in procs:
        proc.signal(signal.SIGINT)
        proc.wait()
        forget(name)


@pytest.fixture
def send(node):
    """send(source, port, *flags) -> a running sender."""
    def begin(source, port, *flags):
        number = len(procs)
        proc = node(f"sender{number}").run("--json", "field", "send", source, "--to", f"127.0.0.1:{port}", "--streams", STREAMS, "--key", KEY,
                                           *flags)
        procs.append(proc)
        return proc

    procs = []
    yield begin
    for proc in procs:
        proc.signal(signal.SIGINT)
        proc.wait()


@pytest.fixture
def view(node):
    """view(*words) -> the URL of a viewer that has its page."""
    def begin(*words):
        proc = node("viewer").run("--json", "field", "view", "--listen", "127.0.0.1:0", *words)
        proc.until("it serves", lambda: '"started"' in proc.out)
        procs.append(proc)
        if "without its page" in proc.err + proc.out:
            pytest.skip("SKIPPED: this program was built without its page (scripts/web needs npm): `field view` was not tried")
        return proc.last("started")["url"]

    procs = []
    yield begin
    for proc in procs:
        proc.signal(signal.SIGINT)
        proc.exits(0)


def opened(url: str) -> tuple[str, str]:
    """Address and token of a viewer's URL."""
    parts = urllib.parse.urlsplit(url)
    return parts.netloc, urllib.parse.parse_qs(parts.query)["token"][0]


def image(png: bytes) -> np.ndarray:
    """Red, green and blue of a PNG's pixels."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def drawn(tab) -> np.ndarray:
    """The content of the canvas, without the words over it."""
    tab.evaluate("document.getElementById('labels').style.visibility = 'hidden'")
    try:
        return image(tab.locator("#view").screenshot())
    finally:
        tab.evaluate("document.getElementById('labels').style.visibility = ''")


def coloured(pixels: np.ndarray) -> float:
    """The part of pixels that are neither ground nor grey."""
    return float((np.ptp(pixels, axis=2) > 60).mean())


def label(tab, fact: str, number: int = 0) -> str:
    """The value of a fact in a volume's label; empty while the page does not know the volume."""
    return tab.evaluate("""([fact, n]) => {
        const dts = document.querySelectorAll('.label')[n]?.querySelectorAll('dt') ?? [];
        const dt = [...dts].find((dt) => dt.textContent === fact);
        return dt ? dt.nextSibling.textContent : '';
    }""", [fact, number])


def step(tab, number: int = 0) -> int:
    said = label(tab, "step", number).split(maxsplit=1)
    return int(said[0]) if said and said[0].isdigit() else -1


def until(tab, what: str, test) -> None:
    """Like wait_for, but by events of the browser."""
    def look():
        tab.wait_for_timeout(50)
        return test()
    wait_for(what, look, timeout=MOST)


def press(tab, name: str) -> None:
    tab.get_by_role("button", name=name, exact=True).click()


def test_a_live_volume_and_what_the_page_can_do_with_it(recv, send, view):
    name, port = recv()
    send("demo:gray-scott:32", port, "--rate", "8mbit")
    with browser.page(view(name)) as tab:
        until(tab, "steps are drawn", lambda: step(tab) > 100 and coloured(drawn(tab)) > 0.02)
        shown, before, then = tab.evaluate("tidecast.stats.shown"), drawn(tab), step(tab)
        until(tab, "it lives", lambda: step(tab) > then and (drawn(tab) != before).mean() > 0.01)
        assert tab.evaluate("tidecast.stats.shown") > shown
        assert label(tab, "shape").startswith("32 × 32 × 32") and "Gbit/s" in label(tab, "rate")
        browser.shot(tab, "live")

        # Standing still it is drawn in full detail, and stays. The pattern comes and goes; the next step needs one.
        def pattern() -> bool:
            press(tab, "Pause")
            browser.settled(tab)
            if coloured(drawn(tab)) > 0.05 and coloured(image(tab.locator("#slices").screenshot())) > 0.02:
                return True
            press(tab, "Play")
            return False

        until(tab, "a pattern that stands still", pattern)
        still, before = step(tab), drawn(tab)
        tab.wait_for_timeout(500)
        assert step(tab) == still and np.array_equal(drawn(tab), before)
        browser.shot(tab, "still")

        # Turning, zooming, colours, density, the curve, the range.
        for what, act in {
            "a turn": lambda: tab.locator("#view").press("ArrowLeft"),
            "nearer": lambda: tab.locator("#view").press("+"),
            "dragged": lambda: tab.locator("#view").drag_to(tab.locator("#view"), source_position={"x": 300, "y": 300},
                                                            target_position={"x": 420, "y": 340}),
            "another map": lambda: tab.locator("#map").select_option(index=1),
            "denser": lambda: tab.locator("#density").fill("1.5"),
            "the curve": lambda: tab.locator("#curve").drag_to(tab.locator("#curve"), source_position={"x": 212, "y": 51},
                                                               target_position={"x": 150, "y": 10}),
            "the range": lambda: (tab.locator("#to").fill("0.5"), tab.locator("#to").press("Enter")),
        }.items():
            before = drawn(tab)
            act()
            # Another range is loaded first.
            until(tab, what, lambda: (drawn(tab) != before).mean() > 0.005)  # noqa: B023
            browser.settled(tab)
        slices = tab.locator("#slices")
        before = image(slices.screenshot())
        assert coloured(before) > 0.02
        slices.locator("input").last.fill("3")
        until(tab, "another slice", lambda: (image(slices.screenshot()) != before).mean() > 0.01)

        with tab.expect_download() as got:
            press(tab, "Picture")
        png = pathlib.Path(got.value.path()).read_bytes()
        assert got.value.suggested_filename == "field.png" and coloured(image(png)) > 0.02
        press(tab, "Play")
        press(tab, "Film")
        tab.wait_for_timeout(1500)
        with tab.expect_download() as got:
            press(tab, "Stop")
        webm = pathlib.Path(got.value.path()).read_bytes()
        assert got.value.suggested_filename == "field.webm" and webm[:4] == b"\x1a\x45\xdf\xa3" and len(webm) > 10_000


def test_recorded_steps_are_gone_through_by_a_slider(recv, send, view, node, tmp_path):
    name, port = recv("--volume", "steps", "--record", tmp_path / "run7", "--steps", 6)
    steps = np.stack([field((24, 24, 24), seed) for seed in range(6)])
    np.save(tmp_path / "a.npy", steps)
    send(tmp_path / "a.npy", port, "--rate", "20mbit")
    log = tmp_path / "run7" / "steps.jsonl"
    wait_for("six are recorded", lambda: log.exists() and log.read_text().count("\n") == 6, timeout=MOST)
    with browser.page(view("--record", tmp_path / "run7")) as tab:
        until(tab, "the first is there", lambda: step(tab) == 0)
        browser.settled(tab)
        pictures = [drawn(tab)]
        for wanted in (3, 5):
            tab.locator("#steps").fill(str(wanted))
            until(tab, "the step that is asked for", lambda: step(tab) == wanted)  # noqa: B023
            browser.settled(tab)
            pictures.append(drawn(tab))
        assert all((one != other).mean() > 0.02 for one, other in zip(pictures, pictures[1:]))
        assert label(tab, "step") == "5 (6 of 6)"
        browser.shot(tab, "recorded")
        press(tab, "Play")
        until(tab, "it plays from the beginning", lambda: 0 <= step(tab) < 5)


def test_two_streams_side_by_side_and_the_loss_of_one(recv, send, view):
    (fast, near), (slow, far) = recv(), recv()
    with Link(far, STREAMS, 0.2) as link:
        send("demo:gray-scott:32", near, "--rate", "18mbit")
        send("demo:gray-scott:32", link.port, "--rate", "2mbit")
        with browser.page(view(fast, slow), width=1400) as tab:
            until(tab, "both are drawn", lambda: step(tab, 0) > 150 and step(tab, 1) > 10)
            assert step(tab, 0) > step(tab, 1)
            until(tab, "loss is told", lambda: float(label(tab, "loss", 1).rstrip("%")) > 5)
            assert label(tab, "loss", 0).endswith("%")
            # The pattern comes and goes; each half has it now and then.
            half = drawn(tab).shape[1] // 2
            for what, part in ("the quick one", slice(None, half)), ("the slow one", slice(half, None)):
                until(tab, f"{what} has colour", lambda: coloured(drawn(tab)[:, part]) > 0.02)  # noqa: B023
            assert coloured(image(tab.locator("#loss").screenshot())) > 0.001, "the second line of the plot is up"
            browser.shot(tab, "two")
            tab.locator("#loss").scroll_into_view_if_needed()
            if (box := tab.locator("aside").bounding_box()):
                browser.shot(tab, "plots", clip=box)


def test_a_receiver_that_has_gone_and_one_that_comes(recv, send, view, node):
    """The page stays when a receiver ends, reports it, and continues when it is back."""
    name, port = recv("--steps", 5)
    send("demo:gray-scott:16", port, "--rate", "1mbit")
    with browser.page(view(name)) as tab:
        until(tab, "it has ended", lambda: "ended" in label(tab, "last packet") or tab.locator("#notice").inner_text() != "")
        again = node("again").run("--json", "field", "recv", "--listen", f"127.0.0.1:{port}", "--streams", STREAMS, "--name", name,
                                  "--key", KEY)
        until(tab, "it is back", lambda: step(tab) > 8 and "ago" in label(tab, "last packet"))
        again.signal(signal.SIGINT)
        again.exits(0)


def test_the_api_refuses_what_it_should(recv, view):
    name, _ = recv()
    address, token = opened(view(name))

    def ask(path: str, method: str = "GET", **headers) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(address, timeout=60)
        try:
            connection.request(method, path, headers={"Authorization": f"Bearer {token}", **headers})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    status, said = ask("/api/state")
    assert status == 200 and json.loads(said)["volumes"][0]["name"] == name
    # A page elsewhere whose name was turned to this address.
    assert ask("/api/state", Host="evil.example")[0] == 403 and ask("/", Host="evil.example:80")[0] == 403
    for path, wanted in {
        "/api/volumes/7/cells": 404, "/api/volumes/-1/cells": 400, "/api/volumes/0/cells?factor=0": 400,
        "/api/volumes/0/cells?factor=x": 400, "/api/volumes/0/cells?box=1,2": 400, "/api/volumes/0/cells?box=9,9,9,0,0,0": 400,
        f"/api/volumes/0/cells?factor={2**70}": 400, "/api/volumes/0/cells?how=evil": 400, "/../../etc/passwd": 404,
        "/assets/%2e%2e/%2e%2e/etc/passwd": 404,
    }.items():
        status, said = ask(path)
        # A volume without data yet may report that first.
        assert status == wanted or wanted == 400 and status == 404, (path, status, said[:200])
        assert b"root:" not in said
    assert ask("/api/state", method="POST")[0] == 405
    assert ask("/api/state")[0] == 200


def request(connect, path: str, **headers) -> tuple[int, dict, bytes]:
    """Status, headers and body; `connect` is an address or a connected socket."""
    connection = http.client.HTTPConnection(connect if isinstance(connect, str) else "localhost", timeout=60)
    if not isinstance(connect, str):
        connection.sock = connect
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def test_nothing_is_shown_without_the_token(recv, view, node):
    name, _ = recv()
    url = view(name)
    address, token = opened(url)
    cookie = f"tidecast-view-{address.rsplit(':', 1)[1]}"
    for path in ("/", "/index.html", "/api/state", "/api/volumes/0/cells", "/assets/x.js", "/absent", "/?token=", f"/?token={token[:-1]}", f"/?token={token}0"):
        for headers in ({}, {"Accept": "text/html"}, {"Cookie": f"other={token}"}, {"Authorization": f"Basic {token}"}, {"Referer": url}):
            status, heard, said = request(address, path, **headers)
            assert status == 403 and b"token" in said and len(said) < 2048 and "set-cookie" not in heard, (path, headers, said)
    status, heard, _ = request(address, f"/?token={token}")
    assert status == 200 and heard["referrer-policy"] == "no-referrer" and heard["cache-control"] == "no-store"
    value, rest = heard["set-cookie"].removeprefix(f"{cookie}=").split(";", 1)
    assert rest == " Path=/; HttpOnly; SameSite=Strict" and len(value) >= 32 and value != token
    # Browsers send cookies to all ports of a host: this one opens the page, and no data.
    for path, wanted in {"/": 200, "/api/state": 403, "/api/volumes/0/cells": 403}.items():
        assert request(address, path, Cookie=f"a=b; {cookie}={value}")[0] == wanted, path
        assert request(address, path, Cookie=f"{cookie}={token}")[0] == 403, path
    for shows in ({"Authorization": f"Bearer {token}"}, {"Tidecast-Token": token}):
        assert request(address, "/api/state", **shows)[0] == 200
    # Another viewer shows it only if it shows the token; which is on no command line.
    other = node("other")
    for shown, wanted in ((token, True), ("0" * 48, False)):
        (other.home / "token").write_text(shown)
        (other.home / "token").chmod(0o600)
        proc = other.run("--json", "field", "view", "--listen", "127.0.0.1:0", "--remote-token-file", other.home / "token", f"http://{address}/{name}")
        proc.until("it serves", lambda proc=proc: '"started"' in proc.out)
        there, own = opened(proc.last("started")["url"])
        volume = json.loads(request(there, "/api/state", Authorization=f"Bearer {own}")[2])["volumes"][0]
        assert ("token" in (volume["error"] or "")) != wanted, volume
        proc.signal(signal.SIGINT)
        proc.exits(0)


def test_a_proxy_reaches_the_viewer_below_a_path_and_by_a_socket(recv, node):
    name, _ = recv()
    host = node("viewer")
    secret = "fixed-token-of-a-test"
    file = host.home / "token"
    file.write_text(secret + "\n")
    file.chmod(0o644)
    refused = host.run("field", "view", name, "--listen", "127.0.0.1:0", "--token-file", file)
    assert refused.wait() != 0
    assert "chmod 600" in refused.err and secret not in refused.err
    file.chmod(0o600)
    base = "/node/n7/8765"
    proc = host.run("--json", "field", "view", name, "--listen", "127.0.0.1:0", "--token-file", file, "--base-path", base + "/",
                    "--allow-host", "portal.example")
    proc.until("it serves", lambda: '"started"' in proc.out)
    url = proc.last("started")["url"]
    address, token = opened(url)
    assert token == secret and url == f"http://{address}{base}/?token={secret}"
    shows = {"Authorization": f"Bearer {secret}"}
    for path, wanted in {base + "/": 200, base: 307, base + "/api/state": 200, "/api/state": 200, "/": 200, base + "/absent": 404}.items():
        status, heard, _ = request(address, path, Host="portal.example", **shows)
        assert status == wanted, path
        assert status != 307 or heard["location"] == base + "/"
        assert request(address, path)[0] == 403 and request(address, path, Host="other.example", **shows)[0] == 403
    assert f"Path={base};" in request(address, f"{base}/?token={secret}")[1]["set-cookie"]
    proc.signal(signal.SIGINT)
    proc.exits(0)
    path = host.home / "viewer.sock"
    proc = host.run("--json", "field", "view", name, "--listen", f"unix:{path}")
    proc.until("it serves", lambda: '"started"' in proc.out)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.stat().st_uid == os.geteuid()
    with socket.socket(socket.AF_UNIX) as there:
        there.connect(str(path))
        assert request(there, "/api/state", Host="whatever.example")[0] == 200
    proc.signal(signal.SIGINT)
    proc.exits(0)
    assert not path.exists()


def test_silent_connections_are_closed_and_keep_nobody_out(recv, view):
    name, _ = recv()
    address, token = opened(view(name))
    where = (address.rsplit(":", 1)[0], int(address.rsplit(":", 1)[1]))
    silent = [socket.create_connection(where, timeout=60) for _ in range(100)]
    try:
        silent[-1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        assert request(address, "/api/state", Authorization=f"Bearer {token}")[0] == 200
        assert silent[0].recv(1) == b"", "the oldest gives way"
        # A request that continues without end before it has shown the token is cut off, and so is a silent one.
        try:
            for _ in range(64):
                silent[-1].sendall(b"x" * 1024)
            assert silent[-1].recv(4096).split(b" ")[1:2] in ([], [b"431"])
        except (BrokenPipeError, ConnectionResetError):
            pass
        try:
            assert silent[-2].recv(1) == b""
        except ConnectionResetError:
            pass
    finally:
        for one in silent:
            one.close()
