"""The layout of a field's shared memory. Generated from crates/field/src/layout.rs:
TIDECAST_BLESS=1 cargo test -p tidecast-field --test layout
"""
DIR, PREFIX, MAGIC = "/dev/shm", "tidecast-field-", b"TCFIELD1"
VERSION, HEAD_SIZE, TITLE_SIZE, ENTRY_SIZE, MOST_VOLUMES = 1, 4096, 64, 64, 4
#: Offsets of words of the head, in bytes.
HEAD = {
    "magic": 0,
    "version": 8,
    "shape": 16,
    "slabs": 40,
    "volumes": 64,
    "front": 88,
    "step": 96,
    "closed": 104,
    "state": 112,
    "made": 120,
    "last": 128,
    "title": 136,
    "history": 200,
    "written": 216,
    "sequences": 224,
    "rate": 256,
    "maps": 264,
    "holes": 280,
}
#: Offsets of words of a slab's header, in bytes.
SLAB = {
    "z0": 0,
    "z1": 8,
    "batch": 16,
    "step": 24,
    "expected": 32,
    "received": 40,
    "recovered_now": 48,
    "packets": 56,
    "bytes": 64,
    "lost": 72,
    "recovered": 80,
    "duplicate": 88,
    "stale": 96,
    "rejected": 104,
    "reordered": 112,
    "complete": 120,
    "incomplete": 128,
    "last": 136,
    "stream": 144,
    "is_open": 152,
}
#: Offsets of words of an entry of the history, in bytes.
ENTRY = {
    "step": 0,
    "batch": 8,
    "when": 16,
    "expected": 24,
    "received": 32,
    "recovered": 40,
    "missing": 48,
    "bytes": 56,
}
