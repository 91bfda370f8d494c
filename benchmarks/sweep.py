"""What a fault sweep of a test with 40 calls of the driver costs, on two cores.

``nox -s bench -- sweep``. The limit is the ratio of all runs to a sweep of one run, in processor time: the
machine's other work slows both. The elapsed time is shown, and has no limit.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from pytest_runs import CALL, one_file

#: What all runs may take, in sweeps of one run.
LIMIT = 6.0
ROUNDS = 5

#: A test that makes 40 calls, from eight places.
TEST = f"""{CALL}
def test():
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", byref(context := c_void_p()), 0)
    try:
        call("cuCtxSetCurrent", context)
        for _ in range(12):
            call("cuMemAlloc_v2", byref(made := c_uint64()), c_size_t(1024))
            try:
                call("cuMemsetD8_v2", made, 7, c_size_t(1024))
            finally:
                call("cuMemFree_v2", made)
    finally:
        call("cuDevicePrimaryCtxRelease_v2", 0)
"""
_SWEEP = ("-q", "-p", "cudalink", "--cudalink-driver=13.0", "--cudalink-fault-sweep=all")


def _elapsed(prepare: measure.Prepare) -> measure.Prepare:
    """Let the time of a run be the elapsed one."""

    def prepared() -> Callable[[], None]:
        run = prepare()

        def timed() -> None:
            run()

        return timed

    return prepared


def main() -> int:
    """Compare all runs with one, in turn; return exit code 1 beyond the limit."""
    options = measure.arguments("sweep", ROUNDS, __doc__)
    report = measure.Report("sweep", "A fault sweep of a test with 40 calls, on two cores")
    with tempfile.TemporaryDirectory() as name:
        tests = one_file(Path(name), TEST)
        runs = {
            "one run": tests(*_SWEEP, "-ocudalink_fault_budget=1"),
            "all runs": tests(*_SWEEP),
            "all runs, elapsed": _elapsed(tests(*_SWEEP)),
        }
        times = measure.rounds(runs, options.rounds)
    one = times["one run"]
    for way, found in times.items():
        report.row(
            "a sweep: processor time, where it does not say elapsed", way, found, None if way == "one run" else one
        )
    report.limit_ratio("all runs / one run", times["all runs"], one, LIMIT)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
