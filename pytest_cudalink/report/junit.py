"""The report as JUnit XML, for the tools that read it: one suite for each cell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from xml.etree import ElementTree as ET

from ..safe_text import block
from .cell_run import BAD, UNKNOWN, CellRun
from .matrix_report import MatrixReport
from .views import NAMES, cause_lines

_ELEMENTS = {"F": "failure", "E": "error", "C": "error", "?": "error", "S": "skipped", "U": "skipped", "x": "skipped"}


def junit(report: MatrixReport) -> str:
    """Return the XML text; a class name begins with its cell, so that tools distinguish the cells."""
    root = ET.Element("testsuites", name="cudalink")
    for cell in report.cells:
        root.append(_suite(cell))
    for name in report.missing:
        root.append(_without_records(name, report.why_missing(name), allowed=name in report.allowed))
    for name, why in report.damaged.items():
        root.append(_without_records(name, why, allowed=False))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _without_records(name: str, why: str, *, allowed: bool) -> ET.Element:
    """Return the suite of a cell whose records are missing or damaged."""
    errors, skipped, element = ("0", "1", "skipped") if allowed else ("1", "0", "error")
    name = block(name)
    suite = ET.Element("testsuite", name=name, tests="1", errors=errors, failures="0", skipped=skipped)
    case = ET.SubElement(suite, "testcase", classname=name, name="records")
    ET.SubElement(case, element, message=block(why))
    return suite


def _suite(cell: CellRun) -> ET.Element:
    counts, causes = cell.counts, cell.causes
    why = "; ".join(filter(None, [cell.fault, cell.behind_green_tests]))
    suite = ET.Element(
        "testsuite",
        name=block(cell.name),
        tests=str(len(cell.outcomes) + bool(why)),
        failures=str(counts["F"]),
        errors=str(counts["E"] + counts["C"] + counts[UNKNOWN] + bool(why)),
        skipped=str(counts["S"] + counts["U"] + counts["x"]),
        time=f"{cell.duration:.3f}",
    )
    _add_properties(suite, _properties(cell))
    if why:
        case = ET.SubElement(suite, "testcase", classname=block(cell.name), name="run")
        ET.SubElement(case, "error", message=block(why))
    for test, letter in cell.outcomes.items():
        file, _, name = test.partition("::")
        module = file.removesuffix(".py").replace("/", ".")
        case = ET.SubElement(
            suite,
            "testcase",
            classname=block(f"{cell.name}.{module}"),
            name=block(name or test),
            time=f"{cell.durations.get(test, 0.0):.3f}",
        )
        if letter in _ELEMENTS:
            detail = cell.details.get(test)
            reason, text = (detail.reason, detail.text) if detail else ("", "")
            cause = causes.get(test)
            lines = "\n".join(cause_lines(cause)) if cause is not None else ""
            if lines:
                _add_properties(case, [("cudalink.cause", lines)])
            element = ET.SubElement(case, _ELEMENTS[letter], message=block(reason or NAMES[letter]))
            if letter in BAD:
                element.text = "\n\n".join(filter(None, (lines, block(text))))
    return suite


def _add_properties(element: ET.Element, pairs: Iterable[tuple[str, str]]) -> None:
    properties = ET.SubElement(element, "properties")
    for name, value in pairs:
        ET.SubElement(properties, "property", name=block(name), value=block(value))


def _properties(cell: CellRun) -> Iterator[tuple[str, str]]:
    """Yield the axes and the numbers of links of a cell."""
    yield from cell.axes.items()
    for name, number in cell.links.items():
        yield f"links.{name}", str(number)
    for via, number in cell.unsteered_by_via.items():
        yield f"unsteered.{via}", str(number)
    for one in cell.libraries:
        yield f"library.{one.soname or one.name}", f"{one.version or 'not known'} {one.place} {one.path}"
    if cell.unlinked_modules:
        yield "unlinked_modules", str(cell.unlinked_modules)
