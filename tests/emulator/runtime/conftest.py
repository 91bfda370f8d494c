"""What the tests of the CUDA runtime share."""

from collections.abc import Callable

import pytest

HEAD = """
import ctypes, threading
from types import SimpleNamespace
import pytest
from cuda.bindings import driver, runtime as rt

OK, INVALID = rt.cudaError_t.cudaSuccess, rt.cudaError_t.cudaErrorInvalidValue

def value(answer):
    error, *values = answer
    assert error == OK, error
    return values[0] if len(values) == 1 else values
"""


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest, toolkit, request) -> Callable[..., pytest.RunResult]:
    """Run tests on an emulated driver, after `HEAD` and the text `MODULE` of the file that asks for it."""

    def go(module: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(HEAD + request.module.MODULE + module)
        return run_pytest("--cudalink-driver=13.0", *arguments)

    return go
