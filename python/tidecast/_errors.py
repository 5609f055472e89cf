"""What goes wrong."""
from __future__ import annotations


class Error(RuntimeError):
    """A broadcast failed for this rank; what is in its buffer is undefined. The group is still good, unless this is
    :class:`Lost`. ``code`` is that of tidecast.h. Or a program of Tidecast failed: ``code`` is what it ended with."""

    def __init__(self, text: str, code: int):
        super().__init__(text)
        self.code = code


class Lost(Error):
    """This rank is no longer of the group: it was given up, or rank 0 is gone. Every further call fails too."""
