"""Every test runs with the context of the emulated device."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _context():
    from cuda.core import Device

    Device().set_current()
