"""The exceptions of this package. They mirror the exit codes of the program."""
from __future__ import annotations

import re
from typing import Any


def escaped(text: str) -> str:
    """``text`` without control characters, which names may have: a terminal would obey them."""
    return _CONTROL.sub(lambda sign: f"\\x{ord(sign[0]):02x}", text)


#: Those of ASCII and of Latin-1, without the tab and the end of a line.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Error(RuntimeError):
    """An operation of Tidecast failed.

    :param text: what failed, on which object, why, and what to do
    :ivar code: the exit code that the program ends with: 1, 2 or 3. Of :class:`~tidecast.Group`, the code of ``tidecast.h``
    :ivar reached: how far the operation came: the fields of its result that are known, as in ``docs/events.md``
    """

    def __init__(self, text: str, code: int = 1, reached: dict[str, Any] | None = None):
        super().__init__(escaped(text))
        self.code = code
        self.reached = reached or {}


class FaultError(Error):
    """The data, the peer or the host is at fault (exit code 1). As :class:`Error`."""


class UsageError(Error, ValueError):
    """The arguments are wrong: the same call fails again (exit code 2). As :class:`Error`."""

    def __init__(self, text: str, code: int = 2, reached: dict[str, Any] | None = None):
        super().__init__(text, code, reached)


class CutError(Error):
    """It timed out or was stopped; the same call resumes it (exit code 3). As :class:`Error`."""


class Lost(Error):
    """This rank is no longer in the group: it was removed, or rank 0 has ended. Every further call fails too. As :class:`Error`."""


_BY_CODE = {1: FaultError, 2: UsageError, 3: CutError}


def of(failed: dict[str, Any]) -> Error:
    """The exception for a failure of the extension module."""
    code = failed["code"]
    return _BY_CODE.get(code, Error)(failed["message"], code, failed.get("reached"))
