"""Cost of the plugin for suites of 1,000 tests that do nothing: alone, and beside a linker that is open all the time.

``nox -s bench`` runs it. The figures are processor time. The first suite is compared with one beside an empty plugin,
the second, on an emulated driver with lifetime checks, with one without the checks.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from pytest_runs import EMPTY, Pytest, add_empty_plugin

LIMIT = 1.01
LINKER_LIMIT = 1.02
DRIVER_LIMIT = 1.2
TESTS = 1000
ROUNDS = 31

#: A suite with a linker that is open all the time, and tests that link nothing.
OPEN_LINKER = f"""
import pytest
from pytest_cudalink.linker import Linker, LinkerOptions, sample

@pytest.fixture(scope="session")
def linker():
    codes = sample.compile_modules("ptx", "sm_90")
    with Linker(*codes, options=LinkerOptions(arch="sm_90"), backend="driver") as linker:
        linker.link("cubin")
        yield linker

@pytest.mark.parametrize("number", range({TESTS}))
def test_empty(linker, number): pass
"""


def suite(folder: Path, name: str, module: str) -> Pytest:
    """Write a suite of one module; return its runs."""
    tests = folder / name
    tests.mkdir()
    (tests / f"test_{name}.py").write_text(module, encoding="utf-8")
    return Pytest(tests, folder / "plugin")


def main() -> int:
    """Compare both suites in turn; return exit code 1 beyond a limit."""
    from pytest_cudalink import probes

    options = measure.arguments("empty_tests", ROUNDS, __doc__)
    report = measure.Report("empty_tests", f"Suites of {TESTS} empty tests")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        add_empty_plugin(folder / "plugin")
        plain = suite(folder, "plain", "".join(f"def test_{number}(): pass\n" for number in range(TESTS)))
        release = ".".join((probes.nvjitlink_wheel() or "13.0").split(".")[:2])
        cases = {
            "empty": EMPTY,
            "ours": ("-p", "cudalink"),
            "driver": ("-p", "cudalink", f"--cudalink-driver={release}"),
        }
        times = measure.rounds({name: plain("-q", *words) for name, words in cases.items()}, options.rounds)
        table = f"{TESTS} empty tests, processor time"
        report.row(table, "with an empty plugin", times["empty"])
        report.row(table, "with this plugin", times["ours"], times["empty"])
        report.row(table, "with an emulated driver", times["driver"], times["empty"])
        report.limit_ratio(f"{TESTS} empty tests", times["ours"], times["empty"], LIMIT)
        report.limit_ratio(f"{TESTS} empty tests, emulated driver", times["driver"], times["empty"], DRIVER_LIMIT)

        beside = suite(folder, "linker", OPEN_LINKER)
        runs = {
            mode: beside("-q", "-p", "cudalink", f"--cudalink-driver={release}", f"--cudalink-checks=lifetimes={mode}")
            for mode in ("off", "fail")
        }
        times = measure.rounds(runs, options.rounds)
        table = f"{TESTS} tests beside an open linker, processor time"
        report.row(table, "without lifetime checks", times["off"])
        report.row(table, "with lifetime checks", times["fail"], times["off"])
        report.limit_ratio(f"{TESTS} tests beside an open linker", times["fail"], times["off"], LINKER_LIMIT)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
