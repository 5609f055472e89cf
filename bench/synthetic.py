"""Manifests too large to make from data: v2, with pieces of nothing, but whole and consistent."""
from __future__ import annotations

import hashlib
import pathlib
import random


def bencode(value) -> bytes:
    match value:
        case int():
            return b"i%de" % value
        case bytes():
            return b"%d:%s" % (len(value), value)
        case list():
            return b"l" + b"".join(map(bencode, value)) + b"e"
        case dict():
            return b"d" + b"".join(bencode(k) + bencode(value[k]) for k in sorted(value)) + b"e"
    raise TypeError(value)


def root_of(layer: list[bytes], pad: bytes) -> bytes:
    """Merkle root over a layer, filled up to a power of two with `pad`."""
    layer = layer + [pad] * ((1 << (len(layer) - 1).bit_length()) - len(layer))
    while len(layer) > 1:
        layer = [hashlib.sha256(a + b).digest() for a, b in zip(layer[::2], layer[1::2])]
    return layer[0]


def large(path: pathlib.Path, total: int, piece: int = 1 << 20) -> None:
    """A manifest of a file `huge` of `total` bytes, and a small file `tiny`."""
    rng = random.Random(1)
    layer = [rng.randbytes(32) for _ in range(-(-total // piece))]
    pad = root_of([bytes(32)] * (piece // 16384), b"")
    root = root_of(layer, pad)
    tree = {b"huge": {b"": {b"length": total, b"pieces root": root}},
            b"tiny": {b"": {b"length": 100, b"pieces root": hashlib.sha256(bytes(100)).digest()}}}
    info = {b"name": b"large", b"piece length": piece, b"meta version": 2, b"file tree": tree}
    path.write_bytes(bencode({b"info": info, b"piece layers": {root: b"".join(layer)}}))
