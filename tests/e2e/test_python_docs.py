"""Every example of docs/python.md runs.

The comment above an example, `<!-- runs with: NAME, NAME -->`, names its setup: sources of Python that run first in the
same script. A new example that needs something else adds it here.
"""
from __future__ import annotations

import importlib.util
import re

import pytest
from support.mounts import needs_mounts
from support.wheels import ROOT

pytestmark = pytest.mark.xdist_group("python-docs")

# Whatever an example does, it stays on this host, and within the directory of the test.
ALONE = """
import atexit, os, subprocess, sys
os.environ.update(TIDECAST_LISTEN="127.0.0.1:0", TIDECAST_LSD="false", TIDECAST_SOCKET=os.path.abspath("daemon.sock"),
                  TIDECAST_STATE_DIR=os.path.abspath("state"), TMPDIR=os.getcwd(), RAY_USAGE_STATS_ENABLED="0")
"""
SETS = {
    # A directory `data` with a NetCDF file.
    "data": """
import numpy, xarray
os.makedirs("data")
xarray.Dataset({"t2m": (("y", "x"), numpy.full((60, 80), 280.0))}).to_netcdf("data/t2m.nc", engine="h5netcdf")
""",
    # A directory `data` with weights.
    "weights": """
import numpy, safetensors.numpy
os.makedirs("data")
safetensors.numpy.save_file({f"layer.{n}": numpy.full((64, 512), n, "f4") for n in range(4)}, "data/model.safetensors")
""",
    # `ticket` of the directory `data`, which another process serves.
    "ticket": """
share = subprocess.Popen([sys.executable, "-uc", '''
import tidecast
with tidecast.share("data", state_dir="origin") as shared:
    print(shared.ticket)
    input()
'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
atexit.register(share.kill)
ticket = share.stdout.readline().strip()
""",
    # The daemon `head` of this host.
    "daemon": """
words = ["tidecast", "daemon", "--dir", "store", "--socket", "daemon.sock", "--name", "head", "--machine", os.getcwd()]
daemon = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
atexit.register(daemon.kill)
for line in daemon.stdout:
    if "users ask at" in line: break
""",
    "dask": """
from dask.distributed import LocalCluster
cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1")
atexit.register(cluster.close)
""",
    "ray": """
import ray, tempfile
place = tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True)
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100_000_000, _temp_dir=place.name)
""",
    "parsl": "",
    "mount": "",
    "pandas": "",
    # Rank 0 of a group of two, at `address`.
    "rank": """
import secrets, socket
secret = secrets.token_hex(16)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{free.getsockname()[1]}"
root = subprocess.Popen([sys.executable, "-c", '''
import numpy, sys, tidecast
with tidecast.Group(group=sys.argv[1], rank=0, size=2, secret=sys.argv[2]) as group:
    group.bcast(numpy.ones(1_000_000))
''', address, secret])
atexit.register(root.wait, 60)
""",
    # The key of a field, and a name that no other test has.
    "field": """
import uuid
name, key = "test-" + uuid.uuid4().hex[:12], "a" * 52
os.environ["TIDECAST_FIELD_KEY"] = key
""",
}
# The cache `head/era5`, which the daemon has made of `data`.
SETS["cache"] = SETS["daemon"] + """
import tidecast
tidecast.caches().create("era5", "data")
"""
_EXAMPLE = re.compile(r"(?:^<!-- runs with: ([^\n]*) -->\n)?^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TEXT = (ROOT / "docs/python.md").read_text("utf-8")

EXAMPLES = list(_EXAMPLE.finditer(_TEXT))


def _name(example: re.Match) -> str:
    """The heading above it, and the line."""
    heading = re.findall(r"^#+ (.*)$", _TEXT[:example.start()], re.MULTILINE)[-1]
    return f"{heading}, line {_TEXT[:example.start(2)].count(chr(10)) + 1}"


def test_every_example_is_found():
    assert len(EXAMPLES) == _TEXT.count("```python") > 0


@pytest.mark.parametrize("example", EXAMPLES, ids=_name)
def test_an_example_runs(beside, example):
    sets = [name.strip() for name in (example[1] or "").split(",")]
    assert set(sets) <= set(SETS), "the comment above the example names what it runs with"
    if "ray" in sets and importlib.util.find_spec("ray") is None:
        pytest.skip("SKIPPED: ray is not installed (pip install ray)")
    if "mount" in sets:
        needs_mounts()
    assert beside.run(ALONE + "".join(SETS[name] for name in sets) + example[2])[0], "an example shows something"
