"""A server of HTTP with ranges that can misbehave: the web seed of the tests (BEP 19).

`fault(request)` is called for each request, and returns the fault instead of a good answer: a status, or the name of one of `FAULTS`.
Sent bytes are counted, so that tests can tell how many copies were fetched.
"""
from __future__ import annotations

import gzip
import pathlib
import re
import socket
import ssl
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAULTS = ("other-range", "no-range", "other-size", "multipart", "short", "longer", "endless-headers", "garbage", "silent",
          "gzip", "labelled", "lies", "hangs-up", "drips")


@dataclass
class Request:
    """One request: its decoded path, its range, and how many came before it for the same path."""
    path: str
    range: str | None
    before: int
    headers: dict = field(default_factory=dict)


class WebServer:
    """Serves `root` on a free port of `ip`; a context manager. `rate`: bytes a second, over all connections."""

    def __init__(self, root: pathlib.Path, fault=None, ranges: bool = True, rate: int | None = None, ip: str = "127.0.0.1",
                 tls: tuple | None = None):
        self.root, self.fault, self.ranges, self.rate = root, fault or (lambda request: None), ranges, rate
        self.requests: list[Request] = []
        self.sent = 0
        self.lock = threading.Lock()
        self.stopped = threading.Event()
        self.due = time.monotonic()
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        kind = type("Server", (ThreadingHTTPServer,), {"address_family": family, "daemon_threads": True,
                                                       "handle_error": lambda *_: None, "request_queue_size": 64})
        self.server = kind((ip, 0), type("Handler", (Handler,), {"web": self}))
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        host = f"[{ip}]" if ":" in ip else ip
        self.url = f"{'https' if tls else 'http'}://{host}:{self.port}/"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.server.shutdown()
        self.server.server_close()

    def note(self, path: str, headers) -> Request:
        with self.lock:
            before = sum(r.path == path for r in self.requests)
            request = Request(path, headers.get("Range"), before, dict(headers))
            self.requests.append(request)
            return request

    def send(self, out, data: bytes) -> None:
        """Sends at the rate of the server, and counts."""
        for at in range(0, len(data), 16384):
            part = data[at:at + 16384]
            if self.rate:
                with self.lock:
                    self.due = max(self.due, time.monotonic()) + len(part) / self.rate
                    wait = self.due - time.monotonic()
                self.stopped.wait(wait)
            out.write(part)
            with self.lock:
                self.sent += len(part)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    web: WebServer

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        request = self.web.note(path, self.headers)
        fault = self.web.fault(request)
        if isinstance(fault, int):
            return self.refuse(fault)
        if isinstance(fault, str) and "://" in fault or isinstance(fault, str) and fault.startswith("/"):
            self.send_response(302)
            self.send_header("Location", fault)
            self.send_header("Content-Length", "5")
            self.end_headers()
            return self.wfile.write(b"moved")
        file = self.web.root / path.lstrip("/")
        if not file.is_file():
            return self.refuse(404)
        self.answer(file.read_bytes(), request, fault)

    def refuse(self, status: int):
        self.send_response(status)
        if status in (429, 503):
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def answer(self, data: bytes, request: Request, fault: str | None):
        first, last, status = 0, len(data) - 1, 200
        if self.web.ranges and request.range and fault != "no-range":
            asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.range)
            first, last, status = int(asked[1]), min(int(asked[2] or last), last), 206
            if first > last:
                return self.refuse(416)
        body, total = data[first:last + 1], len(data)
        if fault in ("endless-headers", "garbage", "silent", "hangs-up"):
            return self.misbehave(fault)
        if fault == "lies":
            body = bytes(b ^ 0xff for b in body)
        if fault == "other-range":
            first, last = first + 1, last + 1
        if fault == "other-size":
            total += 1
        if fault == "gzip":
            body, status = gzip.compress(data, 1), 200
        self.send_response(status)
        if status == 206:
            kind = "multipart/byteranges; boundary=x" if fault == "multipart" else "application/octet-stream"
            self.send_header("Content-Type", kind)
            if fault != "multipart":
                self.send_header("Content-Range", f"bytes {first}-{last}/{total}")
        # Of a file that is compressed itself and is sent as it is, as Apache does with its AddEncoding.
        if fault in ("gzip", "labelled"):
            self.send_header("Content-Encoding", "x-gzip" if fault == "labelled" else "gzip")
        if fault == "drips":
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            for byte in body:
                self.web.send(self.wfile, bytes([byte]))
                self.wfile.flush()
                self.web.stopped.wait(0.5)
            return
        size = len(body) + (100_000 if fault == "longer" else 0)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.web.send(self.wfile, body[:len(body) // 2] if fault == "short" else body + bytes(size - len(body)))
        self.close_connection |= fault == "short"

    def misbehave(self, fault: str):
        self.close_connection = True
        if fault == "garbage":
            self.wfile.write(b"\x00\xff" * 5000)
        elif fault == "endless-headers":
            self.wfile.write(b"HTTP/1.1 206 Partial Content\r\n")
            while not self.web.stopped.is_set():
                self.wfile.write(b"X-More: " + b"a" * 4000 + b"\r\n")
        elif fault == "silent":
            self.web.stopped.wait()
