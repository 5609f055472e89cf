"""Power failures: a host's store is on a disk of its own, and after a cut the disk has its state of one instant.

Each disk is an ext4 file system in a file of an XFS file system. A reflink copies that file at once, with the data that the kernel
had written to the "disk" by then and without its cache, as after a loss of power.
"""
from __future__ import annotations

import copy
import os
import pathlib
import shutil
import signal
import subprocess
import uuid

from .marathon import Marathon, Runner

DISK = 192 << 20  # bytes


def sh(*argv) -> None:
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True)
    assert done.returncode == 0, f"{argv}: {done.stderr}"


def missing() -> str | None:
    """Why power cannot be cut here; None if it can."""
    if os.geteuid() != 0 or not os.path.exists("/dev/loop-control"):
        return "needs root and loop devices"
    return None if all(map(shutil.which, ("mkfs.xfs", "mkfs.ext4", "unshare"))) else "needs xfsprogs, e2fsprogs and util-linux (make setup)"


class Disks:
    """The file system in which disks can be copied at an instant. A context manager that unmounts its mounts."""

    def __init__(self, base: pathlib.Path):
        self.image, self.place, self.mounted = base / "disks.xfs", base / "disks", []

    def __enter__(self) -> "Disks":
        self.place.mkdir()
        with open(self.image, "wb") as file:
            file.truncate(4 << 30)
        sh("mkfs.xfs", "-q", "-m", "reflink=1", self.image)
        self.mount(self.image, self.place)
        return self

    def __exit__(self, *_) -> None:
        for place in reversed(self.mounted):
            sh("umount", "-l", place)
        self.image.unlink()

    def mount(self, image: pathlib.Path, place: pathlib.Path) -> None:
        sh("mount", "-o", "loop", image, place)
        self.mounted.append(place)

    def unmount(self, place: pathlib.Path) -> None:
        # At once, also under a client that has a file open: its later writes go to the old disk.
        sh("umount", "-l", place)
        self.mounted.remove(place)


class Powered(Runner):
    """A host with a disk, and a boot of its own after each cut."""

    disks: Disks

    def plug(self, disks: Disks) -> None:
        self.disks, self.disk, self.boot = disks, disks.place / f"{self.name}.img", self.home / "boot_id"
        with open(self.disk, "wb") as file:
            file.truncate(DISK)
        sh("mkfs.ext4", "-q", self.disk)
        self.power_on()

    def power_on(self) -> None:
        self.dir.mkdir(exist_ok=True)
        self.disks.mount(self.disk, self.dir)
        self.boot.write_text(f"{uuid.uuid4()}\n")

    def argv(self, *words) -> list[str]:
        argv = super().argv(*words)
        if words[0] != "daemon":
            return argv
        enter = f"mount --bind {self.boot} /proc/sys/kernel/random/boot_id && exec \"$@\""
        return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", enter, "sh", *argv]

    def stop(self) -> None:
        """The power fails. Acknowledged data must be there afterwards; the fate of later data is open."""
        with self.truth.lock:
            before = copy.copy(self.truth.committed), dict(self.truth.pinned), dict(self.truth.leases)
            self.truth.boots += 1
        after = self.disk.with_suffix(".after")
        sh("cp", "--reflink=always", self.disk, after)
        self.daemon.signal(signal.SIGKILL)
        self.daemon.wait()
        self.disks.unmount(self.dir)
        after.replace(self.disk)
        with self.truth.lock:
            committed, pinned, leases = before
            self.truth.committed = {id: name for id, name in committed.items() if id not in self.truth.gone}
            now = self.truth.pinned
            self.truth.pinned = {id: was if now.get(id) == was else None for id, was in pinned.items()}
            self.truth.leases = leases
        self.power_on()


class Cuts(Marathon):
    """The marathon, with power cuts for kills."""

    def __init__(self, disks: Disks, *words):
        self.disks = disks
        super().__init__(*words)

    def host(self, *words) -> Powered:
        return Powered(*words)

    def prepare(self, host: Powered) -> None:
        host.plug(self.disks)
