"""rsync's flags in `tidecast copy`, compared with rsync on random trees."""
import os
import random
import shutil
import stat
import subprocess
import time

import pytest
from conftest import needs
from support import changes
from support.seeds import seeds
from test_copy import done, server, ssh  # noqa: F401

# Always the same in a test of everything; `make copy-soak` adds fresh ones. Each seed is some trees, one after the other.
SEEDS = seeds(*range(6))
TREES = 12


@pytest.fixture
def here(node):
    return node("here")


def is_one(one: str, two: str) -> bool:
    return os.path.lexists(two) and os.path.lexists(one) and os.path.samestat(os.lstat(one), os.lstat(two))


class Trial:
    """A tree, two equal destinations that hold some of it, and flags."""

    def __init__(self, rng: random.Random, at, *, listed: bool = False):
        at.mkdir()
        root = os.geteuid() == 0
        self.source, self.ours, self.theirs = at / "src", at / "ours", at / "theirs"
        self.flags = changes.flags(rng)
        self.at = at
        names = {flag.partition("=")[0] for flag in self.flags}
        # Targets of links are not removed here, nor files that were never compared. rsync keeps links and pipes that it has
        # linked from elsewhere.
        if names & {"--remove-source-files"} and names & {"-L", "-k", "--append", "--link-dest"}:
            self.flags.remove("--remove-source-files")
        # rsync links files of any owner; to be appended to, they are copied here; and rsync keeps none that a link replaces.
        if "--link-dest" in names and (not self.keeps("o") or names & {"--append", "--append-verify", "--backup-dir", "-b"}):
            self.flags = [flag for flag in self.flags if not flag.startswith("--link-dest")]
        # rsync looks for links and pipes in the first of several directories only, whether it is there or not.
        if listed and "--link-dest=@no" in self.flags:
            self.flags.remove("--link-dest=@no")
        # An error of rsync's.
        if "-W" in names and names & {"--append", "--append-verify"}:
            self.flags.remove("-W")
        self.updates = bool(names & {"--inplace", "--append", "--append-verify"})
        # Without its owner a file loses its set-id bits here, though rsync makes it root's.
        special = self.keeps("o") and self.keeps("g") or not self.keeps("p")
        # Which of several names stands for a file that is copied in part only is not told.
        again = not listed and not any(flag.startswith(("--existing", "--ignore-existing", "--max-size", "--min-size", "-u", "--inplace", "--append", "--link-dest")) for flag in self.flags)
        lead = ""
        if {"-L", "-k"} & {*self.flags}:
            lead = str(at / "lead")
            changes.tree(rng, lead, 12, root=root, special=special)
            # A link that leads back into itself is an error here, and forty levels deep there.
            subprocess.run(["find", lead, "-type", "l", "-delete"], check=True)
        changes.tree(rng, str(self.source), rng.randrange(5, 60), root=root, lead=lead, special=special, again=again)
        if rng.random() < 0.7:
            subprocess.run(["rsync", "-aHAX", f"{self.source}/", self.ours], check=True)
            changes.change(rng, str(self.ours), special=special)
            changes.tree(rng, str(self.ours), rng.randrange(15), root=root, special=special, again=again)
            if again or listed:
                # rsync fails if a directory is in the place of a file with several names.
                self.make_way()
            subprocess.run(["rsync", "-aHAX", f"{self.ours}/", self.theirs], check=True)
        if any(flag.startswith("--link-dest") for flag in self.flags):
            subprocess.run(["rsync", "-aHAX", f"{self.source}/", at / "ours.link"], check=True)
            changes.change(rng, str(at / "ours.link"), special=special)
            subprocess.run(["rsync", "-aHAX", f"{at}/ours.link/", at / "theirs.link"], check=True)
        self.before = {path: state for top in (self.source, self.ours) if top.exists() for path, state in changes.state(str(top), now=0).items()} if listed else {}
        self.judged = self.source
        if "--remove-source-files" in self.flags:
            self.judged = at / "judged"
            subprocess.run(["rsync", "-aHAX", f"{self.source}/", self.judged], check=True)

    def words(self, which: str) -> list[str]:
        """The flags for one of the two destinations."""
        return [flag.replace("=@", f"={self.at}/{which}.") for flag in self.flags]

    def make_way(self) -> None:
        for at, dirs, files in os.walk(self.source):
            for name in [*dirs, *files]:
                path = os.path.join(at, name)
                there = os.path.join(self.ours, os.path.relpath(path, self.source))
                if (os.path.islink(path) or not os.path.isdir(path)) and os.path.isdir(there) and not os.path.islink(there):
                    shutil.rmtree(there)

    def keeps(self, letter: str) -> bool:
        """Whether the flags keep the attribute of a letter."""
        words = {"o": "owner", "g": "group", "t": "times", "p": "perms"}
        last = -1, False
        for at, flag in enumerate(self.flags):
            if flag[1] != "-" and flag[1] not in "@" and (letter in flag or "a" in flag):
                last = at, True
            elif flag in (f"--no-{letter}", f"--no-{words[letter]}"):
                last = at, False
        return last[1]

    def judge(self) -> int:
        """rsync's output. Hard links are kept here by default."""
        said = subprocess.run(["rsync", *self.judges(), f"{self.judged}/", f"{self.theirs}/"], capture_output=True, text=True, timeout=60)
        self.said = said.stdout.splitlines()
        return said.returncode

    def judges(self) -> list[str]:
        """rsync's flags. Hard links are kept here by default."""
        words = self.words("theirs")
        kept = [flag for flag in words if flag in ("-a", "-rlptgoD")]
        return [*kept, *("-HAX" if flag in kept else flag for flag in words)]

    def items(self) -> list[str]:
        """rsync's dry run, line by line."""
        said = subprocess.run(["rsync", "-ni", *self.judges(), f"{self.source}/", f"{self.theirs}/"], capture_output=True, text=True, timeout=60).stdout
        return said.splitlines()

    def listing(self, said: str) -> list[str]:
        """The lines of changes. A file with set-id bits that gets another owner is replaced here; rsync looks at it again in between, and lists what
        it finds then."""
        gone = set()
        if any(flag.startswith("--chown") for flag in self.flags):
            gone = {path for path, (_, _, mode, *_) in self.before.items() if int(mode, 8) & 0o6000}
        return [line for line in listing(said.splitlines()) if line[12:] not in gone]

    def check(self, code: int, told: str) -> None:
        judged, now = self.judge(), time.time()
        ours, theirs = (changes.state(str(top), now=now) for top in (self.ours, self.theirs))
        # The kept files, and those left at the source; for directories, only their existence.
        for a, b in (("ours.bak", "theirs.bak"), ("src", "judged")):
            if (self.at / b).exists() or (self.at / a).exists() and b != "judged":
                lean = lambda top: {path: state[:1] + (state[1:6] if not stat.S_ISDIR(state[0]) else ()) for path, state in changes.state(str(top), now=now).items()}  # noqa: E731
                found, wanted = lean(self.at / a), lean(self.at / b)
                assert found == wanted, (self.flags, {k: (found.get(k), wanted.get(k)) for k in found.keys() | wanted if found.get(k) != wanted.get(k)}, told)
        if (self.at / "ours.link").exists():
            linked = lambda which: {os.path.join(at, name) for at, _, names in os.walk(self.at / f"{which}.link") for name in names  # noqa: E731
                                    if is_one(os.path.join(at, name), os.path.join(at.replace(f"{which}.link", which), name))}
            found, wanted = ({path.replace(f"{which}.link", "") for path in linked(which)} for which in ("ours", "theirs"))
            assert found == wanted, (self.flags, found ^ wanted, told)
        # A directory that was written to has the source's time, one that was not any within the window.
        window = max((int(flag.partition("=")[2]) for flag in self.flags if flag.startswith("--modify-window=")), default=5000 * ("-@" in self.flags))
        groups = [state[-1] for state in (*ours.values(), *theirs.values())]
        linked = {path for path in ours.keys() & theirs if path not in (ours[path][-1], theirs[path][-1]) or groups.count(path) > 2}
        for path in ours.keys() & theirs:
            (kind, *rest, when, same), (*_, other, _) = ours[path], theirs[path]
            # -b leaves the times of directories, as -O does.
            leaves = "-O" in self.flags or "-b" in self.flags
            loose = not self.keeps("t") or "-J" in self.flags and stat.S_ISLNK(kind) or leaves and stat.S_ISDIR(kind)
            near = "now" not in (when, other) and abs(when - other) <= window
            # A pipe or link whose attributes change is recreated here, which changes its time, and that of its directory.
            if not stat.S_ISREG(kind) and (loose or near):
                ours[path] = (kind, *rest, other, same)
            # What becomes of a name that is not copied but is linked to one that is, and whose attributes a further name has that are
            # not copied; the mode of a pipe that is not.
            if not all(map(self.keeps, "optg")) and (path in linked or not self.keeps("p") and not stat.S_ISREG(kind) and not stat.S_ISDIR(kind)):
                ours[path] = theirs[path]
            # In a directory that is open to all, another user's file is replaced here, not written to.
            if self.updates and not self.keeps("o") and ours[path][3] == os.geteuid():
                ours[path] = (*ours[path][:3], *theirs[path][3:5], *ours[path][5:])
        wrong = {path: (ours.get(path), theirs.get(path)) for path in ours.keys() | theirs if ours.get(path) != theirs.get(path)}
        if code and judged:
            # Consequences of failures may differ.
            wrong = {path: pair for path, pair in wrong.items() if None not in pair}
        assert not wrong and (code == 0) == (judged == 0), (self.flags, wrong, code, judged, told)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_flags_make_of_a_tree_is_what_rsync_makes_of_it(seed, here, tmp_path):
    needs("rsync")
    rng = random.Random(f"flags {seed}")
    for number in range(TREES):
        trial = Trial(rng, tmp_path / str(number))
        words = [here.program, "copy", "--quiet", *trial.words("ours"), f"{trial.source}/", f"{trial.ours}/"]
        ran = subprocess.run(words, env=here.env, capture_output=True, timeout=60)
        trial.check(ran.returncode, ran.stderr.decode(errors="replace"))
        shutil.rmtree(tmp_path / str(number))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_flag_lists_is_what_rsync_lists(seed, here, tmp_path):
    needs("rsync")
    rng = random.Random(f"letters {seed}")
    for number in range(TREES):
        # Which of several names stands for the others is not told.
        trial = Trial(rng, tmp_path / str(number), listed=True)
        words = [here.program, "copy", "-ni", *trial.words("ours"), f"{trial.source}/", f"{trial.ours}/"]
        ran = subprocess.run(words, env=here.env, capture_output=True, text=True, timeout=60)
        ours, theirs = trial.listing(ran.stdout), trial.listing("\n".join(trial.items()))
        assert ours == theirs, (trial.flags, sorted({*ours} - {*theirs}), sorted({*theirs} - {*ours}), ran.stderr)
        shutil.rmtree(tmp_path / str(number))


