"""A fault sweep counts the calls of a program, fails one of them by its number, and sees what is left alive."""

import ctypes
from unittest.mock import MagicMock

import pytest

from pytest_cudalink.emulator import control, faults
from tests.emulator.conftest import programs

START = "driver = control.attach(cuda)\n"


def test_what_a_driver_answers_its_control() -> None:
    """No memory is an error, a number out of range never gets there; the last of several watches ends it."""
    library = MagicMock()
    library.cudalinkSweep.return_value = library.cudalinkNoWait.return_value = 0
    library.cudalinkImageCount.return_value, library.cudalinkLinkCount.return_value = 5, 2
    driver = control.DriverControl(library)
    failing = (driver.start_schedule, 1, [2**32 - 1]), (driver.start_sweep, 1, 11)  # a code of NVRTC alone
    for asked, *arguments in (*failing, (driver.leave_out_waits,), (driver.no_wait(0).__enter__,)):
        with pytest.raises(MemoryError):
            asked(*arguments)
    library.cudalinkSweep.assert_called_with(1, 11, 0)
    for displaced in ([0], [1, 2**32]):
        with pytest.raises(ValueError, match=r"expected numbers from 1 to 2\*\*32 - 1"):
            driver.start_schedule(1, displaced)
    assert driver.unlinked_images == 3
    for change in (driver.start_watching, driver.start_watching, driver.stop_watching):
        change()
    driver.own_notes("mine", "")
    hooks = [hook is not None for (hook,), _ in library.cudalinkSetViolationHook.call_args_list]
    assert hooks == [True, True]
    assert control.attach(ctypes.CDLL(None)) is None


@pytest.mark.parametrize(
    ("stays", "answers", "freed"), [("alone", [0, 2, 0], 0), ("function", [0, 2, 2], 0), ("device", [0, 2, 2], 2)]
)
def test_failing_a_call(check, stays: str, answers: list[int], freed: int) -> None:
    """The call of a number fails, alone, with each later call of its function, or with the device until the end."""
    check(
        START
        + f"""
start()
kept = allocate(16)
driver.start_sweep(2, "CUDA_ERROR_OUT_OF_MEMORY", {stays!r})
address = c_uint64()
def allocate_again():
    return cuda.cuMemAlloc_v2(byref(address), 16)
assert [allocate_again(), allocate_again(), allocate_again()] == {answers}
assert cuda.cuMemFree_v2(kept) == {freed}
assert driver.end_sweep() == 4
calls = driver.swept_calls()
assert [call.failed for call in calls][:2] == [False, True]
assert calls[1].stack[0].endswith(" in allocate_again") and not calls[0].stack
failed, = [event for event in driver.events() if "stack" in event]
assert (failed["call"], failed["result"], failed["swept"], failed["injected"]) == ("cuMemAlloc_v2", 2, 2, True)
assert failed["stack"] == list(calls[1].stack[:3])
assert {{event["result"] for event in driver.events() if "swept" in event}} == {{2}}
ok(cuda.cuMemAlloc_v2(byref(address), 16))
"""
    )


#: A kind, what makes an object of it, and what frees it.
KINDS = {
    "stream": ("cuda.cuStreamCreate(byref(it), 0)", "cuda.cuStreamDestroy_v2(it)"),
    "event": ("cuda.cuEventCreate(byref(it), 0)", "cuda.cuEventDestroy_v2(it)"),
    "graph": ("cuda.cuGraphCreate(byref(it), 0)", "cuda.cuGraphDestroy(it)"),
    "device memory": ("cuda.cuMemAlloc_v2(byref(it), 4096)", "cuda.cuMemFree_v2(it.value)"),
    "host memory": ("cuda.cuMemAllocHost_v2(byref(it), c_size_t(4096))", "cuda.cuMemFreeHost(it.value)"),
    "memory of a pool": ("cuda.cuMemAllocAsync(byref(it), c_size_t(4096), None)", "cuda.cuMemFreeAsync(it, None)"),
    "module": ("cuda.cuModuleLoadData(byref(it), small_ptx())", "cuda.cuModuleUnload(it)"),
    "library": (
        "cuda.cuLibraryLoadData(byref(it), small_ptx(), None, None, 0, None, None, 0)",
        "cuda.cuLibraryUnload(it)",
    ),
    "link state": ("cuda.cuLinkCreate_v2(0, None, None, byref(it))", "cuda.cuLinkDestroy(it)"),
    "context": ("cuda.cuCtxCreate_v2(byref(it), 0, 0)", "cuda.cuCtxDestroy_v2(it)"),
    "use of a primary context": ("cuda.cuDevicePrimaryCtxRetain(byref(it), 0)", "cuda.cuDevicePrimaryCtxRelease_v2(0)"),
}


