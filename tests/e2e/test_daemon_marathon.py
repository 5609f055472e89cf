"""`kill -9` of daemons, and power cuts of their machines, in the midst of create, fetch, replicate, evict, pin, remove and upgrade:
no data is lost, no files are left over. A short form; `make daemon-marathon` runs a thousand rounds, also with an older program by
turns."""
import os
import pathlib

import pytest
from support.daemons import Site
from support.marathon import Marathon
from support.power import Cuts, Disks, missing

ROUNDS = int(os.environ.get("TIDECAST_ROUNDS", 20))
SEED = int(os.environ.get("TIDECAST_SEED", 1))
OLDER = [pathlib.Path(path) for path in os.environ.get("TIDECAST_OLDER", "").split(":") if path]


@pytest.fixture
def site(built, tmp_path, start, port):
    return Site(built / "tidecast", tmp_path, start, port)


def run(marathon: Marathon, rounds: int) -> None:
    for number in range(rounds):
        try:
            marathon.round()
        except AssertionError as e:
            pytest.fail(f"round {number} of seed {SEED}: {e}")
    for host in marathon.hosts:
        marathon.check(host)
    slow = max(second for host in marathon.hosts for second in host.starts)
    print(f"{rounds} rounds, {marathon.kills} hosts stopped; the slowest start took {slow:.2f} s")
    assert any(host.truth.committed for host in marathon.hosts)


@pytest.mark.root
def test_daemons_killed_at_any_instant(site, tmp_path):
    run(Marathon(site, tmp_path, [site.program, *OLDER], SEED), ROUNDS)


@pytest.mark.root
@pytest.mark.skipif(missing() is not None, reason=f"SKIPPED: {missing()}")
def test_hosts_that_lose_power_at_any_instant(site, tmp_path):
    with Disks(tmp_path) as disks:
        marathon = Cuts(disks, site, tmp_path, [site.program, *OLDER], SEED)
        try:
            run(marathon, ROUNDS // 2)
        finally:
            for host in marathon.hosts:
                host.daemon.kill()
