"""`tidecast.Group` in a process of its own: Ctrl-C, forks, groups that are dropped, buffers that stay their owner's."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import gc, json, os, sys, threading
import tidecast
def give(**what): print(json.dumps(what, default=str), flush=True)
"""


@pytest.fixture
def script(package, tmp_path):
    """script(text) -> the process that runs it, with a directory of its own."""
    environment = {**os.environ, **package}
    running = []

    def begin(text: str, *words) -> subprocess.Popen:
        argv = [sys.executable, "-uc", PRELUDE + textwrap.dedent(text), *map(str, words)]
        running.append(subprocess.Popen(argv, cwd=tmp_path, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.communicate(timeout=60)


def given(process: subprocess.Popen) -> dict:
    """Its result, at its end."""
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    what: dict = {}
    for line in out.splitlines():
        what.update(json.loads(line))
    return what


CALLS = {
    "a broadcast": "group.bcast(buffer, 1, timeout=1000)",
    "the root's": "group.bcast(buffer, 0, timeout=1000)",
    "another group": "tidecast.Group(group='127.0.0.1:1', rank=1, size=2, secret='s', timeout=1000)",
    "the one call": "tidecast.bcast(buffer, group='127.0.0.1:1', rank=1, size=2, secret='s', timeout=1000)",
}


@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_a_call_that_waits(script, call):
    process = script(f"""
        buffer = bytearray(100_000_000)
        with tidecast.Group(group=":0", rank=0, size=2, secret="s") as group:
            try:
                give(calling=True)
                {CALLS[call]}
            except KeyboardInterrupt:
                give(interrupted=True)
            buffer.append(1)  # An exported buffer could not grow.
            give(grown=True)
    """)
    assert json.loads(process.stdout.readline()) == {"calling": True}
    process.send_signal(signal.SIGINT)
    assert given(process) == {"interrupted": True, "grown": True}


def test_who_breaks_off_has_left_and_the_others_go_on(script, port):
    at = f"127.0.0.1:{port()}"
    first = script("""
        group = tidecast.Group(group=sys.argv[1], rank=0, size=3, secret="s")
        give(open=True)
        sys.stdin.readline()
        give(missed=group.bcast(b"x" * 1000, timeout=200))
        group.close()
    """, at)
    # Ctrl-C comes while the call waits: before it, nothing would have been broken off.
    broken = script("""
        import signal
        group, buffer, over = tidecast.Group(group=sys.argv[1], rank=1, size=3, secret="s"), bytearray(1000), threading.Event()
        def interrupt():
            while not over.wait(0.3):
                if sys._current_frames()[threading.main_thread().ident].f_code.co_name == "bcast":
                    os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        while not over.is_set():
            try:
                group.bcast(buffer, timeout=1000)
            except KeyboardInterrupt:
                pass
            except tidecast.Lost as error:
                over.set()
                give(lost=error.code)
        group.close()
    """, at)
    assert given(broken) == {"lost": 3}
    first.stdin.write("go\n")
    first.stdin.flush()
    third = script("""
        buffer = bytearray(1000)
        with tidecast.Group(group=sys.argv[1], rank=2, size=3, secret="s") as group:
            group.bcast(buffer, timeout=200)
        give(received=buffer == b"x" * 1000)
    """, at)
    assert given(third) == {"received": True} and given(first) == {"open": True, "missed": [1]}


def test_a_forked_process_is_no_member(script):
    process = script("""
        group = tidecast.Group(group=":0", rank=0, size=1, secret="s")
        child = os.fork()
        if not child:
            try:
                group.bcast(bytearray(5))
            except ValueError as error:
                said = str(error)
            # Neither waits for threads that only the parent has.
            group.close()
            del group
            gc.collect()
            os._exit(0 if "forked process" in said else 1)
        give(child=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), missed=group.bcast(bytearray(5)))
    """)
    assert given(process) == {"child": 0, "missed": []}


def test_python_runs_while_ranks_wait_for_each_other(script):
    """Rank 1 is a thread that calls only when the main thread, which waits in its call, lets Python run."""
    process = script("""
        group, buffer = tidecast.Group(group=":0", rank=0, size=2, secret="s"), bytearray(b"y" * 50)
        received = bytearray(50)
        def other():
            with tidecast.Group(group=group._member.address, rank=1, size=2, secret="s") as member:
                member.bcast(received)
        thread = threading.Thread(target=other)
        thread.start()
        give(missed=group.bcast(buffer), same=None)
        thread.join()
        give(same=received == buffer)
    """)
    assert given(process) == {"missed": [], "same": True}


def test_a_group_that_is_dropped_has_left(script):
    process = script("""
        group = tidecast.Group(group=":0", rank=0, size=2, secret="s")
        def other():
            tidecast.Group(group=group._member.address, rank=1, size=2, secret="s")
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        give(missed=group.bcast(b"z" * 10, timeout=200))
    """)
    assert given(process) == {"missed": [1]}


def test_a_buffer_is_locked_during_a_call_and_free_after_it(script):
    process = script("""
        group, buffer = tidecast.Group(group=":0", rank=0, size=1, secret="s"), bytearray(10)
        group.bcast(buffer)
        buffer.append(1)
        try:
            group.bcast(memoryview(buffer)[::2])
        except ValueError as error:
            give(why=str(error))
        buffer.append(1)
        give(length=len(buffer))
    """)
    assert given(process) == {"why": "the buffer is not contiguous: its bytes do not lie in one piece (numpy.ascontiguousarray makes a "
                                     "copy that does)", "length": 12}
