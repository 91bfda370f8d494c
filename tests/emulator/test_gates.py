"""Closed gates on an emulated driver, which honours them as a GPU does: what waits, who is named, and what goes on."""

import json
from collections.abc import Callable

import pytest

Check = Callable[..., str]

HEAD = """
from pytest_cudalink.loader import gates
"""
#: A context with memory, and a watch over calls.
READY = """
ok(cuda.cuInit(0))
made = new(cuda.cuDevicePrimaryCtxRetain, 0)
ok(cuda.cuCtxSetCurrent(made))
memory = new(cuda.cuMemAlloc_v2, c_uint64, c_size_t(64))
other = new(cuda.cuMemAlloc_v2, c_uint64, c_size_t(64))
"""


#: By name: a program, and the calls that it finds.
PROGRAMS = {
    "allowed": (
        """
watch = gates.ClosedGates(allowed=["cuMemFree_v2"])
with watch.closed():
    ok(cuda.cuMemFree_v2(memory))
    time.sleep(0.03)
    ok(cuda.cuCtxSynchronize())
""",
        ["cuCtxSynchronize"],
    ),
    "holds Python's lock": (
        """
gates._SILENT = 50
watch = gates.ClosedGates()
with watch.closed():
    ok(PyDLL("libcuda.so.1").cuCtxSynchronize())
""",
        ["cuCtxSynchronize"],
    ),
    "on a busy machine": (
        """
counted = iter(range(1000))
gates.run_delay = lambda thread: min(next(counted), 4)  # four looks at a thread that gets no processor
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuCtxSynchronize())
assert next(counted) > 5  # no earlier look blames the call
""",
        ["cuCtxSynchronize"],
    ),
    "another thread waits": (
        """
def wait():
    ok(cuda.cuCtxSetCurrent(made))
    ok(cuda.cuMemFree_v2(memory))
watch = gates.ClosedGates()
with watch.closed():
    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
""",
        ["cuMemFree_v2"],
    ),
    "a stream of the program": (
        """
stream = new(cuda.cuStreamCreate, 1)
watch = gates.ClosedGates(streams=[stream.value])
with watch.closed():
    ok(cuda.cuStreamSynchronize(stream))
""",
        ["cuStreamSynchronize"],
    ),
    "the stream of the thread": (
        """
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuStreamSynchronize(c_void_p(2)))
""",
        ["cuStreamSynchronize"],
    ),
    "no context yet": (
        """
ok(cuda.cuCtxSetCurrent(None))
ok(cuda.cuDevicePrimaryCtxRelease_v2(0))
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuDevicePrimaryCtxRetain(byref(made), 0))
    ok(cuda.cuCtxSetCurrent(made))
    ok(cuda.cuCtxSynchronize())
""",
        ["cuCtxSynchronize"],
    ),
    "another context that is active": (
        """
other = new(cuda.cuDevicePrimaryCtxRetain, 1)
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuCtxSetCurrent(other))
    ok(cuda.cuCtxSynchronize())
ok(cuda.cuDevicePrimaryCtxRelease_v2(1))
assert get(cuda.cuDevicePrimaryCtxGetState, 1, c_uint, c_int)[1] == 0  # the watch keeps no context
""",
        ["cuCtxSynchronize"],
    ),
    "a destroyed context is current": (
        """
dead, above = new(cuda.cuCtxCreate_v2, 0, 0), new(cuda.cuCtxCreate_v2, 0, 0)
ok(cuda.cuCtxDestroy_v2(dead))
ok(cuda.cuCtxDestroy_v2(above))
assert get(cuda.cuCtxGetCurrent, c_void_p) == dead.value
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuCtxSetCurrent(made))
    ok(cuda.cuCtxSynchronize())
""",
        ["cuCtxSynchronize"],
    ),
    "a driver before CUDA 12.0": (
        """
class Old:
    def __getattr__(self, name):
        if name in ("cuCtxGetId", "cuStreamWaitValue32_v2"):
            raise AttributeError(name)
        return getattr(cuda, "cuStreamWaitValue32_v2" if name == "cuStreamWaitValue32" else name)
gates._native()
gates.ctypes.CDLL = lambda _: Old()
own = new(cuda.cuCtxCreate_v2, 0, 0)
ok(cuda.cuDevicePrimaryCtxRelease_v2(0))
watch = gates.ClosedGates()
with watch.closed():
    assert get(cuda.cuDevicePrimaryCtxGetState, 0, c_uint, c_int)[1] == 0  # the watch makes no context
    ok(cuda.cuCtxSynchronize())
""",
        ["cuCtxSynchronize"],
    ),
    "time that is spent elsewhere": (
        """
watch = gates.ClosedGates()
with watch.closed():
    time.sleep(0.1)
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        pass
assert not watch.gave_up
""",
        [],
    ),
    "a loop that asks for the end of work": (
        """
gates.LONGEST = 0.1
event = new(cuda.cuEventCreate, 0)
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuEventRecord(event, None))
    while cuda.cuEventQuery(event):
        pass
assert watch.gave_up
""",
        [],
    ),
    "a loop that asks a stream": (
        """
gates.LONGEST = 0.1
watch = gates.ClosedGates()
with watch.closed():
    while cuda.cuStreamQuery_ptsz(c_void_p(2)):
        pass
assert watch.gave_up
""",
        [],
    ),
    "a call that is slow for another reason": (
        """
gates._RETURNS = 0.001
control.attach(cuda).inject("cuMemAlloc_v2", 0, nth=0, delay=1)
watch = gates.ClosedGates()
with watch.closed():
    while watch._number < 2:  # then the gates are closed again
        new(cuda.cuMemAlloc_v2, c_uint64, c_size_t(64))
        time.sleep(0.02)
    gates._RETURNS = 60
    ok(cuda.cuCtxSynchronize())
""",
        ["cuCtxSynchronize"],
    ),
    "a capture": (
        """
stream = new(cuda.cuStreamCreate, 0)
ok(cuda.cuStreamBeginCapture_v2(stream, 0))
watch = gates.ClosedGates()
with watch.closed():
    ok(cuda.cuMemsetD8Async(memory, c_uint(1), c_size_t(64), stream))
graph = new(cuda.cuStreamEndCapture, stream, c_void_p)
""",
        [],
    ),
}


