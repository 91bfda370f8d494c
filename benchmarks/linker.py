"""Cost of `Linker`: create, link and close, compared with cuda.core and with the same calls made directly.

``nox -s bench`` runs it. Two modules are linked as PTX, LTO-IR and cubins. Object codes and options are made once and
linked many times; rows named "new inputs" make the object codes for each link, so that reading them is timed too.

With a GPU every row is measured in one process with CUDA's compilation cache warm, and in a second process without that
cache. Without one, or with ``--without-gpu``, the rows of nvJitLink are measured in a process that uses no driver, and
those of the driver in a process on the emulated driver. Each process measures its rows in turn.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from functools import partial
from typing import Any

import measure

from pytest_cudalink import probes
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode, sample

KINDS = ("ptx", "ltoir", "cubin")
NAMES = {"ptx": "PTX", "ltoir": "LTO-IR", "cubin": "cubin"}
#: How often the rows of a kind are measured, in multiples of ``--rounds``: a cubin links in a quarter of a millisecond.
TIMES = {"ptx": 1, "ltoir": 1, "cubin": 10}
#: Most rounds of a kind whose link is not cached and takes 20 ms.
SLOW_ROUNDS = 60
NVJITLINK_TYPES = {"cubin": 1, "ptx": 2, "ltoir": 3}
DRIVER_TYPES = {"cubin": 0, "ptx": 1}
#: CUjit_option: target, info and error log with their sizes; CUjit_target of "sm_90a" is offset by this.
TARGET, LOGS, ACCELERATED = 9, (3, 4, 5, 6), 0x10000

DIRECT, CORE = "libnvJitLink directly", "cuda.core"
OURS, OURS_NEW, CORE_NEW = "ours, nvjitlink", "ours, nvjitlink, new inputs", "cuda.core, new inputs"
DRIVER, DRIVER_DIRECT = "ours, driver", "cuLink* directly"

#: With a GPU and a warm cache: ours on nvjitlink to cuda.core, ours on the driver to the direct calls.
CORE_LIMIT, DRIVER_LIMIT = 1.00, 1.10
#: Without a GPU, to libnvJitLink directly: ratio for PTX and LTO-IR; milliseconds above it for cubins.
RATIO_LIMIT, CUBIN_LIMIT, EMULATED_CUBIN_LIMIT = 1.05, 0.10, 0.25


def direct(library: ctypes.CDLL, kind: str, codes: list[tuple[bytes, bytes]], options: list[bytes]) -> bytes:
    """Link with the fewest calls: create, add, complete, fetch, destroy; return the image."""
    handle, size = c_void_p(), c_size_t()
    array = (c_char_p * len(options))(*options)
    assert library.nvJitLinkCreate(byref(handle), c_uint32(len(options)), array) == 0
    for code, name in codes:
        length = c_size_t(len(code))
        assert library.nvJitLinkAddData(handle, NVJITLINK_TYPES[kind], c_char_p(code), length, name) == 0
    assert library.nvJitLinkComplete(handle) == 0
    assert library.nvJitLinkGetLinkedCubinSize(handle, byref(size)) == 0
    image = ctypes.create_string_buffer(size.value)
    assert library.nvJitLinkGetLinkedCubin(handle, image) == 0
    assert library.nvJitLinkDestroy(byref(handle)) == 0
    return image.raw


def driven(driver: ctypes.CDLL, kind: str, codes: list[tuple[bytes, bytes]], arch: str) -> bytes:
    """Link through cuLink* with the target and both logs, as libraries do; return the image."""
    size, image, state = c_size_t(), c_void_p(), c_void_p()
    logs = [ctypes.create_string_buffer(16384) for _ in range(2)]
    target = int(arch[3:].rstrip("a")) + (ACCELERATED if arch.endswith("a") else 0)
    keys = (c_int * 5)(*LOGS, TARGET)
    values = (c_void_p * 5)(ctypes.addressof(logs[0]), 16384, ctypes.addressof(logs[1]), 16384, target)
    assert driver.cuLinkCreate_v2(5, keys, values, byref(state)) == 0
    for code, name in codes:
        added = driver.cuLinkAddData_v2(state, DRIVER_TYPES[kind], code, c_size_t(len(code)), name, 0, None, None)
        assert added == 0
    assert driver.cuLinkComplete(state, byref(image), byref(size)) == 0
    linked = ctypes.string_at(image, size.value)
    assert driver.cuLinkDestroy(state) == 0
    return linked


def driver_in_context() -> ctypes.CDLL:
    """Return the driver, initialized, with the primary context of its first device current."""
    driver, context = ctypes.CDLL("libcuda.so.1"), c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    return driver


def makers(library: Any, kind: str, codes: tuple[ObjectCode, ...]) -> Callable[[], list[Any]]:
    """Return what makes the object codes of a library, ours or cuda.core's."""
    make = getattr(library, f"from_{kind}")
    return lambda: [make(code.code, name=code.name) for code in codes]


