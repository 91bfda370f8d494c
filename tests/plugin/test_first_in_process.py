"""The emulated driver is loaded before pytest imports a library because of a filter of warnings."""

import sys

import pytest

#: As numba-cuda does it: the driver is looked for once, when the module is imported. It takes the name of the module in
#: numba-cuda, which may be installed here.
LIBRARY = """
import ctypes, sys

class Driver:
    initialization_error = None

    def __init__(self):
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            self.initialization_error = str(error)

class EarlyWarning(Warning):
    pass

driver = Driver()
sys.modules["numba.cuda.cudadrv.driver"] = sys.modules[__name__]
"""
TEST = """
from early import driver

def test_found():
    assert driver.initialization_error is None
"""
#: pytest 9.2 imports the classes of filters before any plugin is loaded.
TOO_LATE = pytest.version_tuple >= (9, 2)


@pytest.fixture
def library(pytester: pytest.Pytester, monkeypatch) -> str:
    """A library that stands in for numba-cuda; returns a filter that names its class."""
    pytester.makepyfile(early=LIBRARY)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path), prepend=":")
    pytester.makepyfile(TEST)
    return "ignore::early.EarlyWarning"


@pytest.mark.parametrize("where", ["ini", "option"])
def test_filters_of_warnings(pytester: pytest.Pytester, run_pytest, library, where) -> None:
    """The library that a filter names finds the driver; where pytest is quicker, the run says what to do."""
    if where == "ini":
        pytester.makeini(f"[pytest]\nfilterwarnings = {library}\n")
    arguments = ["-W", library] if where == "option" else []
    result = run_pytest("--cudalink-driver=13.0", *arguments, fresh=True)
    if TOO_LATE:
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["ERROR: cudalink: --cudalink-driver is 13.0 *comes too late for numba-cuda: *"])
        advice = "Run `cudalink driver run --version 13.0 -- pytest ...`, or name no class of numba-cuda there"
        assert advice in result.stderr.str()
    else:
        result.ended(passed=1)


@pytest.mark.slow
def test_the_advice_helps(pytester: pytest.Pytester, library) -> None:
    """On the driver of `cudalink driver run` the library may be imported as early as pytest likes."""
    pytester.makeini(f"[pytest]\nfilterwarnings = {library}\n")
    command = (sys.executable, "-m", "pytest_cudalink.cli", "driver", "run", "--version", "13.0", "--")
    result = pytester.run(*command, sys.executable, "-m", "pytest", "-q")
    result.assert_outcomes(passed=1)
