"""`tidecast copy`: the meaning of paths and their limits, servers and hosts of ssh together, refusals and their messages."""
import os
import re
import pathlib
import socket
import stat
import subprocess

import pytest
from conftest import needs
from support.callers import passable
from test_copy import done, same, server, ssh, tree  # noqa: F401


def message(here, *words, code=1) -> str:
    return done(here, *words, code=code)["message"]


@pytest.mark.parametrize("plain", [(), ("--plain",)], ids=["tls", "plain"])
def test_a_server_and_a_host_of_ssh_copy_to_each_other(plain, here, tree, server, ssh, tmp_path):  # noqa: F811
    url = server(*plain)
    end = done(here, f"one:{tree}/", url + "in", *ssh, *plain)
    assert end["files_copied"] == end["files"]
    same(tree, tmp_path / "served/in")
    end = done(here, url + "in/", f"two:{tmp_path / 'out'}", *ssh, *plain)
    assert end["files_copied"] == end["files"]
    same(tree, tmp_path / "out")
    # A single file under another name: the receiver learns its name with its target.
    done(here, url + "in/big", f"two:{tmp_path / 'renamed'}", *ssh, *plain)
    assert (tmp_path / "renamed").read_bytes() == (tree / "big").read_bytes()
    assert done(here, url + "in/", f"two:{tmp_path / 'out'}", *ssh, *plain)["files_copied"] == 0


@pytest.mark.parametrize("plain", [(), ("--plain",)], ids=["tls", "plain"])
def test_a_server_sends_to_another(plain, here, tree, server, tmp_path):  # noqa: F811
    served = tmp_path / "served"
    served.mkdir()
    tree.rename(served / "data")
    one = server("--read-only", *plain)
    two = server(*plain, root="other", name="another server")
    end = done(here, one + "data/", two + "in", *plain)
    assert end["files_copied"] == end["files"] and end["problems"] == [], end
    same(served / "data", tmp_path / "other/in")
    assert done(here, one + "data/", two + "in", *plain)["files_copied"] == 0
    # And within one server.
    assert done(here, two + "in/big", two + "copy", *plain)["files_copied"] == 1
    assert (tmp_path / "other/copy").read_bytes() == (served / "data/big").read_bytes()
    assert message(here, two + "in", one + "back", *plain) == "the other end refuses: the server is read-only"
    assert message(here, one + "../x", two, *plain).endswith("outside of the served directory")
    server.proc.kill()
    server.proc.wait()
    assert "cannot connect to" in message(here, one + "data/", two + "more", *plain)


def test_what_no_server_does_is_a_usage_error(here, server, ssh, tmp_path):  # noqa: F811
    url = server("--read-only")
    (tmp_path / "served/file").write_text("x")
    assert "--via ssh" in message(here, "--via", "ssh", tmp_path, url + "in", code=2)
    assert "--via ssh" in message(here, "--via", "ssh", "a:/x", "b:/x", *ssh, code=2)
    assert "brackets" in message(here, "tidecast://a[1-2:70/x", tmp_path, code=2)
    # Nothing is written by this, so it may be asked of one that lets nothing be written.
    assert done(here, "--from-null", "1MB", url, "--to-null")["files_copied"] == 1


def test_refusals_say_once_what_it_is(here, server, ssh, tmp_path, port):  # noqa: F811
    url = server("--read-only")
    (tmp_path / "served/out").symlink_to(tmp_path)
    (tmp_path / "served/file").write_text("x")
    for path in ("../x", "out/x", "out/"):
        assert "outside of the served directory" in message(here, url + path, tmp_path / "got")
    assert message(here, tmp_path / "served/file", url + "x") == "the other end refuses: the server is read-only"
    said = message(here, url + "/nothere", tmp_path / "got")
    assert said.count("refuses") == 1 and ": /nothere:" in said
    key = url.removeprefix("tidecast://")
    said = message(here, f"tidecast://{'a' if key[5] != 'a' else 'b'}{url.removeprefix('tidecast://')[1:]}file", tmp_path / "got")
    assert "expected node" in said and "Why(" not in said
    busy = url.rpartition(":")[2].strip("/")
    proc = here("copy", tmp_path / "served/file", f"host:{tmp_path / 'got'}", "--port", busy, *ssh, code=1)
    assert proc.err.count("already in use") == 1 and "version" not in proc.err
    assert "no such network card" in message(here, "--cpus", "card:none", "--from-null", "1MB", "--to-null", tmp_path, code=2)
    assert "the server is read-only" in server.proc.err and "refuses" not in server.proc.err


