"""The report as JUnit XML, for the tools that read it: one suite for each cell."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from .cell_run import BAD, CellRun
from .matrix_report import MatrixReport
from .views import NAMES

__all__ = ["junit"]

_ELEMENTS = {"F": "failure", "E": "error", "C": "error", "S": "skipped", "U": "skipped", "x": "skipped"}


def junit(report: MatrixReport) -> str:
    """Return the XML text; a class name begins with its cell, so that tools distinguish the cells."""
    root = ET.Element("testsuites", name="cudalink")
    for cell in report.cells:
        root.append(_suite(cell))
    for name in report.missing:
        errors, skipped, element = ("0", "1", "skipped") if name in report.allowed else ("1", "0", "error")
        suite = ET.SubElement(root, "testsuite", name=name, tests="1", errors=errors, failures="0", skipped=skipped)
        case = ET.SubElement(suite, "testcase", classname=name, name="records")
        reason = f": {report.reasons[name]}" if name in report.reasons else ""
        ET.SubElement(case, element, message=f"this cell left no records{reason}")
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(cell: CellRun) -> ET.Element:
    counts = cell.counts
    suite = ET.Element(
        "testsuite",
        name=cell.name,
        tests=str(len(cell.outcomes) + bool(cell.fault)),
        failures=str(counts["F"]),
        errors=str(counts["E"] + counts["C"] + bool(cell.fault)),
        skipped=str(counts["S"] + counts["U"] + counts["x"]),
        time=f"{cell.duration:.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in [*cell.axes.items(), *((f"links.{name}", str(number)) for name, number in cell.links.items())]:
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    if cell.fault:
        case = ET.SubElement(suite, "testcase", classname=cell.name, name="run")
        ET.SubElement(case, "error", message=_clean(cell.fault))
    for test, letter in cell.outcomes.items():
        file, _, name = test.partition("::")
        module = Path(file).with_suffix("").as_posix().replace("/", ".")
        case = ET.SubElement(
            suite,
            "testcase",
            classname=_clean(f"{cell.name}.{module}"),
            name=_clean(name or test),
            time=f"{cell.durations.get(test, 0.0):.3f}",
        )
        if letter in _ELEMENTS:
            detail = cell.details.get(test)
            reason, text = (detail.reason, detail.text) if detail else ("", "")
            element = ET.SubElement(case, _ELEMENTS[letter], message=_clean(reason or NAMES[letter]))
            if letter in BAD:
                element.text = _clean(text)
    return suite


def _clean(text: str) -> str:
    """Return the text without the characters that XML 1.0 does not allow."""
    return "".join(
        character
        for character in text
        if character in "\t\n\r"
        or " " <= character <= "\ud7ff"
        or "\ue000" <= character <= "\ufffd"
        or character > "\uffff"
    )
