"""Why tests fail: the block under each failure that versions explain, in the report, the records and JUnit."""

from pathlib import Path

import pytest

from pytest_cudalink.report import read
from tests.nested import ALONE, BOTH

ARTIFACTS = Path(__file__).parent.parent / "data" / "artifacts"
NVJITLINK = "nvidia-nvjitlink"

DRIVER = f"""
import ctypes
from pathlib import Path
import pytest

ARTIFACTS = Path({str(ARTIFACTS)!r})
OLD = b".version 8.0\\n.target sm_50\\n.address_size 64\\n.visible .entry k() {{ ret; }}\\0"

class LinkerError(Exception):
    pass

@pytest.fixture(scope="session")
def cuda():
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    return cuda

def image(name):
    return (ARTIFACTS / name).read_bytes() + b"\\0"

def load(cuda, image):
    module = ctypes.c_void_p()
    if cuda.cuModuleLoadData(ctypes.byref(module), image):
        raise LinkerError("cannot load")  # as a library that swallows the code

def link(cuda, kind, image):
    state = ctypes.c_void_p()
    assert cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(state)) == 0
    if cuda.cuLinkAddData_v2(state, kind, image, ctypes.c_size_t(len(image)), b"input", 0, None, None):
        raise LinkerError("cannot link")
"""
TESTS = """
def test_222(cuda): load(cuda, image("13.0/main.ptx"))
def test_209(cuda): load(cuda, image("13.0/linked.cubin"))
def test_218(cuda): load(cuda, OLD.replace(b"sm_50", b"sm_100"))
def test_200(cuda): load(cuda, image("12.9/main.ltoir"))
def test_221(cuda): link(cuda, 5, image("12.9/main.ltoir"))
def test_link_222(cuda): link(cuda, 1, image("13.0/main.ptx"))
def test_link_209(cuda): link(cuda, 0, image("13.0/main.cubin"))

def test_file(cuda, tmp_path):
    (tmp_path / "a.ptx").write_bytes(image("13.0/main.ptx"))
    module = ctypes.c_void_p()
    assert cuda.cuModuleLoad(ctypes.byref(module), str(tmp_path / "a.ptx").encode()) == 0

def test_library(cuda):
    library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    ptx = image("13.0/main.ptx")
    assert cuda.cuLibraryLoadData(ctypes.byref(library), ptx, None, None, 0, None, None, 0) == 0
    assert cuda.cuLibraryGetKernel(ctypes.byref(kernel), library, b"k") == 0

def test_passes(cuda): load(cuda, OLD)
def test_expects(cuda):
    with pytest.raises(LinkerError): load(cuda, image("13.0/main.ptx"))
def test_own_fault(cuda): assert 0

@pytest.fixture(scope="module")
def broken(cuda): load(cuda, image("13.0/linked.cubin"))
def test_setup(broken): pass
def test_same_setup(broken): pass

def test_mistake(cuda): load(cuda, OLD.replace(b"ret", b"rat"))
def test_injected(cuda):
    from pytest_cudalink.emulator import preload
    preload.emulated_driver().inject("cuModuleLoadData", 222)
    load(cuda, OLD)
"""
NEWER_PTX = "a driver of CUDA 12.9 reads PTX up to ISA 8.8; CUDA 13.0 wrote 9.0"
NEWER_CUBIN = "a driver of CUDA 12.9 loads cubins of toolkits up to CUDA 12; CUDA 13.0 made this one"
#: The error and the call, and the reason, of each test that has a cause.
CAUSES = {
    "test_222": ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuModuleLoadData of PTX", NEWER_PTX),
    "test_209": ("CUDA_ERROR_NO_BINARY_FOR_GPU (209): cuModuleLoadData of a cubin", NEWER_CUBIN),
    "test_218": ("CUDA_ERROR_INVALID_PTX (218): cuModuleLoadData of PTX", "PTX for sm_100 runs on sm_100 and newer"),
    "test_200": ("CUDA_ERROR_INVALID_IMAGE (200): cuModuleLoadData of LTO-IR", "no driver loads LTO-IR"),
    "test_221": ("CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221): cuLinkAddData of LTO-IR", "no driver links LTO-IR"),
    "test_link_222": ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuLinkAddData of PTX", NEWER_PTX),
    "test_link_209": (
        "CUDA_ERROR_NO_BINARY_FOR_GPU (209): cuLinkAddData of a cubin",
        "a driver of CUDA 12.9 links code",
    ),
    "test_file": ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuModuleLoad of PTX", NEWER_PTX),
    "test_library": ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuLibraryGetKernel of PTX", NEWER_PTX),
    "test_setup": ("CUDA_ERROR_NO_BINARY_FOR_GPU (209): cuModuleLoadData of a cubin", NEWER_CUBIN),
    "test_same_setup": ("CUDA_ERROR_NO_BINARY_FOR_GPU (209): cuModuleLoadData of a cubin", NEWER_CUBIN),
}


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest):
    """Run a module with a record; returns the result and the records' tests by name."""

    def go(module: str, *arguments: str, driver: str = "12.9"):
        result = run_pytest(f"--cudalink-driver={driver}", "--cudalink-report=run.jsonl", *arguments, module=module)
        tests = {test.nodeid.rpartition("::")[2]: test for test in read(pytester.path / "run.jsonl").tests}
        return result, tests

    return go


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_each_refused_image_explains_its_failure(run, toolkit, pytester, arguments: tuple[str, ...]) -> None:
    """Each code has its reason in records and JUnit, and no test that of another; `test_explained` has the phases."""
    result, tests = run(DRIVER + TESTS, "--junitxml=junit.xml", *arguments)
    causes = {name: test.cause for name, test in tests.items() if test.cause}
    assert set(causes) == set(CAUSES)
    for name, (what, why) in CAUSES.items():
        assert causes[name]["kind"] == "skew"
        assert causes[name]["what"].startswith(what)
        assert causes[name]["why"].startswith(why)
    assert sum("cudalink: why" in line for line in result.outlines) == len(CAUSES)
    assert {name for name, test in tests.items() if test.outcome == "passed"} == {"test_passes", "test_expects"}
    text = (pytester.path / "junit.xml").read_text()
    assert text.count('<property name="cudalink.cause"') == len(CAUSES)
    assert f"&#10;why    {NEWER_PTX}&#10;fix " in text


