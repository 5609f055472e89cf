"""`tidecast.field.Receiver` and `Sender` in one process, each without a program beside it."""
from __future__ import annotations

import uuid

import pytest

pytestmark = pytest.mark.xdist_group("python-libraries")


@pytest.fixture
def name() -> str:
    return "test-" + uuid.uuid4().hex[:12]


def test_steps_go_from_python_to_python(beside, name):
    given = beside(f"""
        import numpy as np, tidecast.field
        key, shape, events = "a" * 52, (9, 12, 20), []
        with tidecast.field.Receiver("127.0.0.1:0", name={name!r}, streams=3, volume="steps", key=key, progress=events.append) as here:
            with tidecast.field.Sender(f"127.0.0.1:{{here.ports[0]}}", shape, key=key, streams=3, name="in situ") as sender:
                while not here.last:
                    sender.put(np.zeros(shape), timeout=1)
                with here.open(60) as field:
                    assert field.title == "in situ" and field.shape == shape
                    # What is lost on the way is lost: another step brings it.
                    while not (field.read().array == 7).all():
                        sender.put(np.full(shape, 7.0), step=max(1000, sender._next), timeout=1)
                    assert field.step >= 1000
            give(sent=sender.sent, steps=sender.progress["steps"], name=here.name)
        given = here.close()
        give(received=given["steps"], kinds=sorted({{event["event"] for event in events}}), files=tidecast.field.names())
    """)
    assert given["sent"] == given["steps"] > 0 and given["name"] == name and given["received"] > 0
    assert {"done", "session", "started", "step"} <= set(given["kinds"]) and name not in given["files"]


def test_a_receiver_ends_after_its_steps_and_says_what_is_wrong(beside, name):
    given = beside(f"""
        import numpy as np, tidecast.field
        here = tidecast.field.Receiver("127.0.0.1:0", name={name!r}, streams=1, steps=2, key="")
        give(going=here.wait(0.01), send=here.send)
        try:
            here.open(0.01)
        except tidecast.field.FieldError as error:
            give(none=str(error))
        try:
            tidecast.field.Receiver("127.0.0.1:0", name={name!r}, key="")
        except tidecast.FaultError as error:
            give(taken=str(error))
        with tidecast.field.Sender(f"127.0.0.1:{{here.ports[0]}}", (4, 4, 4), key="", streams=1, rate=1_000_000, fec=0.5) as sender:
            while not here.wait(0.01):
                sender.put(np.ones((4, 4, 4)), timeout=0.1)
        give(steps=here.close()["steps"])
        for wrong in [dict(volume="all"), dict(missing="zero"), dict(streams=0), dict(listen="here"), dict(key="zz"),
                      dict(volume="live", complete=True), dict(steps=0), dict(name="a/b")]:
            try:
                tidecast.field.Receiver(**{{"name": {name!r}, **wrong}})
            except tidecast.UsageError as error:
                give(**{{f"wrong_{{next(iter(wrong))}}": str(error)}})
        with tidecast.field.Sender("127.0.0.1:9", (4, 4, 4), key="") as sender:
            for step in (2**32 - 2, 2**40):
                try:
                    sender.put(np.ones((4, 4, 4)), step=step)
                except ValueError as error:
                    give(high=str(error))
            for step in (0.9, 8.0, "5"):
                try:
                    sender.put(np.ones((4, 4, 4)), step=step)
                except TypeError as error:
                    give(**{{f"no_step_{{step}}": str(error)}})
        for wrong in [dict(rate="fast"), dict(packing="x"), dict(order="x"), dict(fec="x"), dict(key="zz"), dict(streams=0)]:
            try:
                tidecast.field.Sender("127.0.0.1:9", (4, 4, 4), **{{"key": "", **wrong}})
            except tidecast.UsageError as error:
                give(**{{f"sender_{{next(iter(wrong))}}": str(error)}})
    """, PYTHONWARNINGS="ignore")
    assert given["going"] is False and "no sender has come" in given["none"] and name in given["taken"] and given["steps"] == 2
    assert all(given[f"wrong_{word}"] for word in ("volume", "missing", "streams", "listen", "key", "steps", "name"))
    assert "too high" in given["high"]
    assert all(given[f"no_step_{step}"] for step in (0.9, 8.0, "5"))
    assert all(given[f"sender_{word}"] for word in ("rate", "packing", "order", "fec", "key", "streams"))


def test_steps_go_when_a_controller_commands(beside, name, port):
    """By `tidecast field sync`; sending threads keep to their core."""
    given = beside(f"""
        import numpy as np, subprocess, tidecast.field
        key, shape, at = "a" * 52, (4, 8, 8), "127.0.0.1:{port()}"
        core = min(os.sched_getaffinity(0))
        with tidecast.field.Receiver("127.0.0.1:0", name={name!r}, streams=1, volume="steps", key=key) as here:
            with tidecast.field.Sender(f"127.0.0.1:{{here.ports[0]}}", shape, key=key, streams=1, sync=at, cpus=[core]) as sender:
                while sender.put(np.ones(shape)):
                    pass
                give(before=here.last)
                words = ["tidecast", "field", "sync", "--to", at, "--every", "100ms", "--key", "-"]
                clock = subprocess.Popen(words, stdin=subprocess.PIPE, text=True)
                clock.stdin.write(key + "\\n")
                clock.stdin.close()
                while not here.last:
                    sender.put(np.ones(shape), timeout=1)
                threads = [os.sched_getaffinity(int(task)) for task in os.listdir("/proc/self/task")]
                give(pinned={{core}} in threads, step=here.last["step"], running=clock.poll())
            clock.terminate()
            clock.wait(60)
    """, PYTHONWARNINGS="ignore")
    assert given["before"] == {} and given["pinned"] and given["step"] >= 0 and given["running"] is None
