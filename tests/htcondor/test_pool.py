"""Jobs of a real HTCondor pool take their data by the plugin (`make test-htcondor`)."""
import json
import os
import pathlib
import random
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from support.condor import Pool  # noqa: E402

MB = 1_000_000
# Jobs that read their caches while the store is under pressure, and for how long, seconds.
READERS, READ = int(os.environ.get("TIDECAST_HTCONDOR_JOBS", "4")), int(os.environ.get("TIDECAST_HTCONDOR_SECONDS", "15"))
READER = """#!/bin/sh
set -e
test -L input$1
until [ -e /srv/all-run ]; do sleep 0.5; done
end=$(($(date +%s) + $2))
while [ "$(date +%s)" -lt "$end" ]; do cksum <input$1/f >sum; sleep 0.5; done
cat sum
"""
pytestmark = pytest.mark.skipif(not os.environ.get("TIDECAST_HTCONDOR"), reason="SKIPPED: a real pool is for make test-htcondor")
DICE = random.Random(7)
SEQUENCES = {f"seq{n}": "".join(DICE.choices("ACGT", k=2000)) for n in range(50)}
QUERY = SEQUENCES["seq17"][300:700]
BLAST = "#!/bin/sh\nset -e\ntest {} nt && ls nt/ >/dev/null\nblastn -db nt/nt -query query.fa -outfmt 6\n"


@pytest.fixture(scope="module")
def pool(built):
    with Pool(built / "tidecast", slots=max(4, READERS)) as pool:
        home = pool.root / "home" / "tester"
        (home / "all.fa").write_text("".join(f">{name}\n{letters}\n" for name, letters in SEQUENCES.items()))
        (home / "query.fa").write_text(f">q\n{QUERY}\n")
        pool.run("makeblastdb -in all.fa -dbtype nucl -out nt/nt", "tester")
        pool.run("mkdir /srv/site && cd /srv/site && tidecast ca init ca --name site && cp ca/ca.crt ca/ca.crl . "
                 "&& printf '[[root]]\\ncertificate = \"ca.crt\"\\ncrl = \"ca.crl\"\\n' >trust.toml "
                 "&& for h in head node1; do tidecast ca issue ca host:$h -o $h.pem; done")
        pool.start(daemon("head", 7001), "/srv/head.log")
        pool.until("the daemon", lambda: "head" in pool.run("tidecast admin status", check=False))
        # Its home is closed to others, as Debian makes homes.
        pool.run("tidecast cache create nt nt --mode 755", "tester")
        yield pool


def daemon(name: str, port: int, *words: str) -> str:
    return " ".join(["tidecast daemon --name", name, "--listen", f"127.0.0.1:{port}", "--catalogue condor",
                     "--trust /srv/site/trust.toml --certificate", f"/srv/site/{name}.pem", *words])


def blast(pool, is_link: str, name: str, **description) -> list[dict]:
    """Runs BLAST over the database that came; the job fails unless that is (-L) or is not (! -L) a link."""
    script = pool.root / "home" / "tester" / f"{name}.sh"
    script.write_text(BLAST.format(is_link))
    script.chmod(0o755)
    pool.run("chown -R tester: /home/tester")
    cluster = pool.submit({"executable": f"{name}.sh", "transfer_executable": "true",
                           "transfer_input_files": "tidecast://head/nt, query.fa", **description}, 3, name)
    ads = pool.ended(cluster)
    for job in range(3):
        out = (pool.root / "home" / "tester" / f"{name}.{job}.out").read_text()
        assert out.split()[:3] == ["q", "seq17", "100.000"], out
    assert [ad["ExitCode"] for ad in ads] == [0, 0, 0]
    return ads


def test_blast_jobs_take_their_database_by_link(pool):
    for ad in blast(pool, "-L", "link"):
        stats = ad["TransferInputStats"]
        assert stats["TIDECASTFilesCountTotal"] == 1 and stats["TIDECASTSizeBytesTotal"] > 10_000, stats


def test_blast_jobs_take_a_copy_where_the_store_is_closed(pool):
    pool.run("chmod 700 /var/lib/tidecast")
    try:
        blast(pool, "! -L", "copy")
    finally:
        pool.run("chmod 755 /var/lib/tidecast")


