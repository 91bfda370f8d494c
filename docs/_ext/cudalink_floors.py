"""The floors of the code as Markdown, from the contracts of import-linter, the lists of C files and the heads of files.

A page shows a table with ``{generated} cudalink_floors NAME``.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from native_build import driver, sources  # noqa: E402

PACKAGE = ROOT / "pytest_cudalink"
#: Tables of C: the folder of its files, and their floors.
HOUSES = {
    "driver": ("emulator/native", driver.FLOORS),
    "nvml": ("emulator/native", driver.NVML_FLOORS),
    "reader": ("artifacts/native", sources.READER_FLOORS),
    "jitlink": ("loader/jitlink/native", sources.JITLINK_FLOORS),
}


def contract(name: str) -> list[list[str]]:
    """Return the floors of a contract of import-linter, top to bottom."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (chosen,) = (contract for contract in config["tool"]["importlinter"]["contracts"] if contract["name"] == name)
    return [re.findall(r"\w+", floor) for floor in chosen["layers"]]


def module_row(folder: Path, name: str) -> list[str]:
    """Return a module or package, and the first line of its docstring."""
    is_package = (folder / name).is_dir()
    file = folder / name / "__init__.py" if is_package else folder / f"{name}.py"
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return [f"`{name}{'/' if is_package else '.py'}`", docstring.partition("\n")[0].replace("``", "`")]


def source_row(folder: Path, name: str) -> list[str]:
    """Return a file of C, and the first sentence of its head."""
    head = re.match(r"/\*(.*?)\*/", (folder / f"{name}.c").read_text(encoding="utf-8"), re.DOTALL)
    text = " ".join(re.sub(r"^ \* ", "", head[1], flags=re.MULTILINE).split()) if head else ""
    return [f"`{name}`", re.split(r"(?<=\.) (?=[A-Z])", text)[0].replace("*", r"\*")]


def table(floors: Iterable[Iterable[list[str]]]) -> str:
    """Return the rows of all floors as a table, the floors numbered from 1."""
    rows = [[str(number), *row] for number, rows in enumerate(floors, 1) for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (["floor", "part", "what it does"], ["---"] * 3, *rows))


def blocks() -> dict[str, str]:
    """Return each table by its name."""
    rooms = {"package": (PACKAGE, "floors"), "plugin": (PACKAGE / "plugin", "floors of plugin/")}
    made = {
        name: table([module_row(folder, module) for module in floor] for floor in contract(title))
        for name, (folder, title) in rooms.items()
    }
    return made | {
        name: table([source_row(PACKAGE / folder, source) for source in floor] for floor in floors)
        for name, (folder, floors) in HOUSES.items()
    }
