"""The words of a command: those of the program that installs packages into the environment."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from pytest_cudalink.guardrails.items import Item
from pytest_cudalink.guardrails.remedy import worded
from pytest_cudalink.guardrails.system import System
from pytest_cudalink.installers import Installer, install_command


@pytest.mark.parametrize(
    ("command", "uv", "conda"),
    [
        (
            "pip install 'cuda-toolkit[cudart,nvjitlink]==13.0.*' 'nvidia-nvjitlink==13.0.*'",
            "uv pip install 'cuda-toolkit[cudart,nvjitlink]==13.0.*' 'nvidia-nvjitlink==13.0.*'",
            "conda install cuda-version=13.0 cuda-cudart-dev libnvjitlink-dev",
        ),
        (
            "pip uninstall -y a b && pip install 'cuda-toolkit[nvrtc]>=12.0,<12.9'",
            "uv pip uninstall a b && uv pip install 'cuda-toolkit[nvrtc]>=12.0,<12.9'",
            "conda install 'cuda-version>=12.0,<12.9' cuda-nvrtc-dev",
        ),
        ("pip install 'cuda-toolkit[all]'", "uv pip install 'cuda-toolkit[all]'", "conda install cuda-toolkit"),
        ("pip install 'cuda-bindings==13.*'", "uv pip install 'cuda-bindings==13.*'", "conda install cuda-bindings=13"),
        (
            "pip install --force-reinstall --no-deps x==1.2",
            "uv pip install --reinstall --no-deps x==1.2",
            "conda install x==1.2",
        ),
        ("install a driver", "install a driver", "install a driver"),
        ("", "", ""),
    ],
)
def test_words(command: str, uv: str, conda: str) -> None:
    """The same command for pip, uv and conda; an environment that is not active is named; advice stays as it is."""
    assert worded(command, Installer()) == command
    assert worded(command, Installer("uv")) == uv
    assert worded(command, Installer("conda")) == conda
    named = worded(command, Installer("uv", " --python /x"))
    assert named == uv.replace("uv pip install", "uv pip install --python /x").replace(
        "uv pip uninstall", "uv pip uninstall --python /x"
    )


def part(via: str, path: Path, wheel: str = "") -> Item:
    """A part of the toolkit at a path."""
    return Item("dynamic-libs", "nvrtc", str(path), via, "ctk", None, "", wheel)


def test_what_made_the_environment(tmp_path, monkeypatch) -> None:
    """Conda's parts are for conda, wheels are for pip if it is there, else for uv; an inactive prefix is named."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    by_wheel, by_conda = part("site-packages", tmp_path / "a", "w"), part("conda", tmp_path / "lib" / "b")
    outside = part("system-search", Path("/usr/local/cuda/lib64/c"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    system = System()
    assert system.installer([by_wheel, outside, by_conda]) == Installer("pip")
    assert install_command("x==1", again=True) == "pip install --force-reinstall --no-deps x==1"
    (tmp_path / "conda-meta").mkdir()
    assert system.installer([by_wheel, outside]) == Installer("pip")
    assert system.installer([by_wheel, by_conda]) == Installer("pip")  # a look-up finds wheels first
    assert system.installer([by_conda, outside]) == Installer("conda", f" --prefix {tmp_path}")
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path))
    assert system.installer([part("the search for programs", tmp_path / "bin" / "nvcc")]) == Installer("conda")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "other"))
    assert system.installer([by_wheel]) == Installer("uv", f" --python {tmp_path}")
    assert install_command("numpy") == f"uv pip install --python {tmp_path} numpy"
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert system.installer([by_wheel]) == Installer("uv")
    assert install_command("x==1", again=True) == "uv pip install --reinstall --no-deps x==1"
    assert [system.is_outside(one) for one in (by_wheel, by_conda, outside)] == [False, False, True]


def test_a_conda_environment_without_a_toolkit(tmp_path, monkeypatch) -> None:
    """What is missing comes from conda, too."""
    (tmp_path / "conda-meta").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path))
    assert System().installer([]) == Installer("conda")