NEWER_INPUT = f"""
import pytest
from pathlib import Path
ARTIFACTS = Path({str(ARTIFACTS)!r})

def add(name, kind, *options):
    from cuda.bindings import nvjitlink
    handle = nvjitlink.create(1 + len(options), ["-arch=sm_90", *options])
    try:
        data = (ARTIFACTS / name).read_bytes()
        nvjitlink.add_data(handle, getattr(nvjitlink.InputType, kind), data, len(data), "input")
    except nvjitlink.nvJitLinkError:
        raise RuntimeError("cannot link") from None
    finally:
        nvjitlink.destroy(handle)

def test_ltoir(): add("13.5/main.ltoir", "LTOIR", "-lto")
def test_ptx(): add("13.5/main.ptx", "PTX")
def test_other(): assert 0
def test_ours():
    from pytest_cudalink.linker import Linker, ObjectCode
    Linker(ObjectCode.from_ptx((ARTIFACTS / "13.5/main.ptx").read_bytes()))
"""


def test_nvjitlink_explains_a_newer_input(run, toolkit) -> None:
    """An input that is newer than nvJitLink has its reason, whatever called it; the bundled linker says the same."""
    pytest.importorskip("cuda.bindings.nvjitlink")
    _, tests = run(NEWER_INPUT, driver="absent")
    assert "NVJITLINK_ERROR_" in tests["test_ltoir"].cause["what"]
    assert "nvJitLinkAddData of LTO-IR for sm_90, made by CUDA 13.5" in tests["test_ltoir"].cause["what"]
    assert "links code of CUDA 13" in tests["test_ltoir"].cause["why"]
    assert "NVJITLINK_ERROR_PTX_COMPILE (4): nvJitLinkAddData of PTX" in tests["test_ptx"].cause["what"]
    assert tests["test_ours"].cause["what"].startswith("VersionSkewError: a link of PTX")
    assert tests["test_ours"].cause["why"] == tests["test_ptx"].cause["why"]
    assert any(NVJITLINK in fix for fix in tests["test_ptx"].cause["suggestion"])
    assert tests["test_other"].cause is None


