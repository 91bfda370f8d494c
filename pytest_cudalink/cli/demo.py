"""``cudalink demo``."""

import argparse
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Final

from ..base import scratch
from ..base.progress import progress
from ..emulator import Emulation, EmulatorError, emulation_for, library_folder, release_of, supported_versions
from ..linker import sample
from ..linker.errors import CompileError
from ..linker.sample import Machine, compile_kernel
from ..targets.base import Backend
from ..versions import CudaVersion
from .arguments import CommandError, command_errors

DESCRIPTION: Final = (
    "Compile two CUDA C++ units with NVRTC, link them as PTX and as LTO-IR, and prove the results: from the images, "
    "and on a GPU by running the kernel. Then show how and why the code fails for a user whose driver has an older "
    "major version. This needs no GPU. Exit code 1: a proof failed, 2: something is not installed, or an option is "
    "invalid."
)

_MODES: Final = {"ptx": "PTX without LTO", "ltoir": "LTO-IR with LTO"}
_WIDTH: Final = 80
_ERROR: Final = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
#: Driver that is emulated for a toolkit of each major version; the newest of the major before it.
_OLDER: Final = {13: "12.9", 12: "12.0"}
#: Variables that the test does not inherit: they could choose another driver, or make pytest write longer lines.
_NOT_PASSED: Final = re.compile("PYTEST_|CUDALINK_(?!CACHE)|(CI|BUILD_NUMBER)$")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--arch", help="compile for this architecture (default: the device's, else sm_90)")
    parser.add_argument("--backend", choices=("driver", "nvjitlink"), help="force the linker that links the PTX")


def run(options: argparse.Namespace) -> int:
    """Print the report of the sample; exit code 2 for an invalid option, or if the compiler is not installed."""
    try:
        kernel = compile_kernel()
    except CompileError:
        raise
    except RuntimeError as error:
        raise CommandError(error) from error
    with command_errors(ValueError):
        return report(options.arch, options.backend, kernel=kernel)


def report(
    arch: str | None = None,
    backend: Backend | None = None,
    write: Callable[[str], object] = print,
    *,
    kernel: bytes | None = None,
) -> int:
    """Write the facts, a proof of each way of linking, and the failure on an older driver; the exit code is 1 or 0.

    `arch`: default: that of the device, else sm_90.
    `backend`: forces the linker of the PTX link; LTO-IR always needs nvJitLink.
    `write`: receives each line.
    `kernel`: PTX to load on an older driver; without it that part is left out.
    Raises ValueError if the architecture is unknown.
    """
    machine = sample.describe_machine(arch)
    write(_facts(machine))
    write("")
    write("1. Two units of CUDA C++, compiled apart by NVRTC and linked")
    failures, said = 0, ""
    for mode in sample.MODES:
        with progress(f"linking {_MODES[mode]}") as step:
            outcome = sample.link_and_prove(mode, machine, backend if mode == "ptx" else None, step.say)
        failures += not outcome.ok
        mark = "ok  " if outcome.ok else "FAIL"
        _fill(write, f"   {mark} ", f"{_MODES[mode]}: {outcome.text}")
        if (why := outcome.why or "not linked") != said:
            _fill(write, "        ", why)
        said = why
    if not machine.runs_the_image:
        reason = "the driver is emulated and runs no kernels" if machine.emulated else "no GPU of that architecture"
        _fill(write, "   ", f"{reason}: the images are the proof, no kernel was launched")
    if kernel is not None and not machine.emulated:
        failures += not _show_skew(machine, write)
    return 1 if failures else 0


def _facts(machine: Machine) -> str:
    facts = {
        "driver": f"CUDA {machine.driver}{' (emulated)' if machine.emulated else ''}" if machine.driver else None,
        "device": machine.device,
        "nvJitLink": machine.nvjitlink,
        "arch": machine.arch,
    }
    return ", ".join(f"{name}: {value or 'none'}" for name, value in facts.items())


def _fill(write: Callable[[str], object], start: str, text: str) -> None:
    """Write a text on as many lines as it needs."""
    wrap = textwrap.TextWrapper(
        _WIDTH, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False
    )
    for part in text.splitlines() or [""]:
        for line in wrap.wrap(part) or [start.rstrip()]:
            write(line)
        wrap.initial_indent = wrap.subsequent_indent


def _show_skew(machine: Machine, write: Callable[[str], object]) -> bool:
    """Run a test of the kernel on an older driver, whose report says why it fails; return whether it did."""
    maker = machine.nvjitlink
    if maker is None or maker.major not in _OLDER:
        return True
    try:
        library_folder()
        older = emulation_for(_OLDER[maker.major])
        newer = emulation_for(maker) if maker in supported_versions() else older
    except EmulatorError as error:  # the libraries are not built
        write("")
        _fill(write, "2. ", f"Older drivers are not shown: {error}")
        return True
    write("")
    _fill(
        write, "2. ", f"The kernel for a user whose driver is older: CUDA {older.version} ({release_of(older.version)})"
    )
    with progress("running a test on emulated drivers"):
        done = _run_test(older)
        passed = None if newer.lacks or newer is older else _run_test(newer)
    write("")
    write(f"   $ {_command(older.version)} -q test_kernel.py")
    for line in done.stdout.splitlines():  # those that explain the failure are longer
        _fill(write, f"   {line[:7]}", line[7:])
    expected = done.returncode == 1 and f"error  {_ERROR}" in done.stdout and "1 failed" in done.stdout
    if not expected:
        _fill(write, "   FAIL ", f"{_ERROR} was expected; pytest ended with {done.returncode} {done.stderr}")
        return False
    if passed is not None:
        write("")
        write(f"   $ {_command(newer.version)} -q test_kernel.py")
        write(f"   {passed.stdout.splitlines()[-1] if passed.stdout.strip() else ''}")
        if passed.returncode:
            _fill(write, "   FAIL ", f"the test was expected to pass; pytest ended with {passed.returncode}")
            return False
    write("")
    versions = supported_versions()
    drivers = f"drivers of CUDA {versions[0]} to {versions[-1]}"
    _fill(write, "   test   ", f"your own code, without a GPU, on {drivers}:\n{_command(older.version)}")
    return True


def _command(driver: CudaVersion) -> str:
    return f"pytest --cudalink-driver={driver}"


def _run_test(emulation: Emulation) -> subprocess.CompletedProcess[str]:
    """Run the sample's test on an emulated driver; nothing is fetched for it."""
    folder = scratch.fresh("demo")
    (folder / "test_kernel.py").write_text(sample.SKEW_TEST, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not _NOT_PASSED.match(name)}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": str(_WIDTH - 3), "CUDALINK_TOOLCHAINS": "never"}
    option = _command(emulation.version).removeprefix("pytest ")
    words = ["-pcudalink", option, "-q", "-pno:cacheprovider", "--color=no", "test_kernel.py"]
    return subprocess.run(  # noqa: S603 (our own test, by this Python)
        [sys.executable, "-m", "pytest", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
