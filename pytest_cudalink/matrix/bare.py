"""The steps of a bare cell: imports and a command, run from outside of the cell's environment and recorded like tests.

The environment has neither pytest nor this package. So the runner's Python hides what the cell hides, starts each step
with the Python of the environment, and writes the record that the plugin writes elsewhere.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..compat import names
from . import hiding
from .cell_facts import cell_facts

if TYPE_CHECKING:
    from ..report import Writer
    from ..report.events import VersionRecord

__all__ = ["environment_python", "run"]

_LONGEST: Final = 4000
#: Variables by which a program finds a toolkit or code that the environment does not have.
_OUTSIDE: Final = (
    *("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDAToolkit_ROOT"),
    *("CUDACXX", "NVCC", "CONDA_PREFIX"),
)
#: Prints what the environment has. The driver is asked as its users ask it, so that an emulated one answers, too.
_FACTS: Final = """
import ctypes, json, platform, importlib.metadata as metadata
found = {"python": platform.python_version(), "driver": None, "emulated": False, "packages": {}}
for one in metadata.distributions():
    found["packages"].setdefault(str(one.metadata["Name"]).lower().replace("_", "-").replace(".", "-"), one.version)
try:
    driver, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)) == 0:
        found["driver"] = f"{version.value // 1000}.{version.value % 1000 // 10}"
        found["emulated"] = hasattr(driver, "cudalinkEmulatorVersion")
except (OSError, AttributeError):
    pass
print(json.dumps(found))
"""


@dataclass(frozen=True)
class _Step:
    """One step: its node ID in the record, the program, and the folder that it runs in; None for an empty one."""

    nodeid: str
    program: Sequence[str]
    folder: str | None = None


def environment_python() -> str:
    """Return the Python of the environment that a runner has put first on the PATH; empty without one."""
    return shutil.which("python") or ""


def run(keys: Mapping[str, Any], environment: MutableMapping[str, str] = os.environ, python: str = "") -> int:
    """Run the steps of a bare cell, and record them; return 0 if all pass, 1 if one fails, 2 if none can run.

    Parameters
    ----------
    keys : mapping
        ``imports``, ``command`` and ``hidden`` of the cell, and the axes and packages of its record.
    environment : mutable mapping
        The environment of the run, as `Cell.environment` describes the cell.
    python : str, optional
        Python of the cell's environment; default the one on the PATH.
    """
    from ..emulator import EmulatorError
    from ..report import Writer

    began = time.time()
    python = python or environment_python()
    if not python or Path(python).absolute() == Path(sys.executable).absolute():
        sys.stderr.write(
            f"cudalink: the Python of the cell's environment is {python or 'not on the PATH'}; expected another than "
            "that of the runner; run the cell with nox or tox, or name it with --python\n"
        )
        return 2
    try:
        for name in _OUTSIDE:
            environment.pop(name, None)
        hidden = hiding.hide(keys.get("hidden", ()), environment)
        environment.update(_driver(environment))
    except (hiding.HidingError, EmulatorError) as error:
        sys.stderr.write(f"cudalink: {error}\n")
        return 2
    if keys.get("hidden"):
        sys.stderr.write(f"cudalink: {hidden}\n")
    environment.update(PYTHONSAFEPATH="1", PYTHONNOUSERSITE="1")
    facts = _facts(python, environment)
    if facts is None:
        sys.stderr.write(f"cudalink: {python} does not start\n")
        return 2
    steps = [_Step(f"import::{name}", (python, "-c", f"import {name}")) for name in keys.get("imports", ())]
    if command := keys.get("command"):
        steps.append(_Step(f"command::{command}", shlex.split(command), str(Path.cwd())))
    with Writer(environment["CUDALINK_REPORT"], anew=True) as writer:
        _write_run(writer, environment, facts, hidden)
        tests: dict[str, list[str]] = {}
        for step in steps:
            kind, _, name = step.nodeid.partition("::")
            tests.setdefault(kind, []).append(name)
        writer.write("collected", tests=tests)
        outcomes = [_run_step(writer, step, environment) for step in steps]
        failed = any(outcome != "passed" for outcome in outcomes)
        counts = {outcome: outcomes.count(outcome) for outcome in outcomes}
        writer.write("end", exitstatus=int(failed), duration=time.time() - began, counts=counts)
    return int(failed)


def _driver(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which every program finds the driver that the cell asks for, from outside."""
    from ..emulator import emulation_for, library_folder

    version = environment.get(names.VARIABLES["driver"], "auto")
    if version in ("auto", "real"):
        return {}
    if version == "absent":
        return {"LD_LIBRARY_PATH": str(library_folder(absent=True))}
    arch = environment.get(names.VARIABLES["arch"]) or names.DEFAULT_ARCHITECTURE
    # by its path, so that a library which names other folders to the loader gets this driver, too
    preloaded = {"LD_PRELOAD": str(library_folder() / "libcuda.so.1"), "LD_LIBRARY_PATH": str(library_folder())}
    return {**emulation_for(version, arch=arch, lifetime="report").environment(), **preloaded}


