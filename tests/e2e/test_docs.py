"""The documentation: every command of Start, How-to and the README is run from the text itself, on hosts of an emulated cluster.

`support/docpages.py` has the conventions of the pages, `support/dochosts.py` the hosts. Blocks that cannot be run here have the
reason in the page; the flags of all of them are checked against the program's help.
"""
from __future__ import annotations

import functools
import os
import pathlib
import re
import subprocess
import time
import zipfile

import pytest
from conftest import PROFILE, ROOT
from support import dochosts, docpages
from support.mounts import needs_mounts
from support.proc import ProcFailed

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/start").glob("*.md")), *sorted((ROOT / "docs/how-to").glob("*.md"))]
#: Pages of which the flags are checked, and nothing is run.
OTHERS = [*sorted((ROOT / "docs/guide").glob("*.md")), ROOT / "docs/daemon.md", ROOT / "docs/trust.md", ROOT / "docs/simulator.md"]
#: Setup that the README leaves out, since it is short.
README = {
    "": """\
<!-- hosts: head node1 node2 desk hpc; shared home -->

<!-- setup head: mkdir -p /data/genomes /sw/env; head -c 3000000 /dev/urandom >/data/genomes/nt.fa; cp -r /data/genomes/. /sw/env -->

<!-- setup head#: tidecast ca init /srv/ca --name site; for h in head node1; do ssh $h mkdir -p /etc/tidecast
  tidecast ca issue /srv/ca host:$h -o - | ssh $h "cat >/etc/tidecast/host.pem; chown tidecast /etc/tidecast/host.pem; chmod 600 /etc/tidecast/host.pem"
  cat /srv/ca/ca.crt | ssh $h "cat >/etc/tidecast/ca.crt"; cat /srv/ca/ca.crl | ssh $h "cat >/etc/tidecast/ca.crl"
  printf '[[root]]\\ncertificate = "ca.crt"\\ncrl = "ca.crl"\\n' | ssh $h "cat >/etc/tidecast/trust.toml"
  printf '[daemon]\\ntrust = "/etc/tidecast/trust.toml"\\ncertificate = "/etc/tidecast/host.pem"\\npeer = ["head"]\\n' | ssh $h "cat >/etc/tidecast/config.toml"
  ssh $h systemctl start tidecast; done -->
""",
    "$ sudo apt install ./tidecast_*_amd64.deb     # Debian, Ubuntu": "<!-- not run: `make dist-test` installs each package where it belongs -->",
    "$ make demo    # 8 emulated nodes receive a Python environment: 5 minutes": "<!-- not run: it is what runs this test -->",
}


def parsed(path: pathlib.Path) -> docpages.Page:
    return docpages.parse(path, README if path.name == "README.md" else None)


