"""A sender and a reader of fields, written from docs/field-format.md alone: to check `tidecast field recv` independently."""
from __future__ import annotations

import base64
import hmac
import mmap
import os
import pathlib
import secrets
import socket
import struct
import time

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

CONTROL = 0xFFFFFFFF
XYZ, RUN, ENCRYPTED = 0, 1, 2


class Seal:
    """One stream's datagrams by `docs/field-format.md`: readable with a tag, or encrypted after the head."""

    def __init__(self, derive, session: int, stream: int, encrypted: bool):
        self.encrypted = encrypted
        label = b"tidecast field values" if encrypted else b"tidecast field data"
        key = derive(label + struct.pack("<QI", session, stream))
        self.cipher = AESGCM(key[:16] if encrypted else key)

    def seal(self, batch: int, place: int, message: bytes) -> bytes:
        nonce = struct.pack("<IQ", batch, place)
        if self.encrypted:
            return message[:8] + self.cipher.encrypt(nonce, message[8:], message[:8])
        return message + self.cipher.encrypt(nonce, b"", message)

    def open(self, batch: int, place: int, datagram: bytes) -> bytes | None:
        nonce = struct.pack("<IQ", batch, place)
        try:
            if self.encrypted:
                return datagram[:8] + self.cipher.decrypt(nonce, datagram[8:], datagram[:8])
            self.cipher.decrypt(nonce, datagram[-16:], datagram[:-16])
            return datagram[:-16]
        except InvalidTag:
            return None


