"""MPI_Bcast of Open MPI and MPICH, from barrier to slowest rank, with the algorithm forced.

Open MPI's own choice for 64 ranks over TCP is a tree that takes 19 times the bound, so each algorithm is a tool of its own.
"""
from __future__ import annotations

import re

from ..native import compiled
from ..process import Failed
from ..stage import LAB, ROOT
from .base import Job, Times, Tool

ONNODE = ROOT / "lab/experiments/onnode"
SUBNET = "10.77.0.0/16"


class Mpi(Tool):
    """The common part of both."""

    ordered = True
    compiler = ""

    def hosts(self, job: Job, line: str) -> str:
        path = job.stage.folder / "mpi-hosts"
        path.write_text("".join(line.format(job.stage.address(n)) + "\n" for n in job.stage.order))
        return str(path)

    def environment(self, job: Job) -> dict:
        """How long a rank sleeps that has nothing to do: well below a segment's time, and longer where more share the cores."""
        return {"YIELD_US": "500" if job.stage.count <= 16 else "4000", "TIDECAST_LAB": LAB}

    def program(self, job: Job) -> list[str]:
        return [str(compiled("bcast.c", f"bcast.{self.compiler}", self.compiler)), str(job.source),
                str(job.stage.folder / "out/%s/copy")]

    def preload(self) -> str:
        return str(compiled("yield.c", "yield.so", "gcc", "-shared", "-fPIC"))

    def command(self, job: Job) -> list[str]:
        raise NotImplementedError

    def run(self, job: Job) -> Times:
        process = job.stage.start(0, self.command(job), self.name, self.environment(job))
        process.until("ranks are ready", lambda: "go\n" in process.out(), 90)
        job.meter.go()
        process.until("the broadcast's end", lambda: "done" in process.out(), job.limit)
        job.meter.end()
        seconds = re.search(r"^done ([\d.]+)$", process.end(60), re.M)
        if not seconds:
            raise Failed(process.words())
        return Times(float(seconds[1]), process.ended - process.began)


class OpenMpi(Mpi):
    compiler = "mpicc.openmpi"
    needs = ("mpirun.openmpi", "mpicc.openmpi", "gcc")

    def __init__(self, name: str, about: str, algorithm: int | None, segment: int = 0):
        """`algorithm`: 3 pipeline, 4 split-binary, 6 binomial, 8 scatter-allgather, 9 the same in a ring; or its own choice."""
        self.name, self.about, self.algorithm, self.segment = name, about, algorithm, segment

    def command(self, job: Job) -> list[str]:
        wishes = {"plm_rsh_agent": ONNODE, "plm_rsh_no_tree_spawn": 1, "plm_rsh_num_concurrent": 16,
                  "oob_tcp_if_include": SUBNET, "btl": "tcp,self", "btl_tcp_if_include": SUBNET, "pml": "ob1",
                  "mpi_yield_when_idle": 1, "orte_keep_fqdn_hostnames": 1}
        if self.algorithm is not None:
            wishes |= {"coll_tuned_use_dynamic_rules": 1, "coll_tuned_bcast_algorithm": self.algorithm,
                       "coll_tuned_bcast_algorithm_segmentsize": self.segment}
        return ["mpirun.openmpi", "--allow-run-as-root", "-np", str(job.stage.count), "--hostfile", self.hosts(job, "{} slots=1"),
                "--map-by", "node", "--bind-to", "none", *(w for k, v in wishes.items() for w in ("--mca", k, str(v))),
                "-x", f"LD_PRELOAD={self.preload()}", "-x", "YIELD_US", *self.program(job)]


class Mpich(Mpi):
    """Its launcher and UCX must be held to the emulated network; without that they leave it, and on some machines they do not end."""

    compiler = "mpicc.mpich"
    needs = ("mpirun.mpich", "mpicc.mpich", "gcc")

    def __init__(self, name: str, about: str, algorithm: str):
        self.name, self.about, self.algorithm = name, about, algorithm

    def environment(self, job: Job) -> dict:
        return super().environment(job) | {
            "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0", "MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_BCAST_INTRA_ALGORITHM": self.algorithm}

    def command(self, job: Job) -> list[str]:
        return ["mpirun.mpich", "-launcher", "rsh", "-launcher-exec", str(ONNODE), "-iface", "eth0", "-disable-hostname-propagation",
                "-f", self.hosts(job, "{}"), "-ppn", "1", "-n", str(job.stage.count), "-genv", "LD_PRELOAD", self.preload(),
                *self.program(job)]
