"""Topologies: the short forms, the file, refusals, and topologies for the simulator only."""
import pytest

from lab.forms import parse
from lab.topology import Link, Node, buildable, from_text
from lab.units import TopologyError, chance, delay, format_chance, rate


def test_single():
    t = parse("single:16@100mbit")
    assert t.nodes == (Node(0, 100_000_000),) * 16
    assert t.links == ()
    assert [t.address(n) for n in (0, 15)] == ["10.77.0.1", "10.77.0.16"]


def test_default_rate():
    assert parse("single:2").nodes[0].rate == 100_000_000


def test_bordeaux_first_link_is_the_bottleneck():
    t = parse("bordeaux:32,25,7@20mbit")
    assert [n.switch for n in t.nodes] == [0] * 32 + [1] * 25 + [2] * 7
    assert t.links == (Link(0, 1, 20_000_000), Link(1, 2, 200_000_000))
    assert t.segments() == [0, 0, 0]


def test_bordeaux_overrides():
    t = parse("bordeaux:2,2,2@20mbit,bottleneck=5mbit,trunk=1gbit,delay=2.5ms,loss=0.1%,queue=64k")
    assert t.links[0] == Link(0, 1, 5_000_000, delay_us=2500, loss=0.001, queue=65536)
    assert t.links[0].wan
    assert t.links[1] == Link(1, 2, 1_000_000_000)
    assert not t.links[1].wan


def test_nat_puts_only_the_origin_outside():
    t = parse("nat:8@100mbit")
    assert [n.switch for n in t.nodes] == [0] + [1] * 7
    (link,) = t.links
    assert link.nat and (link.a, link.b) == (1, 0)
    assert t.address(0) == "10.77.0.1" and t.address(1) == "10.78.0.2"


@pytest.mark.parametrize("spec", [
    "single:16@100mbit", "bordeaux:32,25,7@20mbit", "bordeaux:2,3@1.5mbit,delay=7ms,loss=0.25%,dup=1%,reorder=2%",
    "nat:3@10mbit", "sites:3,2@1gbit,wan=100mbit,delay=10ms,origin=25gbit", "fattree:4@10gbit,oversubscribe=3",
    "leafspine:3,2,4@10gbit", "dragonfly:2,2,1@10gbit,global=25gbit,delay=1us", "bordeaux:2,2@1mbit,loss=0.001%"])
def test_text_form_says_the_same(spec):
    t = parse(spec)
    assert from_text(t.to_text()) == t


def test_file(tmp_path):
    path = tmp_path / "two-sites"
    path.write_text("# two sites\nswitch a\nswitch b # far away\n\nnodes 2 a 100mbit\nnodes 3 b 1gbit\nlink a b 20mbit delay=25ms\n")
    t = parse(str(path))
    assert len(t.nodes) == 5 and t.nodes[4] == Node(1, 1_000_000_000)
    assert t.links == (Link(0, 1, 20_000_000, delay_us=25_000),)


def test_addresses_are_distinct_beyond_one_octet():
    t = parse("bordeaux:400,400@1mbit")
    assert len({t.address(n) for n in range(800)}) == 800


@pytest.mark.parametrize("spec", [
    "single:0@1mbit", "single:2,2@1mbit", "single:x@1mbit", "single:2@fast", "single:2@1mbit,delay=1ms",
    "single:2@1mbit,colour=red", "bordeaux:4@1mbit", "bordeaux:2,2@1mbit,loss=100%", "bordeaux:2,2@1mbit,delay=11s",
    "nat:1@1mbit", "nat:2@1mbit,delay=1ms", "single:200001@1mbit", "ring:4", "single:2@0mbit", "single:2@1mbit,2mbit",
    "bordeaux:200000,1", "single:2@1mbit,origin=", "fattree:3", "fattree:94", "fattree:4,oversubscribe=0",
    "leafspine:2,2", "leafspine:999999,999999,999999", "dragonfly:1,1", "dragonfly:999999,999999,999999", "sites:8"])
def test_refused_short_forms(spec):
    with pytest.raises(TopologyError):
        parse(spec)


@pytest.mark.parametrize("text", [
    "", "switch a", "switch A\nnodes 1 A 1mbit", "switch a\nswitch a\nnodes 1 a 1mbit", "switch a\nnodes 1 b 1mbit",
    "switch a\nswitch b\nnodes 1 a 1mbit", "switch a\nnodes 1 a 1mbit\nlink a a 1mbit",
    "switch a\nswitch b\nnodes 1 a 1mbit\nlink a b 1mbit nat\nlink b a 1mbit",
    "switch a\nswitch b\nnodes 1 a 1mbit\nlink a b 1mbit nat\nlink b a 1mbit nat",
    "switch a\nnodes 999999 a 1mbit\nnodes 999999 a 1mbit",
    "switch a\nswitch b\nnodes 1 a 1mbit\nlink a b 1mbit magic=1", "switch a\nnodes 1 a 1mbit\nhub b",
    "switch a\nswitch b\nswitch c\nnodes 1 a 1mbit\nlink a b 1mbit nat\nlink a c 1mbit nat"])
def test_refused_files(text):
    with pytest.raises(TopologyError):
        from_text(text)


def test_sites_meet_in_the_middle():
    t = parse("sites:2,3@1gbit,wan=100mbit,delay=10ms,loss=1%")
    assert t.switches == ("s0", "s1", "wan")
    assert t.links == tuple(Link(a, 2, 100_000_000, delay_us=10_000, loss=0.01) for a in (0, 1))
    assert buildable(t) is t


def test_the_origin_may_have_its_own_rate():
    t = parse("single:3@10gbit,origin=25gbit")
    assert [n.rate for n in t.nodes] == [25_000_000_000, 10_000_000_000, 10_000_000_000]


@pytest.mark.parametrize("spec", ["fattree:4", "leafspine:2,2,2", "dragonfly:2,1,1"])
def test_rings_are_for_the_simulator(spec):
    with pytest.raises(TopologyError, match="closes a ring.*tidecast sim"):
        buildable(parse(spec))


@pytest.mark.parametrize("spec", ["single:1001", "bordeaux:" + ",".join(["1"] * 65)])
def test_what_is_too_big_for_the_lab_is_for_the_simulator(spec):
    with pytest.raises(TopologyError, match="tidecast sim"):
        buildable(parse(spec))


def test_errors_name_the_line():
    with pytest.raises(TopologyError, match="line 2: 'nodes 1 z 1mbit'"):
        from_text("switch a\nnodes 1 z 1mbit")


def test_units():
    assert rate("1.5gbit") == 1_500_000_000 and delay("250us") == 250 and delay("1s") == 1_000_000
    assert chance("0.1%") == chance("0.001") == 0.001
    assert rate("4.35gbit") == 4_350_000_000 and format_chance(chance("0.001%")) == "0.00001"
