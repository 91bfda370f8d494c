"""What the tests of the CUDA runtime share."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest, toolkit, request) -> Callable[..., pytest.RunResult]:
    """Run tests on an emulated driver, after the text `MODULE` of the file that asks for it."""

    def go(module: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(request.module.MODULE + module)
        return run_pytest("--cudalink-driver=13.0", *arguments)

    return go
