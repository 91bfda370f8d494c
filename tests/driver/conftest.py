"""Fixtures of the suite that needs a CUDA driver with a device."""

import pytest

from pytest_cudalink import probes
from pytest_cudalink.linker import ObjectCode
from pytest_cudalink.probes import libcuda
from tests.compiled import compiled_sample
from tests.driver.blocks import GuardedBlock


@pytest.fixture(scope="session")
def device() -> str:
    """Architecture of the device, or a skip with a reason."""
    arch = probes.device_arch()
    if arch is None:
        pytest.skip("needs a CUDA driver with a device")
    return arch


@pytest.fixture(autouse=True)
def _with_device(device) -> None:
    """Every test here needs a device."""


@pytest.fixture
def real_gpu(device) -> None:
    """Skip where kernels are not executed, and export tables are none: the emulated driver names itself."""
    if hasattr(libcuda.library(), "cudalinkEmulatorVersion"):
        pytest.skip("the emulated driver does not execute kernels")


@pytest.fixture(scope="session")
def compiled(device) -> dict[tuple[str, str], ObjectCode]:
    """The two units of the sample by unit and kind, for the device."""
    return compiled_sample(device)


@pytest.fixture
def guarded(monkeypatch) -> list[GuardedBlock]:
    """Driver links on guarded blocks; the list of all that were made."""
    from pytest_cudalink.linker.backends import OPENERS
    from pytest_cudalink.linker.backends.driver import DriverLinkState

    blocks: list[GuardedBlock] = []

    def allocate(size: int) -> GuardedBlock:
        blocks.append(GuardedBlock(size))
        return blocks[-1]

    monkeypatch.setitem(OPENERS, "driver", lambda options: DriverLinkState(options, allocate))
    return blocks
