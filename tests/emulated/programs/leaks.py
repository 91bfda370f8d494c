"""Link many times, through the driver or on libnvJitLink directly; print how much memory was kept.

Two numbers: bytes that malloc did not get back, and bytes by which the link worker has grown.

python leaks.py {driver,direct,losing} LIBNVJITLINK LINKS
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import sys
from collections.abc import Callable
from ctypes import byref, c_char_p, c_size_t, c_void_p
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.emulated import cu

# cubins: linking them is quick, and goes through all that PTX does but the compiler
INPUTS = [cu.artifact("13.0/main.cubin"), cu.artifact("13.0/user.cubin")]
WARM_UP = 1000
libc = ctypes.CDLL(None)


def by_driver() -> None:
    """Every third link has an input that is refused, and text in its log."""
    code, image, _ = cu.link([(cu.CUBIN, data) for data in INPUTS])
    assert code == 0
    assert image


def by_driver_failing() -> None:
    """A link that fails leaves nothing either."""
    assert cu.link([(cu.CUBIN, INPUTS[0]), (cu.PTX, b"no PTX\0")])[0] == 200


def by_driver_losing() -> None:
    """A link with one block that is never freed."""
    by_driver()
    libc.malloc(c_size_t(1))


def directly(library: Any) -> Callable[[], None]:
    """The same calls on the library."""

    def link() -> None:
        handle, size = c_void_p(), c_size_t()
        assert library.nvJitLinkCreate(byref(handle), 1, (c_char_p * 1)(b"-arch=sm_90a")) == 0
        for data in INPUTS:
            assert library.nvJitLinkAddData(handle, 1, data, c_size_t(len(data)), b"in") == 0
        assert library.nvJitLinkComplete(handle) == 0
        assert library.nvJitLinkGetLinkedCubinSize(handle, byref(size)) == 0
        image = ctypes.create_string_buffer(size.value)
        assert library.nvJitLinkGetLinkedCubin(handle, image) == 0
        assert library.nvJitLinkDestroy(byref(handle)) == 0

    return link


def own_pages(process: int | None) -> int:
    """Bytes that a process has written to and shares with no other; 0 without one."""
    if process is None:
        return 0
    text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    return 1024 * int(re.search(r"Private_Dirty: +(\d+) kB", text)[1])


def worker() -> int:
    """The link worker of this process."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if command[0].endswith(b"cudalink-link-worker") and command[2] == str(os.getpid()).encode():
                return int(entry.name)
    raise AssertionError("there is no worker")


def main() -> int:
    """Warm up, measure, link, measure."""
    way, library, links = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if way != "direct":
        cu.start()
        actions = [by_driver, by_driver, by_driver_failing if way == "driver" else by_driver_losing]
    else:
        actions = [directly(ctypes.CDLL(library))]
    for number in range(WARM_UP):
        actions[number % len(actions)]()
    if way != "direct":
        # the ring of events fills once, and then stays
        while len(cu.events()) < 16384:
            cu.cuda.cuCtxSynchronize()
            for _ in range(4096):
                cu.cuda.cuCtxSynchronize()
    gc.collect()
    process = None if way == "direct" else worker()
    before, pages = cu.allocated_bytes(), own_pages(process)
    for number in range(links):
        actions[number % len(actions)]()
    gc.collect()
    print(cu.allocated_bytes() - before, own_pages(process) - pages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
