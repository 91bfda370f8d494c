"""The table of ten wheels in docs/how-to/audit-a-wheel.md: ``python -m tests.audit.field`` prints it."""

import io
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pytest_cudalink.audit import Audit
from pytest_cudalink.audit.members import Budget, members_of_archive
from pytest_cudalink.audit.scan import scan_members
from pytest_cudalink.audit.wheel import audit_scan
from pytest_cudalink.cli.audit_device_code import served
from tools.package_index import RangeFile, wheel_named

PAGE = Path(__file__).parents[2] / "docs/how-to/audit-a-wheel.md"
WHEELS: list[str] = tomllib.loads(Path(__file__).with_name("published.toml").read_text("utf-8"))["field"]["wheels"]


def audit_on_index(name: str) -> Audit:
    """Audit a wheel of the package index; only the members that are read are transferred."""
    budget = Budget(name)
    with io.BufferedReader(RangeFile(wheel_named(name)), 1 << 20) as file:
        return audit_scan(scan_members(name, members_of_archive(name, file, budget), budget))


def row(audited: Audit) -> str:
    """The row of a wheel: its verdict, its findings by kind, and where its device code runs."""
    name, version = Path(audited.path).name.split("-")[:2]
    verdict = "fails" if audited.errors else "passes"
    majors = ", ".join(audited.majors)
    kinds = Counter(f"`{f.kind}`{'' if f.severity == 'error' else ' (note)'}" for f in audited.findings)
    findings = ", ".join(kind if count == 1 else f"{count} × {kind}" for kind, count in kinds.items()) or "–"
    code = (
        "; ".join(line.partition("device code  ")[2] for line in served(audited.device_code))
        if audited.device_code
        else ""
    )
    return f"| {name.replace('_', '-')} {version} | {verdict} | {majors} | {findings} | {code or '–'} |"


def table() -> Iterator[str]:
    """The lines of the table, from the wheels of the index."""
    yield "| wheel | verdict | loads with CUDA | findings | device code |"
    yield "|---|---|---|---|---|"
    for wheel in WHEELS:
        yield row(audit_on_index(wheel))


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in table())
