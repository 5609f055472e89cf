"""`tidecast copy` by several pairs of hosts, all of which are this one, and over several addresses. rsync verifies the result."""
import os
import signal
import subprocess

import pytest
from conftest import needs
from test_copy import done, same, server, tree  # noqa: F401


@pytest.fixture
def ssh(built, tmp_path):
    """As ssh. An end of a host called slow… mostly stands still; the process of each is in a file of the host's name."""
    script = tmp_path / "ssh"
    script.write_text(f"""#!/bin/sh
host=$1; shift 2
export SSH_CONNECTION="127.0.0.1 9 127.0.0.1 22"
echo $$ > {tmp_path}/$host.pid
case $host in
slow*) "$@" <&0 & end=$!
    while kill -STOP $end 2>/dev/null; do sleep 0.5; kill -CONT $end; sleep 0.02; done; wait $end;;
*) exec "$@";;
esac
""")
    script.chmod(0o755)
    return "--ssh", script, "--remote-program", built / "tidecast"


@pytest.mark.parametrize("hosts", [("a[1-2]:", "b[1-2]:"), ("", "b[1-3]:"), ("a1,a2:", ""), ("a[1-3]:", "b[1-2]:")])
def test_all_of_a_tree_arrives_by_several_pairs(hosts, here, tree, ssh, tmp_path):  # noqa: F811
    dest = tmp_path / "dest"
    words = (f"{hosts[0]}{tree}/", f"{hosts[1]}{dest}", *ssh)
    end = done(here, *words)
    assert end["failed"] == 0 and end["problems"] == [], end
    assert end["files_copied"] == end["files"] and sum(pair["batches"] for pair in end["pairs"]) >= 2
    assert len(end["pairs"]) == (3 if "3" in "".join(hosts) else 2)
    same(tree, dest)
    (dest / "extra").write_text("old")
    (tree / "deep/0500").write_text("new")
    end = done(here, "--delete", *words)
    assert (end["files_copied"], end["deleted"]) == (1, 1) and end["files_kept"] == end["files"] - 1
    same(tree, dest)


@pytest.mark.parametrize("ends", ["to", "from", "both"])
def test_servers_of_one_key_are_pairs_too(ends, here, server, tree, port, tmp_path):  # noqa: F811
    at = port()

    def servers(root, first, *flags) -> str:
        urls = [server(*flags, root=root, name=root, listen=f"127.0.0.{n}:{at}") for n in (first, first + 1)]
        return urls[0].replace(f"127.0.0.{first}", f"127.0.0.[{first}-{first + 1}]")

    (tmp_path / "two").mkdir()
    source = f"{tree}/" if ends == "to" else servers(tree.parent.name, 2, "--read-only") + f"{tree.name}/"
    dest = tmp_path / "two/in"
    end = done(here, source, dest if ends == "from" else servers("two", 4) + "in")
    assert end["failed"] == 0 and len(end["pairs"]) == 2 and sum(pair["batches"] for pair in end["pairs"]) >= 2, end
    assert end["files_copied"] == end["files"]
    same(tree, dest)


def test_a_quick_pair_takes_over_from_a_slow_one(here, ssh, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"
    source.mkdir()
    for n in range(40_000):
        (source / f"{n}").write_text(f"{n}")
    end = done(here, f"quick,slow:{source}/", f"b[1-2]:{dest}", *ssh)
    quick, slow = (pair["batches"] for pair in end["pairs"])
    assert quick + slow == 40 and 2 * slow < quick, end
    assert end["files_copied"] == 40_000
    same(source, dest)


@pytest.mark.parametrize("killed", ["a1", "b1"])
def test_what_a_pair_that_breaks_had_taken_is_done_by_the_others(killed, here, ssh, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"
    source.mkdir()
    for n in range(60):  # Ten batches: a pair takes three at most before it has sent any.
        (source / f"{n}").write_bytes(os.urandom(12_000_000))
    words = (f"a[1-2]:{source}/", f"b[1-2]:{dest}", *ssh)
    proc = here.run("--json", "copy", *words, "--limit", "800mbit", "--streams", "2")
    proc.until("a tenth of it", lambda: any(e.get("bytes", 0) > 80_000_000 for e in proc.events()))
    os.kill(int((tmp_path / f"{killed}.pid").read_text()), signal.SIGKILL)
    proc.exits(0)
    end = proc.events()[-1]
    assert [pair["broke"] is not None for pair in end["pairs"]] == [True, False], end
    assert end["failed"] == 0 and end["pairs"][0]["batches"] == 0
    # Files that the broken pair had finished count as copied, and not as existing before.
    assert (end["files_copied"], end["files_kept"]) == (60, 0), end
    same(source, dest)


def test_streams_go_round_over_all_addresses_and_a_dead_one_is_left_out(here, ssh, tmp_path):
    needs("ss")
    source = tmp_path / "src"
    source.mkdir()
    (source / "big").write_bytes(os.urandom(30_000_000))
    words = ("--streams", "4", "--limit", "80mbit", "--address", "127.0.0.2,127.0.0.3,2001:db8::1")
    proc = here.run("--json", "copy", f"{source}/", f"host:{tmp_path / 'dest'}", *words, *ssh)

    def to(address: str) -> int:
        said = subprocess.run(["ss", "-HtnpO", "dst", address], capture_output=True, text=True, check=True).stdout
        return said.count(f"pid={proc.process.pid},")

    proc.until("streams to both", lambda: to("127.0.0.2") >= 2 and to("127.0.0.3") >= 1)
    proc.exits(0)
    same(source, tmp_path / "dest")


def test_what_is_for_one_pair_is_refused(here, ssh):
    for words in (("--via", "ssh"), ("--to-null",), ("--explain",)):
        assert "one pair" in done(here, "a[1-2]:/x", "b:/y", *words, *ssh, code=2)["message"]
    assert "--address all" in done(here, "a:/x", "b[1-2]:/y", "--address", "127.0.0.2", *ssh, code=2)["message"]
