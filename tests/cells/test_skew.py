"""What works in a cell and what does not: run in every cell of the matrix that is about drivers, linkers or their skew.

Where toolkit and driver do not fit, the tests assert the documented failure; the report shows them as such.
"""

import ctypes
import os

import pytest
from cuda.bindings import nvrtc

from pytest_cudalink import probes
from pytest_cudalink.environment.requirements import Raises
from pytest_cudalink.linker import Program, ProgramOptions, VersionSkewError, sample
from pytest_cudalink.probes import libcuda
from pytest_cudalink.versions import CudaVersion

# a cell without nvJitLink is warned of that once; here it is no surprise
pytestmark = pytest.mark.filterwarnings("ignore:nvJitLink is not available:RuntimeWarning")

ARCH = "sm_90"
# of the compiler: another nvJitLink may be preloaded, and a local toolkit has no wheels
CTK = CudaVersion(*nvrtc.nvrtcVersion()[1:])
DRIVER = probes.driver_version()
NVJITLINK = probes.nvjitlink().usable if os.environ.get("CUDALINK_NVJITLINK") != "absent" else None
FORCED = os.environ.get("CUDALINK_FORCE_BACKEND")


def documented(requirement: str, failure: Raises, name: str = "driver"):
    """Where there is a driver (or nvJitLink) that does not fit, the test must fail like this."""
    return pytest.mark.cudalink(**{name: requirement}, otherwise=failure)


def nothing(test):
    """No mark."""
    return test


#: The dispatch table goes by major versions, and only where both are known.
LTO = nothing
PTX = nothing
if FORCED is None and NVJITLINK is None:
    LTO = documented(">=12.3", Raises(RuntimeError, match="nvJitLink"), "nvjitlink")
    PTX = documented(">=12", Raises(libcuda.DriverNotFoundError)) if DRIVER is None else nothing
elif FORCED is None and DRIVER is not None:
    LTO = documented(f"=={NVJITLINK.major}.*", Raises(RuntimeError, match="matching major versions"))
    PTX = documented(f">={NVJITLINK.major}", Raises(VersionSkewError))


@pytest.fixture(autouse=True)
def _with_toolkit() -> None:
    wanted = os.environ.get("CUDALINK_REQUIRE_TOOLKIT")
    if wanted and wanted != "latest":
        assert str(CTK) == wanted


@LTO
@pytest.mark.skipif(FORCED == "driver", reason="the driver does not link LTO-IR")
def test_ltoir_is_inlined() -> None:
    """LTO-IR links to one function, where driver and nvJitLink are of one major version."""
    image, _ = sample.link_sample("ltoir", ARCH)
    assert sample.prove("ltoir", image).ok


@PTX
@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_relocatable_code_links(kind: str) -> None:
    """PTX and cubins link; by the driver where its major version is another than nvJitLink's, else by nvJitLink."""
    image, decision = sample.link_sample(kind, ARCH)
    proof = sample.prove(kind, image)
    assert proof.ok, proof.text
    crossing = NVJITLINK is None or (DRIVER is not None and DRIVER.major != NVJITLINK.major)
    assert decision.startswith(FORCED or ("driver" if crossing else "nvjitlink"))


def load(image: bytes) -> None:
    """Load an image into the primary context, as a module that is unloaded again."""
    context, module, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    libcuda.call("cuInit", 0)
    libcuda.call("cuDeviceGet", ctypes.byref(device), 0)
    libcuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    libcuda.call("cuCtxPushCurrent_v2", context)
    try:
        libcuda.call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
        libcuda.call("cuModuleUnload", module)
    finally:
        libcuda.call("cuCtxPopCurrent_v2", ctypes.byref(context))
        libcuda.call("cuDevicePrimaryCtxRelease_v2", device)


def compiled(kind: str, arch: str) -> bytes:
    """A kernel of this toolkit."""
    source = 'extern "C" __global__ void kernel(float* x) { *x += 1.0f; }'
    with Program(source, "c++", ProgramOptions(name="user.cu", arch=arch)) as program:
        return program.compile(kind).code


@pytest.mark.cudalink(driver=f">={CTK}", otherwise=Raises("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"))
@pytest.mark.skipif(DRIVER is None, reason="needs a driver, and this cell is about its absence")
def test_driver_compiles_ptx_of_the_toolkit() -> None:
    """A driver reads PTX of its own release and older; newer PTX is error 222."""
    load(compiled("ptx", "compute_90"))


@pytest.mark.cudalink(driver=f">={CTK.major}", otherwise=Raises("CUDA_ERROR_NO_BINARY_FOR_GPU"))
@pytest.mark.skipif(DRIVER is None, reason="needs a driver, and this cell is about its absence")
def test_driver_loads_cubins_of_the_toolkit() -> None:
    """A driver takes the cubins of its own major release and of older ones; those of a newer one are error 209."""
    load(compiled("cubin", ARCH))