def test_a_tilde_is_the_home_of_the_other_end(here, ssh, tmp_path):  # noqa: F811
    home = pathlib.Path(here.env["HOME"])
    (tmp_path / "file").write_text("x")
    done(here, tmp_path / "file", "host:~/", *ssh)
    done(here, tmp_path / "file", "host:~/sub/", *ssh)
    assert (home / "file").is_file() and (home / "sub/file").is_file()
    done(here, "host:~/sub", tmp_path / "got", *ssh)
    assert (tmp_path / "got/sub/file").is_file()
    assert "cannot expand ~nobody-of-that-name: unknown user" in message(here, "host:~nobody-of-that-name/x", tmp_path / "got", *ssh)
    assert not list(tmp_path.rglob("~"))


def test_a_pattern_with_a_slash_at_its_end_means_directories(here, ssh, server, tmp_path):  # noqa: F811
    """Links to directories too, and nothing else."""
    for at, name in ((at, name) for at in ("far", "served") for name in ("d/f", "e/g")):
        (tmp_path / at / name).parent.mkdir(parents=True)
        (tmp_path / at / name).touch()
    for at in ("far", "served"):
        (tmp_path / at / "file").touch()
        for name, to in (("to-dir", "d"), ("to-file", "file"), ("dangling", "nowhere")):
            (tmp_path / at / name).symlink_to(to)
    for number, source in enumerate((f"host:{tmp_path}/far/*/", f"{server()}/*/")):
        dest = tmp_path / str(number)
        dest.mkdir()
        (dest / "old").touch()
        done(here, "--delete", source, dest, *(ssh if number == 0 else ()))
        assert sorted(os.listdir(dest)) == ["f", "g"]
    assert "nothing matches" in message(here, f"host:{tmp_path}/far/f*/", tmp_path / "got", *ssh)


def test_an_empty_variable_is_not_set(here, tmp_path):
    (tmp_path / "file").touch()
    here.env["TIDECAST_SSH"] = ""
    done(here, tmp_path / "file", tmp_path / "got")


def test_names_that_are_not_utf8_can_be_said(here, ssh, tmp_path):  # noqa: F811
    odd = os.fsencode(tmp_path) + b"/s\xff"
    os.mkdir(odd)
    with open(odd + b"/f\xe4", "w") as f:
        f.write("x")
    dest = os.fsencode(tmp_path) + b"/d\xff"
    flags = [os.fsencode(str(word)) for word in ssh]

    def copy(*words) -> None:
        subprocess.run([os.fsencode(str(here.program)), b"copy", *words], env={**os.environ, **here.env}, check=True)

    copy(odd + b"/", dest)
    copy(b"one:" + odd, b"two:" + dest, *flags)
    copy(odd + b"/f*", dest + b"/by pattern/")
    assert sorted(os.listdir(dest)) == [b"by pattern", b"f\xe4", b"s\xff"]
    assert os.listdir(dest + b"/by pattern") == [b"f\xe4"] and os.listdir(dest + b"/s\xff") == [b"f\xe4"]


