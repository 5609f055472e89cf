"""`tidecast copy -R` and `--files-from`: the copied names and their parents, compared with rsync on random trees and lists."""
import os
import random
import shutil
import subprocess

import pytest
from conftest import needs
from support import changes
from support.seeds import seeds
from test_copy import done, server, ssh  # noqa: F401

SEEDS = seeds(*range(4))
TREES = 10


@pytest.fixture
def here(node):
    return node("here")


def names(top) -> dict[str, tuple]:
    """The entries there, without times of directories that were not named."""
    found = changes.state(str(top), now=0)
    return {path: state[:2] + (state[2:5] + state[6:]) + ((state[5],) if not os.path.isdir(os.path.join(top, path)) else ()) for path, state in found.items()}


def listed(rng: random.Random, top: str) -> list[bytes]:
    """Names of a tree as people write them, and such as are not there."""
    all_names = [os.path.relpath(os.path.join(at, name), top) for at, dirs, files in os.walk(top) for name in [*dirs, *files]]
    for link in [name for name in all_names if os.path.islink(os.path.join(top, name)) and os.path.isdir(os.path.join(top, name))]:
        all_names += [f"{link}/{name}" for name in os.listdir(os.path.join(top, link))]
        # rsync follows no link of another user.
        os.lchown(os.path.join(top, link), os.geteuid(), os.getegid())
    some = rng.sample(all_names, min(len(all_names), rng.randrange(1, 9)))
    twisted = []
    for name in some:
        roll = rng.random()
        twisted.append(name + "/" if roll < 0.2 and os.path.isdir(os.path.join(top, name)) else
                       "/" + name if roll < 0.3 else "./" + name if roll < 0.4 else name.replace("/", "//") if roll < 0.5 else
                       "../" + name if roll < 0.55 else name.replace("/", "/./", 1) if roll < 0.7 else name)
        if roll > 0.9:
            twisted.append(name)
    if rng.random() < 0.2:
        twisted.append("missing/name")
    if rng.random() < 0.1:
        twisted.append(".")
    if rng.random() < 0.2:
        twisted += ["# a comment", "; another", ""]
    rng.shuffle(twisted)
    return [name.encode() for name in twisted]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_list_names_is_what_rsync_copies_of_it(seed, here, tmp_path):
    needs("rsync")
    rng, unjudged = random.Random(f"lists {seed}"), 0
    for number in range(TREES):
        at = tmp_path / str(number)
        at.mkdir()
        changes.tree(rng, str(at / "src"), rng.randrange(5, 50), root=os.geteuid() == 0)
        changes.tree(rng, str(at / "ours"), rng.randrange(10), root=False)
        subprocess.run(["rsync", "-aHAX", f"{at}/ours/", at / "theirs"], check=True)
        names_, nul = listed(rng, str(at / "src")), rng.random() < 0.3
        end = b"\0" if nul else rng.choice([b"\n", b"\r\n"])
        (at / "list").write_bytes(end.join(names_) + rng.choice([b"", end]))
        flags = rng.choice([["-aHAX"], ["-aHAX", "-r"], ["-aHAX", "-r", "--delete"], ["-rlptgoDHAX"]])
        if "--delete" in flags and b"missing/name" in names_:
            # Nothing is deleted here while a name is missing.
            flags = flags[:-1]
        if rng.random() < 0.3:
            flags = [*flags, rng.choice(["--exclude=a", "--exclude=/b", "--exclude=*.c", "--exclude=d/"])]
        flags = [*flags, *(["-0"] if nul else []), f"--files-from={at}/list"]
        try:
            theirs = subprocess.run(["rsync", *flags, f"{at}/src", f"{at}/theirs/"], capture_output=True, text=True, timeout=20)
        except subprocess.TimeoutExpired:
            theirs = None
        # rsync may stop at its own errors in hard links of lists, or wait for ever.
        if theirs is None or theirs.returncode not in (0, 23, 24) or "could not make way" in theirs.stderr:
            unjudged += 1
            continue
        flags = ["-ar" if flag == "-r" else "-a" if flag == "-aHAX" and "-r" in flags else flag for flag in flags]
        ours = subprocess.run([here.program, "copy", "--quiet", *flags, f"{at}/src", f"{at}/ours/"], env=here.env, capture_output=True, text=True, timeout=60)
        found, wanted = names(at / "ours"), names(at / "theirs")
        wrong = {path: (found.get(path), wanted.get(path)) for path in found.keys() | wanted if found.get(path) != wanted.get(path)}
        assert not wrong and (ours.returncode == 0) == (theirs.returncode == 0), f"{flags} {names_} {wrong} {ours.stderr} {theirs.stderr}"
        shutil.rmtree(at)
    assert unjudged < TREES / 2


