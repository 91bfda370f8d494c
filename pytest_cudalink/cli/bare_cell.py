"""``python -m pytest_cudalink.cli.bare_cell``: the steps of a bare cell, and the libraries that they load.

The steps are imports and a command, recorded like tests. The environment of the cell has neither pytest nor this
package, so that they are run from outside: the runner's Python hides what the cell hides, starts each step with the
Python of the environment, and writes the record that the plugin writes elsewhere. The loader itself lists what the
steps and their children load. The runners start this module; the keys of the cell come from the environment.
"""

from __future__ import annotations

import ast
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypedDict

from ..base import scratch
from ..base.process_end import ending, signal_name
from ..base.safe_text import block
from ..base.tables import grouped
from ..emulator import EmulatorError, emulation_for, library_folder
from ..guardrails import provenance
from ..loader import loader_log
from ..loader.loads import Opening
from ..matrix import hiding, importing
from ..matrix.cell_facts import cell_facts
from ..matrix.cells import RunKeys
from ..report import origin, records

_LONGEST: Final = 4000
#: Variables by which a program finds a toolkit or code that the environment does not have.
_OUTSIDE: Final = (
    *("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDAToolkit_ROOT"),
    *("CUDACXX", "NVCC", "CONDA_PREFIX"),
)
#: Prints what the environment has. The driver is asked as its users ask it, so that an emulated one answers, too.
_FACTS: Final = """
import ctypes, json, platform, site, sys, importlib.metadata as metadata
found = {"python": platform.python_version(), "driver": None, "emulated": False, "packages": {}}
found["sites"] = [*site.getsitepackages(), *sys.path]
found["prefixes"] = [sys.prefix, sys.base_prefix]
for one in metadata.distributions():
    said = one.metadata or {}
    if name := said.get("Name"):  # what is left of a package may have none
        found["packages"].setdefault(name.lower().replace("_", "-").replace(".", "-"), said.get("Version", ""))
try:
    driver, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)) == 0:
        found["driver"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
        found["emulated"] = hasattr(driver, "cudalinkEmulatorVersion")
except (OSError, AttributeError):
    pass
print(json.dumps(found))
"""


#: Imports the module that the first argument names, and writes what ctypes opens into the file of the second.
_IMPORT: Final = Path(importing.__file__)
_PROVENANCE: Final = "CUDALINK_PROVENANCE"


@dataclass(frozen=True)
class _Step:
    """One step: its node ID in the record, the program, and the folder that it runs in; None for an empty one."""

    nodeid: str
    program: Sequence[str]
    folder: str | None = None


class EnvironmentFacts(TypedDict):
    """What the environment of a cell has; the places of its packages and of its Python are ``sites``, ``prefixes``."""

    python: str
    driver: str | None
    emulated: bool
    packages: dict[str, str]
    sites: list[str]
    prefixes: list[str]


class LoadReport(NamedTuple):
    """The CUDA libraries of a step for its record, what fails the step, and what is only said."""

    libraries: Sequence[Mapping[str, Any]] = ()
    problems: Sequence[str] = ()
    notes: Sequence[str] = ()


def run(keys: RunKeys, environment: MutableMapping[str, str] = os.environ) -> int:
    """Run the steps of a bare cell, and record them; return 0 if all pass, 1 if one fails, 2 if none can run.

    `keys`: of the cell.
    `environment`: the environment of the run, as `Cell.environment` describes the cell.
    """
    began = time.time()
    python = shutil.which("python")  # that of the environment: the runner has put it first on the PATH
    if python is None or Path(python).absolute() == Path(sys.executable).absolute():
        fault = f"the Python of the cell's environment is {python or 'not on the PATH'}"
        do = "expected another than that of the runner; run the cell with nox or tox"
        sys.stderr.write(f"cudalink: {fault}; {do}\n")
        return 2
    try:
        for name in _OUTSIDE:
            environment.pop(name, None)
        hidden = hiding.hide(keys.hidden, environment)
        environment.update(_driver(environment))
    except (hiding.HidingError, EmulatorError) as error:
        sys.stderr.write(f"cudalink: {error}\n")
        return 2
    if keys.hidden:
        sys.stderr.write(f"cudalink: {hidden}\n")
    # a command finds the programs of the environment, as after its activation
    path = f"{os.path.dirname(python)}{os.pathsep}{environment.get('PATH', '')}"  # noqa: PTH120
    environment.update(PYTHONSAFEPATH="1", PYTHONNOUSERSITE="1", PATH=path)
    facts = _facts(python, environment)
    if facts is None:
        sys.stderr.write(f"cudalink: {python} does not start\n")
        return 2
    text = _IMPORT.read_text(encoding="utf-8")
    steps = [_Step(f"import::{name}", (python, "-c", text, name)) for name in keys.imports]
    if keys.command:
        steps.append(_Step(f"command::{keys.command}", shlex.split(keys.command), str(Path.cwd())))
    with records.Writer(environment["CUDALINK_REPORT"], truncate=True) as writer:
        _write_run(writer, environment, facts, hidden)
        tests = grouped((kind, name) for kind, _, name in (step.nodeid.partition("::") for step in steps))
        writer.write(records.CollectedRecord(tests=tests))
        outcomes = [_run_step(writer, step, environment, facts) for step in steps]
        failed = any(outcome != "passed" for outcome in outcomes)
        counts = {outcome: outcomes.count(outcome) for outcome in outcomes}
        writer.write(records.EndRecord(exitstatus=int(failed), duration=time.time() - began, counts=counts))
    return int(failed)


