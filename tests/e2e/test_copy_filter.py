"""Files that `tidecast copy` leaves out and deletes, compared with rsync by the same rules on the same random trees."""
import os
import random
import shutil
import subprocess

import pytest
from conftest import needs
from support import filters
from support.seeds import seeds
from test_copy import done, server, ssh  # noqa: F401

# Always the same in a test of everything; `make copy-soak` adds fresh ones. Each seed is some trees, one after the other.
SEEDS = seeds(*range(6))
TREES = 10


@pytest.fixture
def here(node):
    return node("here")


class Trial:
    """Some sources, a destination that holds something, and rules."""

    def __init__(self, rng: random.Random, at, rules=filters.rules):
        at.mkdir()
        self.sources, self.rules = filters.sources(rng, at), rules(rng, at / "list")
        # Where both kinds of rules apply, a name that a pattern may mean is kept, with a warning.
        mixed = len({source.endswith(b"/") for source in self.sources if os.path.isdir(source)}) > 1
        self.delete = [b"--delete"] if rng.random() < 0.85 and not mixed else []
        self.rules = [word for word in self.rules if not mixed or word != b"--delete-excluded"]
        self.ours, self.theirs = at / "ours", at / "theirs"
        filters.tree(rng, bytes(self.ours), b"it was here before\n", rng.randrange(60))
        # Many of the sources' names exist already, some of them as another kind of entry.
        for source in self.sources:
            there = os.path.join(bytes(self.ours), b"" if source.endswith(b"/") else os.path.basename(source))
            if os.path.isdir(source) and (os.path.isdir(there) or not os.path.lexists(there)) and rng.random() < 0.8:
                filters.tree(rng, there, b"it was here before\n", rng.randrange(60))
        filters.double(bytes(self.ours), bytes(self.theirs))

    def judge(self) -> tuple[int, dict]:
        """The result of rsync."""
        words = [b"rsync", b"-a", *self.delete, *self.rules, *self.sources, bytes(self.theirs) + b"/"]
        code = subprocess.run(words, capture_output=True, timeout=60).returncode
        assert code in (0, 23), (code, words)
        return code, filters.state(bytes(self.theirs))

    def told(self) -> bytes:
        return b" ".join([*self.delete, *self.rules, *self.sources])


def check(trial: Trial, code: int, told: str) -> None:
    judged, theirs = trial.judge()
    ours = filters.state(bytes(trial.ours))
    wrong = {path: (ours.get(path), theirs.get(path)) for path in ours.keys() | theirs if ours.get(path) != theirs.get(path)}
    assert not wrong and (code == 0) == (judged == 0), (trial.told(), wrong, code, judged, told)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_left_out_and_deleted_is_what_rsync_says(seed, here, tmp_path):
    needs("rsync")
    rng = random.Random(f"local {seed}")
    for number in range(TREES):
        trial = Trial(rng, tmp_path / str(number))
        words = [here.program, b"copy", b"--quiet", *trial.delete, *trial.rules, *trial.sources, bytes(trial.ours) + b"/"]
        ran = subprocess.run(words, env=here.env, capture_output=True, timeout=60)
        check(trial, ran.returncode, ran.stderr.decode(errors="replace"))
        shutil.rmtree(tmp_path / str(number))


@pytest.mark.parametrize("seed", SEEDS)
def test_rules_of_filter_and_files_of_them_mean_what_they_do_in_rsync(seed, here, tmp_path):
    needs("rsync")
    rng = random.Random(f"filter {seed}")
    for number in range(TREES):
        trial = Trial(rng, tmp_path / str(number), filters.filter_words)
        words = [here.program, b"copy", b"--quiet", *trial.delete, *trial.rules, *trial.sources, bytes(trial.ours) + b"/"]
        ran = subprocess.run(words, env=here.env, capture_output=True, timeout=60)
        check(trial, ran.returncode, ran.stderr.decode(errors="replace"))
        shutil.rmtree(tmp_path / str(number))


@pytest.mark.parametrize("line", ["foo", "  - foo", "-s foo", "-/ foo", "-! foo", "P", ". absent", ": .rsync-filter", "dir-merge x", "exclude,! x"])
def test_a_file_of_rules_with_another_line_is_refused_as_a_whole(line, here, tmp_path):
    for name in ("src", "dest"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text(name)
    (tmp_path / "rules").write_text(f"- a\n{line}\n")
    message = done(here, "--delete", "-f", f". {tmp_path}/rules", f"{tmp_path}/src/", tmp_path / "dest", code=2)["message"]
    assert "rules" in message and os.listdir(tmp_path / "dest") == ["dest"], message
    (tmp_path / "rules").write_text(f". {tmp_path}/rules\n")
    message = done(here, "-f", f". {tmp_path}/rules", f"{tmp_path}/src/", tmp_path / "dest", code=2)["message"]
    assert "files merge each other" in message and os.listdir(tmp_path / "dest") == ["dest"], message


@pytest.mark.parametrize("way", ["push", "pull", "to a server", "from a server"])
def test_rules_hold_at_both_ends_of_a_connection(way, here, ssh, server, tmp_path):  # noqa: F811
    needs("rsync")
    rng = random.Random(f"remote {way}")
    (tmp_path / "served").mkdir()
    url = server().encode() if "server" in way else b"host:/"
    at_ours = [b"--ssh", *map(os.fsencode, ssh[1:])] if "server" not in way else []
    for number in range(4):
        trial = Trial(rng, tmp_path / "served" / str(number))
        # A name that has wildcards would be found by them.
        inside = lambda path: path.replace(bytes(tmp_path / "served"), b"") if "server" in way else path  # noqa: E731
        prefix = url.rstrip(b"/")
        far = way in ("push", "to a server")
        sources = trial.sources if far else [prefix + inside(source) for source in trial.sources]
        dest = prefix + inside(bytes(trial.ours)) if far else bytes(trial.ours)
        words = [here.program, b"copy", b"--quiet", *at_ours, *trial.delete, *trial.rules, *sources, dest + b"/"]
        ran = subprocess.run(words, env=here.env, capture_output=True, timeout=60)
        check(trial, ran.returncode, ran.stderr.decode(errors="replace"))


def test_what_a_pattern_of_another_source_may_mean_is_kept_and_told(here, tmp_path):
    """Of two sources one is given with a slash: /cache is a/cache, as with rsync, and a user who means b/cache must not lose it."""
    for name in ("a", "b/cache", "dest/b/cache", "dest/b/other", "dest/cache"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file").write_text(name)
    (tmp_path / "dest/b/cache/kept").write_text("precious")
    end = done(here, "--delete", "--exclude", "/cache", f"{tmp_path}/a/", tmp_path / "b", tmp_path / "dest", code=1)
    assert [problem["path"] for problem in end["problems"]] == [f"{tmp_path}/dest/b/cache/kept"], end
    assert sorted(os.listdir(tmp_path / "dest/b")) == ["cache"] and (tmp_path / "dest/cache/file").exists()
    assert (tmp_path / "dest/b/cache/file").read_text() == "b/cache" and (tmp_path / "dest/b/cache/kept").exists()
    done(here, "--delete", "--exclude", "/cache", f"{tmp_path}/a/", f"{tmp_path}/b/", tmp_path / "dest")
    assert sorted(os.listdir(tmp_path / "dest")) == ["cache", "file"]


def test_a_pattern_that_nothing_matches_is_told(here, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/[a").write_text("1")
    said = here("copy", "--exclude", "[a", f"{tmp_path}/src/", tmp_path / "dest").err
    assert "[a matches no file" in said and (tmp_path / "dest/[a").exists()
