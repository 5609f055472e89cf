"""Daemons that are killed repeatedly during operation, and the checks of their state afterwards."""
from __future__ import annotations

import http.client
import json
import os
import pathlib
import random
import signal
import subprocess
import threading
import time

from .daemons import Host, Site
from .tidecast import wait_for

NAMES = ("db", "env", "ref", "set")
SOURCES = 8


def sources(base: pathlib.Path) -> list[pathlib.Path]:
    """Trees of which each shares most of its files with the others."""
    trees = []
    shared = [os.urandom(9_000) for _ in range(8)]
    large = os.urandom(1_500_000)
    for number in range(SOURCES):
        tree = base / str(number) / "data"
        (tree / "sub").mkdir(parents=True)
        for file, content in enumerate(shared):
            (tree / "sub" / f"shared{file}").write_bytes(content)
        for file in range(4):
            (tree / f"own{file}").write_bytes(os.urandom(20_000 + 7_000 * number))
        (tree / "large").write_bytes(large if number % 2 else os.urandom(600_000))
        for path in (*tree.rglob("*"), tree):
            os.utime(path, (1_000_000, 1_000_000))
        trees.append(tree)
    return trees


def content(tree: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


class Truth:
    """The state that one daemon has acknowledged. Unanswered requests may have taken effect or not."""

    def __init__(self):
        self.lock = threading.Lock()
        self.committed: dict[str, str] = {}  # id -> name
        self.pinned: dict[str, bool | None] = {}  # None: unknown
        self.leases: dict[str, int] = {}
        self.gone: set[str] = set()  # removed, or perhaps
        self.boots = 0

    def note(self, boot: int, what) -> None:
        """Calls `what` with a command's answer, unless the machine has lost power since it began: then the result is unknown."""
        with self.lock:
            if boot == self.boots:
                what()


class Runner(Host):
    """A host of the marathon: it may be started by one of several programs, and keeps what it has acknowledged."""

    def settle(self, programs: list[pathlib.Path], dice: random.Random) -> None:
        self.programs, self.dice, self.truth, self.starts, self.lossless = programs, dice, Truth(), [], False

    def again(self) -> None:
        """Starts it again, possibly with another program."""
        self.program = self.dice.choice(self.programs)
        start = time.monotonic()
        self.serve()
        self.starts.append(time.monotonic() - start)

    def stop(self) -> None:
        self.daemon.signal(signal.SIGKILL)
        self.daemon.wait()

    def argv(self, *words) -> list[str]:
        """An older program does not get options that it does not know."""
        argv = super().argv(*words)
        if "--machine" in argv and "--machine" not in subprocess.run([self.program, "daemon", "--help"], capture_output=True, text=True).stdout:
            at = argv.index("--machine")
            argv[at:at + 2] = []
        return argv

    def command(self, *words) -> dict | None:
        """`tidecast cache WORDS`; None if it failed, as it may when somebody is killed."""
        done = subprocess.run(self.argv("cache", *words, "--json"), capture_output=True, text=True, env={**os.environ, **self.env}, timeout=150)
        lines = done.stdout.strip().splitlines()
        return json.loads(lines[-1]) if done.returncode == 0 and lines else None

    def ask(self, method: str, path: str, body=None) -> tuple[int, dict]:
        try:
            return self.http(method, path, body)
        except (OSError, ValueError, http.client.HTTPException):
            return 0, {}

    def any_cache(self) -> dict | None:
        status, caches = self.ask("GET", "/v1/caches")
        caches = [cache for cache in caches if cache["state"] == "committed"] if status == 200 else []
        return self.dice.choice(caches) if caches else None


class Marathon:
    """Three hosts. The first has all the room there is: it loses nothing. The others have to evict all the time."""

    def __init__(self, site: Site, base: pathlib.Path, programs: list[pathlib.Path], seed: int):
        self.dice, self.base, self.kills = random.Random(seed), base, 0
        self.trees = sources(base / "sources")
        self.contents = [content(tree) for tree in self.trees]
        self.hosts: list[Runner] = []
        listens = {name: f"127.0.0.1:{site.free_port()}" for name in ("m0", "m1", "m2")}
        for number, (name, listen) in enumerate(listens.items()):
            host = self.host(site.program, base / name, site.start, name)
            host.settle(programs, random.Random(seed * 10 + number))
            self.prepare(host)
            host.listen, host.lossless = listen, number == 0
            peers = [word for other, at in listens.items() if other != name for word in ("--peer", f"{other}={at}")]
            room = [] if number == 0 else ["--capacity", "9MiB"]
            host.words = ["--listen", listen, "--trust", site.trust, "--certificate", site.certificate(f"host:{name}"), *peers, *room]
            host.again()
            self.hosts.append(host)

    def host(self, *words) -> Runner:
        return Runner(*words)

    def prepare(self, host: Runner) -> None:
        """Prepares a host before its first start."""

    # Actions on a host, or by it, while it is killed.

    def create(self, host: Runner) -> None:
        number, name, boot = self.dice.randrange(SOURCES), self.dice.choice(NAMES), host.truth.boots
        made = host.command("create", name, self.trees[number], "--lease", "1h")
        if made:
            host.truth.note(boot, lambda: host.truth.committed.update({made["cache"]: made["name"]}))

    def fetch(self, host: Runner) -> None:
        """A cache that another host has made."""
        other, boot = self.dice.choice([h for h in self.hosts if h is not host]), host.truth.boots
        cache = other.any_cache()
        if cache:
            got = host.command("get", cache["name"], "--wait", "20s")
            if got and host.lossless:
                host.truth.note(boot, lambda: host.truth.committed.update({got["cache"]: got["name"]}))

    def replicate(self, host: Runner) -> None:
        cache = host.any_cache()
        others = [h.name for h in self.hosts if h is not host]
        if cache:
            host.ask("POST", f"/v1/caches/{cache['cache']}/replicate", {"to": self.dice.sample(others, self.dice.randint(1, 2))})

    def extend(self, host: Runner) -> None:
        cache, boot, leases = host.any_cache(), host.truth.boots, host.truth.leases
        status, now = host.ask("POST", f"/v1/caches/{cache['cache']}/extend", {"lease": self.dice.randrange(3600, 9_000)}) if cache else (0, {})
        if status == 200:
            host.truth.note(boot, lambda: leases.update({now["cache"]: max(now["lease"], leases.get(now["cache"], 0))}))

    def pin(self, host: Runner) -> None:
        cache = host.any_cache()
        if not cache:
            return
        truth, id, boot = host.truth, cache["cache"], host.truth.boots
        with truth.lock:
            # Few at a time: the others need room.
            pin = not cache["pinned"] and sum(p is not False for p in truth.pinned.values()) < 2
            truth.pinned[id] = None
        status, _ = host.ask("POST", f"/v1/caches/{id}/{'pin' if pin else 'unpin'}", {})
        if status == 200:
            truth.note(boot, lambda: truth.pinned.update({id: pin}))

    def remove(self, host: Runner) -> None:
        cache = host.any_cache()
        if cache and not cache["pinned"] and host.truth.pinned.get(cache["cache"], False) is False:
            with host.truth.lock:
                host.truth.gone.add(cache["cache"])
                host.truth.committed.pop(cache["cache"], None)
            host.ask("DELETE", f"/v1/caches/{cache['cache']}")

    def upgrade(self, host: Runner) -> None:
        """Stops it cleanly; the next start may be with another program."""
        host.daemon.signal(signal.SIGTERM)

    def round(self) -> None:
        """Some actions at once, then the kill, then the check of the remains."""
        victims = self.dice.sample(self.hosts, self.dice.choice((1, 1, 1, 2, 3)))
        works = (self.create, self.create, self.fetch, self.fetch, self.replicate, self.extend, self.pin, self.remove)
        doing = [(self.dice.choice(works), self.dice.choice(victims)) for _ in range(2)]
        doing += [(self.dice.choice(works), self.dice.choice(self.hosts)) for _ in range(2)]
        doing += [(self.upgrade, self.dice.choice(victims))] if self.dice.random() < 0.1 else []
        threads = [threading.Thread(target=work, args=(host,)) for work, host in doing]
        for thread in threads:
            thread.start()
        time.sleep(self.dice.choice((0.02, 0.1, 0.3)) * self.dice.random() * 2)
        for host in victims:
            host.stop()
            self.kills += 1
        # Some while others still ask them.
        for host in victims:
            host.again()
        for thread in threads:
            thread.join()
        for host in victims:
            self.check(host)

    def check(self, host: Runner) -> None:
        """No acknowledged data is lost, nothing incomplete is visible, and no files are left over."""
        quiet(host)
        status, report = host.http("POST", "/v1/fsck")
        assert status == 200 and report["clean"], (host.name, report)
        there = {cache["cache"]: cache for cache in host.http("GET", "/v1/caches")[1]}
        truth = host.truth
        for id, pinned in list(truth.pinned.items()):
            if pinned:
                assert there.get(id, {}).get("state") == "committed" and there[id]["pinned"], (host.name, id, "was pinned", there.get(id))
            if id not in there:
                del truth.pinned[id]
            elif pinned is None:
                truth.pinned[id] = there[id]["pinned"]
        for id, name in truth.committed.items():
            if id in there:
                assert (there[id]["state"], there[id]["name"]) == ("committed", name), (host.name, there[id], name)
            assert id in there or not host.lossless, (host.name, f"{name} is lost")
        for id, until in truth.leases.items():
            assert id not in there or there[id]["lease"] >= until, (host.name, there[id], until)
        for cache in there.values():
            assert cache["state"] in ("committed", "uncommitted", "uploading"), (host.name, cache)
            assert (cache["path"] is not None) == (cache["state"] == "committed"), (host.name, cache)
        committed = [cache for cache in there.values() if cache["state"] == "committed"]
        for cache in self.dice.sample(committed, min(2, len(committed))):
            assert content(pathlib.Path(cache["path"])) in self.contents, (host.name, cache)
        leftovers(host, there)


def quiet(host: Runner) -> None:
    """Caches that others have offered it have arrived, or will not."""
    wait_for(f"{host.name} to have nothing on its way", lambda: not host.http("GET", "/v1/daemon")[1]["transfers"])


def leftovers(host: Runner, there: dict[str, dict]) -> None:
    """The space on disk equals the daemon's report, by bytes and by names."""
    depot = host.dir / "depot"
    says = host.http("GET", "/v1/daemon")[1]["bytes"]
    known = {path.name for path in (depot / "caches").iterdir()}
    assert known == {id for id, cache in there.items() if cache["state"] == "committed"}, (host.name, known ^ set(there))
    for begun in (depot / "incoming").iterdir():
        if there[begun.name]["state"] == "committed":
            # Its swarm still serves hosts that fetch it, by second names of files in the store, which take no space.
            assert all(path.lstat().st_nlink > 1 for path in begun.rglob("*") if path.is_file()), (host.name, begun)
    assert not list((depot / "trash").iterdir()), host.name
    inodes, objects = {}, 0
    for top in ("objects", "caches"):
        for path in (depot / top).rglob("*"):
            meta = path.lstat()
            if top == "objects" and path.is_dir():
                continue
            objects += top == "objects"
            assert top == "caches" or meta.st_nlink > 1, (path, "is in no cache")
            inodes[meta.st_ino] = 4096 if path.is_dir() else -(-meta.st_size // 4096) * 4096
    # The length of a manifest is reckoned, not measured.
    assert abs(sum(inodes.values()) - says) <= 4096 * (len(there) + 1), (host.name, sum(inodes.values()), says, len(there))
