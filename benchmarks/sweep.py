"""What a fault sweep costs of tests with 40, 400 and 4,000 calls of the driver, on two cores.

``nox -s bench -- sweep``. The limits are ratios of processor time: the machine's other work slows all runs. From one
size to the next there are ten times as many calls, and a sweep of every call would take up to a hundred times as long.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from pytest_runs import CALL, one_file

#: What a sweep of 40 calls may take, in sweeps of one run; of 400, in those of 40; of 4,000, in those of 400.
LIMITS = (2.5, 1.5, 4.0)
ROUNDS = 3

#: A test that makes calls from seven places, three of them in a loop.
TEST = f"""{CALL}
def test():
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", byref(context := c_void_p()), 0)
    try:
        call("cuCtxSetCurrent", context)
        for _ in range(TURNS):
            call("cuMemAlloc_v2", byref(made := c_uint64()), c_size_t(1024))
            try:
                call("cuMemsetD8_v2", made, 7, c_size_t(1024))
            finally:
                call("cuMemFree_v2", made)
    finally:
        call("cuDevicePrimaryCtxRelease_v2", 0)
"""
_SWEEP = ("-q", "-p", "cudalink", "--cudalink-driver=13.0", "--cudalink-fault-sweep=likely")


def main() -> int:
    """Compare the sizes with one another, and the smallest with one run; return exit code 1 beyond a limit."""
    options = measure.arguments("sweep", ROUNDS, __doc__)
    report = measure.Report("sweep", "A fault sweep of tests with 40, 400 and 4,000 calls, on two cores")
    with tempfile.TemporaryDirectory() as name:
        tests = {
            calls: one_file(Path(name) / str(calls), TEST.replace("TURNS", str((calls - 4) // 3)))
            for calls in (40, 400, 4000)
        }
        runs = {
            "40 calls, one run": tests[40](*_SWEEP, "-ocudalink_fault_budget=1"),
            **{f"{calls} calls": run(*_SWEEP) for calls, run in tests.items()},
        }
        times = measure.rounds(runs, options.rounds)
    names = list(times)
    for way, seconds in times.items():
        report.row("processor time", way, seconds, None if way == names[0] else times[names[0]])
    for before, after, limit in zip(names, names[1:], LIMITS, strict=False):
        report.limit_ratio(f"{after} / {before}", times[after], times[before], limit)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
