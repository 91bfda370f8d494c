"""One report with something in every place, and all its forms as files next to this one, for `tests.report.test_forms`.

``python -m tests.report.forms`` writes the files again, for a person to read the difference.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from rich.table import Table

from pytest_cudalink.base.finding import NO_DRIVER
from pytest_cudalink.report import html, text
from pytest_cudalink.report.cell_run import CellRun, Detail, UnsteeredLinks
from pytest_cudalink.report.compare import Comparison, OutcomeChange, Step
from pytest_cudalink.report.matrix_report import MatrixReport
from pytest_cudalink.report.origin import Origin
from pytest_cudalink.report.records import (
    AskedRecord,
    CrashRecord,
    FindingRecord,
    LibraryRecord,
    StickyRecord,
    VerdictRecord,
    ViolationRecord,
)
from tests.report.samples import LAUNCH, ORIGIN, SKEW

FOLDER = Path(__file__).parent
TEST = "tests/test_a.py::"


def operation(number: int, queued: int, ready: int, done: int | None, *, late: bool = False) -> dict[str, Any]:
    """An operation of a timeline."""
    at = {"queued": queued, "ready": ready, "done": done}
    return {"number": number, "function": "cuFill", "stream": "stream 1", "place": f"a.py:{number}", "late": late, **at}


def _cell(name: str, ctk: str, driver: str, outcomes: dict[str, str], **fields: Any) -> CellRun:
    axes = {"ctk": ctk, "driver": driver, "backend": fields.pop("backend", "auto")}
    versions = {
        "ctk": {"requested": ctk, "found": f"{ctk}.1", "kind": "real", "source": "wheel"},
        "driver": {"requested": None, "found": driver, "kind": "emulated", "source": "cuDriverGetVersion"},
        "python": {"requested": None, "found": "3.12", "kind": "", "source": ""},
        **fields.pop("versions", {}),
    }
    given = {"finished": True, "exitstatus": 1, "duration": 2.34, "links": {"nvjitlink": 3, "driver failed": 1}}
    outcomes = {name if "." in name else TEST + name: letter for name, letter in outcomes.items()}
    durations = {test: 0.25 * nth for nth, test in enumerate(outcomes)}
    details = {TEST + name: detail for name, detail in fields.pop("details", {}).items()}
    whole = {**given, "axes": axes, "versions": versions, "outcomes": outcomes, "durations": durations, **fields}
    return CellRun(name, details=details, origins=[ORIGIN], **whole)


def report() -> MatrixReport:
    """Four cells, one of which died, and more that are missing or damaged."""
    odd = Detail("odd <one>", "line 1\nE   odd <one>")
    other = {**SKEW, "what": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuLinkAddData of PTX ISA 9.0"}
    old = _cell(
        *("old", "13.0", "12.9"),
        dict.fromkeys(("s1", "s2", "odd", "all", "gl", "both"), "F") | {"skip": "S", "x": "x", "ok": "P", "X": "X"},
        backend="nvjitlink",
        details={
            "s1": Detail("222", "E 222", SKEW),
            "s2": Detail("222", "", other),
            "odd": odd,
            "both": Detail("boom"),
            "all": Detail("", "x\nlast line"),
            "gl": Detail("801", "E 801", LAUNCH),
            "skip": Detail("no GPU"),
            "x": Detail("known"),
        },
        links={"driver": 1, "nvjitlink": 12},
        unsteered=[
            UnsteeredLinks("numba", "cuLinkComplete", "n.py:3", "driver", "nvjitlink", 2),
            UnsteeredLinks("numba", "cuLinkComplete", "", "unknown", "nvjitlink", 1),
        ],
        unlinked_modules=2,
        violations=[ViolationRecord(nodeid=f"{TEST}s1", text="array freed"), ViolationRecord(text="log freed")],
        sticky=[StickyRecord(nodeid=f"{TEST}s2", code=700, error="CUDA_ERROR_ILLEGAL_ADDRESS (700)", after=4)],
        verdicts=[
            VerdictRecord(severity="error", kind="newest", what="driver 12.9 is too old", fix="install 13.0"),
            VerdictRecord(severity="error", kind="newest", what="driver 12.8 is too old", fix="install 13.0"),
            VerdictRecord(severity="warning", kind="pair", what="fits badly"),
            VerdictRecord(kind="driver", what="not known", why=NO_DRIVER, evidence=["nvrtc", "driver: unknown: x"]),
        ],
        versions={
            "nvjitlink": {"requested": "13.1", "found": "13.0", "kind": "faked", "source": "env"},
            "cuda-core": {"requested": None, "found": None, "kind": "absent", "source": ""},
        },
        hidden="the driver, by a stub",
        repeated=2,
        differing={f"{TEST}odd": [["P", "one.jsonl"], ["F", "two.jsonl"]]},
        libraries=[
            LibraryRecord(name="libcudart", soname="libcudart.so.13", path="/w/rt", place="wheels", owner="rt 13.0"),
            LibraryRecord(name="libnvvm", path="/s/nvvm", version="13.0", for_whom="numba"),
        ],
    )
    fault = FindingRecord(
        category="fault", kind="leak", what="leak: cuMemAlloc", evidence=["\tat a.py:3"], repeat="pytest --faults=2"
    )
    late = FindingRecord(
        category="schedule",
        kind="failed",
        nodeid=f"{TEST}ok",
        what="failed: late",
        operations=[
            operation(1, 4, 5, 10, late=True),
            operation(2, 5, 5, 5),
            operation(3, 6, 4, None),
            operation(4, 6, 7, 8, late=True),
        ],
    )
    new = _cell(
        *("new", "13.0", "13.0"),
        {"s1": "P", "s2": "P", "odd": "P", "all": "E", "gl": "U", "both": "F", "skip": "S", "ok": "P", "X": "X"},
        details={
            "all": Detail("another", "E another"),
            "gl": Detail("cuGL is not emulated"),
            "skip": Detail("no GPU here"),
            "both": Detail("bang"),
        },
        unlinked_modules=1,
        unsteered=[UnsteeredLinks("numba", "cuLinkComplete", "n.py:3", "driver")],
        findings=[fault, late],
        asked=[
            AskedRecord(what="driver", due=2, happened=2),
            AskedRecord(
                what="fault sweep", due=9, happened=3, left={"too slow": 1}, allowed={"no call": 3, "fails": 2}
            ),
            AskedRecord(what="of a later version", due=1),
        ],
        versions={"nvjitlink": {"requested": None, "found": "13.0", "kind": "real", "source": "wheel"}},
        libraries=[
            LibraryRecord(name="libcudart", soname="libcudart.so.13", path="/w/rt", place="wheels", owner="rt 13.0")
        ],
    )
    wide = _cell(
        *("wide", "13.0", "13.0"),
        {"s1": "P", "s2": "D", "odd": "P", "all": "F", "both": "S", "ok": "P", "tests/test_b.py": "E"},
        details={"all": Detail("another", "E another"), "s2": Detail("driver >= 13")},
        versions={"cuda-core": {"found": "1.0.0"}, "cuda-bindings": {"found": "13.0.3"}},
        duration=0.0,
        findings=[fault, FindingRecord(category="later kind", kind="odd", what="of a later version")],
        verdicts=[VerdictRecord(severity="error", kind="newest", what="driver 12.9 is too old")],
    )
    died = _cell(
        *("died", "12.9", "13.0"),
        {"s1": "P", "odd": "C"},
        finished=False,
        exitstatus=None,
        details={"odd": Detail("SIGSEGV", "Fatal")},
        links={"nvjitlink": 1},
        without_result=[f"{TEST}all", f"{TEST}ok"],
        crashes=[
            CrashRecord(
                nodeid=f"{TEST}odd",
                signal="SIGSEGV",
                last_events=["cuOld", "cuInit", '{"call":"a","result":1}', "b"],
                frames=["Fatal", ' File "a.py"', ' File "b.py"', 'File "c.py"', 'File "d.py"'],
            ),
            CrashRecord(exitcode=3),
        ],
    )
    del died.durations[f"{TEST}odd"]
    died.origins = [Origin("sample", "4f1c2ab9" * 5, "main", ORIGIN.ci_url, "2026-11-22T17:20:06Z", dirty=True)]
    return MatrixReport(
        [old, new, wide, died],
        missing=["gone", "may-be-gone"],
        damaged={"x.jsonl": "line 1 is not an event"},
        reasons={"gone": "no GPU here"},
        allowed={"may-be-gone"},
    )


def comparison() -> Comparison:
    """Three reports, and changes of every kind; a test and a cell that are gone have no place in the page."""
    steps = [
        Step(f"run {n}", Origin("sample", commit=f"{n}" * 40, started=f"2026-11-2{n}T10:00:00Z"), {"P": 5, "F": n})
        for n in (1, 2)
    ]
    changes = [
        *(("s1", "old", ".PF"), ("s2", "old", "FPF"), ("odd", "old", "PPF"), ("all", "new", "..E")),
        *(("ok", "old", "FFP"), ("skip", "old", ".PS"), ("x", "new", ".x.")),
        *(("all", "gone", "FFF"), ("gone", "old", "FFF")),
    ]
    return Comparison(
        (Step("run 0", Origin("sample"), {"P": 5}), *steps),
        [OutcomeChange(TEST + test, cell, letters) for test, cell, letters in changes],
        ["died"],
        {"z": "not JSON"},
        [("violation: array freed", f"{TEST}s1", "old"), ("crash", "outside tests", "died")],
    )


def page(*arguments: Any, **named: Any) -> dict[str, Any]:
    """What `html.render` gives its template, with the data of the grid read."""
    given: dict[str, Any] = {}
    with mock.patch.object(html, "_template", return_value=SimpleNamespace(render=given.update)):
        html.render(*arguments, **named)
    assert "<" not in given["data"]
    assert '": ' not in given["data"]
    del given["version"]
    return {**given, "data": json.loads(given["data"])}


def printed(*arguments: Any) -> Iterator[str]:
    """What `text.terminal` prints where there are colours: texts with their styles, tables by column."""
    printed: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    console = SimpleNamespace(print=lambda *given, **how: printed.append((given, how)))
    with mock.patch.object(text, "_console", return_value=console):
        text.terminal(*arguments)
    for given, how in printed:
        if not given or not isinstance(given[0], Table):
            yield from [f"{_styled(value)} {how or ''}".rstrip() for value in given or ("",)]
            continue
        (table,) = given
        looks = (table.title_style, table.title_justify, table.header_style, table.box, table.pad_edge)
        yield " ".join(map(str, (table.title, *looks)))
        for column in table.columns:
            cells = "; ".join(map(_styled, column.cells))
            yield f"  {_styled(column.header)} ({column.justify}, {column.overflow}): {cells}"


def _styled(value: Any) -> str:
    """A text with its style, and what parts of it have another."""
    spans = "".join(f" {span.start}-{span.end} {span.style}" for span in getattr(value, "spans", ()))
    return f"{value} {{{getattr(value, 'style', '')}{spans}}}"


def _lines(value: Any, indent: str = "") -> Iterator[str]:
    """JSON with a line for each entry of the outer levels."""
    if isinstance(value, dict | list) and len(json.dumps(value)) > 240:
        yield "{" if isinstance(value, dict) else "["
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, child in pairs:
            first, *rest = _lines(child, indent + " ")
            yield f"{indent} " + (f"{json.dumps(str(key))}: " if isinstance(value, dict) else "") + first
            yield from rest
        yield indent + ("}" if isinstance(value, dict) else "]")
    else:
        yield json.dumps(value, ensure_ascii=False)


def forms() -> dict[str, str]:
    """Every form by the name of its file; of the page what a browser shows, and the data of the grid."""
    whole = report(), comparison()
    _, _, shown = html.render(*whole).partition("</style>")
    body, _, _ = shown.partition("<footer>")
    return {
        "plain.txt": text.plain(*whole),
        "summary.md": text.markdown(*whole),
        "page.txt": "\n".join([body, *_lines(page(*whole)["data"])]) + "\n",
        "terminal.txt": "\n".join(printed(*whole)) + "\n",
    }
