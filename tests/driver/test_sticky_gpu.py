"""Real errors of kernels, and a kernel without an end: the guard fails their tests, and the others pass."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("real_gpu")
SUITE = Path(__file__).parent / "programs" / "sticky_suite.py"
LEFT = {
    "test_illegal_access": "CUDA_ERROR_ILLEGAL_ADDRESS (700)",
    "test_misaligned": "CUDA_ERROR_MISALIGNED_ADDRESS (716)",
    "test_trap": "CUDA_ERROR_LAUNCH_FAILED (719)",
    "test_late_in_another_stream": "CUDA_ERROR_ILLEGAL_ADDRESS (700)",
    "test_endless": "work that does not end",
}


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest):
    """Run the suite on the real driver."""
    pytester.makepyfile(test_it=SUITE.read_text(encoding="utf-8"))
    return run_pytest


@pytest.mark.parametrize(
    "mode", [(), ("--cudalink-processes=restarted",), ("-n2",)], ids=["plain", "shared", "workers"]
)
def test_real_errors(run, mode: tuple[str, ...]) -> None:
    """Each culprit is named with its error; all others pass."""
    result = run("--cudalink-processes=deadline=5", *mode)
    result.assert_outcomes(failed=len(LEFT), passed=12)
    output = "\n".join(result.outlines)
    for test, error in LEFT.items():
        assert f"test_it.py::{test} left the contexts of its process with {error}" in output


def test_without_the_guard(run) -> None:
    """Without the guard the first culprit passes, and every test after it fails."""
    result = run("--cudalink-processes=sticky=off", "-k", "not endless")
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] == 4
    assert outcomes["failed"] == 11


def test_stop(run) -> None:
    """The run stops behind the culprit."""
    result = run("--cudalink-processes=sticky=stop")
    result.assert_outcomes(failed=1, passed=3)
    assert "left the contexts of the process with CUDA_ERROR_ILLEGAL_ADDRESS (700)" in "\n".join(result.outlines)
