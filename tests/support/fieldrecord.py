"""A recording as `field recv --record` writes it, from docs/field-format.md alone."""
import json
import pathlib

import numpy as np


def record(path: pathlib.Path, steps: np.ndarray, ranges: bool = True) -> pathlib.Path:
    """Steps, z, y, x: written below `path`, which is made; without `ranges` as by older versions, which wrote none."""
    path.mkdir()
    steps = steps.astype("<f4")
    lines = []
    for place, step in enumerate(steps):
        chunk = path / "c" / str(place) / "0" / "0"
        chunk.mkdir(parents=True)
        step.tofile(chunk / "0")
        finite = step[np.isfinite(step)].astype("f8")
        lines.append({"index": place, "step": place} | ({"min": finite.min(), "max": finite.max()} if finite.size else {"min": None, "max": None}))
    said = {"zarr_format": 3, "node_type": "array", "shape": steps.shape, "data_type": "float32", "fill_value": "NaN",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": (1, *steps.shape[1:])}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "attributes": {"steps": list(range(len(steps)))}}
    (path / "zarr.json").write_text(json.dumps(said))
    if ranges:
        (path / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
