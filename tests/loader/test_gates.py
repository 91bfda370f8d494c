"""What the watchdog of closed gates reads: native frames of a thread, and how long it got no processor.

`tests/emulator/test_no_wait.py` closes gates on an emulated driver.
"""

from collections.abc import Sequence

import pytest

from pytest_cudalink.loader import gates
from pytest_cudalink.loader.gates import call_of, run_delay

DRIVER = ("libcuda.so.1+0x1", "libcuda.so.1+0x2 cuMemFree_v2")
INNER = ("libc.so.6+0x1 read", "linux-vdso.so.1+0x2")


@pytest.mark.parametrize(
    ("frames", "call"),
    [
        ((), None),
        (("python+0x1 main",), None),
        (DRIVER, "cuMemFree_v2"),
        ((*INNER, *DRIVER, "libtorch.so+0x9 f"), "cuMemFree_v2"),
        (("libcuda.so.1+0x1 cuInner", "libcuda.so.1+0x2 cuOuter", "libcuda.so.1+0x3"), "cuOuter"),
        (("libcuda.so.1+0x1",), ""),
        (("libnvidia-ptxjitcompiler.so.1+0x1", *DRIVER), None),
        (("libcuda.so.1+0x1 cuEventQuery",), None),
        (("libcuda.so.1+0x1 cuStreamQuery_ptsz",), None),
        (("libcuda.so.1+0x1 cuStreamSynchronize",), "cuStreamSynchronize"),
    ],
)
def test_the_call_that_frames_show(frames: Sequence[str], call: str | None) -> None:
    """It is the outermost of the driver that has a name; what asks, or has called a compiler, does not wait."""
    assert call_of(frames) == call


def test_run_delay(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's second number is nanoseconds; what cannot be read is no delay."""
    monkeypatch.setattr(gates, "Path", lambda path: tmp_path / path.strip("/").replace("/", "-"))
    for thread, text in {1: "5 2500000000 7", 2: "5", 3: "x y z"}.items():
        (tmp_path / f"proc-self-task-{thread}-schedstat").write_text(text, encoding="ascii")
    assert [run_delay(thread) for thread in (1, 2, 3, 4)] == [2.5, 0.0, 0.0, 0.0]
