"""``cudalink audit --environment``: the part of ``cudalink audit`` that audits an environment."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ..base.progress import progress
from ..base.safe_text import complain, line
from .audit_output import Answer, AuditOutput

if TYPE_CHECKING:
    from ..audit.environment import Claim, EnvironmentAudit
    from ..base.finding import Finding

#: Requirements that are listed under one finding.
_MOST_NEEDS: Final = 6


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the option."""
    parser.add_argument(
        "--environment",
        nargs="?",
        const=True,
        metavar="PREFIX|PYTHON",
        help="audit the installed distributions of an environment: show which CUDA libraries they need, and which are "
        "installed (default: the environment of this command); with --driver and --gpu also whether it runs there",
    )


def run(options: argparse.Namespace) -> int:
    """Audit the environment of ``options.environment`` and report; returns the exit code."""
    if options.paths:
        complain(
            f"cudalink audit: --environment takes one environment; give {line(options.paths[0])} in another command"
        )
        return 2
    if not options.environment:
        complain("cudalink audit: --environment is empty; expected a prefix; leave it out for this one")
        return 2
    from ..audit.environment import audit_environment

    output = AuditOutput(options.format)
    prefix = None if options.environment is True else options.environment
    try:
        with progress("auditing the environment"):
            found = audit_environment(prefix, driver=options.driver or "", gpu=",".join(options.gpu))
    except (OSError, ValueError) as error:  # AuditError is a ValueError
        output.fail(error)
        return 2
    findings = [
        (one.severity, (f"{one.severity}: {one.kind}", f"{one.what}; {one.remedies[0]}")) for one in found.findings
    ]
    errors = [shown for severity, shown in findings if severity == "error"]
    errors += [(f"not readable: {one.path}", one.text) for one in found.unreadable]
    notes = [shown for severity, shown in findings if severity == "note"]
    output.add(Answer("", list(_lines(found)), found.to_json(), errors, notes))
    output.end(single=True)
    return found.exit_code


def _lines(found: EnvironmentAudit) -> Iterator[str]:
    yield f"Verdict: {found.verdict}: {line(found.summary)} ({found.seconds:.1f} s)"
    for finding in found.findings:
        yield ""
        yield from (_shorter(one, found) for one in _finding(finding))
    if found.unreadable:
        yield ""
    for one in found.unreadable:
        yield f"not readable: {line(one.path)}: {line(one.text)}"


def _shorter(text: str, found: EnvironmentAudit) -> str:
    """A line in which the paths of installed files begin where they differ; the verdict names the environment."""
    return text.replace(f"{line(found.prefix)}/lib/python{line(found.python)}/site-packages/", "…/")


def _finding(finding: Finding) -> Iterator[str]:
    yield f"{finding.severity}: {line(finding.what)}"
    for claim in finding.evidence[:_MOST_NEEDS]:
        yield f"  needs  {_need(claim)}"
    if len(finding.evidence) > _MOST_NEEDS:
        yield f"  needs  {len(finding.evidence) - _MOST_NEEDS} more; --format=json lists them"
    if finding.place:
        yield f"  there  {line(finding.place)}"
    for word, remedy in zip(("do", "or"), finding.remedies, strict=False):
        yield f"  {word}     {line(remedy)}"


def _need(claim: Claim) -> str:
    what = f"{claim.name} {claim.versions}".rstrip()
    where = f" in {claim.file}" if claim.file else ""
    return line(f"{claim.by}: {what} ({claim.evidence}{where})")
