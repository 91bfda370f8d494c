"""Probes: faked per context, cached, lazy, and clear about what is missing."""

import asyncio
import ctypes
import errno
import os
import re
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from unittest.mock import Mock

import pytest

from pytest_cudalink import probes
from pytest_cudalink.base.install_command import install_command
from pytest_cudalink.probes import libcuda
from pytest_cudalink.versions import CudaVersion


@pytest.fixture
def fresh_probes(monkeypatch):
    """Probes that have not been asked yet, before and after."""
    probes.cache_clear()
    yield
    monkeypatch.undo()
    probes.cache_clear()


def versions_here() -> tuple[CudaVersion | None, CudaVersion | None]:
    return probes.driver_version(), probes.nvjitlink_version()


def test_fake_answers_and_ends() -> None:
    """Inside the block the fakes answer, outside they do not; an inner fake keeps what it does not name."""
    with probes.fake(driver="12.9", nvjitlink=(13, 0)):
        assert versions_here() == ((12, 9), (13, 0))
        assert probes.fakes().fakes_driver
        with probes.fake(nvjitlink=None):
            assert versions_here() == ((12, 9), None)
    assert not probes.fakes().fakes_driver


@pytest.mark.parametrize("version", ["12.0", "12.2", None])
def test_old_fake_is_unusable(version: str | None, fresh_probes) -> None:
    """NvJitLink before 12.3 counts as none, faked or not; a fake says nothing about the machine, and does not warn."""
    with probes.fake(nvjitlink=version), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert probes.nvjitlink_version() is None


@pytest.mark.parametrize("value", [13, 13.0, "thirteen", (13,), (13, "0"), (True, 0), [13, 0]])
def test_impossible_fakes(value: object) -> None:
    """What is no version is refused, and nothing is faked then."""
    with pytest.raises((TypeError, ValueError), match="version"), probes.fake(driver=value):  # type: ignore[arg-type]
        pytest.fail("not reached")
    assert not probes.fakes().fakes_driver


def test_threads_do_not_share_fakes() -> None:
    """Each thread fakes for itself."""
    barrier = threading.Barrier(4)

    def work(minor: int) -> CudaVersion | None:
        with probes.fake(driver=(12, minor), nvjitlink=None):
            barrier.wait()
            answer = probes.driver_version()
            barrier.wait()
            return answer

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [(12, minor) for minor in range(4)]


def test_tasks_do_not_share_fakes() -> None:
    """Each task fakes for itself, and inherits what its creator faked."""

    async def work(minor: int) -> tuple[CudaVersion | None, CudaVersion | None]:
        with probes.fake(driver=(12, minor)):
            await asyncio.sleep(0.001)
            return versions_here()

    async def main():
        with probes.fake(nvjitlink="13.2"):
            return await asyncio.gather(*(work(minor) for minor in range(4)))

    assert asyncio.run(main()) == [((12, minor), (13, 2)) for minor in range(4)]


@pytest.mark.parametrize(("code", "version"), [(0, (13, 0)), (34, None)])
def test_driver_version_is_cached(monkeypatch, fresh_probes, code: int, version: tuple[int, int] | None) -> None:
    """The driver is asked once; its own error, which no driver here gives, is an unknown version."""

    def answer(pointer) -> int:
        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int))[0] = 13000
        return code

    library = Mock(cuDriverGetVersion=Mock(side_effect=answer), cuGetErrorName=lambda *_: 1)
    monkeypatch.setattr(libcuda, "library", lambda: library)
    assert [probes.driver_version() for _ in range(2)] == [version] * 2
    assert library.cuDriverGetVersion.call_count == 1


@pytest.mark.parametrize("error", [OSError("libcuda.so.1: invalid ELF header"), AttributeError("cuDriverGetVersion")])
def test_anything_else_propagates(monkeypatch, fresh_probes, error: Exception) -> None:
    """A library that is there but broken is no unknown version."""
    monkeypatch.setattr(libcuda, "library", Mock(side_effect=error))
    with pytest.raises(type(error)):
        probes.driver_version()


def test_broken_driver_library_is_an_os_error(monkeypatch, fresh_probes, tmp_path) -> None:
    """A file that is no library is told apart from a missing one."""
    bad = tmp_path / "libcuda.so.1"
    bad.write_bytes(b"no library")
    monkeypatch.setattr(libcuda, "LIBRARY_NAME", str(bad))
    with pytest.raises(OSError, match="libcuda"):
        libcuda.library()
    bad.unlink()
    with pytest.raises(libcuda.DriverNotFoundError, match="no CUDA driver"):
        libcuda.library()
    assert probes.driver_version() is None
    assert probes.device_arch() is None


def test_a_missing_driver_is_looked_for_once(monkeypatch, fresh_probes) -> None:
    """A link without an architecture asks for the device; the loader searches for the driver only the first time."""
    search = Mock(side_effect=libcuda.DriverNotFoundError("no CUDA driver"))
    monkeypatch.setattr(libcuda, "library", search)
    assert [probes.device_arch() for _ in range(3)] == [None] * 3
    assert search.call_count == 1


ENOENT = os.strerror(errno.ENOENT)
GERMAN = "Datei oder Verzeichnis nicht gefunden"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"libcuda.so.1: cannot open shared object file: {ENOENT}", libcuda.DriverNotFoundError),
        (f"Error loading shared library libcuda.so.1: {ENOENT}", libcuda.DriverNotFoundError),
        (f"libcuda.so.1: Kann die Shared-Object-Datei nicht öffnen: {GERMAN}", libcuda.DriverNotFoundError),
        (f"libnvidia-x.so.1: cannot open shared object file: {ENOENT}", OSError),
        (f"Error loading shared library libx.so: {ENOENT} (needed by /lib/libcuda.so.1)", OSError),
        ("libcuda.so.1: wrong ELF class: ELFCLASS32", OSError),
    ],
)
def test_what_the_loader_says(monkeypatch, fresh_probes, text: str, error: type[Exception]) -> None:
    """Each C library, in each language, has its words for a missing library; a missing dependency is another matter."""
    monkeypatch.setattr(libcuda, "LIBRARY_NAME", "libcuda.so.1")
    monkeypatch.setattr(libcuda.ctypes, "CDLL", Mock(side_effect=OSError(text)))
    monkeypatch.setattr(libcuda.os, "strerror", lambda _code: GERMAN if GERMAN in text else ENOENT)
    with pytest.raises(error):
        libcuda.library()


def test_absent_nvjitlink_warns_once(monkeypatch, fresh_probes) -> None:
    """One RuntimeWarning per process, which says what was found and what to install."""
    absent = probes.NvJitLink(None, None, "no libnvJitLink was found by cuda.pathfinder")
    monkeypatch.setattr(probes, "nvjitlink", cache(lambda: absent))
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="no libnvJitLink was found .* install .*nvidia-nvjitlink") as caught:
            assert probes.nvjitlink_version() is None
        assert [warning.filename for warning in caught] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert probes.nvjitlink_version() is None
        probes.cache_clear()


def test_nvjitlink_without_bindings(monkeypatch, fresh_probes) -> None:
    """The warning says what is missing, and installs that: the library is there."""
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvjitlink", None)
    bindings = re.escape(install_command("cuda-bindings"))
    with pytest.warns(RuntimeWarning, match=f"is there, but cuda-bindings is not .* To get it: {bindings}$"):
        assert probes.nvjitlink_version() is None
