"""kill -9 of the getter at random instants: data correct in the end, and verified pieces stay verified."""
import os
import random
import time

from support import clients, trees

KILLS = 20
SIZE = 64 << 20
RATE = 10 << 20


def pieces(proc) -> list[int]:
    """The verified pieces of its events, in order."""
    return [e["pieces"] for e in proc.events() if e["event"] == "progress"]


def test_kill_9_at_20_random_instants(tide, start, port, tmp_path):
    seed = int(os.environ.get("TIDECAST_SEED", time.time_ns() % 1_000_000_007))
    print(f"TIDECAST_SEED={seed} repeats these instants")
    instants = random.Random(seed)
    data = trees.tree(tmp_path / "source/data", big=SIZE * 3 // 4)
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, "hybrid")
    here = f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", torrent, data.parent, here, "--rate", RATE)
    get = ("get", torrent, "--to", tmp_path / "got", "--peer", here, "--plain", "--json")
    known, progressed = 0, 0
    for _ in range(KILLS):
        with tide.run(*get) as proc:
            time.sleep(instants.uniform(0, 1.0))
            proc.kill()
            told = pieces(proc)
        if told:
            # The first ones are from while the data of earlier runs was checked.
            assert told == sorted(told)
            progressed += told[-1] > known
            known = max(known, told[-1])
    last = tide(*get)
    done = last.last("done")
    # What was verified is checked again after kill -9, and not received again. A piece is at least this long.
    missing = done["pieces_total"] - known
    assert done["received"] <= done["total"] * (missing + 1) / done["pieces_total"] + (4 << 20), f"{known} known (seed {seed})\n{last.story()}"
    assert progressed >= 3, "the kills came too early to test anything"
    trees.assert_same(data, tmp_path / "got/data")


def test_rotten_bytes_after_a_kill_are_not_believed(tide, start, port, tmp_path):
    """Data that a crash left half-written is fetched again: a resumed file never holds unverified data."""
    data = trees.blob(tmp_path / "source/data", SIZE)
    torrent = clients.make_torrent(start, tmp_path / "t.torrent", data, "v2")
    here = f"127.0.0.1:{port()}"
    clients.libtorrent(start, "seed", torrent, data.parent, here, "--rate", RATE)
    get = ("get", torrent, "--to", tmp_path / "got", "--peer", here, "--plain", "--json")
    with tide.run(*get) as proc:
        proc.until("some pieces", lambda: any(pieces(proc)))
        assert not (tmp_path / "got/data").exists(), "the final name is for what is whole and verified"
    staged, = (tmp_path / "got").glob(".tidecast-*/tree")
    with open(staged, "r+b") as file:
        for place in range(0, SIZE, 1 << 20):
            file.seek(place)
            file.write(b"rotten")
    tide(*get)
    trees.assert_same(data, tmp_path / "got/data")
