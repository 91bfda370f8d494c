"""Cost of `Linker`, compared with the same calls on libnvJitLink through ctypes. ``nox -s bench`` runs it."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from functools import partial

from _ratio import ratio, report

from pytest_cudalink import probes
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode, sample

ARCH = "sm_90"
LIMIT = 1.05
ROUNDS = 60
INPUT_TYPES = {"ptx": 2, "ltoir": 3}


def direct(library: ctypes.CDLL, kind: str, codes: list[tuple[bytes, bytes]], options: list[bytes]) -> bytes:
    """Link with the fewest calls: create, add, complete, fetch, destroy; return the image."""
    handle, size = ctypes.c_void_p(), ctypes.c_size_t()
    array = (ctypes.c_char_p * len(options))(*options)
    assert library.nvJitLinkCreate(ctypes.byref(handle), ctypes.c_uint32(len(options)), array) == 0
    for code, name in codes:
        length = ctypes.c_size_t(len(code))
        assert library.nvJitLinkAddData(handle, INPUT_TYPES[kind], ctypes.c_char_p(code), length, name) == 0
    assert library.nvJitLinkComplete(handle) == 0
    assert library.nvJitLinkGetLinkedCubinSize(handle, ctypes.byref(size)) == 0
    image = ctypes.create_string_buffer(size.value)
    assert library.nvJitLinkGetLinkedCubin(handle, image) == 0
    assert library.nvJitLinkDestroy(ctypes.byref(handle)) == 0
    return image.raw


def bundled(kind: str, codes: list[tuple[bytes, bytes]]) -> Callable[[], bytes]:
    """A function that links through `Linker` with every check; inputs are new, so that their inspection is timed."""
    make = getattr(ObjectCode, f"from_{kind}")
    inputs = [make(code, name=name.decode()) for code, name in codes]
    options = LinkerOptions(arch=ARCH, link_time_optimization=kind == "ltoir")

    def link() -> bytes:
        with Linker(*inputs, options=options) as linker:
            return linker.link("cubin").code

    return link


def main() -> int:
    """Measure both kinds of input; return exit code 1 beyond the limit."""
    found = probes.nvjitlink()
    assert found.usable, found.obstacle
    library = ctypes.CDLL(found.path)
    ok = True
    gc.disable()  # a collection would hit one side or the other
    for kind in ("ptx", "ltoir"):
        codes = [(code.code, code.name.encode()) for code in sample.compile_modules(kind, ARCH)]
        options = [f"-arch={ARCH}".encode()] + ([b"-lto"] if kind == "ltoir" else [])
        directly = partial(direct, library, kind, codes, options)
        assert bundled(kind, codes)() == directly()
        times = ratio(partial(bundled, kind, codes), lambda directly=directly: directly, ROUNDS)
        ok &= report(f"create-link-close of two {kind} modules, nvJitLink {found.usable}", *times, LIMIT)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
