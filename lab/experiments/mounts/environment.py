"""A whole Python environment, interpreter and standard library in it, with numpy, scipy and pandas; made once."""
from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

from ..native import MADE
from ..process import Failed
from ..runner import say

PACKAGES = ["numpy==2.4.6", "scipy==1.17.1", "pandas==3.1.1"]
IMPORT = "import numpy, scipy, scipy.linalg, scipy.stats, pandas"
LEFT_OUT = ["site-packages", "dist-packages", "test", "tests", "idlelib", "config-*"]


def environment() -> pathlib.Path:
    """Where it is. Its files name this path: it is of use at no other."""
    path, stamp = MADE / "python", MADE / "python.whole"
    wanted = f"{sys.version}\n{PACKAGES}\n"
    if not stamp.exists() or stamp.read_text() != wanted:
        say("  making a Python environment with numpy, scipy and pandas")
        shutil.rmtree(path, ignore_errors=True)
        base = interpreter(path / "base")
        for words in ([base, "-m", "venv", "--copies", path],
                      [path / "bin/python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *PACKAGES]):
            done = subprocess.run(words, env=env(path), capture_output=True, text=True)
            if done.returncode:
                raise Failed(f"the environment cannot be made: {done.stderr[-1000:]}")
        subprocess.run([path / "bin/python", "-m", "compileall", "-q", path / "base"], env=env(path), capture_output=True)
        stamp.write_text(wanted)
    return path


def interpreter(base: pathlib.Path) -> pathlib.Path:
    """A copy of the Python that runs this, below `base`."""
    name = f"python{sysconfig.get_python_version()}"
    (base / "bin").mkdir(parents=True)
    shutil.copy2(os.path.realpath(sys._base_executable), base / "bin" / name)
    shutil.copytree(sysconfig.get_path("stdlib"), base / "lib" / name, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for library in pathlib.Path(sysconfig.get_config_var("LIBDIR")).glob("libpython3.*so*"):
        shutil.copy2(library, base / "lib", follow_symlinks=False)
    return base / "bin" / name


def env(path: pathlib.Path) -> dict[str, str]:
    """The variables for its interpreter to find its own library, not that of the Python that it was copied from."""
    return {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(path / "base/lib")}


def start(path: pathlib.Path) -> str:
    """The words that start it, for a shell."""
    return f"LD_LIBRARY_PATH={path}/base/lib {path}/bin/python -I -B -c '{IMPORT}'"
