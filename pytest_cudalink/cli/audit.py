"""``cudalink audit``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from . import audit_device_code

if TYPE_CHECKING:
    from ..audit import Audit

__all__ = ["DESCRIPTION", "configure", "run"]

DESCRIPTION: Final = (
    "Which CUDA libraries a wheel needs before it can be loaded, which file pulls them in, and which CUDA majors it "
    "can load with. Exit code 1 if there are findings or a required major is missing, 2 if a path cannot be audited."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("paths", nargs="+", type=Path, metavar="WHEEL|SO|DIR", help="files to audit")
    parser.add_argument(
        "--require", default="", metavar="MAJORS", help="majors it must load with, such as 12,13; none: without CUDA"
    )
    parser.add_argument("--symbols", action="store_true", help="show the undefined symbols, too")
    parser.add_argument("--json", action="store_true", help="for programs")
    audit_device_code.configure(parser)


def run(options: argparse.Namespace) -> int:
    """Audit each path; returns the worst exit code."""
    from ..audit import AuditError, audit

    if audit_device_code.asked(options):
        return audit_device_code.run(options)
    required = [major for major in options.require.split(",") if major]
    code, answers = 0, []
    for path in options.paths:
        try:
            found = audit(path)
            lacking = found.lacking(required)
        except (AuditError, OSError) as error:
            sys.stderr.write(f"cudalink audit: {error}\n")
            code = 2
            continue
        if options.json:
            answers.append({**found.to_json(), "lacking": lacking})
        else:
            sys.stdout.write(_table(found, lacking, symbols=options.symbols))
        if found.findings or lacking:
            code = max(code, 1)
    if options.json:
        sys.stdout.write(json.dumps(answers, indent=2) + "\n")
    return code


def _table(found: Audit, lacking: dict[str, tuple[str, ...]], *, symbols: bool) -> str:
    lines = [f"{found.path}: {len(found.files)} ELF files; loads with {_spoken(found.majors)}"]
    for file in found.files:
        for one in file.dependencies:
            where = "brought along" if one.bundled else f"CUDA {', '.join(one.majors) or '(unknown)'}"
            unreached = f"; no RPATH leads to {one.unreached}" if one.unreached else ""
            lines.append(f"  {file.path}  needs {one.library}  ({where}; {len(one.symbols)} symbols{unreached})")
            if symbols:
                lines += [f"      {symbol}" for symbol in one.symbols]
        if file.rpaths:
            lines.append(f"  {file.path}  RPATH {':'.join(file.rpaths)}")
    lines += [f"  {finding.kind}: {finding.path}: {finding.text}" for finding in found.findings]
    for major, libraries in lacking.items():
        name = "without CUDA" if major == "none" else f"with CUDA {major}"
        lines.append(f"  required: cannot be loaded {name}, because of {', '.join(libraries)}")
    return "".join(f"{line}\n" for line in lines)


def _spoken(majors: tuple[str, ...]) -> str:
    named = [f"CUDA {major}" for major in majors if major != "none"]
    if "none" in majors:
        named.append("no CUDA at all")
    return ", ".join(named) or "no CUDA major"
