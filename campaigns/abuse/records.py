"""Mutated records, saved reports and files of cells: input number N of a seed is the same on every machine."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from msgspec.structs import asdict

from pytest_cudalink.report.cell_run import CellRun, Detail, UnsteeredLinks
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.records import OUTCOMES, CrashRecord, Event, StartRecord, TestRecord, ViolationRecord
from tests.report import samples

from .mutations import damaged


def _record() -> list[dict[str, Any]]:
    """The events of a finished run: one of each kind, and a test of each outcome."""
    tests: list[Event] = []
    for number, outcome in enumerate((*OUTCOMES, "passed")):
        nodeid = f"tests/test_{number % 3}.py::test[{number}]"
        why = "" if outcome in ("passed", "xpassed") else "why"
        documented = {"requirement": "driver >= 13.2", "raises": "222"} if number == 9 else None
        test = TestRecord(nodeid=nodeid, outcome=outcome, reason=why, longrepr=why and "E   no", documented=documented)
        tests += [StartRecord(nodeid=nodeid), test]
    events = (*samples.EVENTS[:5], *tests, *samples.EVENTS[5:])
    return [
        {"event": event.__struct_config__.tag, **asdict(event), "time": 5.0 + number}
        for number, event in enumerate(events)
    ]


def _lines(events: list[Any]) -> bytes:
    return b"".join(json.dumps(event).encode() + b"\n" for event in events)


#: A sound record file of a finished run, and one of a run that died.
RECORDS: Final = (_lines(_record()), _lines(_record()[:17]))
#: A sound saved report.
SAVED: Final = (
    MatrixReport(
        [
            CellRun(
                name,
                files=[f"{name}.jsonl"],
                axes={"ctk": "13.0", "driver": driver},
                versions={"ctk": {"requested": "13.0", "found": "13.0.2", "source": "a wheel", "kind": "real"}},
                finished=True,
                exitstatus=1,
                duration=2.5,
                outcomes={"a.py::t": "F", "a.py::u": "P"},
                durations={"a.py::t": 0.5, "a.py::u": 0.25},
                details={"a.py::t": Detail("why", "how")},
                links={"driver": 2},
                unsteered=[UnsteeredLinks("cuda.bindings.driver", "cuLinkComplete", "", "driver", None, 3)],
                unlinked_modules=1,
                violations=[ViolationRecord(text="freed")],
                crashes=[CrashRecord(nodeid="a.py::t", signal="SIGSEGV", last_events=["cuInit"])],
                reruns=1,
                differing={"a.py::t": [["F", "x"], ["P", "y"]]},
                repeated=1,
            )
            for name, driver in (("old-a", "13.0"), ("old-b", "12.9"))
        ],
        missing=["gone"],
        damaged={"x.jsonl": "x.jsonl is empty"},
    )
    .as_json()
    .encode(),
)
#: A sound file of cells.
CELLS: Final = ((Path(__file__).parents[2] / "matrices" / "cells.toml").read_bytes(),)
#: Values that stand where another type or range belongs.
_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, 1, -1, 7, 2**31, 2**63, 2**64, -(2**70), 10**400, 0.5, -0.0, 1e308),
    *(float("nan"), float("inf"), float("-inf")),
    *("", " ", "passed", "failed", "documented", "rerun", "run", "?", "P", "FF", "13", "../x", "/", "::", "a::b::c"),
    *("\ud800", "\x00", "\x1b[31m", "\x1b]0;x\x07", "\u202e", "\u200b", "\u2028", "]]>", "</script><script>x"),
    *("<b>", "|`\n", "x" * 5000, "[red]x[/]", "{{ 1 }}", "__proto__", "constructor"),
    *([], {}, [[]], [None], ["passed"], {"a": 1}, {"": None}, {"found": []}, [{}], [["F"], ["P", "y", "z"]]),
)
_WORDS: Final = (
    *(b"null", b"NaN", b"{", b"}", b"[", b"]", b'"', b",", b":", b"\n", b"\\ud800", b"\\u0000"),
    *(b"\xff\xfe", b"\xed\xa0\x80", b"\x1b[31m", b"1e999", b"9" * 400, b'"event": "run"', b'"outcome": "passed"'),
    *(b"[[", b"=", b"#", b"'''", b'"""'),
)
_TOML: Final = (
    *(b"[]", b"{}", b'""', b"1", b"true", b'"\\u0000"', b'["-r /etc/passwd"]', b'"\\u202e"', b"nan", b"2099-01-01"),
)


