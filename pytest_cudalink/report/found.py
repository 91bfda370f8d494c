"""What faults and schedules found, for every form of the report. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..base.safe_text import block, line

if TYPE_CHECKING:
    from .matrix_report import MatrixReport
    from .records import FindingRecord

_CATEGORIES: Final = {"fault": "when a call fails", "schedule": "under a schedule"}
#: Characters of a command, which is of no use when it is cut.
_COMMAND: Final = 100_000
#: Of a picture: the left edge of the bars, their width, the height of a line, and the width of all.
_LEFT: Final = 330
_BARS: Final = 300
_ROW: Final = 22
_WIDTH: Final = 960
#: Characters of the texts beside the bars.
_NAME: Final = 44
_PLACE: Final = 42


def found_again(report: MatrixReport) -> list[tuple[FindingRecord, list[str]]]:
    """Return what was found, each with the cells that found it."""
    cells: dict[tuple[str | None, ...], tuple[FindingRecord, list[str]]] = {}
    for cell in report.cells:
        for one in cell.findings:
            cells.setdefault((one.category, one.nodeid, one.text), (one, []))[1].append(cell.name)
    return list(cells.values())


def title_of(finding: FindingRecord) -> str:
    """Return kind and category of a finding in words."""
    return line(f"{finding.kind}, {_CATEGORIES.get(finding.category, finding.category)}")


def lines_of(finding: FindingRecord) -> tuple[str, ...]:
    """Return a finding, and the command that repeats it, as lines that are safe to show.

    All but the first begin with so many spaces that none can end a fence of Markdown.
    """
    first, _, rest = block(finding.text).replace("\t", "    ").partition("\n")
    repeat = [f"    repeat: {line(finding.repeat, _COMMAND)}"] if finding.repeat else []
    return f"what   {first}", *repeat, *(f"    {one}" for one in rest.splitlines())


def picture_of(finding: FindingRecord) -> dict[str, Any] | None:
    """Return the bars of what was queued, in pixels; None for a finding without any."""
    shown = finding.operations
    if not shown:
        return None
    start = min(one["queued"] for one in shown)
    last = max(at for one in shown for at in (one["queued"], one["ready"], one["done"]) if at is not None)
    scale = _BARS / (last - start + 1)

    def at(step: int) -> float:
        return round(_LEFT + (step - start) * scale, 1)

    rows = []
    for number, one in enumerate(shown):
        done = last + 1 if one["done"] is None else one["done"]
        queued, ready, end = at(one["queued"]), at(max(one["ready"], one["queued"])), at(done)
        rows.append(
            {
                "y": number * _ROW,
                "name": line(f"{one['number']} {one['function']} ({one['stream']})", _NAME),
                "place": line(one["place"], _PLACE),
                "late": one["late"],
                "queued": queued,
                "waits": max(0, round(ready - queued, 1)),
                "ready": ready,
                "runs": max(3, round(end - ready, 1)),  # what is done at once is there, too
                "ends": one["done"] is not None,
            }
        )
    late = ", ".join(str(one["number"]) for one in shown if one["late"])
    return {
        "rows": rows,
        "width": _WIDTH,
        "height": len(rows) * _ROW,
        "name": _LEFT - 10,
        "place": _LEFT + _BARS + 20,
        "words": f"When the operations were queued and done; late: {late}",
    }
