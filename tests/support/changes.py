"""Random trees of all kinds of names, and random flags of rsync, for a copy that rsync judges."""
from __future__ import annotations

import os
import random
import stat

NAMES = ["a", "b", "c", "d", "e f", "x.c", "ü"]
OLD = 1_500_000_000
MODES = [0o644, 0o600, 0o755, 0o444, 0o664, 0o700, 0o777, 0o2755, 0o4711, 0o1777]
DIR_MODES = [0o755, 0o700, 0o775, 0o2755, 0o1777]


def tree(rng: random.Random, top: str, size: int, *, root: bool, lead: str = "", special: bool = True, again: bool = True) -> None:
    """About this many names, with times of whole seconds, so that programs with and without nanoseconds agree. Links lead to the
    paths in `lead`, if there are any. `special`: set-id and sticky bits, too; `again`: further names."""
    os.makedirs(top, exist_ok=True)
    dirs, made = [top], []
    for _ in range(size):
        at = os.path.join(rng.choice(dirs), rng.choice(NAMES))
        if os.path.lexists(at) or at.count("/") - top.count("/") > 4:
            continue
        kinds = {"dir": 4, "file": 8, "link": 2, "pipe": 1, "again": int(again), "device": 1 if root else 0}
        match rng.choices(list(kinds), list(kinds.values()))[0]:
            case "dir":
                os.mkdir(at)
                dirs.append(at)
            case "file":
                with open(at, "wb") as file:
                    size = rng.choice([0, 1, 9, 1000, 1000, 70_000])
                    # Files of the same size and time have the same content, except those that `change` has written.
                    file.write(bytes([size % 251]) * size)
            case "link":
                where = [f"{lead}/{name}" for name in os.listdir(lead)] if lead else [".", "a", "../b", "c", "nowhere"]
                os.symlink(rng.choice(where), at)
            case "pipe":
                os.mkfifo(at)
            case "again":
                files = [path for path in made if os.path.isfile(path) and not os.path.islink(path)]
                if not files:
                    continue
                os.link(rng.choice(files), at)
            case "device":
                os.mknod(at, 0o600 | stat.S_IFCHR, os.makedev(1, rng.choice([3, 5])))
        made.append(at)
    for path in [*made, top]:
        link = os.path.islink(path)
        if root:
            os.chown(path, rng.choice([0, 0, 1, 2]), rng.choice([0, 0, 1, 3]), follow_symlinks=False)
        if not link:
            os.chmod(path, rng.choice(DIR_MODES if os.path.isdir(path) else MODES) & (0o7777 if special else 0o777))
    for path in [*reversed(made), top]:
        when = OLD + rng.choice([0, 0, 0, 1, 2, 3600])
        os.utime(path, (when, when), follow_symlinks=False)


def change(rng: random.Random, top: str, *, special: bool = True) -> None:
    """Makes a copy of a tree another one, a little."""
    found = [os.path.join(at, name) for at, dirs, files in os.walk(top) for name in [*dirs, *files]]
    for path in found:
        if not os.path.lexists(path):
            continue
        roll = rng.random()
        plain = os.path.isfile(path) and not os.path.islink(path)
        if roll < 0.12 and not (os.path.isdir(path) and not os.path.islink(path)):
            os.unlink(path)
        elif roll < 0.2 and plain:
            with open(path, "ab") as file:
                file.write(b"more")
        elif roll < 0.23 and plain:
            size = os.path.getsize(path)
            with open(path, "wb") as file:
                file.write(b"Z" * size)
            os.utime(path, (OLD + 7, OLD + 7))
        elif roll < 0.33 and not os.path.islink(path):
            os.chmod(path, rng.choice(DIR_MODES if os.path.isdir(path) else MODES) & (0o7777 if special else 0o777))
        elif roll < 0.43:
            when = OLD + rng.choice([1, 2, 5000])
            os.utime(path, (when, when), follow_symlinks=False)
        elif roll < 0.5 and os.path.islink(path):
            os.unlink(path)
            os.symlink("elsewhere", path)


def state(top: str, *, now: float, links: bool = True) -> dict[str, tuple]:
    """All names, including the top, and the type and content of each. Times of this run count as one time."""
    found, first = {}, {}
    walked = [(top, ".")] + [(os.path.join(at, name), os.path.relpath(os.path.join(at, name), top)) for at, dirs, files in os.walk(top)
                             for name in [*dirs, *files]]
    for path, name in sorted(walked, key=lambda pair: pair[1]):
        info = os.lstat(path)
        mode = 0 if stat.S_ISLNK(info.st_mode) else stat.S_IMODE(info.st_mode)
        when = "now" if info.st_mtime > now - 3600 else info.st_mtime
        what: object = stat.S_IFMT(info.st_mode)
        if stat.S_ISREG(info.st_mode):
            with open(path, "rb") as file:
                content = file.read()
            what = (len(content), content[:1], content[-1:])
        elif stat.S_ISLNK(info.st_mode):
            what = os.readlink(path)
        elif stat.S_ISCHR(info.st_mode):
            what = info.st_rdev
        same = first.setdefault((info.st_dev, info.st_ino), name) if links and not stat.S_ISDIR(info.st_mode) else None
        found[name] = (stat.S_IFMT(info.st_mode), what, oct(mode), info.st_uid, info.st_gid, when, same)
    return found


def flags(rng: random.Random) -> list[str]:
    """The kept names, and some of the rest."""
    kept = rng.choice([["-aHAX"], ["-a"], ["-rlptgoD"], ["-r" + "".join(rng.sample("lptgoDHE", rng.randrange(7)))],
                       ["-aHAX", *rng.sample(["--no-perms", "--no-p", "--no-owner", "--no-o", "--no-group", "--no-times", "--no-t", "--no-links",
                                              "--no-l", "--no-D", "--no-specials", "--no-devices"], rng.randrange(1, 4))],
                       ["--no-p", "-a"], ["-rlt", "--no-t"]])
    some = [[], [], [], ["--existing"], ["--ignore-existing"], ["--size-only"], ["-I"], ["--modify-window=1"], ["--modify-window=2"], ["-@", "5000"],
            ["--chmod=D755,F644"], ["--chmod=ug+rwX,o-rwx"], ["--chmod=Dg+w,Fgo=r", "--chmod=u+w"], ["--chmod=a=rX"], ["--chmod=+w"], ["--numeric-ids"],
            ["--max-size=1000"], ["--min-size=1K"], ["--max-size=1K-1"], ["--delete"], ["--delete-after"], ["-O"], ["-J"], ["-c"], ["-u"], ["-L"], ["-k"], ["-x"],
            ["--force"], ["-W"], ["-S"], ["-z"], ["--bwlimit=100m"], ["-b"], ["-b", "--suffix=.old"], ["--backup-dir=@bak"], ["--backup-dir=@bak", "--suffix=x"],
            ["--link-dest=@link"], ["--link-dest=@no", "--link-dest=@link"], ["--remove-source-files"], ["--inplace"], ["--append"], ["--append-verify"]]
    if os.geteuid() == 0:
        some.append([rng.choice(["--chown=1:2", "--chown=:3", "--chown=daemon"])])
    return [*kept, *(flag for each in rng.sample(some, rng.choice([1, 1, 2, 3])) for flag in each)]
