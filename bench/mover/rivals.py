"""The movers: how each is run when it is run well. One class a mover; a variant is an instance with other words."""
from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import subprocess
from dataclasses import dataclass

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


@dataclass
class Job:
    """One copy: the contents of `source` into the empty `target`, over `host:port`."""
    source: pathlib.Path
    target: pathlib.Path
    blob: pathlib.Path  # all bytes of the source in one file
    bytes: int
    tmp: pathlib.Path  # for keys, configurations and logs; gone afterwards
    host: str
    port: int
    way: list[str]  # the best words for iperf3 at this place: how many streams, then the congestion control

    def write(self, name: str, text: str, mode: int = 0o600) -> pathlib.Path:
        path = self.tmp / name
        path.write_text(text)
        path.chmod(mode)
        return path


class Rival:
    name: str
    needs: tuple[str, ...] = ()
    verify: str | None = "tree"  # or "blob": the target has one file; or None: there is nothing to look at
    inside = "."  # where in the target the copy is
    ends = False  # the far program ends with the copy, and its end is part of it

    loopback_only = False

    def missing(self) -> list[str]:
        return [program for program in self.needs if not shutil.which(program, path=PATH)]

    def takes(self, name: str) -> bool:
        """Whether it copies such a set."""
        return True

    def serve(self, job: Job) -> list | None:
        """The server on the far side, which starts before the measurement and listens at the job's port."""
        return None

    def copy(self, job: Job) -> list:
        """The command on the near side, whose time is measured."""
        raise NotImplementedError

    def said(self, job: Job) -> dict:
        """The useful part of its output."""
        return {}


def program(name: str) -> str:
    return shutil.which(name, path=PATH) or name


def shell(text: str) -> list[str]:
    return ["bash", "-o", "pipefail", "-c", text]


class LocalCopy(Rival):
    """Without a network: the rate at which this machine creates such files. A process a core, each with whole folders."""
    name = "cp-parallel"

    def copy(self, job: Job) -> list:
        one = f"find {job.source} -mindepth 1 -maxdepth 1 -print0 | xargs -0 -P {os.cpu_count()} -n 1 cp -a -t {job.target}"
        return shell(one)


class Iperf(Rival):
    """The network alone: nothing is read or written."""
    name, needs, verify, ends = "iperf3", ("iperf3",), None, True

    def serve(self, job: Job) -> list:
        return ["iperf3", "-s", "-1", "-p", job.port]

    def copy(self, job: Job) -> list:
        return ["iperf3", "-c", job.host, "-p", job.port, "-n", job.bytes, "-l", "1M", *job.way]


class IperfFile(Rival):
    """The same bytes, read from one file, written to another, and that one hashed. At its end iperf3 drops the data in flight, some
    percent of a short copy: the seconds are extrapolated at its rate."""
    name, needs, verify, ends, loopback_only = "iperf3-file", ("iperf3", "openssl"), "blob", True, True

    def serve(self, job: Job) -> list:
        written = job.target / "all"
        return shell(f"iperf3 -s -1 -p {job.port} -F {written} && openssl dgst -sha256 {written}")

    def copy(self, job: Job) -> list:
        return ["iperf3", "-c", job.host, "-p", job.port, "-F", job.blob, "-n", job.bytes, *job.way[2:]]


class RsyncDaemon(Rival):
    name, needs = "rsync-daemon", ("rsync",)

    def serve(self, job: Job) -> list:
        conf = job.write("rsyncd.conf", f"use chroot = no\nuid = {os.getuid()}\ngid = {os.getgid()}\nlog file = {job.tmp}/rsyncd.log\n"
                         f"pid file = {job.tmp}/rsyncd.pid\n[to]\npath = {job.target}\nread only = no\n")
        return ["rsync", "--daemon", "--no-detach", f"--config={conf}", f"--port={job.port}", f"--address={job.host}"]

    def copy(self, job: Job) -> list:
        return ["rsync", "-a", "--whole-file", f"{job.source}/", f"rsync://{job.host}:{job.port}/to/"]


class OverSsh(Rival):
    """A private sshd with a key of its own; `cipher` as ssh takes it, by default ssh's own choice."""
    cipher: str | None = None

    def serve(self, job: Job) -> list:
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", job.tmp / key], check=True)
        job.write("authorized", (job.tmp / "user.pub").read_text())
        job.write("known", f"[{job.host}]:{job.port} {(job.tmp / 'host.pub').read_text()}")
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)  # sshd does not start without it
        conf = job.write("sshd.conf", f"Port {job.port}\nListenAddress {job.host}\nHostKey {job.tmp}/host\nPidFile none\nUsePAM no\n"
                         f"StrictModes no\nAuthorizedKeysFile {job.tmp}/authorized\nPermitRootLogin prohibit-password\n"
                         "PasswordAuthentication no\nMaxStartups 100\nMaxSessions 100\nSubsystem sftp internal-sftp\n")
        return [program("sshd"), "-D", "-e", "-f", conf]

    def ssh(self, job: Job) -> str:
        words = ["ssh", "-F", "none", "-p", job.port, "-i", job.tmp / "user", "-o", f"UserKnownHostsFile={job.tmp}/known", "-o", "BatchMode=yes"]
        return shlex.join(map(str, [*words, *(["-c", self.cipher] if self.cipher else [])]))


