"""Run the campaign and print how far ``cudalink`` agrees with what happens; see the package.

    python -m campaigns.environments [--environments=1000] [--first=0] [--seed=1] [--seconds=N] [--processes=N]
        [--walk]
    python -m campaigns.environments --wheels

Exit code 1: an environment in which something fails and nothing is red, or one in which all works and something is red.
"""

import argparse
import datetime as dt
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from . import wheels
from .generator import CACHE, CUDNN, PACKAGES, PARTS, Recipe, brings, make, recipe, requirements, used_files
from .operations import FIRST_CALL

_OPERATIONS: Final = Path(__file__).with_name("operations.py")
_CUBIN: Final = Path(__file__).parents[2] / "tests/data/artifacts/12.9/linked.cubin"
#: Who is not root may mount in a name space in which it is.
_AS_ROOT: Final = ("--map-root-user",) * bool(os.getuid())
#: How often a user follows the doctor before giving up.
_MOST_REPAIRS: Final = 4
#: The doctor and the audit, in one process: both are the commands that users run.
_ASK: Final = """
import contextlib, io, json, sys
from pytest_cudalink.cli import main
answers = []
for words in (["doctor", "--json"], ["audit", "--environment", sys.prefix, "--format", "json"]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words)
        except BaseException as error:
            code = f"{type(error).__name__}: {error}"
    answers.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""


#: Operations and the parts of a toolkit that they need, each of any major, as cuda.pathfinder chooses it.
_OF_PARTS: Final = {
    "nvrtc": ("nvrtc",),
    "nvrtc-headers": ("nvrtc", "cudart"),
    "nvrtc-cccl": ("nvrtc", "cudart", "cccl"),
    "link-ptx": ("nvrtc", "nvJitLink"),
    "link-ltoir": ("nvrtc", "nvJitLink"),
    "nvvm": ("nvvm",),
    "ptxas": ("nvcc",),
    **{f"load {part}": (part,) for part in ("cudart", "nvJitLink", "nvfatbin", "cufft", "curand", "cusparse")},
    **{f"load {part}": (part,) for part in ("cusolver", "cublas")},
}
#: Those of the compiler, which only the wheels of CUDA 13 have, and takes its parts from beside itself.
_OF_NVCC: Final = {"nvcc": ("nvcc", "nvvm", "crt", "cudart"), "nvcc-cccl": ("nvcc", "nvvm", "crt", "cudart", "cccl")}
#: Packages that link at run time.
_LINKING: Final = frozenset({"cuda-core", "numba-cuda", "nvmath-python", "cuda-cccl"})
#: And those that look for a toolkit outside of the environment.
_LOOKING: Final = _LINKING | {"cuda-bindings", "cupy-cuda12x", "cupy-cuda13x"}


def outside(drawn: Recipe) -> set[str]:
    """The packages of which variables name the libraries; of a whole toolkit those that programs load together.

    None where nothing that is installed looks for such.
    """
    if drawn.names.isdisjoint(_LOOKING):
        return set()
    kinds = ("library-path", "toolkit", "cache")
    named = {name for kind, what in drawn.damage if kind in kinds for name, _ in what}
    return named & {name for part in ("nvrtc", "nvJitLink") for name in PARTS[part]}


def _as_wheels(drawn: Recipe) -> dict[str, str]:
    """The packages, with their versions, that conda did not install instead."""
    by_conda = {name for kind, what in drawn.damage if kind == "conda" for name, _ in what}
    return {name: version for name, version in drawn.packages if name not in by_conda}


def _is_whole(name: str, wheels: dict[str, str]) -> bool:
    """Whether a package was meant to be there, with all that it requires."""
    return name in wheels and wheels.keys() >= {need.name for need in requirements(name, wheels[name])}


def _linked_with(wheels: dict[str, str]) -> Iterator[str]:
    """Yield loads of the libraries whose needs were meant to be there, as by programs that are linked with them."""
    yield from (f"loaded {path}" for name in wheels for path in PACKAGES[name].get("loads", ()))
    if any(_is_whole(name, wheels) for name in CUDNN):
        yield from ("load-12 cudnn", "cudnn nvidia/cudnn/lib")
        if wheels.get("ctranslate2") == "4.5.0":  # which brings a copy without parts
            yield "cudnn ctranslate2.libs"
    for part in ("cufft", "curand", "cusparse", "cusolver", "cublas"):
        for major, name in zip((13, 12), PARTS[part], strict=True):
            if _is_whole(name, wheels):
                yield f"load-{major} {part}"


def operations(drawn: Recipe) -> Iterator[str]:
    """Yield what users of an environment do: only that for which all that it needs was meant to be there."""
    names = drawn.names | outside(drawn)
    here = {part: [name in names for name in pair] for part, pair in PARTS.items()}
    yield from (operation for operation, parts in _OF_PARTS.items() if all(any(here[part]) for part in parts))
    wheels = _as_wheels(drawn)
    yield from _linked_with(wheels)
    yield from ["nvdisasm"] * ("nvidia-cuda-nvdisasm" in wheels)
    yield from (operation for operation, parts in _OF_NVCC.items() if all(here[part][0] for part in parts))
    modules = dict.fromkeys(module for name in sorted(names) for module in PACKAGES[name].get("imports", ()))
    # pynvjitlink needs the driver's library
    yield from (f"imported {module}" for module in modules if module != "pynvjitlink" or drawn.driver)
    if drawn.driver:  # where both majors are, programs of each find their own
        once = [part for part in FIRST_CALL if part != "cudart" and sum(here[part]) == 1]
        yield from (f"begins {part}" for part in once if _is_whole(PARTS[part][not here[part][0]], wheels))
        yield from (step for module, step in (("rmm", "rmm-stream"), ("torch", "torch-cuda")) if module in modules)
        opens = {key: file for name in names for key, file in PACKAGES[name].get("opens", {}).items()}
        yield from (f"opened {part} {file}" for part, file in opens.items() if sum(here[part]) == 1)
    if names & _LINKING:
        yield "links"
    if {"numba-cuda", "cuda-bindings"} <= names:
        yield "numba-kernel"
    together = any(here["nvJitLink"][of] and here["cudart"][of] for of in (0, 1))
    if together and brings(drawn, "libcudadevrt.a"):
        yield "link-cudadevrt"
    if drawn.driver and any(here["cudart"]):
        yield "begins cudart"
    if drawn.driver and "cuda-bindings" in names:
        yield "runtime"
    if drawn.driver and any(here["nvrtc"]):
        yield "image"
    elif drawn.driver and any(here["nvJitLink"]):
        yield "linked-image"
    yield from (f"loaded linked_user/lib{kind}.so" for kind in ("rpath", "runpath") if kind in dict(drawn.damage))
    yield from ("files", "pip-check")


@dataclass
class Result:
    """An environment, what went wrong in it, and what was said about it."""

    recipe: Recipe
    failed: dict[str, str]  # operation and error
    tried: int  # operations
    codes: list[Any]  # the exit codes of doctor and audit
    said: list[str]  # the texts of what is red
    seconds: float
    repairs: list[str] = field(default_factory=list)  # the doctor's commands that were run
    left: dict[str, str] = field(default_factory=dict)  # what went wrong after them

    @property
    def broken(self) -> bool:
        return bool(self.failed)

    @property
    def red(self) -> bool:
        return 1 in self.codes

    @property
    def crashed(self) -> bool:
        return any(code not in (0, 1, 2) for code in self.codes)

    @property
    def agrees(self) -> bool:
        return self.broken == self.red and len({*self.codes}) == 1 and not self.crashed

    def __str__(self) -> str:
        wrong = "two verdicts" if self.broken == self.red else "false green" if self.broken else "false red"
        kind = "agreed" if self.agrees else "crash" if self.crashed else wrong
        lines = [f"{kind}: {self.recipe}", f"   exit codes {self.codes}"]
        lines += [f"   failed: {name}: {text}" for name, text in self.failed.items()]
        lines += [f"   said: {text}" for text in self.said]
        lines += [f"   repaired: {text}" for text in self.repairs]
        lines += [f"   still fails: {name}: {text}" for name, text in self.left.items()]
        return "\n".join(lines)


class Made:
    """An environment that was made of a recipe, and is asked."""

    def __init__(self, drawn: Recipe, folder: Path) -> None:
        self._drawn, self._folder = drawn, folder
        self._prefix = folder / "env"
        self._scratch = folder / "scratch"
        self._scratch.mkdir()
        others = ("CUDA", "LD_", "PYTHON", "VIRTUAL")
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        self._env |= make(drawn, self._prefix)
        cache, local, nothing = (folder / name for name in ("ld.so.cache", "local", "nothing"))
        mounts = [f"mount --bind {cache} /etc/ld.so.cache"] * cache.exists()
        mounts += [f"mount -t overlay overlay -o lowerdir={local}:/usr/local /usr/local"] * local.exists()
        nothing.mkdir()  # in place of the toolkits of this machine
        mounts += [f"mount --bind {nothing} {path}" for path in Path("/usr/local").glob("cuda-*") if path.is_dir()]
        script = " && ".join([*mounts, 'exec "$@"'])
        # what the machine has is as the environment's damage says, for its programs alone
        self._inside = ["unshare", *_AS_ROOT, "--mount", "sh", "-c", script, "sh"] if mounts else []

    def _run(self, *arguments: str) -> list[str]:
        """The lines that the environment's Python prints, on the declared driver."""
        command = [*self._inside, str(self._prefix / "bin" / "python"), *arguments]
        if self._drawn.driver:
            # a package that frees what the driver still holds is one that works, mostly
            driver = ("driver", "run", "--version", self._drawn.driver, "--checks=report")
            command = [sys.executable, "-m", "pytest_cudalink.cli", *driver, "--", *command]
        done = subprocess.run(
            command, env=self._env, cwd=self._prefix, capture_output=True, text=True, check=False, timeout=300
        )
        if done.returncode or not done.stdout:
            raise RuntimeError(f"{self._drawn}: {command} ends with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout.splitlines()

    def ask(self) -> tuple[list[Any], list[str], list[str]]:
        """Ask the doctor and the audit; return their exit codes, what is red, and the doctor's commands."""
        answers = json.loads(self._run("-c", _ASK)[-1])
        said, fixes = [], []
        for code, out, err in answers:
            try:
                findings = json.loads(out)["findings"]
            except ValueError:
                said.append(f"{code}: {out[:300]}{err[-600:]}")
                continue
            red = [finding for finding in findings if finding["severity"] in ("error", "unknown")]
            said += [f"{finding['severity']}: {finding['what']}" for finding in red]
            fixes += [finding["fix"] for finding in red if finding["severity"] == "error" and finding["fix"]]
        return [code for code, _, _ in answers], said, fixes

    def failed(self, wanted: Sequence[str]) -> dict[str, str]:
        """Do what users do; return what went wrong, by operation."""
        (site,) = self._prefix.glob("lib/python*/site-packages")
        names = self._drawn.names | outside(self._drawn)
        # cuobjdump and nvdisasm are in that folder, too
        of_13 = any((site / "nvidia" / "cu13" / "bin" / name).exists() for name in ("nvcc", "ptxas", "cudafe++"))
        toolkit = "cu13" if of_13 else "cuda_nvcc"
        plan = {
            "operations": wanted,
            "bindings": "cuda-bindings" in names,
            "linker": not names.isdisjoint(PARTS["nvJitLink"]),
            "driver": self._drawn.driver,
            "overwrites": any(v in PACKAGES[name].get("overwrites", ()) for name, v in self._drawn.packages),
            "scratch": str(self._scratch),
            "packages": str(site),
            "cubin": str(_CUBIN),
            "programs": str(site / "nvidia" / toolkit / "bin"),
            "files": used_files(self._drawn, site) if "files" in wanted else {},
        }
        file = self._folder / "plan.json"
        file.write_text(json.dumps(plan), encoding="utf-8")
        lines = self._run(str(_OPERATIONS), str(file))
        answers = dict(json.loads(line) for line in lines if line.startswith("["))
        if [*answers] != wanted:
            raise RuntimeError(f"{self._drawn}: {lines}")
        return {name: text for name, text in answers.items() if text is not None}

    def has(self, operation: str) -> bool:
        """Whether the file that an operation is about is in a wheel: those of CUDA 12 have none of them."""
        programs = {name: f"bin/{name.partition('-')[0]}" for name in ("ptxas", "nvdisasm", "nvcc", "nvcc-cccl")}
        file = {"link-cudadevrt": "lib/libcudadevrt.a", **programs}.get(operation)
        return file is None or any(self._prefix.glob(f"lib/python*/site-packages/nvidia/*/{file}"))

    def repair(self, fixes: Sequence[str]) -> list[str]:
        """Run the doctor's first command, and again while it has one; return the commands."""
        done = []
        while fixes and len(done) < _MOST_REPAIRS:
            done.append(fixes[0])
            subprocess.run(fixes[0], shell=True, env=self._env, capture_output=True, check=False)
            _, _, fixes = self.ask()
        return done


def try_one(drawn: Recipe, *, keep: bool = False, walk: bool = False) -> Result:
    """Make an environment, run the operations in it, and ask what is said of it; with `walk`, repair it, too."""
    began = time.monotonic()
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="made-", dir=CACHE))
    try:
        made = Made(drawn, folder)
        codes, said, fixes = made.ask()
        wanted = [*operations(drawn)]
        failed = made.failed(wanted)
        result = Result(drawn, failed, len(wanted), codes, said, 0.0)
        if walk and failed and fixes:
            result.repairs = made.repair(fixes)
            # the releases are others now, of which the recipe has no sizes, and which may have no such programs
            result.left = made.failed([step for step in wanted if step != "files" and made.has(step)])
        result.seconds = time.monotonic() - began
        return result
    finally:
        if keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def campaign(numbers: Sequence[int], options: argparse.Namespace) -> list[Result]:
    """Try the environments, as many as the time allows; print each disagreement."""
    end = time.monotonic() + (options.seconds or math.inf)

    def judged(number: int) -> Result | None:
        late = time.monotonic() > end
        return None if late else try_one(recipe(options.seed, number), walk=options.walk)

    results = []
    with ThreadPoolExecutor(options.processes) as pool:
        for result in filter(None, pool.map(judged, numbers)):
            results.append(result)
            if options.verbose or not result.agrees or result.left:
                print(result, flush=True)
    return results


