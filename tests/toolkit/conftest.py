"""Fixtures of the suite that runs on the real wheels of one toolkit."""

import pytest

from pytest_cudalink.linker import ObjectCode
from tests.compiled import compiled_sample

ARCH = "sm_90"


@pytest.fixture(autouse=True)
def _with_toolkit(toolkit) -> None:
    """Every test here needs a toolkit."""


@pytest.fixture(scope="session")
def compiled(toolkit) -> dict[tuple[str, str], ObjectCode]:
    """The two units of the sample by unit and kind, made by this toolkit's NVRTC."""
    return compiled_sample(ARCH)
