"""What uv and pip write while they download, as a short text."""

from __future__ import annotations

import sys

import pytest

from pytest_cudalink import toolchains
from pytest_cudalink.base.progress import Downloads, run_and_tell, talkative
from pytest_cudalink.toolchains import ToolchainError
from pytest_cudalink.versions import CudaVersion

# as uv 0.13 and pip 26 wrote them
UV = """\
Using CPython 3.11.7 interpreter at: /venv/bin/python
Resolved 2 packages in 94ms
Downloading nvidia-nvjitlink (38.8MiB)
Downloading nvidia-cuda-nvrtc (1.1GiB)
 Downloaded nvidia-nvjitlink
 Downloaded nvidia-cuda-nvrtc
Prepared 2 packages in 767ms
Installed 2 packages in 0.77ms
 + nvidia-nvjitlink==13.0.88
"""
PIP = """\
Looking in indexes: https://pypi.org/simple
Collecting nvidia-nvjitlink==13.0.88
  Downloading nvidia_nvjitlink-13.0.88-py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64.whl (40.7 MB)
Progress 0 of 40713933
Progress 20971520 of 40713933
Installing collected packages: nvidia-nvjitlink
Successfully installed nvidia-nvjitlink-13.0.88
"""


def _texts(output: str, wheels: int) -> list[str]:
    """Return every text, once where it stays, and check that each line is news."""
    downloads, texts = Downloads(wheels), []
    for line in output.splitlines():
        assert downloads.heed(line), line
        texts.append(downloads.text)
    return list(dict.fromkeys(texts))


def test_uv() -> None:
    """All that uv downloads at once is named, with its size."""
    assert _texts(UV, 2) == [
        "",
        "nvidia-nvjitlink (38.8 MiB)",
        "nvidia-nvjitlink (38.8 MiB), nvidia-cuda-nvrtc (1126.4 MiB)",
        "nvidia-cuda-nvrtc (1126.4 MiB)",
        "unpacking",
    ]


def test_pip() -> None:
    """One wheel after the other, by bytes, is what pip downloads."""
    assert _texts(PIP, 3) == [
        "",
        "nvidia_nvjitlink (1 of 3)",
        "nvidia_nvjitlink (1 of 3), 0 of 39 MiB",
        "nvidia_nvjitlink (1 of 3), 20 of 39 MiB",
        "unpacking",
    ]


def test_messages_are_kept() -> None:
    """What is not news is the end of the error, from both streams."""
    program = f"import sys; print({PIP!r}); sys.stderr.write('error: no space\\n'); sys.exit(3)"
    told: list[str] = []

    assert run_and_tell([sys.executable, "-c", program], 1, told.append) == (3, "error: no space")
    assert told[-1] == "unpacking"

    with pytest.raises(ToolchainError, match=r"could not be fetched; nothing was changed.*\n  error: no space\n"):
        toolchains.run_installer([sys.executable, "-c", program], CudaVersion(13, 0), 1, told.append)


def test_interrupt_ends_the_installer() -> None:
    """An exception in the caller, as Ctrl-C raises one, kills the installer."""
    program = "print('Downloading x (1.0MiB)', flush=True); import time; time.sleep(600)"

    def interrupt(_text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_and_tell([sys.executable, "-c", program], 1, interrupt)


@pytest.mark.parametrize("version", ["24.0", "24.1"])
def test_older_pip(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """A pip that does not know the word is not asked for bytes."""
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    words = ["pip", "install", "-q", "--disable-pip-version-check", "-r", "file"]

    expected = ["pip", "install", "--disable-pip-version-check", "-r", "file"]
    assert talkative(words) == expected + (["--progress-bar=raw"] if version == "24.1" else [])
    assert talkative(["uv", "pip", "install", "-q", "-r", "file"]) == ["uv", "pip", "install", "-r", "file"]
