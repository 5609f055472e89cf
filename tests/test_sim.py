"""`tidecast sim` as an administrator meets it: figures, faults, pictures, seeds, mistakes."""
import signal
import xml.etree.ElementTree as ElementTree

import pytest

SMALL = ["single:6@1gbit", "--size", "20MB", "--piece-size", "1MiB"]
SVG = "{http://www.w3.org/2000/svg}"


def simulate(tide, *words, code=0) -> dict:
    """The event `done` of a simulation; every line of standard output must be JSON."""
    proc = tide("sim", *words, "--json", code=code)
    events = proc.events()
    assert len(events) == len(proc.out.splitlines()), proc.out
    assert (events[0]["event"], events[-1]["event"]) == ("started", "done"), proc.out
    return events[-1]


def test_a_broadcast_in_figures(tide):
    done = simulate(tide, *SMALL)
    (run,) = done["runs"]
    assert run["complete"] == run["receivers"] == len(run["finished"]) == 5
    assert done["bound"]["seconds"] <= min(run["finished"]) <= run["median"] <= run["p99"] <= run["last"]
    assert 0.2 < run["efficiency"] <= 1 <= run["origin_copies"], run
    wires = {port["name"]: port["bytes"] for port in run["ports"]}
    assert wires["n0 out"] >= 20_000_000 and all(wires[f"n{n} in"] >= 20_000_000 for n in range(1, 6)), wires


def test_a_table_for_people(tide):
    shown = tide("sim", *SMALL, "--algorithm", "plan,chain", "--algorithm", "flat")
    rows = [line.split()[0] for line in shown.out.splitlines() if "%" in line and not line.startswith(" ")]
    assert [name for name in rows if not name.endswith(":")][:3] == ["plan", "chain", "flat"], shown.out
    assert "bound" in shown.out and "trace" in shown.out, shown.out


def test_a_run_is_its_seed(tide):
    first, again, other = (simulate(tide, *SMALL, "--algorithm", "plan,chain-shuffled,sbcast", "--seed", seed)
                           for seed in ("7", "7", "8"))
    assert first["runs"] == again["runs"]
    assert [run["trace"] for run in first["runs"]] != [run["trace"] for run in other["runs"]]


def test_arithmetic_agrees(tide):
    """Without headers, a flat tree takes the origin's link once for each receiver, a chain once in all."""
    flat, chain = simulate(tide, "single:6@100mbit", "--size", "10MB", "--exact", "--algorithm", "flat,chain", "--segment",
                           "100kB")["runs"]
    assert flat["last"] == pytest.approx(4.0, rel=1e-6) and flat["origin_copies"] == pytest.approx(5)
    assert chain["last"] == pytest.approx(0.8 * (1 + 4 * 0.01), rel=1e-6) and chain["origin_copies"] == pytest.approx(1)


def test_faults_have_victims(tide):
    (run,) = simulate(tide, *SMALL, "--fault", "die:3@50ms", "--fault", "slow:5=100mbit")["runs"]
    assert (run["lost"], run["complete"], run["finished"][2]) == (1, 4, None), run
    assert run["finished"][4] == run["last"] > 1.6, run
    assert "n3" in tide("sim", *SMALL, "--fault", "die:3@50ms").out


def test_an_origin_and_nodes_of_ones_choice(tide):
    done = simulate(tide, *SMALL, "--nodes", "11", "--origin-rate", "100mbit", "--algorithm", "chain")
    assert done["runs"][0]["receivers"] == 10
    assert done["bound"]["seconds"] > 1.6 and "origin" in done["bound"]["limit"], done["bound"]
    slow = simulate(tide, *SMALL, "--write-rate", "50mbit", "--algorithm", "chain")["bound"]
    assert slow["seconds"] == pytest.approx(3.2) and "writing" in slow["limit"]


