"""Record files, as runs write them, for the tests of the report."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_cudalink.report import records

#: What no form may contain, but the ends of its own lines: characters that are obeyed or not seen.
OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
NASTY = "</script><script>alert(1)</script><b>&amp;"


def write(folder: Path, cell: str, tests: dict[str, str], end: bool = True, status: int = 0, **axes) -> Path:
    """A record file: tests by name with their outcome; ``ctk``, ``driver``, ``backend`` and ``policy`` as axes.

    A name with a dot in it is a file's.
    """
    file = folder / f"{cell}.jsonl"
    with records.Writer(file) as writer:
        driver = axes.get("driver", "13.0")
        versions = {
            "ctk": {"requested": axes.get("asked"), "found": axes.get("ctk", "13.0") + ".2", "kind": "real"},
            "driver": {"requested": driver, "found": driver, "source": "cuDriverGetVersion", "kind": "emulated"},
            **axes.get("versions", {}),
        }
        writer.write(
            "run",
            schema=1,
            run=cell,
            cell=cell,
            python=axes.get("python", "3.11") + ".7",
            settings={
                name: {"value": axes.get(name, value), "source": "default"}
                for name, value in (("backend", "auto"), ("policy", "strict-major"))
            },
            versions=versions,
            arch={"requested": None, "found": "sm_90"},
        )
        for name, outcome in tests.items():
            nodeid = name if "." in name else f"tests/test_a.py::{name}"
            writer.write("start", nodeid=nodeid, worker=None, attempt=1)
            if outcome == "cut":
                continue
            backend = axes.get("linked", "nvjitlink")
            writer.write("link", nodeid=nodeid, target="bundled", backend=backend, result=axes.get("result", "ok"))
            documented = {"requirement": "driver >= 13", "raises": "222"} if outcome == "documented" else None
            outcome = "passed" if documented else outcome  # noqa: PLW2901
            reason = "" if outcome == "passed" else f"why {name}"
            fields = {"duration": 0.5, "reason": reason, "documented": documented}
            longrepr = f"long {NASTY}" if outcome in ("failed", "error") else ""
            writer.write("test", nodeid=nodeid, attempt=1, outcome=outcome, longrepr=longrepr, **fields)
        for verdict in axes.get("verdicts", ()):
            writer.write("verdict", nodeid=None, **verdict)
        for text in axes.get("violations", ()):
            writer.write("violation", nodeid="tests/test_a.py::a", text=text)
        for where, linked in axes.get("unsteered", ()):
            place = {"via": "cuda.bindings.driver", "call": "cuLinkComplete", "where": where, "backend": linked}
            writer.write("unsteered", nodeid=None, worker=None, result="ok", forced="nvjitlink", **place)
        if end:
            modules = axes.get("modules", 0)
            writer.write("end", exitstatus=status, duration=2.5, counts={}, unlinked_modules=modules)
    return file
