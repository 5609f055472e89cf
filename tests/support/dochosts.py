"""Hosts for the commands of the documentation: each a node of a lab with directories, users and processes of its own.

A host is a holder process in the network namespace of a lab's node, with mount, process and host-name namespaces. Its root
directory is private: `/data`, `/scratch`, `/home`, `/etc`, `/var` and `/tmp` are its own, the system's programs are this
machine's, the tested program is in its PATH. Names of hosts resolve, and `ssh HOST COMMAND` runs the command there: the
stand-in passes its descriptors to this process, which enters the other host.
"""
from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from .proc import ProcFailed

TIMEOUT = 120.0  # seconds; a bound against hanging, never a measure of speed
ALICE = 1000
#: Directories of this machine that every host sees.
SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr", "dev", "sys")
UNIT = pathlib.Path(__file__).resolve().parents[2] / "dist/systemd/tidecast.service"
PRIVATE = ("archive", "data", "home/alice", "opt", "root", "run", "scratch", "srv", "sw", "tmp", "var/lib", "var/log", "var/tmp")
SSH = """\
#!/tidecast/python/bin/python3
import os, socket, sys
words = sys.argv[1:]
while words and words[0].startswith("-") and words[0] != "--":
    words = words[2 if words[0] in ("-o", "-p", "-l", "-i", "-F", "-c", "-m") else 1:]
if words and words[0] == "--":
    words = words[1:]
with socket.socket(socket.AF_UNIX) as s:
    s.connect("/tidecast/ssh.sock")
    user, _, host = words[0].rpartition("@")
    if words[1:2] == ["--"]:
        del words[1]
    message = "\\0".join([host, user or str(os.getuid()), *words[1:]]).encode()
    socket.send_fds(s, [message], [0, 1, 2])
    sys.exit(int(s.recv(16) or b"255"))
"""
#: `systemctl` for the unit of the daemon: applies the unit and its tmpfiles without systemd.
SYSTEMCTL = """\
#!/bin/sh
# systemctl enable [--now]|start|restart|stop|disable|reload UNIT..
stop() {
  [ -f /run/tidecast.pid ] || return 0
  kill "$(cat /run/tidecast.pid)"
  n=0
  while kill -0 "$(cat /run/tidecast.pid)" 2>/dev/null; do
    n=$((n + 1)); [ $n -lt 300 ] || { echo "the daemon does not end" >&2; exit 1; }
    sleep 0.1
  done
  rm -f /run/tidecast.pid
}
# Enabling starts nothing by itself, and the daemon makes its socket itself.
case "$*" in
  "enable --now"*) ;;
  enable* | "start tidecast.socket") exit 0 ;;
esac
case "$1" in
  stop | disable) stop ;;
  reload) kill -HUP "$(cat /run/tidecast.pid)" ;;
  enable | start | restart)
    stop
    install -d -o tidecast -g tidecast -m 755 /run/tidecast
    install -d -o tidecast -g tidecast -m 711 /var/lib/tidecast
    start=$(sed -n 's,^ExecStart=/usr/bin/,,p' /tidecast/shims/tidecast.service)
    HOME=/var/lib/tidecast XDG_CONFIG_HOME=/etc setsid setpriv --reuid=tidecast --regid=tidecast --init-groups $start \
      >>/var/log/tidecast.log 2>&1 </dev/null &
    echo $! >/run/tidecast.pid
    n=0
    until tidecast admin status >/dev/null 2>&1; do
      n=$((n + 1)); [ $n -lt 300 ] || { cat /var/log/tidecast.log >&2; exit 1; }
      sleep 0.1
    done ;;
esac
"""


