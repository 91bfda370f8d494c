"""Schedules on the emulated driver: work is done early, late or between, as a seed says, and never against the rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.emulated.test_queues import GATES, Check

__all__ = ()

SCHEDULES = (
    GATES
    + """
from pytest_cudalink.emulator import control
driver = control.attach(cuda)
def seeds(count=60):
    for seed in range(count):
        driver.start_schedule(seed)
        yield seed
    driver.end_schedule()
def log():
    return [one[:9] for one in driver.scheduled_work()]
"""
)


@pytest.fixture
def schedules(check: Check) -> Callable[..., str]:
    """Run a program with the names of `SCHEDULES`."""
    return lambda program, **options: check(SCHEDULES + program, **options)


def test_a_copy_stays_pending(schedules: Check) -> None:
    """A copy is done in its call, some calls later, or when something waits; until then its destination holds poison."""
    schedules(
        """
host, seen = pinned(), set()
ok(cuda.cuMemsetD8_v2(c_uint64(memory), 5, c_size_t(64)))
for seed in seeds():
    memset(host, 1, 64)
    ok(cuda.cuMemcpyDtoHAsync_v2(c_void_p(host), c_uint64(memory), c_size_t(64), apart))
    work, = driver.scheduled_work()
    assert string_at(host, 64) == (b"\\xd7" if work.delay != 0 else b"\\x05") * 64, (work, string_at(host, 64))
    assert (work.kind, work.function, work.stream, work.submitted, work.started) == (
        "copy", "cuMemcpyDtoHAsync_v2", 1, 1, 1)
    assert work.python_stack[-1].endswith("in <module>") and work.native_stack
    for _ in range(30):
        ok(cuda.cuStreamQuery(other))
    late = work.delay is None
    assert string_at(host, 64) == (b"\\xd7" if late else b"\\x05") * 64
    ok(cuda.cuStreamSynchronize(apart))
    assert string_at(host, 64) == b"\\x05" * 64
    work, = driver.scheduled_work()
    assert work.ended == (32 if late else 1 + work.delay), work
    expected = "cuMemcpyDtoHAsync_v2" if not work.displaced else "cuStreamSynchronize" if late else "cuStreamQuery"
    assert work.call == expected, work
    seen.add(work.delay)
assert {None, 0, 1, 2, 3, 4} < seen and len(seen) > 6, seen
"""
    )