def _facts(python: str, environment: Mapping[str, str]) -> dict[str, Any] | None:
    """Return what the environment has; None if its Python does not start."""
    with tempfile.TemporaryDirectory() as empty:
        try:
            done = subprocess.run(  # noqa: S603
                [python, "-c", _FACTS], cwd=empty, env=dict(environment), capture_output=True, text=True, check=True
            )
            found: dict[str, Any] = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.CalledProcessError):
            return None
    return found


def _write_run(
    writer: Writer,
    environment: Mapping[str, str],
    facts: Mapping[str, Any],
    hidden: hiding.Hidden,
) -> None:
    asked = environment.get(names.VARIABLES["driver"])
    kind = "absent" if facts["driver"] is None else "emulated" if facts["emulated"] else "real"
    driver: VersionRecord = {
        "requested": asked,
        "found": facts["driver"],
        "source": "cuDriverGetVersion",
        "kind": kind,
    }
    cell = cell_facts(facts["packages"].get, environment, hidden)
    writer.write(
        "run",
        schema=1,
        run=uuid.uuid4().hex,
        cell=environment.get("CUDALINK_CELL"),
        worker=None,
        python=facts["python"],
        platform=f"{sys.platform}-{platform.machine()}",
        pytest="",
        argv=[],
        settings={},
        versions={"driver": driver, **cell.versions},
        arch={"requested": environment.get(names.VARIABLES["arch"]), "found": None},
        facts={"packages": facts["packages"]},
        axes=dict(cell.axes),
        hidden=cell.hidden,
    )


def _run_step(writer: Writer, step: _Step, environment: Mapping[str, str]) -> str:
    """Run one step, record it, and return its outcome."""
    writer.write("start", nodeid=step.nodeid, worker=None, attempt=1)
    began = time.monotonic()
    code, output = _output(step, environment)
    duration = time.monotonic() - began
    outcome = "passed" if code == 0 else "failed"
    if code < 0:
        outcome = "crashed"
        name = signal.Signals(-code).name if -code in set(signal.Signals) else None
        writer.write("crash", nodeid=step.nodeid, worker=None, signal=name, exitcode=None, last_events=[])
    lines = [line for line in output.splitlines() if line.strip()]
    ended = f"was killed by signal {-code}" if code < 0 else f"exit code {code}"
    reason = "" if code == 0 else (lines[-1].strip() if lines else ended)
    shown = output if len(output) <= _LONGEST else f"…{output[1 - _LONGEST :]}"
    writer.write(
        "test",
        nodeid=step.nodeid,
        worker=None,
        attempt=1,
        outcome=outcome,
        duration=duration,
        reason=reason,
        longrepr="" if code == 0 else shown,
        backends={},
        links=0,
        violations=0,
        documented=None,
        missing=None,
        subtests=[],
    )
    sys.stdout.write(f"{step.nodeid.replace('::', ' ', 1)}: {outcome}\n")
    if code != 0:
        sys.stdout.write(output if output.endswith("\n") or not output else f"{output}\n")
    sys.stdout.flush()
    return outcome


def _output(step: _Step, environment: Mapping[str, str]) -> tuple[int, str]:
    """Return exit code and output of a step; 127 with the reason for a program that cannot be started."""
    with tempfile.TemporaryDirectory() as empty:
        program = shutil.which(step.program[0], path=environment.get("PATH")) or step.program[0]
        try:
            done = subprocess.run(  # noqa: S603 (the user's program)
                [program, *step.program[1:]],
                cwd=step.folder or empty,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
            )
        except OSError as error:
            return 127, f"{step.program[0]} cannot be run: {error.strerror}"
    return done.returncode, done.stdout
