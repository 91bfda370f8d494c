"""What names the error with which a call has failed: exceptions, and what a clean run does not say."""

import pytest

from pytest_cudalink.report.naming import Error, Frame, Raised, Said, came_of, new, tells

MEMORY = Error("cuMemAlloc_v2", 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
VALUE = Error("cuMemcpyHtoDAsync_v2_ptsz", 1, "CUDA_ERROR_INVALID_VALUE", "invalid argument")
CONTEXT = Error("cuCtxSynchronize", 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context")
LINK = Error("nvJitLinkAddData", 6, "NVJITLINK_ERROR_INTERNAL", "ERROR_INTERNAL")
COMPILATION = Error("nvrtcCompileProgram", 6, "NVRTC_ERROR_COMPILATION", "NVRTC_ERROR_COMPILATION")

ODD = Error("cuInit", 7, "CUDA_ERROR_ODD", "")


def named(text: str, error: Error, *, by_call: bool = False) -> bool:
    return tells(error, [Raised(text, by_call)])


#: Texts that name each error.
NAMED = {
    MEMORY: [
        "CUDAError: CUDA_ERROR_OUT_OF_MEMORY: the API call failed",
        *("CUDAError: <CUresult.cuda_error_out_of_memory: 2>", "RuntimeError: Out of\nmemory"),
        *("RuntimeError: OUT_OF_MEMORY", "MemoryError", "OutOfMemoryError: 512 bytes", "MyError: cuMemAlloc failed"),
        *("MyError: cumemalloc_v2 failed", "RuntimeError: cudaErrorMemoryAllocation", "MyError: driver error 2"),
        *("AssertionError: CUDA error 2\nassert 2 == 0", "MyError: CUDA error (2)"),
        *("MyError: the CUDA call failed with code: 2.", "MyError: status 2 from the CUDA driver"),
        *("MyError: code 2, by CUDA", "CUDAError: 2", "CudaAPIError: [2] Call", "RuntimeError: CUresult=2"),
        "RuntimeError: cudaError_t 2",
    ],
    VALUE: [
        *("RuntimeError: CUDA error: invalid argument", "RuntimeError: CUDA error: invalid value at copy.cu:9"),
        *("RuntimeError: invalid argument from CUDA", "RuntimeError: CUDA driver reported INVALID_VALUE"),
        *("RuntimeError: CUDA returned error 1 at copy.cu:9", "RuntimeError: cuMemcpyHtoDAsync_ptsz failed"),
    ],
    CONTEXT: ["RuntimeError: invalid device context"],
    LINK: ["nvJitLinkError: ERROR_INTERNAL (6)", "nvJitLinkError: 6", "RuntimeError: ERROR_INTERNAL"],
    COMPILATION: ["RuntimeError: NVRTC_ERROR_COMPILATION", "RuntimeError: nvrtc error: compilation"],
}


@pytest.mark.parametrize("error", NAMED, ids=lambda error: error.name)
def test_names_of_an_error(error: Error) -> None:
    """The name of a code names it, and so do its number and its words where they are of CUDA."""
    assert [text for text in NAMED[error] if not named(text, error)] == []


#: Texts that do not, though they are about CUDA, or have its number or words.
NOT_NAMED = {
    MEMORY: [
        *("", "KeyError: 2", "RuntimeError: something failed", "RuntimeError: error 2"),
        *("RuntimeError: CUDA error 20", "RuntimeError: CUDA error 2.5", "RuntimeError: CUDA returned 2 devices"),
        *("RuntimeError: CUDA 2", "CUDAError", "CUDAError: cudaErrorUnknown"),
        *("CUDAError: MY_CUDA_ERROR_OUT_OF_MEMORY_2", "RuntimeError: cuMemAllocHost failed"),
        *("AssertionError: test_cuMemAlloc", "FileNotFoundError: [Errno 2] No such file or directory"),
        *("SystemExit: 2", "assert 2 == 0"),
    ],
    VALUE: [
        *("ValueError: invalid value of config key", "ValueError: invalid argument: mode"),
        "ValueError: CUDA kernel cache: invalid value of its size",
        "CalledProcessError: Command 'nvcc' returned non-zero exit status 1.",
        *("RuntimeError: CUDA sample: exit code 1", "assert 0 == 1", "MemoryError"),
        "RuntimeError: cuMemFree_v2 failed with error 1",
    ],
    ODD: ["RuntimeError: CUDA is gone"],
    CONTEXT: ["ValueError: invalid context"],
    COMPILATION: ["RuntimeError: error in compilation"],
}


@pytest.mark.parametrize("error", NOT_NAMED, ids=lambda error: error.name)
def test_texts_that_name_nothing(error: Error) -> None:
    """A digit, and words that any program has, name no error."""
    assert [text for text in NOT_NAMED[error] if named(text, error)] == []


def test_error_that_lasts() -> None:
    """An error that every call answers from then on is named by any of them."""
    text = "DriverError: cuMemFree_v2 failed with error 2"
    assert named(text, MEMORY._replace(lasts=True))
    assert named("DriverError: out of memory... code 2 of cuMemFree", MEMORY._replace(lasts=True))
    assert not named(text, MEMORY)
    assert not named(text.replace("cuMemFree", "customFree"), MEMORY._replace(lasts=True))


@pytest.mark.parametrize(
    ("code", "driver", "runtime"),
    [
        (1, "CUDA_ERROR_INVALID_VALUE", "cudaErrorInvalidValue"),
        (2, "CUDA_ERROR_OUT_OF_MEMORY", "cudaErrorMemoryAllocation"),
        (4, "CUDA_ERROR_DEINITIALIZED", "cudaErrorCudartUnloading"),
        (201, "CUDA_ERROR_INVALID_CONTEXT", "cudaErrorDeviceUninitialized"),
        (209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "cudaErrorNoKernelImageForDevice"),
        (500, "CUDA_ERROR_NOT_FOUND", "cudaErrorSymbolNotFound"),
        (700, "CUDA_ERROR_ILLEGAL_ADDRESS", "cudaErrorIllegalAddress"),
    ],
)
def test_names_of_the_runtime(code: int, driver: str, runtime: str) -> None:
    """The CUDA runtime has other names for some codes of the driver; that of another code names nothing."""
    error = Error("cuMemAlloc_v2", code, driver, "what it means")
    assert named(f"CUDAError: {runtime}: it failed", error)
    assert not named("CUDAError: cudaErrorUnknown", error)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        *((text, True) for text in (
            "AssertionError: assert 2 == 0", "AssertionError: copy\nassert 2 == 0",
            "AssertionError: assert 2 == 0\n +  where 2 = copy(5)", "MyError: copy: out of memory.",
            "AssertionError: 2 != 0", "AssertionError: 0 != 2", "AssertionError: 0 != 2 : in all", "MyError: 2",
            "MyError: (2)", "MyError: the call returned code: 2", "MyError: failed, 2",
        )),
        *((text, False) for text in (
            "AssertionError: assert 2 == 0\n +  where 2 = len([1, 2])", "AssertionError: assert 0 == 2",
            "AssertionError: 0 != 22", "AssertionError: assert 22 == 0", "MyError: 2 of 3",
            "MyError: failed with exit code 2", "MyError: returned 2 values", "MyError: failed",
        )),
    ],
)  # fmt: skip
def test_exception_that_comes_out_of_the_call(text: str, right: bool) -> None:
    """Its number needs no word of CUDA, because the traceback shows the call; but it must be a code.

    The driver's words for a code name it at the end of a message, because other programs use these words, too.
    """
    words = {"MyError: the copy failed: invalid argument": True, "MyError: invalid value!": True}
    words["ValueError: invalid value of config key"] = False
    assert {text: named(text, VALUE, by_call=True) for text in words} == words
    assert named(text, MEMORY, by_call=True) is right
    assert not right or named(text, MEMORY) is ("out of memory" in text)


