"""Results on a GPU: needs a real device, because an emulated driver does not execute kernels."""

import pytest

from pytest_cudalink.cli import demo
from pytest_cudalink.linker import sample

pytestmark = pytest.mark.usefixtures("real_gpu")


@pytest.mark.parametrize(
    ("mode", "backend"), [("ptx", "driver"), ("ptx", "nvjitlink"), ("cubin", "driver"), ("ltoir", "nvjitlink")]
)
def test_sample_computes(mode: str, backend: str, device) -> None:
    """Both modes and both backends give NumPy's values for 65,536 floats."""
    image, why = sample.link_sample(mode, device, backend)
    assert sample.launch(image.code) <= 1.0, why


def test_comparison_can_fail(device, monkeypatch) -> None:
    """A kernel that computes something else is found."""
    monkeypatch.setattr(sample, "USER_SOURCE", sample.USER_SOURCE.replace("3.0f", "3.001f"))
    image, _ = sample.link_sample("ptx", device)
    assert sample.launch(image.code) > 1.0


def test_demo(capsys) -> None:
    """The demo reports both ways, with results, and exits with 0."""
    lines: list[str] = []
    assert demo.report(write=lines.append) == 0
    assert sum("65536 values on the GPU" in line for line in lines) == 2
