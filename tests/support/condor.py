"""A real HTCondor pool (scripts/htcondor-pool), as tests and experiments use it."""
from __future__ import annotations

import json
import os
import pathlib
import shlex
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts" / "htcondor-pool"
LONG = 300


class Pool:
    """The pool while it runs, as a context. Commands are run in it by root, or by the user `tester`, which submits jobs in /home/tester."""

    def __init__(self, program: pathlib.Path, slots: int = 4, rate: str = ""):
        subprocess.run([SCRIPT, "build"], check=True)
        self.root = ROOT / ".cache" / "htcondor"
        env = {**os.environ, "TIDECAST": str(program.resolve()), "SLOTS": str(slots), "RATE": rate}
        self.process = subprocess.Popen([SCRIPT, "run"], env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
        if self.process.stdout.readline().strip() != "ready":
            self.end()
            raise RuntimeError("the pool does not start")

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_) -> None:
        self.end()

    def end(self) -> None:
        # With it goes the namespace of its processes, and so all of them.
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def run(self, command: str, user: str = "root", check: bool = True) -> str:
        words = ["bash", "-c", command] if user == "root" else ["su", user, "-c", f"cd /home/{user}; {command}"]
        done = subprocess.run([SCRIPT, "enter", str(self.process.pid), *words], capture_output=True, text=True, timeout=LONG)
        assert not check or done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, command: str, log: str) -> None:
        """A command that runs in the background until the pool ends."""
        self.run(f"nohup setsid {command} >{shlex.quote(log)} 2>&1 </dev/null &")

    def submit(self, description: dict, count: int = 1, name: str = "job") -> int:
        """Submits jobs; their cluster's number."""
        usual = {"universe": "vanilla", "log": f"{name}.log", "output": f"{name}.$(Process).out", "error": f"{name}.$(Process).err",
                 "request_cpus": 1, "request_memory": 10, "request_disk": "10M", "should_transfer_files": "YES",
                 "when_to_transfer_output": "ON_EXIT", "transfer_executable": "false"}
        text = "".join(f"{key} = {value}\n" for key, value in {**usual, **description}.items()) + f"queue {count}\n"
        path = self.root / "home" / "tester" / f"{name}.sub"
        path.write_text(text)
        return int(self.run(f"condor_submit -terse {name}.sub", "tester").split(".")[0])

    def queue(self, cluster: int) -> list[dict]:
        """The ads of jobs that have not ended."""
        return json.loads(self.run(f"condor_q {cluster} -json") or "[]")

    def history(self, cluster: int) -> list[dict]:
        """The ads of jobs that have."""
        return json.loads(self.run(f"condor_history {cluster} -json") or "[]")

    def until(self, what: str, test, limit: float = 120):
        deadline = time.monotonic() + limit
        while not (value := test()):
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {limit} s: {what}\n{self.run('tail -5 /var/log/condor/StarterLog* /var/log/condor/ShadowLog', check=False)}")
            time.sleep(0.5)
        return value

    def ended(self, cluster: int, limit: float = 120) -> list[dict]:
        """The ads of all jobs of a cluster, once none is left."""
        def over():
            held = [job for job in self.queue(cluster) if job["JobStatus"] == 5]
            assert not held, held[0].get("HoldReason")
            return not self.queue(cluster)

        self.until("the jobs' end", over, limit)
        return self.history(cluster)