CALL = ("t.py:3 in call", "t.py:10 in test")


@pytest.mark.parametrize(
    ("stack", "traceback", "right"),
    [
        (CALL, [("t.py", 5, 5, "call"), ("t.py", 10, 10, "test")], True),  # raised by the function of the call
        (CALL, [("t.py", 5, 5, "call"), ("t.py", 12, 12, "test")], False),  # which another place has called
        (CALL, [("t.py", 90, 90, "check"), ("t.py", 5, 5, "call"), ("t.py", 10, 10, "test")], True),
        (CALL, [("t.py", 90, 90, "check"), ("t.py", 9, 11, "test")], True),  # check(call(...)), in several lines
        (CALL, [("t.py", 90, 90, "check"), ("t.py", 11, 12, "test")], False),
        (CALL, [("t.py", 11, 11, "test")], True),  # which looks at the result of `call`
        ((*CALL, "t.py:20 in main"), [("t.py", 11, 11, "test"), ("t.py", 20, 20, "main")], True),
        ((*CALL, "t.py:20 in main"), [("t.py", 11, 11, "test"), ("t.py", 21, 21, "main")], False),
        (CALL, [("s.py", 9, 9, "run"), ("t.py", 11, 11, "test")], False),
        (CALL, [("u.py", 5, 5, "call"), ("u.py", 10, 10, "test")], False),
        (CALL[1:], [("t.py", 12, 12, "test")], True),  # raised by the test, which has made the call itself
        (CALL[1:], [("subprocess.py", 9, 9, "run"), ("t.py", 12, 12, "test")], False),
        (CALL[1:], [("t.py", 90, 90, "check"), ("t.py", 10, 10, "test")], True),
        (CALL[:1], [("t.py", 5, 5, "call"), ("t.py", 12, 12, "test")], True),
        ((CALL[1], "/lib/unittest/case.py:1 in run"), [("s.py", 9, 9, "run"), ("t.py", 12, 12, "test")], False),
        ((CALL[1], "/lib/asyncio/events.py:1 in _run"),
         [("t.py", 12, 12, "test"), ("/lib/asyncio/events.py", 2, 2, "_run")], True),
        (CALL, [("t.py", 5, 5, "call")], True),
        (CALL, [("t.py", 5, 5, "call"), ("t.py", 10, 10, "other")], False),
        ((*CALL, "t.py:20 in main"), [("s.py", 9, 9, "run"), ("t.py", 11, 11, "test"), ("t.py", 20, 20, "main")],
         False),
        (("t.py:10 in test", "t.py:20 in main"),
         [("t.py", 11, 11, "test"), ("/lib/asyncio/events.py", 2, 2, "_run"), ("t.py", 20, 20, "main")], True),
        ((), [("t.py", 5, 5, "call")], False),
        (("libcuda.so.1+0x5",), [("t.py", 5, 5, "call")], False),
        (CALL, [], False),
    ],
)  # fmt: skip
def test_where_an_exception_came_from(stack: tuple[str, ...], traceback: list[tuple], right: bool) -> None:
    """It came out of a call if the function or the statement that made it raised it, in the same run of both."""
    assert came_of(stack, [Frame(*frame) for frame in traceback]) is right


