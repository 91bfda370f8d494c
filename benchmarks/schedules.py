"""What 200 schedules of a test with 40 calls of the driver cost, on two cores.

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

#: What all schedules may take, in runs under one.
LIMIT = 4.0
ROUNDS = 3

#: A test that makes 40 calls, of which 24 queue something.
TEST = f"""{CALL}
def test():
    memory, host, size = c_uint64(), c_void_p(), c_size_t(1024)
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", byref(context := c_void_p()), 0)
    call("cuCtxSetCurrent", context)
    call("cuStreamCreate", byref(stream := c_void_p()), 1)
    call("cuMemAlloc_v2", byref(memory), size)
    call("cuMemHostAlloc", byref(host), size, 0)
    for number in range(12):
        call("cuMemsetD8Async", memory, number, size, stream)
        call("cuMemcpyDtoHAsync_v2", host, memory, size, stream)
    for number in range(6):
        call("cuStreamSynchronize", stream)
    call("cuMemFree_v2", memory)
    call("cuMemFreeHost", host)
    call("cuStreamDestroy_v2", stream)
    call("cuDevicePrimaryCtxRelease_v2", 0)
"""
_SCHEDULES = ("-q", "-p", "cudalink", "--cudalink-driver=13.0")


def main() -> int:
    """Compare 200 schedules with one, in turn; return exit code 1 beyond the limit."""
    options = measure.arguments("schedules", ROUNDS, __doc__)
    report = measure.Report("schedules", "200 schedules of a test with 40 calls, on two cores")
    with tempfile.TemporaryDirectory() as name:
        tests = one_file(Path(name), TEST)
        runs = {f"{number} schedules": tests(*_SCHEDULES, f"--cudalink-schedules={number}:7") for number in (1, 200)}
        times = measure.rounds(runs, options.rounds)
    one = times["1 schedules"]
    for way, found in times.items():
        report.row("processor time", way, found, None if way == "1 schedules" else one)
    report.limit_ratio("200 schedules / 1 schedule", times["200 schedules"], one, LIMIT)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
