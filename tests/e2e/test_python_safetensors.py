"""Weights that are loaded while they arrive; the library `safetensors` is the judge."""
from __future__ import annotations

import json
import os
import random
import struct

import numpy
import pytest
import safetensors.numpy

pytestmark = pytest.mark.xdist_group("python-libraries")
FRESH = int(os.environ.get("TIDECAST_FRESH", 1))
HOW = """
from tidecast import safetensors as weights
how = dict(swarm=alone, state_dir="other", cache="cache")
small = tidecast.Tree(piece_length=1 << 16)
"""
TYPES = ["f4", "f8", "f2", "i1", "i8", "u2", "u4", "?", "c8", "bfloat16", "float8_e4m3fn", "float8_e5m2"]


def dtype(name: str) -> numpy.dtype:
    import ml_dtypes
    return numpy.dtype(getattr(ml_dtypes, name, None) or name)


def some(dice: random.Random, largest: int = 7) -> dict[str, numpy.ndarray]:
    """Random tensors, by random names."""
    made = {}
    for number in range(dice.randrange(9)):
        shape = [dice.randrange(largest) for _ in range(dice.randrange(4))]
        values = numpy.random.default_rng(dice.randrange(1 << 30)).random(shape) * 100
        made[dice.choice(["a", "b.weight", "é", "x" * 50]) + str(number)] = numpy.ascontiguousarray(values.astype(dtype(dice.choice(TYPES))))
    return made


def digest(array: numpy.ndarray) -> list:
    return [array.dtype.name, list(array.shape), array.tobytes().hex()]


@pytest.mark.parametrize("local", [False, True])
def test_random_files_are_what_safetensors_reads(beside, tmp_path, local):
    seed = random.SystemRandom().randrange(1 << 30)
    dice, truth = random.Random(seed), {}
    (tmp_path / "data").mkdir()
    for number in range(40 * FRESH):
        tensors = some(dice)
        safetensors.numpy.save_file(tensors, tmp_path / f"data/{number}.safetensors", metadata={"n": str(number)} if number % 2 else None)
        truth[f"{number}.safetensors"] = {name: digest(array) for name, array in tensors.items()}
    given = beside(HOW + f"""
with tidecast.share("data", tree=small, swarm=alone) as shared, tidecast.open(shared.ticket, **how) as reader:
    for entry in reader.ls():
        if {local}: reader.fetch([(entry.path, 0, entry.size)])
        loaded = weights.load_file(reader, path=entry.path)
        told = weights.describe(reader, path=entry.path)
        assert list(loaded) == list(told)
        for array in loaded.values():
            if array.size: array.reshape(-1)[0] = array.reshape(-1)[0]
        give(**{{entry.path: {{name: [array.dtype.name, list(array.shape), array.tobytes().hex()] for name, array in loaded.items()}}}})
""")
    for name, tensors in truth.items():
        assert given[name] == tensors, (seed, name)


def test_a_part_fetches_that_part(beside, tmp_path):
    (tmp_path / "data").mkdir()
    big = numpy.random.default_rng(1).random((400, 500, 25))
    safetensors.numpy.save_file({"a": big, "b": numpy.arange(10), "c": big + 1}, tmp_path / "data/w.safetensors")
    given = beside(HOW + """
import numpy
from safetensors.numpy import load_file
truth = load_file("data/w.safetensors")
parts = [(slice(5, 9),), (slice(None), slice(3, 7)), (slice(10, 14), slice(0, 200)), (slice(None, 3), slice(None), slice(1, 3)),
         (slice(-3, None), slice(2, 2)), ()]
with tidecast.share("data", tree=small, swarm=alone) as shared:
    rows = []
    for number, part in enumerate(parts):
        with tidecast.open(shared.ticket, swarm=alone, state_dir="other", cache=f"cache{number}") as reader:
            loaded = weights.load_file(reader, slices={"a": part})
            rows.append([list(loaded) == ["a"] and bool((loaded["a"] == truth["a"][part]).all()), loaded["a"].shape == truth["a"][part].shape,
                         reader.received])
    with tidecast.open(shared.ticket, **how) as reader:
        loaded = weights.load_file(reader, keys=["b"])
        give(keys=list(loaded) == ["b"] and bool((loaded["b"] == truth["b"]).all()), alone=reader.received)
    for wrong, error in ((dict(keys=["none"]), KeyError), (dict(slices={"a": (slice(0, 9, 2),)}), tidecast.UsageError),
                         (dict(slices={"b": (slice(1), slice(1))}), tidecast.UsageError), (dict(framework="jax"), tidecast.UsageError)):
        try:
            weights.load_file(shared.ticket, **wrong, **how)
            raise AssertionError(wrong)
        except error:
            pass
    give(rows=rows)
""")
    assert all(right and shaped for right, shaped, _ in given["rows"]) and given["keys"]
    received = [row[2] for row in given["rows"]]
    piece, row = 65536, 500 * 25 * 8
    # The header, and the pieces that cover the part.
    assert received[0] <= 4 * row + 3 * piece and received[2] <= 4 * row + 3 * piece and received[3] <= 3 * row + 3 * piece
    assert received[1] <= 400 * 2 * piece and received[4] <= 2 * piece and received[5] <= big.nbytes + 3 * piece and given["alone"] <= 3 * piece