def slab(nz: int, stream: int, streams: int) -> range:
    return range(stream * nz // streams, (stream + 1) * nz // streams)


def curve(shape: tuple[int, int, int], planes: range) -> np.ndarray:
    """The places (x, y, z) of a slab's values in the order `morton`: by bricks along the Z-order curve."""
    nx, ny, _ = shape
    bricks = [(x, y, z) for z in range(0, len(planes), 8) for y in range(0, ny, 8) for x in range(0, nx, 8)]
    bricks.sort(key=lambda brick: sum((side // 8 >> bit & 1) << (3 * bit + axis) for axis, side in enumerate(brick) for bit in range(16)))
    return np.array([(x, y, planes[z]) for bx, by, bz in bricks for z in range(bz, min(bz + 8, len(planes)))
                     for y in range(by, min(by + 8, ny)) for x in range(bx, min(bx + 8, nx))], dtype="<u4")


class Sender:
    """One session: all streams of a volume to one receiver. It sends only when a method is called."""

    def __init__(self, ports: list[int], shape, key: str | None = None, packing=None, order="zslab", values=100, parity=(0, 0),
                 steps=1000, first_step=0, session: int | None = None):
        self.ports, self.shape, self.values, self.parity, self.steps = ports, shape, values, parity, steps
        self.packing = (ENCRYPTED if key else RUN) if packing is None else packing
        self.order, self.first_step = order, first_step
        self.session = session or secrets.randbits(64)
        self.secret = base64.b32decode(key.upper() + "====") if key else None
        self.challenges = [0] * len(ports)
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in ports]
        self.seals = [Seal(self.derive, self.session, i, self.packing == ENCRYPTED) if key else None for i in range(len(ports))]
        self.sent = [[] for _ in ports]  # the datagrams, to send them again
        nx, ny, nz = shape
        self.places = []
        for i in range(len(ports)):
            planes = slab(nz, i, len(ports))
            if order == "morton":
                self.places.append(curve(shape, planes))
            else:
                z, y, x = np.meshgrid(planes, range(ny), range(nx), indexing="ij")
                self.places.append(np.stack([x, y, z], axis=-1).reshape(-1, 3).astype("<u4"))

    def close(self):
        for s in self.sockets:
            s.close()

    def derive(self, info: bytes) -> bytes:
        return HKDF(SHA256(), 32, None, info).derive(self.secret)

    def control(self, kind: int, body: bytes) -> bytes:
        message = struct.pack("<II", CONTROL, kind) + body
        if self.secret:
            message += hmac.digest(self.derive(b"tidecast field control"), message, "sha256")[:16]
        return message

    def hello_bytes(self, stream: int, batch=0) -> bytes:
        n = len(self.ports)
        return self.control(1, struct.pack(
            "<HHHHHBBQQIIIIQQIIIQ64s", 1, stream, n, 0, n, self.packing, self.order == "morton", self.session, self.challenges[stream],
            *self.shape, self.values, self.first_step, self.steps, batch, *self.parity, 10**9, b"made by hand"))

    def hello(self, stream: int, timeout=10.0) -> dict | None:
        """Send hello once; return the report, if one arrives."""
        self.raw(stream, self.hello_bytes(stream))
        self.sockets[stream].settimeout(timeout)
        try:
            answer = self.sockets[stream].recv(2000)
        except TimeoutError:
            return None
        kind, body = answer[4:8], answer[8:]
        assert answer[:4] == b"\xff" * 4 and kind == struct.pack("<I", 2)
        if self.secret:
            body, tag = body[:-16], body[-16:]
            assert tag == hmac.digest(self.derive(b"tidecast field control"), answer[:-16], "sha256")[:16]
        names = ("session", "challenge", "accepted", "batch", "received", "lost", "bytes")
        report = dict(zip(names, struct.unpack("<QQBIQQQ", body), strict=True))
        assert report["session"] == self.session
        self.challenges[stream] = report["challenge"]
        return report

    def begin(self, tries=100) -> "Sender":
        """Send hello on every stream until all are accepted."""
        for stream in range(len(self.ports)):
            for _ in range(tries):
                report = self.hello(stream, 1.0)
                if report and report["accepted"] == 1:
                    break
            else:
                raise AssertionError(f"stream {stream} was not believed: {report}")
        return self

    def bye(self):
        for stream in range(len(self.ports)):
            self.raw(stream, self.control(3, struct.pack("<QQ", self.session, self.challenges[stream])))

    def raw(self, stream: int, datagram: bytes):
        self.sockets[stream].sendto(datagram, ("127.0.0.1", self.ports[stream]))

    def packets(self, stream: int) -> int:
        return -(-len(self.places[stream]) // self.values)

    def sealed(self, stream: int, batch: int, place: int, message: bytes) -> bytes:
        seal = self.seals[stream]
        return seal.seal(batch, place, message) if seal else message

    def run_of(self, volume: np.ndarray, stream: int, packet: int) -> tuple[np.ndarray, np.ndarray]:
        places = self.places[stream][packet * self.values:(packet + 1) * self.values]
        return places, volume[places[:, 2], places[:, 1], places[:, 0]].astype("<f4")

    def datagram(self, volume: np.ndarray, batch: int, stream: int, packet: int) -> bytes:
        places, values = self.run_of(volume, stream, packet)
        rank = packet * self.values
        if self.packing == XYZ:
            quads = np.empty((len(places), 4), dtype="<u4")
            quads[:, :3], quads[:, 3] = places, values.view("<u4")
            message = struct.pack("<II", batch, len(places)) + quads.tobytes()
        else:
            message = struct.pack("<II", batch, rank) + values.tobytes()
        return self.sealed(stream, batch, rank, message)

    def send(self, volume: np.ndarray, batch: int, lose=lambda stream, packet: False, order=lambda packets: packets):
        """All packets of a step except the lost ones, in turn over the streams, with pauses so that no buffer overflows."""
        todo = [(p, s) for p in range(max(map(self.packets, range(len(self.ports))))) for s in range(len(self.ports)) if p < self.packets(s)]
        for number, (packet, stream) in enumerate(order(todo)):
            if not lose(stream, packet):
                datagram = self.datagram(volume, batch, stream, packet)
                self.sent[stream].append(datagram)
                self.raw(stream, datagram)
            if number % 50 == 49:
                time.sleep(0.002)


class Reader:
    """The shared memory of a receiver."""

    TOTALS = ("packets", "bytes", "lost", "recovered", "duplicate", "stale", "rejected", "reordered", "complete", "incomplete")

    def __init__(self, name: str):
        self.path = pathlib.Path("/dev/shm") / f"tidecast-field-{name}"
        with open(self.path, "rb") as f:
            self.map = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
        assert self.map[:8] == b"TCFIELD1" and self.word(8) == 1
        self.shape = (self.word(32), self.word(24), self.word(16))

    def word(self, offset: int) -> int:
        return int.from_bytes(self.map[offset:offset + 8], "little")

    def volume(self, number: int | None = None) -> np.ndarray:
        number = self.word(88) if number is None else number
        count = int(np.prod(self.shape))
        return np.frombuffer(self.map, "<f4", count, self.word(72) + number * self.word(80)).reshape(self.shape).copy()

    def slab(self, number: int) -> dict:
        at = self.word(48) + number * self.word(56)
        names = ("z0", "z1", "batch", "step", "expected", "received", "recovered_now", *self.TOTALS, "last", "stream", "open")
        offsets = (0, 8, 16, 24, 32, 40, 48, *range(56, 136, 8), 136, 144, 152)
        return {name: self.word(at + offset) for name, offset in zip(names, offsets, strict=True)}

    @property
    def closed(self) -> int:
        return self.word(104)

    def history(self) -> list[dict]:
        names = ("step", "batch", "when", "expected", "received", "recovered", "missing", "bytes")
        start, size, written = self.word(200), self.word(208), self.word(216)
        return [dict(zip(names, (self.word(start + i % size * 64 + 8 * j) for j in range(8)), strict=True))
                for i in range(max(0, written - size), written)]


def field(shape, seed: int) -> np.ndarray:
    """Some volume of this shape (nx, ny, nz), indexed [z, y, x]."""
    return np.random.default_rng(seed).standard_normal(shape[::-1], dtype="f4")


def unique() -> str:
    return f"e2e-{os.getpid()}-{secrets.token_hex(4)}"


def forget(name: str) -> None:
    """Removes the remains of a killed receiver."""
    for file in (f"tidecast-field-{name}", f".tidecast-field-{name}.lock"):
        (pathlib.Path("/dev/shm") / file).unlink(missing_ok=True)
