"""A tracker that a test controls, and that records its requests."""
from __future__ import annotations

import gzip
import http.server
import socket
import struct
import threading
import urllib.parse
import zlib


def compact(peers: list[tuple[str, int]]) -> bytes:
    return b"".join(socket.inet_aton(ip) + struct.pack(">H", number) for ip, number in peers)


def string(text: bytes) -> bytes:
    return b"%d:%s" % (len(text), text)


def answer(peers: list[tuple[str, int]], interval: int = 900) -> bytes:
    return b"d8:intervali%de5:peers%se" % (interval, string(compact(peers)))


def named(peers: list[tuple[str, int]], interval: int = 900) -> bytes:
    """The form of BEP 3, in which a peer may have a name."""
    entries = b"".join(b"d2:ip%s4:porti%dee" % (string(host.encode()), number) for host, number in peers)
    return b"d8:intervali%de5:peersl%see" % (interval, entries)


ENCODINGS = {
    None: lambda body: body,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
}


class Tracker:
    """Answers each announce with `body`, compressed whether or not that was asked for."""

    def __init__(self, body: bytes, encoding: str | None = None):
        self.body, self.encoding = body, encoding
        self.asked: list[dict[str, str]] = []
        tracker = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                query = urllib.parse.urlsplit(self.path).query
                tracker.asked.append(dict(urllib.parse.parse_qsl(query, encoding="latin-1")))
                body = ENCODINGS[tracker.encoding](tracker.body)
                self.send_response(200)
                if tracker.encoding:
                    self.send_header("Content-Encoding", tracker.encoding)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/announce"

    def events(self) -> list[str]:
        return [ask.get("event", "") for ask in self.asked]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class UdpTracker:
    """BEP 15: keeps each announce as it came, and answers with the same peers."""

    def __init__(self, peers: list[tuple[str, int]]):
        self.peers, self.asked = peers, []
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        threading.Thread(target=self.answer, daemon=True).start()

    @property
    def url(self) -> str:
        return f"udp://127.0.0.1:{self.socket.getsockname()[1]}/announce?key=ab"

    def answer(self):
        while True:
            try:
                packet, who = self.socket.recvfrom(4096)
            except OSError:
                return
            action, transaction = struct.unpack(">II", packet[8:16])
            if action == 0:
                body = struct.pack(">Q", 7)
            else:
                self.asked.append(packet)
                body = struct.pack(">III", 900, 0, 1) + compact(self.peers)
            self.socket.sendto(struct.pack(">II", action, transaction) + body, who)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