class Command:
    """A command that runs on a host; both of its outputs are in one file, in the order of its writes."""

    def __init__(self, argv: list[str], out: pathlib.Path, text: str, stdin: str | None):
        self.text, self.path = text, out
        with out.open("wb") as file:
            self.process = subprocess.Popen(argv, stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL, stdout=file,
                                            stderr=subprocess.STDOUT, start_new_session=True)
        if stdin is not None and self.process.stdin:
            try:
                self.process.stdin.write(stdin.encode())
                self.process.stdin.close()
            except BrokenPipeError:
                pass

    @property
    def out(self) -> str:
        return self.path.read_text(errors="replace")

    def fail(self, why: str) -> ProcFailed:
        return ProcFailed(f"{self.text}\n{why}; it printed:\n{self.out}")

    def wait(self) -> int:
        try:
            return self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.end()
            raise self.fail(f"did not end within {TIMEOUT} s") from None

    def until(self, expected: re.Pattern) -> None:
        """Waits until a running command has printed the expected output, at least one line, which it does when it is ready."""
        deadline = time.monotonic() + TIMEOUT

        def ready() -> bool:
            return "\n" in self.out and bool(expected.match(self.out))

        while not ready():
            if self.process.poll() is not None and not ready():
                raise self.fail(f"ended with {self.process.returncode}")
            if time.monotonic() > deadline:
                raise self.fail(f"did not print within {TIMEOUT} s what matches {expected.pattern}")
            time.sleep(0.05)

    def interrupt(self) -> int:
        os.killpg(self.process.pid, signal.SIGINT)
        return self.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(TIMEOUT)


