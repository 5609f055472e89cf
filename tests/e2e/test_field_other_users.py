"""Shared memory of fields is in a directory where all users of a host may create files: a field of one user is never taken for
another's."""
import json
import os
import pathlib
import subprocess
import sys
import urllib.request

import pytest
from support.callers import passable
from support.proc import Proc

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALICE, BOB = 61001, 61002
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="SKIPPED: becoming other users needs root")
AS_BOB = ["setpriv", f"--reuid={BOB}", f"--regid={BOB}", "--clear-groups", "--"]

ASK = """
import sys
import tidecast.field as field
print(sys.argv[1] in field.names())
try:
    field.open(sys.argv[1])
except field.FieldError as error:
    print(error)
"""


@pytest.fixture
def path():
    """A name that Alice has taken before a receiver of Bob's has it."""
    path = pathlib.Path(f"/dev/shm/tidecast-field-others{os.getpid()}")
    path.unlink(missing_ok=True)
    yield path
    path.unlink(missing_ok=True)


def make(path: pathlib.Path, kind: str) -> None:
    if kind == "file":
        path.write_bytes(b"TCFIELD1" + bytes(1 << 16))
        path.chmod(0o666)
    elif kind == "pipe":
        os.mkfifo(path, 0o666)
        path.chmod(0o666)
    else:
        path.symlink_to("/etc/passwd")
    os.chown(path, ALICE, ALICE, follow_symlinks=False)


@pytest.mark.parametrize("kind", ["file", "pipe", "link"])
def test_a_field_that_another_user_has_made_is_not_read(path, kind, node, start, tmp_path):
    make(path, kind)
    name = path.name.removeprefix("tidecast-field-")
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    asked = subprocess.run([*AS_BOB, sys.executable, "-c", ASK, name], env=env, capture_output=True, text=True, timeout=60, cwd="/")
    assert asked.returncode == 0, asked.stderr
    listed, why = asked.stdout.splitlines()
    assert listed == "False" and {"file": f"belongs to user {ALICE}", "pipe": "is not a file", "link": "no field"}[kind] in why, asked.stdout
    passable(tmp_path)
    bob = node("bob")
    bob.home.mkdir(parents=True, exist_ok=True)
    os.chown(bob.home, BOB, BOB)
    view: Proc = start([*AS_BOB, *bob.argv("--json", "field", "view", name, "--listen", "127.0.0.1:0")], env=bob.env)
    url = view.until("its URL", lambda: next((event["url"] for event in view.events() if event["event"] == "started"), None))
    address, token = url.split("?token=")
    asking = urllib.request.Request(f"{address.rstrip('/')}/api/state", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asking, timeout=60) as answer:
        [volume] = json.load(answer)["volumes"]
    assert not any(volume["shape"]), volume
    assert kind != "file" or f"belongs to user {ALICE}" in json.dumps(volume), volume
