"""What a violation says of the note that a driver left."""

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_cudalink.base.finding import Violation
from pytest_cudalink.emulator.control import violation_of

_LINES = ["/t/a.py:2 in call", "/x/_pytest/python.py:1 in run", "<frozen runpy>:3 in x", "/t/a.py:9 in test_it"]
_TOLD = ("/t/a.py:9 in test_it", "/t/a.py:2 in call")
_BELOW = {"violation": 3, "call": "cuLinkComplete", "pid": 7, "command": "a.py", "test": "t.py::test_it (call)"}
_THERE = {"process": "process 7 (a.py)", "test": "t.py::test_it"}
_STATE = {"object": "link state", "number": 2, "option": "optionValues", "what": "freed", "made": _LINES}
_FOUND = {"expected": "1", "found": "2", "stack": ["x+1"], **_BELOW}
_MEMORY = {"object": "buffer", "number": 2, "option": "CUdeviceptr", "after": "cuMemFree", "maker": "cuMemFree_v2"}
_ORDER = {"object": "order", "option": "race", "maker": "cuMemcpy", "made": _LINES, "stack": ["x+3"]}
_DEADLOCK = {"object": "deadlock", "what": "all wait", "stack": _LINES}
_DEAD = ("deadlock", 0, 0, "deadlock", "all wait", "deadlock: all wait", "")
_GIVEN = "link state 2 was given its memory by cuLinkCreate, called from:"
_FREED = "link state 2: optionValues: freed, noticed by "
_WAIT = ("no_wait", "waits for work that was not done")
_WAITS = "cuLinkComplete waits for unfinished work, which no_wait forbids"


@pytest.mark.parametrize(
    ("note", "more", "expected"),
    [
        ({}, {}, ("lifetimes", 0, 0, "", "", " 0: : , noticed by ; expected , found ", "", ())),
        (
            {**_STATE, **_FOUND},
            {"python_stack": ["here"]},
            (
                *("lifetimes", 3, 2, "optionValues", "freed", f"{_FREED}cuLinkComplete; expected 1, found 2"),
                *("cuLinkComplete", ("x+1",), ("here",), (_GIVEN, *(f"  {line}" for line in _TOLD))),
            ),
        ),
        (
            _STATE,
            {"creator": ["there"]},
            (
                *("lifetimes", 0, 2, "optionValues", "freed", f"{_FREED}; expected , found "),
                *("", (), (), (_GIVEN, "  there")),
            ),
        ),
        (
            {**_MEMORY, "made": ["x+2"], "made native": True},
            {},
            (
                *("lifetimes", 0, 0, "CUdeviceptr", "", "buffer 2: CUdeviceptr: , noticed by ; expected , found "),
                *("", (), (), ("buffer 2 was freed by cuMemFree_v2, called from:", "  x+2")),
            ),
        ),
        (
            {**_ORDER, **_BELOW},
            {},
            (
                *("order", 3, 0, "race", "", "", "cuLinkComplete", (), ("x+3",)),
                ("the first, cuMemcpy, was called from:", *(f"  {line}" for line in _TOLD)),
            ),
        ),
        (
            {"object": "order", "made": ["x+3"], "made native": True, "stack": ["x+4"], "stack native": True},
            {},
            ("order", 0, 0, "", "", "", "", ("x+4",), (), ("the first, , was called from:", "  x+3")),
        ),
        (_DEADLOCK, {}, (*_DEAD, (), _TOLD)),
        (_DEADLOCK, {"python_stack": ["here"]}, (*_DEAD, (), ("here",))),
        (_DEADLOCK, {"python_stack": ["here"], "creator": ["thread 1"]}, (*_DEAD, (), (), ("thread 1",))),
        ({**_DEADLOCK, "stack native": True, "stack": ["x"]}, {}, (*_DEAD, ("x",))),
        (
            {"object": "wait", "option": "stream", "stack": ["x+3"], **_BELOW},
            {"python_stack": ["here"]},
            ("wait", 3, 0, *_WAIT, _WAITS, "cuLinkComplete", ("x+3",), ("here",)),
        ),
    ],
)
def test_what_a_note_becomes(note: Mapping[str, Any], more: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """Each member that it has, and none that it lacks; what is right to do comes from the table of rules."""
    violation = violation_of(note, **more)._replace(advice="", fix="")
    assert violation == Violation(*expected, **(_THERE if "command" in note else {}))
