"""Releases of cuda-core with releases of cuda-bindings: run in the cells that have an axis for each of them."""

import importlib
import os

import pytest

from pytest_cudalink import probes

CORE, BINDINGS = (probes.wheel_version(name) for name in ("cuda-core", "cuda-bindings"))
NVJITLINK = os.environ.get("CUDALINK_NVJITLINK")


@pytest.mark.skipif(CORE is None or BINDINGS is None, reason="this cell chooses no cuda-core and cuda-bindings")
@pytest.mark.xfail(
    CORE == "1.0.0" and str(BINDINGS).startswith("13.0."),
    reason="cuda-core 1.0.0 needs cuDevSmResourceSplit of cuda-bindings 13.1 (NVIDIA/cuda-python#2063)",
    raises=ImportError,
    strict=True,
)
def test_cuda_core_imports() -> None:
    """It imports, but for the pair that was released without having been tested."""
    importlib.import_module("cuda.core")


@pytest.mark.skipif(CORE is None or NVJITLINK is None, reason="this cell chooses no cuda-core and nvJitLink")
@pytest.mark.xfail(
    CORE == "1.1.1" and NVJITLINK == "12.0",
    reason="cuda-core asks for nvJitLinkVersion, which nvJitLink has from 12.3 on (NVIDIA/cuda-python#2408)",
    strict=True,
)
@pytest.mark.filterwarnings("ignore:libnvJitLink.*too old:RuntimeWarning")
def test_cuda_core_links() -> None:
    """It links with the driver where nvJitLink is too old, but for the releases that raise."""
    core = importlib.import_module("cuda.core")
    device = core.Device()
    device.set_current()
    arch = f"sm_{device.arch}"
    code = core.Program('extern "C" __global__ void twice(int *x) { *x *= 2; }', "c++", core.ProgramOptions(arch=arch))
    linker = core.Linker(code.compile("ptx"), options=core.LinkerOptions(arch=arch))
    assert linker.link("cubin").get_kernel("twice")
