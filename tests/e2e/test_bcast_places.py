"""`tidecast bcast` finds the places of hosts without a given topology."""
import json
import random

import pytest
from support import trees

LAUNCH = "ip netns exec {host} {command}"


def bcast(tide, lab, data, to, count, *words):
    """To all nodes but the first, in an order independent of places; the last event."""
    names = [f"{lab.name}.n{n:03d}" for n in range(1, count)]
    random.Random(3).shuffle(names)
    proc = tide.run("bcast", data, "--to", to, "--hosts", ",".join(names), "--launch", LAUNCH, "--json", *words)
    return names, proc.ok().last("done")


@pytest.mark.root
def test_a_slow_link_between_two_switches_is_crossed_about_once(lab, node, tmp_path):
    lab("up", "bordeaux:6,6@40mbit,bottleneck=20mbit")
    tide = node("origin", lab, 0)
    data = trees.blob(tmp_path / "data", 12_000_000)
    kept = tmp_path / "places"
    names, done = bcast(tide, lab, data, tmp_path / "{host}/data", 12, "--save-topology", kept)
    for name in names:
        trees.assert_same(data, tmp_path / name / "data")
    near = {f"{lab.name}.n{n:03d}" for n in range(1, 6)}
    found = [set(place) & set(names) for place in done["places"]]
    assert sorted(map(len, found)) == [5, 6] and near in found, done["places"]
    crossed = json.loads(lab("counters"))["links"]["s0-s1"]["fwd"]
    assert crossed < 1.6 * data.stat().st_size, "without places it is about three times"
    # The found topology can be given the next time.
    again, told = bcast(tide, lab, data, tmp_path / "{host}/again", 12, "--topology", kept)
    assert told["hosts_done"] == 11 and "places" not in told
    crossed = json.loads(lab("counters"))["links"]["s0-s1"]["fwd"] - crossed
    assert crossed < 1.6 * data.stat().st_size


@pytest.mark.root
def test_one_switch_is_one_place(lab, node, tmp_path):
    lab("up", "single:8@40mbit")
    tide = node("origin", lab, 0)
    data = trees.blob(tmp_path / "data", 12_000_000)
    names, done = bcast(tide, lab, data, tmp_path / "{host}/data", 8)
    trees.assert_same(data, tmp_path / names[0] / "data")
    assert [len(place) for place in done["places"]] == [8], "the origin is one of them"
