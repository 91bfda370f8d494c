"""What schedules of tests with 40 and 4,000 calls of the driver cost, on two cores.

``nox -s bench -- schedules``. The limit is the ratio to a run under one schedule, in processor time: other work of the
machine slows both.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from pytest_runs import CALL, one_file

#: What these numbers of schedules of a test may take, in runs under one: by the calls of the test.
SCHEDULES = {40: (100, 4.0), 4000: (20, 2.5)}
ROUNDS = 3

#: A test of whose calls six of ten queue something.
TEST = f"""{CALL}
def test():
    memory, host, size = c_uint64(), c_void_p(), c_size_t(1024)
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", byref(context := c_void_p()), 0)
    call("cuCtxSetCurrent", context)
    call("cuStreamCreate", byref(stream := c_void_p()), 1)
    call("cuMemAlloc_v2", byref(memory), size)
    call("cuMemHostAlloc", byref(host), size, 0)
    for number in range(12 * TIMES):
        call("cuMemsetD8Async", memory, number & 255, size, stream)
        call("cuMemcpyDtoHAsync_v2", host, memory, size, stream)
    for number in range(6 * TIMES):
        call("cuStreamSynchronize", stream)
    call("cuMemFree_v2", memory)
    call("cuMemFreeHost", host)
    call("cuStreamDestroy_v2", stream)
    call("cuDevicePrimaryCtxRelease_v2", 0)
"""
_SCHEDULES = ("-q", "-p", "cudalink", "--cudalink-driver=13.0")


def main() -> int:
    """Compare many schedules with one, in turn; return exit code 1 beyond a limit."""
    options = measure.arguments("schedules", ROUNDS, __doc__)
    report = measure.Report("schedules", "Schedules of tests with 40 and 4,000 calls, on two cores")
    with tempfile.TemporaryDirectory() as name:
        runs = {}
        for calls, (many, _) in SCHEDULES.items():
            tests = one_file(Path(name) / str(calls), TEST.replace("TIMES", str(calls // 40)))
            for number in (1, many):
                runs[calls, number] = tests(*_SCHEDULES, f"--cudalink-schedules={number}:7")
        times = measure.rounds({str(which): run for which, run in runs.items()}, options.rounds)
    seconds = dict(zip(runs, times.values(), strict=True))
    for calls, (many, limit) in SCHEDULES.items():
        alone, all_of_them = seconds[calls, 1], seconds[calls, many]
        report.row(f"processor time, {calls} calls", "1 schedule", alone)
        report.row(f"processor time, {calls} calls", f"{many} schedules", all_of_them, alone)
        each = measure.difference(all_of_them, alone) / (many - 1)
        report.fact(f"each of {calls} calls", each, f"  each further schedule of {calls} calls: {each * 1e3:.1f} ms")
        report.limit_ratio(f"{calls} calls, {many} schedules / 1 schedule", all_of_them, alone, limit)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
