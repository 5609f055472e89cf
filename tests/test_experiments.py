"""The experiments' pure parts: the cases to measure, the finished cases, medians, tables, plots, comparisons."""
import json
import subprocess
import xml.dom.minidom

import pytest

from lab.experiments import matrix, plot, table
from lab.experiments.more import MORE  # before those that it names
from lab.experiments.cached import figures, stagein
from lab.experiments.more.trees import different
from lab.experiments.more import tuning
from lab.experiments.mounts import libraries, starts
from lab.experiments.results import Cell, Results, cells, read
from lab.experiments.settings import SETTINGS
from lab.experiments.stage import same
from lab.experiments.tools import TOOLS
from lab.experiments.tools.bittorrent import info_end


def run(setting="site16", tool="tidecast", mb=50, x=1.06, **more):
    return {"setting": setting, "tool": tool, "mb": mb, "bound": 8.4, "goodput": 5_970_000, "ready": 8.4 * x, "whole": 9.0 * x,
            "x": x, "idle": 0.5, "links": {"s0-s1": [1.05, 0.01], "s1-s2": [1.05, 0.01]},
            "switches": {"s0": 8, "s1": 6, "s2": 1}, "origin": 1.1, **more}


def test_settings_are_clusters_whose_origin_comes_first():
    for setting in SETTINGS.values():
        order = setting.order()
        assert order[0] == 0 and sorted(order) == list(range(len(setting.topology().nodes)))
        assert (order == sorted(order)) is not setting.shuffled
        names = [setting.topology().link_name(link) for link in setting.topology().links]
        assert setting.bottleneck in [*names, None]


def crossings(name):
    nodes, order = SETTINGS[name].topology().nodes, SETTINGS[name].order()
    return sum(nodes[a].switch == 0 != nodes[b].switch for a, b in zip(order, order[1:]))


def test_the_shuffled_orders_are_neither_lucky_nor_unlucky():
    assert crossings("site16") == crossings("site64") == 1
    assert (crossings("site16-shuffled"), crossings("site64-shuffled"), crossings("two32-shuffled")) == (4, 16, 16)


def test_the_matrices_name_what_there_is_once():
    for wishes in (matrix.short(), matrix.long()):
        named = [w.cell for w in wishes]
        assert len(set(named)) == len(named) and all(w.repeats > 0 for w in wishes)
        assert {c.setting for c in named} <= set(SETTINGS) and {c.tool for c in named} <= set(TOOLS)
    assert {c.mb for c in (w.cell for w in matrix.long())} == {1, 5, 10, 50, 100, 239}
    assert not any(w.cell.setting.endswith("shuffled") and w.cell.tool == "ctorrent" for w in matrix.long())


def test_parts_of_a_matrix():
    only = matrix.chosen(matrix.short(), ["tidecast", "ctorrent"], ["site16", "site16-shuffled"], [5, 10], 2)
    pairs = [("site16", "tidecast"), ("site16", "ctorrent"), ("site16-shuffled", "tidecast")]
    assert [w.cell for w in only] == [Cell(*pair, mb) for pair in pairs for mb in (5, 10)]
    assert all(w.repeats == 2 for w in only)
    other = matrix.chosen(matrix.short(), ["uftp"], ["two32"], [], 0)
    assert [w.cell.mb for w in other] == matrix.SIZES
    assert matrix.chosen(matrix.short(), [], [], [], 0) == matrix.short()


def test_what_is_measured_is_not_measured_again(tmp_path):
    results, cell = Results(tmp_path), Cell("site16", "tidecast", 50)
    results.add(run())
    results.add({**cell._asdict(), "failed": "it broke"})
    assert not results.enough(cell, 2), "what failed is tried again"
    results.add(run())
    with open(results.path, "a") as f:
        f.write('{"setting": "site16", "to')  # the machine went down
    again = Results(tmp_path)
    assert again.enough(cell, 2) and not again.enough(cell, 3) and len(again.rows) == 3
    slow, over = Cell("one64", "aria2", 239), Cell("one64", "ompi-default", 239)
    again.add(run(*slow, x=40))
    again.add({**over._asdict(), "ended": "limit", "limit_x": 30})
    assert again.enough(slow, 3) and again.enough(over, 3), "hours for the same again"
    assert Results(tmp_path, resume=False).rows == [] and len(list(tmp_path.iterdir())) == 1


