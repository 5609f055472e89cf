"""The programs that are compared, by name."""
from __future__ import annotations

from .base import Job, Times, Tool
from .bittorrent import Aria2, Ctorrent, Libtorrent
from .mpi import Mpich, OpenMpi
from .multicast import Udpcast, Uftp
from .slurm import Sbcast
from .tidecast import Tidecast

SEGMENT = 131072  # where Open MPI's pipeline is fastest

_ALL: list[Tool] = [
    Tidecast("tidecast", "Tidecast, told the topology", told=True),
    Tidecast("tidecast-auto", "Tidecast, told nothing"),
    Tidecast("tidecast-swarm", "Tidecast, a swarm without a plan", "--algorithm", "swarm"),
    Tidecast("tidecast-plain", "Tidecast, told the topology, not encrypted", "--plain", told=True),
    OpenMpi("ompi-pipe", "Open MPI, pipeline of 128 KiB", 3, SEGMENT),
    OpenMpi("ompi-binomial", "Open MPI, binomial", 6, SEGMENT),
    OpenMpi("ompi-ring", "Open MPI, scatter-allgather ring", 9),
    OpenMpi("ompi-splitbinary", "Open MPI, split-binary", 4, SEGMENT),
    OpenMpi("ompi-default", "Open MPI, its own choice", None),
    Mpich("mpich", "MPICH, its own choice", "auto"),
    Mpich("mpich-ring", "MPICH, scatter-allgather ring", "scatter_ring_allgather"),
    Sbcast("sbcast", "Slurm sbcast"),
    Sbcast("sbcast-fanout4", "Slurm sbcast, fanout 4", "--fanout=4"),
    Ctorrent(), Aria2(), Libtorrent(), Udpcast(), Uftp(),
]
TOOLS = {t.name: t for t in _ALL}
__all__ = ["TOOLS", "Job", "Times", "Tool"]
