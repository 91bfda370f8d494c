"""``cudalink audit``, of files and of an environment."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..base.finding import SEVERITIES, Finding
from ..base.safe_text import line
from ..base.tables import grouped
from ..base.words import and_more, counted
from . import audit_device_code, audit_output
from .arguments import CommandError, any_path
from .audit_output import Answer, answer_each

if TYPE_CHECKING:
    from ..audit import Audit, Dependency
    from ..audit.environment import Claim, EnvironmentAudit
    from ..base.install_command import Command

#: RPATHs that differ, and notes of one kind, that are shown.
_MOST_RPATHS: Final = 3
_MOST_NOTES: Final = 3

#: The options of each mode besides --format. Those that are given must all be of one, and the first that has them runs.
MODES: Final[dict[str, tuple[str, ...]]] = {
    "libraries": ("paths", "symbols", "require"),
    "device_code": ("paths", "device_code", "gpu", "driver", "require_archs", "assemble", "toolchain"),
    "environment": ("environment", "gpu", "driver"),
}

DESCRIPTION: Final = (
    "Show which CUDA libraries a wheel needs and of which release at least, which file pulls each in, with which CUDA "
    "majors the wheel loads, whether its requirements install them, and where its device code runs. "
    "Exit code 1: there are findings other than notes, or a required major is missing; 2: a path cannot be audited."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("paths", nargs="*", type=any_path, metavar="WHEEL|SO|DIR", help="audit these files and folders")
    parser.add_argument(
        "--require",
        metavar="MAJORS",
        help="fail unless the wheel loads with these CUDA majors, such as 12,13, or without CUDA (none)",
    )
    parser.add_argument("--symbols", action="store_true", help="show every file, undefined symbol and note")
    audit_output.configure(parser)
    parser.add_argument(
        "--environment",
        nargs="?",
        const=True,
        metavar="PREFIX|PYTHON",
        help="audit the installed distributions of an environment: show which CUDA libraries they need, and which are "
        "installed (default: the environment of this command); with --driver and --gpu also whether it runs there",
    )
    audit_device_code.configure(parser)


def run(options: argparse.Namespace) -> int:
    """Audit in the mode of the options; return the worst exit code."""
    mode, wrong = mode_of(options)
    if wrong:
        raise CommandError(wrong)
    # a mode sees no option of another
    return _RUN[mode](argparse.Namespace(**{name: getattr(options, name) for name in ("format", *MODES[mode])}))


def mode_of(options: argparse.Namespace) -> tuple[str, str]:
    """Return the first of `MODES` with all options that are given, and what is wrong with them; empty if nothing is."""
    given = [name for name in dict.fromkeys(sum(MODES.values(), ())) if getattr(options, name) not in (None, False, [])]
    mode = next((mode for mode, names in MODES.items() if {*given} <= {*names}), "")
    if not mode:
        mode = "environment" if "environment" in given else "device_code"
        other = next(name for name in given if name not in MODES[mode])
        if other == "paths":
            return mode, f"--environment takes one environment; give {options.paths[0]} in another command"
        of_mode = {
            "environment": "--environment, which audits what is installed",
            "device_code": "an option of device code; expected one of them",
        }
        return mode, f"--{other.replace('_', '-')} is given with {of_mode[mode]}; give it in another command"
    if mode == "environment" and len(options.gpu) > 1:
        several = ", ".join(options.gpu)
        return mode, f"--gpu is {several}; expected one with --environment; give others in other commands"
    if mode == "environment" and not options.environment:
        return mode, "--environment is empty; expected a prefix; leave it out for this one"
    if options.require is not None and not options.require.strip(", "):
        return mode, f"--require is {options.require!r}; expected majors such as 12,13; leave it out to require none"
    return mode, audit_device_code.invalid(options)


def _audit_libraries(options: argparse.Namespace) -> int:
    """Audit the libraries of each path; return the worst exit code."""
    from ..audit import AuditError, audit

    if not options.paths:
        raise CommandError("give a wheel, a folder or a library, or --environment")
    required = [major.strip() for major in (options.require or "").split(",") if major.strip()]

    def judge(path: Path, _step: object) -> Answer:
        audited = audit(path)
        return _answer(audited, audited.lacking(required), symbols=options.symbols)

    return answer_each(options.format, options.paths, judge, (AuditError, OSError))


def _answer(audit: Audit, lacking: dict[str, tuple[str, ...]], *, symbols: bool) -> Answer:
    required = []
    for major, libraries in lacking.items():
        name = "without CUDA" if major == "none" else f"with CUDA {major}"
        text = f"cannot be loaded {name}, because of {', '.join(libraries)}"
        required.append(Finding("error", text, kind="required"))
    lines = [
        *_lines(audit, symbols=symbols),
        *_findings(audit.findings, most=len(audit.findings) if symbols else _MOST_NOTES),
        *(f"  {finding.kind}: {finding.what}" for finding in required),
    ]
    return Answer(audit.path, lines, {**audit.to_json(), "lacking": lacking}, [*audit.findings, *required])


def _findings(findings: Sequence[Finding], most: int) -> Iterator[str]:
    """Every error, and the first notes of each kind."""
    notes: dict[str, int] = {}
    for finding in findings:
        if finding.severity == "error":
            yield f"  {finding.kind}: {finding.place}: {finding.what}"
        else:
            notes[finding.kind] = notes.get(finding.kind, 0) + 1
            if notes[finding.kind] <= most:
                yield f"  {finding.kind} ({finding.severity}): {finding.place}: {finding.what}"
    for kind, count in notes.items():
        if count > most:
            yield f"  {kind} (note): {count - most} more: --symbols shows all"


def _lines(audit: Audit, *, symbols: bool) -> Iterator[str]:
    windows = any(file.path.lower().endswith((".dll", ".pyd")) for file in audit.files)
    files = counted(len(audit.files), "DLL" if windows else "ELF file") if audit.files else "no library"
    unread = any(finding.kind == "unreadable" for finding in audit.findings)
    known = ", as far as it can be read" if unread else ""
    yield f"{audit.path}: {files}; loads with {_spoken(audit.majors)}{known}"
    if symbols:
        yield from _each_file(audit)
    else:
        yield from _folded(audit)
    yield from _needs(audit)
    if audit.device_code is not None:
        yield from audit_device_code.served(audit.device_code)


def _each_file(audit: Audit) -> Iterator[str]:
    """Every file with every library that it needs and every symbol."""
    for file in audit.files:
        for dependency in file.dependencies:
            yield f"  {file.path}  {_needed('needs', dependency)}"
            yield from (f"      {symbol}" for symbol in dependency.symbols)
        if file.rpaths:
            yield f"  {file.path}  RPATH {':'.join(file.rpaths)}"


def _folded(audit: Audit) -> Iterator[str]:
    """A line for each library, with the first of the files that need it; and the first few RPATHs."""
    pairs = ((file.path, dependency) for file in audit.files for dependency in file.dependencies)
    users = grouped(((user.library, user.unreached), (path, user)) for path, user in pairs)
    rpaths = grouped((file.rpaths, file.path) for file in audit.files if file.rpaths)
    for group in users.values():
        path, most = max(group, key=lambda user: len(user[1].symbols))
        verb = "needs" if len(group) == 1 else "need"
        yield f"  {path}{and_more(len(group) - 1, 'file')}  {_needed(verb, most)}"
    for folders, paths in list(rpaths.items())[:_MOST_RPATHS]:
        yield f"  {paths[0]}{and_more(len(paths) - 1, 'file')}  RPATH {':'.join(folders)}"
    if len(rpaths) > _MOST_RPATHS:
        yield f"  {counted(len(rpaths) - _MOST_RPATHS, 'more RPATH')}: --symbols shows every file"


def _needed(verb: str, dependency: Dependency) -> str:
    where = "brought along" if dependency.bundled else f"CUDA {', '.join(dependency.majors) or '(unknown)'}"
    unreached = f"; no RPATH leads to {dependency.unreached}" if dependency.unreached else ""
    return f"{verb} {dependency.library}  ({where}; {counted(len(dependency.symbols), 'symbol')}{unreached})"


def _needs(audit: Audit) -> Iterator[str]:
    """A line for each library: the highest floor, and by which evidence; or that it is only opened."""
    opened: dict[tuple[str, str, str], list[int]] = {}
    for (stem, major), needs in grouped(((need.stem, need.major), need) for need in audit.needs).items():
        if floors := {need.floor: need for need in reversed(needs) if need.floor is not None}:
            highest = floors[max(floors)]
            yield f"  {highest.path}  needs at least {_of_cuda(stem)} {highest.floor}  ({highest.evidence})"
        elif all(need.how == "opened" for need in needs):
            opened.setdefault((needs[0].path, stem, needs[0].evidence), []).append(major)
    for (path, stem, evidence), majors in opened.items():
        what = "the driver" if stem == "libcuda" else f"{stem} of CUDA {', '.join(map(str, majors))}"
        yield f"  {path}  may open {what}  ({evidence})"


def _of_cuda(stem: str) -> str:
    return "a driver of CUDA" if stem == "libcuda" else f"{stem} of CUDA"


def _spoken(majors: tuple[str, ...]) -> str:
    named = [f"CUDA {major}" for major in majors if major != "none"]
    if "none" in majors:
        named.append("no CUDA at all")
    return ", ".join(named) or "no CUDA major"


#: Requirements that are listed under one finding.
_MOST_NEEDS: Final = 6


def _audit_environment(options: argparse.Namespace) -> int:
    """Audit the environment of ``options.environment`` and report; returns the exit code."""
    from ..doctor import examine_environment

    prefix = None if options.environment is True else options.environment

    def judge(_path: Path, _step: object) -> Answer:
        audited = examine_environment(prefix, driver=options.driver or "", gpu=",".join(options.gpu))
        unread = [Finding("unknown", file.text, place=file.path, kind="unreadable") for file in audited.unreadable]
        return Answer("", list(_environment_lines(audited)), audited.to_json(), [*audited.findings, *unread])

    # AuditError is a ValueError
    return answer_each(options.format, [Path("the environment")], judge, (OSError, ValueError), single=True)


def _environment_lines(audit: EnvironmentAudit) -> Iterator[str]:
    yield f"Verdict: {audit.verdict}: {line(audit.summary)} ({audit.seconds:.1f} s)"
    commands: set[Command] = set()
    for finding in sorted(audit.findings, key=lambda entry: SEVERITIES.index(entry.severity)):
        yield ""
        yield from (_shorter(text, audit) for text in _environment_finding(finding, repeated=finding.fix in commands))
        commands |= {finding.fix} if finding.fix else set()
    if audit.unreadable:
        yield ""
    for file in audit.unreadable:
        yield f"not readable: {line(file.path)}: {line(file.text)}"


def _shorter(text: str, audit: EnvironmentAudit) -> str:
    """A line in which the paths of installed files begin where they differ; the verdict names the environment."""
    return text.replace(f"{line(audit.prefix)}/lib/python{line(audit.python)}/site-packages/", "…/")


def _environment_finding(finding: Finding, *, repeated: bool) -> Iterator[str]:
    """The lines of a finding. `repeated`: whether one above has its command, which repairs both."""
    yield f"{finding.severity}: {line(finding.what)}"
    if finding.why:
        yield f"  why    {line(finding.why)}"
    for claim in finding.evidence[:_MOST_NEEDS]:
        yield f"  needs  {_need(claim)}"
    if len(finding.evidence) > _MOST_NEEDS:
        yield f"  needs  {len(finding.evidence) - _MOST_NEEDS} more; --format=json lists them"
    if finding.place:
        yield f"  there  {line(finding.place)}"
    for word, remedy in zip(("do", "or"), finding.remedies, strict=False):
        yield f"  {word}     {'the same command' if repeated and word == 'do' else line(remedy)}"


def _need(claim: Claim) -> str:
    what = f"{claim.name} {claim.versions}".rstrip()
    where = f" in {claim.file}" if claim.file else ""
    return line(f"{claim.by}: {what} ({claim.evidence}{where})")


_RUN: Final = {
    "libraries": _audit_libraries,
    "device_code": audit_device_code.run,
    "environment": _audit_environment,
}
