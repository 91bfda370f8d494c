"""Run the campaign and print how far ``cudalink`` agrees with what happens; see the package.

    python -m campaigns.environments [--environments=1000] [--first=0] [--seed=1] [--seconds=N] [--processes=N]

Exit code 1: an environment in which something fails and nothing is red, or one in which all works and something is red.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from campaigns.environments.generator import CACHE, PACKAGES, PARTS, Recipe, brings, make, recipe, used_files

_OPERATIONS: Final = Path(__file__).with_name("operations.py")
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
_OF_NVCC: Final = {
    "nvcc": ("nvcc", "nvvm", "crt", "cudart"),
    "nvcc-cccl": ("nvcc", "nvvm", "crt", "cudart", "cccl"),
}
#: Packages that link at run time.
_LINKING: Final = frozenset({"cuda-core", "numba-cuda", "nvmath-python", "cuda-cccl"})


def outside(drawn: Recipe) -> set[str]:
    """The packages of which variables name the libraries; of a whole toolkit those that programs load together."""
    named = {name for kind, what in drawn.damage if kind in ("library-path", "toolkit") for name, _ in what}
    return named & {name for part in ("nvrtc", "nvJitLink") for name in PARTS[part]}


def operations(drawn: Recipe) -> Iterator[str]:
    """Yield what users of an environment do: only that for which all that it needs was meant to be there."""
    names = drawn.names | outside(drawn)
    here = {part: [name in names for name in pair] for part, pair in PARTS.items()}
    yield from (one for one, parts in _OF_PARTS.items() if all(any(here[part]) for part in parts))
    yield from (one for one, parts in _OF_NVCC.items() if all(here[part][0] for part in parts))
    modules = dict.fromkeys(module for name in sorted(names) for module in PACKAGES[name].get("imports", ()))
    # pynvjitlink needs the driver's library
    yield from (f"imported {module}" for module in modules if module != "pynvjitlink" or drawn.driver)
    if names & _LINKING:
        yield "links"
    together = any(here["nvJitLink"][of] and here["cudart"][of] for of in (0, 1))
    if together and brings(drawn, "libcudadevrt.a"):
        yield "link-cudadevrt"
    if drawn.driver and (any(here["cudart"]) or "cuda-bindings" in names):
        yield "runtime"
    if drawn.driver and any(here["nvrtc"]):
        yield "image"
    yield from ("files", "pip-check")


@dataclass
class Result:
    """An environment, what went wrong in it, and what was said about it."""

    recipe: Recipe
    failed: dict[str, str]  # operation and error
    tried: int  # operations
    codes: list[Any]  # the exit codes of doctor and audit
    said: list[str]  # the texts of what is red
    fixes: list[str]
    seconds: float

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
        return self.broken == self.red and not self.crashed

    def __str__(self) -> str:
        kind = "crash" if self.crashed else "false green" if self.broken else "false red"
        lines = [f"{kind if not self.agrees else 'agreed'}: {self.recipe}", f"   exit codes {self.codes}"]
        lines += [f"   failed: {name}: {text}" for name, text in self.failed.items()]
        lines += [f"   said: {text}" for text in self.said]
        return "\n".join(lines)


def _run(command: Sequence[str], drawn: Recipe, env: dict[str, str], cwd: Path) -> str:
    if drawn.driver:
        driver = (sys.executable, "-m", "pytest_cudalink.cli", "driver", "run", "--version", drawn.driver, "--")
        command = (*driver, *command)
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode or not done.stdout:
        raise RuntimeError(f"{drawn}: {command} ends with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def _ask(drawn: Recipe, python: str, env: dict[str, str], prefix: Path) -> tuple[list[Any], list[str], list[str]]:
    """Ask the doctor and the audit; return their exit codes, what is red, and the commands of the doctor."""
    answers = json.loads(_run((python, "-c", _ASK), drawn, env, prefix).splitlines()[-1])
    said, fixes = [], []
    codes = [code for code, _, _ in answers]
    for code, out, err in answers:
        try:
            found = json.loads(out)["findings"]
        except ValueError:
            said.append(f"{code}: {out[:300]}{err[-600:]}")
            continue
        for one in found:
            if one["severity"] in ("incoherent", "unknown", "conflict"):
                said.append(f"{one['severity']}: {one['text']}")
                if one["severity"] == "incoherent" and one["fix"]:
                    fixes.append(one["fix"])
    return codes, said, fixes


def try_one(drawn: Recipe, keep: bool = False) -> Result:
    """Make an environment, run the operations in it, and ask what is said of it."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="made-", dir=CACHE))
    try:
        prefix = folder / "env"
        variables = make(drawn, prefix)
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("CUDA", "LD_", "PYTHON", "VIRTUAL"))
        }
        env |= variables
        python = str(prefix / "bin" / "python")
        codes, said, fixes = _ask(drawn, python, env, prefix)
        (folder / "scratch").mkdir()
        plan = {
            "operations": [*operations(drawn)],
            "bindings": "cuda-bindings" in drawn.names,
            "linker": not (drawn.names | outside(drawn)).isdisjoint(PARTS["nvJitLink"]),
            "driver": drawn.driver,
            "scratch": str(folder / "scratch"),
            "programs": _programs(prefix, drawn),
            "files": used_files(drawn, _site(prefix)),
        }
        (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        lines = _run((python, str(_OPERATIONS), str(folder / "plan.json")), drawn, env, prefix).splitlines()
        answers = dict(json.loads(line) for line in lines if line.startswith("["))
        if [*answers] != plan["operations"]:
            raise RuntimeError(f"{drawn}: {lines}")
        failed = {name: text for name, text in answers.items() if text is not None}
        return Result(drawn, failed, len(answers), codes, said, fixes, time.monotonic() - began)
    finally:
        if keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _site(prefix: Path) -> Path:
    return next(prefix.glob("lib/python*/site-packages"))


def _programs(prefix: Path, drawn: Recipe) -> str:
    """The folder with the compilers of the wheels."""
    return str(_site(prefix) / "nvidia" / ("cu13" if "nvidia-cuda-nvcc" in drawn.names else "cuda_nvcc") / "bin")


def campaign(
    numbers: Sequence[int],
    seed: int,
    processes: int,
    seconds: float | None = None,
    save: Path | None = None,
    *,
    verbose: bool = False,
) -> list[Result]:
    """Try the environments, as many as the time allows; print each disagreement."""
    end = time.monotonic() + seconds if seconds else None

    def one(number: int) -> Result | None:
        if end is not None and time.monotonic() > end:
            return None
        return try_one(recipe(seed, number))

    results = []
    with ThreadPoolExecutor(processes) as pool:
        for result in filter(None, pool.map(one, numbers)):
            results.append(result)
            if verbose or not result.agrees:
                print(result, flush=True)
            if save:
                with save.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(asdict(result)) + "\n")
    return results


