"""Errors that stay, on the emulated driver: which calls answer them, and how the contexts of a process are asked."""

import pytest

from pytest_cudalink.loader.contexts import STICKY_ERRORS
from tests.emulator.conftest import programs

START = """
more, flags, active, size = c_void_p(), c_uint(), c_int(), c_size_t()
ok(cuda.cuInit(0))
context = new(cuda.cuDevicePrimaryCtxRetain, 0)
ok(cuda.cuCtxSetCurrent(context))
address = new(cuda.cuMemAlloc_v2, c_uint64, 16)
driver = control.attach(cuda)
"""
#: Calls that answer the error (measured on an H100), and those that do not.
ANSWERING = """
    cuda.cuCtxSynchronize(), cuda.cuMemAlloc_v2(byref(c_uint64()), 16), cuda.cuMemFree_v2(address),
    cuda.cuModuleLoadData(byref(more), small_ptx()), cuda.cuModuleUnload(None),
    cuda.cuLinkCreate_v2(0, None, None, byref(more)), cuda.cuEventCreate(byref(more), 0),
    cuda.cuStreamCreate(byref(more), 0), cuda.cuStreamQuery(None),
    cuda.cuMemGetInfo_v2(byref(size), byref(size)), cuda.cuCtxCreate_v2(byref(more), 0, 0),
"""
SILENT = """
    cuda.cuCtxGetCurrent(byref(more)), cuda.cuDeviceGetAttribute(byref(active), 1, 0),
    cuda.cuDevicePrimaryCtxGetState(0, byref(flags), byref(active)), cuda.cuDriverGetVersion(byref(active)),
"""


def test_errors_that_stay(check) -> None:
    """After an injected error every call that needs a context answers it; after a reset of the context 201."""
    check(
        "".join(
            START
            + f"""
driver.inject("cuStreamSynchronize", {code})
assert cuda.cudalinkContextState() == 0
assert cuda.cuStreamSynchronize(None) == {code}
assert cuda.cudalinkContextState() == {code}
assert {{*({ANSWERING})}} == {{{code}}}
assert {{*({SILENT})}} == {{0}}
assert more.value == context.value and active.value
assert driver.events()[-1].get("sticky") or any(event.get("sticky") for event in driver.events())
ok(cuda.cuDevicePrimaryCtxReset_v2(0))
assert cuda.cuCtxSynchronize() == cuda.cuMemFree_v2(address) == cuda.cuStreamQuery(None) == 201
assert cuda.cuCtxCreate_v2(byref(more), 0, 0) == {code}
driver.{"clear" if code % 2 else "end_error"}()
assert cuda.cudalinkContextState() == 0
ok(cuda.cuDevicePrimaryCtxReset_v2(0))
"""
            for code in STICKY_ERRORS
        )
    )


PROGRAMS = {
    "the_first_error_wins": """
# A second injected error changes nothing; an error in another thread is that of the process.
driver.inject("cuStreamSynchronize", 716)
elsewhere(lambda: cuda.cuStreamSynchronize(None))
driver.inject("cuStreamSynchronize", 719)
assert cuda.cuStreamSynchronize(None) == 719
assert cuda.cuStreamQuery(None) == 716
""",
    "errors_that_pass": """
# Any other injected error is the answer of one call.
for code in (1, 2, 201, 400, 600, 701, 703, 709, 720, 999):
    driver.inject("cuStreamSynchronize", code)
    assert cuda.cuStreamSynchronize(None) == code
    ok(cuda.cuStreamSynchronize(None)), ok(cuda.cuMemFree_v2(address)), ok(cuda.cuMemAlloc_v2(byref(address), 16))
    assert cuda.cudalinkContextState() == 0
""",
    "work_that_never_ends": """
# A fault that every cuStreamQuery meets is work that never ends; asking triggers no fault, and leaves no event.
count = driver.event_count()
once = driver.inject("cuStreamQuery", 600)
assert cuda.cudalinkContextState() == 0
driver.remove_fault(once)
every = driver.inject("cuStreamQuery", 600, nth=0)
assert cuda.cudalinkContextState() == 600 and driver.event_count() == count
other = driver.inject("cuStreamQuery", 600, nth=0)
assert not driver.remove_fault(every)
assert cuda.cudalinkContextState() == 600
driver.remove_fault(other)
assert cuda.cudalinkContextState() == 0
""",
    "a_fill_past_the_last_address": """
# It is refused where it begins outside of memory; elsewhere the fault is seen after it (as an H200).
assert cuda.cuMemsetD8_v2(c_uint64(2**64 - 1), 0, c_size_t(16)) == 1
assert cuda.cudalinkContextState() == 0
ok(cuda.cuMemsetD8_v2(address, 0, c_size_t(2**64 - 1)))
assert cuda.cuCtxSynchronize() == 700
""",
}
test_programs = programs(PROGRAMS, START)