def test_exception_of_another_call() -> None:
    """An exception that names another call which has failed names no error of this one."""
    text = "DriverError: cuMemFree_v2: CUDA_ERROR_OUT_OF_MEMORY"
    assert not tells(MEMORY, [Raised(text)], others=["cuMemFree_v2"])
    assert tells(MEMORY, [Raised(text)], others=["cuMemFreeHost"])
    assert tells(MEMORY, [Raised(text), Raised("DriverError: cuMemAlloc")], others=["cuMemFree_v2"])


def test_difference_to_a_clean_run() -> None:
    """Lines that a clean run has as often are not new, whatever values are in them."""
    before = [Said("a 1 at 0x7f00\nb\nb"), Said("c deadbeef-1234")]
    said = [Said("b\nb  \nb"), Said("a 2.5e3 at 0x80"), Said("c feedface-5678\nnot that", alarm=True), Said("b")]
    assert new(said, before) == [Said("b"), Said("not that", alarm=True), Said("b")]
    assert new(before, said) == []


@pytest.mark.parametrize(
    ("before", "said", "right"),
    [
        ("calling cuMemAlloc with 8 bytes", "calling cuMemAlloc with 8 bytes", False),
        ("calling cuMemAlloc with 8 bytes", "calling cuMemAlloc with 2 bytes", False),
        ("cuMemAlloc gave 0 in 5 ms", "cuMemAlloc gave 2 in 7 ms", True),
        ("CUDA says 0", "CUDA says 2", True),
        ("it says 0", "it says 2", False),
        ("cuMemAlloc gave 0", "cuMemAlloc gave 20", False),
        ("", "cuMemAlloc failed", True),
        ("", "MyError: 2", False),
        ("it took 0", "a CUDA buffer of 2", False),
        ("", "cuMemFree failed after cuMemAlloc", True),
        ("CUDA error 2", "CUDA error 2", False),
        ("CUDA error 2", "CUDA error 2\nCUDA error 2", True),
        ("", "cuMemFree: CUDA_ERROR_OUT_OF_MEMORY", False),
        ("", "cuMemFree: CUDA_ERROR_OUT_OF_MEMORY\nout of\nmemory", True),
    ],
)
def test_what_a_clean_run_does_not_say(before: str, said: str, right: bool) -> None:
    """New lines name an error, and lines whose number was 0, but not what is about another call that has failed."""
    assert tells(MEMORY, [], [Said(said)], [Said(before)], ["cuMemFree_v2"]) is right