def table(results: Sequence[Result]) -> str:
    """The table of agreement."""
    counts = Counter((one.broken, one.red) for one in results)
    agreed = sum(one.agrees for one in results)
    tried = sum(one.tried for one in results)
    return (
        f"{len(results)} environments, {tried} operations: agreement {100 * agreed / max(len(results), 1):.1f} %\n"
        f"  broken and red     {counts[True, True]:5}\n  sound and not red  {counts[False, False]:5}\n"
        f"  broken and not red {counts[True, False]:5}  (false green)\n"
        f"  sound and red      {counts[False, True]:5}  (false red)\n"
        f"  crashes            {sum(one.crashed for one in results):5}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--verbose", action="store_true", help="print each environment")
    parser.add_argument("--keep", action="store_true", help="try only the first, and keep it")
    parser.add_argument("--only", type=lambda text: [*map(int, text.split(","))], help="these numbers")
    parser.add_argument("--save", type=Path, help="append each result to this file")
    options = parser.parse_args()
    if options.keep:
        print(try_one(recipe(options.seed, options.first), keep=True))
        return 0
    began = time.monotonic()
    numbers = range(options.first, options.first + options.environments)
    results = campaign(
        options.only or numbers, options.seed, options.processes, options.seconds, options.save, verbose=options.verbose
    )
    date = dt.datetime.now(tz=dt.UTC).date()
    print(f"{table(results)}\nseed {options.seed}, {date}, {time.monotonic() - began:.0f} s")
    return 0 if results and all(one.agrees for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
