"""Cost of a call through a stub, compared with a direct call through the PLT, and of the first call.

All callers are shared libraries in one process, each linked with one thing: the library itself, our stub, our stub from
a caller whose slots are read-only (full RELRO: shown without a limit), TileLang's stub where its wheel is installed
(or CUDALINK_BENCH_TILELANG names its folder), and what Implib.so generates for the library, if CUDALINK_BENCH_IMPLIB
names it as a static library, the form in which Implib.so's instructions use it. They take turns, in blocks, until each
has made 10⁸ calls of an exported no-op. ``nox -s bench`` runs it.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import measure

from pytest_cudalink.base.compiler import find_compiler
from pytest_cudalink.stubs import c_source

CALLS, BLOCK = 100_000_000, 1_000_000
LIMIT = 1.05
FIRST_CALL_MS = 2.0
ATTEMPTS = 3
TILELANG, IMPLIB = "TileLang's stub", "Implib.so, linked statically"

NOOP = "cudaPeekAtLastError"
CALLER = f"""
#include <time.h>
extern int {NOOP}(void);
double run(long calls)
{{
  struct timespec start, stop;
  int sum = 0;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
  for (long i = 0; i < calls; i++) sum += {NOOP}();
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &stop);
  return sum ? -1 : (stop.tv_sec - start.tv_sec) + 1e-9 * (stop.tv_nsec - start.tv_nsec);
}}
"""
FIRST = """
#include <stdio.h>
#include <time.h>
extern int cudaRuntimeGetVersion(int *);
int main(void)
{
  struct timespec start, stop;
  int version;
  clock_gettime(CLOCK_MONOTONIC, &start);
  int result = cudaRuntimeGetVersion(&version);
  clock_gettime(CLOCK_MONOTONIC, &stop);
  printf("%d %f\\n", result, 1e3 * (stop.tv_sec - start.tv_sec) + 1e-6 * (stop.tv_nsec - start.tv_nsec));
}
"""


def compile_c(output: Path, source: str, *flags: str) -> Path:
    """Compile a program, or a library; return the output file."""
    shared = ["-shared", "-fPIC", f"-Wl,-soname,{output.name}"] if ".so" in output.name else []
    command = [*find_compiler(), "-O2", *shared, "-x", "c", "-", "-x", "none", *flags, "-o", str(output)]
    subprocess.run(command, input=source, text=True, check=True)
    return output


def link(library: Path) -> list[str]:
    """Flags that link with a library and find it at run time in its folder."""
    return [str(library), f"-Wl,-rpath,{library.parent}", "-ldl", "-pthread"]


def tilelang() -> Path | None:
    """Path of TileLang's stub of the runtime; None if it is not installed."""
    named = os.environ.get("CUDALINK_BENCH_TILELANG")
    spec = None if named else find_spec("tilelang")
    folder = Path(named) if named else Path(spec.origin).parent / "lib" if spec and spec.origin else None
    return next((path for path in (folder / "libstub_cudart.so",) if path.is_file()), None) if folder else None


def exports(library: Path) -> list[str]:
    """The CUDA functions that a stub exports."""
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    return [line.split()[-1] for line in listed.stdout.splitlines() if line.split()[-1].startswith("cuda")]


def steady(report: measure.Report, folder: Path) -> None:
    """Measure and report many calls."""
    theirs = tilelang()
    names = {NOOP, *(exports(theirs) if theirs else [])} - {"cudalink_stub_marker"}
    real = compile_c(
        folder / "libcudart.so.13", "".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(names))
    )
    (ours,) = c_source.build_stubs(["cudart"], folder, prefix="bench")
    linked = {"direct": (real, "lazy"), "stub": (ours, "lazy"), "stub, full RELRO": (ours, "now")}
    if theirs:
        linked[TILELANG] = (theirs, "lazy")
    if os.environ.get("CUDALINK_BENCH_IMPLIB"):
        linked[IMPLIB] = (Path(os.environ["CUDALINK_BENCH_IMPLIB"]), "lazy")
    # another stub may look for the library by its name: by then the process has it
    callers: dict[str, Any] = {}
    for name, (library, binding) in linked.items():
        flags = (*link(library), f"-Wl,-z,{binding}", "-Wl,-z,relro")
        file = compile_c(folder / f"caller{len(callers)}.so", CALLER, *flags)
        callers[name] = ctypes.CDLL(str(file)).run
        callers[name].restype = ctypes.c_double
    for name, run in callers.items():  # the first call is a separate measurement
        assert run(ctypes.c_long(1000)) > 0, name
    # other work on the machine only adds time: a mean beyond the limit is measured again
    attempts = 0
    while True:
        blocks, attempts = in_turn(callers), attempts + 1
        quotient = sum(blocks["stub"]) / sum(blocks["direct"])
        if quotient <= LIMIT or attempts == ATTEMPTS:
            break
    for name, times in blocks.items():
        report.row(f"one call, {CALLS:.0e} of each", name, [time / BLOCK for time in times], direct_call(blocks))
    for other in {TILELANG, IMPLIB} - set(callers):
        print(f"  no comparison: {other} is not here")
    report.limit("call through the stub to a direct call, ratio of the means", quotient, LIMIT)


def direct_call(blocks: dict[str, list[float]]) -> list[float]:
    """Return the seconds of one direct call in each block."""
    return [time / BLOCK for time in blocks["direct"]]


def in_turn(callers: dict[str, Any]) -> dict[str, list[float]]:
    """Return the processor seconds of all blocks of calls, made in turn."""
    blocks: dict[str, list[float]] = {name: [] for name in callers}
    for turn in range(CALLS // BLOCK):
        order = list(callers) if turn % 2 else list(callers)[::-1]
        for name in order:
            blocks[name].append(callers[name](ctypes.c_long(BLOCK)))
    return blocks


def first_call(report: measure.Report, folder: Path, rounds: int) -> None:
    """Measure and report the first call, with a small library and with the real runtime."""
    (ours,) = c_source.build_stubs(["cudart"], folder, prefix="first")
    program = compile_c(folder / "first", FIRST, *link(ours))
    small = folder / "small"
    small.mkdir()
    compile_c(small / "libcudart.so.13", "int cudaRuntimeGetVersion(int *v) { *v = 13000; return 0; }")
    libraries = {"a small library": small}
    for entry in map(Path, sys.path):
        for path in sorted(entry.glob("nvidia/*/lib/libcudart.so.*")):
            libraries[f"{path.name} of the wheel"] = path.parent
    for name, where in libraries.items():
        environment = {k: v for k, v in os.environ.items() if k not in ("CUDA_PATH", "CUDA_HOME")}
        environment["LD_LIBRARY_PATH"] = str(where)
        times = []
        for _ in range(rounds):
            done = subprocess.run([str(program)], env=environment, capture_output=True, text=True, check=True)
            result, milliseconds = done.stdout.split()
            assert result == "0", done.stdout
            times.append(float(milliseconds) / 1e3)
        summary = report.row("first call", f"with {name}", times)
        report.limit(f"first call with {name}", summary.median * 1e3, FIRST_CALL_MS, "ms")


def main() -> int:
    """Run both measurements; return exit code 1 beyond a limit."""
    options = measure.arguments("stubs", rounds=31, description=__doc__ or "")
    report = measure.Report("stubs", "Calls through a stub")
    with tempfile.TemporaryDirectory() as name:
        steady(report, Path(name))
        first_call(report, Path(name), options.rounds)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
