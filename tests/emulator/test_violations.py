"""What a violation says of the note that a driver left."""

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_cudalink.base.finding import Violation
from pytest_cudalink.emulator.control import _stacks, violation_of

_LINES = ["/t/a.py:2 in call", "/x/_pytest/python.py:1 in run", "<frozen runpy>:3 in x", "/t/a.py:9 in test_it"]
_TOLD = ("/t/a.py:9 in test_it", "/t/a.py:2 in call")
_BELOW = {"violation": 3, "call": "cuWait", "pid": 7, "command": "a.py", "test": "t.py::test_it (call)"}
_THERE = {"process": "process 7 (a.py)", "test": "t.py::test_it"}
_STATE = {"object": "link state", "number": 2, "option": "optionValues", "what": "freed", "made": _LINES}
_FOUND = {**_STATE, **_BELOW, "expected": "1", "found": "2", "stack": ["x+1"]}
_MEMORY = {"object": "buffer", "number": 2, "option": "CUdeviceptr", "after": "cuMemFree", "maker": "cuFree"}
_NATIVE = {"made": ["x+3"], "made native": True, "stack": ["x+4"], "stack native": True}
_ORDER = {**_BELOW, "object": "order", "option": "race", "maker": "cuCopy", "made": _LINES, "stack": ["x+3"]}
_DEADLOCK = {"object": "deadlock", "what": "all wait", "stack": _LINES}
_DEAD = ("deadlock", 0, 0, "deadlock", "all wait", "deadlock: all wait", "")
_WAIT = {**_BELOW, "object": "wait", "call": "cuLibraryUnload", "option": "context", "stack": ["x+3"]}
_WAITS = ("waits for all streams of the context", "cuLibraryUnload waits for unfinished work, which no_wait forbids")
_SOME = ("waits for work that was not done", "a call of the driver waits for unfinished work, which no_wait forbids")
_OPTION = (2, "optionValues", "freed")
_HERE = {"python_stack": ["here"]}
_FREED = "link state 2: optionValues: freed, noticed by "


def _after(head: str, *lines: str) -> tuple[str, ...]:
    return (f"{head} called from:", *(f"  {line}" for line in lines))


_GIVEN = _after("link state 2 was given its memory by cuLinkCreate,", *_TOLD)
_MADE = _after("link state 2 was given its memory by cuLinkCreate,", "there")
_BUFFER = (
    "",
    "buffer 2: CUdeviceptr: , noticed by ; expected , found ",
    "",
    ("x+4",),
    (),
    _after("buffer 2 was freed by cuFree,", "x+3"),
)
_FIRST = _after("the first, , was", "x+3")
_FOUND_TEXT = f"{_FREED}cuWait; expected 1, found 2"


def test_lines_of_stacks() -> None:
    """Lines of Python come outermost first, without those of runners; native frames stay as they are."""
    lines = [*(f"p{line}" for line in _LINES), "nlib.so+1 f"]
    assert _stacks(lines) == (_TOLD, ("lib.so+1 f",))


@pytest.mark.parametrize(
    ("note", "more", "expected"),
    [
        ({}, {}, ("lifetimes", 0, 0, "", "", " 0: : , noticed by ; expected , found ", "", ())),
        (_FOUND, _HERE, ("lifetimes", 3, *_OPTION, _FOUND_TEXT, "cuWait", ("x+1",), ("here",), _GIVEN)),
        (_STATE, {"creator": ["there"]}, ("lifetimes", 0, *_OPTION, f"{_FREED}; expected , found ", "", (), (), _MADE)),
        ({**_MEMORY, **_NATIVE}, {}, ("lifetimes", 0, 0, "CUdeviceptr", *_BUFFER)),
        (_ORDER, {}, ("order", 3, 0, "race", "", "", "cuWait", (), ("x+3",), _after("the first, cuCopy, was", *_TOLD))),
        ({"object": "order", **_NATIVE}, {}, ("order", 0, 0, "", "", "", "", ("x+4",), (), _FIRST)),
        (_DEADLOCK, {}, (*_DEAD, (), _TOLD)),
        (_DEADLOCK, _HERE, (*_DEAD, (), ("here",))),
        (_DEADLOCK, {**_HERE, "creator": ["thread 1"]}, (*_DEAD, (), (), ("thread 1",))),
        ({**_DEADLOCK, **_NATIVE}, {}, (*_DEAD, ("x+4",))),
        (_WAIT, _HERE, ("wait", 3, 0, "no_wait", *_WAITS, "cuLibraryUnload", ("x+3",), ("here",))),
        ({"object": "wait", "command": "a.py"}, {}, ("wait", 0, 0, "no_wait", *_SOME, "", ())),
    ],
)
def test_what_a_note_becomes(note: Mapping[str, Any], more: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """Each member that it has, and none that it lacks; what is right to do comes from the table of rules."""
    violation = violation_of(note, **more)._replace(advice="", fix="")
    known = _THERE if "pid" in note else {"process": "process  (a.py)"}
    assert violation == Violation(*expected, **(known if "command" in note else {}))
