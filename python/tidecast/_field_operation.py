"""A field's sender or receiver, which runs in this process beside the program."""
from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable

from . import _errors
from ._operation import Event, Native, tell


class Running:
    """An operation whose events a thread follows.

    :ivar started: the fields of the event ``started``; empty until then
    :ivar ended: the fields of the event ``done``, or of the partial result of a failed operation
    :ivar failed: why it failed
    """

    def __init__(self, native: Native, hear: Callable[[Event], None]):
        self._native, self._hear, self._process = native, hear, os.getpid()
        self.started: Event = {}
        self.ended: Event = {}
        self.failed: _errors.Error | None = None
        self._begun, self._over = threading.Event(), threading.Event()
        threading.Thread(target=self._follow, name="tidecast-field", daemon=True).start()

    def _follow(self) -> None:
        try:
            while (line := self._native.next()) is not None:
                event = json.loads(line)
                if event["event"] == "started":
                    self.started = event
                    self._begun.set()
                if event["event"] == "done":
                    self.ended = event
                tell(event, self._hear)
            good, text = self._native.result()
            said = json.loads(text)
            if not good:
                self.failed = _errors.of(said)
                self.ended = {"event": "error", "message": said["message"], **(said["reached"] or {})}
        except BaseException as error:  # noqa: BLE001 - of `hear`, which is a user's: it ends the operation
            self._native.stop()
            # Its ports and its name are free when it has ended.
            while self._native.next() is not None:
                pass
            self.failed = _errors.FaultError(f"the function that takes events failed: {type(error).__name__}: {error}")
        finally:
            self._over.set()
            self._begun.set()

    def wait_started(self) -> None:
        """Waits until it has begun; raises why it cannot."""
        try:
            self._begun.wait()
        except BaseException:
            self._native.stop()
            raise
        if self.failed is not None:
            raise self.failed

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the end, at most this many seconds; False: it still runs.

        :raises RuntimeError: this process was forked: the thread that follows the events is not in it
        """
        self.check()
        return self._over.wait(timeout)

    def check(self) -> None:
        """Raises in a process that was forked."""
        if os.getpid() != self._process:
            raise RuntimeError("this object belongs to another process: it was made before a fork")

    def stop(self) -> None:
        """Asks it to end."""
        self.check()
        self._native.stop()