@pytest.mark.parametrize("way", ["here", "ssh", "server"])
def test_a_copy_does_not_take_itself_along(way, here, server, ssh, tmp_path):  # noqa: F811
    top = tmp_path / "o"
    (top / "tree/sub").mkdir(parents=True)
    (top / "tree/file").write_text("x")
    (top / ".tidecast-copy-0123456789abcdef").mkdir()
    (top / ".tidecast-copy-0123456789abcdef/lock").touch()
    url = server(root=".") if way == "server" else ""

    def words(*paths) -> list:
        match way:
            case "here":
                return list(paths)
            case "ssh":
                return [*ssh, *(f"host:{path}" for path in paths)]
        return [f"{url}{os.path.relpath(path, tmp_path)}{'/' * str(path).endswith('/')}" for path in paths]

    # The first time it is not there before all has come.
    for left_out in ([], ["skipped: this is the destination"]):
        end = done(here, *words(top, top / "tree/in"))
        assert [problem["what"] for problem in end["problems"]] == left_out, end
        assert sorted(p.name for p in (top / "tree/in/o").rglob("*")) == ["file", "sub", "tree"]
    done(here, *words(f"{top}/", tmp_path / "other"))
    assert not list((tmp_path / "other").rglob(".tidecast-copy-*"))
    for paths in ((f"{top}/", f"{top}/"), (top, tmp_path), (top / "tree/file", top / "tree"), (top / "tree/file", top / "tree/file")):
        assert "onto itself" in message(here, *words(*paths), code=2 if way == "here" else 1)
    assert not list(tmp_path.glob(".tidecast*")) and not list((top / "tree").glob(".tidecast*"))
    if way == "server":
        said = message(here, *words(top, top.parent))
        assert str(tmp_path) not in said, said


def test_of_sources_of_one_name_the_first_wins_as_with_rsync(here, tmp_path):
    for n in "12":
        (tmp_path / f"{n}/d").mkdir(parents=True)
        (tmp_path / f"{n}/same").write_text(n)
        (tmp_path / f"{n}/d/both").write_text(n)
        (tmp_path / f"{n}/d/only{n}").write_text(n)
    end = done(here, f"{tmp_path}/[12]/same", f"{tmp_path}/[12]/d", tmp_path / "dest")
    assert ["earlier source" in problem["what"] for problem in end["problems"]] == [True] and end["failed"] == 0, end
    subprocess.run(["rsync", "-a", *(tmp_path / f"{n}/{name}" for name in ("same", "d") for n in "12"), tmp_path / "rsync"], check=True)
    for made in ("rsync", "dest"):  # no source's: each has the time at which it was made
        os.utime(tmp_path / made, (0, 0))
    same(tmp_path / "rsync", tmp_path / "dest")
    assert (tmp_path / "dest/same").read_text() == "1" and (tmp_path / "dest/d/both").read_text() == "1"


@pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: attributes of links are root's")
def test_links_of_links_and_their_attributes_arrive(here, tmp_path):
    needs("rsync")
    source, dest = tmp_path / "src", tmp_path / "dest"
    source.mkdir()
    (source / "link").symlink_to("nowhere")
    os.link(source / "link", source / "other", follow_symlinks=False)
    os.mkfifo(source / "pipe")
    for name in ("link", "pipe"):
        os.setxattr(source / name, "trusted.note", b"kept", follow_symlinks=False)
    for _ in range(2):
        end = done(here, f"{source}/", dest)
        assert end["problems"] == [], end
        same(source, dest)
        assert (dest / "link").lstat().st_ino == (dest / "other").lstat().st_ino
        for name in ("link", "pipe"):
            assert os.getxattr(dest / name, "trusted.note", follow_symlinks=False) == b"kept"


@pytest.mark.parametrize("words", [
    ("--readers", "0"), ("--streams", "0"), ("--streams", "100000"), ("--pool", "0"), ("--limit", "0bit"), ("--congestion", "nope"),
    ("--bwlimit", "fast"), ("--filter", ": .rsync-filter"), ("--chmod", "rw"), ("--chown", ":"), ("--max-size", "big"),
    ("--max-delete", "-1"), ("--modify-window", "1s"), ("--files-from", "x"), ("--suffix", "a/b"), ("--link-dest", ""), ("--exclude", "- "), ("--resume=perhaps",)])
def test_values_that_cannot_be_are_refused(words, here, tmp_path):
    said = here("copy", *words, "--from-null", "1MB", "--to-null", tmp_path, code=2, timeout=20).err
    hint = {"--files-from": "one source", "--suffix": "a slash", "--filter": "not supported", "--chmod": "u+rwX", "--exclude": "no pattern", "--congestion": "available"}.get(words[0])
    assert hint is None or hint in said


