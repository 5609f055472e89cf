"""Experiments beside the matrices, by name."""
from __future__ import annotations

from ..cached.stagein import Cached
from ..mounts.libraries import Libraries
from ..mounts.startup import Fairness, StartUp
from .common import MORE, Experiment
from .faults import Faults
from .loopback import Loopback
from .survive import OriginKilled, Rerun
from .trees import Manifest, Tree
from .tuning import Tuning

MORE |= {"faults": Faults(), "tree": Tree(), "origin-killed": OriginKilled(), "rerun": Rerun(), "loopback": Loopback(),
         "manifest": Manifest(), "mount": StartUp(), "mount-fairness": Fairness(),
         "libraries": Libraries(), "cached": Cached(), "tuning": Tuning()}
__all__ = ["MORE", "Experiment"]