@pytest.mark.parametrize(("program", "calls"), PROGRAMS.values(), ids=list(PROGRAMS))
def test_programs(check: Check, program: str, calls: list[str]) -> None:
    """What waits is named, whatever does not wait is not, and everything ends."""
    shown = check(
        f"{HEAD}gates._STILL = 0.02\n{READY}{program}\nprint(json.dumps([one.call for one in watch.found]))",
        device="sm_90:2",
    )
    assert json.loads(shown) == calls


def test_leaves_nothing_behind(check: Check) -> None:
    """A second watch makes no further stream or memory, and after it nothing waits."""
    program = """
gates._STILL = 0.02
driver, alive = control.attach(cuda), []
for _ in range(2):
    with gates.ClosedGates().closed():
        ok(cuda.cuMemsetD8Async(memory, c_uint(1), c_size_t(64), None))
        assert "cudalink-gates" in [thread.name for thread in threading.enumerate()]  # in the words of a deadlock
    while len(os.listdir("/proc/self/task")) > 2:  # this one and the driver's; the system ends a joined one late
        time.sleep(0.001)
    alive.append(driver.alive())
assert alive[0] == alive[1], alive
ok(cuda.cuCtxSynchronize())
"""
    check(HEAD + READY + program)


#: What is done before, and why no gate can stand then.
REFUSED = {
    'gates._DRIVER = "/no/libcuda.so.1"': "no CUDA driver: /no/libcuda.so.1: cannot open",
    'gates._DRIVER = str(emulator.library_folder(absent=True) / "libcuda.so.1")': (
        "no CUDA driver: --cudalink-driver=absent hides it"
    ),
    'gates._DRIVER = "libc.so.6"': "a driver without cuStreamWaitValue32",
    'gates._OURS = Path("/no/library")': "no native library of pytest-cudalink for this platform",
    'driver.inject("cuInit", 100)': "cuInit answers 100",
    'driver.inject("cuStreamWaitValue32_v2", 801, nth=3)': "cuStreamWaitValue32_v2 answers 801",
}


@pytest.mark.parametrize(("before", "reason"), REFUSED.items(), ids=REFUSED.values())
def test_no_gates(check: Check, before: str, reason: str) -> None:
    """Where no gate can stand this is said, and the program goes on: what was closed is open again."""
    program = f"""
from pytest_cudalink import emulator
driver = control.attach(cuda)
{before}
try:
    with gates.ClosedGates().closed():
        raise AssertionError
except gates.NoGatesError as error:
    print(json.dumps(str(error)))
ok(cuda.cuCtxSynchronize())
ok(cuda.cuDevicePrimaryCtxRelease_v2(0))
assert get(cuda.cuDevicePrimaryCtxGetState, 0, c_uint, c_int)[1] == 0
"""
    assert json.loads(check(HEAD + READY + program)).startswith(reason)