def _driver(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which every program finds the driver that the cell asks for, from outside."""
    version = environment.get("CUDALINK_DRIVER", "auto")
    if version in ("auto", "real"):
        return {}
    if version == "absent":
        return {"LD_LIBRARY_PATH": str(library_folder(absent=True))}
    device = environment.get("CUDALINK_DEVICE", "")
    # by its path, so that a library which names other folders to the loader gets this driver, too
    preloaded = {"LD_PRELOAD": str(library_folder() / "libcuda.so.1"), "LD_LIBRARY_PATH": str(library_folder())}
    return {**emulation_for(version, device=device).environment(), **preloaded}


def _facts(python: str, environment: Mapping[str, str]) -> EnvironmentFacts | None:
    """Return what the environment has; None if its Python does not start."""
    with tempfile.TemporaryDirectory(dir=scratch.root()) as empty:
        try:
            done = subprocess.run(  # noqa: S603
                [python, "-c", _FACTS], cwd=empty, env=dict(environment), capture_output=True, text=True, check=True
            )
            facts: EnvironmentFacts = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.CalledProcessError):
            return None
    return facts


def _write_run(
    writer: records.Writer,
    environment: Mapping[str, str],
    facts: EnvironmentFacts,
    hidden: hiding.Hidden,
) -> None:
    asked = environment.get("CUDALINK_DRIVER")
    kind = "absent" if facts["driver"] is None else "emulated" if facts["emulated"] else "real"
    driver = records.VersionRecord(requested=asked, found=facts["driver"], source="cuDriverGetVersion", kind=kind)
    cell = cell_facts(facts["packages"].get, environment, hidden)
    writer.write(
        origin.run_record(
            Path.cwd(),
            environment,
            python=facts["python"],
            versions={"driver": driver, **cell.versions},
            arch={"requested": environment.get("CUDALINK_DEVICE"), "found": None},
            facts={"packages": facts["packages"]},
            axes=dict(cell.axes),
            hidden=cell.hidden,
        )
    )


def _run_step(writer: records.Writer, step: _Step, environment: Mapping[str, str], facts: EnvironmentFacts) -> str:
    """Run one step, record it, and return its outcome."""
    writer.write(records.StartRecord(nodeid=step.nodeid))
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=scratch.root()) as place:
        code, output, pid = _run(step, environment, Path(place))
        duration = time.monotonic() - began
        report = LoadReport() if pid is None else _judge(step, environment, facts, Path(place), pid)
    for library in report.libraries:
        writer.write(records.LibraryRecord(nodeid=step.nodeid, during="call", **library))
    problems = "".join(block(f"cudalink: {text}\n") for text in report.problems)
    outcome: Literal["passed", "failed", "crashed"] = "passed" if code == 0 and not problems else "failed"
    if code < 0:
        outcome = "crashed"
        writer.write(records.CrashRecord(nodeid=step.nodeid, signal=signal_name(code)))
    output = output if output.endswith("\n") or not output else f"{output}\n"
    text = f"{output}{problems}"
    shown = text if len(text) <= _LONGEST else f"…{text[1 - _LONGEST :]}"
    reason, longrepr = _reason(code, output, report), "" if outcome == "passed" else shown
    test = records.TestRecord(nodeid=step.nodeid, outcome=outcome, duration=duration, reason=reason, longrepr=longrepr)
    writer.write(test)
    sys.stdout.write(block(f"{step.nodeid.replace('::', ' ', 1)}: {outcome}\n"))
    sys.stdout.write("".join(block(f"cudalink: {text}\n") for text in report.notes))
    sys.stdout.write("" if outcome == "passed" else block(text, len(text)))
    sys.stdout.flush()
    return outcome


def _reason(code: int, output: str, report: LoadReport) -> str:
    """Return why a step failed, in a line; of one that passed, what is said of its libraries."""
    if code == 0:
        return next((text.splitlines()[0] for text in (*report.problems, *report.notes)), "")
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ending(code)


def _run(step: _Step, environment: Mapping[str, str], place: Path) -> tuple[int, str, int | None]:
    """Return exit code and output of a step, and its process; 127 with the reason for one that cannot start.

    `place`: a folder for what the loader writes, in files ``loader.PID``, and for what an import writes: ``opened`` has
    a line for each library that ctypes opened, with its name, the place in the code, and what opened it for that place.
    """
    (place / "empty").mkdir()
    program = shutil.which(step.program[0], path=environment.get("PATH")) or step.program[0]
    arguments = [*step.program[1:], *([str(place / "opened")] if step.nodeid.startswith("import::") else [])]
    try:
        process = subprocess.Popen(  # noqa: S603 (the user's program)
            [program, *arguments],
            cwd=step.folder or str(place / "empty"),
            env={**environment, "LD_DEBUG": "files,libs", "LD_DEBUG_OUTPUT": str(place / "loader")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return 127, f"{step.program[0]} cannot be run: {error.strerror}", None
    with process:
        output, _ = process.communicate()
    return process.returncode, output, process.pid


def _judge(step: _Step, environment: Mapping[str, str], facts: EnvironmentFacts, place: Path, pid: int) -> LoadReport:
    """Return the CUDA libraries that a step has loaded, with what the plugin would say of them in a test."""
    process = provenance.ProcessEnvironment.of(facts["sites"], facts["prefixes"], environment)
    expected = environment.get(_PROVENANCE) or "any"
    asked = f"{expected} (from environment {_PROVENANCE})"
    loaded: dict[provenance.Library, None] = {}
    told: list[str] = []
    preloaded = environment.get("LD_PRELOAD", "").split()
    listing = loader_log.listing(place / "loader", pid, step.folder or str(place / "empty"), preloaded)
    openings = _openings(place / "opened")
    for image in listing.images:
        libraries = _libraries(image, openings, process)
        loaded |= dict.fromkeys(libraries)
        copies = [(library, f"by {step.nodeid}") for library in libraries]
        for number, copy in enumerate(copies):
            told += provenance.faults(copy, copies[:number], expected, asked, process)
    if listing.fault:
        why = "" if expected == "any" else f"\n  --cudalink-provenance is {asked}"
        told.append(f"the CUDA libraries of {step.nodeid} cannot be listed: {listing.fault}{why}")
    texts = list(dict.fromkeys(told))  # forked children have what their parents have
    problems, notes = ([], texts) if expected == "any" else (texts, [])
    return LoadReport([*map(_record, loaded)], problems, notes)


def _openings(file: Path) -> list[Opening]:
    """Return what `matrix.importing` wrote; nothing where an import opened nothing."""
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    return [Opening(*ast.literal_eval(line)) for line in lines]


def _libraries(
    image: loader_log.LoadedImage, openings: Sequence[Opening], process: provenance.ProcessEnvironment
) -> list[provenance.Library]:
    """Return the CUDA libraries of a program."""
    # what Python code opened comes first: the loader knows only that ctypes did
    every = [*openings, *(opening._replace(through=provenance.shown(opening.through)) for opening in image.openings)]
    described = (provenance.describe(loaded, image.objects, every, process) for loaded in image.objects)
    return [library for library in described if library is not None]


def _record(library: provenance.Library) -> dict[str, str]:
    """Return what a record has of a library."""
    names = ("name", "soname", "path", "real_path", "place", "owner", "version", "witness", "for_whom")
    return {name: getattr(library, name) for name in names}


if __name__ == "__main__":
    sys.exit(run(RunKeys.read(os.environ)))