def test_what_is_alive(check) -> None:
    """One more object of a kind is alive once it is made, and none once it is freed; memory has its bytes."""
    check(
        START
        + f"""
start()
for kind, (make, free) in {KINDS}.items():
    it, bytes_of_it = c_void_p(), 4096 * kind.startswith(("device m", "host m", "memory"))
    exec(f"ok({{make}}), ok({{free}})")  # the first one may make others that stay, such as the default pool
    before = driver.alive()
    exec(f"ok({{make}})")
    count, size = before.get(kind, (0, 0))
    assert driver.alive() == before | {{kind: (count + 1, size + bytes_of_it)}}, kind
    exec(f"ok({{free}})")
    assert driver.alive() == before, kind
"""
    )


PROGRAMS = {
    "a_green_context": """
# It uses the primary context, and is no other context.
start()
green, before = c_void_p(), driver.alive()
ok(cuda.cuGreenCtxCreate(byref(green), None, 0, 1))
assert driver.alive() == before | {"green context": (1, 0), "use of a primary context": (2, 0)}
ok(cuda.cuGreenCtxDestroy(green))
assert driver.alive() == before
""",
    "listing_calls": """
# A clean run lists each call with the lines that made it, but for questions about the driver itself.
driver.start_sweep()
context = start()
address = allocate(64)
name, version = c_char_p(), c_int()
ok(cuda.cuGetErrorName(2, byref(name))), ok(cuda.cuDriverGetVersion(byref(version)))
ok(cuda.cuMemFree_v2(address))
assert cuda.cuMemFree_v2(address) and cuda.cuGetErrorName(9999, byref(name))
assert driver.end_sweep() == 6
ok(cuda.cuCtxSynchronize())
calls = driver.swept_calls()
assert [call.function for call in calls] == [
    "cuInit", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemFree_v2"
]
assert [call.failed for call in calls] == [False] * 5 + [True]
assert calls[3].stack[0].endswith(" in allocate") and "cu.py:" in calls[3].stack[0]
assert calls[3].stack[1] == "<string>:9 in <module>" and calls[4].stack[0] == "<string>:12 in <module>"
""",
    "an_error_that_stays": """
# A code that stays in the contexts does so when a sweep gives it.
start()
driver.start_sweep(1, 719)
assert cuda.cuStreamSynchronize(None) == 719 and cuda.cuStreamQuery(None) == 719
""",
    "beginning_again": """
# A sweep forgets the calls of the one before; no call of a number that was never reached fails.
driver.start_sweep()
start()
driver.start_sweep(3, 2)
ok(cuda.cuCtxSynchronize()), ok(cuda.cuCtxSynchronize())
assert driver.end_sweep() == 2
assert [call.failed for call in driver.swept_calls()] == [False, False]
assert driver.end_sweep() == 2
ok(cuda.cuCtxSynchronize())
driver.lose_device(), driver.start_sweep(), driver.end_sweep()
assert cuda.cuCtxSynchronize() == 46  # what a sweep did not take away does not come back
""",
    "other_threads_and_processes": """
# Calls of every thread count, those of a forked process and those of host functions do not.
start()
stream = new(cuda.cuStreamCreate, 1)
driver.start_sweep(3, 2)
child = os.fork()
if not child:
    codes = [cuda.cuCtxGetCurrent(byref(c_void_p())) for _ in range(4)]
    os._exit(len(set(codes)) - 1)
assert os.waitpid(child, 0)[1] == 0
answers = []
@CFUNCTYPE(None, c_void_p)
def work(_):
    answers.append(cuda.cuCtxGetCurrent(byref(c_void_p())))
cuda.cuLaunchHostFunc.argtypes = [c_void_p, type(work), c_void_p]
ok(cuda.cuLaunchHostFunc(stream, work, None))
ok(cuda.cuStreamSynchronize(stream))
thread = threading.Thread(target=lambda: answers.append(cuda.cuInit(0)))
thread.start(), thread.join()
assert answers[1] == 2 and answers[0] != 2 and driver.end_sweep() == 3
assert driver.swept_calls()[2].stack[0].endswith(" in <lambda>")
""",
    "more_calls_than_are_listed": """
# A call beyond the list fails by its number, too.
start()
driver.start_sweep(16_386, 2)
current = c_void_p()
assert [number for number in range(1, 16_388) if cuda.cuCtxGetCurrent(byref(current))] == [16_386]
assert driver.end_sweep() == 16_387 and len(driver.swept_calls()) == 16_384
""",
    "unknown_codes": """
# A code that no driver answers is refused, and nothing is counted.
try: driver.start_sweep(1, 12345)
except ValueError as error: assert "12345 is not a CUresult" in str(error)
else: raise AssertionError
start()
assert driver.end_sweep() == 0 and driver.swept_calls() == []
""",
    "memory_that_dies_with_its_context": """
# What was not freed before its context died is still reported, but for variables of modules.
start()
module = new(cuda.cuModuleLoadData, small_ptx())
allocate(64), ok(cuda.cuMemFree_v2(allocate(32)))
ok(cuda.cuDevicePrimaryCtxRelease_v2(0))
assert driver.alive() == {
    "allocation that only the end of its context freed": (1, 64),
    "module that only the end of its context unloaded": (1, 0),
}
""",
}
PROGRAMS["state_that_is_left"] = """
# Contexts on the stacks of threads, open captures and the mode of capture are read without a call.
assert driver.state() == ((), (), 0, 0, (0, "", False)) and driver.event_count() == 0
context, made = start(), c_void_p()
ok(cuda.cuCtxCreate_v2(byref(made), 0, 0)), ok(cuda.cuCtxPushCurrent_v2(context))
one, two = "primary context of device 0", "context"
assert driver.state().stack == (one, two, one)
pushed, over = threading.Barrier(2), threading.Event()
def work():
    ok(cuda.cuCtxSetCurrent(context)), ok(cuda.cuCtxPushCurrent_v2(context)), ok(cuda.cuCtxPopCurrent_v2(None))
    pushed.wait(), over.wait()
thread = threading.Thread(target=work)
thread.start(), pushed.wait()
assert driver.state().threads == ((one,),)
child = os.fork()
if not child:
    os._exit(driver.state()[:4] != ((one, two, one), (), 0, 0))
assert os.waitpid(child, 0)[1] == 0
over.set(), thread.join()
while driver.state().threads: pass
stream, graph, mode = new(cuda.cuStreamCreate, 1), c_void_p(), c_int(2)
ok(cuda.cuStreamBeginCapture_v2(stream, 0)), ok(cuda.cuThreadExchangeStreamCaptureMode(byref(mode)))
assert driver.state()[2:4] == (1, 2)
ok(cuda.cuStreamEndCapture(stream, byref(graph)))
assert driver.state()[2:4] == (0, 2)
ok(cuda.cuCtxPopCurrent_v2(None)), ok(cuda.cuCtxDestroy_v2(made))
assert driver.state().stack == (one,)
for _ in range(200): ok(cuda.cuCtxPushCurrent_v2(context))
assert driver.state().stack == (one,) * 201
"""
test_programs = programs(PROGRAMS, START)


