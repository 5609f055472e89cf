"""The Python package for editors and type checkers."""
from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.xdist_group("python-libraries")


def test_a_function_and_its_twin_have_one_signature(beside):
    given = beside("""
        import inspect, typing
        from tidecast import _caches, _transfer, aio
        import tidecast.copy
        names = ["bcast_files", "get", "publish", "seed", "share", "verify"]
        pairs = [(getattr(tidecast, name), getattr(aio, name)) for name in names] + [(tidecast.copy.copy, aio.copy)]
        for waits, twin in pairs:
            assert inspect.signature(waits) == inspect.signature(twin), waits
            assert waits.__doc__ == twin.__doc__ and len(waits.__doc__) > 80, waits
            assert inspect.iscoroutinefunction(twin) and not inspect.iscoroutinefunction(waits), waits
            assert typing.get_type_hints(waits) == typing.get_type_hints(twin), waits
        waits, twin = tidecast.Caches(), aio.Caches()
        methods = [name for name in dir(tidecast.Caches) if not name.startswith("_")]
        for name in methods:
            assert inspect.signature(getattr(waits, name)) == inspect.signature(getattr(twin, name)), name
            assert inspect.iscoroutinefunction(getattr(twin, name)), name
        hints = typing.get_type_hints(tidecast.get)
        give(returns=hints["return"], timeout=hints["timeout"], shown=str(inspect.signature(tidecast.verify)),
             method=typing.get_type_hints(_caches.Caches.get)["return"], module=aio.get.__module__,
             methods=len(methods))
    """)
    assert given["returns"] == given["method"] == "<class 'pathlib.Path'>" and given["timeout"] == "float | None"
    assert given["shown"].endswith("progress: 'Progress' = False) -> 'dict[str, Any]'") and given["module"] == "tidecast.aio"
    assert given["methods"] >= 9


USER = """
from pathlib import Path
from typing import Any
from typing_extensions import assert_type
import tidecast
import tidecast.copy
from tidecast.copy import File

def told(event: dict[str, Any]) -> None: ...

assert_type(tidecast.get("a", to="b", timeout=1.5, progress=told), Path)
assert_type(tidecast.copy("a", "b", checksum=True), dict[str, Any])
assert_type(tidecast.caches().get("nt"), Path)
for file in tidecast.copy.files("a"):
    assert_type(file, File)
with tidecast.share("a") as shared:
    assert_type(shared.ticket, str)

async def main() -> None:
    assert_type(await tidecast.aio.get("a", "b", files=["*.nc"]), Path)
    assert_type(await tidecast.aio.share("a"), tidecast.Share)
    assert_type(await tidecast.aio.caches().get("nt", wait=3), Path)
    assert_type(await tidecast.aio.copy(["a"], "b"), dict[str, Any])
"""
WRONG = """
import tidecast
tidecast.get("a")
tidecast.get("a", "b", files=3)
tidecast.copy("a", "b", checksums=True)
tidecast.aio.get("a", "b", time=3)
tidecast.caches().get("nt", lnk="copy")
"""


def test_a_users_program_is_checked(package, tmp_path):
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "wrong.py").write_text(WRONG)

    def check(name: str) -> subprocess.CompletedProcess:
        # Types come from the wheel as installed: by py.typed.
        words = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", tmp_path / "cache", name]
        return subprocess.run(words, cwd=tmp_path, env={**os.environ, **package, "MYPYPATH": package["PYTHONPATH"]}, text=True,
                              capture_output=True, timeout=240)

    def said(done: subprocess.CompletedProcess) -> list[str]:
        return [line for line in done.stdout.splitlines() if line.startswith(("user.py", "wrong.py")) and ": error:" in line]

    assert said(check("user.py")) == []
    lines = [line.split(":")[1] for line in said(check("wrong.py"))]
    assert sorted(set(lines)) == ["3", "4", "5", "6", "7"]


def test_asyncio_asks_a_daemon(beside):
    given = beside("""
        import asyncio, subprocess
        words = ["tidecast", "daemon", "--dir", "store", "--socket", "s", "--name", "here", "--machine", os.getcwd()]
        daemon = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        os.mkdir("data"); pathlib.Path("data/a").write_text("a")
        async def main():
            caches = tidecast.aio.caches("s")
            await caches.create("nt", "data")
            path, listed = await asyncio.gather(caches.get("here/nt"), caches.ls())
            endless = asyncio.create_task(caches.get("other/absent", wait=1000))
            await asyncio.sleep(0)
            endless.cancel()
            try:
                await endless
            except asyncio.CancelledError:
                give(cancelled=True)
            give(text=(path / "a").read_text(), listed=[cache["name"] for cache in listed])
        try:
            for line in daemon.stdout:
                if "users ask at" in line: break
            asyncio.run(main())
        finally:
            daemon.terminate()
            daemon.wait(60)
    """)
    assert given["text"] == "a" and given["listed"] == ["here/nt@1"] and given["cancelled"]


def test_every_docstring_says_what_its_parameters_are_and_what_is_raised(beside):
    given = beside(r"""
        import inspect, re
        import tidecast.field, tidecast.safetensors, tidecast.sim
        import tidecast.copy
        missing, silent = [], []
        # Values that others make: their attributes are told, not how they are made.
        made = {"Block", "Blocks", "Entry", "Field", "File", "Files", "Manifest", "Mount", "Reader", "Share", "Slab", "Swarm", "Tensor",
                "Table", "Tree", "Volume", "Closed", "FieldError", "Lost", "Error", "FaultError", "UsageError", "CutError"}
        def check(name, of, told):
            told = told + (of.__doc__ or "")
            for one in inspect.signature(of).parameters:
                if one not in ("self", "progress", "_") and not re.search(rf":(param|ivar) {one}:|``{one}``|:attr:`{one}`", told):
                    missing.append(f"{name}: {one}")
            if ":raises" not in told and "raise" not in told:
                silent.append(name)
        modules = [tidecast, tidecast.field, tidecast.sim, tidecast.safetensors, tidecast.copy]
        for module in modules:
            for name in module.__all__:
                of = getattr(module, name)
                if inspect.ismodule(of) or not callable(of) or not inspect.isroutine(of) and not inspect.isclass(of):
                    continue
                if not inspect.isclass(of):
                    check(name, of, "")
                    continue
                told = (of.__doc__ or "") + (of.__init__.__doc__ or "")
                if name not in made:
                    check(name, of, told)
                for method, its in vars(of).items():
                    if inspect.isfunction(its) and not method.startswith("_"):
                        assert its.__doc__, (name, method)
                        check(f"{name}.{method}", its, told if name != "Field" else told + "raise")
        give(missing=missing, silent=silent)
    """)
    assert given["missing"] == []
    # None of these can fail.
    assert set(given["silent"]) <= {"get_include", "get_library", "names", "Block.keep", "Block.release", "Files.release", "Blocks.release",
                                    "Files.close", "Blocks.close", "Receiver.wait", "Group.close"}, given["silent"]
