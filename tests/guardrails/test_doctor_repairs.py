"""The doctor on what NVIDIA publishes: every release of cuda-toolkit, mixtures, and what its command makes of them."""

from __future__ import annotations

import pytest

from pytest_cudalink.guardrails.doctor import examine
from pytest_cudalink.guardrails.driver import DriverFacts
from pytest_cudalink.versions import CudaVersion
from tests.guardrails.planted import Environment, toolkit_versions


@pytest.fixture(autouse=True)
def _clean(monkeypatch) -> None:
    """The variable of cuda.pathfinder counts only where a test sets it."""
    monkeypatch.delenv("CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS", raising=False)


def driver(cuda: str | None) -> DriverFacts:
    """A driver of a CUDA version."""
    return DriverFacts(CudaVersion.parse(cuda) if cuda else None, None)


@pytest.mark.parametrize("version", toolkit_versions())
def test_every_toolkit_of_nvidia_is_coherent(tmp_path, version: str) -> None:
    """All that ``cuda-toolkit[all]==X`` installs is of one release, as the wheels' own numbers need not say."""
    environment = Environment(tmp_path / "site-packages")
    environment.install(f"cuda-toolkit[all]=={version}")
    report = examine(facts=driver("13.5"), system=environment)
    assert (report.exit_code, report.findings) == (0, [])
    release = CudaVersion.parse(version)
    assert len(report.items) > 10
    others = {item.name for item in report.items if item.version != release}
    assert others <= {"nvJitLink", "nvjitlink"}  # cuda-toolkit 13 bounds it from below only
