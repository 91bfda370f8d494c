"""Fixtures of the suite that runs on the real wheels of one toolkit."""

from __future__ import annotations

import pytest

from pytest_cudalink.linker import ObjectCode, Program, ProgramOptions, sample

ARCH = "sm_90"


@pytest.fixture(autouse=True)
def _with_toolkit(toolkit) -> None:
    """Every test here needs a toolkit."""


@pytest.fixture(scope="session")
def compiled(toolkit) -> dict[tuple[str, str], ObjectCode]:
    """The two units of the sample by unit and kind, made by this toolkit's NVRTC."""
    made = {}
    for unit, source in (("main", sample.MAIN_SOURCE), ("user", sample.USER_SOURCE)):
        for kind in ("ptx", "ltoir", "cubin"):
            options = ProgramOptions(name=f"{unit}.cu", arch=ARCH, relocatable_device_code=True)
            with Program(source, "c++", options) as program:
                made[unit, kind] = program.compile(kind)
    return made
