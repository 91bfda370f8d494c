"""The commands that are tried, and their words: those of the program that installs packages into the environment."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pytest_cudalink.base.install_command import NO_COMMAND, Command, Installer, install_command
from pytest_cudalink.doctor.system import System
from pytest_cudalink.guardrails import repair as repair_rules
from pytest_cudalink.guardrails.items import ALREADY_LOADED, Item
from pytest_cudalink.guardrails.repair import Trial, trials
from pytest_cudalink.versions import CudaVersion


@pytest.mark.parametrize(
    ("command", "pip", "uv", "conda"),
    [
        (Command(("cuda-toolkit[cudart,nvjitlink]==13.0.*", "nvidia-nvjitlink==13.0.*")),
         "pip install 'cuda-toolkit[cudart,nvjitlink]==13.0.*' 'nvidia-nvjitlink==13.0.*'",
         "uv pip install 'cuda-toolkit[cudart,nvjitlink]==13.0.*' 'nvidia-nvjitlink==13.0.*'",
         "conda install cuda-version=13.0 cuda-cudart-dev libnvjitlink-dev"),
        (Command(("cuda-toolkit[nvrtc]>=12.0,<12.9",), ("a", "b")),
         "pip uninstall -y a b && pip install 'cuda-toolkit[nvrtc]>=12.0,<12.9'",
         "uv pip uninstall a b && uv pip install 'cuda-toolkit[nvrtc]>=12.0,<12.9'",
         "conda install 'cuda-version>=12.0,<12.9' cuda-nvrtc-dev"),
        (Command(("cuda-toolkit[all]",)), "pip install 'cuda-toolkit[all]'", "uv pip install 'cuda-toolkit[all]'",
         "conda install cuda-toolkit"),
        (Command(("cuda-bindings==13.*",)), "pip install 'cuda-bindings==13.*'",
         "uv pip install 'cuda-bindings==13.*'", "conda install cuda-bindings=13"),
        (Command(("cupy<14,>=13",)), "pip install 'cupy<14,>=13'", "uv pip install 'cupy<14,>=13'",
         "conda install 'cupy>=13,<14'"),
        (Command(("x==1.2",), action="reinstall"), "pip install --force-reinstall --no-deps x==1.2",
         "uv pip install --reinstall --no-deps x==1.2", "conda install x==1.2"),
        (Command(("x",), action="upgrade"), "pip install --upgrade x", "uv pip install --upgrade x",
         "conda install x"),
        (Command(("nvidia-nvjitlink",)), "pip install nvidia-nvjitlink", "uv pip install nvidia-nvjitlink", ""),
        (Command((), ("a",)), "pip uninstall -y a", "uv pip uninstall a", ""),
        (Command(), "", "", ""),
    ],
)  # fmt: skip
def test_words(command: Command, pip: str, uv: str, conda: str) -> None:
    """The same command for pip, uv and conda; an environment that is not active is named; a decided one stays."""
    assert (str(command), bool(command)) == (pip, bool(pip))
    assert [str(command.by(Installer(name))) for name in ("pip", "uv", "conda")] == [pip, uv, conda]
    assert command.by(Installer("uv")).by(Installer("pip")) == command.by(Installer("uv"))
    two = Command(("x y",), ("a",), installer=Installer("conda"), remover=Installer("uv"))
    assert str(two) == "uv pip uninstall a && conda install 'x y'"
    assert NO_COMMAND.by(Installer("uv")) == NO_COMMAND
    named = str(command.by(Installer("uv", " --python /x")))
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
    assert system.installer([by_conda]) == Installer("pip")
    (tmp_path / "conda-meta").mkdir()
    assert system.installer([by_wheel, outside]) == Installer("pip")
    assert system.installer([by_wheel, by_conda]) == Installer("pip")  # a look-up finds wheels first
    assert system.installer([by_conda, outside]) == Installer("conda", f" --prefix {tmp_path}")
    monkeypatch.setenv("CONDA_PREFIX", str(tmp_path))
    assert system.installer([]) == Installer("conda")
    assert system.installer([part("the search for programs", tmp_path / "bin" / "nvcc")]) == Installer("conda")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "other"))
    assert system.installer([by_wheel]) == Installer("uv", f" --python {tmp_path}")
    assert install_command("numpy") == f"uv pip install --python {tmp_path} numpy"
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert system.installer([by_wheel]) == Installer("uv")
    assert install_command("x==1", again=True) == "uv pip install --reinstall --no-deps x==1"
    assert [system.is_outside(item) for item in (by_wheel, by_conda, outside)] == [False, False, True]


def wanted(words: str) -> Item:
    """An item by name, release and how it was found: ``"nvrtc 13.0 wheel"``."""
    name, release, via = words.split()
    version = CudaVersion.parse(release) if release != "-" else None
    kind = "binaries" if name in ("ptxas", "nvlink", "nvcc") else "dynamic-libs"
    found_via = {"wheel": "site-packages", "loaded": ALREADY_LOADED}.get(via, via)
    wheel = f"{name}-{version.major}" if via == "wheel" and version else ""
    return Item(kind, name, "/x", found_via, "driver" if via == "driver" else "ctk", version, "", wheel)


def shown(trial: Trial) -> str:
    """A command in short, the items that it leaves alone, and those that it installs, with their release."""
    new = [(item.found_via, item.witness) == ("site-packages", "after the command") for item in trial.items]
    pairs = zip(trial.items, new, strict=True)
    items = [f"{item.name} {item.version}" if is_new else item.name for item, is_new in pairs]
    return f"{str(trial.command).replace('pip install ', '').replace('pip uninstall -y', 'out')} | {' '.join(items)}"


@pytest.mark.parametrize(("items", "driver", "others", "number", "lines"), [
    ("nvrtc 13.2 wheel, nvJitLink 13.5 wheel, cudart 13.0 loaded, cuda 13.0 driver", "13.1", "", 17, [
        "'cuda-toolkit[nvrtc]==13.0.*' | nvJitLink cudart cuda nvrtc 13.0",
        "'cuda-toolkit[nvjitlink,nvrtc]==13.0.*' 'nvidia-nvjitlink==13.0.*' | cudart cuda nvrtc 13.0 nvJitLink 13.0",
        "'cuda-toolkit[nvrtc]==13.5.*' | nvJitLink cudart cuda nvrtc 13.5",
        "'cuda-toolkit[nvjitlink]==13.2.*' 'nvidia-nvjitlink==13.2.*' | nvrtc cudart cuda nvJitLink 13.2",
        "'cuda-toolkit[nvrtc]>=13.0,<13.2' | nvJitLink cudart cuda nvrtc 13.1",
        "out nvJitLink-13 nvrtc-13 && 'cuda-toolkit[nvjitlink,nvrtc]==11.8.*' | cudart cuda nvrtc 11.8 nvJitLink 11.8",
    ]),
    ("nvrtc 13.2 wheel, nvvm 13.5 system-search, cudart 12.9 loaded", None, "", 16, [
        "out nvrtc-13 && 'cuda-toolkit[nvcc,nvrtc]==12.9.*' | cudart nvrtc 12.9 nvvm 12.9",
        "'cuda-toolkit[nvvm]==13.2.*' | nvrtc cudart nvvm 13.2",
        "'cuda-toolkit[nvrtc]==13.5.*' | nvvm cudart nvrtc 13.5",
        "out nvrtc-13 && 'cuda-toolkit[nvcc,nvrtc]==11.8.*' | cudart nvrtc 11.8 nvvm 11.8",
    ]),
    ("nvJitLink - PATH, cudart 12.9 wheel, ptxas 13.0 wheel, nvlink 13.0 PATH, nvcc 12.4 wheel", "12.7", "", 18, [
        "out ptxas-13 && 'cuda-toolkit[cudart,nvjitlink]==12.4.*' | nvlink nvcc nvJitLink 12.4 cudart 12.4",
        ("'cuda-toolkit[cudart,nvcc,nvjitlink]==13.0.*' 'nvidia-nvjitlink==13.0.*' | "
         "ptxas nvlink nvJitLink 13.0 cudart 13.0 nvcc 13.0"),
        ("out ptxas-13 && 'cuda-toolkit[nvjitlink]==12.9.*' 'nvidia-nvjitlink-cu12==12.9.*' | "
         "cudart nvlink nvcc nvJitLink 12.9"),
        "out ptxas-13 && 'cuda-toolkit[cudart,nvjitlink]>=12.0,<12.8' | nvlink nvcc nvJitLink 12.6 cudart 12.6",
        ("out cudart-12 nvcc-12 ptxas-13 && 'cuda-toolkit[cudart,nvjitlink]==11.8.*' | "
         "nvlink nvJitLink 11.8 cudart 11.8"),
    ]),
    ("nvrtc 12.9 wheel, cudart 12.8 wheel", "12.6",
     "numpy>1 nvidia-cuda-runtime-cu12>12.6 nvidia-cuda-nvrtc-cu12!=12.8.61", 16, [
        "'cuda-toolkit[cudart]==12.9.*' 'nvidia-cuda-runtime-cu12>12.6' | nvrtc cudart 12.9",
        "'cuda-toolkit[nvrtc]==12.8.*' 'nvidia-cuda-nvrtc-cu12!=12.8.61' | cudart nvrtc 12.8",
        ("'cuda-toolkit[cudart,nvrtc]>=12.0,<12.7' 'nvidia-cuda-nvrtc-cu12!=12.8.61' "
        "'nvidia-cuda-runtime-cu12>12.6' | nvrtc 12.6 cudart 12.6"),
        "out cudart-12 nvrtc-12 && 'cuda-toolkit[cudart,nvrtc]==11.8.*' | nvrtc 11.8 cudart 11.8",
    ]),
    ("nvrtc 13.0 wheel, nvJitLink 13.0 wheel, cudart 13.2 wheel", "13.2", "nvidia-nvjitlink>=13.4", 16, [
        "'cuda-toolkit[nvjitlink,nvrtc]==13.2.*' 'nvidia-nvjitlink>=13.4' | cudart nvrtc 13.2 nvJitLink 13.5",
        "'cuda-toolkit[cudart]==13.0.*' | nvrtc nvJitLink cudart 13.0",
        "'cuda-toolkit[nvjitlink,nvrtc]>=13.0,<13.3' 'nvidia-nvjitlink>=13.4' | cudart nvrtc 13.2 nvJitLink 13.5",
        ("out cudart-13 nvJitLink-13 nvrtc-13 && 'cuda-toolkit[cudart,nvjitlink,nvrtc]==11.8.*' | "
        "nvrtc 11.8 nvJitLink 11.8 cudart 11.8"),
    ]),
    ("nvrtc 12.8 wheel, nvJitLink 12.5 wheel", "12.6", "nvidia-nvjitlink-cu12>=12.10", 20, [
        "'cuda-toolkit[nvrtc]==12.5.*' | nvJitLink nvrtc 12.5",
        "'cuda-toolkit[nvjitlink]==12.8.*' 'nvidia-nvjitlink-cu12>=12.10' | nvrtc nvJitLink 12.8",
        "'cuda-toolkit[nvrtc]>=12.0,<12.7' 'nvidia-nvjitlink-cu12>=12.10' | nvrtc 12.6 nvJitLink 12.6",
        "out nvJitLink-12 nvrtc-12 && 'cuda-toolkit[nvjitlink,nvrtc]==11.8.*' | nvrtc 11.8 nvJitLink 11.8",
    ]),
    ("nvrtc 12.9 wheel, cudart 12.7 loaded", "10.2", "needed:numpy==2.0 nvidia-cufft<13", 15, [
        "numpy==2.0 | nvrtc cudart",
        "'cuda-toolkit[nvrtc]==13.2.*' numpy==2.0 | cudart nvrtc 13.2",
        "out nvrtc-12 && 'cuda-toolkit[nvrtc]==11.8.*' numpy==2.0 | cudart nvrtc 11.8",
    ]),
    ("nvrtc 12.7 wheel", None, "needed:numpy==2.0", 17, [
        "numpy==2.0 | nvrtc",
        "'cuda-toolkit[nvrtc]==13.2.*' numpy==2.0 | nvrtc 13.2",
        "out nvrtc-12 && 'cuda-toolkit[nvrtc]==11.8.*' numpy==2.0 | nvrtc 11.8",
    ]),
    ("nvrtc 13.0 wheel", "14.0", "absent:nvJitLink", 16, [
        "'cuda-toolkit[nvjitlink]==13.0.*' 'nvidia-nvjitlink==13.0.*' | nvrtc nvJitLink 13.0",
        "'cuda-toolkit[nvjitlink,nvrtc]>=14.0,<14.1' 'nvidia-nvjitlink>=14.0,<14.1' | nvrtc 14.0 nvJitLink 14.0",
        "'cuda-toolkit[nvjitlink,nvrtc]==13.2.*' 'nvidia-nvjitlink==13.2.*' | nvrtc 13.2 nvJitLink 13.2",
        "out nvrtc-13 && 'cuda-toolkit[nvjitlink,nvrtc]==11.8.*' | nvrtc 11.8 nvJitLink 11.8",
    ]),
    ("nvrtc 13.0 wheel", "13.0", "refused:nvrtc-13>0", 16, [
        "'cuda-toolkit[nvrtc]==13.0.*' | nvrtc 13.0",
        "out nvrtc-13 && 'cuda-toolkit[nvrtc]==11.8.*' | nvrtc 11.8",
    ]),
])  # fmt: skip
def test_trials(items: str, driver: str | None, others: str, number: int, lines: list[str], monkeypatch) -> None:
    """Releases that are there, then what the driver runs, then the newest; what others require adds or rules out."""
    there = [wanted(item) for item in items.split(", ")]
    known = [CudaVersion.parse(release) for release in ("11.8", "12.0", "12.6", "12.9", "13.0", "13.1", "13.2")]
    releases = sorted({*known, *(item.version for item in there if item.version)} - {CudaVersion(12, 7)})
    monkeypatch.setattr(repair_rules, "published_releases", lambda: releases)
    asked = [word.rpartition(":") for word in others.split()]
    absent = [wanted(f"{name} - absent") for how, _, name in asked if how == "absent"]
    given = [(how, Requirement(text)) for how, _, text in asked if how != "absent"]
    bounds = {requirement.name: str(requirement.specifier) for _, requirement in given}
    needed = [requirement.name for how, requirement in given if how == "needed"]
    refused = [requirement.name for how, requirement in given if how == "refused"]
    release = CudaVersion.parse(driver) if driver else None
    made = [shown(trial) for trial in trials(there, release, bounds, needed=needed, refused=refused, absent=absent)]
    *first, last = lines
    assert (list(dict.fromkeys(made))[: len(first)], made[-2], len(made)) == (first, last, number)


@pytest.mark.parametrize(("items", "bounds", "absent", "command"), [
    ("nvrtc 12.8 wheel, nvJitLink 12.9 wheel", {"b": "<2", "a": ""}, [], "pip install a 'b<2'"),
    ("nvrtc 12.8 wheel", {"a": "<2,>=2", "b": ""}, [], None),
    ("nvrtc 12.8 wheel", {"nvidia-cuda-nvrtc-cu12": "<12.8"}, [], None),
    ("nvrtc 12.8 wheel", {"a": "<2"}, [wanted("nvJitLink - absent")], None),
    ("nvrtc 12.8 wheel", {}, [], None),
])  # fmt: skip
def test_a_command_that_moves_nothing(items: str, bounds: dict[str, str], absent: list[Item], command: str) -> None:
    """It installs what is needed, if that can be satisfied and is none of the items."""
    there = tuple(replace(wanted(item), wheel="nvidia-cuda-nvrtc-cu12") for item in items.split(", "))
    first = next(trials(there, None, bounds, needed=list(bounds), absent=absent), None)
    assert (str(first.command) if first and first.items == there else None) == command
