"""Hosts of a site, as the tests have them: daemons with certificates of one CA, all on this machine."""
from __future__ import annotations

import http.client
import json
import os
import pathlib
import socket

import pytest

from .proc import Proc
from .tidecast import Node


class Host(Node):
    """A host with a daemon, and its users' commands."""

    def __init__(self, program: pathlib.Path, home: pathlib.Path, start, name: str, lab=None, node: int | None = None):
        super().__init__(program, home, start, lab, node)
        self.name, self.socket, self.dir = name, home / "daemon.sock", home / "store"
        # A host of its own: it shares with no other daemon of this machine.
        self.machine = str(home)
        self.env["TIDECAST_SOCKET"] = str(self.socket)
        self.words: list = []
        self.daemon: Proc | None = None

    def serve(self, *words) -> Proc:
        """Starts the daemon, by default as it was started last, and waits until it answers."""
        self.words = list(words) or self.words
        self.daemon = self.run("daemon", "--dir", self.dir, "--name", self.name, "--machine", self.machine, *self.words)
        self.daemon.until("a daemon that answers", lambda: "users ask at" in self.daemon.out)
        return self.daemon

    def cache(self, *words, code: int | None = 0) -> dict:
        """`tidecast cache WORDS --json`: its last event; None: whatever its exit code."""
        done = self.run("cache", *words, "--json")
        if code is None:
            done.wait()
        else:
            done.exits(code)
        return done.events()[-1]

    def create(self, name: str, *words, code: int = 0) -> dict:
        return self.cache("create", name, *words, code=code)

    def names(self) -> list[str]:
        return [cache["name"] for cache in self.cache("ls")["caches"]]

    def http(self, method: str, path: str, body=None, headers=None) -> tuple[int, dict]:
        """A request of another program than ours."""
        connection = Unix(str(self.socket))
        if isinstance(body, dict):
            body, headers = json.dumps(body), {"content-type": "application/json", **(headers or {})}
        try:
            connection.request(method, path, body, headers or {})
        except BrokenPipeError:
            pass  # the answer came before the whole request was sent
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")


class Unix(http.client.HTTPConnection):
    def __init__(self, path: str):
        super().__init__("daemon", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


class Site:
    """Hosts that trust one CA."""

    def __init__(self, program: pathlib.Path, base: pathlib.Path, start, free_port):
        self.program, self.base, self.start, self.free_port = program, base, start, free_port
        self.hosts: list[Host] = []
        self.admin = Node(program, base / "admin", start)
        self.ca = base / "ca"
        self.admin("ca", "init", self.ca, "--name", "the site")
        self.trust = self.believe(self.ca, "trust")

    def believe(self, ca: pathlib.Path, name: str) -> pathlib.Path:
        """A file of trust that names a CA, beside copies of its certificate and its list."""
        place = self.base / name
        place.mkdir(exist_ok=True)
        for file in ("ca.crt", "ca.crl"):
            (place / file).write_bytes((ca / file).read_bytes())
        (place / "trust.toml").write_text('[[root]]\ncertificate = "ca.crt"\ncrl = "ca.crl"\n')
        return place / "trust.toml"

    def certificate(self, identity: str, *words, ca: pathlib.Path | None = None) -> pathlib.Path:
        path = self.base / f"{identity.replace(':', '-')}.pem"
        self.admin("ca", "issue", ca or self.ca, identity, "-o", path, *words)
        return path

    def host(self, name: str, *words, trust: pathlib.Path | None = None, pem: pathlib.Path | None = None, known: list | None = None,
             lab=None, node: int | None = None) -> Host:
        """A host whose daemon runs, and knows those that were there before, or these; with `lab` it is a node of it."""
        if os.geteuid() and (pem is None or pem.name.startswith("host-")):
            pytest.skip("SKIPPED: a daemon with the certificate of a host needs root")
        host = Host(self.program, self.base / name, self.start, name, lab, node)
        peers = [word for peer in (self.hosts if known is None else known) for word in ("--peer", f"{peer.name}={peer.listen}")]
        host.listen = f"{lab.address(node)}:6980" if lab else f"127.0.0.1:{self.free_port()}"
        pem = pem or self.certificate(f"host:{name}")
        host.serve("--listen", host.listen, "--trust", trust or self.trust, "--certificate", pem, *peers, *words)
        self.hosts.append(host)
        return host