def ours(make: Callable[[], list[ObjectCode]], options: LinkerOptions, backend: Any) -> bytes:
    """Link with every check that `Linker` makes."""
    with Linker(*make(), options=options, backend=backend) as linker:
        return linker.link("cubin").code


def core(make: Callable[[], list[Any]], options: Any) -> bytes:
    """Link with cuda.core."""
    from cuda.core import Linker as CoreLinker

    linker = CoreLinker(*make(), options=options)
    image = linker.link("cubin")
    linker.close()
    return bytes(image.code)


def nvjitlink_rows(kind: str, arch: str, codes: tuple[ObjectCode, ...]) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield the ways of linking on nvJitLink."""
    library = ctypes.CDLL(probes.nvjitlink().path)
    written = [f"-arch={arch}".encode()] + ([b"-lto"] if kind == "ltoir" else [])
    yield DIRECT, partial(direct, library, kind, [(code.code, code.name.encode()) for code in codes], written)
    lto: dict[str, Any] = {"link_time_optimization": True} if kind == "ltoir" else {}
    new = makers(ObjectCode, kind, codes)
    options = LinkerOptions(arch=arch, **lto)
    # without a driver, or where the driver is emulated, the table may choose the other backend
    yield OURS, partial(ours, partial(list, codes), options, "nvjitlink")
    yield OURS_NEW, partial(ours, new, options, "nvjitlink")
    try:
        from cuda import core as cuda_core
    except ImportError:
        print("cuda.core is not installed: its rows are left out", file=sys.stderr)
        return
    new_core = makers(cuda_core.ObjectCode, kind, codes)
    core_options = cuda_core.LinkerOptions(arch=arch, **lto)
    chosen = cuda_core.Linker.which_backend()
    assert chosen == "nvJitLink", chosen
    yield CORE, partial(core, partial(list, new_core()), core_options)
    yield CORE_NEW, partial(core, new_core, core_options)


def driver_rows(kind: str, arch: str, codes: tuple[ObjectCode, ...]) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield the ways of linking on the driver, which links no LTO-IR; its primary context is made current."""
    if kind not in DRIVER_TYPES:
        return
    driver = driver_in_context()
    terminated = [(code.code + b"\0" * (kind == "ptx"), code.name.encode()) for code in codes]
    yield DRIVER_DIRECT, partial(driven, driver, kind, terminated, arch)
    yield DRIVER, partial(ours, partial(list, codes), LinkerOptions(arch=arch), "driver")


def measured(mode: str, rounds: int) -> dict[str, Any]:
    """Return the seconds of every row of every kind, in this process."""
    if mode == "emulated":
        from pytest_cudalink import emulator
        from pytest_cudalink.emulator import preload

        nvjitlink = probes.nvjitlink()
        assert nvjitlink.usable, nvjitlink.obstacle
        emulation = emulator.emulation_for(nvjitlink.usable, lifetime="off")
        assert not emulation.missing, emulation.missing
        preload.emulate_driver(emulation)
        # the row to compare with is the library that the emulated driver links through
    arch = probes.device_arch() or "sm_90"
    tables = {}
    for kind in KINDS:
        codes = sample.compile_modules(kind, arch)
        rows: dict[str, Callable[[], bytes]] = {}
        if mode != "emulated":
            rows |= nvjitlink_rows(kind, arch, codes)
        elif kind in DRIVER_TYPES:
            rows |= [next(iter(nvjitlink_rows(kind, arch, codes)))]
        if mode != "nvjitlink":
            rows |= driver_rows(kind, arch, codes)
        if not rows:
            continue
        images = {name: len(row()) for name, row in rows.items()}
        assert all(images.values()), images
        count = rounds * TIMES[kind]
        if kind != "cubin" and mode != "cached":
            count = min(count, SLOW_ROUNDS)
        tables[kind] = measure.rounds({name: partial(_same, row) for name, row in rows.items()}, count, warm_up=3)
    return {"device": measure.device(), "tables": tables, "arch": arch}


