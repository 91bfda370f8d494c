"""What drivers without a GPU answer to one small suite of questions, and what a real driver answers.

``python benchmarks/answers.py --driver NAME=FOLDER ...`` asks the emulated driver, the libraries of each FOLDER, and
the machine's driver if it has a GPU. FOLDER has a ``libcuda.so.1``, a ``libnvidia-ml.so.1`` or both. A file
``environment`` in it has the variables that its project's instructions set, one ``NAME=VALUE`` a line; ``{folder}``
is the folder. Each question is asked in a process of its own. The answers are kept as JSON; nothing is timed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from questions import QUESTIONS

__all__ = ["main"]

OURS, REAL = "emulated driver", "real driver"
VERSION, DEVICE, ARCH = "13.0", "h100", "sm_90"


def write_inputs(folder: Path) -> None:
    """Write the device code that the questions use."""
    from pytest_cudalink.linker import Linker, LinkerOptions, sample

    for kind in ("ptx", "ltoir"):
        for name, code in zip(("main", "function"), sample.compile_modules(kind, ARCH), strict=True):
            (folder / f"{name}.{kind}").write_bytes(code.code + b"\0" * (kind == "ptx"))
    for name, arch in (("linked", ARCH), ("other", "sm_80")):
        codes = sample.compile_modules("cubin", arch)
        with Linker(*codes, options=LinkerOptions(arch=arch), backend="nvjitlink") as linker:
            (folder / f"{name}.cubin").write_bytes(linker.link("cubin").code)


def emulated() -> dict[str, str]:
    """Return the environment of our emulated driver."""
    from pytest_cudalink import emulator

    emulation = emulator.emulation_for(VERSION, device=DEVICE)
    assert not emulation.missing, emulation.missing
    return emulation.environment()


def variables(folder: Path) -> dict[str, str]:
    """Return the environment that makes programs find the libraries of a folder."""
    found = {"LD_LIBRARY_PATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])}
    file = folder / "environment"
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        name, _, value = line.partition("=")
        found[name] = value.replace("{folder}", str(folder))
    return found


def answer(inputs: Path, name: str, environment: dict[str, str]) -> str:
    """Ask one question in a process; return the answer, or how the process ended."""
    command = [sys.executable, str(Path(__file__).parent / "questions.py"), str(inputs), name]
    env = {**os.environ, **environment}
    try:
        # in the folder that is removed: FakeGPU leaves a report where the program runs
        done = subprocess.run(command, env=env, cwd=inputs, capture_output=True, text=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        return "no answer in 60 s"
    lines = [line for line in done.stdout.splitlines() if line.startswith("answer: ")]
    if lines:
        return lines[-1].removeprefix("answer: ")
    return f"crash: {signal.Signals(-done.returncode).name}" if done.returncode < 0 else f"exit {done.returncode}"


def main() -> int:
    """Ask every driver every question; keep the answers."""
    parser = measure.parser("answers", rounds=1, description=__doc__ or "")
    parser.add_argument("--driver", action="append", default=[], metavar="NAME=FOLDER", help="libraries to ask")
    options: argparse.Namespace = parser.parse_args()
    report = measure.Report("answers", f"Answers of drivers to {len(QUESTIONS)} questions")
    drivers = {OURS: emulated()}
    for one in options.driver:
        name, _, folder = one.partition("=")
        drivers[name] = variables(Path(folder).resolve())
    if not report.environment["device"].startswith("no GPU"):
        drivers[REAL] = {}
    answers: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        write_inputs(Path(scratch))
        for driver, environment in drivers.items():
            answers[driver] = {name: answer(Path(scratch), name, environment) for name in QUESTIONS}
    for name in QUESTIONS:
        print(f"{name}\n" + "".join(f"  {driver:20}{given[name]}\n" for driver, given in answers.items()), end="")
    report.fact("answers", answers)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
