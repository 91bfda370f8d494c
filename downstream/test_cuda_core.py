"""Link tests of cuda.core, through its public API."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda.core import Linker, LinkerOptions, ObjectCode, Program, ProgramOptions

from pytest_cudalink import Raises, artifacts

SAMPLES = Path(__file__).parent.parent / "tests" / "data" / "artifacts"
ARCH = "sm_90"
MAIN = """
extern "C" __device__ float user_transform(float x);
extern "C" __global__ void apply_transform(float* x) { x[threadIdx.x] = user_transform(x[threadIdx.x]); }
"""
USER = 'extern "C" __device__ float user_transform(float x) { return x * x + 3.0f * x - 1.0f; }'

pytestmark = pytest.mark.cudalink(driver=">=12.9")


def compiled(kind: str) -> list[ObjectCode]:
    """The sample's two units, compiled by the toolkit of this environment."""
    options = ProgramOptions(
        arch=ARCH, relocatable_device_code=True, link_time_optimization=True if kind == "ltoir" else None
    )
    return [Program(source, "c++", options).compile(kind) for source in (MAIN, USER)]


def sample(release: str, kind: str) -> list[ObjectCode]:
    """The sample's two units, compiled by the toolkit of a release."""
    make = getattr(ObjectCode, f"from_{kind}")
    return [make((SAMPLES / release / f"{unit}.{kind}").read_bytes()) for unit in ("main", "user")]


def link(codes: list[ObjectCode], **options: object) -> artifacts.Artifact:
    """The linked image, inspected by a reader that does not depend on cuda.core."""
    linker = Linker(*codes, options=LinkerOptions(arch=ARCH, **options))
    try:
        code = linker.link("cubin").code
    finally:
        linker.close()
    return artifacts.inspect(bytes(code))


@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_inputs_of_12_9(kind: str, cudalink_backend: str) -> None:
    """Units from CUDA 12.9 link on every driver, on the forced backend, to a complete image."""
    found = link(sample("12.9", kind))
    assert found.kernels == ("apply_transform",)
    assert found.undefined == ()
    assert Linker.which_backend() == {"nvjitlink": "nvJitLink"}.get(cudalink_backend, cudalink_backend)


@pytest.mark.cudalink(backend="driver", driver=">=13.2", otherwise=Raises("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"))
def test_ptx_of_13_2_on_the_driver() -> None:
    """A driver rejects PTX from a newer toolkit: a documented failure on every older driver."""
    assert link(sample("13.2", "ptx")).kernels == ("apply_transform",)


@pytest.mark.cudalink(backend="nvjitlink", nvjitlink=">=13.2", otherwise=Raises("NVJITLINK_ERROR_PTX_COMPILE"))
def test_ptx_of_13_2_on_nvjitlink() -> None:
    """The release of nvJitLink decides, not that of the driver."""
    assert link(sample("13.2", "ptx")).kernels == ("apply_transform",)


@pytest.mark.cudalink(backend="nvjitlink")
def test_lto_inlines() -> None:
    """NvJitLink links LTO-IR and inlines the call."""
    found = link(compiled("ltoir"), link_time_optimization=True)
    assert found.kernels == ("apply_transform",)
    assert "user_transform" not in found.defined


@pytest.mark.cudalink(driver=">=13.2", backend="driver", otherwise=Raises("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"))
def test_the_toolkits_own_ptx() -> None:
    """PTX from this environment's NVRTC needs a driver that is as new."""
    assert link(compiled("ptx")).kernels == ("apply_transform",)


def test_damaged_ptx(cudalink_backend: str) -> None:
    """Damaged PTX fails on either backend, with the error code of that backend."""
    damaged = ObjectCode.from_ptx((SAMPLES / "12.9" / "user.ptx").read_bytes().replace(b"ret;", b"retrun;"))
    with pytest.raises(Exception, match="(?s)PTX") as caught:
        link([damaged])
    named = {"driver": "CUDA_ERROR_INVALID_PTX", "nvjitlink": "ERROR_PTX_COMPILE"}
    assert named[cudalink_backend] in str(caught.value)


def test_program_of_ptx() -> None:
    """A Program made from PTX links internally."""
    text = (SAMPLES / "12.9" / "user.ptx").read_text()
    with_linker = Program(text, "ptx", ProgramOptions(arch=ARCH))
    assert bytes(with_linker.compile("cubin").code)[:4] == b"\x7fELF"
    with_linker.close()


def test_linkers_side_by_side(cudalink_backend: str) -> None:
    """Several linkers are open at once, and each returns its own image."""
    linkers = [Linker(*sample("12.9", "ptx"), options=LinkerOptions(arch=ARCH)) for _ in range(3)]
    images = {bytes(linker.link("cubin").code) for linker in linkers}
    assert len(images) == 1
