"""Keys for a program that this process starts: by an inherited descriptor, never on its command line, which others can read."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager

_SCHEME = "tidecast://"


@contextmanager
def by_descriptor(words: Iterable[str | bytes]) -> Iterator[tuple[list[str], list[int]]]:
    """The words with ``@/proc/self/fd/N`` in place of each key, and the descriptors that the program is to inherit."""
    with ExitStack() as stack:
        fds: list[int] = []
        yield _without_keys([os.fsdecode(word) for word in words], lambda key: _place(key, fds, stack)), fds


def _place(secret: str, fds: list[int], stack: ExitStack) -> str:
    fd = os.memfd_create("tidecast-secret", os.MFD_CLOEXEC)
    stack.callback(os.close, fd)
    os.fchmod(fd, 0o600)
    os.write(fd, secret.encode())
    fds.append(fd)
    return f"@/proc/self/fd/{fd}"


def _without_keys(words: list[str], place: Callable[[str], str]) -> list[str]:
    for at, word in enumerate(words):
        if word == "--":
            continue
        if at and words[at - 1] == "--key":
            words[at] = place(word) if _is_plain(word) else word
        elif word.startswith("--key=") and _is_plain(key := word[len("--key="):]):
            words[at] = f"--key={place(key)}"
        elif word.startswith(_SCHEME):
            key, found, _ = word[len(_SCHEME):].partition("/")[0].rpartition("@")
            if found and _is_plain(key):
                words[at] = _SCHEME + place(key) + word[len(_SCHEME) + len(key):]
    return words


def _is_plain(key: str) -> bool:
    """The key itself, not where it is."""
    return key not in ("", "-") and not key.startswith("@")
