"""The doctor on what NVIDIA publishes: every release of cuda-toolkit, mixtures, and what its command makes of them."""

from __future__ import annotations

import pytest

from pytest_cudalink.compat.wheels import all_versions
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


def test_metadata_that_is_not_utf_8(tmp_path, monkeypatch) -> None:
    """It does not end the doctor, which names the file; the distribution still counts as installed."""
    environment = Environment(tmp_path / "site-packages")
    environment.install("cuda-toolkit[cudart,nvjitlink,nvrtc]==13.0.2")
    environment.put("a", "1.0", "nvidia-cuda-nvrtc>=13")
    file = tmp_path / "site-packages" / "a-1.0.dist-info" / "METADATA"
    file.write_bytes(file.read_bytes().replace(b"Version: 1.0", b"Version: 1.0\nAuthor: Ren\xe9"))
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    monkeypatch.setattr(environment, "versions", all_versions)
    report = examine(facts=driver("13.0"), system=environment)
    (finding,) = [one for one in report.findings if "UTF-8" in one.text]
    assert finding.text == f"{file}: not UTF-8 (byte 0xe9 at 54): install the distribution again"
    assert (report.exit_code, finding.severity) == (0, "warning")
    assert [claim.by for claim in environment.environment().claims] == ["a 1.0"]