#: The way in which a real driver is asked, on the emulated one, which has the same functions.
REAL = """
from pytest_cudalink.loader import contexts
driver, asked = control.attach(cuda), contexts.RealContexts(CDLL("libcuda.so.1"))
def begin(devices=(0,), current=True):
    for device in devices:
        context = new(cuda.cuDevicePrimaryCtxRetain, device)
        ok(cuda.cuCtxSetCurrent(context) if current else 0)
def references(): return [event["references"] for event in driver.events() if "references" in event][-1]
"""
#: The first driver with cuCtxRecordEvent, or newer, and one without.
WITH_EVENTS, WITHOUT = "12.9", "12.4"


def test_asking_a_real_driver(check) -> None:
    """Nothing is asked before there is a context; then its error is seen, also where none is current."""
    check(REAL + "assert asked.ask(5) == 0\nassert not [e for e in driver.events() if e['call'] == 'cuInit']")
    check(
        REAL
        + "ok(cuda.cuInit(0)); assert asked.ask(5) == 0; begin(); assert asked.ask(5) == 0; assert references() == 1"
    )
    for current in (True, False):
        check(
            REAL + f"ok(cuda.cuInit(0)); begin(current={current})\n"
            "driver.inject('cuStreamCreate', 700); cuda.cuStreamCreate(byref(c_void_p()), 0)\n"
            "assert asked.ask(5) == 700"
        )


@pytest.mark.slow
def test_an_error_that_comes_late(check) -> None:
    """An error of a kernel that is not over when the test ends is seen, on any device, by an event or by waiting."""
    for version, devices, current, function in (
        (WITH_EVENTS, (0,), True, "cuEventQuery"),
        (WITH_EVENTS, (0,), False, "cuCtxSynchronize"),
        (WITH_EVENTS, (0, 1), True, "cuCtxSynchronize"),
        (WITHOUT, (0,), True, "cuCtxSynchronize"),
    ):
        check(
            REAL + f"ok(cuda.cuInit(0)); begin({devices}, current={current})\n"
            f"driver.inject({function!r}, 719, nth={len(devices)})\n"
            "found = asked.ask(5)\nassert found == 719, found",
            version,
            env={"CUDALINK_EMULATOR_DEVICES": "2"},
        )


def test_work_that_ends_in_time(check) -> None:
    """An event that is not there yet is asked again; what it then answers counts, and it is destroyed."""
    check(
        REAL + "ok(cuda.cuInit(0)); begin()\nfor nth in (1, 2, 3): driver.inject('cuEventQuery', 600, nth=nth)\n"
        "assert asked.ask(5) == 0\ncalls = [event['call'] for event in driver.events()]\n"
        "assert calls.count('cuEventQuery') == 4 and calls.count('cuEventDestroy_v2') == 1, calls"
    )


@pytest.mark.slow
def test_a_wait_that_does_not_end(check) -> None:
    """An event that does not come, and a synchronization that does not return, are given up at the deadline."""
    for version, fault in ((WITH_EVENTS, "'cuEventQuery', 600, nth=0"), (WITHOUT, "'cuCtxSynchronize', 0, delay=20")):
        check(
            REAL + f"ok(cuda.cuInit(0)); begin()\ndriver.inject({fault})\n"
            "began = time.monotonic()\nassert asked.ask(0.2) == contexts.HANGS\n"
            "assert time.monotonic() - began < 5\nimport os; os._exit(0)",
            version,
        )
