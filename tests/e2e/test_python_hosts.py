"""A cache, or the content of a ticket, once on each host of Dask, Ray and Parsl: the real libraries, on loopback."""
from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess

import pytest

pytestmark = pytest.mark.xdist_group("python-libraries")
BYTES = 3_000_000
# The setup of scripts: a daemon with the cache here/nt, or a share; and these check the results of tasks.
DAEMON = """
import contextlib, subprocess
os.environ["TIDECAST_SOCKET"] = os.path.abspath("s")
@contextlib.contextmanager
def daemon():
    words = ["tidecast", "daemon", "--dir", "store", "--socket", "s", "--name", "here", "--machine", os.getcwd()]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if "users ask at" in line: break
        tidecast.caches().create("nt", "data", lease=3600)
        yield tidecast.caches()
    finally:
        process.terminate()
        process.wait(60)
def users():
    return {use["pid"] for use in tidecast.caches().show("here/nt")["uses"] or [] if use.get("pid")}
"""
SHARE = """
os.environ.update(TIDECAST_LISTEN="127.0.0.1:0", TIDECAST_LSD="false", TIDECAST_STATE_DIR=os.path.abspath("workers"))
def share(): return tidecast.share("data", state_dir="origin")
"""
DASK = """
import tidecast.dask
from dask.distributed import Client, LocalCluster
def look(name=None):
    path = tidecast.dask.path(name)
    return str(path), (path / "a").stat().st_ino, (path / "sub/b.txt").read_text(), os.getpid()
def on_each(client, name=None):
    workers = sorted(client.scheduler_info()["workers"])
    return [client.submit(look, name, workers=[worker], pure=False).result(timeout=100) for worker in workers]
def cluster(n, **how): return LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=None, host="127.0.0.1", protocol="tcp://", **how)
"""


@pytest.fixture
def data(tmp_path) -> pathlib.Path:
    place = tmp_path / "data"
    (place / "sub").mkdir(parents=True)
    (place / "a").write_bytes(os.urandom(BYTES))
    (place / "sub/b.txt").write_text("b")
    return place


def test_dask_has_a_cache_on_each_host(beside, data):
    given = beside(DAEMON + DASK + """
with daemon(), cluster(2) as local, Client(local, timeout=100) as client:
    client.register_plugin(tidecast.dask.StageCache("here/nt"))
    first = on_each(client, "here/nt")
    give(first=first, users=len(users() & {pid for *_, pid in first}))
    local.scale(3)
    client.wait_for_workers(3, timeout=100)
    give(later=on_each(client), held=len(users()))
    try:
        client.submit(tidecast.dask.path, "other").result(timeout=100)
    except tidecast.UsageError as error:
        give(unknown=str(error))
    try:
        client.register_plugin(tidecast.dask.StageCache("here/absent", timeout=1))
    except tidecast.Error as error:
        give(absent=str(error), code=error.code)
""")
    assert len(given["first"]) == 2 and len(given["later"]) == 3
    assert len({(path, inode, text) for path, inode, text, _ in given["later"]}) == 1
    assert given["users"] == 2, "each worker's process holds the cache" and given["held"] >= 3
    assert "other" in given["unknown"] and "here/nt" in given["unknown"]
    host = os.uname().nodename
    assert given["absent"].startswith(f"cannot stage here/absent on {host}: ") and given["code"] in (1, 3)


@pytest.mark.parametrize("processes", [True, False])
def test_dask_fetches_by_a_ticket_once_a_host(beside, data, processes):
    given = beside(SHARE + DASK + f"processes = {processes}" + """
shared = share()
with cluster(3, processes=processes) as local, Client(local, timeout=100) as client:
    client.register_plugin(tidecast.dask.StageCache(shared.ticket, "scratch", name="nt"))
    give(seen=on_each(client, "nt"), names=[name for names in client.run(lambda dask_worker: list(dask_worker.plugins)).values() for name in names],
         ticket=shared.ticket)
give(sent=shared.close()["sent"])
""")
    assert len({(path, inode, text) for path, inode, text, _ in given["seen"]}) == 1 and len(given["seen"]) == 3
    assert given["seen"][0][0].endswith("/scratch/data") and given["sent"] < 2 * BYTES
    assert "tidecast-nt" in given["names"] and not any(given["ticket"] in name for name in given["names"])


