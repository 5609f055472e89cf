"""Names are data: whatever a file, a manifest or a peer is called, a terminal shows it, and JSON has it exactly."""
from __future__ import annotations

import base64
import json
import os
import pathlib

import pytest

ESC = b"x\x1b]0;title\x07\x1b[31m"
HOSTILE = [ESC, b"two\nlines", b"back\rover", "c1\u009b2J".encode(), "gpj.\u202eexe".encode(), b"tab\there\x7f", b"\xff\xfe\xc3"]
FORBIDDEN = {chr(c) for c in [*range(0x20), *range(0x7f, 0xa0)]} - {"\n"} | set("\u202a\u202b\u202c\u202d\u202e\u2028\u2029\u200b")


def hostile(parent: pathlib.Path, name: bytes) -> pathlib.Path:
    return pathlib.Path(os.fsdecode(os.fsencode(parent) + b"/" + name))


def printable(done, lines: int | None = None) -> None:
    """A command's output has no effect on a terminal, and no name adds lines."""
    for text in (done.out_path.read_bytes(), done.err_path.read_bytes()):
        shown = text.decode()
        assert not FORBIDDEN & set(shown), (done.argv, shown)
        assert not any(line in ("lines", "lines'") or line.startswith("lines/") for line in shown.split("\n")), shown


def any_code(node, *words):
    done = node.run(*words)
    done.wait()
    return done


@pytest.mark.parametrize("name", HOSTILE)
def test_no_command_shows_a_name_raw(tide, tmp_path, name):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "plain").write_text("x")
    here = hostile(tmp_path, name)
    here.mkdir()
    (here / "f").write_text("y")
    manifest = hostile(tmp_path, name + b".torrent")
    commands = [
        ["publish", here, "-o", tmp_path / "1.torrent"], ["publish", tree, "-o", manifest], ["publish", hostile(here, b"no")],
        ["show", manifest], ["show", here], ["verify", manifest, here], ["verify", manifest, tree], ["verify", here, here],
        ["seed", manifest, here], ["get", manifest, "--to", here / "f", "--timeout", "1"], ["get", here, "--to", here],
        ["get", manifest, "--to", tmp_path, "--peer", os.fsdecode(name), "--timeout", "1"],
        ["mount", here, here], ["umount", here], ["status", here], ["run", here, "--", here], ["share", hostile(here, b"no")],
        ["bcast", hostile(here, b"no"), "--to", here, "--hosts", os.fsdecode(name)],
        ["daemon", "--dir", here / "f", "--socket", here / "f"], ["cache", "ls", "--socket", here], ["cache", "get", os.fsdecode(name), "--socket", here],
        ["admin", "status", "--socket", here], ["classad", "eval", os.fsdecode(name)], ["ca", "show", here], ["man", here / "f"],
        ["revoke", os.fsdecode(name)], ["tracker", "--listen", os.fsdecode(name)], ["field", "view", here], ["sim", os.fsdecode(name)],
        [os.fsdecode(name)], ["get", "--" + os.fsdecode(name)], ["--config", here, "show", manifest],
    ]
    for words in commands:
        printable(any_code(tide, *words))
        printable(any_code(tide, "-vv", *words) if words[0] != "--config" else any_code(tide, *words))
        done = any_code(tide, *words, "--json")
        printable(done)
        for line in done.out.split("\n")[:-1]:
            json.loads(line)


def test_strangers_names_are_shown_as_text(tide, tmp_path):
    """The texts of a manifest: the name of the tree, its files, its place, its creator, its trackers."""
    tree = tmp_path / "name"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/file").write_text("x")
    tide.publish(tree, tmp_path / "m.torrent", "--plain")
    data = (tmp_path / "m.torrent").read_bytes()
    for new in (b"\x1b[", b"\n\r\n", "\u202e".encode()):
        changed = data
        for word in (b"file", b"sub"):
            with_escape = word[:1] + new[:len(word) - 1].ljust(len(word) - 1, b"_")
            changed = changed.replace(b"%d:%s" % (len(word), word), b"%d:%s" % (len(word), with_escape))
        (tmp_path / "s.torrent").write_bytes(changed)
        for words in (["show"], ["show", "--json"], ["verify"], ["verify", "--json"]):
            printable(any_code(tide, words[0], tmp_path / "s.torrent", *([tree] if words[0] == "verify" else []), *words[1:]))


def test_json_has_the_bytes_of_names_that_are_no_utf8(tide, tmp_path):
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/f").write_text("x")
    name = b"m\xff\n.torrent"
    out = hostile(tmp_path, name)
    done = tide("publish", tmp_path / "tree", "-o", out, "--json").last("done")
    assert done["manifest"] == os.fsencode(out).decode(errors="replace")
    assert base64.b64decode(done["manifest_base64"]) == os.fsencode(out)
    to = hostile(tmp_path, b"to\xfe")
    to.mkdir()
    started = tide("verify", out, tmp_path / "tree", "--json").last("started")
    assert base64.b64decode(started["manifest_base64"]) == os.fsencode(out) and "path_base64" not in started
