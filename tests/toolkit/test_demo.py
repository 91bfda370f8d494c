"""The demo without a GPU."""

from __future__ import annotations

import subprocess
import sys

from pytest_cudalink import probes
from pytest_cudalink.cli import demo
from pytest_cudalink.linker import sample


def test_demo_proves_from_the_images(monkeypatch, toolkit) -> None:
    """Both ways are proved, and the reason for the backend is shown."""
    monkeypatch.setattr(probes, "device_arch", lambda: None)
    lines: list[str] = []
    with probes.fake(driver=None):
        assert demo.report(write=lines.append) == 0
    text = "\n".join(lines)
    assert f"nvJitLink: {toolkit}" in lines[0]
    assert "ok   PTX without LTO: 2 .text section(s), expected 2" in text
    assert "ok   LTO-IR with LTO: 1 .text section(s), expected 1" in text
    assert "nvjitlink by policy strict-major" in text
    assert "nothing was launched" in text


def test_demo_fails_on_a_mismatch(monkeypatch) -> None:
    """An image without the expected inlining is exit code 1."""
    monkeypatch.setattr(probes, "device_arch", lambda: None)
    monkeypatch.setattr(sample, "USER_SOURCE", sample.USER_SOURCE + 'extern "C" __global__ void other() {}')
    lines: list[str] = []
    assert demo.report(write=lines.append) == 1
    assert any(line.startswith("FAIL LTO-IR with LTO: 2 .text") for line in lines)


def test_demo_reports_errors(monkeypatch) -> None:
    """What cannot be linked is a failure with its error, not a traceback."""
    monkeypatch.setattr(probes, "device_arch", lambda: None)
    lines: list[str] = []
    with probes.fake(nvjitlink=None):
        assert demo.report(write=lines.append) == 1
    assert any("FAIL" in line and "nvJitLink is not available" in line for line in lines)


def test_demo_tells_a_failed_launch_from_a_failed_link(monkeypatch) -> None:
    """What was linked keeps its proof and its reason when it cannot be run."""

    def cannot(_image: bytes) -> float:
        raise RuntimeError("comparing results on the GPU needs NumPy; pip install numpy")

    monkeypatch.setattr(probes, "device_arch", lambda: "sm_90")
    monkeypatch.setattr(sample, "launch", cannot)
    lines: list[str] = []
    with probes.fake(driver=None):
        assert demo.report(write=lines.append) == 1
    text = "\n".join(lines)
    assert "FAIL PTX without LTO: 2 .text section(s), expected 2" in text
    assert "linked, but not run: comparing results on the GPU needs NumPy" in text
    assert "nvjitlink by policy strict-major" in text
    assert "not linked" not in text


def test_command(toolkit) -> None:
    """The command writes plain text into a pipe, and a wrong architecture is exit code 2 with a list."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest_cudalink.cli", "demo", "--arch=sm_90"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    wrong = subprocess.run(
        [sys.executable, "-m", "pytest_cudalink.cli", "demo", "--arch=sm_1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("cudalink demo: unknown architecture 'sm_1'; known: sm_50")