def test_medians():
    rows = [run(x=x) for x in (1.3, 1.1, 1.2)] + [{**run(), "ready": 0, "x": 0, "idle": 0.05, "setting": "one16"}]
    found = cells([*rows, {"experiment": "faults"}])
    median = found[Cell("site16", "tidecast", 50)]
    assert median["x"] == 1.2 and median["runs"] == 3 and not median["busy"]
    assert found[Cell("one16", "tidecast", 50)]["busy"]
    assert cells([run(x=1.1), run(x=1.5)])[Cell("site16", "tidecast", 50)]["x"] == 1.5, "of two, not the lucky one"


def test_the_table():
    one = run(setting="one16", x=1.41, idle=0.01)
    rows = [run(), one, run(tool="ompi-pipe", x=5.28, links={"s0-s1": [5.1, 4.0]}), run(mb=10),
            {"setting": "one16", "tool": "ompi-pipe", "mb": 50, "ended": "limit", "limit_x": 30.0},
            {"setting": "one16", "tool": "sbcast", "mb": 50, "failed": "no"}]
    text = table.markdown(rows)
    assert "## 10 MB" in text and "## 50 MB" in text and "| tool | one16 | site16 |" in text
    assert "| Tidecast, told the topology | 1.41* | 1.06 [1.05 0.01] |" in text
    assert "| Open MPI, pipeline of 128 KiB | > 30 | 5.28 [5.10 4.00] |" in text
    assert "| Slurm sbcast | failed | - |" in text and "47.76" in text


def test_plots_are_pictures():
    rows = [run(mb=mb, tool=tool, x=x) for mb in (1, 10, 239) for tool, x in (("tidecast", 1.05), ("ctorrent", 2.3))]
    plots = plot.all_of([*rows, run(setting="one16")])
    assert sorted(plots) == ["flow-site16.svg", "time-site16.svg"], "one size is no line, one switch no link"
    for svg in plots.values():
        xml.dom.minidom.parseString(svg)
        assert "ctorrent" in svg and "nan" not in svg
    assert ">253<" in plots["flow-site16.svg"], "1.06 copies of 239 MB"
    assert plot.decades(3, 40) == [2, 5, 10, 20, 50]


@pytest.mark.parametrize("size", [0, 1, 3 << 20])
def test_copies_are_compared_byte_for_byte(tmp_path, size):
    a, b = tmp_path / "a", tmp_path / "b"
    data = bytes(i % 251 for i in range(size))
    a.write_bytes(data)
    assert not same(a, b)
    b.write_bytes(data)
    assert same(a, b)
    b.write_bytes(data[:-1] + b"!" if size else b"!")
    assert not same(a, b)


def test_trees_are_compared_in_all_that_matters(tmp_path):
    def tree(name):
        (tmp_path / name / "d").mkdir(parents=True)
        (tmp_path / name / "d/f").write_text("x")
        (tmp_path / name / "l").symlink_to("d/f")
        return tmp_path / name

    a, b = tree("a"), tree("b")
    assert different(a, b) is None
    for breakage in (lambda t: (t / "d/f").write_text("y"), lambda t: (t / "d/f").chmod(0o755),
                     lambda t: (t / "more").write_text(""),
                     lambda t: (t / "l").unlink(), lambda t: ((t / "l").unlink(), (t / "l").symlink_to("d"))):
        broken = tree(f"c{len(list(tmp_path.iterdir()))}")
        breakage(broken)
        assert different(a, broken)


def test_what_a_recorded_list_names_is_counted(tmp_path):
    (tmp_path / "whole").write_bytes(b"x" * 100)
    (tmp_path / "list").write_text("tidecast-prefetch 1 ab\nwhole\nbig\t4096+50\n")
    assert starts.listed(tmp_path / "list", tmp_path) == 150


def test_the_table_of_a_start_up():
    row = {"experiment": "mount", "setting": "mount16", "nodes": 16, "touched": 2_000_000, "slowest": 30.0, "median": 25.0, "spreads": [1.2, 1.1, 1.3],
           "program": 29.0, "warm": 9.0, "bound": 25.0, "x": 1.2, "origin": 1.05, "idle": 0.01}
    text = MORE["mount"].table([{**row, "case": "hybrid"}, {**row, "case": "tar", "failed": "no"}, {**row, "case": "sshfs", "ended": "not within 9 s"}])
    assert "2.0 MB are read" in text
    assert "| Tidecast, hybrid, no list, --group | 16 | 30.0 | 25.0 | 1.20 | 29.0 | 9.0 | 25.0 | 1.20 | 1.05 | 1% |" in text
    assert "| tar over TCP, unpacked in memory | failed |" in text and "not within 9 s" in text


