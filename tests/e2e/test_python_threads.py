"""The Python package in threads, forked processes and blocks that an exception ends; and errors that nothing may hide."""
import os
import pathlib
import re

import pytest


def test_threads_share_the_files_of_a_copy(beside, tmp_path):
    for number in range(60):
        (tmp_path / f"many/{number}").parent.mkdir(exist_ok=True)
        (tmp_path / f"many/{number}").write_bytes(str(number).encode() * 1000)
    given = beside("""
        import tidecast.copy
        files, got = tidecast.copy.files("many/", memory=100_000), []
        def take():
            for file in files:
                with file.file as opened:
                    got.append((file.path, len(opened.read()) == file.bytes))
        threads = [threading.Thread(target=take) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        give(got=len(set(got)), all=all(good for _, good in got))
    """)
    assert given | {"stderr": ""} == {"stderr": "", "got": 60, "all": True}


def test_a_copy_is_not_ended_by_a_child_and_an_unreachable_one_ends_at_once(beside, tmp_path):
    (tmp_path / "many").mkdir()
    for number in range(50):
        (tmp_path / f"many/{number}").write_bytes(b"x" * 50_000)
    slow = tmp_path / "bin/ssh"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    given = beside("""
        import time, tidecast.copy
        with tidecast.copy.files("many/", memory=200_000) as files:
            first = next(files)
            if (child := os.fork()) == 0:
                try:
                    next(files)
                except RuntimeError:
                    del files, first
                    sys.exit(0)
                os._exit(1)
            give(child=os.waitpid(child, 0)[1], rest=sum(1 for _ in files))
        os.environ["PATH"] = os.getcwd() + "/bin:" + os.environ["PATH"]
        files = tidecast.copy.files("host:/x")
        began = time.monotonic()
        files.close()
        give(quick=time.monotonic() - began < 60, end=list(files))
        try:
            list(tidecast.copy.files("many/", "absent"))
        except tidecast.FaultError as error:
            give(reached=bool(error.reached))
    """)
    assert given | {"stderr": ""} == {"stderr": "", "child": 0, "rest": 49, "quick": True, "end": [], "reached": True}


def test_a_share_says_why_it_ended(script, tmp_path):
    (tmp_path / "data").write_bytes(b"x" * 100_000)
    given = script("""
        import logging, time
        records = []
        logging.getLogger("tidecast").addFilter(lambda record: records.append(record.getMessage()) or False)
        alone = tidecast.Swarm(listen="127.0.0.1:0", lsd=False, dht=False)
        with tidecast.share("data", swarm=alone, state_dir="a") as good:
            pass
        give(again=good.close() == good.close())
        try:
            with tidecast.share("data", swarm=alone, state_dir="a") as shared:
                open("data", "wb").write(b"y" * 100_000)
                peer = tidecast.Swarm(listen="127.0.0.1:0", lsd=False, dht=False, peers=shared.addresses)
                try:
                    tidecast.get(shared.ticket, "got", swarm=peer, state_dir="b", timeout=3)
                except tidecast.Error:
                    pass
                while shared.failed is None:
                    time.sleep(0.01)
                raise KeyError("mine")
        except KeyError:
            give(mine=True)
        kinds = []
        for _ in range(2):
            try:
                shared.close()
            except tidecast.FaultError as error:
                kinds.append(str(error))
        give(kinds=len(kinds), same=len(set(kinds)), said=any("has ended" in text for text in records))
    """)
    assert given | {"stderr": ""} == {"stderr": "", "again": True, "mine": True, "kinds": 2, "same": 1, "said": True}


@pytest.mark.parametrize("call", ["tidecast.caches('none').replicate('head/nt', to='node1')",
                                  "tidecast.bcast_files('data', '/x', 'a', base='/old')",
                                  "tidecast.copy.files('data', options='--delete')",
                                  "tidecast.copy('data', 'to', exclude='x')", "tidecast.get('a', 'to', files='*.nc')",
                                  "tidecast.get('a', 'to', base='old')", "tidecast.Swarm(peers='h:1')",
                                  "tidecast.Swarm(trackers='http://h/announce')", "tidecast.Tree(exclude='*.tmp')",
                                  "tidecast.publish('data', trackers='http://h/announce')",
                                  "tidecast.publish('data', web_seeds='http://h/')",
                                  "tidecast.mount('a', 'at', prefetch_exe='bin/python3')",
                                  "tidecast.run('a', ['true'], prefetch_exe='bin/python3')"])
def test_a_string_is_no_list(script, call):
    given = script(f"""
        import tidecast.copy
        try:
            {call}
        except TypeError as error:
            give(text=str(error))
    """)
    # The parameter is the last word of the call before its value.
    name, value = re.search(r"(\w+)=('[^']*')\)$", call).groups()
    assert given["text"] == f"{name} is a list, not str: write [{value}]"


def test_progress_of_asyncio_that_fails_ends_the_call(script, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a").write_bytes(b"x" * 1_000_000)
    given = script("""
        import asyncio
        def fails(event):
            raise KeyError("mine")
        async def coroutine(event):
            pass
        for progress, kind in ((fails, KeyError), (coroutine, TypeError)):
            try:
                asyncio.run(tidecast.aio.publish("data", progress=progress))
            except kind:
                give(**{kind.__name__: True})
    """)
    assert given | {"stderr": ""} == {"stderr": "", "KeyError": True, "TypeError": True}


def test_senders_and_receivers_that_are_dropped_or_broken_off_end(beside):
    name = f"dropped-{os.getpid()}"
    given = beside(f"""
        import gc, time, warnings
        import numpy as np
        import tidecast.field as F
        began = time.monotonic()
        try:
            with F.Sender("127.0.0.1:9", (8, 8, 8), key="", sync="127.0.0.1:0") as sender:
                sender.put(np.zeros((8, 8, 8)), timeout=1)
                raise ValueError
        except ValueError:
            give(quick=time.monotonic() - began < 30)
        with F.Sender("127.0.0.1:9", (8, 8, 8), key="") as sender, np.errstate(over="raise"):
            for _ in range(4):
                try:
                    sender.put(np.full((8, 8, 8), 1e300), timeout=10)
                except FloatingPointError:
                    pass
            give(free=sender.put(np.zeros((8, 8, 8)), timeout=100))
            warnings.simplefilter("ignore")
        for _ in range(3):
            F.Sender("127.0.0.1:9", (8, 8, 8), key="")
        gc.collect()
        def left():
            return [thread.name for thread in threading.enumerate() if thread.name in ("tidecast-feed", "tidecast-field")]
        until = time.monotonic() + 100
        while left() and time.monotonic() < until:
            time.sleep(0.01)
        give(left=left())
        receiver = F.Receiver("127.0.0.1:0", name={name!r}, key="")
        with F.Sender(f"127.0.0.1:{{receiver.ports[0]}}", (8, 8, 8), key="", streams=1) as sender:
            sender.put(np.ones((8, 8, 8)), timeout=10)
            field = receiver.open(100)
            field.close()
            for use in (lambda: field.step, lambda: field.array, lambda: field.wait(1), field.__enter__, field.read):
                try:
                    use()
                    give(used=True)
                except F.FieldError:
                    pass
            give(is_open=field.is_open)
        # The receiver is not closed: its memory goes with the process.
    """)
    assert given | {"stderr": ""} == {"stderr": "", "quick": True, "free": True, "left": [], "is_open": False}
    assert not pathlib.Path(f"/dev/shm/tidecast-field-{name}").exists()