def listing(said: list[str]) -> list[str]:
    return sorted(line for line in said if line[:1] in ("<", ">", "c", "h", ".", "*") and line[11:12] == " ")


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_done_is_listed_as_rsync_lists_it(seed, here, tmp_path):
    needs("rsync")
    rng = random.Random(f"done {seed}")
    for number in range(TREES):
        trial = Trial(rng, tmp_path / str(number), listed=True)
        # Of what was linked from elsewhere rsync's manual says that its list gets a bit muddled.
        trial.flags = ["-i", *(flag for flag in trial.flags if not flag.startswith("--link-dest"))]
        words = [here.program, "copy", *trial.words("ours"), f"{trial.source}/", f"{trial.ours}/"]
        ran = subprocess.run(words, env=here.env, capture_output=True, text=True, timeout=60)
        judged = trial.judge()
        ours, theirs = trial.listing(ran.stdout), trial.listing("\n".join(trial.said))
        assert ran.returncode or judged or ours == theirs, f"{trial.flags} {sorted({*ours} - {*theirs})} {sorted({*theirs} - {*ours})} {ran.stderr}"
        shutil.rmtree(tmp_path / str(number))


def test_several_pairs_list_each_change_once(here, tmp_path, ssh):  # noqa: F811
    for name in ("a/f", "a/g", "b/h", "k"):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_text(name)
    (tmp_path / "dest").mkdir()
    (tmp_path / "dest/gone").touch()
    said = here("copy", "-ai", "--delete", *ssh, f"h[1-2]:{tmp_path}/src/", f"h[3-4]:{tmp_path}/dest").out.splitlines()
    wanted = ["*deleting   gone", ">f+++++++++ a/f", ">f+++++++++ a/g", ">f+++++++++ b/h", ">f+++++++++ k", "cd+++++++++ a/", "cd+++++++++ b/"]
    assert [line for line in listing(said) if not line.endswith(" ./")] == sorted(wanted), said