CAPTURES = """
from cuda.bindings import driver

def must(answer):
    error, *rest = answer
    assert not error, error.name
    return rest[0] if rest else None

def begin():
    must(driver.cuInit(0))
    must(driver.cuCtxSetCurrent(must(driver.cuDevicePrimaryCtxRetain(0))))
    stream = must(driver.cuStreamCreate(1))
    must(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    return stream

def test_fine():
    global stream, other, event, memory
    must(driver.cuStreamEndCapture(begin()))
    stream, other, event = must(driver.cuStreamCreate(1)), must(driver.cuStreamCreate(1)), must(driver.cuEventCreate(0))
    memory = must(driver.cuMemAlloc(64))

def test_forbidden():
    stream = begin()
    assert driver.cuMemAlloc(8)[0] == 900
    must(driver.cuStreamEndCapture(stream))
def test_invalidates():
    global invalidated
    invalidated = begin()
    assert driver.cuMemAlloc(8)[0] == 900
def test_passes(): pass
def test_ends_the_invalidated(): must(driver.cuStreamEndCapture(invalidated))

def test_leaves(): assert begin() is None or must(driver.cuMemAlloc(8))
def test_passes_too(): pass
def test_later(): must(driver.cuMemAlloc(8))
def test_own_fault(): assert 1 == 2
def test_unjoined():
    must(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    must(driver.cuEventRecord(event, stream))
    must(driver.cuStreamWaitEvent(other, event, 0))
    must(driver.cuMemsetD8Async(memory, 0, 64, other))
    must(driver.cuStreamEndCapture(stream))
"""


def test_captures(run, toolkit) -> None:
    """A call that invalidated a capture and the test that left one open are named, and for no other failure."""
    _, tests = run(CAPTURES, driver="13.0")
    named = {name: test.cause for name, test in tests.items() if test.cause is not None}
    assert named.keys() == {"test_forbidden", "test_ends_the_invalidated", "test_leaves", "test_later"}
    rest = "is a call that a capture forbids, and it invalidated the capture of a stream"
    assert named["test_forbidden"]["why"] == f"cuMemAlloc {rest}"
    of_another = f"cuMemAlloc in {tests['test_invalidates'].nodeid} {rest}"
    assert named["test_ends_the_invalidated"]["why"] == of_another
    assert named["test_leaves"]["why"].startswith("the test captures a stream; until it ends that capture other calls")
    assert tests["test_unjoined"].outcome == "failed"
    assert named["test_later"]["kind"] == "open_capture"
    assert named["test_later"]["why"].startswith(f"{tests['test_leaves'].nodeid} began to capture a stream and did not")
    assert "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" in named["test_later"]["what"]


WITHOUT_DRIVER = """
import ctypes
from pytest_cudalink.emulator import preload
preload.driver_exists = lambda: False

def test_ours():
    from pytest_cudalink.probes.libcuda import DriverNotFoundError
    raise DriverNotFoundError("no CUDA driver: libcuda.so.1: not there")
def test_bindings(): raise RuntimeError("Failed to dlopen libcuda.so.1\\nnor another")
def test_pathfinder():
    try:
        raise OSError("Ensure the NVIDIA display driver is installed.")
    except OSError as error:
        raise ImportError("no device") from error
def test_numba(): raise RuntimeError("Error at driver init:\\n\\nCUDA driver library cannot be found.\\n:")
def test_other(): raise RuntimeError("something else")
def test_passes(): pass
"""


@pytest.mark.parametrize("arguments", [(), pytest.param(("-n", "1"), marks=pytest.mark.slow)])
def test_a_missing_driver_where_nothing_asks(pytester: pytest.Pytester, run_pytest, toolkit, arguments) -> None:
    """The plugin does nothing in such a run, but a test that fails for want of a driver still hears of the option."""
    pytester.makepyfile(test_it=WITHOUT_DRIVER, test_import=f"{WITHOUT_DRIVER}\ntest_numba()")
    result = run_pytest("--continue-on-collection-errors", *arguments).ended(passed=1, failed=5, errors=1)
    fix = f"fix    run with --cudalink-driver={toolkit}, which emulates one"
    assert result.stdout.lines.count(fix) == 5
    result.shows(
        "error  DriverNotFoundError: no CUDA driver: libcuda.so.1: not there",
        "why    this process finds no CUDA driver, real or emulated",
        fix,
        consecutive=True,
    )
    result.stdout.no_fnmatch_line("cudalink: *")
