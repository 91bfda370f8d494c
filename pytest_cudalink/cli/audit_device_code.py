"""``cudalink audit --device-code``: what each driver does with the device code of a wheel on each GPU."""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from ..audit.device_code import ROWS, DeviceCode, DeviceImage, ImageGroup, device_code
from ..audit.device_code.assemble import Assembled, assemble, assembler
from ..base.finding import Finding
from ..base.progress import Progress
from ..base.tables import grouped
from ..base.words import and_more, columns, counted
from ..compat.architectures import architecture_of
from ..compat.architectures import gpus as known_gpus
from ..compat.releases import driver_branch, drivers_in
from ..emulator.worker import WorkerError
from ..toolchains import ToolchainError
from ..versions import CudaVersion
from .arguments import CommandError, command_errors
from .audit_output import Answer, answer_each

#: Most lines of nvJitLink's log, and most files of a group, that are shown.
_MOST_LINES: Final = 6
_MOST_PATHS: Final = 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    group = parser.add_argument_group(
        "device code",
        "Each of these shows whether drivers take the PTX, cubins and LTO-IR in the files, instead of the libraries.",
    )
    group.add_argument("--device-code", action="store_true", help="show a table of GPUs and drivers")
    group.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="NAME",
        help="show only this GPU, such as L4, 8.9 or sm_89, and exit with 1 if a driver refuses the code on it",
    )
    group.add_argument(
        "--driver", metavar="RELEASE", help="show only this driver, such as 535 or 12.2, or a range: '>=525,<580'"
    )
    group.add_argument(
        "--require-archs",
        metavar="ARCHS",
        help="fail unless every driver that is shown takes the code on these GPUs, such as sm_80,sm_90",
    )
    group.add_argument(
        "--assemble",
        action="store_true",
        help="link each PTX for the architectures for which drivers would compile it, and show refusals",
    )
    group.add_argument(
        "--toolchain",
        metavar="RELEASE",
        help="assemble with the nvJitLink of this release (default: the newest in the cache)",
    )


def invalid(options: argparse.Namespace) -> str:
    """Return what is wrong with an option that names nothing, or lacks another that it needs; else an empty text."""
    if options.gpu and not all(_split([name]) for name in options.gpu):
        return "--gpu is empty; expected a name such as L4; leave it out for a table of GPUs"
    if options.driver is not None and not options.driver.strip():
        return "--driver is empty; expected a release such as 535; leave it out for every driver from 525 on"
    if options.require_archs is not None and not _split([options.require_archs]):
        return "--require-archs names no architecture; expected some such as 80,90; leave it out to require none"
    if options.toolchain is not None and not options.assemble:
        return "--toolchain is given without --assemble; expected both; add --assemble"
    return ""


def run(options: argparse.Namespace) -> int:
    """Audit the device code of each path; returns the worst exit code."""
    if not options.paths:
        raise CommandError("device code is that of files; give a wheel, a folder or a library")
    with command_errors(ToolchainError, ValueError):
        gpus = [architecture_of(name) for name in _split(options.gpu)]
        required = [architecture_of(_full(name)) for name in _split([options.require_archs or ""])]
        drivers = drivers_in(options.driver or ">=525")
        toolchain = assembler(options.toolchain) if options.assemble else None
    rows = gpus or list(dict.fromkeys([*ROWS, *required]))

    def judge(path: Path, step: Progress) -> Answer:
        audited = device_code(path)
        step.say("assembling PTX" if toolchain else "")
        assembled = list(assemble(path, toolchain)) if toolchain else []
        failures = audited.failures(dict.fromkeys([*gpus, *required]), drivers)
        if required and not audited.groups:
            failures.append(audited.absence(required))
        lines = [*_text(audited, rows, drivers), *(f"  fails: {failure}" for failure in failures)]
        lines += _assembly(assembled) if assembled or toolchain is None else ["  assembled: no PTX is there"]
        findings = [Finding("error", fault.text, place=fault.path, kind="unreadable") for fault in audited.faults]
        findings += [Finding("error", failure, kind="device code") for failure in failures]
        findings += [
            Finding("error", _refused(file), place=file.path, kind=file.outcome) for file in assembled if file.fails
        ]
        content = {"failures": failures, "assembled": [*map(_plain, assembled)]}
        return Answer(str(path), lines, {**audited.to_json(rows, drivers), **content}, findings)

    # AuditError is a ValueError
    return answer_each(options.format, options.paths, judge, (OSError, ToolchainError, ValueError, WorkerError))