def test_changes_are_listed_as_they_are_made(here, tmp_path, ssh):  # noqa: F811
    (tmp_path / "src/d").mkdir(parents=True)
    (tmp_path / "src/d/f").write_text("12")
    (tmp_path / "dest/old").mkdir(parents=True)
    # A directory that is there has this time.
    os.utime(tmp_path / "dest", (1, 1))
    said = here("copy", "-ai", "--delete", "--stats", f"{tmp_path}/src/", tmp_path / "dest").out.splitlines()
    assert {"*deleting   old/", ">f+++++++++ d/f", "cd+++++++++ d/", ".d..t...... ./"} <= {*said}, said
    assert "Number of regular files transferred: 1" in said and "Total transferred file size: 2 bytes" in said, said
    assert (tmp_path / "dest/d/f").read_text() == "12" and not (tmp_path / "dest/old").exists()
    assert not [line for line in here("copy", "-ai", f"{tmp_path}/src/", tmp_path / "dest").out.splitlines() if line[11:12] == " "]
    (tmp_path / "src/d/f").write_text("123")
    assert "<f.s" in here("copy", "-ai", *ssh, f"{tmp_path}/src/", f"host:{tmp_path}/dest").out


def test_rules_of_one_end_hold_there_alone(here, tmp_path):
    for at in ("src", "dest"):
        for name in ("a.o", "b.bak", "c"):
            (tmp_path / at).mkdir(exist_ok=True)
            (tmp_path / at / name).write_text(at)
    (tmp_path / "dest/kept.bak").touch()
    (tmp_path / "dest/gone").touch()
    done(here, "--delete", "-f", "P *.bak", "--filter=H *.o", f"{tmp_path}/src/", tmp_path / "dest")
    assert sorted(os.listdir(tmp_path / "dest")) == ["b.bak", "c", "kept.bak"]
    (tmp_path / "dest/x.o").touch()
    done(here, "--delete", "--exclude=*.o", f"{tmp_path}/src/", tmp_path / "dest")
    assert (tmp_path / "dest/x.o").exists()
    done(here, "--delete", "--delete-excluded", "--exclude=*.o", f"{tmp_path}/src/", tmp_path / "dest")
    assert not (tmp_path / "dest/x.o").exists()


