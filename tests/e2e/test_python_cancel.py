"""Tasks of asyncio that are cancelled: the call ends, its buffers are free, and no thread is left."""
from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.xdist_group("wheel")

# cancelled(awaitable) -> the name of the exception that a task ends with which is cancelled while its thread is in the call.
PRELUDE = """
import asyncio, time

def ours():
    return [thread for thread in threading.enumerate() if thread.name.startswith("tidecast")]

async def until(is_so):
    end = time.monotonic() + 200
    while not is_so():
        assert time.monotonic() < end, "in vain"
        await asyncio.sleep(0.01)

async def cancelled(awaitable, is_so=ours):
    task = asyncio.create_task(awaitable)
    await until(lambda: is_so() or task.done())
    task.cancel()
    try:
        await task
    except BaseException as error:
        return type(error).__name__
    return "nothing"

async def over():
    await until(lambda: not ours())
    return [thread.name for thread in threading.enumerate()]
"""
NOWHERE = '"magnet:?xt=urn:btih:" + "0" * 40'


def lines(text: str) -> str:
    import textwrap
    return PRELUDE + textwrap.dedent(text)


@pytest.fixture
def tree(tmp_path):
    place = tmp_path / "data"
    (place / "sub").mkdir(parents=True)
    (place / "a").write_bytes(os.urandom(700_000))
    (place / "sub/b.txt").write_text("b")
    return place


CALLS = {
    "get": f'aio.get({NOWHERE}, "to", swarm=alone)',
    "open": f'aio.open({NOWHERE}, swarm=alone, cache="cache")',
    "mount": f'aio.mount({NOWHERE}, "at", swarm=alone, cache="cache")',
    "run": f'aio.run({NOWHERE}, ["true"], at=os.path.abspath("at"), swarm=alone, cache="cache")',
    "copy": 'aio.copy("fifo/data/", "to")',
    "publish": 'aio.publish("large")',
    "share": 'aio.share("large", swarm=alone)',
    "seed": 'aio.seed("large.torrent", "large", swarm=alone)',
    "verify": 'aio.verify("large.torrent", "large")',
    "simulate": 'aio.simulate("leafspine:100,16,40@100gbit", "100GiB")',
    "bcast": 'aio.bcast(buffer, group=":0", rank=0, size=2, secret="s", timeout=1000)',
    "bcast to join": 'aio.bcast(buffer, group="127.0.0.1:1", rank=1, size=2, secret="s", timeout=1000)',
    "bcast_files": "aio.bcast_files('data', os.path.abspath('to'), 'a,b', launch='sh -c \"exec sleep 1000\" {host} {command}', program='x')",
}


@pytest.mark.parametrize("name", [name for name in CALLS if name not in ("copy", "publish", "share", "seed", "verify")])
def test_a_cancelled_call_ends(script, tree, name):
    """Each of these waits for what never comes."""
    given = script(lines(f"""
        from tidecast import aio
        buffer = bytearray(100_000_000)
        async def main():
            give(ended=await cancelled({CALLS[name]}))
            buffer.append(1)  # An exported buffer could not grow.
            give(threads=await over(), left=sorted(os.listdir()))
        asyncio.run(main())
        give(free=True)
    """))
    assert given["ended"] == "CancelledError" and given["threads"] == ["MainThread"] and given["free"]


@pytest.mark.parametrize("name", ["publish", "share", "seed", "verify"])
def test_a_call_that_reads_a_large_file_ends(script, tmp_path, name):
    """A sparse file of a terabyte: hashing it takes minutes."""
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 20)
    prepare = 'tidecast.publish("large", "large.torrent", tree=tidecast.Tree(piece_length=1 << 24)); os.truncate("large", 1 << 40)'
    given = script(lines(f"""
        from tidecast import aio
        {prepare}
        async def main():
            give(ended=await cancelled({CALLS[name]}))
            give(threads=await over())
        asyncio.run(main())
    """))
    assert given["ended"] in ("CancelledError", "FaultError") and given["threads"] == ["MainThread"]


def test_a_group_goes_on_without_a_rank_whose_task_was_cancelled(script):
    """The rank has left: the others get their data, and its further calls are errors."""
    given = script(lines("""
        async def main():
            root = tidecast.Group(group=":0", rank=0, size=2, secret="s")
            how = dict(group=root._member.address, rank=1, size=2, secret="s", timeout=1000)
            buffer = bytearray(1000)
            give(ended=await cancelled(tidecast.aio.bcast(buffer, **how)))
            buffer.append(1)
            try:
                await tidecast.aio.bcast(bytearray(1000), **how)
            except tidecast.Lost as error:
                give(lost=error.code)
            give(missed=root.bcast(b"x" * 1000, timeout=200))
            root.close()
            give(free=len(buffer))
        asyncio.run(main())
    """))
    assert given["ended"] == "CancelledError" and given["lost"] == 3 and given["missed"] == [1] and given["free"] == 1001


def test_a_daemon_that_does_not_answer(script):
    given = script(lines("""
        import socket
        async def main():
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.bind("s")
                deaf.listen(100)
                caches = tidecast.aio.caches("s")
                calls = [caches.ls(), caches.show("a/b"), caches.extend("a/b", 5), caches.pin("a/b"), caches.rm("a/b"),
                         caches.replicate("a/b"), caches.where("a/b"), caches.get("a/b"), caches.create("b", "s")]
                give(ended=[await cancelled(call) for call in calls[:-1]], threads=await over())
                calls[-1].close()
        asyncio.run(main())
    """))
    assert given["ended"] == ["CancelledError"] * 8 and given["threads"] == ["MainThread"]


def test_what_comes_all_the_same_is_closed(script, tree):
    """The share has begun when its task is cancelled: it does not go on."""
    given = script(lines("""
        from tidecast import _transfer
        closed, begun = threading.Event(), threading.Event()
        class Late(_transfer.Share):
            def __init__(self, *rest):
                super().__init__(*rest)
                begun.set()
                stop.wait(100)
            def close(self):
                given = super().close()
                closed.set()
                return given
        stop = threading.Event()
        _transfer.Share = Late
        async def main():
            task = asyncio.create_task(tidecast.aio.share("data", swarm=alone))
            await until(begun.is_set)
            task.cancel()
            await asyncio.sleep(0)
            stop.set()
            try:
                await task
            except asyncio.CancelledError:
                give(ended=True)
            await until(closed.is_set)
            give(threads=await over())
        asyncio.run(main())
    """))
    assert given["ended"] and given["threads"] == ["MainThread"]


def test_progress_is_called_by_the_event_loop(script, tree):
    given = script(lines("""
        async def main():
            threads, events = set(), []
            def told(event):
                threads.add(threading.get_ident())
                events.append(event["event"])
            shared = await tidecast.aio.share("data", swarm=alone, progress=told)
            await asyncio.sleep(0)
            await asyncio.to_thread(shared.close)
            give(loop=threads <= {threading.get_ident()}, events=events)
        asyncio.run(main())
    """))
    assert given["loop"] and "started" in given["events"]