def test_a_stage_waits_for_another_process_no_longer_than_its_timeout(beside, data):
    given = beside(SHARE + """
import multiprocessing, pickle, stat, time
from tidecast import _stage
shared = share()
stage = _stage.Stage(shared.ticket, "scratch", timeout=0.5)
fetched = _stage.Stage._fetched
def slow(self, to):
    with _stage._locked("held", 0): parent.send(1); parent.recv()
parent, child = multiprocessing.Pipe()
process = multiprocessing.get_context("fork").Process(target=slow, args=(None, None))
process.start()
parent, child = child, parent
parent.recv()
try:
    with _stage._locked("held", time.monotonic() + 0.2): pass
except tidecast.CutError as error:
    give(held=str(error))
parent.send(1)
process.join(60)
with _stage._locked("held", 0): give(after=True)
try:
    stage = _stage.Stage("magnet:?xt=urn:btih:" + "0" * 40, "scratch", name="none", timeout=0.5)
    stage.path()
except tidecast.CutError as error:
    again = pickle.loads(pickle.dumps(error))
    give(none=str(again), code=again.code)
one = _stage.Stage(shared.ticket, "scratch", name="nt")
path = one.path()
def never(*_, **__): raise AssertionError("fetched twice")
from tidecast import _transfer
get, _transfer.get = _transfer.get, never
_stage._here.clear()
give(shown=repr(one), ticket=shared.ticket, twice=str(pickle.loads(pickle.dumps(one)).path()) == str(path))
_transfer.get = get
import shutil
shutil.rmtree(path)
give(back=(one.path() / "sub/b.txt").read_text())
shared.close()
""")
    assert "not finished fetching" in given["held"] and given["after"] and given["code"] == 3
    assert given["none"].startswith("cannot stage none on ")
    assert given["twice"] and given["ticket"] not in given["shown"] and given["back"] == "b"


@pytest.mark.parametrize("trap", ["link", "open", "file"])
def test_locks_are_made_in_a_directory_of_the_users_alone(beside, tmp_path, trap):
    place = tmp_path / "first"
    if trap == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    elif trap == "open":
        place.mkdir()
        place.chmod(0o777)
    else:
        place.write_text("")
    given = beside("""
        from tidecast import _stage
        _stage._places = lambda: ["first", "second"]
        with _stage._locked("name", 0): pass
        give(mode=os.stat("second").st_mode & 0o777, there=os.listdir("second"))
        _stage._places = lambda: ["first"]
        for name in "name", "other":
            with _stage._locked(name, 0): pass
        own = [name for name in os.listdir() if name.startswith("first-")]
        give(own=len(own), its_mode=os.stat(own[0]).st_mode & 0o777, its=sorted(os.listdir(own[0])))
    """)
    assert given["mode"] == 0o700 and given["there"] == ["name"]
    assert given["own"] == 1 and given["its_mode"] == 0o700 and given["its"] == ["name", "other"]
    assert not (tmp_path / "elsewhere").exists() or not list((tmp_path / "elsewhere").iterdir())


PARSL = """
import parsl
from parsl import bash_app, python_app
from parsl.config import Config
from parsl.data_provider.data_manager import default_staging
from parsl.data_provider.files import File
from parsl.executors import HighThroughputExecutor, ThreadPoolExecutor
from parsl.providers import LocalProvider
from tidecast.parsl import TidecastStaging

@python_app
def look(at, inputs=()):
    import os
    return at.filepath, os.stat(inputs[0].filepath).st_ino, open(inputs[1].filepath).read(), os.getpid()

@bash_app
def shell(inputs=(), stdout="said"):
    return f"cat {inputs[0]}"

def use(executor):
    return parsl.load(Config(executors=[executor], run_dir="runs", strategy="none"))
"""


