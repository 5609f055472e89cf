"""The mover's benchmark, its pure parts: data sets, comparisons, medians, goals."""
import os
import shutil

import pytest

from bench.measure import Failed
from bench.mover import data, goals, table


@pytest.fixture
def tree(tmp_path):
    """A small mix, and a copy of it that kept everything."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    data.make(source, data.Set("1KB", 7, 1000))
    shutil.copytree(source, target)
    return source, target


def run(rival, seconds=2.0, place="loopback", name="1KB", **more):
    return {"place": place, "set": name, "rival": rival, "turn": 0, "files": 100, "bytes": 10**8, "seconds": seconds, "cpu": 1.0, "near_rss": 0,
            "far_rss": 0, "others_cpu": 0.0, "link_cpu": 0.0, "idle": 0.5, **more}


def test_a_set_is_the_same_each_time_and_no_two_files_are_alike(tmp_path):
    made = []
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        assert data.make(folder, data.Set("x", 9, 2_000_001)) == (9, 18_000_009)
        made.append({path: ((folder / path).read_bytes(), os.stat(folder / path).st_mtime_ns) for path in data.walk(folder)})
    assert made[0] == made[1]
    assert len({content for content, _ in made[0].values()}) == 9


def test_every_set_has_what_it_says():
    for known in (*data.LOOPBACK.values(), *data.WAN.values()):
        files = list(known.files())
        assert len({name for name, _ in files}) == len(files)
        if known.size:
            assert {size for _, size in files} == {known.size} and len(files) == known.count
        else:
            sizes = [size for _, size in files]
            assert min(sizes) >= 200_000 and max(sizes) == 10**9 and sum(sizes) >= known.count * 10**6
    for known in data.WAN.values():
        files = list(known.files())
        assert len(files) >= 200_000 or sum(size for _, size in files) >= 2 * 10**9, known.name


def test_a_true_copy_is_told_from_wrong_ones(tree):
    source, target = tree
    assert data.compare(source, target) == {"modes": True, "times": "ns"}
    (target / "000/003.dat").chmod(0o777)
    os.utime(target / "000/003.dat", (data.EPOCH, data.EPOCH))
    assert data.compare(source, target) == {"modes": False, "times": "no"}
    with open(target / "000/005.dat", "r+b") as file:
        file.seek(500)
        file.write(b"?!")
    with pytest.raises(Failed):
        data.compare(source, target)


def test_what_is_missing_or_too_much_is_seen(tree):
    source, target = tree
    (target / "000/extra").touch()
    with pytest.raises(Failed):
        data.compare(source, target)
    (target / "000/extra").unlink()
    (target / "000/001.dat").unlink()
    with pytest.raises(Failed):
        data.compare(source, target)
    with open(target / "000/002.dat", "r+b") as file:
        file.truncate(10)
    assert data.progress(source, target) == {"done_files": 5, "done_bytes": 5010}


def test_a_beginning_counts_for_its_part_and_only_from_the_first_byte(tmp_path):
    whole, written = tmp_path / "whole", tmp_path / "written"
    whole.write_bytes(bytes(range(200)))
    written.write_bytes(bytes(range(190)))
    assert data.beginning(whole, written) == 0.95
    written.write_bytes(bytes(range(1, 191)))
    with pytest.raises(Failed):
        data.beginning(whole, written)


def test_medians_leave_out_what_failed_and_stretch_what_did_not_end():
    rows = [run("a", 1.0), run("a", 9.0), run("a", 2.0), run("b", 4.0, done_files=50, done_bytes=5 * 10**7), run("c", failed="no")]
    cells = table.medians(rows)["loopback", "1KB"]
    assert cells["a"]["seconds"] == 2.0 and cells["a"]["runs"] == 3 and cells["a"]["spread"] == 4.0
    assert cells["b"]["seconds"] == 8.0 and not cells["b"]["whole"]
    assert "c" not in cells
    text = table.table(rows)
    assert ">    8.00" in text and "failed: loopback 1KB c" in text


def test_goals_are_met_or_missed():
    def text(*rows):
        cells = table.medians(list(rows))
        return {words: met for met, words in goals.verdicts(cells, {"wan50": 1e8}) if "memory" not in words}

    near = text(run("tidecast-plain", 1.0, cpu=2.0), run("rsync-daemon", 3.9, cpu=1.9), run("tar-socat", 1.01))
    assert list(near.values()) == [False, True, False], near
    small = text(run("tidecast", 2.1, place="wan50"), run("cp-parallel", 2.0, place="wan50"))
    assert list(small.values()) == [True], small
    far = text(*(run("tidecast", seconds, place="wan50", name=name) for name, seconds in (("1MB", 1.0), ("1GB", 1.06), ("10MB", 1.1))))
    assert list(far.values()) == [True, True, False, False], far


def test_memory_is_a_goal():
    cells = table.medians([run("tidecast", far_rss=200 << 20), run("tidecast-plain", near_rss=100 << 20)])
    assert [met for met, words in goals.verdicts(cells, {}) if "memory" in words] == [False, True]


def test_small_files_are_shown_beside_the_floor_that_is_protected_alike():
    rows = [run("tidecast", 4.0, cpu=3.0), run("floor-tls-final", 2.0, cpu=2.0), run("tidecast-plain", 3.0, cpu=1.8), run("floor-plain-final", 1.0, cpu=1.5)]
    shown = {words[0]: words[5:7] for text in table.table(rows).splitlines() if len(words := text.split()) > 9 and words[0] != "s"}
    assert shown["tidecast"] == ["2.00", "1.50"] and shown["tidecast-plain"] == ["3.00", "1.20"]
    reached = {words: met for met, words in goals.verdicts(table.medians(rows), {}) if "floor" in words}
    assert list(reached.values()) == [False, False] and all("at most 1.15" in words for words in reached)
