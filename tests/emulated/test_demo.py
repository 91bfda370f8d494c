"""The demo on a driver that links but runs no kernels."""

from __future__ import annotations


def test_demo(on_driver) -> None:
    """What the emulated driver links is proved from the image, as without a GPU."""
    done = on_driver("13.0", "-m", "pytest_cudalink.cli", "demo", "--backend=driver")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "driver: CUDA 13.0 (emulated)" in " ".join(done.stdout.split())
    assert "ok PTX without LTO: 2 .text section(s), expected 2" in " ".join(done.stdout.split())
    assert "ok LTO-IR with LTO: 1 .text section(s), expected 1" in " ".join(done.stdout.split())
    assert "the driver is emulated and runs no kernels: the images are the proof" in " ".join(done.stdout.split())
