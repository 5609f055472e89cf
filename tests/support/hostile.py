"""Misbehaving peers, each with one fault that a getter must survive, report and ban.

Each listens on an address of its own in 127.0.0.0/8, so that its name in a log is unmistakable, announces all pieces, and then
commits its one fault. They speak plain BitTorrent: to a peer that opens with TLS they hang up,
as a stock client does.
"""
from __future__ import annotations

import json
import os
import pathlib
import socket
import struct
import sys
import threading

CHOKE, UNCHOKE, INTERESTED, HAVE, BITFIELD, REQUEST, PIECE = 0, 1, 2, 4, 5, 6, 7
EXTENDED, HASH_REQUEST, HASHES, HAVE_ALL, HAVE_NONE = 20, 21, 22, 14, 15
FAST_EXT_V2 = bytes([0, 0, 0, 0, 0, 0x10, 0, 0x14])


class Gone(Exception):
    """The other side closed the connection."""


class Hostile:
    """One misbehaving peer; a context manager. `requests` counts its requests, `closed` how often peers disconnected."""

    def __init__(self, ip: str, port: int):
        self.address = f"{ip}:{port}"
        self.requests = 0
        self.sent = 0
        self.connections = 0
        self.closed = threading.Event()
        self.stopped = threading.Event()
        self.listener = socket.create_server((ip, port))
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(peer,), daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        try:
            first = peer.recv(1, socket.MSG_PEEK)
            if first != b"\x13":
                return
            self.connections += 1
            self.talk(peer)
        except (Gone, OSError):
            pass
        finally:
            if self.connections:
                self.closed.set()
            peer.close()

    def talk(self, peer: socket.socket) -> None:
        """The whole conversation; the default is that of a seeder whose deeds are `on_request` and `on_hashes`."""
        self.handshake(peer)
        send(peer, EXTENDED, b"\x00d1:md11:ut_metadatai3eee")
        send(peer, HAVE_ALL)
        send(peer, UNCHOKE)
        while True:
            kind, body = receive(peer)
            if kind == INTERESTED:
                send(peer, UNCHOKE)
            elif kind == REQUEST:
                self.requests += 1
                self.on_request(peer, *struct.unpack(">III", body))
            elif kind == HASH_REQUEST:
                self.requests += 1
                self.on_hashes(peer, body)

    def handshake(self, peer: socket.socket) -> bytes:
        theirs = exactly(peer, 68)
        peer.sendall(b"\x13BitTorrent protocol" + FAST_EXT_V2 + theirs[28:48] + b"-XX0000-" + os.urandom(6).hex().encode())
        return theirs

    def on_request(self, peer: socket.socket, piece: int, begin: int, length: int) -> None:
        """A seeder of this file answers nothing."""

    def on_hashes(self, peer: socket.socket, body: bytes) -> None:
        send(peer, 23, body)  # rejected


class WrongBytes(Hostile):
    """Answers at once, with noise."""

    def on_request(self, peer, piece, begin, length):
        send(peer, PIECE, struct.pack(">II", piece, begin) + os.urandom(min(length, 1 << 20)))


class WrongProofs(Hostile):
    """Answers requests for hashes with hashes of nothing, and for data with noise."""

    on_request = WrongBytes.on_request

    def on_hashes(self, peer, body):
        _, _, count, proofs = struct.unpack(">IIII", body[32:48])
        send(peer, HASHES, body + os.urandom(32 * min(count + proofs, 1024)))


class EndlessHandshake(Hostile):
    """Never comes to the end of its handshake: a byte a second, and then none."""

    def talk(self, peer):
        for byte in b"\x13BitTorrent protocol" + bytes(8):
            peer.sendall(bytes([byte]))
            if self.stopped.wait(1):
                return
        while not self.stopped.wait(1):
            pass


class Oversized(Hostile):
    """Announces a message of nearly 4 GiB, and sends it as fast as it is taken."""

    def talk(self, peer):
        self.handshake(peer)
        peer.sendall(struct.pack(">IB", 0xFFFF_FFF0, BITFIELD))
        while not self.stopped.is_set():
            self.sent += peer.send(bytes(1 << 16))


class OneByteAMinute(Hostile):
    """Unchokes, takes requests, and then sends their data at a byte a minute."""

    def on_request(self, peer, piece, begin, length):
        peer.sendall(struct.pack(">IBII", 9 + length, PIECE, piece, begin))
        while True:
            peer.sendall(b"\0")
            if self.stopped.wait(60):
                raise Gone


class Publisher(Hostile):
    """Has an info dictionary (BEP 9, in one piece), and nothing else."""

    def __init__(self, ip: str, port: int, info: bytes):
        self.info = info
        super().__init__(ip, port)

    def talk(self, peer):
        self.handshake(peer)
        send(peer, EXTENDED, b"\x00d1:md11:ut_metadatai3ee13:metadata_sizei%dee" % len(self.info))
        number = b"\x03"
        while True:
            kind, body = receive(peer)
            if kind == EXTENDED and body[0] == 0:
                number = bytes([int(body.partition(b"11:ut_metadatai")[2].partition(b"e")[0])])
            elif kind == EXTENDED:
                head = b"d8:msg_typei1e5:piecei0e10:total_sizei%dee" % len(self.info)
                send(peer, EXTENDED, number + head + self.info)


#: The beginning of a TLS record of 512 bytes with a ClientHello of 508.
CLIENT_HELLO = bytes.fromhex("16030102000100 01fc 0303".replace(" ", ""))
BITTORRENT = b"\x13BitTorrent proto"


class Flood:
    """2,000 connections that are silent after `prefix` and 300 that trickle, from one address or user (`flood.py`); a context
    manager, in which all of them have been dialled."""

    def __init__(self, start, to, prefix: bytes = b"", **words):
        words = {"to": to, "source": "127.0.0.9", "prefix": prefix.hex(), **words}
        self.proc = start([sys.executable, pathlib.Path(__file__).with_name("flood.py"), json.dumps(words)])

    def __enter__(self) -> "Flood":
        self.proc.until("the flood is there", lambda: self.proc.out.count("up ") > 2)
        return self

    def __exit__(self, *_) -> None:
        self.proc.kill()


def send(peer: socket.socket, kind: int, body: bytes = b"") -> None:
    peer.sendall(struct.pack(">IB", 1 + len(body), kind) + body)


def receive(peer: socket.socket) -> tuple[int, bytes]:
    """The next message, keep-alives left out."""
    while True:
        (length,) = struct.unpack(">I", exactly(peer, 4))
        if length:
            body = exactly(peer, length)
            return body[0], body[1:]


def exactly(peer: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = peer.recv(min(count, 1 << 16))
        if not part:
            raise Gone
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