def test_each_file_of_several_has_its_ad(pool):
    plugin = "/usr/libexec/condor/tidecast_plugin"
    assert "tidecast" in pool.run(f"{plugin} -classad")
    cluster = pool.submit({"executable": "/bin/sh", "arguments": "\"-c 'ls nt nt.nsq'\"",
                           "transfer_input_files": "tidecast://head/nt, tidecast://head/nt@1/nt.nsq"}, name="several")
    ad, = pool.ended(cluster)
    stats = ad["TransferInputStats"]
    assert (ad["ExitCode"], stats["TIDECASTFilesCountTotal"]) == (0, 2), stats


def test_a_job_whose_cache_does_not_come_is_held_with_our_words(pool):
    cluster = pool.submit({"executable": "/bin/true", "transfer_input_files": "tidecast://head/none"}, name="held")
    held = pool.until("a held job", lambda: [job for job in pool.queue(cluster) if job["JobStatus"] == 5])
    assert "no cache head/none" in held[0]["HoldReason"], held[0]["HoldReason"]
    pool.run(f"condor_rm {cluster}")


def test_jobs_match_on_caches_that_are_here(pool):
    cluster = pool.submit({"executable": "/bin/true", "requirements": 'stringListMember("head/late@1", TidecastCaches)'}, name="late")
    pool.until("slots that say what they have", lambda: "head/nt@1" in pool.run("condor_status -af TidecastCaches"))
    assert [job["JobStatus"] for job in pool.queue(cluster)] == [1]
    pool.run("tidecast cache create late query.fa --mode 755", "tester")
    ad, = pool.ended(cluster)
    assert ad["ExitCode"] == 0


def test_daemons_find_each_other_by_the_collector(pool):
    def listed() -> dict[str, str]:
        lines = pool.run("condor_status -any -constraint 'CachedServer =?= true' -af Name CachesHeld").splitlines()
        return {line.split()[0]: line for line in lines}

    pool.start(daemon("node1", 7002, "--dir /srv/node1 --socket /srv/node1.sock"), "/srv/node1.log")
    pool.until("both in the collector", lambda: {"head", "node1"} <= set(listed()))
    pool.until("the cache in its ad", lambda: "head/nt@1" in listed()["head"])
    ask = "TIDECAST_SOCKET=/srv/node1.sock tidecast"
    assert "/srv/node1/" in pool.run(f"{ask} cache get head/nt --wait 1m")
    # A daemon that is stopped leaves the collector.
    pool.run("pkill -TERM -f '^tidecast daemon --name node1'")
    pool.until("one left", lambda: "node1" not in listed())


def test_a_slash_at_the_end_and_a_host_that_does_not_exist(pool):
    cluster = pool.submit({"executable": "/bin/ls", "arguments": "nt/nt.nsq", "transfer_input_files": "tidecast://head/nt/"}, name="slash")
    ad, = pool.ended(cluster)
    assert ad["ExitCode"] == 0
    began = time.monotonic()
    cluster = pool.submit({"executable": "/bin/true", "transfer_input_files": "tidecast://haed/nt"}, name="nowhere")
    held = pool.until("a held job", lambda: [job for job in pool.queue(cluster) if job["JobStatus"] == 5])
    assert "haed/nt" in held[0]["HoldReason"] and time.monotonic() - began < 60, held[0]["HoldReason"]
    pool.run(f"condor_rm {cluster}")


def test_names_with_percent_escapes(pool):
    home = pool.root / "home" / "tester"
    (home / "odd").mkdir()
    names = {"a b": "tidecast://head/odd/a%20b", "50%": "tidecast://head/odd/50%25", "25%20": "tidecast://head/odd/25%20", "\u00e9": "tidecast://head/odd/%C3%A9"}
    for name in names:
        (home / "odd" / name).write_text(f"{name}\n")
    pool.run("tidecast cache create odd odd", "tester")
    cluster = pool.submit({"executable": "/bin/sh", "arguments": "\"-c 'cat * | sort'\"", "transfer_input_files": ",".join(names.values())}, name="odd")
    ad, = pool.ended(cluster)
    said = (home / "odd.0.out").read_text().splitlines()
    assert ad["ExitCode"] == 0 and set(names) <= set(said), said


