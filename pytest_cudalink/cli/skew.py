"""``cudalink skew``."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from ..progress import progress
from .completion import offer
from .paths import STDOUT, output_file
from .toolchain import in_cache

if TYPE_CHECKING:
    from ..skew import Measurement

__all__ = ["DESCRIPTION", "configure", "run"]

DESCRIPTION: Final = (
    "Link a small sample for every pair of installed toolchains (`cudalink toolchain add …`): by nvJitLink, by "
    "emulated drivers, as PTX, LTO-IR and cubin; and compare the results with what the policies, the guard rails and "
    "the artifacts' headers predict. Results are kept, so that an interrupted run can continue."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    versions = parser.add_argument(
        "versions", nargs="*", metavar="VERSION", help="CUDA releases (default: all installed ones)"
    )
    offer(versions, in_cache)
    parser.add_argument(
        "--kind",
        action="append",
        choices=("ptx", "ltoir", "cubin", "linked-cubin"),
        help="what the producers make; can be repeated (default: ptx, ltoir and cubin)",
    )
    parser.add_argument("--arch", default="sm_90", help="architecture to compile and link for (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON, for programs and for `cudalink report --skew`")
    parser.add_argument(
        "--journal", type=output_file, metavar="FILE", help="where results are kept (default: in the cache)"
    )
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument(
        "--fail-on", choices=("unsafe", "any", "none"), default="none", help="findings that set exit code 1"
    )


def run(options: argparse.Namespace) -> int:
    """Measure and print; return exit code 1 for findings that --fail-on names, 2 if nothing can be measured."""
    from .. import emulator, skew, toolchains
    from ..report.records import RecordError

    if options.journal == STDOUT:
        sys.stderr.write("cudalink skew: --journal is -, stdout; expected a file, which is read, too; name a file\n")
        return 2
    try:
        toolchains.check_cache()  # before the journal in it is opened
        journal = options.journal or toolchains.cache_root() / "skew.jsonl"
        if options.fresh:
            journal.unlink(missing_ok=True)
        if not options.versions and not toolchains.installed():
            sys.stderr.write("cudalink skew: no toolchains are installed; run: cudalink toolchain add 12.9 13.0\n")
            return 2
        with progress("measuring links") as step:
            kinds = tuple(options.kind or skew.KINDS)
            measured = skew.measure(options.versions or None, journal, step.set, kinds=kinds, arch=options.arch)
    except (toolchains.ToolchainError, emulator.EmulatorError, RecordError, OSError) as error:
        sys.stderr.write(f"cudalink skew: {error}\n")
        return 2
    found = skew.findings(measured)
    if options.json:
        content = {
            "measurements": [asdict(one) for one in measured],
            "findings": [{"rule": one.rule, "unsafe": one.unsafe, "text": str(one)} for one in found],
        }
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        _print(measured)
    chosen = [one for one in found if one.unsafe or options.fail_on == "any"]
    return 1 if chosen and options.fail_on != "none" else 0


def _print(measured: list[Measurement]) -> None:
    from .. import skew
    from ..plurals import counted

    for section in skew.sections(measured):
        widths = [max(len(str(row[at])) for row in (section.head, *section.rows)) for at in range(len(section.head))]
        sys.stdout.write(f"\n{section.title}\n")
        if section.note:
            sys.stdout.write(f"{section.note}\n")
        for row in (section.head, *section.rows):
            line = "  ".join(f"{value!s:<{width}}" for value, width in zip(row, widths, strict=True))
            sys.stdout.write(f"{line.rstrip()}\n")
    unsafe = sum(one.unsafe for one in skew.findings(measured))
    everything = len(skew.findings(measured))
    safe = everything - unsafe
    sys.stdout.write(f"\n{counted(len(measured), 'answer')}; ")
    sys.stdout.write(f"{counted(unsafe, 'rule allows', 'rules allow')} a link that fails, ")
    sys.stdout.write(f"{counted(safe, 'rule rejects', 'rules reject')} a link that works\n")
