"""A receiver of fields, written from docs/field-format.md alone: to check `tidecast field send` independently."""
from __future__ import annotations

import base64
import hmac
import secrets
import selectors
import socket
import struct
import threading
import time

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from support.fieldpeer import CONTROL, ENCRYPTED, XYZ, Seal, curve, slab

SO_RCVBUFFORCE = 33  # Linux; not among Python's names
HELLO = ("version", "stream", "streams", "first", "here", "packing", "morton", "session", "challenge", "nx", "ny", "nz", "values",
         "first_step", "steps", "batch", "data", "parity", "rate", "name")


class Sink:
    """Adjacent ports, answers to hellos, and all received datagrams: `values[batch]`, `parity[batch]`, as (stream, when, bytes)."""

    def __init__(self, streams: int, key: str | None = None):
        self.secret = base64.b32decode(key.upper() + "====") if key else None
        self.sockets, self.port = neighbours(streams)
        self.challenges = [secrets.randbits(64) for _ in self.sockets]
        self.hello: dict[int, dict] = {}
        self.values: dict[int, list] = {}
        self.parity: dict[int, list] = {}
        self.received = [0] * streams
        self.bytes = 0
        self.byes = self.wrong = 0
        self._stop = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def close(self):
        self._stop = True
        self.thread.join(10)
        for s in self.sockets:
            s.close()

    def run(self):
        selector = selectors.DefaultSelector()
        for place, s in enumerate(self.sockets):
            selector.register(s, selectors.EVENT_READ, place)
        while not self._stop:
            for event, _ in selector.select(0.05):
                for _ in range(100):
                    try:
                        datagram, sender = self.sockets[event.data].recvfrom(70_000, socket.MSG_DONTWAIT)
                    except BlockingIOError:
                        break
                    self.take(event.data, datagram, sender, time.monotonic())

    def take(self, place: int, datagram: bytes, sender, when: float):
        batch, word = struct.unpack_from("<II", datagram)
        if batch == CONTROL:
            self.control(place, word, datagram, sender)
        elif place not in self.hello or (body := self.opened(place, batch, word, datagram)) is None:
            self.wrong += 1
        else:
            kept = self.parity if word >> 31 else self.values
            kept.setdefault(batch, []).append((self.hello[place]["stream"], when, body))
            self.received[place] += 1
            self.bytes += len(datagram)

    def derive(self, info: bytes) -> bytes:
        return HKDF(SHA256(), 32, None, info).derive(self.secret)

    def tag(self, message: bytes) -> bytes:
        return hmac.digest(self.derive(b"tidecast field control"), message, "sha256")[:16]

    def control(self, place: int, kind: int, datagram: bytes, sender):
        if self.secret:
            datagram, tag = datagram[:-16], datagram[-16:]
            if tag != self.tag(datagram):
                self.wrong += 1
                return
        if kind == 3:
            self.byes += 1
            return
        hello = dict(zip(HELLO, struct.unpack("<HHHHHBBQQIIIIQQIIIQ64s", datagram[8:]), strict=True))
        proven = not self.secret or hello["challenge"] == self.challenges[place]
        known = self.hello.get(place, {}).get("session") == hello["session"]
        if proven and not known:
            self.hello[place], self.received[place] = hello, 0
            encrypted = hello["packing"] == ENCRYPTED
            hello["seal"] = Seal(self.derive, hello["session"], hello["stream"], encrypted) if self.secret else None
        answer = struct.pack("<IIQQBIQQQ", CONTROL, 2, hello["session"], self.challenges[place], proven or known, 0,
                             self.received[place], 0, 0)
        self.sockets[place].sendto(answer + (self.tag(answer) if self.secret else b""), sender)

    def opened(self, place: int, batch: int, word: int, datagram: bytes) -> bytes | None:
        """The datagram without its tag, if that is right."""
        hello = self.hello[place]
        if not self.secret:
            return datagram
        rank = 2**63 + word % 2**31 if word >> 31 else word
        if hello["packing"] == XYZ and not word >> 31:
            x, y, z = struct.unpack_from("<III", datagram, 8)
            planes = slab(hello["nz"], hello["stream"], hello["streams"])
            assert not hello["morton"], "the rank in Z-order is not reckoned here"
            rank = ((z - planes.start) * hello["ny"] + y) * hello["nx"] + x
        return hello["seal"].open(batch, rank, datagram)

    def volume(self, batch: int, into: np.ndarray | None = None) -> np.ndarray:
        """The received values of a batch; NaN for missing ones."""
        hello = next(iter(self.hello.values()))
        shape = (hello["nx"], hello["ny"], hello["nz"])
        volume = np.full(shape[::-1], np.nan, "<f4") if into is None else into
        for stream, _, message in self.values.get(batch, []):
            word, body = struct.unpack_from("<I", message, 4)[0], np.frombuffer(message, "<u4", offset=8)
            if hello["packing"] == XYZ:
                quads = body.reshape(-1, 4)
                assert len(quads) == word
                x, y, z, values = quads[:, 0], quads[:, 1], quads[:, 2], quads[:, 3]
            else:
                x, y, z = self.places(shape, stream, hello)[word:word + len(body)].T
                values = body
            assert np.isnan(volume[z, y, x]).all(), "a value came twice"
            volume[z, y, x] = values.view("<f4")
        return volume

    def places(self, shape, stream: int, hello: dict) -> np.ndarray:
        cache = hello.setdefault("places", {})
        if stream not in cache:
            planes = slab(shape[2], stream, hello["streams"])
            z, y, x = np.meshgrid(planes, range(shape[1]), range(shape[0]), indexing="ij")
            plain = np.stack([x, y, z], axis=-1).reshape(-1, 3)
            cache[stream] = curve(shape, planes) if hello["morton"] else plain
        return cache[stream]


def neighbours(count: int) -> tuple[list[socket.socket], int]:
    """Sockets at ports one behind the other, and the first."""
    for _ in range(100):
        sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
        sockets[0].bind(("127.0.0.1", 0))
        first = sockets[0].getsockname()[1]
        try:
            for port in range(first + 1, first + count):
                sockets.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                sockets[-1].bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            for s in sockets:
                s.close()
            continue
        for s in sockets:
            # A reader in Python pauses for a while on a busy machine; only root can set a buffer beyond the system's limit.
            try:
                s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
            except PermissionError:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        return sockets, first
    raise OSError("no neighbouring ports are free")
