"""Fixtures of the suite that needs a CUDA driver with a device."""

from __future__ import annotations

import ctypes
import mmap

import pytest

from pytest_cudalink import probes
from pytest_cudalink.linker import ObjectCode, Program, ProgramOptions, sample

_LIBC = ctypes.CDLL(None, use_errno=True)
_PROT_NONE = 0


class GuardedBlock:
    """Pages that become unreadable when released, and stay so: a touch after release is a segmentation fault."""

    def __init__(self, size: int) -> None:
        self._pages = mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
        self._size = len(self._pages)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        self.released = False

    def release(self) -> None:
        assert not self.released, "released twice"
        self.released = True
        if _LIBC.mprotect(ctypes.c_void_p(self.address), ctypes.c_size_t(self._size), _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")


@pytest.fixture(scope="session")
def device() -> str:
    """Architecture of the device, or a skip with a reason."""
    arch = probes.device_arch()
    if arch is None:
        pytest.skip("needs a CUDA driver with a device")
    return arch


@pytest.fixture(autouse=True)
def _with_device(device) -> None:
    """Every test here needs a device."""


@pytest.fixture(scope="session")
def compiled(device) -> dict[tuple[str, str], ObjectCode]:
    """The two units of the sample by unit and kind, for the device."""
    made = {}
    for unit, source in (("main", sample.MAIN_SOURCE), ("user", sample.USER_SOURCE)):
        for kind in ("ptx", "ltoir", "cubin"):
            options = ProgramOptions(name=f"{unit}.cu", arch=device, relocatable_device_code=True)
            with Program(source, "c++", options) as program:
                made[unit, kind] = program.compile(kind)
    return made


@pytest.fixture
def guarded(monkeypatch) -> list[GuardedBlock]:
    """Driver links on guarded blocks; the list of all that were made."""
    from pytest_cudalink.linker.backends import OPENERS
    from pytest_cudalink.linker.backends.driver import DriverLinkState

    blocks: list[GuardedBlock] = []

    def allocate(size: int) -> GuardedBlock:
        blocks.append(GuardedBlock(size))
        return blocks[-1]

    monkeypatch.setitem(OPENERS, "driver", lambda options: DriverLinkState(options, allocate))
    return blocks