def test_the_first_tensor_is_usable_before_a_tenth_has_arrived(beside, tmp_path):
    (tmp_path / "data").mkdir()
    values = numpy.random.default_rng(1).random((32, 65536))
    safetensors.numpy.save_file({f"t{n:02}": row for n, row in enumerate(values)}, tmp_path / "data/w.safetensors")
    given = beside(HOW + """
import safetensors.numpy
truth = safetensors.numpy.load_file("data/w.safetensors")
slow = tidecast.Swarm(listen="127.0.0.1:0", lsd=False, upload_limit=2_000_000)
with tidecast.share("data", tree=small, swarm=slow) as shared, tidecast.open(shared.ticket, **how) as reader:
    coming, names = weights.iterate(reader), []
    name, first = next(coming)
    share = reader.received / os.path.getsize("data/w.safetensors")
    give(first=bool((first == truth[name]).all()), name=name, share=share)
    for _ in range(3):
        name, tensor = next(coming)
        assert (tensor == truth[name]).all()
        names.append(name)
    give(names=names)
""")
    assert given["first"] and given["name"] == "t00" and given["share"] < 0.1 and given["names"] == ["t01", "t02", "t03"]


def test_several_files_with_an_index(beside, tmp_path):
    (tmp_path / "data/model").mkdir(parents=True)
    arrays = {name: numpy.random.default_rng(n).random(20_000) for n, name in enumerate("abcd")}
    for file, names in (("model-1.safetensors", "ab"), ("model-2.safetensors", "cd")):
        safetensors.numpy.save_file({name: arrays[name] for name in names}, tmp_path / "data/model" / file)
    index = {"metadata": {}, "weight_map": {name: f"model-{1 if name in 'ab' else 2}.safetensors" for name in "abcd"}}
    (tmp_path / "data/model/model.safetensors.index.json").write_text(json.dumps(index))
    given = beside(HOW + """
with tidecast.share("data", tree=small, swarm=alone) as shared:
    with tidecast.open(shared.ticket, **how) as reader:
        one = weights.load_file(reader, path="model", keys=["c"])
        part = reader.received
        give(all={name: array.tobytes().hex()[:40] for name, array in weights.load_file(reader, path="model").items()}, one=list(one), part=part)
    give(url=list(weights.load_file(f"tidecast://{shared.ticket}/model", **how)), described=list(weights.describe(shared.ticket, path="model", **how)))
""")
    assert given["all"] == {name: array.tobytes().hex()[:40] for name, array in arrays.items()} and given["one"] == ["c"]
    assert given["part"] <= 5 * 65536 and given["url"] == given["described"] == list("abcd")


def hostile() -> dict[str, bytes]:
    """Files that are not in the format."""
    def file(header: object, data: bytes = b"", length: int | None = None) -> bytes:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        return struct.pack("<Q", len(text) if length is None else length) + text + data

    def one(**told: object) -> dict:
        return {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **told}}

    return {
        "empty": b"", "short": b"\1\0\0", "longer": file({}, length=50), "huge": file({}, length=(1 << 64) - 1), "not_json": file(b"{oh"),
        "not_utf8": file(b'{"\xff": 1}'), "list": file([]), "deep": file(b"[" * 100_000), "twice": file(b'{"a": 1, "a": 2}'),
        "overlap": file({**one(), "b": one()["a"]}, bytes(8)), "hole": file(one(data_offsets=[4, 12]), bytes(12)),
        "beyond": file(one(data_offsets=[0, 8]), bytes(4)), "after": file(one(), bytes(9)), "backwards": file(one(data_offsets=[8, 0]), bytes(8)),
        "size": file(one(shape=[3]), bytes(8)), "overflow": file(one(shape=[1 << 62, 8]), bytes(8)), "negative": file(one(shape=[-2]), bytes(8)),
        "float": file(one(shape=[2.0]), bytes(8)), "bool": file(one(shape=[True, 2]), bytes(8)), "dtype": file(one(dtype="F33"), bytes(8)),
        "dtype_list": file(one(dtype=["F32"]), bytes(8)), "offsets": file(one(data_offsets=[0]), bytes(8)),
        "lacks": file({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)),
        "metadata": file({"__metadata__": {"a": 1}}), "nan": file(b'{"a": NaN}'),
    }


