"""Asserts what the merged records of our own cells must say. Run by ``nox -s matrix-report``, after the cells.

Toolkit and driver decide everything here: LTO-IR is refused across major versions, the driver links what nvJitLink of
another major version must not, and a driver that is older than the compiler answers 222 to its PTX.
"""

import sys
from pathlib import Path

from pytest_cudalink.matrix import load_cells
from pytest_cudalink.report import records
from pytest_cudalink.report.cell_run import CellRun
from pytest_cudalink.report.merge import merge
from pytest_cudalink.versions import CudaVersion

ROOT = Path(__file__).parent.parent
FILE = "tests/cells/test_skew.py"


def expected(ctk: CudaVersion, driver: CudaVersion | None) -> dict[str, str]:
    """Letters of the tests in tests/cells for a toolkit and a driver, nothing forced."""
    crossing = driver is not None and driver.major != ctk.major
    older_major = driver is not None and driver.major < ctk.major
    older = driver is not None and driver < ctk
    return {
        "test_ltoir_is_inlined": "D" if crossing else "P",
        "test_relocatable_code_links[ptx]": "D" if older_major else "P",
        "test_relocatable_code_links[cubin]": "D" if older_major else "P",
        "test_driver_compiles_ptx_of_the_toolkit": "S" if driver is None else "D" if older else "P",
    }


def check(cell: CellRun, wanted: dict[str, str]) -> list[str]:
    """What is not as it must be in one cell; `wanted` are the axes that the file of cells gives it."""
    if cell.axes["ctk"] == "none":
        return [f"no toolkit was found, asked for {wanted.get('ctk')}: {cell.versions['ctk'].get('source')}"]
    ctk = CudaVersion.parse(cell.axes["ctk"])
    driver = CudaVersion.parse(cell.axes["driver"]) if cell.axes["driver"] != "none" else None
    faults = []
    if wanted.get("ctk", cell.axes["ctk"]) not in ("latest", cell.axes["ctk"]):
        faults.append(f"toolkit {cell.axes['ctk']}, asked for {wanted['ctk']}")
    if wanted.get("driver", "auto") != "auto" and wanted["driver"].replace("absent", "none") != cell.axes["driver"]:
        faults.append(f"driver {cell.axes['driver']}, asked for {wanted['driver']}")
    for test, letter in expected(ctk, driver).items():
        outcome = cell.outcomes.get(f"{FILE}::{test}", ".")
        if outcome != letter:
            faults.append(f"{test}: expected {letter}, found {outcome}")
    refusal = f"{FILE}::test_driver_compiles_ptx_of_the_toolkit"
    if driver is not None and driver < ctk and "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" not in cell.details[refusal].reason:
        faults.append("the older driver did not answer 222, CUDA_ERROR_UNSUPPORTED_PTX_VERSION")
    backend = "driver" if driver is not None and driver.major != ctk.major else "nvjitlink"
    linked = [t for t in records.read(cell.files[-1]).tests if t.nodeid.startswith(f"{FILE}::test_relocatable")]
    wrong = [test for test in linked if list(test.backends) != [backend]]
    return [*faults, *(f"{test.nodeid}: linked by {test.backends}, expected {backend}" for test in wrong)]


def main(folder: str, *names: str) -> int:
    """Check the cells of a folder; `names` must all be there."""
    report = merge([folder], names)
    cells = {cell.name: cell for cell in load_cells(ROOT / "matrices" / "cells.toml")}
    faults = [f"{name}: no records" for name in report.missing]
    checked = 0
    for cell in report.cells:
        if not cell.finished:
            faults.append(f"{cell.name}: did not finish")
        values = cells[cell.name].values
        plain = (values.backend, values.nvjitlink, values.gpu) == ("auto", "auto", False)
        if plain and any(test.startswith(FILE) for test in cell.outcomes):
            checked += 1
            faults += [f"{cell.name}: {fault}" for fault in check(cell, cells[cell.name].axes)]
    faults += [f"{test.test} fails in {', '.join(test.cells)}: {test.explanation}" for test in report.partial]
    sys.stdout.write("".join(f"{fault}\n" for fault in faults))
    sys.stdout.write(f"{len(report.cells)} cells, {checked} of them about drivers, {len(faults)} faults\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
