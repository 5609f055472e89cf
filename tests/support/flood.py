"""Connections that never prove anything, in a process of their own: most are silent after a first piece of a handshake, some
trickle. Connections that the listener closes are opened again. Prints `up N` after each look at them, N being how many are open.

    flood.py '{"to": ["127.0.0.1", 7000] or "/path/of/a/socket", "source": "127.0.0.9", "silent": 2000, "trickling": 300,
               "prefix": "1603010200", "user": 65534}'
"""
from __future__ import annotations

import json
import os
import resource
import socket
import sys
import time

#: Between two looks at all connections, seconds.
TICK = 1.0


class Connection:
    """One of them; `sent` counts the sent bytes of `words`."""

    def __init__(self, to, source: str | None, words: bytes, trickles: bool):
        self.to, self.source, self.words, self.trickles = to, source, words, trickles
        self.socket: socket.socket | None = None
        self.sent = 0
        self.dials = 0

    def dial(self) -> None:
        local = isinstance(self.to, str)
        self.socket = socket.socket(socket.AF_UNIX if local else socket.AF_INET)
        self.socket.setblocking(False)
        self.sent, self.dials = 0, self.dials + 1
        try:
            if self.source and not local:
                self.socket.bind((self.source, 0))
            self.socket.connect(self.to if local else tuple(self.to))
        except BlockingIOError:
            if local:  # the queue of the listener is full
                self.close()
        except OSError:
            self.close()

    def close(self) -> None:
        if self.socket:
            self.socket.close()
        self.socket = None

    def tend(self) -> None:
        """Sends the bytes that are due, and notices whether the other end has closed."""
        if not self.socket:
            return self.dial()
        try:
            due = self.words[:-1] if not self.sent else self.words[-1:] if self.trickles else b""
            if due:
                self.sent += self.socket.send(due)
            if not self.socket.recv(4096):
                self.close()
        except BlockingIOError:
            pass
        except OSError:
            self.close()


def main() -> None:
    words = json.loads(sys.argv[1])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if words.get("user"):
        os.setgroups([])
        os.setgid(words["user"])
        os.setuid(words["user"])
    prefix = bytes.fromhex(words.get("prefix", "")) + b"\0"
    silent, trickling = words.get("silent", 2000), words.get("trickling", 300)
    all_ = [Connection(words["to"], words.get("source"), prefix, n >= silent) for n in range(silent + trickling)]
    while True:
        next_ = time.monotonic() + TICK
        for connection in all_:
            connection.tend()
        print("up", sum(c.socket is not None for c in all_), sum(c.dials for c in all_), flush=True)
        time.sleep(max(0.0, next_ - time.monotonic()))


if __name__ == "__main__":
    main()
