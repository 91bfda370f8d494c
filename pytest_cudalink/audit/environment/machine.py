"""Whether an environment runs on a machine that is named: the CUDA version of its driver, and its GPU."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ...base.finding import Finding, Severity
from ...base.words import and_more
from ...compat.releases import DRIVER_RELEASES, driver_branch
from ...environment.installed import Installed
from ...versions import CudaVersion
from ..device_code import DriverOutcome, code_of, what_happens
from ..device_code.images import all_images
from ..needs import Need

#: Outcomes that come from the driver's version alone: an older GPU, or another one, would not help.
_TOO_OLD: Final = (DriverOutcome.TOO_NEW, DriverOutcome.UNKNOWN_FORM)


@dataclass(frozen=True)
class TargetMachine:
    """A machine described by its driver and GPU; it need not exist."""

    driver: CudaVersion
    arch: str  # of its GPU, such as "sm_80"; empty where no GPU is asked about

    @property
    def release(self) -> str | None:
        """The first release of such a driver."""
        return DRIVER_RELEASES.get(self.driver)

    def __str__(self) -> str:
        gpu = f" with {self.arch}" if self.arch else ""
        return f"a driver of CUDA {self.driver} ({driver_branch(self.driver)}){gpu}"


def driver_here() -> str:
    """The CUDA version of the driver, by the variable that conda reads, or of this machine; empty without one."""
    from ... import probes

    if (version := os.environ.get("CONDA_OVERRIDE_CUDA")) is not None:
        return version
    with suppress(OSError):  # a driver that cannot be opened; the doctor reports it
        return str(probes.driver_version() or "")
    return ""


def _finding(severity: Severity, text: str, owner: Installed | None, remedy: str) -> Finding:
    """What does not run on the machine, or does only in part. `owner`: None for the machine itself."""
    return Finding(severity, text, otherwise=remedy, place=str(owner or ""), kind="machine")


def misfits(
    machine: TargetMachine, everything: Iterable[Installed], needs: Mapping[str, Iterable[Need]]
) -> Iterator[Finding]:
    """Yield what does not run on a machine, besides the toolkit that the doctor compares with its driver.

    `needs`: of each distribution, by its name and version.
    """
    if machine.arch and what_happens((), machine.arch, machine.driver).outcome is DriverOutcome.UNDRIVEN:
        drivers = [release for release in DRIVER_RELEASES if what_happens((), machine.arch, release).outcome.fails]
        expected = f"CUDA {drivers[0]} to {drivers[-1]}"
        text = f"a driver of CUDA {machine.driver} does not support {machine.arch}; expected one of {expected}"
        yield _finding("error", text, None, f"use a driver of {expected}")
        return
    everything = list(everything)
    yield from _of_functions(machine, everything, needs)
    if machine.arch:
        for distribution in everything:
            yield from _of_device_code(machine, distribution)


def _newer(release: CudaVersion) -> str:
    known = f" ({DRIVER_RELEASES[release]})" if release in DRIVER_RELEASES else ""
    return f"use a driver of CUDA {release}{known} or newer"


def _of_functions(
    machine: TargetMachine, everything: Iterable[Installed], needs: Mapping[str, Iterable[Need]]
) -> Iterator[Finding]:
    """Libraries that are linked with functions which the driver does not have."""
    for owner in everything:
        wanted = [(need.floor, need) for need in needs[str(owner)] if need.stem == "libcuda" and need.floor]
        floor, need = max(wanted, key=lambda pair: pair[0], default=(machine.driver, None))
        if need is not None and floor > machine.driver:
            yield _finding(
                "error", f"{Path(need.path).name} of {owner} {need.evidence}; this driver is of CUDA "
                f"{machine.driver}", owner, _newer(floor),
            )  # fmt: skip


def _of_device_code(machine: TargetMachine, owner: Installed) -> Iterator[Finding]:
    """Device code of a distribution that the driver refuses, or none of which is for the GPU.

    Code for the GPU may lie in other files than code for others, a wheel may have one file for each CUDA major, and a
    program may never need some of it: it is a conflict where nothing of a distribution fits, and else a note.
    """
    code = code_of(str(owner), (image for path in owner.files for image in all_images(path)))
    answers = [answer for group, answer in code.answers(machine.arch, machine.driver) if not group.for_linker]
    fails = [answer.outcome for answer in answers if answer.outcome.fails]
    sentences = code.failures([machine.arch], [machine.driver]) if fails else []
    if not sentences:
        return  # it runs, or what does not are translation units for other GPUs
    nothing = len(fails) == len(answers)
    newer = ", or a newer driver" if any(outcome in _TOO_OLD for outcome in fails) else ""
    which, why = "" if nothing else "some ", f"{sentences[0]}{and_more(len(sentences) - 1)}"
    text = f"{which}device code of {owner} does not run: {why}"
    remedy = f"use a build of {owner.name} for {machine.arch} and drivers of CUDA {machine.driver}{newer}"
    yield _finding("error" if nothing else "note", text, owner, remedy)