def _deep(pick: random.Random) -> bytes:
    depth = pick.choice((5, 20, 200, 990, 5000, 60_000))
    opening, inside, closing = pick.choice(((b"[", b"", b"]"), (b'{"a":', b"1", b"}")))
    return opening * depth + inside + closing * depth


def _insert(data: bytes, pick: random.Random) -> bytes:
    """Put something where it does not belong."""
    at = pick.randrange(len(data))
    return data[:at] + (_deep(pick) if pick.random() < 0.3 else pick.choice(_WORDS)) + data[at:]


def _mutate_lines(data: bytes, pick: random.Random) -> bytes:
    """Remove, repeat, exchange, join or cut lines."""
    lines = data.splitlines(keepends=True)
    at, other = pick.randrange(len(lines)), pick.randrange(len(lines))
    match pick.randrange(6):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = lines[at].rstrip(b"\n")
        case 4:
            lines[at] = lines[at][: pick.randrange(len(lines[at]))] + pick.choice((b"", b"\n"))
        case 5:
            lines += lines[at:]
    return b"".join(lines)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place inside a value, as the container and the key."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in items for place in ((value, key), *_places(child))]


def _mutate_value(value: Any, pick: random.Random) -> None:
    """Change one place of a value: another value, another key, no key, one more."""
    container, key = pick.choice(_places(value))
    match pick.randrange(8):
        case 0 | 1 | 2 | 3:
            container[key] = pick.choice(_VALUES)
        case 4:
            del container[key]
        case 5 if isinstance(container, dict):
            container[pick.choice(("event", "x", "\ud800", "\x1b", "nodeid"))] = container.pop(key)
        case 6 if isinstance(container, dict):
            container[pick.choice(("more", "<b>", "time", "schema", "nodeid"))] = pick.choice(_VALUES)
        case _:
            container[key] = [container[key]] * pick.choice((1, 2, 40))


def _mutate_events(data: bytes, pick: random.Random) -> bytes:
    """Change a value in an event."""
    lines = data.splitlines(keepends=True)
    at = pick.randrange(len(lines))
    if (event := _mutate_saved(lines[at], pick)) is lines[at]:
        return data
    lines[at] = event + b"\n"
    if pick.random() < 0.1:  # a key twice: the later counts
        lines[at] = lines[at].replace(b"{", b'{"outcome": "failed", "cell": "c", ', 1)
    return b"".join(lines)


def _mutate_saved(data: bytes, pick: random.Random) -> bytes:
    try:
        content = json.loads(data)
        _mutate_value(content, pick)
        return json.dumps(content).encode()
    except (ValueError, IndexError, RecursionError):  # after another mutation
        return data


def _mutate_toml(data: bytes, pick: random.Random) -> bytes:
    """Replace what is after a key, or add a table."""
    lines = data.splitlines(keepends=True)
    at = pick.randrange(len(lines))
    key, equals, _ = lines[at].partition(b"=")
    value = _deep(pick) if pick.random() < 0.1 else pick.choice(_TOML)
    lines[at] = (key + b"= " + value + b"\n") if equals else b"[cells." + value.strip(b'"') + b"]\n"
    return b"".join(lines)


_Mutation = Callable[[bytes, random.Random], bytes]
_MUTATIONS: Final[dict[str, tuple[_Mutation, ...]]] = {
    "record": (damaged, _insert, _mutate_lines, *(_mutate_events,) * 5),
    "saved": (damaged, _insert, *(_mutate_saved,) * 5),
    "cells": (damaged, _insert, _mutate_lines, *(_mutate_toml,) * 4),
}
_SUBJECTS: Final = {"record": RECORDS, "saved": SAVED, "cells": CELLS}
#: By the last digit of an input's number; "record" otherwise.
_KINDS: Final = {8: "saved", 9: "cells"}


def mutated(seed: int, number: int) -> tuple[str, bytes]:
    """Return the kind of an input, one of `_SUBJECTS`, and its bytes after one to three mutations."""
    pick = random.Random(f"{seed}/{number}")
    kind = _KINDS.get(number % 10, "record")
    data = pick.choice(_SUBJECTS[kind])
    for _ in range(pick.choice((1, 1, 1, 2, 3))):
        if data:
            data = pick.choice(_MUTATIONS[kind])(data, pick)
    return kind, data
