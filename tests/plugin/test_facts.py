"""What is found of the toolkit where no wheel has it, and of nvJitLink where one has."""

import json
import os
import subprocess
import sys

import pytest

from pytest_cudalink import probes
from pytest_cudalink.environment.requirements import EnvironmentFact
from pytest_cudalink.plugin.records import facts
from pytest_cudalink.plugin.records.facts import Environment

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


_ASKED = """
import os, sys
from pytest_cudalink import probes
from pytest_cudalink.plugin.records.facts import Environment
from pytest_cudalink.loader.loads import loaded_file
{first}
found = Environment()["nvjitlink"]
print(found.value, "metadata" in found.source, bool(loaded_file("libnvJitLink.so")), "cuda.pathfinder" in sys.modules)
"""


@pytest.mark.parametrize(
    ("first", "by_metadata", "loaded"),
    [
        pytest.param("", True, False, id="a wheel"),
        pytest.param("probes.nvjitlink()", False, True, id="a loaded library"),
        pytest.param("probes.installed_wheel = lambda *_: None", False, False, id="without a wheel"),
        pytest.param(
            "probes.installed_wheel = lambda *_: None; probes.elsewhere.nvjitlink = lambda: None",
            False,
            True,
            id="a process that could not say",
        ),
        pytest.param(
            "probes.installed_wheel = lambda *_: None; probes.elsewhere.nvjitlink = lambda: ('', '', 'too old')",
            False,
            False,
            id="an old one",
        ),
    ],
)
def test_nvjitlink_is_loaded_elsewhere(toolkit, first, by_metadata, loaded) -> None:
    """The tests of a run find the process as it was, and a record still has the release."""
    command = [sys.executable, "-c", _ASKED.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    version = None if "too old" in first else toolkit
    assert done.stdout.split() == [str(version), str(by_metadata), str(loaded), str(loaded)]


def test_a_hidden_nvjitlink_is_not_found_in_its_wheel(monkeypatch) -> None:
    monkeypatch.setattr(probes, "hiders", ["a run"])
    assert probes.unloaded_nvjitlink() is None
    monkeypatch.setattr(probes, "hiders", [])
    monkeypatch.setattr(probes, "_file_of_wheel", lambda: "/nowhere/libnvJitLink.so.13")
    assert probes.unloaded_nvjitlink() is None