@pytest.fixture
def little(tmp_path):
    """A directory that has one of each."""
    top = tmp_path / "src"
    (top / "d").mkdir(parents=True)
    (top / "f").write_text("1")
    (top / "d/x").write_text("2")
    (top / "link").symlink_to("f")
    os.mkfifo(top / "pipe")
    (top / "f").chmod(0o640)
    os.utime(top / "f", (changes.OLD, changes.OLD))
    return top


def test_some_letters_keep_what_they_name_and_nothing_else(here, little, tmp_path):
    said = here("copy", "-rt", f"{little}/", tmp_path / "dest").err
    assert sorted(os.listdir(tmp_path / "dest")) == ["d", "f"] and "skipped 2 entries (links" in said
    assert (tmp_path / "dest/f").stat().st_mtime == changes.OLD and (tmp_path / "dest/f").stat().st_mode & 0o777 == 0o640 & ~0o022
    # The last flag wins.
    done(here, "-a", "--no-links", f"{little}/", tmp_path / "one")
    done(here, "--no-links", "-a", f"{little}/", tmp_path / "two")
    assert not (tmp_path / "one/link").is_symlink() and (tmp_path / "two/link").is_symlink()


def test_an_owner_that_the_receiver_does_not_know_is_an_error(here, little, tmp_path):
    said = here("copy", "--chown=nobody-of-that-name", f"{little}/", tmp_path / "dest", code=2).err
    assert "no user nobody-of-that-name" in said and not (tmp_path / "dest/f").exists()


def test_a_limit_of_deletions_is_kept_and_told(here, little, tmp_path):
    for name in "abc":
        (tmp_path / "dest" / name).mkdir(parents=True)
        (tmp_path / "dest" / name / "f").touch()
    for flags, left in ((["-n"], 6), ([], 4), (["--max-delete=9"], 0)):
        end = done(here, "--delete", "--max-delete=2", *flags, f"{little}/", tmp_path / "dest", code=0 if "--max-delete=9" in flags else 1)
        found = [path for name in "abc" for path in (tmp_path / "dest").glob(f"{name}*/**/*")] + list((tmp_path / "dest").glob("[abc]"))
        assert len(found) == left and (left == 0 or end["deleted"] == 2 and "--max-delete 2" in str(end["problems"])), (found, end)


