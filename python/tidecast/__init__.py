"""Tidecast: the same bytes into a buffer of every process of a group, from memory to memory.

    import tidecast
    tidecast.bcast(array)                                     # within an MPI job, from rank 0
    tidecast.bcast(array, group="node01:7000", rank=3, size=64, secret=secret)    # without MPI

``array`` is anything that lies in one piece in this process's memory: a NumPy array, a bytearray, a memoryview, or an
object with ``__dlpack__`` on the CPU (a PyTorch tensor). It is filled in place. Nothing touches a disk; ranks of one
host share memory, and the data comes to a host once.
"""
from ._errors import Error, Lost
from ._group import Group, bcast

__all__ = ["Error", "Group", "Lost", "bcast"]
