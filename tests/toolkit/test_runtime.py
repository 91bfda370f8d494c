"""Functions that the CUDA runtime has since 13.1, of the real cuda-bindings, on an emulated driver of that release."""

import pytest

LATER = """
import ctypes
from cuda.bindings import __version__, driver, runtime as rt

OK, INVALID = rt.cudaError_t.cudaSuccess, rt.cudaError_t.cudaErrorInvalidValue
SM = rt.cudaDevResourceType.cudaDevResourceTypeSm

def value(answer):
    error, *values = answer
    assert error == OK, error
    return values[0] if len(values) == 1 else values

def whole():
    return value(rt.cudaDeviceGetDevResource(0, SM))

def counts(resources):
    return [one.sm.smCount for one in resources]

def green():
    parts, _, _ = value(rt.cudaDevSmResourceSplitByCount(2, whole(), 0, 16))
    description = value(rt.cudaDevResourceGenerateDesc(parts, 2))
    return description, value(rt.cudaGreenCtxCreate(description, 0, 0))

def test_split():
    none, most, _ = value(rt.cudaDevSmResourceSplitByCount(0, whole(), 0, 16))
    assert (none, most) == ([], 8)
    parts, made, rest = value(rt.cudaDevSmResourceSplitByCount(2, whole(), 0, 16))
    assert (counts(parts), made, counts([rest])) == ([16, 16], 2, [100])
    assert rt.cudaDevSmResourceSplitByCount(2, None, 0, 16) == (INVALID, None, None, None)

# bindings before 13.3 take one structure of a group
takes_many = tuple(map(int, __version__.split(".")[:2])) >= (13, 3)

def test_split_into_groups():
    group = rt.cudaDevSmResourceGroupParams()
    group.coscheduledSmCount = 8
    only = [group] if takes_many else group
    parts, rest = value(rt.cudaDevSmResourceSplit(1, whole(), 0, only))
    assert (group.smCount, counts(parts), counts([rest])) == (128, [128], [4])
    group.smCount = 7
    error, *_ = rt.cudaDevSmResourceSplit(1, whole(), 0, only)
    assert error != OK and group.smCount == 7
    if not takes_many:
        return
    two = [rt.cudaDevSmResourceGroupParams() for _ in "ab"]
    two[0].smCount, two[1].smCount = 16, 32
    parts, rest = value(rt.cudaDevSmResourceSplit(2, whole(), 0, two))
    assert (counts(parts), counts([rest])) == ([16, 32], [84])
    for groups in (None, []):
        assert rt.cudaDevSmResourceSplit(1, whole(), 0, groups) == (INVALID, None, None)

def test_green_contexts():
    description, context = green()
    assert isinstance(description, rt.cudaDevResourceDesc_t) and isinstance(context, rt.cudaExecutionContext_t)
    found = value(rt.cudaExecutionCtxGetDevResource(context, SM))
    assert found.sm.smCount == 32
    for flags in (0, 1):
        stream = value(rt.cudaExecutionCtxStreamCreate(context, flags, -2))
        assert (value(rt.cudaStreamGetFlags(stream)), value(rt.cudaStreamGetPriority(stream))) == (1, -2)
        found = value(rt.cudaStreamGetDevResource(stream, SM))
        assert found.sm.smCount == 32
        value(rt.cudaStreamDestroy(stream))
    assert rt.cudaExecutionCtxStreamCreate(context, 2, 0) == (INVALID, None)
    assert rt.cudaGreenCtxCreate(description, 0, 1) == (INVALID, None)
    assert rt.cudaGreenCtxCreate(description, 9, 0) == (rt.cudaError_t.cudaErrorInvalidDevice, None)
    value(rt.cudaExecutionCtxDestroy(context))
    assert rt.cudaExecutionCtxDestroy(context) == (rt.cudaError_t.cudaErrorContextIsDestroyed,)
    assert rt.cudaExecutionCtxDestroy(None) == (INVALID,)

def test_streams_of_the_primary_context():
    value(driver.cuInit(0))
    value(driver.cuCtxSetCurrent(None))
    context = value(rt.cudaDeviceGetExecutionCtx(0))
    assert isinstance(context, rt.cudaExecutionContext_t)
    stream = value(rt.cudaExecutionCtxStreamCreate(context, 0, 0))
    assert int(value(driver.cuCtxGetCurrent())) == 0
    assert int(value(driver.cuStreamGetCtx(stream))) == int(context)
    assert value(rt.cudaStreamGetFlags(stream)) == 0
    assert rt.cudaExecutionCtxStreamCreate(context, 2, 0) == (INVALID, None)
    assert rt.cudaExecutionCtxDestroy(context) == (INVALID,)

def test_conditional_handles():
    graph = value(rt.cudaGraphCreate(0))
    for context in (green()[1], value(rt.cudaDeviceGetExecutionCtx(0)), None):
        handle = value(rt.cudaGraphConditionalHandleCreate_v2(graph, context, 0, 0))
        assert isinstance(handle, rt.cudaGraphConditionalHandle)
    error, handle = rt.cudaGraphConditionalHandleCreate_v2(graph, 16, 0, 0)
    assert error != OK and handle is None

def test_host_functions():
    seen = []
    called = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(seen.append)
    function = rt.cudaHostFn_t(ctypes.cast(called, ctypes.c_void_p).value)
    stream = value(rt.cudaStreamCreate())
    for mode in rt.cudaHostTaskSyncMode:
        value(rt.cudaLaunchHostFunc_v2(stream, function, 5 + mode, mode))
    assert rt.cudaLaunchHostFunc_v2(stream, function, 9, 7) == (INVALID,)
    value(rt.cudaStreamSynchronize(stream))
    assert seen == [5, 6]
"""


def test_functions_since_13_1(pytester: pytest.Pytester, run_pytest, toolkit) -> None:
    """Shares of a device, green contexts, their streams, conditional handles and host functions are answered."""
    if (toolkit.major, toolkit.minor) < (13, 1):
        pytest.skip("the runtime has these functions since CUDA 13.1")
    pytester.makepyfile(LATER)
    run_pytest(f"--cudalink-driver={toolkit}", "--cudalink-device=sm_90").assert_outcomes(passed=6)
