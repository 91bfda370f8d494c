"""Cost of the guard against errors that stay, for a suite of 1,000 tests of which each uses the driver.

``nox -s bench -- sticky``. The figures are processor time; the suite is compared with itself without the guard.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from pytest_runs import Pytest, add_empty_plugin

from pytest_cudalink.emulator import preload

LIMIT = 1.02
TESTS = 1000
ROUNDS = 31

#: Tests that allocate memory, write to it and wait, as small tests of a library do.
SUITE = f"""
import ctypes
import pytest
from ctypes import byref, c_size_t, c_uint64, c_void_p

cu = ctypes.CDLL("libcuda.so.1")

@pytest.fixture(scope="session")
def context():
    made = c_void_p()
    assert cu.cuInit(0) == cu.cuDevicePrimaryCtxRetain(byref(made), 0) == cu.cuCtxSetCurrent(made) == 0

@pytest.mark.parametrize("number", range({TESTS}))
def test_memory(context, number):
    made = c_uint64()
    assert cu.cuMemAlloc_v2(byref(made), c_size_t(1024)) == 0
    assert cu.cuMemsetD8_v2(made, 7, c_size_t(1024)) == 0
    assert cu.cuCtxSynchronize() == 0
    assert cu.cuMemFree_v2(made) == 0
"""


def main() -> int:
    """Compare the suite with and without the guard, in turn; return exit code 1 beyond the limit."""
    options = measure.arguments("sticky", ROUNDS, __doc__)
    report = measure.Report("sticky", f"{TESTS} tests that use the driver: an emulated one, this machine's")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        add_empty_plugin(folder / "plugin")
        folder.joinpath("tests").mkdir()
        folder.joinpath("tests", "test_memory.py").write_text(SUITE, encoding="utf-8")
        suite = Pytest(folder / "tests", folder / "plugin")
        for driver in ("13.0", "real") if preload.driver_exists() else ("13.0",):
            runs = {
                mode: suite(
                    "-q", "-p", "cudalink", f"--cudalink-driver={driver}", f"--cudalink-processes=sticky={mode}"
                )
                for mode in ("off", "replace")
            }
            times = measure.rounds(runs, options.rounds)
            table = f"{TESTS} tests, driver {driver}, processor time"
            report.row(table, "without the guard", times["off"])
            report.row(table, "with the guard", times["replace"], times["off"])
            report.limit_ratio(table, times["replace"], times["off"], LIMIT)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