def table(results: Sequence[Result]) -> str:
    """The table of agreement."""
    counts = Counter((result.broken, result.red) for result in results)
    agreed = sum(result.agrees for result in results)
    tried = sum(result.tried for result in results)
    walked = [result for result in results if result.repairs]
    repaired = f"\n  repaired           {sum(not result.left for result in walked):5}  of {len(walked)} with a command"
    return (
        f"{len(results)} environments, {tried} operations: agreement {100 * agreed / max(len(results), 1):.1f} %\n"
        f"  broken and red     {counts[True, True]:5}\n  sound and not red  {counts[False, False]:5}\n"
        f"  broken and not red {counts[True, False]:5}  (false green)\n"
        f"  sound and red      {counts[False, True]:5}  (false red)\n"
        f"  crashes            {sum(result.crashed for result in results):5}{repaired if walked else ''}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--verbose", action="store_true", help="print each environment")
    parser.add_argument("--walk", action="store_true", help="run the doctor's commands, and try again after them")
    parser.add_argument("--keep", action="store_true", help="try only the first, and keep it")
    parser.add_argument("--wheels", action="store_true", help="instead, hold the audit of wheels against what happens")
    options = parser.parse_args()
    if options.wheels:
        return wheels.main([])
    if options.keep:
        print(try_one(recipe(options.seed, options.first), keep=True))
        return 0
    began = time.monotonic()
    numbers = range(options.first, options.first + options.environments)
    results = campaign(numbers, options)
    date = dt.datetime.now(tz=dt.UTC).date()
    print(f"{table(results)}\nseed {options.seed}, {date}, {time.monotonic() - began:.0f} s")
    if len(results) < len(numbers):
        print(f"left out: {len(numbers) - len(results)} of {len(numbers)} environments, as the time was over")
    return 0 if results and all(result.agrees for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
