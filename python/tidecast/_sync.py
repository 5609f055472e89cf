"""The functions of this package that wait."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _transfer
from ._operation import Progress
from ._transfer import AnyPath, Manifest, Path, Swarm, Tree, seed, share

__all__ = ["bcast_files", "get", "publish", "seed", "share", "verify"]


def publish(path: AnyPath, output: AnyPath | None = None, *, tree: Tree = Tree(), private: bool = False, trackers: Sequence[str] = (),
            web_seeds: Sequence[str] = (), state_dir: AnyPath | None = None, progress: Progress = False) -> Manifest:
    """Describes a file or directory in a manifest, a standard .torrent file, written to ``output`` if that is given.

    Each byte is read once, on all cores. What is interrupted goes on where it was when the same is called again.

    :param private: only nodes with a ticket, which :func:`seed` makes, will take part
    :param trackers: URLs of trackers to name in it
    :param web_seeds: URLs to fetch from beside peers: of the directory around ``path``, ending in ``/``, or of the file
    :raises FaultError: something cannot be read, or ``output`` not written
    """
    return _transfer.publish(path, output, tree=tree, private=private, trackers=trackers, web_seeds=web_seeds,
                             state_dir=state_dir).run(progress)


def get(source: AnyPath, to: AnyPath, *, files: Sequence[str] = (), seed_for: float | None = None, timeout: float | None = None,
        force: bool = False, delete: bool = False, base: Sequence[AnyPath] = (), swarm: Swarm = Swarm(),
        state_dir: AnyPath | None = None, progress: Progress = False) -> Path:
    """Fetches what a ticket, a magnet link or a manifest leads to into the directory ``to``; gives its path there.

    It appears under its own name, whole and verified, or not at all. What is interrupted goes on where it was when the same is
    called again.

    :param source: a ticket, a magnet link, the path of a manifest or of a file that has a ticket, or ``@FILE``
    :param files: globs of the files to fetch; all, if empty
    :param seed_for: serve others for so many seconds when all is there
    :param timeout: give up after so many seconds
    :param force: replace what stands there though Tidecast did not deliver it
    :param delete: remove what was delivered there and is not published any more
    :param base: older versions: what they have is not fetched
    :raises CutError: ``timeout`` is over, or it was stopped
    """
    return _transfer.get(source, to, files=files, seed_for=seed_for, timeout=timeout, force=force, delete=delete, base=base,
                         swarm=swarm, state_dir=state_dir).run(progress)


def verify(manifest: AnyPath, path: AnyPath, *, progress: Progress = False) -> dict[str, Any]:
    """Compares a file or directory with its manifest; every byte is read. Gives the fields of the event ``done``.

    :raises FaultError: something differs: ``reached`` has the lists ``damaged``, ``missing`` and ``extra``
    """
    return _transfer.verify(manifest, path).run(progress)


def bcast_files(source: AnyPath, to: AnyPath, hosts: str | Sequence[str] | None = None, *, exclude: str | None = None,
                launch: str = "auto", program: str = "tidecast", plain: bool = False, durable: bool = False, force: bool = False,
                delete: bool = False, base: Sequence[AnyPath] = (), progress: Progress = False) -> dict[str, Any]:
    """Puts a file or directory at the same path on many hosts. Gives the fields of the event ``done``.

    :param to: an absolute path; ``{host}`` in it becomes each host's name; with a slash at the end, the directory to put it into
    :param hosts: a list (``node[001-064]``, ``@FILE``) or names; by default those of the Slurm, PBS, LSF or Open MPI job
    :param exclude: hosts to leave out
    :param launch: how workers are started: ``auto``, ``ssh``, ``srun``, ``mpirun``, or a command with ``{host}`` and ``{command}``
    :param program: the program ``tidecast`` on the hosts
    :raises FaultError: hosts failed: ``reached`` says which; the others completed
    """
    return _transfer.bcast_files(source, to, hosts, exclude=exclude, launch=launch, program=program, plain=plain, durable=durable,
                                 force=force, delete=delete, base=base).run(progress)