@pytest.fixture
def deep(tmp_path):
    """A directory with names at several depths, one of them behind a link."""
    top = tmp_path / "src"
    (top / "a/b/c").mkdir(parents=True)
    (top / "a/b/f").write_text("1")
    (top / "a/g").write_text("2")
    (top / "a/b/c/h").write_text("3")
    (top / "link").symlink_to("a/b")
    os.utime(top / "a", (changes.OLD, changes.OLD))
    (top / "a").chmod(0o750)
    return top


@pytest.mark.parametrize("way", ["local", "push", "pull"])
def test_paths_are_kept_from_the_mark_on(way, deep, here, ssh, tmp_path):  # noqa: F811
    far = ssh if way != "local" else ()
    source, dest = ("host:" if way == "pull" else ""), ("host:" if way == "push" else "")
    done(here, "-R", *far, f"{source}{deep}/./a/b/f", f"{source}{deep}/./a/b/c", f"{dest}{tmp_path}/one")
    assert names(tmp_path / "one").keys() == {".", "a", "a/b", "a/b/f", "a/b/c", "a/b/c/h"}
    assert (tmp_path / "one/a").stat().st_mtime == changes.OLD and (tmp_path / "one/a").stat().st_mode & 0o777 == 0o750
    deep.chmod(0o700)
    (tmp_path / "list").write_text("./a/g\n")
    done(here, *far, f"--files-from={tmp_path}/list", f"{source}{deep}", f"{dest}{tmp_path}/dot")
    assert (tmp_path / "dot").stat().st_mode & 0o777 == 0o700, "a path with ./ before it has the top above it"
    deep.chmod(0o755)
    done(here, "-R", *far, f"{source}{deep}/a/g", f"{dest}{tmp_path}/two")
    assert (tmp_path / "two" / str(deep / "a/g").lstrip("/")).read_text() == "2"
    done(here, "-R", "--no-implied-dirs", *far, f"{source}{deep}/./a/g", f"{dest}{tmp_path}/three")
    assert (tmp_path / "three/a").stat().st_mode & 0o777 == 0o755
    # The parent of a name is a directory, even if a link led there.
    done(here, "-R", *far, f"{source}{deep}/./link/f", f"{dest}{tmp_path}/four")
    assert names(tmp_path / "four").keys() == {".", "link", "link/f"} and not (tmp_path / "four/link").is_symlink()