def test_an_output_that_should_become_a_cache_holds_its_job_with_our_words(pool):
    cluster = pool.submit({"executable": "/bin/sh", "arguments": "\"-c 'echo x >result'\"", "transfer_output_files": "result",
                           "transfer_output_remaps": '"result = tidecast://head/result"'}, name="upload")
    held = pool.until("a held job", lambda: [job for job in pool.queue(cluster) if job["JobStatus"] == 5])
    assert "tidecast cache create" in held[0]["HoldReason"], held[0]["HoldReason"]
    pool.run(f"condor_rm {cluster}")


def test_a_job_in_a_container_takes_a_copy(pool):
    """If the slots have no containers, the job's ad is the one that HTCondor writes for such a job; the plugin's result is in the
    job's directory."""
    home = pool.root / "home" / "tester"
    (home / "box.sub").write_text("universe = container\ncontainer_image = box.sif\nexecutable = /bin/true\ntransfer_executable = false\n"
                                  "should_transfer_files = YES\ntransfer_input_files = tidecast://head/nt\nrequest_disk = 10M\nrequest_memory = 10\nqueue\n")
    (home / "box.sif").write_text("")
    pool.run("condor_submit -dry-run box.ad box.sub && rm -rf inbox && mkdir inbox", "tester")
    (home / "box.in").write_text('[ Url = "tidecast://head/nt"; LocalFileName = "/home/tester/inbox/nt" ]\n')
    plugin = "tidecast plugin -infile box.in -outfile box.out"
    pool.run(f"_CONDOR_JOB_AD=$PWD/box.ad {plugin} && test ! -L inbox/nt && test -f inbox/nt/nt.nsq && rm -rf inbox/nt", "tester")
    pool.run(f"{plugin} && test -L inbox/nt", "tester")


def test_jobs_read_their_caches_by_link_while_the_store_is_under_pressure(pool):
    home = pool.root / "home" / "tester"
    sums = []
    for number in range(READERS):
        (home / f"input{number}").mkdir()
        (home / f"input{number}" / "f").write_bytes(DICE.randbytes(MB))
        sums.append(pool.run(f"cksum <input{number}/f", "tester"))
        pool.run(f"tidecast cache create input{number} input{number}", "tester")
    (home / "reader.sh").write_text(READER)
    (home / "reader.sh").chmod(0o755)
    pool.run("chown -R tester: /home/tester")
    capacity = (READERS * 3 // 2 + 10) * MB
    pool.run(f"tidecast admin limit --capacity {capacity}")
    cluster = pool.submit({"executable": "reader.sh", "transfer_executable": "true", "arguments": f"$(Process) {READ}",
                           "transfer_input_files": "tidecast://head/input$(Process)"}, READERS, "reader")

    def used() -> list[dict]:
        uses = json.loads(pool.run("tidecast admin status --json").splitlines()[-1])["uses"]
        return [use for use in uses if use["cache"].startswith("head/input")]

    pool.until("all jobs to run", lambda: len(used()) == READERS, 600)
    for use in used():
        number = use["cache"].removeprefix("head/input").split("@")[0]
        assert (use["command"], use["job"]) == ("condor_starter", f"HTCondor job {cluster}.{number}"), use
    pool.run("touch /srv/all-run")
    made = 0
    while pool.queue(cluster):
        (home / "press").write_bytes(DICE.randbytes(4 * MB))
        pool.run(f"tidecast cache create press{made} press --wait 1m", "tester")
        made += 1
    ads = pool.ended(cluster)
    assert [ad.get("ExitCode") for ad in ads] == [0] * READERS
    for number in range(READERS):
        assert (home / f"reader.{number}.out").read_text() == sums[number], (number, (home / f"reader.{number}.err").read_text())
    assert made * 4 * MB > capacity, "there was pressure"
    gone = [name for name in (f"press{n}" for n in range(made)) if name not in pool.run("tidecast cache ls")]
    assert len(gone) > 1, "caches that no job used were evicted"
    pool.until("no use", lambda: not used())
    print(f"{READERS} jobs of {READ} s, {made} caches of 4 MB made beside them, {len(gone)} of these evicted")
