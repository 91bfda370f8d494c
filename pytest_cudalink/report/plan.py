"""The cells of the file that have no complete record: what they would be, and which tests they would run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from .cell_run import CellRun
from .explain import AXES, SETTINGS, axis_names

#: What a cell asks for where the machine or the package index decides which value it gets.
_OPEN: Final = ("", "auto", "latest", "real", "yes")


@dataclass(frozen=True)
class Plan:
    """The cells of a file of cells."""

    # what each cell asks for: `{"ctk-13.0": {"ctk": "13.0", "driver": "auto", …}, …}`
    axes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # the paths of tests that each cell gives to pytest; a cell without any runs every test
    tests: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def lacking(self, cells: Iterable[CellRun]) -> dict[str, dict[str, str]]:
        """Return the axes of each cell that has no complete record, without those whose value is not known.

        A cell that has a record of a format that is not read is left out: it did run.
        """
        cells = list(cells)
        whole = {cell.name: cell.axes for cell in cells if not cell.fault and cell.name in self.axes}
        unread = {cell.name for cell in cells if cell.unread}
        return {name: self._foreseen(name, whole) for name in self.axes if name not in whole and name not in unread}

    def _foreseen(self, name: str, whole: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        wanted = self.axes[name]
        result: dict[str, str] = {}
        # further axes matter where some record has them; a cell that does not ask for one lacks it for certain
        further = {axis for axes in whole.values() for axis in axes}
        for axis in axis_names(whole.values()):
            word = wanted.get(axis, "")
            if not word and axis not in SETTINGS:
                result |= {axis: "none"} if axis in further else {}
                continue
            found = {axes.get(axis) for other, axes in whole.items() if self.axes[other].get(axis, "") == word}
            value: str | None = None
            if word not in _OPEN and not (axis not in AXES and _is_open_version(word)):
                value = "none" if word == "absent" else word
            elif axis == "nvjitlink" or (axis == "driver" and wanted.get("backend") == "driver"):
                value = result.get("ctk")  # the toolkit's, and an emulated driver of its release
            elif len(found) == 1:
                value = found.pop()
            if value is not None:
                result[axis] = value
        return result

    def runs(self, name: str, test: str) -> bool:
        """Return whether pytest selects a test by the paths of a cell; without any, it selects every test."""
        paths = [one.removesuffix("/") for one in self.tests.get(name, ())]
        return not paths or any(f"{test}/".startswith((f"{one}/", f"{one}::")) for one in paths)


def _is_open_version(word: str) -> bool:
    """Return whether the package index decides which version of a package a cell gets."""
    return word == "lowest" or not set(word).isdisjoint("*<>=!~,")
