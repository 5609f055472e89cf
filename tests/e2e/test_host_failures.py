"""Failures of this host are reported as such, never as faults of the data."""
import pytest
from support import trees


@pytest.fixture
def published(tide, tmp_path):
    data = trees.tree(tmp_path / "source/data")
    return data, tide.publish(data, tmp_path / "m.torrent", "--plain")


def limited(tide, start, descriptors: int, *words):
    """`tidecast WORDS` with so few descriptors."""
    return start(["sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh", *tide.argv(*words)], env=tide.env)


def test_without_descriptors_nothing_is_called_damaged(tide, start, published):
    data, manifest = published
    ended = []
    for descriptors in range(8, 24):
        done = limited(tide, start, descriptors, "verify", manifest, data)
        ended.append(done.wait())
        said = done.out + done.err
        assert "damaged" not in said and "missing" not in said and "unreadable" not in said, (descriptors, said)
        if ended[-1]:
            assert "does not match the manifest" not in said and "oo many open files" in said, (descriptors, said)
    assert 0 in ended and 1 in ended


def test_modes_that_are_not_kept_are_told_with_their_files(tide, port, tmp_path):
    data = trees.tree(tmp_path / "source/data")
    (data / "leaf").chmod(0o4755)
    (data / "one").chmod(0o1644)
    (data / "a/b").chmod(0o2755)
    (data / "a").chmod(0o1755)
    manifest = tide.publish(data, tmp_path / "m.torrent", "--plain")
    listen = f"127.0.0.1:{port()}"
    tide.seed(manifest, data, listen, "--plain", "--no-lsd")
    got = tmp_path / "got"
    for _ in range(2):
        err = tide("get", manifest, "--to", got, "--plain", "--no-lsd", "--peer", listen).err
        for path, before, after in (("leaf", 4755, "0755"), ("one", 1644, "0644"), ("a/b", 2755, "0755")):
            assert f"{got}/data/{path}: mode {before} becomes {after}" in err
            assert f"{(got / 'data' / path).stat().st_mode & 0o7777:04o}" == after
        assert ".tidecast-" not in err
        # It only prevents other users from removing files that are not theirs.
        assert (got / "data/a").stat().st_mode & 0o7777 == 0o1755
