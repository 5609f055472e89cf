"""`kill -9` of daemons in the midst of create, fetch, replicate, evict, pin, remove and upgrade: nothing is lost, nothing lies
about. A short form; `make daemon-marathon` runs a thousand rounds, also with an older program by turns."""
import os
import pathlib

import pytest
from support.daemons import Site
from support.marathon import Marathon

ROUNDS = int(os.environ.get("TIDECAST_ROUNDS", 20))
SEED = int(os.environ.get("TIDECAST_SEED", 1))
OLDER = [pathlib.Path(path) for path in os.environ.get("TIDECAST_OLDER", "").split(":") if path]


def test_daemons_killed_at_any_instant(built, tmp_path, start, port):
    program = built / "tidecast"
    marathon = Marathon(Site(program, tmp_path, start, port), tmp_path, [program, *OLDER], SEED)
    for number in range(ROUNDS):
        try:
            marathon.round()
        except AssertionError as e:
            pytest.fail(f"round {number} of seed {SEED}: {e}")
    for host in marathon.hosts:
        marathon.check(host)
    slow = max(second for host in marathon.hosts for second in host.starts)
    print(f"{ROUNDS} rounds, {marathon.kills} kills; the slowest start took {slow:.2f} s")
    assert any(host.truth.committed for host in marathon.hosts)
