"""The instructions on the pages of the documentation: commands, their expected output, files to write.

A page is Markdown. Its `console` blocks have commands behind a prompt, `$ ` for a user and `# ` for root, with the name of the
host before it where there are several (`node1$ `). Lines without a prompt are the output; `...` stands for any text, in a line or as
a line. A line that ends with `\\`, and a here-document, continue in the next one. HTML comments, which are not shown, have the rest:

    <!-- hosts: head node1 node2; shared home -->   the hosts of the page; else there is one, called `here`
                                                    (`nat`: all but the first are behind a NAT)
    <!-- setup head: COMMANDS -->                   run before what follows, as alice (`setup head#:` as root)
    <!-- wait head: COMMAND -->                     repeat until it succeeds
    <!-- file node1:/PATH 755 -->                   the next block is written there, as root
    <!-- run node1: COMMAND -->                     the next block (not `console`) is run by COMMAND, which reads it on standard input
    <!-- not run: REASON -->                        the next block cannot be run by the test; its flags are checked all the same
"""
from __future__ import annotations

import dataclasses
import pathlib
import re
import shlex

COMMENT = re.compile(r"<!--\s*(hosts|setup|wait|file|run|not run)\b\s*(.*?)-->", re.S)
PROMPT = re.compile(r"^([a-z][a-z0-9]*)?([$#]) (.*)$")
HEREDOC = re.compile(r"<<-?\s*'?\"?(\w+)")
#: Commands that run until they are stopped.
SERVES = re.compile(r"\btidecast\s+(share|seed|daemon|tracker|copy-server|field\s+(recv|view|sync))\b(?!.*(--help|\s-h\b|--steps))")


@dataclasses.dataclass
class Step:
    """One thing to do: `kind` is command, setup, wait, file or run."""

    kind: str
    line: int
    host: str = ""
    user: str = "alice"
    text: str = ""
    output: list[str] = dataclasses.field(default_factory=list)
    path: str = ""
    mode: str = "644"
    #: Why the test cannot run it.
    excuse: str = ""
    language: str = "console"

    @property
    def serves(self) -> bool:
        return bool(SERVES.search(self.text)) or self.text.rstrip().endswith("&")

    @property
    def writes(self) -> str | None:
        """The file into which a serving command's output goes."""
        found = re.search(r">\s*([^\s>&)]+)\)?\s*(#.*|&)?$", self.text)
        return found[1] if found else None

    @property
    def fails(self) -> bool:
        """The text promises a failure."""
        return any("error: " in line for line in self.output)

    def expects(self, whole: bool) -> re.Pattern:
        """The output as a pattern; `whole`: nothing else is printed."""
        lines = []
        for line in self.output:
            # A line of `...` is any number of lines, none included.
            lines.append(r"(?:.*\n)*?" if line.strip() == "..." else ".*".join(re.escape(part) for part in line.split("...")) + r"[ ]*\n")
        return re.compile("".join(lines) + (r"\Z" if whole else ""))


@dataclasses.dataclass
class Page:
    path: pathlib.Path
    hosts: list[str]
    #: How the hosts are: `shared home`, `nat` (all but the first are behind one).
    how: set[str]
    steps: list[Step]


def parse(path: pathlib.Path, notes: dict[str, str] | None = None) -> Page:
    """The steps of a page, in their order. `notes` are comments that do not stand in the page itself: at its start, under the key of
    an empty string, or before the block that begins with a line."""
    page = Page(path, ["here"], set(), [])
    lines = []
    for line in [*(notes or {}).get("", "").split("\n"), *path.read_text().split("\n")]:
        if line and notes and line in notes and lines[-1].startswith("```"):
            lines[-1:] = ["", notes[line], "", lines[-1]]
        lines.append(line)
    at, pending = 0, None
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith("<!--"):
            first = at
            while "-->" not in lines[at] and at + 1 < len(lines):
                at += 1
            found = COMMENT.match("\n".join(lines[first:at + 1]).strip())
            if found:
                pending = comment(page, found[1], found[2].strip(), first + 1) or pending
        elif fence := re.match(r"^(\s*)```+\s*([\w-]*)", line):
            end = at + 1
            while end < len(lines) and not lines[end].strip().startswith("```"):
                end += 1
            block = [text[len(fence[1]):] for text in lines[at + 1:end]]
            page.steps += steps(page, fence[2], block, at + 1, pending)
            pending, at = None, end
        at += 1
    return page


def comment(page: Page, kind: str, text: str, line: int) -> Step | None:
    """Parses a comment; returns a step that waits for the next block, or None."""
    if kind == "hosts":
        names, _, how = text.lstrip(": ").partition(";")
        page.hosts, page.how = names.split(), {word.strip() for word in how.split(",") if word.strip()}
        return None
    where, _, rest = text.partition(":")
    where, user = (where.strip().rstrip("#") or page.hosts[0]), "root" if where.strip().endswith("#") else "alice"
    if kind == "not run":
        assert rest.strip(), f"{page.path}:{line}: why is it not run?"
        return Step("excuse", line, excuse=rest.strip())
    if kind == "file":
        name, *mode = rest.split()
        return Step("file", line, where, path=name, mode=mode[0] if mode else "644")
    step = Step(kind, line, where, user, rest.strip())
    if kind == "run":
        return step
    page.steps.append(step)
    return None


def steps(page: Page, language: str, block: list[str], line: int, pending: Step | None) -> list[Step]:
    if pending and pending.kind == "file":
        return [dataclasses.replace(pending, text="\n".join(block) + "\n", language=language)]
    if pending and pending.kind == "run":
        return [dataclasses.replace(pending, output=block)]
    excuse = pending.excuse if pending else ""
    if language == "console":
        return [dataclasses.replace(step, excuse=excuse) for step in commands(page, block, line)]
    if language in ("sh", "bash", "python", "toml"):
        return [Step("block", line, text="\n".join(block), excuse=excuse, language=language)]
    return []


def commands(page: Page, block: list[str], line: int) -> list[Step]:
    found: list[Step] = []
    at = 0
    while at < len(block):
        prompt = PROMPT.match(block[at])
        if not prompt:
            assert found, f"{page.path}:{line + at + 1}: output before a command"
            found[-1].output.append(block[at])
        else:
            host, user, text = prompt[1] or page.hosts[0], "root" if prompt[2] == "#" else "alice", prompt[3]
            first = at
            while text.endswith("\\"):
                at += 1
                text += "\n" + block[at].removeprefix("> ")
            if end := HEREDOC.search(text):
                while block[at] != end[1]:
                    at += 1
                    text += "\n" + block[at]
            found.append(Step("command", line + first + 1, host, user, text))
        at += 1
    for step in found:
        while step.output and not step.output[-1].strip():
            step.output.pop()
    return found


def calls_in(step: Step) -> list[list[str]]:
    """The calls of `tidecast` in a step, as words; a step that is not shell has no calls."""
    calls: list[list[str]] = []
    if step.language not in ("console", "sh", "bash"):
        return calls
    for match in re.finditer(r"(?:^|[\s;|(&'\"])tidecast\s+([a-z][^\n;|&()<>]*)", re.sub(r"\\\n\s*", " ", step.text)):
        try:
            calls.append(shlex.split(re.sub(r"(^|\s)#.*", "", match[1])))
        except ValueError:
            calls.append(re.sub(r"['\"]", "", match[1]).split())
    return calls