def test_what_is_beside_a_kept_path_is_not_deleted(deep, here, tmp_path):
    for name in ("a/old", "old", "a/b/c/old", "a/b/old"):
        (tmp_path / "dest" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dest" / name).touch()
    done(here, "-R", "--delete", f"{deep}/./a/b/c", tmp_path / "dest")
    left = {name for name in ("a/old", "old", "a/b/c/old", "a/b/old") if (tmp_path / "dest" / name).exists()}
    assert left == {"a/old", "old", "a/b/old"}


@pytest.mark.parametrize("way", ["local", "push", "pull"])
def test_a_list_comes_from_standard_input_too_and_what_is_missing_is_told(way, deep, here, ssh, tmp_path):  # noqa: F811
    far = ssh if way != "local" else ()
    source, dest = ("host:" if way == "pull" else ""), ("host:" if way == "push" else "")
    words = [here.program, "--json", "copy", *far, "--files-from=-", f"{source}{deep}", f"{dest}{tmp_path}/dest"]
    ran = subprocess.run([str(word) for word in words], env=here.env, input=b"a/b/f\nnowhere\na/b/f\n../a/g\na/b/c\n", capture_output=True, timeout=60)
    assert ran.returncode == 1 and b"nowhere" in ran.stderr + ran.stdout
    assert names(tmp_path / "dest").keys() == {".", "a", "a/b", "a/b/f", "a/g", "a/b/c"}


@pytest.mark.parametrize("way", ["local", "push", "pull"])
def test_a_slash_behind_a_link_means_the_directory(way, deep, here, ssh, tmp_path):  # noqa: F811
    far = ssh if way != "local" else ()
    source, dest = ("host:" if way == "pull" else ""), ("host:" if way == "push" else "")
    (tmp_path / "list").write_text("link/\n")
    done(here, *far, f"--files-from={tmp_path}/list", f"{source}{deep}", f"{dest}{tmp_path}/one")
    assert names(tmp_path / "one").keys() == {".", "link", "link/c", "link/f"}
    done(here, "-R", *far, f"{source}{deep}/./link/", f"{dest}{tmp_path}/two")
    assert names(tmp_path / "two").keys() == {".", "link", "link/c", "link/c/h", "link/f"}
    done(here, "-R", *far, f"{source}{deep}/./link", f"{dest}{tmp_path}/three")
    assert (tmp_path / "three/link").is_symlink()


def test_a_directory_and_a_name_behind_a_link_in_it_are_both_copied(deep, here, tmp_path):
    (deep / "a/up").symlink_to("../a/b")
    (tmp_path / "list").write_text("a\na/up/f\n")
    done(here, "-ar", f"--files-from={tmp_path}/list", deep, tmp_path / "dest")
    assert names(tmp_path / "dest").keys() == {".", "a", "a/b", "a/b/c", "a/b/c/h", "a/b/f", "a/g", "a/up", "a/up/f"}


def test_of_directories_in_one_place_the_first_in_the_list_counts(here, tmp_path):
    for name, mode in (("b", 0o750), ("a/b", 0o711)):
        (tmp_path / "src" / name).mkdir(parents=True)
        (tmp_path / "src" / name).chmod(mode)
    (tmp_path / "src/a/b/f").touch()
    (tmp_path / "src/b/f").mkdir()
    (tmp_path / "src/b/g").touch()
    for number, (listed_, mode) in enumerate(((["a/./b/f", "b/g"], 0o711), (["b/g", "a/./b/f"], 0o750))):
        dest = tmp_path / str(number)
        (tmp_path / "list").write_text("\n".join(listed_))
        done(here, "-a", f"--files-from={tmp_path}/list", tmp_path / "src", dest)
        assert names(dest).keys() == {".", "b", "b/f", "b/g"} and (dest / "b").stat().st_mode & 0o777 == mode
    # A directory is taken before anything else of its name, wherever it is.
    (tmp_path / "list").write_text("a/./b/f\nb\n")
    here("copy", "-ar", f"--files-from={tmp_path}/list", tmp_path / "src", tmp_path / "dest")
    assert (tmp_path / "dest/b/f").is_dir() and (tmp_path / "dest/b/g").is_file()


def test_a_list_is_of_one_source_and_has_no_end(deep, here, tmp_path):
    (tmp_path / "list").write_text("a/g\n")
    assert "one source" in here("copy", f"--files-from={tmp_path}/list", deep, deep / "a", tmp_path / "dest", code=2).err
    assert "on this host" in here("copy", "--files-from=:list", deep, tmp_path / "dest", code=2).err
    assert "must not contain .." in here("copy", "-R", f"{deep}/./a/../a/g", tmp_path / "dest", code=2).err
    assert "itself" in here("copy", "-R", f"{deep}/./a", deep, code=2).err
    (tmp_path / "list").write_text("a/g\0")
    assert "use -0" in here("copy", f"--files-from={tmp_path}/list", deep, tmp_path / "dest", code=2).err


def test_a_link_leads_no_list_out_of_a_served_directory(deep, here, server, tmp_path):  # noqa: F811
    (tmp_path / "served/d").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("secret")
    (tmp_path / "served/d/out").symlink_to(tmp_path / "secret")
    (tmp_path / "served/d/up").symlink_to("../../secret")
    (tmp_path / "list").write_text("out/key\nup/key\n../../secret/key\nout/\nup/\n")
    end = done(here, f"--files-from={tmp_path}/list", server("--read-only") + "d", tmp_path / "dest", code=1)
    assert end["failed"] == 5 and not list((tmp_path / "dest").rglob("key")), end
