"""The marker from outside: requirements, documented failures, backends, and what is wrong with it."""

import pytest

from tests.nested import ALONE, XDIST
from tests.plugin.test_require import LINK

HEAD = "import pytest\nfrom pytest_cudalink import Raises\n"


@pytest.fixture
def run(run_pytest):
    """Run pytest on one module in a separate process, on an emulated driver of CUDA 13.0."""
    given = ("--cudalink-driver=13.0", "-rsxX", "--strict-markers")
    return lambda module, *arguments: run_pytest(*given, *arguments, module=HEAD + module)


REASONS = {
    "driver='>=13.2'": "cudalink: needs driver >= 13.2 (found 13.0, emulated)",
    "nvjitlink='>=99'": "cudalink: needs nvjitlink >= 99 (found *)",
    "gpu=True, driver='>=14'": "cudalink: needs driver >= 14 (found 13.0, emulated) and a GPU (found sm_90, emulated)",
}


DOCUMENTED = """
import unittest
pytestmark = pytest.mark.cudalink(driver='>=13.2', otherwise=Raises("CUDA_ERROR_X", SystemExit))

def fail(): raise RuntimeError("CUDA_ERROR_X: no")

@pytest.fixture
def linked(): fail()

@pytest.fixture(scope="module")
def linked_once(): fail()

def test_fixture(linked): raise AssertionError("was run")
def test_wide_fixture(linked_once): raise AssertionError("was run")
def test_exits(): raise SystemExit(3)

class TestGroup(unittest.TestCase):
    def test_method(self): fail()

class TestClass(unittest.TestCase):
    @classmethod
    def setUpClass(cls): fail()
    def test_method(self): raise AssertionError("was run")

class TestOther(unittest.TestCase):
    def test_passes(self): pass
    def test_other(self): raise RuntimeError("something else")
"""


def test_reasons_and_documented_failures(run, pytester) -> None:
    """Every skip reads the same; a documented failure counts wherever it is; `test_plans` has which marker counts."""
    met = "driver='13', nvjitlink='>=12.3', arch='>=8.0', gpu=False, ctk='>=12'"
    skipped = (f"@pytest.mark.cudalink({r})\ndef test_{i}(): raise AssertionError" for i, r in enumerate(REASONS))
    fails = "@pytest.mark.cudalink(driver='>=14', otherwise='xfail')\ndef test_fails(): raise RuntimeError"
    pytester.makepyfile(test_documented=HEAD + DOCUMENTED)
    result = run("\n".join([f"@pytest.mark.cudalink({met})\ndef test(): pass", *skipped, fails]), "-rsfE")
    result.ended(passed=1 + 5, skipped=len(REASONS), xfailed=1, failed=2)
    for number, reason in enumerate(REASONS.values()):
        result.shows(f"SKIPPED [[]1[]] test_it.py:{5 + 2 * number}: {reason}")
    result.shows(
        "5 tests failed as documented (driver >= 13.2 not met): CUDA_ERROR_X or SystemExit",
        "FAILED *::test_other - *",
        "FAILED *::test_passes - *",
    )


@pytest.mark.parametrize("workers", [ALONE, XDIST])
def test_usage_error(run, workers) -> None:
    """What cannot be meant is refused at collection, once for all parameters of a test, and no test runs."""
    twice = "@pytest.mark.parametrize('i', [1, 2])\n@pytest.mark.cudalink(driver='x', gpu=2)\n"
    result = run(f"{twice}def test_marked(i): pass\ndef test_other(): pass\n", *workers)
    result.ended(pytest.ExitCode.USAGE_ERROR)
    said = [line for line in result.errlines if "@pytest.mark.cudalink" in line]
    assert [line.partition(";")[0] for line in said] == [
        "ERROR: test_it.py::test_marked: @pytest.mark.cudalink driver='x' is not a version specifier",
        "test_it.py::test_marked: @pytest.mark.cudalink gpu=2",
    ]
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


def test_backends_of_tests(run, pytester, samples, toolkit) -> None:
    """`backend=` forces one test with its fixtures, and is undone; `each` runs a test on both, in one process."""
    pytester.path.joinpath("user.ptx").write_bytes(samples["12.9/user.ptx"])
    result = run(
        LINK
        + """
import os
@pytest.fixture
def early(): return link()

@pytest.mark.cudalink(backend="driver")
def test_driver(early, cudalink_backend):
    assert early == link() == cudalink_backend == "driver"

def test_after(cudalink_backend):
    assert (link(), cudalink_backend) == ("nvjitlink", None)

@pytest.mark.cudalink(backend="each")
@pytest.mark.parametrize("i", [1, 2])
def test_both(i, cudalink_backend, record_property):
    assert link() == cudalink_backend
    assert os.environ.setdefault("THE_PROCESS", str(os.getpid())) == str(os.getpid())

@pytest.mark.cudalink(backend="each")
class TestGroup:
    def test_method(self):
        assert link() in ("driver", "nvjitlink")
""",
        "-v",
    ).ended(passed=8)
    for name in ("test_both[[]driver-1[]]", "test_both[[]nvjitlink-2[]]", "*test_method[[]driver[]]"):
        result.shows(f"*::{name} PASSED*")
    result.shows("bundled: 9 links (5 on the driver, 4 on nvJitLink)")


def test_skip_without_any_option(run_pytest) -> None:
    """A requirement that does not hold is a skip and no error, too, where nothing else asked for the phases."""
    module = "import pytest\n@pytest.mark.cudalink(ctk='>=99')\ndef test_it(caplog): pass"
    result = run_pytest("-rs", "-p", "no:cacheprovider", module=module).ended(skipped=1)
    result.shows("*cudalink: needs ctk >= 99 (found *")
