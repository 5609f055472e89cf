"""Command lines of all processes of this host, looked at again and again, as any user may."""
from __future__ import annotations

import pathlib
import threading
import time

#: A process that was given a secret as an argument has so long to take it away, seconds: a bound for a busy machine.
GRACE = 5.0


class Watch:
    """A context manager: within it, no command line may have one of ``secrets``, but for a process's first moments if ``grace``."""

    def __init__(self, *secrets: str, grace: bool = False):
        self.secrets, self.grace = [s.encode() for s in secrets], grace
        self.seen: list[str] = []
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, kind, *_) -> None:
        self._over.set()
        self._thread.join(30)
        assert kind or not self.seen, f"on a command line: {self.seen[0]}"
        assert kind or self.looks > 0

    def _look(self) -> None:
        first: dict[str, float] = {}
        while not self._over.wait(0.002):
            self.looks += 1
            for entry in pathlib.Path("/proc").iterdir():
                if not entry.name.isdigit():
                    continue
                began = first.setdefault(entry.name, time.monotonic())
                try:
                    line = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                young = self.grace and time.monotonic() - began < GRACE
                if not young and any(secret in line for secret in self.secrets):
                    self.seen.append(line.replace(b"\0", b" ").decode(errors="replace")[:200])
