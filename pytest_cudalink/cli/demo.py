"""``cudalink demo``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..linker.sample import Machine
    from ..targets.choice import Backend

__all__ = ["DESCRIPTION", "configure", "report", "run"]

DESCRIPTION: Final = (
    "Compile two CUDA C++ units with NVRTC and link them as PTX and as LTO-IR. Without a GPU the images prove the "
    "result; with one the kernel runs and NumPy checks its results. Exit code 1 on a mismatch."
)

_MODES: Final = {"ptx": "PTX without LTO", "ltoir": "LTO-IR with LTO"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--arch", help="architecture, such as sm_90 (default: the device's, else sm_90)")
    parser.add_argument("--backend", choices=("driver", "nvjitlink"), help="force the linker of the PTX link")


def run(options: argparse.Namespace) -> int:
    """Print the report of the sample; exit code 2 for an invalid option."""
    try:
        return report(options.arch, options.backend)
    except ValueError as error:
        sys.stderr.write(f"cudalink demo: {error}\n")
        return 2


def report(arch: str | None = None, backend: Backend | None = None, write: Callable[[str], object] = print) -> int:
    """Write one report line for each fact and each way of linking; the exit code is 1 if a proof fails.

    Parameters
    ----------
    arch : str, optional
        Default: that of the device, else sm_90.
    backend : str, optional
        Forces the linker of the PTX link; LTO-IR always needs nvJitLink.
    write : callable
        Receives each line.

    Raises
    ------
    ValueError
        If the architecture is unknown.
    """
    from ..linker import sample

    machine = sample.describe_machine(arch)
    write(_facts(machine))
    failures = 0
    for mode in sample.MODES:
        outcome = sample.link_and_prove(mode, machine, backend if mode == "ptx" else None, _progress)
        _progress("")
        failures += not outcome.ok
        write(f"{'ok  ' if outcome.ok else 'FAIL'} {_MODES[mode]}: {outcome.text}")
        write(f"     {outcome.why or 'not linked'}")
    if not machine.runs_the_image:
        reason = "the driver is emulated and runs no kernels" if machine.emulated else "no GPU of that architecture"
        write(f"{reason}: proved from the images, nothing was launched")
    return 1 if failures else 0


def _facts(machine: Machine) -> str:
    facts = {
        "driver": f"CUDA {machine.driver}{' (emulated)' if machine.emulated else ''}" if machine.driver else None,
        "device": machine.device,
        "nvJitLink": machine.nvjitlink,
        "arch": machine.arch,
    }
    return ", ".join(f"{name}: {value or 'none'}" for name, value in facts.items())


def _progress(text: str) -> None:
    """Show the current step, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()
