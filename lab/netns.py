"""Namespaces by name: enter one, run something in it, list and remove those of one lab.

A lab named L owns exactly the namespaces `L.s<i>` (switches), `L.n<nnn>` (nodes) and `L.r<i>` (NAT
routers), and the processes in them. It changes nothing else.
"""
from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import time

NEWNS, NEWUTS, NEWNET = 0x20000, 0x4000000, 0x40000000
MS_RDONLY, MS_BIND, MS_REC, MS_PRIVATE = 1, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG = 1
RUN_NETNS = "/run/netns"
libc = ctypes.CDLL(None, use_errno=True)


class LabError(Exception):
    """The fault and its object, in one line for the terminal."""


def run(command: list[str], text: str | None = None, check: bool = True) -> str:
    """Run a command to its end with `text` as input and return its output."""
    try:
        p = subprocess.run(command, input=text, text=True, capture_output=True, timeout=120)
    except FileNotFoundError:
        raise LabError(f"{command[0]} is not installed (Debian: apt-get install iproute2)") from None
    if check and p.returncode:
        raise LabError(f"{' '.join(command)}: {p.stderr.strip()}")
    return p.stdout


def of_lab(lab: str) -> list[str]:
    """The namespaces that belong to this lab, whoever made them."""
    mine = re.compile(re.escape(lab) + r"\.(s\d+|r\d+|n\d{3})")
    try:
        return sorted(n for n in os.listdir(RUN_NETNS) if mine.fullmatch(n))
    except FileNotFoundError:
        return []


def remove_all(lab: str) -> None:
    """End every process in the lab's namespaces, wait until they have ended, delete the namespaces."""
    names = of_lab(lab)
    left = pids(names)
    deadline = time.monotonic() + 10
    while left and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
        left = pids(names)
    if names:
        run(["ip", "-batch", "-"], "".join(f"netns del {n}\n" for n in names))
    if left:
        raise LabError(f"processes {left} do not end")


def pids(names: list[str]) -> list[int]:
    """Processes whose network namespace is one of these (one walk over /proc, zombies left out)."""
    inodes = {os.stat(f"{RUN_NETNS}/{n}").st_ino for n in names}
    found = []
    for entry in os.listdir("/proc") if inodes else []:
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}/ns/net").st_ino in inodes:
                found.append(int(entry))
        except OSError:  # it ended, or it is a zombie
            pass
    return found


def enter(name: str, hostname: str | None = None, hosts: str | None = None) -> None:
    """Move this process into namespace `name`; with `hosts`, see that file as /etc/hosts."""
    fd = os.open(f"{RUN_NETNS}/{name}", os.O_RDONLY)
    _ok(libc.setns(fd, NEWNET), f"setns {name}")
    os.close(fd)
    if hostname:
        _ok(libc.unshare(NEWUTS), "unshare")
        socket.sethostname(hostname)
    if hosts:
        _ok(libc.unshare(NEWNS), "unshare")
        _ok(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount /")
        if os.path.exists("/etc/hosts"):
            _ok(libc.mount(hosts.encode(), b"/etc/hosts", None, MS_BIND, None), "mount /etc/hosts")
        else:  # a bare system without it: the file's directory, which holds nothing else, over /etc
            lower = f"lowerdir={os.path.dirname(hosts)}:/etc"
            _ok(libc.mount(b"overlay", b"/etc", b"overlay", MS_RDONLY, lower.encode()), "mount /etc")


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it goes, however it goes."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def in_namespace(name: str, work) -> None:
    """Call `work()` in a child inside `name`; an error there is raised here."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            enter(name)
            work()
        except BaseException as e:  # the child must never return into the parent's code
            os.write(w, str(e).encode()[:4000])
            os._exit(1)
        os._exit(0)
    os.close(w)
    message = os.read(r, 4096).decode(errors="replace")
    os.close(r)
    if os.waitpid(pid, 0)[1]:
        raise LabError(f"{name}: {message}")


def sysctl(values: dict[str, str]) -> None:
    """Write /proc/sys entries (os.write: a buffered write would hide the kernel's refusal)."""
    for key, value in values.items():
        try:
            fd = os.open("/proc/sys/" + key, os.O_WRONLY)
        except FileNotFoundError:
            continue  # this kernel has no such knob, so nothing to turn
        try:
            os.write(fd, value.encode())
        except OSError as e:
            raise LabError(f"sysctl {key}={value}: {e.strerror}") from None
        finally:
            os.close(fd)


def _ok(result: int, what: str) -> None:
    if result:
        raise LabError(f"{what}: {os.strerror(ctypes.get_errno())}")