class DocHost:
    """One host."""

    def __init__(self, hosts: "DocHosts", name: str, node: int):
        self.hosts, self.name, self.node = hosts, name, node
        self.files = hosts.base / name
        self.files.mkdir()
        self.holder = subprocess.Popen(
            ["ip", "netns", "exec", hosts.lab.name + f".n{node:03d}", "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child",
             "--propagation", "private", "sh", "-euc", self.setup()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        line = self.holder.stdout.readline().decode() if self.holder.stdout else ""
        if line.strip() != "ready":
            rest = self.holder.stdout.read().decode() if self.holder.stdout else ""
            raise ProcFailed(f"host {name} does not start: {line}{rest}")
        # unshare's only child is process 1 of the host.
        self.pid = int(pathlib.Path(f"/proc/{self.holder.pid}/task/{self.holder.pid}/children").read_text().split()[0])

    def setup(self) -> str:
        root = self.files / "root"
        q = shlex.quote
        lines = [f"hostname {self.name}", f"mkdir {root}", f"mount -t tmpfs -o mode=755 tmpfs {root}", f"cd {root}",
                 "mkdir -p proc tidecast/bin tidecast/python tidecast/package tidecast/shims run/systemd/system"]
        for name in SYSTEM:
            path = pathlib.Path("/", name)
            if path.is_symlink():
                lines.append(f"ln -s {q(os.readlink(path))} {name}")
            elif path.is_dir():
                lines += [f"mkdir {name}", f"mount --rbind /{name} {name}"]
        lines += [f"mkdir -p {name}" for name in PRIVATE]
        if "shared home" in self.hosts.how:
            lines.append(f"mount --bind {q(str(self.hosts.base / 'home'))} home/alice")
        if pathlib.Path(sys.base_prefix).parts[1] not in SYSTEM:
            lines += [f"mkdir -p {q(sys.base_prefix[1:])}", f"mount --bind {q(sys.base_prefix)} {q(sys.base_prefix[1:])}"]
        lines += ["mount -t proc proc proc", "mount -t tmpfs -o mode=1777 tmpfs dev/shm",
                  "if [ -e dev/fuse ]; then mknod -m 666 tidecast/fuse c 10 229; mount --bind tidecast/fuse dev/fuse; fi", "chmod 1777 scratch tmp var/tmp",
                  "cp -a /etc etc", f"cp {self.hosts.base}/hosts etc/hosts", "rm -f etc/mtab", "ln -s /proc/self/mounts etc/mtab",
                  "sed -i '/^alice:/d;/^tidecast:/d;/:1000:/d;/:990:/d' etc/passwd etc/group",
                  "echo 'alice:x:1000:1000:Alice:/home/alice:/bin/bash' >> etc/passwd", "echo 'alice:x:1000:' >> etc/group",
                  "echo 'tidecast:x:990:990:Tidecast:/var/lib/tidecast:/usr/sbin/nologin' >> etc/passwd", "echo 'tidecast:x:990:' >> etc/group",
                  "chown -R 1000:1000 home/alice data archive srv sw opt",
                  f"mount --bind {q(str(self.hosts.programs))} tidecast/bin", f"mount --bind {q(sys.prefix)} tidecast/python",
                  f"mount --bind {q(str(self.hosts.package))} tidecast/package",
                  f"mount --bind {self.hosts.base}/shims tidecast/shims", "touch tidecast/ssh.sock",
                  f"mount --bind {self.hosts.base}/ssh.sock tidecast/ssh.sock",
                  # Process 1 waits for children, so that orphans end. Not chroot: processes below one may make no user
                  # namespaces, which `tidecast run` needs.
                  "mkdir tidecast/old", "pivot_root . tidecast/old", "umount -l tidecast/old", "echo ready", "sleep infinity & wait"]
        return "\n".join(lines)

    def argv(self, user: str, command: str) -> list[str]:
        """The command line to run a shell command here, in the directory and with the exported variables of the last one."""
        root = user == "root"
        home = "/root" if root else f"/home/{user}"
        path = "/tidecast/shims:/tidecast/bin:/tidecast/python/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        env = {"HOME": home, "USER": user, "LOGNAME": user, "PATH": path, "NO_COLOR": "1", "LANG": "C.UTF-8", "TERM": "dumb",
               "XDG_RUNTIME_DIR": home, "PYTHONPATH": "/tidecast/package"}
        state = f"/tmp/.state-{user}"
        script = (f"cd {home}\nif [ -f {state} ]; then . {state}; fi\n"
                  f"trap 'code=$?; {{ export -p; echo cd \"$PWD\"; }} > {state}; exit $code' EXIT\n{command}\n")
        rights = [] if root else ["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--init-groups"]
        return ["nsenter", "-t", str(self.pid), "--mount", "--uts", "--net", "--pid", "--root", "--wd", "--", "env", "-i",
                *[f"{k}={v}" for k, v in env.items()], *rights, "bash", "-c", script]

    def run(self, user: str, command: str, stdin: str | None = None) -> Command:
        return self.hosts.begin(self.argv(user, command), f"{self.name}: {command}", stdin)

    def write(self, path: str, text: str, mode: str = "644") -> None:
        done = self.run("root", f"mkdir -p $(dirname {path}) && cat > {path} && chmod {mode} {path}", text)
        if done.wait():
            raise done.fail("the file cannot be written")


class DocHosts:
    """The hosts of one page."""

    def __init__(self, names: list[str], programs: pathlib.Path, package: pathlib.Path, lab, rate: str = "1gbit", how: set[str] = frozenset()):
        self.programs, self.package, self.lab, self.how = programs, package, lab, how
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="tcdoc"))
        self.base.chmod(0o755)
        self.commands: list[Command] = []
        self.hosts: dict[str, DocHost] = {}
        lab("up", f"{'nat' if 'nat' in how else 'single'}:{len(names)}@{rate}")
        addresses = {name: lab.address(n) for n, name in enumerate(names)}
        (self.base / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for n, a in addresses.items()))
        (self.base / "shims").mkdir()
        (self.base / "home").mkdir()
        for name, text in (("ssh", SSH), ("systemctl", SYSTEMCTL)):
            (self.base / "shims" / name).write_text(text)
            (self.base / "shims" / name).chmod(0o755)
        shutil.copy(UNIT, self.base / "shims")
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(self.base / "ssh.sock"))
        (self.base / "ssh.sock").chmod(0o666)
        self.server.listen(64)
        threading.Thread(target=self.serve, daemon=True).start()
        try:
            for n, name in enumerate(names):
                self.hosts[name] = DocHost(self, name, n)
        except BaseException:
            self.close()
            raise

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.ssh, args=(connection,), daemon=True).start()

    def ssh(self, connection: socket.socket) -> None:
        """One `ssh HOST COMMAND` of some host."""
        with connection:
            message, fds, _, _ = socket.recv_fds(connection, 65536, 3)
            name, user, *words = message.decode().split("\0")
            code = 255
            if name in self.hosts:
                who = "root" if user in ("0", "root") else "alice"
                child = subprocess.Popen(self.hosts[name].argv(who, " ".join(words)), stdin=fds[0], stdout=fds[1], stderr=fds[2])
                for fd in fds:
                    os.close(fd)
                code = child.wait()
            try:
                connection.send(str(code).encode())
            except OSError:
                pass

    def begin(self, argv: list[str], text: str, stdin: str | None) -> Command:
        command = Command(argv, self.base / f"{len(self.commands):03d}.out", text, stdin)
        self.commands.append(command)
        return command

    def close(self) -> None:
        for command in reversed(self.commands):
            command.end()
        for host in self.hosts.values():
            host.holder.kill()
            host.holder.wait(TIMEOUT)
        self.server.close()
        shutil.rmtree(self.base, ignore_errors=True)
