"""Users whose names are those of a directory service: they have daemons, caches and certificates like anybody."""
import os
import pathlib
import shutil
import subprocess
import time

import pytest
from support.callers import passable
from support.tidecast import Node

UID = 61004
NAMES = ["alice@site.org", "SITE\\alice", "SITE\\john smith", "12345", "jürgen", "host$", ".dotted", "o'neil", "a" * 200, None]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: another user database needs root")


class Named(Node):
    """A user with this name in the user database; None: one that is in none."""

    def __init__(self, program: pathlib.Path, base: pathlib.Path, start, name: str | None):
        super().__init__(program, base / "home", start)
        os.chown(self.home, UID, UID)
        self.passwd = base / "passwd"
        line = f"{name}:x:{UID}:{UID}::{self.home}:/bin/sh\n" if name else ""
        self.passwd.write_text(pathlib.Path("/etc/passwd").read_text() + line)
        self.env = {key: value for key, value in self.env.items() if key not in ("TIDECAST_SOCKET", "TIDECAST_STATE_DIR", "XDG_RUNTIME_DIR")}
        self.env["HOME"] = str(self.home)

    def argv(self, *words):
        enter = 'mount --bind "$0" /etc/passwd && exec setpriv --reuid=%d --regid=%d --clear-groups -- "$@"' % (UID, UID)
        return ["unshare", "-m", "--propagation", "private", "sh", "-c", enter, str(self.passwd), str(self.program), *map(str, words)]

    def stop(self) -> None:
        """Ends the daemon that a command has started for the user."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if os.fsencode(self.program) in words and b"daemon" in words and os.stat(f"/proc/{pid}").st_uid == UID:
                    os.kill(int(pid), 9)
            except OSError:
                pass


@pytest.mark.parametrize("name", NAMES, ids=lambda name: str(name)[:16])
def test_every_user_has_a_daemon(built, tmp_path, start, name):
    passable(tmp_path)
    user = Named(pathlib.Path(shutil.copy(built / "tidecast", tmp_path / "tidecast")), tmp_path, start, name)
    tree = user.home / "data"
    tree.mkdir()
    (tree / "file").write_text("content")
    os.chown(tree, UID, UID)
    try:
        made = user("cache", "create", "data", tree, "--json").last("done")
        assert made["owner"] == (name or f"uid{UID}") and made["name"].endswith("/data@1"), made
        assert user("cache", "get", made["name"], "--json").last("done")["cache"] == made["cache"]
        assert [cache["name"] for cache in user("cache", "ls", "--json").last("done")["caches"]] == [made["name"]]
    finally:
        user.stop()


def test_a_daemon_that_cannot_start_says_why(built, tmp_path, start):
    passable(tmp_path)
    user = Named(pathlib.Path(shutil.copy(built / "tidecast", tmp_path / "tidecast")), tmp_path, start, "alice")
    config = tmp_path / "config.toml"
    config.write_text('[daemon]\nname = "no name"\n')
    began = time.monotonic()
    said = user("--config", config, "cache", "ls", code=1).err
    assert 'has ended: tidecast: error: "no name" is not a valid name of a daemon' in said, said
    assert "its log is" in said and time.monotonic() - began < 15


def test_a_certificate_names_such_a_user(tide, tmp_path):
    tide("ca", "init", tmp_path / "ca")
    for name in ("SITE\\john smith", "alice@site.org", "jürgen"):
        tide("ca", "issue", tmp_path / "ca", f"user:{name}", "-o", tmp_path / "a.pem")
        assert f"user:{name}" in tide("ca", "show", tmp_path / "a.pem").out
        text = subprocess.run(["openssl", "x509", "-in", tmp_path / "a.pem", "-noout", "-text"], capture_output=True, text=True)
        assert text.returncode == 0 and "URI:tidecast:user/" in text.stdout, text
        (tmp_path / "a.pem").unlink()
