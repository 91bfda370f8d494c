"""What is found of the toolkit where no wheel has it."""

from __future__ import annotations

import json
import os

import pytest

from pytest_cudalink.environment import facts
from pytest_cudalink.environment.facts import Environment
from pytest_cudalink.environment.requirements import EnvironmentFact

MANIFEST = {"cuda": {"version": "13.0.3"}, "cuda_nvrtc": {"version": "13.0.88"}}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A machine without wheels, on which ``$CUDA_HOME`` names a folder."""
    absent = EnvironmentFact(None, "absent", "no wheel is installed")
    monkeypatch.setattr(facts, "_installed", lambda *_: absent)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("variable", ["CUDA_PATH", "CUDA_HOME"])
def test_a_local_toolkit(folder, monkeypatch, variable) -> None:
    """Its manifest has the releases of the toolkit and of NVRTC; what was read is named."""
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.setenv(variable, str(folder))
    (folder / "version.json").write_text(json.dumps(MANIFEST))
    source = f"{folder / 'version.json'} (from {variable})"
    assert Environment()["ctk"] == EnvironmentFact("13.0.3", source=source)
    assert Environment()["nvrtc"] == EnvironmentFact("13.0.88", source=source)


def test_two_local_toolkits(folder, monkeypatch, tmp_path_factory) -> None:
    """``$CUDA_PATH`` counts before ``$CUDA_HOME``, as in cuda.pathfinder (``_utils/env_vars.py``)."""
    (folder / "version.json").write_text(json.dumps(MANIFEST))
    first = tmp_path_factory.mktemp("first")
    (first / "version.json").write_text(json.dumps(MANIFEST).replace("13.0.3", "12.9.1"))
    monkeypatch.setenv("CUDA_PATH", str(first))
    assert Environment()["ctk"].value == "12.9.1"


def test_wheels_count_before_a_local_toolkit(folder, monkeypatch) -> None:
    """The packages import what is in the wheels."""
    (folder / "version.json").write_text(json.dumps(MANIFEST))
    monkeypatch.setattr(facts, "_installed", lambda *_: EnvironmentFact("12.9"))
    assert [Environment()[name].value for name in ("ctk", "nvrtc")] == ["12.9", "12.9"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"cuda": 1}', '{"cuda": {"version": "13.0\\u001b[31m"}}', "\x00", "[" * 100_000]
)
def test_a_damaged_manifest(folder, text) -> None:
    """It names no toolkit, whatever is wrong with it."""
    (folder / "version.json").write_text(text)
    assert [Environment()[name].kind for name in ("ctk", "nvrtc")] == ["absent", "absent"]


def test_a_manifest_that_is_a_pipe(folder) -> None:
    """It names no toolkit, and nothing waits for a writer."""
    os.mkfifo(folder / "version.json")
    assert Environment()["ctk"].kind == "absent"
