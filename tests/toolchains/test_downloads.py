"""What uv and pip write while they download."""

import sys

import pytest

from pytest_cudalink import toolchains
from pytest_cudalink.base.progress import run_and_tell
from pytest_cudalink.toolchains import ToolchainError
from pytest_cudalink.versions import CudaVersion


def test_each_line_is_told() -> None:
    """The installer is not quiet; its last lines are the end of the error, from both streams."""
    program = (
        "import sys; print('  Downloading x (1.0MiB)', *sys.argv[1:], flush=True); print(); sys.exit('  x no space')"
    )
    told: list[str] = []
    command = [sys.executable, "-c", program, "-q", "y"]
    code, said = run_and_tell(command, told.append)
    assert (code, sorted(said.splitlines())) == (1, ["  Downloading x (1.0MiB) y", "  x no space"])
    assert sorted(told) == ["Downloading x (1.0MiB) y", "x no space"]
    with pytest.raises(ToolchainError, match=r"(?s)could not be fetched; nothing was changed.*\n    x no space\n"):
        toolchains.run_installer(command, CudaVersion(13, 0), told.append)


def test_interrupt_ends_the_installer() -> None:
    """An exception in the caller, as Ctrl-C raises one, kills the installer."""
    program = "print('Downloading x (1.0MiB)', flush=True); import time; time.sleep(600)"

    def interrupt(_text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_and_tell([sys.executable, "-c", program], interrupt)
