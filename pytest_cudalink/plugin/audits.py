"""Fixtures that audit what a project ships: `device_code`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..audit.device_code import DeviceCode

__all__ = ["device_code"]


@pytest.fixture
def device_code() -> Callable[[str | Path], DeviceCode]:
    """Audit the device code of a wheel: ``device_code("dist/x.whl").check(archs=["L4"], drivers=">=525")``.

    ``check`` fails the test with a line for each group of images that a driver refuses; see
    `pytest_cudalink.audit.device_code.DeviceCode`.
    """
    from ..audit.device_code import device_code as audit

    return audit
