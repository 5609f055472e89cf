"""`tidecast classad`, and the language beside HTCondor's own library on tens of thousands of random expressions."""
import json
import re
import subprocess

import pytest
from conftest import ROOT
from support import classads, oracle
from support.seeds import seeds

HTCONDOR = "htcondor==25.14.1"
# Always the same in the whole test, so that it shows changes of this project; `make classad-soak` looks for unknown faults.
SEEDS = seeds(25, 26)


@pytest.fixture
def tide(node):
    return node()


@pytest.fixture(scope="session")
def library():
    program = oracle.python(ROOT / ".cache" / "classad2", HTCONDOR)
    if program is None:
        pytest.skip(f"SKIPPED: {HTCONDOR} cannot be installed here: nothing is compared with HTCondor")
    return program


def plain(value: str) -> str:
    """Without the intended differences in writing: the 17th digit of reals, fractions of spans, blanks."""
    value = re.sub(r"-?\d+(?:\.\d+)?E[+-]\d+", lambda real: f"{float(real[0]):.15E}", value)
    value = re.sub(r'(relTime\(\\?"[-+0-9:]*)\.\d+', r"\1", value)
    return re.sub(r'relTime\((\\?")-00', r"relTime(\g<1>00", value).replace(" ", "")


def ours(tide, exprs, *words) -> list[str]:
    done = subprocess.run(tide.argv("classad", "eval", "--stdin", *words), input="\n".join(exprs), capture_output=True, text=True,
                          env=tide.env, timeout=300)
    values = done.stdout.split("\n")[:-1]
    assert len(values) == len(exprs), done.stderr
    return values


def differences(exprs, theirs, mine):
    """Where the two differ; an expression that one refuses may at most be ERROR in the other."""
    for expr, there, here in zip(exprs, theirs, mine, strict=True):
        # HTCondor returns undefined memory for spans beyond 31 bits and years beyond 32.
        if there == oracle.CRASHED or "24855" in there or (re.search("(split|format)time", expr, re.I) and re.search(r"\d{8}", there)):
            continue
        # A span that HTCondor has put into a list is a real when it takes it out again.
        if re.search(r"\brt\b|reltime", expr, re.I) and re.search(r"evalineachcontext|\)\.|\w\.\w", expr, re.I):
            continue
        if there == oracle.UNPARSABLE:
            same = here.startswith("!")
        elif there == oracle.FAILED:
            same = here.startswith("!") or here == "error"
        else:
            same = plain(there) == plain(here)
        if not same:
            yield f"{expr}\n    HTCondor {there}\n    here     {here}"


@pytest.mark.parametrize("target", [False, True], ids=["alone", "in a match"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_expressions_are_what_htcondor_says(tide, library, seed, target):
    generator = classads.Generator(seed)
    exprs = [generator.expression(generator.rng.randint(1, 4)) for _ in range(12_500)]
    ads = [classads.MY, classads.TARGET] if target else [classads.MY]
    theirs = oracle.ask(library, "evaluate", exprs, *ads)
    mine = ours(tide, exprs, *(word for pair in zip(("--my", "--target"), ads) for word in pair))
    found = list(differences(exprs, theirs, mine))
    assert not found, f"seed {seed}: {len(found)} differ\n" + "\n".join(found[:20])
    known = sum(value not in ("error", "undefined") for value in theirs)
    assert known > len(exprs) / 3, "most are about something"


def test_random_ads_match_as_htcondor_says(tide, library, tmp_path):
    seed = SEEDS[-1]
    print(f"seed {seed}")
    generator = classads.Generator(seed)
    pairs = [tuple(generator.ad() for _ in range(2)) for _ in range(150)]
    theirs = oracle.ask(library, "match", ["\t".join(pair) for pair in pairs])
    for pair, there in zip(pairs, theirs, strict=True):
        done = subprocess.run(tide.argv("classad", "match", *pair), capture_output=True, text=True, env=tide.env, timeout=60)
        assert {"True": 0, "False": 1}.get(there, done.returncode) == done.returncode, f"seed {seed}: {pair}\n{done.stdout}{done.stderr}"
    assert 10 < theirs.count("True") < 140, "some match and some do not"


def test_eval_prints_a_line_for_each_expression(tide, tmp_path):
    ad = tmp_path / "job.ad"
    ad.write_text('Owner = "ada"\nDisk = 5\n')
    out = tide("classad", "eval", "--my", ad, "--target", "[Disk = 7]", "Owner", "Disk < TARGET.Disk", "nope", "1/0", "-1").out
    assert out == '"ada"\ntrue\nundefined\nerror\n-1\n'
    proc = tide("classad", "eval", "1 +", "2", code=1)
    assert proc.out.startswith("!") and proc.out.endswith("\n2\n") and "1 of" in proc.err
    last = tide("classad", "eval", "{1, 2}", "1 +", "--json", code=1).events()[-1]
    assert last["results"][0] == {"expr": "{1, 2}", "value": "{ 1,2 }", "type": "list"} and "unexpected end" in last["results"][1]["error"]


def test_match_says_why_not(tide, tmp_path):
    daemon = "[TotalDisk = 100; Rank = TARGET.Size; Requirements = MY.TotalDisk > TARGET.DiskUsage]"
    fits, too_large = ("[Size = 2; DiskUsage = %d; Requirements = true]" % size for size in (99, 100))
    assert "the two ads match" in tide("classad", "match", daemon, fits).out
    proc = tide("classad", "match", daemon, too_large, code=1)
    assert "A: Requirements is false" in proc.out and "do not match" in proc.err
    done = json.loads(tide("classad", "match", daemon, fits, "--json").out)
    assert done["match"] and done["a"] == {"requirements": "true", "rank": 2.0}


def test_what_is_no_ad_is_named(tide, tmp_path):
    broken = tmp_path / "broken.ad"
    broken.write_text("A = 1\nB = (\n")
    proc = tide("classad", "match", broken, "[]", code=1)
    assert "broken.ad" in proc.err and "line 2" in proc.err
    assert "absent.ad" in tide("classad", "eval", "--my", tmp_path / "absent.ad", "1", code=1).err
    tide("classad", "eval", "--my", "[A = ]", "1", code=2)
    tide("classad", "eval", code=2)
