"""Random ClassAd expressions: of every operator and function, over all types, mostly of types that fit.

Left out are accidental behaviours of HTCondor's library that Tidecast does not copy, each with its reason in
crates/classad/README.md; and functions that depend on the time, the host or chance.
"""
import pathlib
import random

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "crates" / "classad" / "tests" / "fixtures"
MY = FIXTURES / "my.ad"
TARGET = FIXTURES / "target.ad"

NAMES = ("i j zero big r half t f u e s empty csv nums ints mixed words ads n sum1 chain loop lazy cond at rt want other1 "
         "nope k tr tlist back mine both other2 DiskUsage TotalDisk MyType I S").split()
BINARY = "+ - * / % < <= > >= == != =?= =!= is isnt && || & | ^ << >> >>>".split()
STRINGS = ["", "a", "A", "abc", "Hello", "hello world", "a,b,c", "1,2,3", "1.5, 2", " x ", "10", "-5", "2.5e3", "0x1F", "true",
           "FALSE", "user@host", "slot1@m@x", "1.2.3", "1.10", "1.02", "A=1;B=2", "A=1 B='x y'", "x'y", "%Y-%m-%d", "%H:%M:%S",
           "b", "ab,bc", "1+1", "i + 2", "{1,2}", "é", "a\tb", 'q"q', "back\\slash", "a;b;c", "aXbXc", "inf", "%a %d %b %j %U %w %y %p", "z.1"]
PATTERNS = ["a", "b+", "^a", "[a-c]+", "(a)(b)?", "x|y", "o.?w", "", "(", "[0-9]+", "l{2}", "^$", "(?i)HELLO", "\\d", "b$", "[", "a(b|c)", "."]
OPTIONS = ["", "i", "f", "g", "fi", "s", "x", "m", "q"]


