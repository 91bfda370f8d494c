"""The guard rails of a test run: option and twins, fixture, summary, workers."""

import pytest

from pytest_cudalink.report import records
from tests.nested import ALONE, BOTH

LOOKS_UP = """
import cuda.pathfinder as pf

def test_library():
    assert pf.load_nvidia_dynamic_lib("nvrtc")

def test_nothing():
    pass
"""


@pytest.fixture(autouse=True)
def _clean(monkeypatch, toolkit) -> None:
    """The variable of cuda.pathfinder counts only where a test sets it."""
    monkeypatch.delenv("CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS", raising=False)


@pytest.fixture
def run(run_pytest):
    """Run pytest on one module in a child process."""
    return lambda module, *arguments: run_pytest(*arguments, module=module)


def test_option(run) -> None:
    """The mode counts from collection on, and the header says where it is from; nothing is loaded until it is asked."""
    module = """
        import sys

        def loaded():
            return {name for name in ("cuda.pathfinder", "pytest_cudalink.guardrails") if name in sys.modules}

        at_collection = loaded()

        def test_nothing():
            assert not at_collection and not loaded()

        def test_asked():
            from pytest_cudalink import guardrails
            assert "cuda.pathfinder" not in loaded()
            guard = guardrails.installed().guard
            assert guard.mode == "best_effort"
            import cuda.pathfinder as pf
            from cuda.pathfinder import find_static_lib
            assert find_static_lib is pf.find_static_lib is guard.find_static_lib
        """
    result = run(module, "--cudalink-guard-rails=best_effort").ended(passed=2)
    result.shows("cudalink: *, guard rails best_effort (from option)")


@pytest.mark.parametrize("first", ["guardrails.install(guard)", "guard.find_static_lib('cudadevrt')"])
def test_a_guard_of_the_suite_comes_first(run, first: str) -> None:
    """A guard that a test makes before anything imports cuda.pathfinder works as it does after that."""
    run(
        f"""
        from pytest_cudalink import guardrails

        def test():
            guard = guardrails.CompatibilityGuardRails(mode="best_effort")
            {first}
            guardrails.install(guard)
            import cuda.pathfinder as pf
            assert guardrails.installed().guard is guard
            assert pf.find_static_lib is guard.find_static_lib
            assert pf.find_static_lib("cudadevrt")
            guardrails.uninstall()
            assert guardrails.installed() is None
            assert pf.find_static_lib.__module__.startswith("cuda.pathfinder.")
        """,
        "--cudalink-guard-rails=strict",
        "--cudalink-driver=13.2",
    ).ended(passed=1)


def test_strict_without_a_driver(run, pytester) -> None:
    """A refusal fails the test that made the look-up, and the summary has it with item, rule and test.

    Questions of the plugin for its records and requirements do not count as look-ups of the suite.
    """
    required = "import pytest\n@pytest.mark.cudalink(nvjitlink='>=12.0')\ndef test_required(): pass\n"
    options = ("--cudalink-guard-rails=strict", "--cudalink-driver=absent", "--cudalink-report=r.jsonl")
    run(LOOKS_UP + required, *options).ended(passed=2, failed=1).shows(
        "*CompatibilityInsufficientMetadataError: whether the driver runs CUDA *(nvrtc library) is not known*",
        "*= cudalink guard rails =*",
        "mode strict (from option): 1 insufficient metadata",
        "insufficient metadata (driver): whether the driver runs *",
        "    nvrtc library at *libnvrtc.so* (found via *); CUDA *",
        "    fix: install the NVIDIA driver; or *; or use the mode best_effort, which lets pass what is not known",
        "    in test_it.py::test_library",
    )
    record = records.read(pytester.path / "r.jsonl")
    assert (record.run.versions["nvjitlink"]["found"] or "").startswith("1")
    assert [verdict.severity for verdict in record.verdicts] == ["unknown"]
    result = run(LOOKS_UP, "--cudalink-guard-rails=best_effort", "--cudalink-driver=absent").ended(passed=2)
    result.shows(
        "*= cudalink guard rails =*",
        "mode best_effort (from option): 1 not compared with a driver",
        "no driver: --cudalink-driver=13.* emulates one to compare the toolkit with",
    )
    result.stdout.no_fnmatch_line("*insufficient metadata*")
    result.stdout.no_fnmatch_line("*fix: *")


@pytest.mark.parametrize("mode", [None, "strict"])
def test_fixture(run, toolkit, mode) -> None:
    """A fresh guard for each test, with the run's mode, whose verdicts the summary has."""
    module = f"""
        import pytest
        from pytest_cudalink.guardrails import CompatibilityCheckError

        @pytest.mark.parametrize("number", [1, 2])
        def test_fits(guard_rails, number):
            assert guard_rails.mode == {mode or "best_effort"!r}
            assert guard_rails.remembered == ()
            guard_rails.load_nvidia_dynamic_lib("nvrtc")
            guard_rails.find_nvidia_header_directory("cudart")
            assert [str(item.version) for item in guard_rails.remembered] == ["{toolkit}"] * 2
        """
    arguments = ["--cudalink-guard-rails=strict"] if mode else []
    run(module, "--cudalink-driver=13.2", *arguments).ended(passed=2).shows("mode *: 4 compatible")


def test_who_is_not_routed_is_named(run, pytester) -> None:
    """What kept the old function before the run began is in the summary."""
    pytester.makepyfile(early="import cuda.pathfinder as pf\ndef find(name, by=pf.find_static_lib): return by(name)\n")
    result = run("def test(): pass", "-p", "early", "--cudalink-guard-rails=best_effort")
    assert result.ret == 0
    result.shows("calls cuda.pathfinder directly: find_static_lib: a default argument of find in early")


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_verdicts_are_recorded(run, pytester, arguments: list[str]) -> None:
    """Each verdict is a record under its test, from whichever process; look-ups of a conftest count as well."""
    pytester.makeconftest("from cuda.pathfinder import find_static_lib\nfind_static_lib('cudadevrt')\n")
    options = ("--cudalink-guard-rails=strict", "--cudalink-driver=13.2", "--cudalink-report=r.jsonl")
    result = run(LOOKS_UP, *options, *arguments).ended(passed=2)
    verdicts = records.read(pytester.path / "r.jsonl").verdicts
    (verdict,) = [verdict for verdict in verdicts if verdict.nodeid]
    assert verdict.nodeid == "test_it.py::test_library"
    assert (verdict.severity, verdict.kind) == ("note", "driver")
    assert "backward compatibility" in verdict.what
    assert verdict.evidence[0].startswith("nvrtc library at ")
    assert any(verdict.nodeid is None and verdict.evidence[0].startswith("cudadevrt static") for verdict in verdicts)
    result.shows(f"mode strict (from option): {len(verdicts)} compatible")