@pytest.mark.parametrize(
    ("symbol", "codes"),
    [
        ("cuMemAlloc_v2", (201, 1, 2, 911)),
        ("cuMemcpyDtoHAsync_v2_ptsz", (201, 1, 400)),
        ("cuStreamQuery", (201, 400)),
        ("cuCtxGetCurrent", ()),
        ("cuGLInit", None),
        ("nvrtcCreateProgram", (1, 2, 3, 4)),
        ("nvrtcGetPCHCreateStatus", (15, 14, 4)),
        ("nvrtcGetPCHHeapSizeRequired", (4, 3)),
        ("nvrtcGetErrorString", None),
    ],
)
def test_codes_that_the_documentation_lists(symbol: str, codes: tuple[int, ...] | None) -> None:
    """A symbol has the errors that its header lists; what all answer, and what is no error, is left out."""
    assert faults.listed_codes(symbol) == codes


def test_functions_of_nvrtc() -> None:
    """The functions of NVRTC with a result are known, with the names of what they answer."""
    functions, errors = faults.nvrtc_functions(), faults.nvrtc_errors()
    assert {"nvrtcVersion", "nvrtcCompileProgram", "nvrtcGetLoweredName", "nvrtcInstallBundledHeaders"} < {*functions}
    assert not {"nvrtcGetErrorString", "nvrtcResult"} & {*functions}
    assert (errors[1], errors[6]) == ("NVRTC_ERROR_OUT_OF_MEMORY", "NVRTC_ERROR_COMPILATION")
    assert {code for function in functions for code in faults.listed_codes(function) or ()} <= {*errors}
