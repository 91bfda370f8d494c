"""The demo without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

from pytest_cudalink import cli, probes
from pytest_cudalink.cli import demo
from pytest_cudalink.installers import install_command
from pytest_cudalink.linker import sample


def test_demo_proves_from_the_images(monkeypatch, toolkit) -> None:
    """Both ways are proved, and the reason for the backend is shown."""
    monkeypatch.setattr(probes, "device_arch", lambda: None)
    lines: list[str] = []
    with probes.fake(driver=None):
        assert demo.report(write=lines.append) == 0
    text = " ".join(line.strip() for line in lines)
    assert f"nvJitLink: {toolkit}" in lines[0]
    assert "ok   PTX without LTO: 2 .text section(s), expected 2" in text
    assert "ok   LTO-IR with LTO: 1 .text section(s), expected 1" in text
    assert "nvjitlink by policy strict-major" in text
    assert "no kernel was launched" in text


def test_demo_fails_on_a_mismatch(monkeypatch) -> None:
    """An image without the expected inlining is exit code 1."""
    monkeypatch.setattr(probes, "device_arch", lambda: None)
    monkeypatch.setattr(sample, "USER_SOURCE", sample.USER_SOURCE + 'extern "C" __global__ void other() {}')
    lines: list[str] = []
    assert demo.report(write=lines.append) == 1
    assert any(line.startswith("   FAIL LTO-IR with LTO: 2 .text") for line in lines)


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
    text = " ".join(line.strip() for line in lines)
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


def test_demo_shows_a_failure_on_an_older_driver(toolkit, tmp_path) -> None:
    """The test fails with the driver's error and passes on the toolkit's own driver; nothing is fetched; 80 columns."""
    environment = {
        **os.environ,
        "CUDALINK_CACHE": str(tmp_path / "cache"),
        "PYTEST_ADDOPTS": "--no-such-option",
        "CI": "true",
    }
    done = subprocess.run(
        [sys.executable, "-m", "pytest_cudalink.cli", "demo"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    older = "12.9" if toolkit.major == 13 else "12.0"
    assert f"$ pytest --cudalink-driver={older} -q test_kernel.py" in done.stdout
    assert "E       AssertionError: CUDA_ERROR_UNSUPPORTED_PTX_VERSION" in done.stdout
    assert f"$ pytest --cudalink-driver={toolkit} -q test_kernel.py\n   1 passed in " in done.stdout
    for words in ("   error  CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)", "   why    ", "--force-backend=driver"):
        assert words in done.stdout
    command = install_command(f"'cuda-toolkit[nvrtc]=={older}.*'")
    assert f" compile with CUDA {older}: {command}" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert not (tmp_path / "cache").exists()


def test_demo_fails_if_the_older_driver_takes_the_kernel(monkeypatch) -> None:
    """The failure is the expected one, or the demo fails."""
    monkeypatch.setattr(probes, "device_arch", lambda: None)
    kernel = sample.compile_kernel()
    monkeypatch.setattr(sample, "SKEW_TEST", sample.SKEW_TEST.replace("assert not error", "assert True"))
    lines: list[str] = []
    with probes.fake(driver=None):
        assert demo.report(write=lines.append, kernel=kernel) == 1
    assert any(
        line.startswith("   FAIL CUDA_ERROR_UNSUPPORTED_PTX_VERSION was expected; pytest ended") for line in lines
    )


def test_demo_without_nvrtc(capsys, monkeypatch) -> None:
    """The bare installation says in one line what is missing, and what to install; exit code 2."""
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    assert cli.main(["demo"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    command = install_command("'pytest-cudalink[cu13]'")
    assert captured.err == (
        "cudalink demo: compiling needs cuda.bindings and NVRTC; cuda.bindings cannot be imported (import of "
        f"cuda.bindings halted; None in sys.modules); {command} (or [cu12])\n"
    )
