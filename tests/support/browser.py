"""Debian's chromium without a screen, for the page of `tidecast field view`: software rendering, nothing from the network."""
import contextlib
import os
import shutil
import time

import pytest

CHROMIUM = shutil.which("chromium")
ARGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist", "--disable-quic",
        "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
#: A browser that draws in two dimensions only.
FLAT = ["--no-sandbox", "--disable-gpu", "--disable-3d-apis", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync"]


def needed():
    """Skips, with a message, if there is no browser."""
    if not CHROMIUM:
        pytest.skip("SKIPPED: no chromium (apt-get install chromium): the page of `field view` was not tried")
    return pytest.importorskip("playwright.sync_api", reason="SKIPPED: no playwright (pip install -r tests/requirements.txt)")


@contextlib.contextmanager
def page(url: str, width: int = 1100, height: int = 700, args=ARGS):
    """The page in a browser; whatever it asks of another host, or complains of, is a failure."""
    api = needed()
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=args, headless=True)
        try:
            tab = browser.new_page(viewport={"width": width, "height": height})
            faults: list[str] = []
            origin = "/".join(url.split("/", 3)[:3])
            tab.on("pageerror", lambda error: faults.append(str(error)))
            tab.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
            tab.on("request", lambda request: None if request.url.startswith((origin + "/", "blob:", "data:")) else faults.append(request.url))
            tab.set_default_timeout(120_000)
            tab.goto(url)
            yield tab
            assert not faults, faults
        finally:
            browser.close()


def settled(tab) -> None:
    """Waits until the newest level is drawn in full detail. The page forbids evaluation of text, so it is polled."""
    deadline = time.monotonic() + 600
    while not tab.evaluate("tidecast.stats.done && tidecast.volumes.length > 0 && tidecast.volumes.every(v => v.level)"):
        assert time.monotonic() < deadline, "full detail has not come"
        tab.wait_for_timeout(20)


def shot(tab, name: str, **how) -> bytes:
    """A picture of the page, kept in the directory TIDECAST_SHOTS."""
    folder = os.environ.get("TIDECAST_SHOTS")
    path = None
    if folder:
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, name + ".png")
    return tab.screenshot(path=path, **how)
