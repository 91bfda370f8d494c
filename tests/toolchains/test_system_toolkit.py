"""A toolkit of the system in an odd place: laid out as the installers do it, with libraries that the loader takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from pytest_cudalink import toolchains
from pytest_cudalink.toolchains import ToolchainError, system_toolkit

LOAD = """
import ctypes
library, number = ctypes.CDLL("libcudart.so.12"), ctypes.c_int()
library.cudaRuntimeGetVersion(ctypes.byref(number))
print(number.value)
"""


@pytest.mark.parametrize("layout", ["lib64", "targets", "conda"])
def test_layout(layout, tmp_path, toolkit) -> None:
    """Each layout has libraries under SONAME and link name, headers, and what says its version."""
    found = system_toolkit.make(tmp_path / "odd place" / "cuda", layout=layout, libraries=["cudart"])

    assert found.version == toolkit
    soname = f"libcudart.so.{toolkit.major}"
    assert found.library("cudart").name == soname
    assert (found.lib / "libcudart.so").resolve() == found.library("cudart").resolve()
    assert not found.library("cudart").is_symlink()
    assert (found.include / "cuda.h").is_file()
    if layout == "conda":
        (record,) = (found.root / "conda-meta").glob("cuda-cudart-*.json")
        assert json.loads(record.read_text())["files"] == [f"lib/{soname}"]
        assert found.environment["CONDA_PREFIX"] == str(found.root)
    else:
        assert json.loads((found.root / "version.json").read_text())["cuda"]["version"].startswith(f"{toolkit}.")
        assert found.environment["CUDA_PATH"] == str(found.root)
    assert (found.root / "targets").is_dir() == (layout != "lib64")
    assert not list(found.lib.glob("libnvrtc*"))


def test_a_process_finds_it_by_the_environment(tmp_path) -> None:
    """A release of the cache, by ``LD_LIBRARY_PATH``; what was there before comes after it."""
    toolchains.add("12.9")
    found = system_toolkit.make(tmp_path / "cuda", "12.9", layout="targets", libraries=["cudart"])
    command = [sys.executable, "-c", LOAD]

    done = subprocess.run(command, env={**os.environ, **found.environment}, capture_output=True, text=True, check=True)

    assert done.stdout == "12090\n"


def test_wrong_arguments(tmp_path, toolkit) -> None:
    """Layouts, releases and libraries that do not exist, and a folder that does."""
    with pytest.raises(ValueError, match=r"the layout of the toolkit is 'flat'; expected one of lib64, targets, conda"):
        system_toolkit.make(tmp_path / "a", layout="flat")
    with pytest.raises(ToolchainError, match=r"12\.7"):
        system_toolkit.make(tmp_path / "a", "12.7")
    found = system_toolkit.make(tmp_path / "a", libraries=["cudart"])
    with pytest.raises(ToolchainError, match=r"has no library 'nvrtc'; it has: cudart$"):
        found.library("nvrtc")
    with pytest.raises(ToolchainError, match=r"do not include 'libcudrt'; did you mean 'cudart'\?$"):
        system_toolkit.make(tmp_path / "b", libraries=["nvrtc", "libcudrt"])
    with pytest.raises(ToolchainError, match=r"do not include 'xyz'; there are: .*cudart"):
        system_toolkit.make(tmp_path / "b", libraries=["xyz"])
    assert not (tmp_path / "b").exists()
    with pytest.raises(FileExistsError, match=r"a exists already; make each toolkit in its own folder"):
        system_toolkit.make(tmp_path / "a", libraries=["cudart"])
