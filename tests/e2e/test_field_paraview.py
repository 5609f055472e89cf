"""ParaView draws a recording of `tidecast field recv --record`, its slabs by two processes at once."""
import json
import pathlib
import subprocess

import pytest
from conftest import needs

np = pytest.importorskip("numpy")
SIDE = 48
DRAW = """
from paraview.simple import *
import sys
series, out = sys.argv[1:]
reader = XDMFReader(FileNames=[series])
reader.UpdatePipeline()
surface = Contour(Input=reader, ContourBy=["POINTS", reader.GetPointDataInformation().GetArray(0).GetName()], Isosurfaces=[0.5])
view = CreateView("RenderView")
view.ViewSize = [200, 200]
Show(surface, view)
for number, time in enumerate(reader.TimestepValues):
    view.ViewTime = time
    surface.UpdatePipeline(time)
    ResetCamera(view)
    Render(view)
    SaveScreenshot(f"{out}/{number}.png", view)
    from vtkmodules.vtkParallelCore import vtkMultiProcessController
    if vtkMultiProcessController.GetGlobalController().GetLocalProcessId() == 0:
        print("BOUNDS", *surface.GetDataInformation().GetBounds())
"""


def spheres() -> np.ndarray:
    """A ball that grows; the surface of 0.5 has a radius of 8, 12 and 16 planes."""
    z, y, x = np.mgrid[0:SIDE, 0:SIDE, 0:SIDE].astype("f4") - SIDE / 2
    radius = np.sqrt(x * x + y * y + z * z)
    return np.stack([np.clip(0.5 + (size - radius) / 10, 0, 1) for size in (8, 12, 16)]).astype("f4")


def test_paraview_draws_a_recording_with_two_processes(node, port, tmp_path):
    needs("pvbatch", "xvfb-run", "mpirun")
    np.save(tmp_path / "ball.npy", spheres())
    listen, record = f"127.0.0.1:{port()}", tmp_path / "record"
    recv = node("recv").run("--json", "field", "recv", "--listen", listen, "--streams", "4", "--name", tmp_path.name, "--record", record, "--steps", "3")
    said = json.loads(recv.until("where to send", lambda: recv.out.split("\n")[0] if "\n" in recv.out else ""))
    key = said["send"].split("--key ")[1].split()[0]
    node("send")("field", "send", tmp_path / "ball.npy", "--to", listen, "--streams", "4", "--rate", "100mbit", "--key", key)
    recv.ok()
    (tmp_path / "draw.py").write_text(DRAW)
    argv = ["xvfb-run", "-a", "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "pvbatch", tmp_path / "draw.py", record / "series.xdmf", tmp_path]
    drawn = subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=300, cwd=tmp_path)
    bounds = [list(map(float, line.split()[1:])) for line in drawn.stdout.splitlines() if line.startswith("BOUNDS")]
    assert len(bounds) == 3, drawn.stdout + drawn.stderr
    for size, found in zip((8, 12, 16), bounds, strict=True):
        wanted = [SIDE / 2 - size, SIDE / 2 + size] * 3
        assert np.allclose(found, wanted, atol=0.5), (size, found)
    assert len({pathlib.Path(tmp_path / f"{n}.png").read_bytes() for n in range(3)}) == 3
