"""The report of a large matrix, compared with what merges JUnit XML today. ``nox -s bench-matrix`` runs it.

The same results are written as our records and as the JUnit XML files that ``pytest --junitxml`` writes, one file for a
cell: 10 cells of 1,000 tests and 100 cells of 5,000. Each program makes one page, or one file, of all cells, in a
process of its own; a program that is not installed is left out, and one that takes longer than the time limit is said
to. The page of 100 cells is opened in Chromium if there is one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure

SIZES = {"10 cells of 1,000 tests": (10, 1000), "100 cells of 5,000 tests": (100, 5000)}
MERGE_LIMIT, OPEN_LIMIT = 10.0, 2.0
OURS = "cudalink report --html"
#: What others make of the files: the module that must be there, and its arguments.
OTHERS = {
    "junit2html --report-matrix": ("junit2htmlreport", ("--report-matrix", "{page}", "{files}")),
    "junitparser merge (XML, no page)": ("junitparser", ("merge", "--glob", "{folder}/*.xml", "{page}")),
}
TIME_LIMIT = 170
ROUNDS = 3


def fails(test: int, ctk: str) -> bool:
    """Whether a test of the made-up matrix fails in a cell."""
    return test % 50 == 7 and ctk == "13.2"


def skips(test: int) -> bool:
    """Whether a test of the made-up matrix is skipped."""
    return test % 97 == 3


def toolkit(cell: int) -> str:
    """Return the toolkit of a cell."""
    return ("12.9", "13.0", "13.2", "13.5")[cell % 4]


def write_records(folder: Path, cells: int, tests: int) -> None:
    """Write the matrix as our records."""
    from pytest_cudalink.report.records import EndRecord, LinkRecord, RunRecord, StartRecord, TestRecord, Writer

    for cell in range(cells):
        ctk, driver = toolkit(cell), ("12.9", "13.0", "13.2", None)[cell // 4 % 4]
        versions = {
            "ctk": {"requested": ctk, "found": ctk, "source": "wheel", "kind": "real"},
            "driver": {"requested": driver, "found": driver, "source": "cuDriverGetVersion", "kind": "emulated"},
        }
        with Writer(folder / f"{cell:03}.jsonl") as writer:
            writer.write(RunRecord(run=str(cell), cell=f"cell-{cell}", python="3.11.7", versions=versions))
            for test in range(tests):
                name = f"tests/test_module_{test // 100:02}.py::test_number[{test}]"
                writer.write(StartRecord(nodeid=name))
                writer.write(LinkRecord(nodeid=name, target="bundled", backend="nvjitlink"))
                failed = fails(test, ctk)
                fields = {"reason": "AssertionError", "longrepr": "E   line\n" * 50} if failed else {}
                outcome = "failed" if failed else "skipped" if skips(test) else "passed"
                writer.write(TestRecord(nodeid=name, outcome=outcome, duration=0.01, links=1, **fields))
            writer.write(EndRecord(exitstatus=0, duration=12.5))


def write_junit(folder: Path, cells: int, tests: int) -> None:
    """Write the matrix as JUnit XML."""
    folder.mkdir(parents=True)
    failure = '><failure message="AssertionError">' + "E   line\n" * 50 + "</failure></testcase>"
    skip = '><skipped type="pytest.skip" message="reason">test.py:1: reason</skipped></testcase>'
    for cell in range(cells):
        failed = [fails(test, toolkit(cell)) for test in range(tests)]
        lines = [
            f'<testcase classname="tests.test_module_{test // 100:02}" name="test_number[{test}]" time="0.010"'
            + (failure if failed[test] else skip if skips(test) else " />")
            for test in range(tests)
        ]
        counts = f'failures="{sum(failed)}" errors="0" skipped="{sum(map(skips, range(tests)))}" tests="{tests}"'
        suite = f'<testsuite name="cell-{cell}" {counts} time="12.5" timestamp="2026-01-01T00:00:00" hostname="here">'
        text = f'<?xml version="1.0" encoding="utf-8"?><testsuites>{suite}{"".join(lines)}</testsuite></testsuites>'
        (folder / f"cell-{cell:03}.xml").write_text(text, encoding="utf-8")


def run(command: list[str], limit: float) -> tuple[float, float, int] | None:
    """Run a program; return its elapsed and its processor seconds and most memory in bytes; None beyond a limit."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode in (0, 1), command  # 1: tests have failed
            spent = usage.ru_utime + usage.ru_stime
            return time.perf_counter() - began, spent, usage.ru_maxrss * 1024
        time.sleep(0.005)
    process.kill()
    process.wait()
    return None


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the program of each row."""
    commands = {OURS: [sys.executable, "-m", "pytest_cudalink.cli", "report", str(folder / "records"), "-q"]}
    commands[OURS] += ["--html", str(folder / "ours.html")]
    files = sorted(map(str, (folder / "junit").glob("*.xml")))
    for number, (name, (module, arguments)) in enumerate(OTHERS.items()):
        if find_spec(module) is None:
            print(f"  no comparison: {module} is not installed")
            continue
        command = [sys.executable, "-m", module]
        for word in arguments:
            given = word.replace("{page}", str(folder / f"other{number}")).replace("{folder}", str(folder / "junit"))
            command += files if word == "{files}" else [given]
        commands[name] = command
    return commands


def pages(folder: Path) -> dict[str, Path]:
    """Return the file that each program writes."""
    return {OURS: folder / "ours.html", **{name: folder / f"other{at}" for at, name in enumerate(OTHERS)}}


def merge_seconds(folder: Path, tests: int) -> float:
    """Return the elapsed seconds of merging records, without the start of a process and without a page."""
    from pytest_cudalink.report.merge import merge

    start = time.perf_counter()
    assert len(merge([folder]).grid) == tests
    return time.perf_counter() - start


def open_page(report: measure.Report, page: Path) -> None:
    """Report how long a browser takes until our page is ready."""
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    if program is None:
        print(f"  the page of {page.stat().st_size / 1e6:.1f} MB was not opened: no Chromium here")
        return
    words = ["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom", page.as_uri()]
    dom = subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout
    ready = re.search(r'data-ready="(\d+)"', dom)
    assert ready is not None
    report.row("our page in a browser", "until it can be used", [int(ready[1]) / 1000])
    report.limit("page ready", int(ready[1]) / 1000, OPEN_LIMIT, "s")


def main() -> int:
    """Measure both sizes; return exit code 1 beyond a limit."""
    parser = measure.parser("report", ROUNDS, __doc__ or "")
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT, help="most seconds of one program")
    options = parser.parse_args()
    report = measure.Report("report", "One report of many cells")
    memory: dict[str, dict[str, int]] = {}
    sizes: dict[str, dict[str, int]] = {}
    unfinished: dict[str, list[str]] = {}
    for size, (cells, tests) in SIZES.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            write_records(folder / "records", cells, tests)
            write_junit(folder / "junit", cells, tests)
            memory[size], sizes[size] = {}, {}
            columns: dict[str, list[tuple[float, float, int]]] = {}
            for name, command in commands(folder).items():
                rounds = options.rounds if name == OURS or cells < 100 else 1
                done = [run(command, options.time_limit) for _ in range(rounds)]
                finished = [figures for figures in done if figures]
                if not finished:
                    print(f"  {name}: not done after {options.time_limit:g} s")
                    unfinished.setdefault(size, []).append(name)
                    continue
                columns[name] = finished
                memory[size][name] = max(figures[2] for figures in finished)
                sizes[size][name] = pages(folder)[name].stat().st_size
            for place, kind in enumerate(("elapsed time", "processor time")):
                for name, finished in columns.items():
                    ours = [figures[place] for figures in columns[OURS]]
                    report.row(f"{size}, {kind}", name, [figures[place] for figures in finished], ours)
            if cells == 100:
                report.limit(f"merge of {size}", merge_seconds(folder / "records", tests), MERGE_LIMIT, "s")
                open_page(report, folder / "ours.html")
    report.fact("memory", memory)
    report.fact("sizes", sizes)
    report.fact("unfinished", unfinished)
    report.fact("time_limit", options.time_limit)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
