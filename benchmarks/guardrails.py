"""Cost of the guard rails on top of cuda.pathfinder. ``nox -s bench`` runs it.

A repeated look-up, by each function that caches its answers: both sides answer from a cache, in loops of many calls, in
turn. The first look-up in an environment with 300 distributions: a new process for each, in turn; the figure is the
median of the differences, because both make the same look-up in the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import measure

from pytest_cudalink.guardrails import CompatibilityGuardRails, install, uninstall

LIMIT = 1.05
FIRST_LIMIT = 0.150
CALLS = 200_000
FIRST_ROUNDS = 11
DISTRIBUTIONS = 300

#: The look-ups of each function that caches its answers; the other three of cuda.pathfinder search in every call.
LOOKED_UP = {
    "load_nvidia_dynamic_lib": ("nvrtc", "cudart", "nvJitLink"),
    "locate_nvidia_header_directory": ("nvrtc", "cudart", "nvjitlink"),
    "find_static_lib": ("cudadevrt",),
    "find_bitcode_lib": ("device",),
    "find_nvidia_binary_utility": ("nvcc", "ptxas", "nvdisasm"),
}
FILES = 400

#: Makes one look-up, guarded or not, and prints its seconds, without those of imports.
FIRST = """
import sys, time
import cuda.pathfinder as pf
if sys.argv[1] == "guarded":
    from pytest_cudalink.guardrails import CompatibilityGuardRails
    look_up = CompatibilityGuardRails(driver_cuda_version=99000).locate_nvidia_header_directory
else:
    look_up = pf.locate_nvidia_header_directory
start = time.perf_counter()
assert look_up("cufft")
print(time.perf_counter() - start)
"""


def many(function: Callable[[str], object], names: Sequence[str]) -> Callable[[], None]:
    """A loop of calls over several names, because the place of a name in a cache's table differs between processes."""

    def loop() -> None:
        for _ in range(CALLS // len(names)):
            for name in names:
                function(name)

    return loop


def names_for(function: Callable[[str], object], candidates: Sequence[str]) -> list[str]:
    """The candidates that this environment has: a look-up that finds nothing raises, which is not cached."""
    names = []
    for name in candidates:
        with suppress(RuntimeError):
            function(name)
            names.append(name)
    return names


def again(report: measure.Report, rounds: int) -> None:
    """Measure and report repeated look-ups, plain and routed, by each function that finds something here."""
    import cuda.pathfinder as pf

    plain = {name: getattr(pf, name) for name in LOOKED_UP}
    # best_effort, not strict: the machine may have another toolkit than the wheels
    install(CompatibilityGuardRails(driver_cuda_version=99000, ctk_version=">=11", mode="best_effort"))
    for name, function in plain.items():
        routed = getattr(pf, name)
        names = names_for(routed, LOOKED_UP[name])
        if not names:
            print(f"  {name}: this environment has none of {', '.join(LOOKED_UP[name])}")
            continue
        rows = {"guarded": partial(many, routed, names), "plain": partial(many, function, names)}
        times = measure.rounds(rows, rounds)
        for row, column in times.items():
            report.row(f"{CALLS} look-ups after the first, {name}", row, column, times["plain"])
        report.limit_ratio(f"look-ups by {name}, guarded to plain", times["guarded"], times["plain"], LIMIT)
    uninstall()


def environment(folder: Path) -> Path:
    """Make an environment with many distributions, the wanted one last; return its Python."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for number in range(DISTRIBUTIONS - 2):
        name = f"{'nvidia' if number % 10 == 0 else 'package'}_{number}"
        distribution(site, name, "1.0", [f"{name}/module_{file}.py" for file in range(FILES)])
    include = "nvidia/cu13/include/cufft.h"
    distribution(site, "nvidia_zcufft", "12.0.0.61", [include])
    (site / include).parent.mkdir(parents=True)
    (site / include).touch()
    needs = [f"Requires-Dist: {'nvidia-zcufft' if n == 99 else f'nvidia-{n}'}==12.0.0.61.*" for n in range(100)]
    distribution(site, "cuda_toolkit", "13.0.2", [], needs)
    paths = [entry for entry in sys.path if entry]  # ours come after, by a .pth file
    (site / "benchmark.pth").write_text("\n".join([*paths, str(Path(__file__).parent.parent)]), encoding="utf-8")
    return folder / "bin" / "python"


def distribution(site: Path, name: str, version: str, files: list[str], needs: list[str] | None = None) -> None:
    """Write the metadata of one distribution, as pip does."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("".join(f"{file},sha256={'x' * 43},100\n" for file in files), encoding="utf-8")
    text = "\n".join(["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(needs or [])])
    (info / "METADATA").write_text(f"{text}\n\n", encoding="utf-8")


def first(report: measure.Report) -> None:
    """Measure and report the first look-up, which scans the environment."""
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder))

        def once(how: str) -> measure.Seconds:
            done = subprocess.run([str(python), "-c", FIRST, how], check=True, capture_output=True, text=True)
            return measure.Seconds(json.loads(done.stdout))

        times = measure.rounds({how: partial(partial, once, how) for how in ("guarded", "plain")}, FIRST_ROUNDS)
    what = f"first look-up among {DISTRIBUTIONS} distributions of {FILES} files"
    for row, column in times.items():
        report.row(what, row, column)
    report.limit_difference(what, times["guarded"], times["plain"], FIRST_LIMIT * 1e3)


def main() -> int:
    """Run both measurements; return exit code 1 beyond a limit."""
    options = measure.arguments("guardrails", rounds=40, description=__doc__ or "")
    report = measure.Report("guardrails", "Look-ups through the guard rails")
    again(report, options.rounds)
    first(report)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
