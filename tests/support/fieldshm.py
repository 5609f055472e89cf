"""A field's shared memory as a receiver writes it (docs/field-format.md), with a field that moves: to drive the viewer without a network.

    python3 tests/support/fieldshm.py NAME SIDE [--steps N] [--pause SECONDS] [--loss PERCENT] [--live] [--nan]
"""
import argparse
import mmap
import os
import pathlib
import struct
import time

import numpy

SLABS, SLAB, ENTRIES, ENTRY, ALIGN = 4096, 256, 4096, 64, 2 << 20


class Memory:
    """One file, from which streams lose `loss` of their packets, each a run of values."""

    def __init__(self, name: str, side: int, streams: int = 8, loss: float = 0.0, live: bool = False, nan: bool = False):
        self.path = pathlib.Path(f"/dev/shm/tidecast-field-{name}")
        self.side, self.streams, self.loss, self.nan = side, streams, loss, nan
        self.volumes = 1 if live else 3
        self.history = -(-(SLABS + streams * SLAB) // ENTRY) * ENTRY
        self.first = -(-(self.history + ENTRIES * ENTRY) // ALIGN) * ALIGN
        self.each = -(-side**3 * 4 // ALIGN) * ALIGN
        self.front, self.closed, self.sequence = 0, 0, [0, 0, 0]
        self.random = numpy.random.default_rng(7)
        self.counts = numpy.zeros((streams, 3), numpy.int64)  # packets, bytes, lost
        fresh = self.path.with_suffix(f".new{os.getpid()}")
        with open(fresh, "w+b") as file:
            file.truncate(self.first + self.volumes * self.each)
            self.map = mmap.mmap(file.fileno(), 0)
        self.map[:8] = b"TCFIELD1"
        made = time.time_ns()
        for at, word in {8: 1, 16: side, 24: side, 32: side, 40: streams, 48: SLABS, 56: SLAB, 64: self.volumes, 72: self.first,
                         80: self.each, 112: 1, 120: made, 128: made, 200: self.history, 208: ENTRIES, 256: 10**9}.items():
            self.word(at, word)
        self.map[136:143] = b"density"
        for slab in range(streams):
            z = (slab * side // streams, (slab + 1) * side // streams)
            for at, word in {0: z[0], 8: z[1], 144: slab, 152: 1}.items():
                self.word(SLABS + slab * SLAB + at, word)
        os.rename(fresh, self.path)

    def word(self, at: int, value: int) -> None:
        struct.pack_into("<Q", self.map, at, value)

    def put(self, step: int, field: numpy.ndarray) -> None:
        """A step arrives and closes."""
        volume = (self.front + 1) % self.volumes
        values = numpy.ndarray((self.side,) * 3, "<f4", self.map, self.first + volume * self.each)
        if self.volumes > 1:
            self.word(224 + 8 * volume, self.sequence[volume] + 1)
        flat, arriving = values.reshape(-1), field.astype("<f4").reshape(-1)
        packet = 350
        packets = -(-arriving.size // packet)
        lost = self.random.random(packets) < self.loss
        gone = numpy.repeat(lost, packet)[: arriving.size]
        old = numpy.float32("nan") if self.nan else flat
        flat[:] = numpy.where(gone, old, arriving)
        if self.volumes > 1:
            self.sequence[volume] += 2
            self.word(224 + 8 * volume, self.sequence[volume])
        now = time.time_ns()
        for slab in range(self.streams):
            mine = lost[slab * packets // self.streams : (slab + 1) * packets // self.streams]
            here = int((~mine).sum())
            self.counts[slab] += (here, here * packet * 4, int(mine.sum()))
            at = SLABS + slab * SLAB
            for offset, word in {16: self.closed, 24: step, 32: mine.size, 40: here, 56: self.counts[slab, 0], 64: self.counts[slab, 1],
                                 72: self.counts[slab, 2], 120: self.closed, 136: now}.items():
                self.word(at + offset, int(word))
        entry = [step, self.closed, now, packets, int((~lost).sum()), 0, int(gone.sum()), int((~lost).sum()) * packet * 4]
        struct.pack_into("<8Q", self.map, self.history + self.closed % ENTRIES * ENTRY, *entry)
        self.front, self.closed = volume, self.closed + 1
        for at, word in {88: volume, 96: step, 104: self.closed, 128: now, 216: self.closed}.items():
            self.word(at, word)

    def close(self, remove: bool = True) -> None:
        self.word(112, 2)
        if remove:
            self.path.unlink(missing_ok=True)


def moving(side: int, step: int) -> numpy.ndarray:
    """Filaments and clusters that turn: bright knots on a faint web, as in a universe."""
    t = step * 0.15
    z, y, x = (numpy.linspace(-1, 1, side, dtype=numpy.float32).reshape(shape) for shape in ((-1, 1, 1), (1, -1, 1), (1, 1, -1)))
    web = numpy.abs(numpy.sin(5 * x + t) * numpy.cos(4 * y - t) + numpy.sin(4 * z) * numpy.cos(5 * y + 0.5 * t) + numpy.sin(3 * x * y + t))
    field = 0.45 * numpy.exp(-9 * web * web)
    for knot in range(7):
        a = knot * 0.9 + t * (0.3 + 0.1 * knot)
        cx, cy, cz = 0.6 * numpy.cos(a), 0.6 * numpy.sin(1.3 * a), 0.5 * numpy.sin(a + knot)
        field = field + numpy.exp(-((x - cx) ** 2 + (y - cy) ** 2 + (z - cz) ** 2) * 45).astype(numpy.float32)
    return field * numpy.exp(-1.2 * (x * x + y * y + z * z))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("side", type=int)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--pause", type=float, default=0.3)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--nan", action="store_true")
    args = parser.parse_args()
    memory = Memory(args.name, args.side, loss=args.loss / 100, live=args.live, nan=args.nan)
    try:
        for step in range(args.steps):
            memory.put(step, moving(args.side, step))
            time.sleep(args.pause)
        time.sleep(10**6)
    except KeyboardInterrupt:
        pass
    finally:
        memory.close()


if __name__ == "__main__":
    main()
