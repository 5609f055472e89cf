"""Other people's BitTorrent clients, each made to seed or to get one torrent and nothing else.

All take a `run(argv) -> Proc` that starts a command (on a lab node, if the test chooses one), the address they
are reached at, a folder of their own, the torrent, and the folder that holds, or shall hold, the data.
"""
from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
import sys

HERE = pathlib.Path(__file__).parent


def make_torrent(start, torrent: pathlib.Path, path: pathlib.Path, fmt: str, *words) -> pathlib.Path:
    """A torrent of `path` made by libtorrent."""
    start([sys.executable, HERE / "ltpeer.py", "make", torrent, path, "--format", fmt, *words]).ok()
    return torrent


def libtorrent(run, command: str, torrent, folder: pathlib.Path, listen: str, *words):
    """`command` is seed or get; ready (seeding or asking) when this returns."""
    folder.mkdir(parents=True, exist_ok=True)
    proc = run([sys.executable, HERE / "ltpeer.py", command, torrent, folder, "--listen", listen, *words])
    proc.until("libtorrent is ready", lambda: "ready" in proc.out)
    return proc


def aria2(run, ip: str, port: int, home: pathlib.Path, torrent: pathlib.Path, folder: pathlib.Path, *words):
    home.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    return run(["aria2c", "--no-conf", "--enable-dht=false", "--enable-dht6=false", "--bt-enable-lpd=false",
                "--disable-ipv6=true", "--check-integrity=true", "--seed-ratio=0.0", "--seed-time=600",
                "--file-allocation=none", f"--listen-port={port}", f"--bt-external-ip={ip}", "--bt-tracker-interval=2",
                "--summary-interval=0", "--console-log-level=notice", "--allow-overwrite=true", *words, "-d", folder, torrent])


def transmission(run, ip: str, port: int, home: pathlib.Path, torrent: pathlib.Path, folder: pathlib.Path):
    """Debian's 3.00; it takes no loopback addresses for peers."""
    home.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"dht-enabled": False, "lpd-enabled": False, "utp-enabled": False, "port-forwarding-enabled": False,
                "bind-address-ipv4": ip, "encryption": 0, "preallocation": 0, "peer-port": port}
    (home / "settings.json").write_text(json.dumps(settings))
    return run(["transmission-cli", "-g", home, "-w", folder, "-p", port, "-M", "-v", "-et", torrent])


def ctorrent(run, ip: str, port: int, home: pathlib.Path, torrent: pathlib.Path, target: pathlib.Path):
    """`target` is the file or directory itself, not the folder around it."""
    home.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    mine = home / "the.torrent"  # it keeps its notes beside the torrent
    shutil.copy(torrent, mine)
    return run(["ctorrent", "-i", ip, "-p", port, "-e", "1", "-s", target, "-b", home / "bits", mine])


def opentracker(run, ip: str, port: int, home: pathlib.Path, torrents: list[pathlib.Path]):
    """Debian's build serves only the hashes in its list, and gives up root for a folder it can read."""
    home.mkdir(parents=True, exist_ok=True)
    for folder in (home, *home.parents):
        if folder.stat().st_mode & 0o005 != 0o005 and str(folder).startswith("/tmp/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    hashes = [hashlib.sha1(info_bytes(t.read_bytes())).hexdigest().upper() for t in torrents]
    (home / "list").write_text("\n".join(hashes) + "\n")
    return run(["sh", "-c", f"cd {home} && exec opentracker -i {ip} -p {port} -P {port} -d {home} -w list"])


def info_bytes(torrent: bytes) -> bytes:
    """The exact bytes of a torrent's info dictionary."""
    at = torrent.index(b"4:info") + 6
    return torrent[at:skip(torrent, at)]


def skip(data: bytes, at: int) -> int:
    """Where the bencoded value at `at` ends."""
    if data[at:at + 1] == b"i":
        return data.index(b"e", at) + 1
    if data[at:at + 1] in (b"l", b"d"):
        at += 1
        while data[at:at + 1] != b"e":
            at = skip(data, at)
        return at + 1
    colon = data.index(b":", at)
    return colon + 1 + int(data[at:colon])