def test_of_what_is_large_a_beginning_is_simulated(tide):
    proc = tide.run("sim", "single:4000@100gbit", "--size", "100GiB")
    proc.until("it says so", lambda: "only the first" in proc.err)


def test_the_picture_holds_all_runs(tide, tmp_path):
    picture = tmp_path / "out.svg"
    tide("sim", "bordeaux:4,3@100mbit", "--size", "5MB", "--algorithm", "plan,chain,nfs", "--plot", picture)
    drawn = ElementTree.parse(picture).getroot()
    series = [g.get("data-algorithm") for g in drawn.iter(SVG + "g") if g.get("class") == "series"]
    assert sorted(series) == ["chain", "nfs", "plan"]
    assert {path.get("data-link") for path in drawn.iter(SVG + "path")} >= {"s0-s1"}
    assert [line for line in drawn.iter(SVG + "line") if line.get("class") == "bound"]


def test_a_topology_can_be_printed_and_read(tide, tmp_path):
    words = ["leafspine:3,2,4@10gbit,oversubscribe=2", "--origin-rate", "25gbit", "--print-topology"]
    text = tide("sim", *words).out
    (tmp_path / "cluster").write_text(text)
    assert tide("sim", tmp_path / "cluster", "--print-topology").out == text
    assert tide("sim", tmp_path / "cluster", "--size", "10MB", "--algorithm", "chain").out


def test_file_servers_start_storms(tide):
    nfs, lustre = simulate(tide, "single:32@10gbit", "--size", "1GB", "--algorithm", "nfs,lustre")["runs"]
    assert nfs["origin_copies"] == pytest.approx(31) and nfs["last"] > lustre["last"] > 0


def test_seeds_of_random_worlds(tide):
    done = simulate(tide, "--seeds", "1..9")
    assert (done["runs"], done["failures"]) == (8, []) and done["met"], done


def test_ctrl_c_ends_it(tide):
    proc = tide.run("sim", "single:500@1gbit", "--size", "1GiB", "--json")
    proc.until("it runs", lambda: [e for e in proc.events() if e["event"] == "progress"])
    proc.signal(signal.SIGINT)
    proc.exits(3)
    assert "interrupted" in proc.last("error")["message"]


@pytest.mark.parametrize("words, said", [
    (["nowhere", "--size", "1GB"], "single:16@100mbit"),
    (["single:0", "--size", "1GB"], "at least 1"),
    (["single:1", "--size", "1GB"], "two nodes"),
    (["single:4", "--size", "0"], "one byte"),
    (["single:4", "--size", "1G"], "1GB"),
    (["single:4"], "--size"),
    (["single:4", "--size", "1GB", "--nodes", "99999999"], "200000"),
    (["single:4", "--size", "1GB", "--origin-rate", "1bit"], "8 kbit"),
    (["single:4", "--size", "1GB", "--piece-size", "1000"], "power of two"),
    (["single:4", "--size", "1000TiB", "--piece-size", "16KiB"], "larger pieces"),
    (["single:4000", "--size", "100GB", "--algorithm", "classic", "--piece-size", "1MiB"], "smaller size"),
    (["single:4", "--size", "1GB", "--algorithm", "magic"], "scatter-allgather"),
    (["single:4", "--size", "1GB", "--fault", "explode:3"], "crash"),
    (["single:4", "--size", "1GB", "--fault", "crash:17"], "17"),
    (["single:4", "--size", "1GB", "--seed", "x"], "--seed"),
    (["--seeds", "9..1"], "1..1000"),
    (["/dev/zero", "--size", "1GB"], "too large"),
])
def test_mistakes_teach(tide, words, said):
    proc = tide("sim", *words, code=2)
    assert said in proc.err, proc.err


def test_help_names_all_there_is(tide):
    shown = tide("sim", "--help").out
    for word in ("leafspine:", "dragonfly:", "scatter-allgather", "lustre", "die:5%@10s", "partition:", "--print-topology"):
        assert word in shown, shown
