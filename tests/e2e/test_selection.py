"""Parts of a tree: the same part again, more of it, all of it. In v1, files share pieces with adjacent files."""
import os
import random

import pytest
from support import trees


@pytest.fixture
def few(tmp_path):
    """Files of which several share a piece."""
    dice = random.Random("parts of a tree")
    data = tmp_path / "source/data"
    data.mkdir(parents=True)
    for number in range(20):
        (data / f"f{number:02}").write_bytes(dice.randbytes(dice.choice([0, 1, 3000, 70_000])))
    return data


@pytest.fixture(params=["v1", "hybrid"])
def seeded(request, tide, port, few, tmp_path):
    """get(words) of a manifest whose only seed is here."""
    manifest = tide.publish(few, tmp_path / "m.torrent", "--plain", "--format", request.param)
    listen = f"127.0.0.1:{port()}"
    tide.seed(manifest, few, listen, "--plain", "--no-lsd")
    return ["get", manifest, "--plain", "--no-lsd", "--listen", "127.0.0.1:0", "--peer", listen, "--to"]


def chosen(names) -> list[str]:
    return [word for name in names for word in ("--file", name)]


def test_parts_can_be_gone_on_with_in_any_order(tide, seeded, few, tmp_path):
    dice = random.Random(os.environ.get("TIDECAST_FRESH") and random.SystemRandom().random() or "parts in any order")
    names = sorted(path.name for path in few.iterdir())
    for trial in range(2):
        to, here = tmp_path / f"got{trial}", set()
        for _ in range(4):
            part = dice.sample(names, dice.randrange(1, 4))
            tide(*seeded, to, *chosen(part))
            here.update(part)
            assert {path.name for path in (to / "data").iterdir()} == here
            assert all((to / "data" / name).read_bytes() == (few / name).read_bytes() for name in here)
        tide(*seeded, to)
        trees.assert_same(few, to / "data")


def test_a_part_that_no_record_knows_is_gone_on_with(node, seeded, few, tmp_path):
    """Of another user, or of a lost home: correct data stays, though its pieces cannot be checked in place."""
    to, names = tmp_path / "got", ["f03", "f04", "f11"]
    for home, part in (("one", names), ("other", names), ("third", names[:1]), ("last", [])):
        node(home)(*seeded, to, *chosen(part))
    trees.assert_same(few, to / "data")


def test_a_part_that_was_edited_stays(node, seeded, few, tmp_path):
    to = tmp_path / "got"
    name = next(path.name for path in sorted(few.iterdir()) if path.stat().st_size == 3000)
    node("one")(*seeded, to, *chosen([name]))
    edited = bytearray((few / name).read_bytes())
    edited[7] ^= 1
    (to / "data" / name).write_bytes(edited)
    for home in ("one", "other"):
        assert name in node(home)(*seeded, to, code=1).err
        assert (to / "data" / name).read_bytes() == edited


def test_files_are_named_as_they_are_listed(tide, port, tmp_path):
    for name in ("data/f", "data/sub/g", "data/data/h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    manifest = tide.publish(tmp_path / "data", tmp_path / "m.torrent", "--plain")
    listen = f"127.0.0.1:{port()}"
    tide.seed(manifest, tmp_path / "data", listen, "--plain", "--no-lsd")
    for number, (word, names) in enumerate({"data/f": ["f"], "./f": ["f"], "/data/f": ["f"], "data/sub": ["sub/g"], "data/*/g": ["sub/g"],
                                            "data/h": ["data/h"], "data/data/h": ["data/h"], "data": ["data/h"]}.items()):
        to = tmp_path / f"got{number}"
        tide("get", manifest, "--plain", "--no-lsd", "--listen", "127.0.0.1:0", "--peer", listen, "--to", to, "--file", word)
        assert sorted(str(path.relative_to(to / "data")) for path in to.rglob("*") if path.is_file()) == names, word
    assert "matches" in tide("get", manifest, "--plain", "--to", tmp_path / "none", "--file", "data/none", code=1).err
