"""Sending from within a simulation: steps go through memory that is shared with a `tidecast field send`."""
from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
import warnings
from typing import Any

import numpy as np

from ._field_memory import FieldError
from ._field_values import check, put

#: Volumes in the shared memory.
SLOTS = 3


class Sender:
    """Sends the steps of a simulation as they come.

    :param to: ``"host:port"`` of the receiver, or several of them in a list
    :param shape: of the arrays: z, y, x
    :param key: the receiver's key, or ``"@file"`` that has it; by default the variable ``TIDECAST_FIELD_KEY``. ``""``: plain
    :param program: the tidecast program
    :param options: flags of `tidecast field send`: ``rate="1gbit"``, ``streams=32``, ``fec="5%"``

    Use it in ``with``, or call :meth:`close`.
    """

    def __init__(self, to: str | list[str], shape: tuple[int, int, int], *, key: str | None = None, name: str = "simulation",
                 program: str = "tidecast", **options: Any):
        self.shape = tuple(int(n) for n in shape)
        if len(self.shape) != 3 or min(self.shape) < 1:
            raise ValueError(f"a shape is three lengths, z, y, x; not {shape}")
        #: Steps that were given to be sent, and those for which there was no room.
        self.sent, self.dropped = 0, 0
        #: What the program said last: rate, step, lost, and so on; at the end its summary.
        self.progress: dict[str, Any] = {}
        self._next, self._error = 0, ""
        self._free: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        size = 4 * int(np.prod(self.shape, dtype=np.int64))
        memory = os.memfd_create("tidecast-feed")
        os.ftruncate(memory, size * SLOTS)
        self._slots = np.memmap(os.fdopen(os.dup(memory), "r+b"), "<f4", "r+", shape=(SLOTS, *self.shape))
        hear, their_say = os.pipe()
        their_hear, say = os.pipe()
        self._hear, self._say = os.fdopen(hear, "r"), os.fdopen(say, "w")
        theirs = (memory, their_hear, their_say)
        environment = dict(os.environ)
        if key is not None:
            environment["TIDECAST_FIELD_KEY"] = key
        if key == "":
            del environment["TIDECAST_FIELD_KEY"]
        argv = [program, "--json", "field", "send", "feed:" + ",".join(f"/dev/fd/{fd}" for fd in theirs),
                f"--to={to if isinstance(to, str) else ','.join(to)}", *(["--plain"] if key == "" else [])]
        for option, value in options.items():
            # With = a value is a value, whatever it begins with.
            argv.append(f"--{option.replace('_', '-')}" + ("" if value is True else f"={value}"))
        self._tell({"shape": self.shape, "steps": None, "name": name})
        try:
            self._program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environment,
                                             pass_fds=theirs)
        except OSError as error:
            raise FieldError(f"cannot start {program}: {error}") from None
        finally:
            for fd in theirs:
                os.close(fd)
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._listen, self._follow)]
        for thread in self._threads:
            thread.start()

    def _tell(self, line: dict[str, Any]) -> None:
        print(json.dumps(line), file=self._say, flush=True)

    def _listen(self) -> None:
        """Slots that are free; None when there will be none."""
        for line in self._hear:
            self._free.put(json.loads(line)["fill"])
        self._free.put(None)

    def _follow(self) -> None:
        """What the program says."""
        assert self._program.stdout
        for line in self._program.stdout:
            event = json.loads(line)
            if event["event"] == "error":
                self._error = event["message"]
            # An error with a summary is that receivers did not take what was sent to its end.
            if event["event"] in ("progress", "done") or "steps" in event and event["event"] == "error":
                self.progress = event

    def put(self, array: Any, step: int | None = None, timeout: float = 0.0) -> bool:
        """Gives a step to be sent; the array may be changed at once. True if there was room for it within ``timeout`` seconds, else
        it is dropped. Masked values of a masked array arrive as NaN.

        :param step: its number, which rises; by default those that were put are counted, dropped ones too
        :raises FieldError: the program has ended
        :raises TypeError: its values are no real numbers
        """
        array = np.asanyarray(array)
        check(array.dtype)
        if array.shape != self.shape:
            raise ValueError(f"the array has the shape {array.shape}, not {self.shape}")
        step = self._next if step is None else int(step)
        if step < self._next:
            raise ValueError(f"step {step} comes after {self._next - 1}: numbers rise")
        self._next = step + 1
        try:
            slot = self._free.get(timeout=timeout) if timeout > 0 else self._free.get_nowait()
        except queue.Empty:
            self.dropped += 1
            return False
        try:
            if slot is None:
                raise BrokenPipeError
            put(array, self._slots[slot])
            self._tell({"filled": slot, "step": step})
        except BrokenPipeError:
            self._free.put(None)
            self._program.wait(10)
            self._threads[1].join(10)
            raise FieldError(self._error or "tidecast field send has ended") from None
        self.sent += 1
        return True

    def close(self, timeout: float = 60.0) -> None:
        """Sends what is still to be sent, for at most so many seconds, and ends. That a receiver did not take it is a warning: nobody has
        to look at a simulation.

        :raises FieldError: the program has failed
        """
        if self._say.closed:
            return
        until = time.monotonic() + timeout
        try:
            self._say.close()
        except BrokenPipeError:
            pass
        try:
            code = self._program.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._program.terminate()
            code = self._program.wait()
            self._error = f"not all was sent within {timeout} s"
        for thread in self._threads:
            thread.join(10)
        self._hear.close()
        if code and self.progress.get("event") == "error":
            warnings.warn(self._error, RuntimeWarning, stacklevel=2)
        elif code:
            raise FieldError(self._error or f"tidecast field send has ended with code {code}")

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except FieldError:
            # What went wrong first is what counts.
            if kind is None:
                raise