def served(code: DeviceCode) -> Iterator[str]:
    """Two lines at most: the GPUs and drivers on which every file with device code runs, and those for some files."""
    files = {path for group in code.groups if not group.for_linker for path in group.paths}
    if not code.groups:
        return
    if not files:
        yield f"  device code  in {counted(len({p for g in code.groups for p in g.paths}), 'file')}, for linkers only"
        return
    counts = {arch: code.served(arch, drivers_in(">=525")) for arch in ROWS}
    whole = {arch: _drivers(count, len(files)) for arch, count in counts.items()}
    part = {arch: _drivers(count, 1) for arch, count in counts.items()}
    part = {arch: drivers for arch, drivers in part.items() if drivers != whole[arch]}
    notes = {image.note for group in code.judged for image in group.images if image.kind == "cubin" and image.note}
    missing = next((f": {note}" for note in sorted(notes) if "not installed" in note), "")
    known = f"; as far as the headers of packed images say{missing}" if notes else ""
    names = counted(len(files), "file")
    if any(whole.values()) or not any(part.values()):
        yield f"  device code  of {names} runs on {_ranges(whole) or f'none of {ROWS[0]} to {ROWS[-1]}'}{known}"
    if any(part.values()):
        yield f"  device code  of some of {names} runs on {_ranges(part)}{known}"


def _drivers(counts: Mapping[CudaVersion, int], least: int) -> str:
    """The drivers that take so many files, of those that know a GPU; empty if there is none."""
    taking = [driver for driver, count in counts.items() if count >= least]
    if not taking:
        return ""
    if len(taking) == len(counts):
        return "every driver from 525 on"
    return f"drivers from {driver_branch(taking[0])} on"


def _ranges(drivers: Mapping[str, str]) -> str:
    """The architectures with each range of drivers: ``"sm_75 to sm_90 with drivers from 580 on"``."""
    neighbours = ((text, [*archs]) for text, archs in groupby(drivers, drivers.__getitem__) if text)
    spans_of = grouped((text, " to ".join(dict.fromkeys((archs[0], archs[-1])))) for text, archs in neighbours)
    return ", ".join(f"{', '.join(spans)} with {text}" for text, spans in spans_of.items())


def _split(values: Iterable[str]) -> list[str]:
    return [part.strip() for text in values for part in text.split(",") if part.strip()]


def _full(name: str) -> str:
    """An architecture whose prefix may be left out: ``"sm_90"`` for ``"90"``."""
    return f"sm_{name}" if name.rstrip("af").isdigit() else name


def _plain(file: Assembled) -> dict[str, Any]:
    return {
        "path": file.path,
        "target": file.image.arch,
        "ptx_isa": _dotted(file.image.ptx_isa),
        "arch": file.arch,
        "outcome": file.outcome,
        "log": file.log,
    }


def _text(code: DeviceCode, rows: Sequence[str], drivers: Sequence[CudaVersion]) -> Iterable[str]:
    if not code.groups:
        yield f"{code.path}: no device code"
    else:
        count = sum(group.count for group in code.groups)
        yield f"{code.path}: device code in {counted(count, 'group')} of images"
        for alike, table in _tables(code.judged, rows, drivers):
            yield from _files(alike)
            yield from _facts([image for group in alike for image in group.images])
            yield from _columns(table, rows, drivers)
        for_linkers = [group for group in code.groups if group not in code.judged]
        if for_linkers:
            yield "  for linkers only:"
            yield from _files(for_linkers)
            yield from _facts([image for group in for_linkers for image in group.images])
    yield from (f"  unreadable: {fault.path}: {fault.text}" for fault in code.faults)


#: For each GPU, what each driver does: one table of outcomes.
_Table = tuple[tuple[str, ...], ...]


