"""`tidecast copy` over files and directories that are closed to their own owner, judged by rsync."""
import os
import pathlib
import shutil
import subprocess

import pytest
from conftest import needs
from support import changes
from test_planted import ALICE, alice, given_to, place  # noqa: F401

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: becoming other users needs root")


def three(place: pathlib.Path) -> tuple[pathlib.Path, ...]:  # noqa: F811
    """A source, and two equal destinations, with one file `d/f` of the same content and time."""
    tops = tuple(place / name for name in ("source", "here", "there"))
    for top in tops:
        (top / "d").mkdir(parents=True)
        (top / "d/f").write_bytes(b"data")
        os.utime(top / "d/f", (changes.OLD, changes.OLD))
        for path in (top, top / "d", top / "d/f"):
            given_to(path, ALICE)
    return tops


def by_rsync(*words) -> None:
    needs("rsync")
    subprocess.run(["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups", "rsync", *words], check=True)


@pytest.mark.parametrize("flags", [["-a"], ["-a", "-c"], ["-a", "--chmod=F640"], ["-rlpt"], ["-rlt"]])
@pytest.mark.parametrize("mode", [0o000, 0o100, 0o200])
def test_a_file_gets_its_mode(flags, mode, alice, place):  # noqa: F811
    source, here, there = three(place)
    for top in (here, there):
        (top / "d/f").chmod(mode)
    alice("copy", *flags, f"{source}/", here)
    by_rsync(*flags, f"{source}/", there)
    # With -c and without -p the file is a new one: rsync gives it the old one's mode too.
    assert (here / "d/f").stat().st_mode == (there / "d/f").stat().st_mode and (here / "d/f").read_bytes() == b"data"


@pytest.mark.parametrize("mode", [0o000, 0o200, 0o444, 0o600])
def test_a_directory_is_no_failure(mode, alice, place):  # noqa: F811
    """Its mode stays as it was (rsync leaves some more open). Questions about its files come before it is opened, or after."""
    source, here, _ = three(place)
    for number in range(40):
        top = shutil.copytree(source / "d", source / f"d{number}", copy_function=shutil.copy2)
        (top / "link").symlink_to("f")
        (top / "sub").mkdir()
        given_to(top, ALICE)
        given_to(shutil.copytree(top, here / f"d{number}", symlinks=True, copy_function=shutil.copy2), ALICE, mode)
    alice("copy", "-rlt", f"{source}/", here)
    assert {path.stat().st_mode & 0o777 for path in here.glob("d?*")} == {mode}
    assert len(list(here.glob("*/f"))) == 41
    # Without its entry too: the names of a list do not bring their directories.
    (source / "list").write_text("".join(f"d{number}/f\n" for number in range(40)))
    alice("copy", "-t", "--no-implied-dirs", f"--files-from={source}/list", source, here)
    assert {path.stat().st_mode & 0o777 for path in here.glob("d?*")} == {mode}


@pytest.mark.parametrize("flag", ["--append", "--append-verify", "--inplace"])
def test_a_program_of_another_owner_is_replaced_in_place_too(flag, node, tmp_path):
    source, dest = tmp_path / "source", tmp_path / "dest"
    for top, owner, mode in ((source, ALICE, 0o4755), (dest, 7, 0o755)):
        top.mkdir()
        (top / "f").write_bytes(b"program")
        os.utime(top / "f", (changes.OLD, changes.OLD))
        os.chown(top / "f", owner, 0)
        (top / "f").chmod(mode)
    node("here")("copy", "-a", flag, f"{source}/", dest)
    stat = (dest / "f").stat()
    assert (stat.st_uid, stat.st_mode & 0o7777) == (ALICE, 0o4755)
