"""Cost of the emulated driver: of loading it, and of the lifetime checks in links.

``nox -s bench`` runs it. Each measurement is a child process on an emulated driver of the toolkit's version. What a
link through the driver costs is in ``linker.py``.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_uint64, c_void_p
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from linker import driven, driver_in_context

ARCH = "sm_90"
ROUNDS = 60
CHECKS_LIMIT = 1.02
LOAD_LIMIT = 10.0  # milliseconds, with 500 look-ups of functions
LINKS_OF_A_ROUND = 5
QUESTIONS = 500


def load() -> None:
    """Print the seconds of loading the library and of looking up functions, as cuda-bindings does."""
    names = json.loads(sys.argv[2])
    start = time.perf_counter()
    driver = ctypes.CDLL("libcuda.so.1")
    ask, address, status = driver.cuGetProcAddress_v2, c_void_p(), c_int()
    for name in names:
        ask(name.encode(), byref(address), 12000, c_uint64(0), byref(status))
    print(time.perf_counter() - start)


def serve() -> None:
    """Time a batch of links for each line on standard input, and print the seconds."""
    from pytest_cudalink.linker import sample

    driver = driver_in_context()
    codes = [(code.code + b"\0", code.name.encode()) for code in sample.compile_modules("ptx", ARCH)]
    driven(driver, "ptx", codes, ARCH)
    gc.disable()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(LINKS_OF_A_ROUND):
            driven(driver, "ptx", codes, ARCH)
        print(time.perf_counter() - start, flush=True)


CHILDREN: dict[str, Callable[[], None]] = {"--load": load, "--serve": serve}


def planned(lifetime: str) -> dict[str, str]:
    """Return the environment of an emulated driver of the toolkit's version."""
    from pytest_cudalink import emulator, probes

    found = probes.nvjitlink()
    assert found.usable, found.obstacle
    emulation = emulator.emulation_for(found.usable, lifetime=lifetime)
    assert not emulation.missing, emulation.missing
    return emulation.environment()


@contextmanager
def served(environment: dict[str, str]) -> Iterator[Callable[[], Callable[[], object]]]:
    """Start a child that links; yields what prepares a batch, which times itself."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        env={**os.environ, **environment, "CUDA_CACHE_DISABLE": "1"},  # links as they are without a GPU
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    assert stdout.readline() == "ready\n"

    def batch() -> measure.Seconds:
        stdin.write("\n")
        return measure.Seconds(stdout.readline())

    yield lambda: batch
    stdin.close()
    process.wait()


def main() -> int:
    """Run every measurement; return exit code 1 beyond a limit."""
    from pytest_cudalink.tables import read_table

    options = measure.arguments("emulator", ROUNDS, __doc__ or "")
    report = measure.Report("emulator", "The emulated driver", device="no GPU, emulated driver of the toolkit")
    off, marked = planned("off"), planned("report")
    checked = {name: value for name, value in marked.items() if not name.startswith("MALLOC_")}
    table = f"{LINKS_OF_A_ROUND} links of two PTX modules"
    with served(off) as plain, served(checked) as checks, served(marked) as marks:
        # malloc's marks make the whole process slower, which is its cost, so that they have no limit
        names = {"without lifetime checks": plain, "with lifetime checks": checks, "and malloc's marks": marks}
        times = measure.rounds(names, options.rounds)
    for name, seconds in times.items():
        report.row(table, name, seconds, times["without lifetime checks"])
    report.limit_ratio(table, times["with lifetime checks"], times["without lifetime checks"], CHECKS_LIMIT)
    asked = list(read_table("emulator/functions.toml")["functions"])[:QUESTIONS]
    asked += asked[: QUESTIONS - len(asked)]

    def loaded() -> measure.Seconds:
        command = [sys.executable, __file__, "--load", json.dumps(asked)]
        done = subprocess.run(command, env={**os.environ, **marked}, stdout=subprocess.PIPE, text=True, check=True)
        return measure.Seconds(done.stdout)

    seconds = measure.rounds({"load": lambda: loaded}, min(11, options.rounds))["load"]
    what = f"loading the driver and looking up {len(asked)} functions"
    summary = report.row("start of a process", what, seconds)
    report.limit(what, summary.median * 1e3, LOAD_LIMIT, "ms")
    return report.finish(options.json)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in CHILDREN:
        CHILDREN[sys.argv[1]]()
    else:
        sys.exit(main())
