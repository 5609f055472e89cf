"""HTCondor's own ClassAd library: it may crash, so it works in a process of its own that is started again."""
from __future__ import annotations

import pathlib
import subprocess
import sys

CRASHED, UNPARSABLE, FAILED = "crashed", "unparsable", "failed"


def python(folder: pathlib.Path, pin: str) -> pathlib.Path | None:
    """The interpreter of an environment with `classad2`, made once; none where it cannot be installed."""
    program = folder / "bin" / "python"
    probe = [program, "-c", "import htcondor2, classad2"]
    if not program.exists() or subprocess.run(probe, capture_output=True).returncode:
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", folder], capture_output=True).returncode == 0
        if not made or subprocess.run([program, "-m", "pip", "--quiet", "install", pin], capture_output=True).returncode:
            return None
    return program if subprocess.run(probe, capture_output=True).returncode == 0 else None


def ask(program: pathlib.Path, what: str, lines: list[str], *args: object) -> list[str]:
    """The library's answer to each line."""
    answers: list[str] = []
    while len(answers) < len(lines):
        done = subprocess.run([program, __file__, what, *map(str, args)], input="\n".join(lines[len(answers):]) + "\n",
                              capture_output=True, text=True, env={"TZ": "UTC", "LC_ALL": "C.UTF-8", "CONDOR_CONFIG": "/dev/null"})
        answers += done.stdout.split("\n")[:-1]
        if len(answers) < len(lines):
            answers.append(CRASHED)
    return answers


def evaluate(lines, my: str, target: str | None = None) -> None:
    """For each line, the value of the expression as text."""
    import classad2
    my_ad = classad2.ClassAd(pathlib.Path(my).read_text())
    target_ad = classad2.ClassAd(pathlib.Path(target).read_text()) if target else None
    for line in lines:
        try:
            expr = classad2.ExprTree(line)
        except classad2.ClassAdException:
            print(UNPARSABLE, flush=True)
            continue
        try:
            print(repr(expr.simplify(my_ad, target_ad)), flush=True)
        except classad2.ClassAdException:
            print(FAILED, flush=True)


def match(lines) -> None:
    """For each line, two ads with a tab between them, whether they match."""
    import classad2
    for line in lines:
        left, right = map(classad2.ClassAd, line.split("\t"))
        print(left.symmetricMatch(right), flush=True)


if __name__ == "__main__":
    import htcondor2  # noqa: F401  without it the functions on string lists are unknown
    {"evaluate": evaluate, "match": match}[sys.argv[1]]((line.rstrip("\n") for line in sys.stdin), *sys.argv[2:])
