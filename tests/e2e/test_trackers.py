"""Trackers of other programs: answers that are compressed or name peers by host, and the announcements of a download."""
import pytest
from support import trees
from support.tracker import ENCODINGS, Tracker, UdpTracker, answer, named, string


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


@pytest.fixture
def tiers(tide, seeded, tmp_path):
    """A manifest with tiers of trackers, by their numbers; all but the last tier know no peer."""
    data, manifest, number = seeded

    def make(*tiers):
        path = tmp_path / "tiers.torrent"
        lists = b"".join(b"l%se" % b"".join(string(tracker.url.encode()) for tracker in tier) for tier in tiers)
        path.write_bytes(b"d13:announce-listl%se%s" % (lists, manifest.read_bytes()[1:]))
        return path

    def get(manifest, **kw):
        return tide("get", manifest, "--to", tmp_path / "got", "--plain", "--no-lsd", "--listen", "127.0.0.1:0", **kw)

    return make, get, [("127.0.0.1", number)]


def test_of_tiers_one_tracker_that_answers_is_enough(tiers, tmp_path):
    make, get, peers = tiers
    with Tracker(answer(peers)) as one, Tracker(answer(peers)) as other, Tracker(answer(peers)) as later:
        get(make([one, other], [later]))
        asked = [tracker for tracker in (one, other, later) if tracker.asked]
        assert len(asked) == 1 and later not in asked
        assert asked[0].events()[0] == "started" and asked[0].events()[-1] == "stopped"


def test_the_next_tier_is_asked_where_all_of_one_fail(tiers):
    make, get, peers = tiers
    refuse = b"d14:failure reason2:noe"
    with Tracker(refuse) as one, Tracker(refuse) as other, Tracker(answer(peers)) as later, Tracker(answer(peers)) as last:
        get(make([one, other], [later], [last]))
        assert one.asked and other.asked and later.asked and not last.asked


def test_a_tracker_that_the_user_names_is_told_beside_those_of_the_manifest(tide, tiers, tmp_path):
    make, _, peers = tiers
    with Tracker(answer(peers)) as one, Tracker(answer([])) as named, Tracker(answer([])) as too:
        tide("get", make([one]), "--to", tmp_path / "got", "--plain", "--no-lsd", "--listen", "127.0.0.1:0",
             "--tracker", named.url, "--tracker", too.url)
        assert one.asked and named.asked and too.asked


def test_a_tracker_by_udp_hears_path_and_query(tide, seeded, tmp_path):
    """BEP 41: libtorrent's `udp://host:port/path?query` names a tracker among several at one port."""
    data, manifest, number = seeded
    with UdpTracker([("127.0.0.1", number)]) as tracker:
        get(tide, manifest, tmp_path / "got", tracker)
        assert {ask[98:] for ask in tracker.asked} == {b"\x02\x10/announce?key=ab"}
    trees.assert_same(data, tmp_path / "got/data")


def test_a_tracker_hears_its_id_again(tide, seeded, tmp_path):
    data, manifest, number = seeded
    body = answer([("127.0.0.1", number)])[:-1] + b"10:tracker id5:id-12" + b"15:warning message7:go easye"
    with Tracker(body) as tracker:
        get(tide, manifest, tmp_path / "got", tracker)
    for name in {ask["info_hash"] for ask in tracker.asked}:
        first, *later = [ask for ask in tracker.asked if ask["info_hash"] == name]
        assert "trackerid" not in first and later and all(ask["trackerid"] == "id-12" for ask in later), tracker.asked


def test_a_refusal_is_told(tide, seeded, tmp_path):
    _, manifest, _ = seeded
    with Tracker(b"d14:failure reason17:not in our listsxe") as tracker:
        got = get(tide, manifest, tmp_path / "got", tracker, "--timeout", "2s", code=3)
    assert "not in our listsx" in got.err