def _tables(
    groups: Iterable[ImageGroup], rows: Sequence[str], drivers: Sequence[CudaVersion]
) -> list[tuple[list[ImageGroup], _Table]]:
    """The groups that have one table together, the worst table first."""

    def table_of(group: ImageGroup) -> _Table:
        return tuple(tuple(str(group.answer(arch, driver).outcome) for driver in drivers) for arch in rows)

    def badness(table: _Table) -> int:
        return sum(cell in ("222", "218", "200", "209") for row in table for cell in row)

    tables = grouped((table_of(group), group) for group in groups)
    return [(alike, table) for table, alike in sorted(tables.items(), key=lambda pair: -badness(pair[0]))]


def _files(groups: Iterable[ImageGroup]) -> Iterable[str]:
    groups = list(groups)
    paths = list(dict.fromkeys(path for group in groups for path in group.paths))
    count = sum(group.count for group in groups)
    yield f"  {counted(len(paths), 'file')} ({counted(count, 'group')})"
    yield from (f"    {path}" for path in paths[:_MOST_PATHS])
    if more := and_more(len(paths) - _MOST_PATHS):
        yield f"   {more}"


def _facts(images: Sequence[DeviceImage]) -> Iterable[str]:
    """What the images are: architectures, PTX ISA, toolkits; and what is not known of them."""
    for kind, name in (("cubin", "cubins"), ("ptx", "PTX"), ("ltoir", "LTO-IR"), ("tileir", "Tile IR")):
        chosen = [image for image in images if image.kind == kind]
        if not chosen:
            continue
        archs = ", ".join(
            dict.fromkeys(code.arch for code in sorted(chosen, key=lambda code: (code.number, code.arch)))
        )
        line = f"    {name} for {archs or 'every GPU that its compiler knows'}"
        isas = sorted({image.ptx_isa for image in chosen if image.ptx_isa})
        if isas:
            line += f"; PTX ISA {', '.join(map(_dotted, isas))}"
        producers = sorted({image.producer for image in chosen if image.producer})
        if producers:
            line += f"; made by CUDA {', '.join(map(str, producers))}"
        elif needs := sorted({image.needs for image in chosen if image.needs}):
            line += f"; of {needs[-1]} or newer" if kind == "ltoir" else f"; needs {needs[-1]}"
        yield line
    virtual = sorted(
        {(i.arch, i.virtual_arch) for i in images if i.virtual_arch and i.virtual_arch != i.arch.rstrip("af")}
    )
    yield from (f"    cubin for {arch} made from PTX for {made}" for arch, made in virtual)
    for note in sorted({image.note for image in images if image.note}):
        count = sum(image.note == note for image in images)
        yield f"    {counted(count, 'image')} known by the header alone: {note}"


def _dotted(isa: tuple[int, int] | None) -> str:
    return ".".join(map(str, isa)) if isa else "?"


def _columns(table: _Table, rows: Sequence[str], drivers: Sequence[CudaVersion]) -> Iterable[str]:
    """The table with one column for neighbouring drivers that do the same on every GPU."""
    spans = [[*span] for _, span in groupby(range(len(drivers)), lambda index: [row[index] for row in table])]
    titles = ["driver"]
    for span in spans:
        first, last = driver_branch(drivers[span[0]]), driver_branch(drivers[span[-1]])
        titles.append(str(first) if first == last else f"{first}-{last}")
    lines = [titles]
    lines += [[_named(arch), *(row[span[0]] for span in spans)] for arch, row in zip(rows, table, strict=True)]
    yield from (f"    {line}" for line in columns(lines))


def _named(arch: str) -> str:
    """An architecture with a GPU that has it, for people."""
    number = int(arch.removeprefix("sm_"))
    example = next((name for name, of in known_gpus().items() if of == number), "")
    return f"{arch} ({example})" if example else arch


def _assembly(assembled: Sequence[Assembled]) -> Iterable[str]:
    if not assembled:
        return
    counts = {outcome: sum(file.outcome == outcome for file in assembled) for outcome in _OUTCOMES}
    yield "  assembled: " + ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    for file in assembled:
        if file.outcome == "assembled":
            continue
        yield f"    {file.outcome}: {file.path}: {_refused(file)}"
        yield from (f"      {line}" for line in file.log.splitlines()[:_MOST_LINES])


def _refused(assembled: Assembled) -> str:
    return f"PTX {_dotted(assembled.image.ptx_isa)} for {assembled.image.arch}, on {assembled.arch}"


_OUTCOMES: Final = ("failed", "crashed", "unfinished", "incomplete", "not tried", "assembled")