def test_parsl_stages_a_cache_and_what_is_in_it(beside, data):
    given = beside(DAEMON + PARSL + """
executor = HighThroughputExecutor(label="here", address="127.0.0.1", max_workers_per_node=2, encrypted=False, cores_per_worker=0.5,
                                  provider=LocalProvider(init_blocks=1, max_blocks=1), storage_access=[TidecastStaging(), *default_staging])
with daemon(), use(executor):
    nt = "tidecast://here/nt"
    seen = [look(File(nt), inputs=[File(nt + "/a"), File(nt + "/sub/b.txt")]) for _ in range(4)]
    give(seen=[one.result(timeout=150) for one in seen], users=len(users()))
    shell(inputs=[File(nt + "/sub/b.txt")]).result(timeout=100)
    give(said=open("said").read())
    try:
        look(File("tidecast://here/absent"), inputs=[File(nt), File(nt)]).result(timeout=200)
    except tidecast.Error as error:
        give(absent=str(error))
""")
    assert len({(path, inode, text) for path, inode, text, _ in given["seen"]}) == 1 and given["seen"][0][2] == "b"
    assert given["users"] >= 1 and given["said"] == "b" and given["absent"].startswith("cannot stage here/absent on ")


def test_parsl_fetches_by_the_file_of_a_ticket(beside, data):
    given = beside(SHARE + PARSL + """
shared = share()
pathlib.Path("nt.ticket").write_text(shared.ticket)
executor = ThreadPoolExecutor(label="here", max_threads=3, storage_access=[TidecastStaging(to="scratch"), *default_staging])
with use(executor):
    there = File("tidecast://" + os.path.abspath("nt.ticket"))
    inside = [File(f"tidecast://{shared.ticket}/{name}") for name in ("a", "sub/b.txt")]
    give(seen=[one.result(timeout=150) for one in [look(there, inputs=inside) for _ in range(3)]])
    try:
        look(File(f"tidecast://{shared.ticket}/../up"), inputs=inside).result(timeout=150)
    except ValueError as error:
        give(up=str(error))
give(sent=shared.close()["sent"])
""")
    assert len({(path, inode, text) for path, inode, text, _ in given["seen"]}) == 1
    assert given["seen"][0][0].endswith("/scratch/data") and given["sent"] < 2 * BYTES and "'..'" in given["up"]


RAY = """
import ray, tidecast.ray
def begin():
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False, object_store_memory=100_000_000,
             _temp_dir=os.environ["RAY_PLACE"])
@ray.remote
def look(staged):
    path = staged.path()
    return str(path), (path / "a").stat().st_ino, (path / "sub/b.txt").read_text(), os.getpid()
"""


@pytest.fixture
def ray_place():
    """A short path: Ray makes sockets below it."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("SKIPPED: ray is not installed (pip install ray)")
    import tempfile
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as place:
        yield {"RAY_PLACE": place, "RAY_USAGE_STATS_ENABLED": "0"}


def test_ray_has_a_cache_on_each_node(beside, data, ray_place):
    given = beside(DAEMON + RAY + """
with daemon():
    begin()
    try:
        with tidecast.ray.stage("here/nt") as nt:
            held = users()
            give(held=len(held), seen=ray.get([look.remote(nt) for _ in range(4)], timeout=150))
        try:
            tidecast.ray.stage("here/absent", timeout=1)
        except tidecast.Error as error:
            give(absent=str(error), code=error.code)
    finally:
        ray.shutdown()
""", **ray_place)
    assert given["held"] >= 1 and len({tuple(one[:3]) for one in given["seen"]}) == 1
    assert given["absent"].startswith("cannot stage here/absent on ") and given["code"] in (1, 3)


def test_ray_fetches_by_a_ticket_once_a_node(beside, data, ray_place):
    given = beside(SHARE + RAY + """
shared = share()
begin()
try:
    with tidecast.ray.stage(shared.ticket, "scratch", name="nt") as nt:
        give(seen=ray.get([look.remote(nt) for _ in range(4)], timeout=150))
finally:
    ray.shutdown()
give(sent=shared.close()["sent"])
""", **ray_place)
    assert len({tuple(one[:3]) for one in given["seen"]}) == 1 and given["sent"] < 2 * BYTES
