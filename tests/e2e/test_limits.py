"""Limits of upload and download hold for all of a process, whoever is at the other end, and wherever they are set.

A limit is a lower bound of time: no load of the machine can make one of these tests fail.
"""
import time

import pytest
from support import clients, trees

SIZE, RATE = 3 << 20, 1_000_000
LIMIT = "1MB/s"
LEAST = 0.97 * SIZE / RATE


@pytest.fixture
def data(tmp_path):
    return trees.blob(tmp_path / "source/data", SIZE)


@pytest.fixture
def manifest(tide, data, tmp_path):
    return tide.publish(data, tmp_path / "m.torrent")


def seconds(proc) -> float:
    return proc.ok().last("done")["get_seconds"]


def test_a_seed_keeps_to_its_limit_with_all_its_peers_together(node, port, data, manifest, tmp_path):
    here = f"127.0.0.1:{port()}"
    seeding = node("seed").seed(manifest, data, here, "--plain", "--no-lsd", "--json", "--upload-limit", LIMIT)
    # By a clock of its own: each of them counts from its own start.
    began = time.monotonic()
    gets = [node(f"get{n}").run("get", manifest, "--to", tmp_path / f"got{n}", "--peer", here, "--plain", "--no-lsd", "--json")
            for n in range(3)]
    for get in gets:
        get.ok()
    took = time.monotonic() - began
    seeding.process.terminate()
    sent = seeding.ok().last("done")["sent"]
    assert took >= 0.97 * sent / RATE and sent >= SIZE, (took, sent)


def test_a_private_share_keeps_to_its_limit(node, port, data, tmp_path):
    _, ticket = node("share").share(data, f"127.0.0.1:{port()}", "--no-lsd", "--upload-limit", LIMIT)
    (tmp_path / "ticket").write_text(ticket)
    (tmp_path / "ticket").chmod(0o600)
    get = node("get").run("get", f"@{tmp_path}/ticket", "--to", tmp_path / "got", "--no-lsd", "--json")
    assert seconds(get) >= LEAST
    trees.assert_same(data, tmp_path / "got/data")


def test_a_stock_client_gets_no_more(tide, start, port, data, manifest, tmp_path):
    here = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, here, "--plain", "--no-lsd", "--upload-limit", LIMIT)
    get = clients.libtorrent(start, "get", manifest, tmp_path / "got", f"127.0.0.1:{port()}", "--peer", here, "--encrypt", "rc4")
    took = float(get.ok().out.split("done ")[1].split()[0])
    assert took >= LEAST


@pytest.mark.parametrize("how", ("flag", "environment", "file"))
def test_a_get_keeps_to_its_limit_with_all_its_peers_together(node, port, data, manifest, tmp_path, how):
    seeds = [f"127.0.0.1:{port()}" for _ in range(2)]
    for n, here in enumerate(seeds):
        node(f"seed{n}").seed(manifest, data, here, "--plain", "--no-lsd")
    here = node("get")
    words = ["get", manifest, "--to", tmp_path / "got", "--plain", "--no-lsd", "--json"]
    words += [word for peer in seeds for word in ("--peer", peer)]
    if how == "flag":
        words += ["--download-limit", LIMIT]
    elif how == "environment":
        here.env["TIDECAST_DOWNLOAD_LIMIT"] = LIMIT
    else:
        (tmp_path / "config.toml").write_text(f'download_limit = "{LIMIT}"\n')
        words += ["--config", tmp_path / "config.toml"]
    assert seconds(here.run(*words)) >= LEAST
    trees.assert_same(data, tmp_path / "got/data")


@pytest.mark.parametrize("flag", ("--upload-limit", "--download-limit"))
def test_a_limit_of_nothing_is_refused(tide, data, manifest, flag):
    said = tide("seed", manifest, data, "--plain", flag, "0bit", code=2).err
    assert flag in said and "omit it for no limit" in said
