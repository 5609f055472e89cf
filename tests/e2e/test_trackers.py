"""Trackers of others: answers that are compressed or give peers by name, and what a tracker hears of a download."""
import pytest
from support import trees
from support.tracker import ENCODINGS, Tracker, answer, named


@pytest.fixture
def seeded(tide, port, tmp_path):
    """A manifest and the port of its only seed."""
    data = trees.tree(tmp_path / "source/data")
    manifest = tide.publish(data, tmp_path / "m.torrent", "--plain")
    number = port()
    tide.seed(manifest, data, f"127.0.0.1:{number}", "--plain", "--no-lsd")
    return data, manifest, number


def get(tide, manifest, to, tracker, *words, **kw):
    return tide("get", manifest, "--to", to, "--plain", "--no-lsd", "--listen", "127.0.0.1:0", "--tracker", tracker.url, *words, **kw)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_compressed_answer_is_read(tide, seeded, tmp_path, encoding):
    data, manifest, number = seeded
    with Tracker(answer([("127.0.0.1", number)]), encoding) as tracker:
        get(tide, manifest, tmp_path / "got", tracker)
    trees.assert_same(data, tmp_path / "got/data")


def test_a_peer_may_have_a_name(tide, seeded, tmp_path):
    data, manifest, number = seeded
    with Tracker(named([("no-such-host.invalid", 9), ("localhost", number)])) as tracker:
        get(tide, manifest, tmp_path / "got", tracker)
    trees.assert_same(data, tmp_path / "got/data")


def test_a_tracker_hears_when_a_download_began_was_complete_and_ended(tide, seeded, tmp_path):
    data, manifest, number = seeded
    with Tracker(answer([("127.0.0.1", number)])) as tracker:
        get(tide, manifest, tmp_path / "got", tracker)
        hashes = {ask["info_hash"] for ask in tracker.asked}
        for name in hashes:
            asked = [ask for ask in tracker.asked if ask["info_hash"] == name]
            events = [ask["event"] for ask in asked if "event" in ask]
            assert events == ["started", "completed", "stopped"]
            assert int(asked[0]["left"]) > 0 and asked[-1]["left"] == "0"
        # It is there already: nothing was downloaded that could have been completed.
        tracker.asked.clear()
        get(tide, manifest, tmp_path / "got", tracker)
        assert "completed" not in tracker.events()


def test_a_refusal_is_told(tide, seeded, tmp_path):
    _, manifest, _ = seeded
    with Tracker(b"d14:failure reason17:not in our listsxe") as tracker:
        got = get(tide, manifest, tmp_path / "got", tracker, "--timeout", "2s", code=3)
    assert "not in our listsx" in got.err
