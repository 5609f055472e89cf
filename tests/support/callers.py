"""Requests to a daemon as another user of its host: all requests of its API description, with every value filled in."""
from __future__ import annotations

import json
import os
import pathlib

NOBODY = 65534


def passable(path: pathlib.Path) -> None:
    """Other users of this machine may come as far as there."""
    for part in [path, *path.parents]:
        if part.stat().st_uid == 0 and not part.stat().st_mode & 0o005:
            part.chmod(part.stat().st_mode | 0o055)


def as_nobody(work):
    """The result of `work()`, as JSON, run by a user without privilege."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        said: object = None
        try:
            os.close(reads)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            said = work()
        except BaseException as e:  # noqa: BLE001 (whatever it is, the parent is to see it)
            said = {"raised": repr(e)}
        finally:
            with os.fdopen(writes, "w") as out:
                json.dump(said, out)
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as said:
        answer = json.load(said)
    os.waitpid(child, 0)
    assert not (isinstance(answer, dict) and "raised" in answer), answer
    return answer


class Calls:
    """Every request of a description, about one cache."""

    def __init__(self, description: dict):
        self.description = description

    def all(self, name: str, id: str, place: str):
        """(key, method, path, body, headers) of each; a cache is named by `name` and by `id`, a directory is `place`."""
        for path, operations in self.description["paths"].items():
            common = operations.get("parameters", [])
            for method, operation in operations.items():
                if method == "parameters":
                    continue
                parameters = common + operation.get("parameters", [])
                for variant, url in enumerate(self.urls(path, parameters, name, id)):
                    body, headers = self.body(operation.get("requestBody", {}), name, id, place)
                    for parameter in parameters:
                        if parameter["in"] == "header":
                            headers[parameter["name"]] = json.dumps({"name": "other"})
                    yield f"{method.upper()} {path} {variant}", method.upper(), url, body, headers

    def urls(self, path: str, parameters: list, name: str, id: str):
        urls = [path]
        for parameter in parameters:
            hole, values = f"{{{parameter['name']}}}", parameter.get("schema", {}).get("enum") or [id if parameter["name"] == "id" else name]
            if parameter["in"] == "path":
                urls = [url.replace(hole, value) for url in urls for value in values]
            elif parameter["in"] == "query":
                value = "root" if parameter["name"] == "owner" else name.replace("@", "%40").replace("/", "%2F")
                with_it = [f"{url}{'&' if '?' in url else '?'}{parameter['name']}={value}" for url in urls]
                urls = with_it if parameter.get("required") else urls + with_it
        assert not any("{" in url for url in urls), urls
        return urls

    def body(self, request: dict, name: str, id: str, place: str):
        for kind, content in request.get("content", {}).items():
            if kind == "application/json":
                return json.dumps(self.value(content.get("schema", {}), "", name, id, place)).encode(), {"content-type": kind}
            return b"x" * 100, {"content-type": kind}
        return None, {}

    def value(self, schema: dict | None, called: str, name: str, id: str, place: str):
        if "$ref" in schema:
            schema = self.description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
        if "allOf" in schema or "oneOf" in schema or "anyOf" in schema:
            return self.value((schema.get("allOf") or schema.get("oneOf") or schema["anyOf"])[0], called, name, id, place)
        kind = schema.get("type", "object")
        kind = next(k for k in kind if k != "null") if isinstance(kind, list) else kind
        if "enum" in schema:
            return schema["enum"][0]
        if kind == "object":
            return {key: self.value(of, key, name, id, place) for key, of in schema.get("properties", {}).items() if key not in ("pid", "subpath")}
        if kind == "array":
            return [self.value(schema["items"], called, name, id, place)]
        by_name = {"dir": place, "cache": id, "id": id, "host": "elsewhere"}
        return {"integer": 1, "number": 1, "boolean": True, "string": by_name.get(called, name)}[kind]
