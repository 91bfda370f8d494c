"""The demo without a GPU."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from pytest_cudalink import cli, probes
from pytest_cudalink.base.install_command import install_command
from pytest_cudalink.cli import demo
from pytest_cudalink.linker import sample

Report = Callable[..., list[str]]


@pytest.fixture
def report(monkeypatch) -> Report:
    """The lines of a report in this process, whose exit code is checked: of a machine with a device or without one."""

    def run(code: int, device: str | None = None, **options: object) -> list[str]:
        monkeypatch.setattr(probes, "device_arch", lambda: device)
        lines: list[str] = []
        with probes.fake(driver=None):
            assert demo.report(write=lines.append, **options) == code
        return lines

    return run


def shown(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines)


def test_demo_proves_from_the_images(report: Report, toolkit) -> None:
    """Both ways are proved, and the reason for the backend is shown."""
    lines = report(0, "sm_80", arch="sm_90")  # linked for the architecture that is asked for
    assert f"nvJitLink: {toolkit}" in lines[0]
    text = shown(lines)
    assert "ok   PTX without LTO: 2 .text section(s), expected 2; undefined symbols: none" in text
    assert "ok   LTO-IR with LTO: 1 .text section(s), expected 1" in text
    assert "nvjitlink by policy strict-major" in text
    assert "no kernel was launched" in text


def test_demo_fails(report: Report, monkeypatch) -> None:
    """An image without the expected inlining, an error, and a kernel that the older driver takes are exit code 1."""
    with probes.fake(nvjitlink=None):
        assert any("FAIL" in line and "nvJitLink is not available" in line for line in report(1))
    kernel = sample.compile_kernel()
    with monkeypatch.context() as patch:
        patch.setattr(sample, "SKEW_TEST", sample.SKEW_TEST.replace("assert not error", "assert True"))
        start = "   FAIL CUDA_ERROR_UNSUPPORTED_PTX_VERSION was expected; pytest ended"
        assert any(line.startswith(start) for line in report(1, kernel=kernel))
    monkeypatch.setattr(sample, "USER_SOURCE", sample.USER_SOURCE + 'extern "C" __global__ void other() {}')
    assert any(line.startswith("   FAIL LTO-IR with LTO: 2 .text") for line in report(1))


def test_demo_tells_a_failed_launch_from_a_failed_link(report: Report, monkeypatch) -> None:
    """What was linked keeps its proof and its reason when it cannot be run."""
    missing = "comparing results on the GPU needs NumPy; pip install numpy"
    monkeypatch.setattr(sample, "launch", Mock(side_effect=RuntimeError(missing)))
    text = shown(report(1, "sm_90"))
    assert "FAIL PTX without LTO: 2 .text section(s), expected 2" in text
    assert "linked, but not run: comparing results on the GPU needs NumPy" in text
    assert "nvjitlink by policy strict-major" in text
    assert "not linked" not in text
    for code, deviation in enumerate((1.0, 1.5)):
        monkeypatch.setattr(sample, "launch", Mock(return_value=deviation))
        assert f"65536 values on the GPU, largest deviation {deviation:.3f} of" in shown(report(code, "sm_90"))


def command(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a process."""
    words = [sys.executable, "-m", "pytest_cudalink.cli", "demo", *options]
    return subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_command(toolkit) -> None:
    """The command writes plain text into a pipe, and a wrong architecture is exit code 2 with a list."""
    done = command("--arch=sm_90")
    assert done.returncode == 0, done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    wrong = command("--arch=sm_1")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("cudalink demo: unknown architecture 'sm_1'; known: sm_50")


def test_demo_shows_a_failure_on_an_older_driver(toolkit, tmp_path) -> None:
    """The test fails with the driver's error and passes on the toolkit's own driver; nothing is fetched; 80 columns."""
    done = command(CUDALINK_CACHE=str(tmp_path / "cache"), PYTEST_ADDOPTS="--no-such-option", CI="true")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    older = "12.9" if toolkit.major == 13 else "12.0"
    page = rf"""
1\. Two units of CUDA C\+\+, compiled apart by NVRTC and linked
   ok   PTX without LTO: 2 [\s\S]*

2\. The kernel for a user whose driver is older: CUDA {older} \([\d.]+\)

   \$ pytest --cudalink-driver={older} -q test_kernel\.py
   F {{69}}\[100%\]
   {" FAILURES ":=^77}
   {" test_kernel_loads ":_^77}

       def test_kernel_loads\(\):
           source = b"""
    assert re.search(page, done.stdout)
    assert "E       AssertionError: CUDA_ERROR_UNSUPPORTED_PTX_VERSION" in done.stdout
    assert f"$ pytest --cudalink-driver={toolkit} -q test_kernel.py\n   1 passed in " in done.stdout
    for words in (
        "   error  CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)",
        "   why    ",
        f"pytest --cudalink-driver={older}\n",
    ):
        assert words in done.stdout
    install = install_command(f"cuda-toolkit[nvrtc]=={older}.*")
    assert f" compile with CUDA {older}: {install}" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) == 80
    assert not (tmp_path / "cache").exists()


def test_demo_without_nvrtc(capsys, monkeypatch) -> None:
    """The bare installation says in one line what is missing, and what to install; exit code 2."""
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    assert cli.main(["demo"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    command = install_command("pytest-cudalink[cu13]")
    assert captured.err == (
        "cudalink demo: compiling needs cuda.bindings and NVRTC; cuda.bindings cannot be imported (import of "
        f"cuda.bindings halted; None in sys.modules); {command} (or [cu12])\n"
    )