def name(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


@functools.cache
def help_of(program: pathlib.Path, command: tuple[str, ...]) -> str | None:
    """The help of a command, or None if there is no such command."""
    done = subprocess.run([program, *command, "--help"], capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else None


def wrong(program: pathlib.Path, call: list[str]) -> str | None:
    """The unknown part of a call."""
    command = tuple(call[:1])
    about = help_of(program, command)
    if about is None:
        return f"there is no command {call[0]}"
    below = re.search(r"^Commands:\n((?: .*\n|\n)+)", about, re.M)
    if below and len(call) > 1 and re.search(rf"^  {re.escape(call[1])}\b", below[1], re.M):
        command = tuple(call[:2])
        about = help_of(program, command) or ""
    for word in call[len(command):]:
        if word == "--":
            break
        flag = word.split("=")[0]
        if re.fullmatch(r"--[a-z][a-z0-9-]*", flag) and not re.search(rf"(?<![\w-]){flag}(?![\w-])", about):
            return f"{' '.join(command)} has no {flag}"
        if command == ("copy",):
            continue  # its short flags may be joined, as rsync's
        if re.fullmatch(r"-[A-Za-z]", flag) and not re.search(rf"(?<![\w-]){flag}(?![\w-])", about):
            return f"{' '.join(command)} has no {flag}"
    return None


@pytest.mark.parametrize("path", PAGES + OTHERS, ids=name)
def test_every_flag_exists(path, built):
    faults = []
    for step in parsed(path).steps:
        for call in docpages.calls_in(step):
            fault = wrong(built / "tidecast", call)
            if fault:
                faults.append(f"{name(path)}:{step.line}: {fault}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_every_block_runs_or_says_why_not(path):
    faults = [f"{name(path)}:{step.line}" for step in parsed(path).steps if step.kind == "block" and not step.excuse]
    assert not faults, "neither run nor excused: " + ", ".join(faults)


@pytest.mark.parametrize(("page", "words"), [("README.md", 700), ("ARCHITECTURE.md", 2500)])
def test_front_pages_stay_short(page, words):
    assert len((ROOT / page).read_text().split()) <= words


def test_the_book_can_be_made(built, tmp_path):
    """Links in the sources, then in the staged pages with all that is generated; mdBook itself is not needed."""
    subprocess.run([ROOT / "scripts/docs", "check"], check=True, timeout=240)
    (tmp_path / PROFILE).symlink_to(built)
    env = {**os.environ, "TIDECAST_PROFILE": PROFILE, "CARGO_TARGET_DIR": str(tmp_path)}
    subprocess.run([ROOT / "scripts/docs", "stage"], check=True, timeout=240, env=env)
    commands = (tmp_path / "docs-src/reference/commands.md").read_text()
    assert "## tidecast bcast" in commands and "### tidecast cache get" in commands
    assert "upload_limit" in (tmp_path / "docs-src/reference/configuration.md").read_text()


def runs(path: pathlib.Path) -> bool:
    return any(step.kind in ("command", "run") and not step.excuse for step in parsed(path).steps)


@pytest.fixture(scope="session")
def unpacked(wheel, tmp_path_factory) -> pathlib.Path:
    """The content of the wheel, where every user of a host can read it."""
    place = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(place)
    for path in [place, *place.rglob("*")]:
        path.chmod(0o755)
    return place


@pytest.mark.root
@pytest.mark.parametrize("path", [path for path in PAGES if runs(path)], ids=name)
def test_the_commands_do_what_the_page_says(path, built, unpacked, lab):
    page = parsed(path)
    if any(re.search(r"\btidecast (mount|run)\b", step.text) for step in page.steps if not step.excuse):
        needs_mounts()
    hosts = dochosts.DocHosts(page.hosts, built, unpacked, lab, how=page.how)
    try:
        for step in page.steps:
            if not step.excuse:
                try:
                    do(hosts, step)
                except ProcFailed as fault:
                    raise ProcFailed(f"{name(path)}:{step.line}: {fault}") from None
    finally:
        hosts.close()


def do(hosts: dochosts.DocHosts, step: docpages.Step) -> None:
    if step.kind == "block":
        return
    host = hosts.hosts[step.host]
    match step.kind:
        case "file":
            host.write(step.path, step.text, step.mode)
        case "run":
            command = host.run(step.user, step.text, "\n".join(step.output) + "\n")
            if command.wait():
                raise command.fail(f"failed with {command.process.returncode}")
        case "wait":
            poll(host, step.user, step.text)
        case "setup" | "command" if step.serves:
            serve(host, step)
        case "setup" | "command":
            check(host.run(step.user, step.text), step)


def serve(host: dochosts.DocHost, step: docpages.Step) -> None:
    """Starts a command that runs until the page ends, and continues when it has printed the page's output, or has written its file."""
    command = host.run(step.user, re.sub(r"\s&\s*(#.*)?$", "", step.text))
    interrupted = "^C" in step.output
    if interrupted:
        step.output = step.output[:step.output.index("^C")]
    if step.writes and not step.output:
        poll(host, step.user, f"test -s {step.writes}")
    elif step.kind == "command" or not step.text.rstrip().endswith("&"):
        command.until(step.expects(whole=False))
    if interrupted:
        command.interrupt()


def check(command: dochosts.Command, step: docpages.Step) -> None:
    code = command.wait()
    if bool(code) != step.fails:
        raise command.fail(f"ended with {code}, {'a failure' if step.fails else 'success'} was promised")
    said = command.out
    if step.output and not step.expects(whole=True).match(said if said.endswith("\n") or not said else said + "\n"):
        raise command.fail("printed something else than the page shows:\n" + "\n".join(step.output) + "\n")


def poll(host: dochosts.DocHost, user: str, text: str) -> None:
    deadline = time.monotonic() + dochosts.TIMEOUT
    while True:
        command = host.run(user, text)
        if command.wait() == 0:
            return
        if time.monotonic() > deadline:
            raise command.fail(f"did not succeed within {dochosts.TIMEOUT} s")
        time.sleep(0.2)
