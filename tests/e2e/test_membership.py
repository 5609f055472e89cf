"""Daemons that find each other, exchange records of their caches, and keep copies alive."""
import pathlib
import signal
import time

import pytest
from support.daemons import Host, Site
from support.tidecast import wait_for
from test_daemon import data, same  # noqa: F401


def members(host: Host) -> int:
    return host.http("GET", "/v1/daemon")[1]["members"]


def holders(host: Host, name: str) -> set[str]:
    found = host.cache("where", name, code=None)
    return {holder["host"] for holder in found.get("holders", [])}


def joined(site: Site, count: int) -> list[Host]:
    """Hosts that know each other, though each was given only the first."""
    hosts = []
    for number in range(count):
        host = site.host(f"node{number}")
        site.hosts = site.hosts[:1]
        hosts.append(host)
    wait_for("all members joined", lambda: all(members(host) == count for host in hosts), timeout=60)
    return hosts


def test_a_group_forms_outlives_its_seed_and_resolves_names_of_the_dead(site, data, tmp_path):
    head, one, two, three = joined(site, 4)
    head.create("nt", data)
    one.cache("get", "node0/nt", "--wait", "1m")
    wait_for("the copy to be known", lambda: holders(three, "node0/nt") == {"node0", "node1"})
    head.daemon.signal(signal.SIGKILL)
    head.daemon.wait()
    got = two.cache("get", "node0/nt", "--wait", "1m")
    same(data, pathlib.Path(got["path"]))
    wait_for("the dead to be forgotten", lambda: members(three) == 3, timeout=60)
    assert holders(three, "node0/nt") == {"node1", "node2"}
    # A restarted member finds the others though its only seed is dead.
    three.daemon.signal(signal.SIGKILL)
    three.daemon.wait()
    three.serve()
    wait_for("all members joined again", lambda: members(three) == 3, timeout=60)
    got = three.cache("get", "node0/nt", "--wait", "1m")
    same(data, pathlib.Path(got["path"]))


def test_as_many_copies_as_were_asked_for_are_kept_and_no_more(site, data):
    hosts = joined(site, 4)
    hosts[0].create("nt", data, "--replicas", "3")
    by_name = {host.name: host for host in hosts}
    wait_for("three copies", lambda: len(holders(hosts[0], "node0/nt")) == 3, timeout=60)
    lost = next(by_name[name] for name in holders(hosts[0], "node0/nt") if name != "node0")
    lost.daemon.signal(signal.SIGKILL)
    lost.daemon.wait()
    left = {host.name for host in hosts} - {lost.name}
    wait_for("a copy in place of the lost one", lambda: holders(hosts[0], "node0/nt") == left, timeout=60)
    # With the returned copy there are four: one unused copy is removed.
    lost.serve()
    wait_for("the surplus to go", lambda: len(holders(hosts[0], "node0/nt")) == 3, timeout=120)
    time.sleep(3)
    assert len(holders(hosts[0], "node0/nt")) == 3 and "node0" in holders(hosts[0], "node0/nt")


@pytest.mark.alone
def test_an_administrator_rules_all_hosts_that_obey_his(site, data):
    head, one, two = joined(site, 3)

    def states(words) -> dict:
        done = head.run("admin", *words, "--json")
        done.wait()
        return {one["host"]: one.get("status", {}).get("state") for one in done.events()[-1]["hosts"]}

    began = time.monotonic()
    assert states(["drain", "--all"]) == dict.fromkeys(["node0", "node1", "node2"], "draining")
    assert time.monotonic() - began < 5
    assert "drained" in one.cache("create", "x", data, code=1)["message"]
    assert states(["resume", "--host", "node1"]) == {"node1": "running"}
    assert states(["status", "--all"]) == {"node0": "draining", "node1": "running", "node2": "draining"}
    assert head.run("admin", "pause", "--host", "elsewhere").wait() == 1
    # A restarted daemon obeys, too.
    two.daemon.signal(signal.SIGKILL)
    two.daemon.wait()
    two.serve()
    assert two.http("GET", "/v1/daemon")[1]["state"] == "draining"
    one.create("x", data)
