"""Random trees and filter rules, of few names so that rules often match."""
from __future__ import annotations

import os
import pathlib
import random
import shutil

NAMES = [b"a", b"b", b"c", b"ab", b"abc", b"a.c", b"b.o", b"cache", b"build", b".hid", b"a b", b"[a]", b"a*", b"a\\b", b"!a", b"-", b"a?c",
         b"]", b"A1", b"0", "\u00e9".encode(), b"\xff", b"a\xfe"]
WILD = [b"*", b"?", b"**", b"***", b"*.c", b"*.[co]", b"a*", b"*b", b"?b", b"[a-c]", b"[!a]", b"[^a-b]*", b"[[:alpha:]]", b"[[:digit:]]", b"*[[:upper:]]*",
        b"[]a]", b"[a-]", b"[a", b"[[:none:]]", b"a\\*", b"\\[a]", b"a[\\\\]b", b"[\\]]", b"a**c", b"**b", b"a**", b"a\\b", b"[b-c-z]*", b"\\", b"*\\*",
        b"a***", b"[*]", b"[?]", b"?\\?c", b"*[.]*", b"[[:punct:]]", b"[[:abc]", b"[\\a-\\c]", b"*?", b"[a-[:digit:]]", b"[+--]", b"[!-]"]
OLD = 1_500_000_000


def name(rng: random.Random) -> bytes:
    return rng.choice(NAMES)


def pattern(rng: random.Random) -> bytes:
    parts = [rng.choice(WILD) if rng.random() < 0.45 else name(rng) for _ in range(rng.choice([1, 1, 1, 2, 2, 3]))]
    text = (b"/" if rng.random() < 0.3 else b"") + b"/".join(parts) + (b"/" if rng.random() < 0.25 else b"")
    return text + (b"/" if rng.random() < 0.02 else b"")


def rule(rng: random.Random) -> tuple[str, bytes]:
    """A flag and its pattern."""
    text = pattern(rng)
    if rng.random() < 0.15:
        text = rng.choice([b"+ ", b"- "]) + text
    if rng.random() < 0.02:
        text = b"!"
    return rng.choice(["--exclude", "--exclude", "--include"]), text


def rules(rng: random.Random, lists: pathlib.Path) -> list[bytes]:
    """Words of a command line, with a list in a file among them now and then."""
    if rng.random() < 0.15:
        # The most common use: some kinds of files, and no others.
        return [b"--include=*/", b"--include=" + pattern(rng), b"--exclude=" + rng.choice([b"*", b"**", b"/**", b"/*/*"])]
    words = [f"{flag}=".encode() + text for flag, text in (rule(rng) for _ in range(rng.choice([1, 2, 2, 3, 5])))]
    if rng.random() < 0.3:
        end = rng.choice([b"\n", b"\r\n"])
        lines = [rng.choice([b"", b"# a", b"; a", *(rule(rng)[1] for _ in range(6))]) for _ in range(rng.randrange(6))]
        lists.write_bytes(end.join(lines) + rng.choice([b"", end]))
        words.insert(rng.randrange(len(words) + 1), rng.choice([b"--exclude-from=", b"--include-from="]) + bytes(lists))
    return words


def filter_rule(rng: random.Random) -> bytes:
    """A rule of `--filter` for one pattern."""
    words = [b"-", b"-", b"+", b"H", b"S", b"P", b"R", b"exclude", b"include", b"hide", b"show", b"protect", b"risk"]
    return b"!" if rng.random() < 0.03 else rng.choice(words) + rng.choice([b" ", b" ", b"_"]) + pattern(rng)


def merged(rng: random.Random, lists: pathlib.Path, depth: int = 0) -> bytes:
    """A rule that merges a new file of rules, which may merge another."""
    file = lists.with_name(f"{lists.name}{depth}-{rng.randrange(1000)}")
    lines = [rng.choice([b"", b"# - a", b";+ a", filter_rule(rng), filter_rule(rng), filter_rule(rng)]) for _ in range(rng.randrange(7))]
    if depth < 2 and rng.random() < 0.4:
        lines.insert(rng.randrange(len(lines) + 1), merged(rng, lists, depth + 1))
    file.write_bytes(rng.choice([b"\n", b"\r\n"]).join(lines) + rng.choice([b"", b"\n"]))
    return rng.choice([b". ", b"merge ", b"._", b"merge_"]) + bytes(file)


def filter_words(rng: random.Random, lists: pathlib.Path) -> list[bytes]:
    """Words of a command line with rules of `--filter`, some of them in files."""
    rules = [merged(rng, lists) if rng.random() < 0.4 else filter_rule(rng) for _ in range(rng.choice([1, 2, 2, 3, 5]))]
    return [*(word for rule in rules for word in (b"-f", rule)), *([b"--delete-excluded"] if rng.random() < 0.3 else [])]


def tree(rng: random.Random, top: bytes, content: bytes, size: int) -> None:
    """About this many names. All times are the same, so that a file is identified by its content."""
    os.makedirs(top, exist_ok=True)
    dirs = [top]
    for _ in range(size):
        at = rng.choice(dirs[-8:] if rng.random() < 0.7 else dirs) + b"/" + name(rng)
        if os.path.lexists(at) or at.count(b"/") - top.count(b"/") > 5:
            continue
        match rng.choices(["dir", "file", "link"], [5, 6, 1])[0]:
            case "dir":
                os.mkdir(at)
                dirs.append(at)
            case "file":
                with open(at, "wb") as file:
                    file.write(content)
            case "link":
                os.symlink(rng.choice([b"nowhere", b".", content]), at)
    for at in dirs:
        for entry in os.scandir(at):
            os.utime(entry.path, (OLD, OLD), follow_symlinks=False)
        os.utime(at, (OLD, OLD))


def double(top: bytes, to: bytes) -> None:
    shutil.copytree(top, to, symlinks=True)


def state(top: bytes) -> dict[bytes, object]:
    """All names below, and the type and content of each."""
    found: dict[bytes, object] = {}
    for at, dirs, files in os.walk(top):
        for each in [*dirs, *files]:
            path = os.path.join(at, each)
            if os.path.islink(path):
                found[os.path.relpath(path, top)] = ("link", os.readlink(path))
            elif os.path.isdir(path):
                found[os.path.relpath(path, top)] = "dir"
            else:
                with open(path, "rb") as file:
                    found[os.path.relpath(path, top)] = file.read()
    return found


def sources(rng: random.Random, at: pathlib.Path) -> list[bytes]:
    """One to three trees, each as its content or by its name; a file now and then."""
    words = []
    slash = rng.random() < 0.5
    for number in range(rng.choice([1, 1, 1, 2, 3])):
        top = bytes(at) + b"/from%d/" % number + name(rng)
        tree(rng, top, b"from %d\n" % number, rng.randrange(2, 90))
        words.append(top + (b"/" if (slash if rng.random() < 0.8 else not slash) else b""))
    if rng.random() < 0.1:
        os.makedirs(bytes(at) + b"/single", exist_ok=True)
        single = bytes(at) + b"/single/" + name(rng)
        with open(single, "wb") as file:
            file.write(b"single\n")
        os.utime(single, (OLD, OLD))
        words.append(single)
    return words
