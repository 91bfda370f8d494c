"""Run stages in child processes, and return what ran, what failed and how long it took."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from campaigns.hardware.result import Result, Table
from campaigns.hardware.stages import Stage

ROOT = Path(__file__).parents[2]
#: Characters of a failure's text, and of the output of a stage that broke.
_MOST = 1200


def run_stage(stage: Stage) -> dict[str, Any]:
    """Return the results of one stage; its outcome is ``"passed"``, ``"failed"`` or ``"not run"``."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        environment = {**os.environ, "TMPDIR": "/tmp"}  # recordings have its name in texts of the driver
        place = ROOT
        if stage.kind == "benchmark":
            place = Path(folder)  # `python -c` in the checkout would import the package that is not built
        else:
            environment["PYTHONSAFEPATH"] = "1"
            # last on the path: the tests are those of the checkout, and the package is that of the environment
            add = f"import sys\nsys.path.append({str(ROOT)!r})\n"
            (Path(folder) / "sitecustomize.py").write_text(add, encoding="utf-8")
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        code, said = _run(_command(stage, out), stage.seconds, place, environment)
        try:
            result = _READERS[stage.kind](out, said)
            if stage.kind == "tests" and code not in (0, 1):
                result.failures.append(f"pytest ended with exit code {code}; expected 0 or 1\n{said[-_MOST:]}")
        except (OSError, ValueError, LookupError, TypeError, ET.ParseError):
            ended = f"it was stopped after {stage.seconds} s" if code is None else f"it ended with exit code {code}"
            result = Result(failures=[f"{ended} without a result\n{said[-_MOST:]}"])
    outcome = "failed" if result.failures else "passed" if result.passed else "not run"
    about = {"name": stage.name, "title": stage.title, "command": stage.command, "outcome": outcome}
    return {**about, "seconds": round(time.monotonic() - began, 1), **asdict(result)}


def _command(stage: Stage, out: Path) -> list[str]:
    """Return the command of a stage; -P keeps the checkout's package, which is not built, from hiding the wheel's."""
    python = [sys.executable, "-P"]
    if stage.kind == "tests":
        options = ["-q", "-p", "no:cacheprovider", f"--junitxml={out}", "-o", "junit_family=xunit1"]
        return [*python, "-m", "pytest", *options, *stage.words.split()]
    if stage.kind == "program":
        return [*python, "-m", *stage.words.split()]
    # its folder has the modules that it imports
    file, *options = stage.words.split()
    return [sys.executable, str(ROOT / file), *options, f"--json={out}"]


def _run(command: list[str], seconds: float, place: Path, environment: dict[str, str]) -> tuple[int | None, str]:
    """Run a command in a folder; return its exit code, None if it took too long, and its output."""
    streams: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "errors": "replace",
    }
    with subprocess.Popen(command, cwd=place, env=environment, start_new_session=True, **streams) as child:
        try:
            said, _ = child.communicate(timeout=seconds)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # also the children of a stage that hangs in the driver
            said, _ = child.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return None, said
    return child.returncode, said


def _of_tests(out: Path, _said: str) -> Result:
    """Read pytest's JUnit file."""
    result = Result()
    reasons = Counter[str]()
    for case in ET.parse(out).iter("testcase"):
        name = f"{case.get('file', '')}::{case.get('name')}"
        bad = [element for element in case if element.tag in ("failure", "error")]
        if bad:
            text = (bad[0].get("message") or bad[0].text or "").strip()
            result.failures.append(f"{name}: {text[:_MOST]}")
        elif (skipped := case.find("skipped")) is not None:
            reasons[skipped.get("message") or "no reason"] += 1
        else:
            result.passed += 1
    result.skipped = [[f"{number} of the tests", why] for why, number in reasons.items()]
    return result


def _of_program(_out: Path, said: str) -> Result:
    """Read the last line of a program of this folder."""
    *_, line = said.strip().splitlines() or [""]
    result = Result(**json.loads(line))
    result.tables = [Table(**table) for table in json.loads(line)["tables"]]
    return result


def _of_benchmark(out: Path, _said: str) -> Result:
    """Read the figures of a benchmark; a figure beyond its limit is a failure."""
    figures = json.loads(out.read_text(encoding="utf-8"))
    result = Result()
    times = result.table(figures["title"], "what", "way", "median", "quartiles", "rounds")
    for row in figures["rows"]:
        spread = f"{_time(row['low'])} to {_time(row['high'])}"
        times.row(row["table"], row["name"], _time(row["median"]), spread, row["rounds"])
    limits = result.table("Limits", "what", "figure", "limit")
    for bound in figures["limits"]:
        figure, limit = (f"{bound[name]:.3f} {bound['unit']}".strip() for name in ("figure", "limit"))
        limits.row(bound["what"], figure, limit)
        result.check(f"{bound['what']} is {figure}; expected at most {limit}", holds=bool(bound["ok"]))
    result.passed += not figures["limits"]
    return result


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 10 else f"{seconds * 1e3:.3f} ms"


_READERS = {"tests": _of_tests, "program": _of_program, "benchmark": _of_benchmark}