def test_a_directory_that_is_not_the_senders_is_not_emptied(here, little, tmp_path):
    """A name that is left out by its kind or size still exists at the sender: a directory of that name here stays as it is."""
    for name in ("link", "f"):
        (tmp_path / "dest" / name).mkdir(parents=True)
        (tmp_path / "dest" / name / "kept").touch()
    done(here, "-a", "--no-links", "--max-size=0", "--delete", f"{little}/", tmp_path / "dest")
    assert (tmp_path / "dest/link/kept").exists() and (tmp_path / "dest/f/kept").exists()


def test_a_file_that_is_not_selected_is_not_unchanged(here, little, tmp_path):
    for flags in (["--max-size=0"], ["--existing"]):
        for more in ([], ["-n"]):
            end = done(here, *flags, *more, f"{little}/", tmp_path / "dest")
            assert end["files_copied"] == end["files_kept"] == 0, (flags, more, end)
    done(here, f"{little}/", tmp_path / "dest")
    for flags in (["--max-size=1k"], ["--existing"], ["--ignore-existing"], ["-u"]):
        for more in ([], ["-n"]):
            assert done(here, *flags, *more, f"{little}/", tmp_path / "dest")["files_kept"] == end["files"], (flags, more)


@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: mounting needs root")
@pytest.mark.parametrize("flags, made", [(["-a"], ["f", "inner"]), (["-ax"], []), (["-axx"], None)])
def test_what_is_mounted_below_a_source_is_left_out_and_stays(flags, made, here, little, tmp_path):
    (little / "mnt").mkdir()
    (tmp_path / "dest/mnt").mkdir(parents=True)
    (tmp_path / "dest/mnt/other").touch()
    script = f'mount -t tmpfs none {little}/mnt && mkdir {little}/mnt/inner && touch {little}/mnt/f && "$0" copy --delete {" ".join(flags)} {little}/ {tmp_path}/dest'
    subprocess.run(["unshare", "-m", "sh", "-c", script, here.program], env=here.env, check=True, capture_output=True)
    # As with rsync, mount points that are left out are not deleted.
    found = sorted(os.listdir(tmp_path / "dest/mnt")) if (tmp_path / "dest/mnt").exists() else None
    assert found == (["other"] if made == [] else made), found


def test_links_are_followed_and_never_in_circles(here, little, server, tmp_path):  # noqa: F811
    (little / "d/up").symlink_to("..")
    (little / "gone").symlink_to("nowhere")
    end = done(here, "-aL", f"{little}/", tmp_path / "dest", code=1)
    assert (tmp_path / "dest/link").read_text() == "1" and not (tmp_path / "dest/link").is_symlink()
    assert {os.path.basename(problem["path"]) for problem in end["problems"]} == {"up", "gone"}, end
    # Of a server no link leads out of its source.
    served = tmp_path / "served"
    served.mkdir()
    (tmp_path / "secret").write_text("secret")
    (served / "out").symlink_to(tmp_path / "secret")
    (served / "up").symlink_to("../secret")
    (served / "in").symlink_to("file")
    (served / "file").write_text("3")
    end = done(here, "-aL", server(), tmp_path / "got", code=1)
    assert sorted(os.listdir(tmp_path / "got")) == ["file", "in"] and len(end["problems"]) == 2, end


def test_a_guest_says_neither_owners_nor_set_id_bits(here, little, server, tmp_path):  # noqa: F811
    url = server(trust=("--as-root",))
    end = done(here, "--chown=1:1", "--chmod=F4755", f"{little}/", url, code=1)
    told = str(end["problems"])
    assert "owners are not kept" in told and "set-id" in told, told
    info = (tmp_path / "served/f").stat()
    assert info.st_uid == os.geteuid() and info.st_mode & 0o7777 == 0o755


@pytest.mark.parametrize("way", ["push", "to a server"])
def test_flags_hold_at_both_ends_of_a_connection(way, here, ssh, server, tmp_path):  # noqa: F811
    needs("rsync")
    rng = random.Random(f"far flags {way}")
    (tmp_path / "served").mkdir()
    url = server() if "server" in way else ""
    for number in range(4):
        trial = Trial(rng, tmp_path / "served" / str(number))
        dest = f"{url.rstrip('/')}/{number}/ours/" if url else f"host:{trial.ours}/"
        at = () if url else ssh
        words = [flag.replace(f"={trial.at}/ours.", "=../ours.") for flag in trial.words("ours")]
        proc = here.run("copy", *at, *words, f"{trial.source}/", dest)
        trial.check(proc.wait(), proc.err)