class RsyncSsh(OverSsh):
    name, needs = "rsync-ssh", ("rsync", "sshd", "ssh")

    def __init__(self, name: str = "rsync-ssh", cipher: str | None = None):
        self.name, self.cipher = name, cipher

    def copy(self, job: Job) -> list:
        return ["rsync", "-a", "--whole-file", "-e", self.ssh(job), f"{job.source}/", f"{job.host}:{job.target}/"]


class TarSocat(Rival):
    """Not encrypted, without checksums and without resuming: two pipes and a socket."""
    name, needs, ends = "tar-socat", ("tar", "socat"), True

    def serve(self, job: Job) -> list:
        return shell(f"socat -u -b 1048576 TCP-LISTEN:{job.port},bind={job.host} - | tar -x -p -b 2048 -f - -C {job.target}")

    def copy(self, job: Job) -> list:
        return shell(f"tar -c --format=posix -b 2048 -f - -C {job.source} . | socat -u -b 1048576 - TCP:{job.host}:{job.port}")


RCLONE = ["rclone", "--config", "/dev/null", "copy", "--transfers", "16", "--checkers", "16", "--no-traverse", "--no-check-dest"]


class RcloneSftp(OverSsh):
    """No command is run on the far side for a checksum of each file: that needs one more connection for each."""
    name, needs = "rclone-sftp", ("rclone", "sshd", "ssh-keygen")

    def copy(self, job: Job) -> list:
        to = f":sftp,host={job.host},port={job.port},user=root,key_file={job.tmp}/user,shell_type=none,disable_hashcheck=true:{job.target}"
        return [*RCLONE, job.source, to]


class RcloneServe(Rival):
    """rclone on both sides, pulling, over HTTP, not encrypted: its WebDAV and SFTP servers take hundreds of files a second at most."""
    name, needs = "rclone-serve", ("rclone",)

    def serve(self, job: Job) -> list:
        return ["rclone", "--config", "/dev/null", "serve", "http", "--addr", f"{job.host}:{job.port}", job.source]

    def copy(self, job: Job) -> list:
        return [*RCLONE, f':http,url="http://{job.host}:{job.port}":', job.target]


class GridFtp(Rival):
    """Pipelined, data channels kept open, `cc` files at once, `streams` for each, buffers of 50 MB: as in the paper. Anonymous, not encrypted."""
    needs = ("globus-gridftp-server", "globus-url-copy")

    def __init__(self, name: str, cc: int, streams: int):
        self.name, self.cc, self.streams = name, cc, streams

    def serve(self, job: Job) -> list:
        (job.tmp / "gridftp.d").mkdir()
        return [program("globus-gridftp-server"), "-aa", "-anonymous-user", "root", "-allow-root", "-p", job.port, "-control-interface", job.host,
                "-data-interface", job.host, "-c", job.write("gridftp.conf", ""), "-C", job.tmp / "gridftp.d", "-l", job.tmp / "gridftp.log"]

    def copy(self, job: Job) -> list:
        return ["globus-url-copy", "-r", "-cd", "-pp", "-fast", "-cc", self.cc, "-p", self.streams, "-tcp-bs", 50_000_000,
                f"file://{job.source}/", f"ftp://{job.host}:{job.port}{job.target}/"]


class Xrootd(Rival):
    """The particle physicists' server. It does not run as root, so it may not write as root either."""
    name, needs, inside = "xrdcp", ("xrootd", "xrdcp"), "source"

    def serve(self, job: Job) -> list:
        job.target.chmod(0o777)
        for folder in (job.tmp, job.tmp / "admin"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
        conf = job.write("xrootd.cf", f"all.export {job.target}\nall.adminpath {job.tmp}/admin\nall.pidpath {job.tmp}/admin\nxrd.port {job.port}\n", 0o644)
        return [program("xrootd"), "-R", "nobody", "-c", conf, "-l", job.tmp / "admin/log", "-p", job.port]

    def copy(self, job: Job) -> list:
        return ["xrdcp", "-r", "-s", "--parallel", "4", job.source, f"root://{job.host}:{job.port}/{job.target}/"]


RIVALS: list[Rival] = [
    LocalCopy(), Iperf(), IperfFile(), RsyncDaemon(), RsyncSsh(), RsyncSsh("rsync-ssh-aes", "aes128-gcm@openssh.com"), TarSocat(),
    RcloneSftp(), RcloneServe(), GridFtp("gridftp", 16, 4), GridFtp("gridftp-1", 16, 1), Xrootd()]