def test_what_rsync_needs_for_it_is_taken(here, tmp_path):
    source, dest = tmp_path / "src", tmp_path / "dest"
    source.mkdir()
    for name in ("a.c", "b.o", "c.tmp"):
        (source / name).write_text(name)
    (tmp_path / "patterns").write_text("# of no use elsewhere\n\n*.o\n- *.tmp\n")
    here("copy", "-avzHAXSP", "-r", "--progress", "--resume", "--exclude-from", tmp_path / "patterns", f"{source}/", dest)
    assert os.listdir(dest) == ["a.c"]
    (tmp_path / "patterns").write_text("+ *.o\n")
    here("copy", "--exclude-from", tmp_path / "patterns", "--exclude", "*", f"{source}/", dest)
    assert sorted(os.listdir(dest)) == ["a.c", "b.o"]
    shown = here("copy", "--help").out
    assert "--exclude-from" in shown and "--bwlimit" not in shown


# All that rsync has, but for those that are ours too (-c, -n, -q, -u, -v) and -V, which asks for the version.
TAKEN, REFUSED, VALUED = "arzHAXSPltpgoDEWyshLkOJxIib0", "dKUNmCF46", "BTM"


@pytest.mark.parametrize("flags", ["-avh", "-h", "-avzP", "-aHAX", "-rlptgoD", "-avzhP", "-hhh", *(f"-{flag}" for flag in TAKEN)])
def test_short_flags_of_rsync_copy(flags, here, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/file").write_text("1")
    here("copy", flags, tmp_path / "src", tmp_path / "dest")
    assert (tmp_path / "dest/src/file").read_text() == "1"


def test_every_flag_of_rsync_is_done_or_refused_with_a_hint(here, tmp_path):
    needs("rsync")
    listed = subprocess.run(["rsync", "--help"], capture_output=True, text=True, check=True).stdout
    (tmp_path / "src").mkdir()
    for flag, value in re.findall(r"^(--[A-Za-z0-9-]+)(=?)", listed, re.MULTILINE):
        if flag in ("--no-OPTION", "--version", "--help"):
            continue
        said = here("copy", f"{flag}=1" if value else flag, code=2).err
        assert "unexpected argument" not in said, said


def test_short_flags_of_rsync_that_ask_for_something_else_are_refused(here, tmp_path):
    (tmp_path / "src").mkdir()
    for flag in [*REFUSED, *VALUED, "V"]:
        for bundle in (f"-a{flag}", f"-a{flag}h"):
            said = here("copy", bundle, tmp_path / "src", tmp_path / "dest", code=2).err
            assert f"-{flag}" in said or "--" in said, said
    assert not (tmp_path / "dest").exists()
    assert "SRC... DEST" in here("copy", "-h").out and "--exclude" in here("copy", "--help").out
    assert "give it alone" in here("publish", "-vh", tmp_path / "src", code=2).err


def test_explain_writes_no_more_than_there_is_and_says_when_that_is_too_little(here, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/file").write_bytes(os.urandom(100_000))
    end = done(here, "--explain", f"{tmp_path}/src/", tmp_path / "dest")
    assert "too small to tell" in end["limit"]
    assert end["ladder"][3]["bytes_per_second"] * end["ladder"][3]["seconds"] < 200_000


@pytest.mark.alone
def test_progress_counts_what_moves_and_names_the_limit_that_was_set(here, tmp_path):
    (tmp_path / "src").mkdir()
    with open(tmp_path / "src/sparse", "wb") as f:
        f.truncate(200 << 20)
        f.seek(100 << 20)
        f.write(os.urandom(30 << 20))
    end = here("--json", "copy", "--limit", "10MB/s", "--pool", "8MiB", f"{tmp_path}/src/", tmp_path / "dest")
    totals = {e["total"] for e in end.events() if e["event"] == "progress"} - {0}
    assert totals and all(30 << 20 <= total <= 40 << 20 for total in totals), totals
    assert {e["limit"] for e in end.events() if e["event"] == "progress" and "limit" in e} & {"--limit"}
    limits = end.last("done")["limits"]
    assert limits["rate"] > limits["network"] + limits["reading"] + limits["writing"], limits


def streamed(start, here, tmp_path, *words, code=0):
    """The standard output of a copy, and its end."""
    command = " ".join(map(str, [here.program, "copy", *words]))
    run = start(["sh", "-c", f"{command} > {tmp_path}/read"], env=here.env)
    run.exits(code)
    return (tmp_path / "read").read_bytes(), run


@pytest.mark.parametrize("way", ["ssh", "via-ssh", "server"])
def test_a_file_of_another_host_goes_to_a_pipe_in_order(way, here, start, server, ssh, tmp_path):  # noqa: F811
    """Many blocks, so that they come in another order than they are written; and a hole."""
    served = tmp_path / "served"
    served.mkdir()
    data = os.urandom(45 << 20)
    (served / "big").write_bytes(data)
    with (served / "sparse").open("wb") as file:
        file.write(data[:5])
        file.truncate(30 << 20)
        file.seek(0, 2)
        file.write(data[:9])
    (served / "empty").touch()
    (served / "link").symlink_to("big")
    at, flags = (server(), ()) if way == "server" else (f"host:{served}/", ssh)
    flags = (*flags, "--via", "ssh") if way == "via-ssh" else flags
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = here.run("--json", "copy", at + "big", pipe, *flags)
    start(["sh", "-c", f"cat {pipe} > {tmp_path}/read"]).ok()
    assert writer.ok().last("done")["bytes_copied"] == len(data)
    assert (tmp_path / "read").read_bytes() == data and pipe.is_fifo()
    for name in ("sparse", "empty", "link"):
        assert streamed(start, here, tmp_path, at + name, "-", *flags)[0] == (served / name).read_bytes()


def test_what_cannot_go_to_a_pipe_is_said(here, start, ssh, tmp_path):  # noqa: F811
    (tmp_path / "dir").mkdir()
    (tmp_path / "big").write_bytes(os.urandom(60 << 20))
    os.mkfifo(tmp_path / "fifo")
    for name, why in (("dir", "not one regular file"), ("nothere", "No such file"), ("fifo", "not a regular file")):
        read, run = streamed(start, here, tmp_path, f"host:{tmp_path}/{name}", "-", *ssh, code=2 if name != "nothere" else 1)
        assert read == b"" and why in run.err, (name, run.err)
    # A reader that goes, and one that takes nothing any more.
    command = " ".join(map(str, [here.program, "copy", f"host:{tmp_path}/big", "-", *ssh]))
    run = start(["bash", "-c", f"{command} | head -c 100 > {tmp_path}/read; exit ${{PIPESTATUS[0]}}"], env=here.env)
    run.exits(3)
    assert "its reader has closed it" in run.err and (tmp_path / "read").read_bytes() == (tmp_path / "big").read_bytes()[:100]
    pipe = os.open(tmp_path / "fifo", os.O_RDWR)
    stuck = here.run("--json", "copy", f"host:{tmp_path}/big", tmp_path / "fifo", *ssh)
    stuck.until("some of it", lambda: any(e.get("bytes", 0) > 0 for e in stuck.events()))
    stuck.process.send_signal(2)
    stuck.exits(3)
    os.close(pipe)
    # A local file needs no other host for that.
    assert streamed(start, here, tmp_path, tmp_path / "big", "-")[0] == (tmp_path / "big").read_bytes()
    assert "directory" in streamed(start, here, tmp_path, tmp_path / "dir", "-", code=1)[1].err
    assert "takes one file" in streamed(start, here, tmp_path, tmp_path / "big", tmp_path / "dir", "-", code=2)[1].err
    assert not os.path.lexists("-")
    (tmp_path / "out").symlink_to("/proc/self/fd/1")
    assert streamed(start, here, tmp_path, tmp_path / "big", tmp_path / "out")[0] == (tmp_path / "big").read_bytes()
    assert (tmp_path / "out").is_symlink()


@pytest.mark.parametrize("name", ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
def test_standard_input_is_no_source(name, here, tmp_path):
    """Not the link, and no empty file, in its place."""
    said = here("copy", name, tmp_path / "copy", code=2).err
    assert "which copy does not read" in said and "write it to a file" in said
    assert not os.path.lexists(tmp_path / "copy")


def test_a_special_file_in_the_destination_gives_way_to_a_file_as_with_rsync(here, tmp_path):
    """Also while somebody reads the pipe or listens at the socket."""
    needs("rsync")
    source = tmp_path / "src"
    (source / "sub").mkdir(parents=True)
    for name in ("fifo", "socket", "device", "sub/fifo"):
        (source / name).write_text(name)
    judged = {}
    for judge in ("rsync", "tidecast"):
        dest = tmp_path / judge
        (dest / "sub").mkdir(parents=True)
        os.mkfifo(dest / "fifo")
        os.mkfifo(dest / "sub/fifo")
        if os.geteuid() == 0:
            os.mknod(dest / "device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(dest / "socket"))
        reader = os.open(dest / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        if judge == "rsync":
            subprocess.run(["rsync", "-a", f"{source}/", f"{dest}/"], check=True, timeout=60)
        else:
            assert done(here, f"{source}/", dest)["files_copied"] == 4
        os.close(reader)
        listener.close()
        judged[judge] = {str(p.relative_to(dest)): p.is_file() and p.read_text() for p in dest.rglob("*") if not p.is_dir()}
    assert judged["tidecast"] == judged["rsync"] == {name: name for name in ("fifo", "socket", "device", "sub/fifo")}


def test_from_a_directory_that_may_be_entered_and_not_listed(node, tmp_path):
    """As home directories of mode 0711 are to others."""
    if os.geteuid():
        pytest.skip("SKIPPED: becoming another user needs root")
    needs("rsync", "setpriv")
    passable(tmp_path)
    (tmp_path / "home/public/below").mkdir(parents=True)
    (tmp_path / "home/file").write_text("one")
    (tmp_path / "home/public/below/file").write_text("two")
    (tmp_path / "home").chmod(0o711)
    (tmp_path / "list").write_text("public/below/file\n")
    here = node("here")
    passable(here.program)
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]
    for number, words in enumerate((["home/file"], ["home/public"], ["home/public/"], ["-R", "home/public/below/file"], ["-R", "home/./public"],
                                    ["--files-from=list", "home"])):
        for who in ("ours", "theirs"):
            to = tmp_path / f"{who}{number}"
            to.mkdir()
            os.chown(to, 65534, 65534)
            program = [here.program, "--state-dir", to / ".state", "copy"] if who == "ours" else ["rsync", "-a"]
            subprocess.run([*become, *program, *words, f"{to}/"], cwd=tmp_path, check=True, env={**os.environ, "HOME": str(to)})
            # Where the destination itself is not copied, its time is when its first name was made.
            os.utime(to, (0, 0))
        same(tmp_path / f"theirs{number}", tmp_path / f"ours{number}")
    refused = subprocess.run([*become, here.program, "copy", "home", "ours0/"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 1 and "home: not copied: Permission denied" in refused.stderr


def test_a_tree_without_write_permission_is_copied_again(node, tmp_path):
    if os.geteuid():
        pytest.skip("SKIPPED: becoming another user needs root")
    needs("setpriv")
    passable(tmp_path)
    here = node("here")
    passable(here.program)
    (tmp_path / "own/source/below").mkdir(parents=True)
    (tmp_path / "own/source/below/file").write_text("one")
    for path in (tmp_path / "own").rglob("*"):
        os.chown(path, 65534, 65534)
    os.chown(tmp_path / "own", 65534, 65534)
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", here.program, "--state-dir", tmp_path / "own/.state", "copy"]
    for path in ("source/below", "source"):
        (tmp_path / "own" / path).chmod(0o555)
    for text, flags in (("one", "-a"), ("other", "-a"), ("third", "-rlt")):
        (tmp_path / "own/source/below/file").write_text(text)
        subprocess.run([*become, flags, "source/", "dest/"], cwd=tmp_path / "own", check=True)
        same(tmp_path / "own/source", tmp_path / "own/dest")
    (tmp_path / "own/source").chmod(0o755)
    subprocess.run([*become, "-rlt", "source/", "dest/"], cwd=tmp_path / "own", check=True)
    assert stat.S_IMODE((tmp_path / "own/dest").stat().st_mode) == 0o555, "its mode is not copied"