@pytest.mark.parametrize("there", ["one", "two", "none", "both"])
@pytest.mark.parametrize("flag", ["-u", "--existing", "--ignore-existing", "--append", "--min-size=1000", "--max-size=3"])
def test_names_of_one_file_are_each_judged_by_themselves(flag, there, here, tmp_path):
    """None is linked to a file that stays at the destination and is another."""
    source = tmp_path / "src"
    source.mkdir()
    (source / "one").write_text("the source's")
    os.utime(source / "one", (1e9, 1e9))
    os.link(source / "one", source / "two")
    for place in (tmp_path / "ours", tmp_path / "theirs"):
        place.mkdir()
        for name in {"none": [], "both": ["one", "two"]}.get(there, [there]):
            (place / name).write_text(f"another, newer and longer {name}")
    subprocess.run(["rsync", "-a", flag, f"{source}/", tmp_path / "theirs"], check=True)
    here("copy", "-a", flag, f"{source}/", tmp_path / "ours")
    content = [{path.name: path.read_text() for path in (tmp_path / side).iterdir()} for side in ("ours", "theirs")]
    assert content[0] == content[1]


@pytest.mark.parametrize("suffix", ["~", ".bak"])
def test_what_is_deleted_is_no_backup_of_this_copy(suffix, here, tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    (source / "file").write_text("new")
    for place in (tmp_path / "ours", tmp_path / "theirs"):
        (place / "gone").mkdir(parents=True)
        for name, text in (("file", "old"), ("gone/file", "of none"), (f"stale{suffix}", "an earlier backup")):
            (place / name).write_text(text)
            os.utime(place / name, (1e9, 1e9))
    flags = ["-a", "--delete", "--delete-excluded", "-b", f"--suffix={suffix}"]
    subprocess.run(["rsync", *flags, f"{source}/", tmp_path / "theirs"], check=True)
    here("copy", *flags, f"{source}/", tmp_path / "ours")
    content = [{path.name: path.read_text() for path in (tmp_path / side).iterdir() if path.is_file()} for side in ("ours", "theirs")]
    assert content[0] == content[1] and content[0][f"file{suffix}"] == "old"


def test_a_pipe_is_no_source_for_standard_output(here, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in here("copy", tmp_path / "pipe", "-", code=1).err


@pytest.mark.parametrize("content", ["", "dir", "file"])
def test_what_lies_below_a_file_that_stays_is_a_failure(content, here, tmp_path):
    needs("rsync")
    inside = tmp_path / "src/taken" / {"dir": "dir"}.get(content, "")
    inside.mkdir(parents=True)
    if content == "file":
        (inside / "file").write_text("data")
    for place in (tmp_path / "ours", tmp_path / "theirs"):
        place.mkdir()
        (place / "taken").write_text("stays")
    theirs = subprocess.run(["rsync", "-a", "--ignore-existing", f"{tmp_path}/src/", tmp_path / "theirs"], capture_output=True)
    assert (theirs.returncode != 0) == bool(content)
    for run in ("-an", "-a"):
        said = here("copy", run, "--ignore-existing", f"{tmp_path}/src/", tmp_path / "ours", code=int(bool(content))).err
        assert ("the place of its directory is taken" in said) == bool(content)
    assert (tmp_path / "ours/taken").read_text() == "stays"


@pytest.mark.parametrize("flags", ["-rlk", "-rl", "-rL", "-a"])
@pytest.mark.parametrize("leads", ["nowhere", "file", "dir"])
def test_a_link_of_the_first_source_is_judged_as_rsync_judges_it(leads, flags, here, tmp_path):
    needs("rsync")
    for name in ("one/dir", "two"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "one/file").write_text("of one")
    (tmp_path / "one/name").symlink_to(leads)
    (tmp_path / "two/name").write_text("of two")
    sources = [f"{tmp_path}/one/", f"{tmp_path}/two/"]
    theirs = subprocess.run(["rsync", flags, *sources, tmp_path / "theirs"], capture_output=True)
    ours = here.run("copy", flags, *sources, tmp_path / "ours").wait()
    assert (ours == 0) == (theirs.returncode == 0)
    entries = [{str(path.relative_to(side)): path.is_symlink() or path.is_dir() or path.read_text() for path in side.rglob("*")} for side in (tmp_path / "ours", tmp_path / "theirs")]
    assert entries[0] == entries[1]
