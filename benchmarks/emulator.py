"""Cost of the emulated driver: of a link, compared with the same link made directly, of loading it, and of its checks.

``nox -s bench`` runs it. Each measurement is a separate process on an emulated driver of the toolkit's version.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from _ratio import ratio, report

ROUNDS = 60
LINK_LIMIT = 1.10
CHECKS_LIMIT = 1.02
LOAD_LIMIT = 10.0  # milliseconds, with 500 look-ups of functions
LINKS_OF_A_ROUND = 5
QUESTIONS = 500
#: The architecture that the emulated driver passes to nvJitLink on an H200.
ARCH = b"-arch=sm_90a"


def inputs() -> list[tuple[bytes, bytes]]:
    """The demo's two modules as PTX, with their final NUL."""
    from pytest_cudalink.linker import sample

    return [(code.code + b"\0", code.name.encode()) for code in sample.compile_modules("ptx", "sm_90")]


def direct(library: Any, codes: list[tuple[bytes, bytes]]) -> int:
    """Link on libnvJitLink: create, add, complete, fetch, destroy; return the size of the image."""
    handle, size = c_void_p(), c_size_t()
    assert library.nvJitLinkCreate(byref(handle), 1, (c_char_p * 1)(ARCH)) == 0
    for code, name in codes:
        assert library.nvJitLinkAddData(handle, 2, code, c_size_t(len(code)), name) == 0
    assert library.nvJitLinkComplete(handle) == 0
    assert library.nvJitLinkGetLinkedCubinSize(handle, byref(size)) == 0
    image = ctypes.create_string_buffer(size.value)
    assert library.nvJitLinkGetLinkedCubin(handle, image) == 0
    assert library.nvJitLinkDestroy(byref(handle)) == 0
    return size.value


def driven(driver: Any, codes: list[tuple[bytes, bytes]], times: int = 1) -> int:
    """Link through cuLink* with both logs, as libraries do; return the size of the image."""
    size = c_size_t()
    for _ in range(times):
        logs = [ctypes.create_string_buffer(4096) for _ in range(2)]
        keys = (c_int * 4)(3, 4, 5, 6)
        values = (c_void_p * 4)(ctypes.addressof(logs[0]), 4096, ctypes.addressof(logs[1]), 4096)
        state, image = c_void_p(), c_void_p()
        assert driver.cuLinkCreate_v2(4, keys, values, byref(state)) == 0
        for code, name in codes:
            assert driver.cuLinkAddData_v2(state, 1, code, c_size_t(len(code)), name, 0, None, None) == 0
        assert driver.cuLinkComplete(state, byref(image), byref(size)) == 0
        ctypes.string_at(image, size.value)
        assert driver.cuLinkDestroy(state) == 0
    return size.value


def initialized() -> Any:
    """The driver library, initialized and with a current context."""
    driver, context = ctypes.CDLL("libcuda.so.1"), c_void_p()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    return driver


def link() -> dict[str, Any]:
    """Seconds of a link through the driver and of one made directly on the library that the driver links through."""
    driver, codes = initialized(), inputs()
    library = ctypes.CDLL(os.environ["CUDALINK_EMULATOR_NVJITLINK"])
    assert driven(driver, codes) == direct(library, codes)
    gc.disable()
    times = ratio(lambda: partial(driven, driver, codes), lambda: partial(direct, library, codes), ROUNDS)
    return {"times": times}


def load() -> dict[str, Any]:
    """Milliseconds to load the library and to look up 500 functions, as cuda-bindings does."""
    names = json.loads(sys.argv[2])
    start = time.perf_counter()
    driver = ctypes.CDLL("libcuda.so.1")
    ask, address, status = driver.cuGetProcAddress_v2, c_void_p(), c_int()
    for name in names:
        ask(name.encode(), byref(address), 12000, c_uint64(0), byref(status))
    return {"milliseconds": (time.perf_counter() - start) * 1e3}


def serve() -> dict[str, Any]:
    """Time a batch of links for each line on standard input, and print the seconds."""
    driver, codes = initialized(), inputs()
    driven(driver, codes, LINKS_OF_A_ROUND)
    gc.disable()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        driven(driver, codes, LINKS_OF_A_ROUND)
        print(time.perf_counter() - start, flush=True)
    return {}


CHILDREN: dict[str, Callable[[], dict[str, Any]]] = {"link": link, "load": load, "serve": serve}


def planned(lifetime: str) -> dict[str, str]:
    """Environment of an emulated driver of the toolkit's version."""
    from pytest_cudalink import emulator, probes

    found = probes.nvjitlink()
    assert found.usable, found.obstacle
    emulation = emulator.emulation_for(found.usable, lifetime=lifetime)
    assert not emulation.missing, emulation.missing
    return emulation.environment()


def run(name: str, *arguments: str) -> dict[str, Any]:
    """The measurement of one child process."""
    done = subprocess.run(
        [sys.executable, __file__, name, *arguments],
        env={**os.environ, **planned("report")},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def compare(ours: dict[str, str], theirs: dict[str, str]) -> tuple[float, float, float]:
    """Compare the same batch of links under two environments, in two processes that take turns."""
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "serve"],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for environment in (ours, theirs)
    ]
    pipes = [(process.stdin, process.stdout) for process in children if process.stdin and process.stdout]

    def batch(number: int) -> Callable[[], object]:
        stdin, stdout = pipes[number]

        def go() -> None:
            stdin.write("\n")
            float(stdout.readline())

        return go

    assert all(stdout.readline() == "ready\n" for _, stdout in pipes)
    times = ratio(partial(batch, 0), partial(batch, 1), ROUNDS)
    for (stdin, _), process in zip(pipes, children, strict=True):
        stdin.close()
        process.wait()
    return times


def main() -> int:
    """Run every measurement; return exit code 1 beyond a limit."""
    from pytest_cudalink.tables import read_table

    ok = report("a link through the emulated driver against nvJitLink", *run("link")["times"], LINK_LIMIT)
    off, on = planned("off"), planned("report")
    checks = {name: value for name, value in on.items() if not name.startswith("MALLOC_")}
    ok &= report(f"{LINKS_OF_A_ROUND} links with lifetime checks against none", *compare(checks, off), CHECKS_LIMIT)
    if on != checks:
        # no limit: malloc gets slower for the whole process, which is not our cost
        marked, plain, quotient = compare(on, off)
        print(f"     … and with malloc's marks too: {marked * 1e3:.0f} against {plain * 1e3:.0f} ms, {quotient:.2f}")
    names = list(read_table("emulator/data/functions.toml")["functions"])[:QUESTIONS]
    names += names[: QUESTIONS - len(names)]
    took = sorted(run("load", json.dumps(names))["milliseconds"] for _ in range(11))[5]
    mark = "ok  " if took <= LOAD_LIMIT else "FAIL"
    print(f"{mark} loading the driver and looking up {len(names)} functions: {took:.2f} ms (limit {LOAD_LIMIT})")
    return 0 if ok and took <= LOAD_LIMIT else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(CHILDREN[sys.argv[1]]()))
    else:
        sys.exit(main())
