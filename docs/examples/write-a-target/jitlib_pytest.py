"""The pytest plugin of jitlib: it tells pytest-cudalink how to steer the library."""

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_cudalink_targets():
    from jitlib_target import JitLib

    return [JitLib()]