def test_hostile_headers_are_refused_as_safetensors_does(beside, tmp_path):
    (tmp_path / "data").mkdir()
    for name, data in hostile().items():
        (tmp_path / f"data/{name}").write_bytes(data)
        if name != "twice":
            with pytest.raises(Exception):  # noqa: B017 - whatever the library says
                safetensors.numpy.load_file(tmp_path / f"data/{name}")
    # Fields that the format does not know are passed over.
    more = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], "unit": {"name": "m"}}}).encode()
    (tmp_path / "data/more").write_bytes(struct.pack("<Q", len(more)) + more + bytes(8))
    assert safetensors.numpy.load_file(tmp_path / "data/more")["a"].size == 2
    given = beside(HOW + """
with tidecast.share("data", tree=small, swarm=alone) as shared, tidecast.open(shared.ticket, **how) as reader:
    for entry in reader.ls():
        try:
            weights.load_file(reader, path=entry.path)
            give(**{entry.path: "loaded"})
        except tidecast.FaultError as error:
            give(**{entry.path: str(error)})
""")
    for name in hostile():
        assert given[name].startswith(name), (name, given[name])
    assert given["more"] == "loaded"


def test_a_cache_of_the_daemon_is_mapped(beside, tmp_path):
    (tmp_path / "data").mkdir()
    arrays = {"a": numpy.random.default_rng(1).random(1_000_000), "b": numpy.arange(7)}
    safetensors.numpy.save_file(arrays, tmp_path / "data/w.safetensors")
    given = beside(HOW + """
import subprocess, numpy
words = ["tidecast", "daemon", "--dir", "store", "--socket", "s", "--name", "here", "--machine", os.getcwd()]
daemon = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
try:
    while "users ask at" not in daemon.stdout.readline(): pass
    tidecast.caches("s").create("model", "data", lease=3600)
    loaded = weights.load_file("here/model", socket="s")
    base = loaded["a"]
    while isinstance(base, numpy.ndarray): base = base.base
    give(mapped=type(base.obj).__name__, sum=float(loaded["a"].sum()))
    loaded["a"][:] = 0
    give(again=float(weights.load_file("here/model", socket="s")["a"].sum()))
finally:
    daemon.terminate()
    daemon.wait()
""")
    assert given["mapped"] == "mmap" and given["sum"] == given["again"] == pytest.approx(arrays["a"].sum())


def test_torch(beside, tmp_path):
    (tmp_path / "data").mkdir()
    arrays = {"a": numpy.random.default_rng(1).random((300, 400)).astype("f4"), "b": numpy.arange(6, dtype="i8").reshape(2, 3)}
    safetensors.numpy.save_file(arrays, tmp_path / "data/w.safetensors")
    given = beside(HOW + """
try:
    import torch
except ImportError:
    give(torch=False)
    sys.exit()
from safetensors.torch import load_file, save_file
truth = {**load_file("data/w.safetensors"), "c": torch.randn(50, 60).to(torch.bfloat16), "d": torch.empty(0, 3), "e": torch.tensor(3.0),
         "f": torch.randn(30).to(torch.float8_e4m3fn), "g": torch.randn(3, 4, dtype=torch.complex64), "h": torch.tensor([True, False])}
save_file(truth, "data/w.safetensors")
# Numbers of 8 bits cannot be compared by torch itself.
def equal(one, other):
    one, other = (tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor for tensor in (one, other))
    return one.dtype == other.dtype and torch.equal(one, other)
with tidecast.share("data", tree=small, swarm=alone) as shared, tidecast.open(shared.ticket, **how) as reader:
    remote, part = weights.load_file(reader, framework="torch"), weights.load_file(reader, framework="torch", slices={"a": (slice(2, 5), slice(9))})
    local = weights.load_file(reader, framework="torch")
    same = [all(equal(truth[name], loaded[name]) and truth[name].dtype == loaded[name].dtype for name in truth) for loaded in (remote, local)]
    local["a"] += 1  # It is this program's own: the next one loads what was published.
    again = weights.load_file(reader, framework="torch")
    give(torch=True, same=same, part=torch.equal(part["a"], truth["a"][2:5, :9]), own=torch.equal(again["a"], truth["a"]))
""")
    if not given["torch"]:
        pytest.skip("torch is not installed: framework='torch' was not tried (pip install torch)")
    assert given["same"] == [True, True] and given["part"] and given["own"]