class Generator:
    """Expressions from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.functions = {
            **{name: "?" for name in "isUndefined isError isString isInteger isReal isList isClassAd isBoolean isAbsTime isRelTime "
                                     "int real string bool debug".split()},
            "ifThenElse": "b??", "size": "(lsd)", "member": "vl", "identicalMember": "vl", "anyCompare": "cln", "allCompare": "cln",
            "sum": "m", "avg": "m", "min": "m", "max": "m", "floor": "r", "ceil": "r", "ceiling": "r", "round": "r", "pow": "nn",
            "quantize": "n(nm)", "strcat": "*", "join": "j", "toUpper": "s", "toLower": "s", "substr": "si[i]", "strcmp": "ss",
            "stricmp": "ss", "versioncmp": "ss", "versionLE": "ss", "versionLT": "ss", "versionGE": "ss", "versionGT": "ss",
            "versionEQ": "ss", "version_in_range": "sss", "split": "s[s]", "splitUserName": "s", "splitSlotName": "s",
            "stringListSize": "s[s]", "stringListSum": "q", "stringListAvg": "q", "stringListMin": "q", "stringListMax": "q",
            "stringListMember": "ss[s]", "stringListIMember": "ss[s]", "stringListSubsetMatch": "ss[s]", "stringListISubsetMatch": "ss[s]",
            "stringListsIntersect": "ss[s]", "stringList_regexpMember": "ps[s]", "regexp": "ps[o]", "regexpMember": "p(lgg)[o]",
            "regexps": "ps1[k]", "replace": "ps1", "interval": "i", "relTime": "i", "absTime": "i[i]", "splitTime": "(iatr)",
            "formatTime": "(ia)[s]", "getYear": "a", "getMonth": "a", "getDayOfYear": "a", "getDayOfMonth": "a", "getDayOfWeek": "a",
            "getDays": "(at)", "getHours": "(at)", "getMinutes": "(at)", "getSeconds": "(at)", "eval": "x", "evalInEachContext": "?w",
            "countMatches": "?w", "unparse": "y", "envV1ToV2": "E", "mergeEnvironment": "V[V]", "argsToList": "(sV)", "listToArgs": "g",
            "userMap": "ss[s]", "replaceAll": "9",
        }

    def expression(self, depth: int = 4) -> str:
        """One of any type."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.12:
            return self.leaf()
        if depth >= 4 and rng.random() < 0.02:
            # Alone: HTCondor evaluates the rest after it in another scope.
            return f"unresolved({self.typed('y', 0)})"
        pick = rng.random()
        if pick < 0.40:
            return self.call(depth)
        if pick < 0.70:
            return f"{self.operand(depth)} {rng.choice(BINARY)} {self.operand(depth)}"
        if pick < 0.76:
            return f"{rng.choice('! - + ~'.split())}{self.operand(depth)}"
        if pick < 0.80:
            return f"{self.operand(depth)} ? {self.expression(depth - 1)} : {self.expression(depth - 1)}"
        if pick < 0.83:
            return f"{self.operand(depth)} ?: {self.expression(depth - 1)}"
        if pick < 0.86:
            return f"({self.expression(depth - 1)})"
        if pick < 0.90:
            return f"({self.typed('l', depth)})[{self.typed('i', depth)}]"
        if pick < 0.94:
            return f"({self.typed(rng.choice('ddw?'), depth)}).{rng.choice(['x', 'y', 'v', 'w', 'a', 'i', 'deep', 'z'])}"
        return self.typed(rng.choice("ldtawm"), depth)

    def operand(self, depth: int) -> str:
        if self.rng.random() < 0.55:
            return self.leaf()
        return f"({self.expression(depth - 1)})"

    def leaf(self) -> str:
        rng = self.rng
        pick = rng.random()
        if pick < 0.40:
            name = rng.choice(NAMES)
            return rng.choice(["", "", "", "", "MY.", "TARGET.", "my.", "n.", ".", "other.", "self."]) + name
        if pick < 0.55:
            return rng.choice(["n.deep.z", "n.deep.up", "n.deep.s", "n.y", "TARGET.n.q", "TARGET.back", "parent.i", "ads[0].w", "ads.v", "n", "TARGET.mine"])
        return self.typed(rng.choice("iinrrsssbbvttal"), 0)

    def string(self, value: str) -> str:
        escapes = {"\\": "\\\\", '"': '\\"', "\t": "\\t", "\n": "\\n"}
        return '"' + "".join(escapes.get(c, c) for c in value) + '"'

    def typed(self, kind: str, depth: int) -> str:
        """One that is most probably of a type."""
        rng = self.rng
        if kind == "?" or (kind not in "py" and rng.random() < 0.08):
            return self.expression(depth - 1)
        if kind == "i":
            return str(rng.choice([0, 1, 2, 3, 5, 7, -1, -2, 10, 63, 64, 65, 100, 3600, 86400, -90061, 1000000, 2147483647, -2147483648, rng.randint(-50, 50)]))
        if kind == "r":
            return rng.choice(["0.0", "1.5", "-2.5", "0.1", "3.0", "2.5", "3.5", "1e10", "-1e-5", "1e300", "123456.789", "0.30000000000000004"])
        if kind == "n":
            return self.typed(rng.choice("iirb"), depth)
        if kind == "b":
            return rng.choice(["true", "false", "undefined", "error", "TRUE", "i > 3"])
        if kind == "v":
            return rng.choice(["undefined", "error", "1", '"a"', "2.5", "true"])
        if kind in "s1":
            return self.string(rng.choice(STRINGS if kind == "s" else ["", "X", "<\\0>", "\\1", "\\2", "a\\b", "\\9"]))
        if kind in "l":
            return rng.choice(["ints", "mixed", "words", "lazy", "ads"]) if rng.random() < 0.4 else self.items("?" if depth > 0 else "n", depth)
        if kind == "m":
            return rng.choice(["ints", "lazy"]) if rng.random() < 0.3 else self.items("n", depth)
        if kind == "g":
            return self.items("s", depth)
        if kind == "w":
            return "ads" if rng.random() < 0.4 else self.items("d", depth)
        if kind == "d":
            if rng.random() < 0.3:
                return rng.choice(["n", "TARGET.n", "n.deep", "MY", "self"]) if depth > 0 else "n"
            attrs = "; ".join(f"{rng.choice('xyvwai')} = {self.expression(min(depth, 2) - 1)}" for _ in range(rng.randint(0, 3)))
            return f"[{attrs}]"
        if kind == "t":
            return rng.choice(["rt", f"relTime({rng.choice([0, 5, 60, 3661, -5, 90061, -90061])})", "relTime(1.5)"])
        if kind == "a":
            return rng.choice(["at", f"absTime({rng.choice([0, 1000000000, 86399])}, {rng.choice([0, 3600, -19800])})"])
        return self.typed_for_function(kind, depth)

    def typed_for_function(self, kind: str, depth: int) -> str:
        rng = self.rng
        if kind == "c":
            return self.string(rng.choice(["<", "<=", "==", "!=", ">", ">=", "is", "isnt", "=?=", ""]))
        if kind == "p":
            return self.string(rng.choice(PATTERNS))
        if kind == "o":
            return self.string(rng.choice(OPTIONS))
        if kind == "E":
            return self.string(rng.choice(["A=1;B=2 3", "A=it's;B=", "", "A", "=1", "|A=1|B=2", ";A=1;B=2|3", "B=1;A=2;B=3", " A=1; B = 2", "A=a ' b"]))
        if kind == "V":
            return self.string(rng.choice(["A=1 B='x y'", "A=2", "A='it''s'", "A='x", "A='' B=x'y z'w", "$$(x)", "Z=1 Y=2 a=3", "", "  ", "A='  '' '"]))
        if kind == "k":
            return self.string(rng.choice(["", "i", "f", "fi", "s", "m"]))
        if kind == "q":
            return self.string(rng.choice(["1,2,3", "", " ", "5", "1.5,2", "0.5 7", "1,x", ",", "3, 4,,5", "1e2"]))
        if kind == "x":
            return self.string(rng.choice([s for s in STRINGS if "%" not in s] + [self.expression(min(depth, 2) - 1)]))
        if kind == "y":
            return rng.choice([*[name for name in NAMES if name not in ("n", "ads", "k", "tr", "tlist", "back", "mine", "both", "other2", "at", "rt")], "1", "n.x"])
        raise ValueError(kind)

    def items(self, kind: str, depth: int) -> str:
        return "{" + ", ".join(self.typed(kind, depth - 1) for _ in range(self.rng.randint(0, 4))) + "}"

    def call(self, depth: int) -> str:
        rng = self.rng
        name = rng.choice(list(self.functions))
        signature = self.functions[name]
        if rng.random() < 0.1:
            name = rng.choice([name.upper(), name.lower()])
        if signature == "*":
            args = [self.expression(depth - 1) for _ in range(rng.randint(0, 4))]
        elif signature == "j":
            args = [self.typed(rng.choice("ssl?"), depth) for _ in range(rng.randint(0, 4))]
        elif signature == "9":
            # An argument of no fitting type triggers a fault of HTCondor's.
            args = [self.string(rng.choice(["a", "b+", "x|y", "[a-c]+", "(l)(l)"])), self.typed("s", 0), self.typed("1", 0)]
        else:
            args = [self.typed(kind, depth) for kind in self.kinds(signature)]
            # Numbers of arguments that a function does not take; these fail as a whole, and times of texts differ.
            if rng.random() < 0.03 and name.lower() not in ("abstime", "reltime", "formattime", "ifthenelse"):
                args = args[:-1] if rng.random() < 0.5 else args + [self.leaf()]
        if name.lower() in ("abstime", "reltime"):
            args = [f"int({args[0]})", *[f"60 * int({a})" for a in args[1:]]]
        if name.lower() in ("evalineachcontext", "countmatches") and args and args[0] not in ("want", "i"):
            # HTCondor evaluates the rest in the scope that a reference here refers to.
            args[0] = f"({args[0]})"
        return f"{name}({', '.join(args)})"

    def kinds(self, signature: str) -> list[str]:
        kinds, at = [], 0
        while at < len(signature):
            if signature[at] == "(":
                end = signature.index(")", at)
                kinds.append(self.rng.choice(signature[at + 1:end]))
                at = end
            elif signature[at] == "[":
                end = signature.index("]", at)
                if self.rng.random() < 0.5:
                    kinds.append(signature[at + 1:end])
                at = end
            else:
                kinds.append(signature[at])
            at += 1
        return kinds

    def ad(self) -> str:
        """An ad with requirements of another of its kind."""
        rng = self.rng
        attrs = [f"{name} = {rng.choice(['1', '2.5', 'true', '5', 'undefined', chr(34) + 'a' + chr(34)])}" for name in rng.sample("ijklm", 4)]
        clause = lambda: f"{rng.choice(['TARGET.', 'MY.', '', 'other.'])}{rng.choice('ijklm')} {rng.choice(['<', '>=', '==', '!=', '=!='])} {self.leaf_of_ad()}"  # noqa: E731
        clauses = rng.choice([" && ", " || "]).join(clause() for _ in range(rng.randint(1, 2)))
        requirements = [] if rng.random() < 0.05 else [f"Requirements = {rng.choice([clauses, clauses, clauses, 'true', '1', 'TARGET.i'])}"]
        return f"[{'; '.join(attrs + requirements)}]"

    def leaf_of_ad(self) -> str:
        return self.rng.choice(["1", "2", "true", "undefined", "MY.i", "TARGET.j", "k", '"A"'])