def test_libraries_of_one_size_of_which_no_two_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(libraries, "MADE", tmp_path)
    tree = libraries.libraries(600_000, 4)
    made = [(tree / f"lib/lib{i}.so").read_bytes() for i in range(4)]
    assert len(set(made)) == 4 and all(0.9 < len(bytes_) / 150_000 < 1.1 for bytes_ in made)
    said = subprocess.run([tree / "load", tree / "lib", "4"], capture_output=True, text=True, check=True).stdout
    assert int(said) and said == subprocess.run([tree / "load", tree / "lib", "4"], capture_output=True, text=True).stdout
    assert subprocess.run([tree / "load", tree / "lib", "5"], capture_output=True).returncode == 1


def test_the_info_of_a_torrent_ends_where_it_ends():
    data = b"d4:infod6:lengthi5e5:pathsl1:a1:bee3:xyzi1ee"
    start = data.index(b"4:info") + 6
    assert data[start:info_end(data, start)] == b"d6:lengthi5e5:pathsl1:a1:bee"


def test_a_row_is_one_line(tmp_path):
    path = tmp_path / "results.jsonl"
    Results(tmp_path).add({"experiment": "x", "why": "two\nlines"})
    assert [r["why"] for r in read(path)] == ["two\nlines"]
    assert len(path.read_text().splitlines()) == 1 and json.loads(path.read_text())


def test_stage_in_times_make_the_papers_figures():
    def row(case, mean):
        return {"experiment": "cached", "case": case, "mean": mean, "slowest": mean + 1, "total": 100 * mean, "seconds": [mean] * 99 + [mean + 10]}

    rows = [row(f"{net}-{way}-{n}", 30 if way == "swarm" else 5 * n) for net in stagein.FORMS for way in stagein.WAYS for n in stagein.NODES]
    rows += [row(f"jobs-{way}-{n}", n) for way in ("swarm", "direct", "condor") for n in stagein.MORE_JOBS]
    plots = figures.all_of([*rows, {"case": "links", "mean": 0.01}, {"case": "nat-swarm-5", "failed": "x"}])
    assert list(plots) == ["figure-3-open.svg", "figure-3-nat.svg", "figure-5.svg", "figure-4.svg"]
    for svg in plots.values():
        xml.dom.minidom.parseString(svg)
    assert plots["figure-5.svg"].count("<polyline") == 3 and plots["figure-4.svg"].count("fill-opacity") == 4
    assert stagein.slopes(rows)[0].startswith("- open, swarm: the mean at 50 nodes is 1.00 times") and "(+900.0%)" in stagein.slopes(rows)[1]
    assert "| open-direct-25 | 125.000 | 126.000 |" in MORE["cached"].table(rows)
    assert figures.all_of([]) == {}
    for jobs, nodes in ((100, 50), (100, 7), (75, 50), (10, 10)):
        assert sum(stagein.share(jobs, nodes, at) for at in range(nodes)) == jobs
    assert {case: stagein.cluster(case) for case in ("links", "nat-swarm-5", "jobs-direct-10", "jobs-condor-10")} == {
        "links": ("open", 1), "nat-swarm-5": ("nat", 5), "jobs-direct-10": ("open", 50), "jobs-condor-10": ("condor", 50)}


def test_the_tuning_study_changes_one_setting_at_a_time():
    for ms in tuning.DELAYS:
        for knob in tuning.KNOBS:
            change = tuning.case(knob, ms, 400)
            before, after = vars(change.before), vars(change.after)
            assert sum(before[k] != after[k] for k in before) == 1, f"{knob} at {ms} ms"
    assert len(MORE["tuning"].cases) == len(tuning.KNOBS) * len(tuning.DELAYS)


def test_a_prediction_stands_beside_its_measurement():
    one = tuning.beside({"mbit": 100.0, "cpu": 1.5, "retransmits": 0}, 120.0)
    assert one["predicted"] == 120.0 and one["error"] == 0.2
    assert tuning.beside({"mbit": 100.0, "cpu": 1.5, "retransmits": 0}, None)["predicted"] is None
    row = {"experiment": "tuning", "case": "mtu-50", "about": "MTU 1500, then 9000", "rtt_ms": 50, "before": one,
           "after": {"mbit": 110.0, "cpu": 1.0, "predicted": None}}
    text = MORE["tuning"].table([row, {"case": "pacing-10", "failed": "no"}])
    assert "| mtu: MTU 1500, then 9000 | 50 ms | 100.0 | 110.0 | 1.5 | 1.0 | 120.0 (+20%) | - |" in text
    assert list(tuning.errors([row])) == [("mtu-50", "before", 0.2)]
    assert tuning.triple(100) == "4096 100 4096" and tuning.triple(1 << 20) == "4096 131072 1048576"
