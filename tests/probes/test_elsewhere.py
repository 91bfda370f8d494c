"""The driver as another process finds it: what it answers, and that this process loads nothing."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pytest_cudalink.emulator import emulation_for
from pytest_cudalink.environment import loader_search
from pytest_cudalink.loader.loads import mapped_files
from pytest_cudalink.probes import elsewhere, libcuda
from pytest_cudalink.probes.elsewhere import ForeignAnswer
from tests.compiled import compile_c

ANSWERS = r"""
static int initialized;
int cuDriverGetVersion(int *version) { *version = 12040; return 0; }
int cuInit(unsigned flags) { initialized = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number + 7; return initialized ? 0 : 3; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = attribute == 75 ? 9 : 0;
  return device == 7 ? 0 : 101;
}
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Nothing was asked before, nor afterwards; no emulated driver of this run is found."""
    monkeypatch.setattr(elsewhere, "loaded_file", lambda _name: None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    elsewhere.cache_clear()
    yield
    elsewhere.cache_clear()


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Put a driver with this source where processes that start now find it; returns its file."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    return lambda source: compile_c(tmp_path / "libcuda.so.1", source)


def test_a_driver_answers_another_process(driver, monkeypatch) -> None:
    """Version and device, each asked for once, also when this process has loaded the same file; it loads nothing."""
    file = driver(ANSWERS)
    asked = []
    run = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *words, **more: asked.append(words) or run(*words, **more))
    assert elsewhere.driver() == elsewhere.driver() == ForeignAnswer(exists=True, version=(12, 4))
    whole = elsewhere.driver(device=True)
    assert whole == ForeignAnswer(exists=True, version=(12, 4), arch="sm_90")
    monkeypatch.setattr(elsewhere, "loaded_file", lambda _name: str(file))
    assert elsewhere.driver(device=True) == whole
    assert len(asked) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert elsewhere.driver(device=True) == elsewhere.driver() == whole
    assert len(asked) == 3
    assert str(file) not in mapped_files()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("int cuInit(unsigned flags) { return 100; }\n", ForeignAnswer(exists=True)),
        (
            ANSWERS.replace("return 0; }\nint cuInit", "return 35; }\nint cuInit"),
            ForeignAnswer(exists=True, arch="sm_90"),
        ),
        (ANSWERS.replace("device == 7", "attribute == 75"), ForeignAnswer(exists=True, version=(12, 4))),
        ("int cudalinkAbsentDriver;\n", ForeignAnswer(exists=False, problem="--cudalink-driver=absent hides it")),
        (
            ANSWERS.replace("initialized = 1", "__builtin_trap()"),
            ForeignAnswer(exists=True, problem="another process that asked it died"),
        ),
    ],
    ids=["no device", "no version", "half a device", "hidden", "dies"],
)
def test_what_a_driver_does_not_answer(driver, source: str, expected: ForeignAnswer) -> None:
    """It stays unknown; a driver that dies ends the other process alone, and still says its version."""
    driver(source)
    assert elsewhere.driver(device=True) == expected
    assert (elsewhere.driver().version == (12, 4)) == ("12040; return 0" in source)


def test_no_driver(tmp_path, monkeypatch) -> None:
    """The words of the loader, for a file that is damaged or missing; where none can be, no process is started."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    file = tmp_path / "libcuda.so.1"
    file.write_bytes(b"no library")
    driver = elsewhere.driver()
    assert (driver.exists, driver.version) == (False, None)
    assert "libcuda.so.1" in driver.problem
    with monkeypatch.context() as patch:
        patch.setattr(libcuda, "LIBRARY_NAME", str(file))
        patch.setattr(loader_search, "may_find", lambda _name: False)
        elsewhere.cache_clear()
        assert elsewhere.driver() == ForeignAnswer(exists=False, problem=f"{file}: file too short")
    file.unlink()
    elsewhere.cache_clear()
    monkeypatch.setattr(loader_search, "may_find", lambda _name: True)
    assert "libcuda.so.1: cannot open shared object file" in elsewhere.driver().problem


def test_a_driver_that_does_not_answer(driver, monkeypatch) -> None:
    """It counts as one whose facts are unknown."""
    driver("#include <unistd.h>\nint cuDriverGetVersion(int *version) { sleep(60); return 0; }\n")
    monkeypatch.setattr(elsewhere, "_DEADLINE", 0.01)
    assert elsewhere.driver() == ForeignAnswer(exists=True, problem="it has not answered another process for 0.01 s")


def test_where_an_nvjitlink_may_be(tmp_path, monkeypatch) -> None:
    """Another process looks for one where wheels, a variable or the loader may have it, and is else not started."""
    started = []
    monkeypatch.setattr(elsewhere, "_run", lambda *_: started.append(1) or ("13.0", "file", ""))
    monkeypatch.setattr(loader_search, "_FOLDERS", ())
    monkeypatch.setattr(loader_search, "_CACHE", tmp_path / "cache")
    (tmp_path / "cache").write_bytes(b"libc.so.6")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(elsewhere, "site", SimpleNamespace(getsitepackages=list, getusersitepackages=str))
    for name in [name for name in os.environ if name.startswith(("CONDA_", "CUDA_", "LD_LIBRARY"))]:
        monkeypatch.delenv(name)

    def is_looked_for() -> bool:
        elsewhere.cache_clear()
        started.clear()
        return elsewhere.nvjitlink() == ("13.0", "file", "") and bool(started)

    assert not is_looked_for()
    assert elsewhere.nvjitlink() == ("", "", "no libnvJitLink was found by cuda.pathfinder")
    for name in ("CONDA_PREFIX", "CUDA_HOME"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "/opt")
            assert is_looked_for()
    (tmp_path / "cache").write_bytes(b"libcudart.so.13")
    assert is_looked_for()
    (tmp_path / "cache").write_bytes(b"libc.so.6")
    (tmp_path / "nvidia").mkdir()
    assert is_looked_for()


def test_an_emulated_driver_is_asked_without_the_run(tmp_path, monkeypatch) -> None:
    """Another process neither adds to its events nor meets its faults."""
    events = tmp_path / "events"
    emulation = emulation_for("12.9", events=events, faults="cuInit:1=100")
    for name, value in emulation.environment().items():
        monkeypatch.setenv(name, value)
    assert elsewhere.driver(device=True) == ForeignAnswer(exists=True, version=(12, 9), arch="sm_90")
    assert events.read_text() == ""