def _same(row: Callable[[], bytes]) -> Callable[[], bytes]:
    return row


def child(mode: str, rounds: int, **environment: str) -> dict[str, Any]:
    """Return what a child process measures."""
    done = subprocess.run(
        [sys.executable, __file__, "--rounds", str(rounds), "--child", mode],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


def print_rows(report: measure.Report, title: str, figures: dict[str, Any]) -> None:
    """Report the rows of one process, each with the ratio to the first one, which makes the calls directly."""
    for kind, columns in figures["tables"].items():
        first = next(iter(columns.values()))
        for name, times in columns.items():
            report.row(f"{NAMES[kind]}, {title}", name, times, first)


def with_gpu(report: measure.Report, rounds: int) -> None:
    """Measure with the compilation cache warm, which has limits, and without it."""
    cached = child("cached", rounds)
    print_rows(report, "cache warm", cached)
    print_rows(report, "cache off", child("uncached", rounds, CUDA_CACHE_DISABLE="1"))
    for kind, columns in cached["tables"].items():
        if CORE in columns:
            what = f"{NAMES[kind]}, cache warm, ours on nvjitlink to cuda.core"
            report.limit_ratio(what, columns[OURS], columns[CORE], CORE_LIMIT)
        if DRIVER in columns:
            what = f"{NAMES[kind]}, cache warm, ours on the driver to cuLink* directly"
            report.limit_ratio(what, columns[DRIVER], columns[DRIVER_DIRECT], DRIVER_LIMIT)


def without_gpu(report: measure.Report, rounds: int) -> None:
    """Measure nvJitLink alone, and the emulated driver; both have limits."""
    # a driver that is installed would keep what nvJitLink compiles
    alone, emulated = (child(mode, rounds, CUDA_CACHE_DISABLE="1") for mode in ("nvjitlink", "emulated"))
    print_rows(report, "no driver", alone)
    print_rows(report, emulated["device"].partition(", ")[2], emulated)
    for where, name, tables, above in (
        ("nvjitlink", OURS, alone["tables"], CUBIN_LIMIT),
        ("the emulated driver", DRIVER, emulated["tables"], EMULATED_CUBIN_LIMIT),
    ):
        for kind, columns in tables.items():
            what = f"{NAMES[kind]}, ours on {where} to libnvJitLink directly"
            if kind == "cubin":
                report.limit_difference(what, columns[name], columns[DIRECT], above)
            else:
                report.limit_ratio(what, columns[name], columns[DIRECT], RATIO_LIMIT)


def main() -> int:
    """Measure every row; return exit code 1 beyond a limit."""
    parser = measure.parser("linker", rounds=60, description=__doc__ or "")
    parser.add_argument("--child", choices=("nvjitlink", "emulated", "cached", "uncached"), help=argparse.SUPPRESS)
    parser.add_argument("--without-gpu", action="store_true", help="measure as on a machine without a GPU")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.child, options.rounds)))
        return 0
    nvjitlink = probes.nvjitlink()
    assert nvjitlink.usable, nvjitlink.obstacle
    gpu = not options.without_gpu and probes.device_arch() is not None
    device = None if gpu else f"no GPU, emulated driver {nvjitlink.usable} for the driver's rows"
    report = measure.Report("linker", f"Create, link, close: two modules, nvJitLink {nvjitlink.usable}", device=device)
    (with_gpu if gpu else without_gpu)(report, options.rounds)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
