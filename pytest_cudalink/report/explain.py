"""Explains by axes why a test fails in some cells only."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..base.tables import grouped

#: The axes that every record has.
SETTINGS: Final = ("ctk", "driver", "nvjitlink", "backend", "policy", "python", "arch")
#: In the order in which people look for a cause; packages follow by name.
AXES: Final = (*SETTINGS, "resolution", "provenance", "hidden", "kind")
_RELATION: Final = "relation"
_RELATED: Final = ("ctk", "driver")
#: Causes of two axes that an explanation names; causes of one axis are all named.
_PAIRS_SHOWN: Final = 3


def relation(axes: Mapping[str, str]) -> str:
    """Return the relation of toolkit and driver, such as ``"ctk newer major than driver"``; empty if one is unknown."""
    versions = []
    for name in _RELATED:
        major, _, minor = axes.get(name, "").partition(".")
        if not (major.isdigit() and minor.isdigit()):
            return ""
        versions.append((int(major), int(minor)))
    ctk, driver = versions
    if ctk == driver:
        return "ctk same as driver"
    way = "newer" if ctk > driver else "older"
    return f"ctk {way} {'minor' if ctk[0] == driver[0] else 'major'} than driver"


@dataclass(frozen=True)
class Cause:
    """Axes whose values decide whether a test fails, in every cell that ran it."""

    axes: tuple[str, ...]  # one axis, two, or `("relation",)` for that of toolkit and driver
    verdicts: Mapping[tuple[str, ...], bool]  # whether the test fails, by the values of these axes that occurred

    @property
    def failing(self) -> list[tuple[str, ...]]:
        """The values with which the test fails."""
        return [value for value, failed in self.verdicts.items() if failed]

    def predicts(self, axes: Mapping[str, str]) -> bool | None:
        """Return whether the test fails in a cell if this is the cause; None if no cell had its values."""
        if self.axes != (_RELATION,) and not set(self.axes) <= axes.keys():
            return None
        return self.verdicts.get(_value(axes, self.axes))

    def __str__(self) -> str:
        if self.axes == (_RELATION,):
            return " and ".join(_relations([value for (value,) in self.failing]))
        if len(self.axes) == 1:
            return f"{self.axes[0]} {' and '.join(value for (value,) in self.failing)}"
        first, second = self.axes
        seconds = grouped((value, f"with {second} {other}") for value, other in self.failing)
        return " and ".join(f"{first} {value} {' and '.join(others)}" for value, others in seconds.items())


def _relations(relations: list[str]) -> list[str]:
    """Return relations of toolkit and driver in fewer words where major and minor releases are alike."""
    for way in ("newer", "older"):
        both = [f"ctk {way} {part} than driver" for part in ("major", "minor")]
        if {*both} <= {*relations}:
            relations = [f"ctk {way} than driver", *(other for other in relations if other not in both)]
    return relations


def causes(cells: Sequence[Mapping[str, str]], bad: Sequence[bool | None]) -> list[Cause]:
    """Return every cause that agrees with all cells: each single axis, or if none does, relations and pairs of axes.

    A pair that has different values in every cell agrees with anything. It counts only if one pair of values fails.

    `cells`: the axes of each cell.
    `bad`: whether the test fails there; None where that is unknown.
    Returns causes, those with the fewest failing values first. Empty if the test fails in all cells, or in none.
    """
    ran = [(axes, failed) for axes, failed in zip(cells, bad, strict=True) if failed is not None]
    every = [axes for axes, _ in ran]
    names = [name for name in axis_names(every) if len({axes.get(name) or "none" for axes in every}) > 1]
    deciding = [cause for name in names if (cause := _decides(ran, (name,)))]
    if not deciding:
        related = _decides(ran, (_RELATION,)) if all(relation(axes) for axes, _ in ran) else None
        pairs = [cause for pair in itertools.combinations(names, 2) if (cause := _decides(ran, pair))]
        useful = [cause for cause in pairs if len(cause.failing) == 1 or len(cause.verdicts) < len(ran)]
        if related:  # says in fewer words what several pairs of toolkit and driver say
            useful = [cause for cause in useful if len(cause.failing) == 1 or cause.axes != _RELATED]
        deciding = [related, *useful] if related else useful
    return sorted(deciding, key=lambda cause: len(cause.failing))


def deciding_cell(candidates: Sequence[Cause], others: Mapping[str, Mapping[str, str]]) -> str:
    """Return the cell whose result divides the causes most evenly; empty if none of the cells divides them.

    `others`: the axes of each cell that has no result, by name; an axis whose value is not known is left out.
    """
    smaller = {"": 0}  # the number of causes in the smaller part, by cell
    for name, axes in others.items():
        predictions = [cause.predicts(axes) for cause in candidates]
        smaller[name] = min(predictions.count(True), predictions.count(False))
    return max(smaller, key=smaller.__getitem__)


def explain(
    cells: Sequence[Mapping[str, str]],
    bad: Sequence[bool | None],
    others: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """Return the axes whose values decide whether a test fails.

    `cells`: the axes of each cell.
    `bad`: whether the test fails there; None where that is unknown.
    `others`: the axes of cells that have no result yet, by name. One that tells the causes apart is named.
    Returns words such as ``"ctk 13.2"``. Each word that joins has one meaning: "either …, or …" are causes that the
    cells do not tell apart, the simplest first; "and" joins the values with which the test fails by one cause;
    "with" joins two axes of which only both together decide. ``"no axis explains it"`` if no cause agrees with all
    cells.
    """
    every = causes(cells, bad)
    if not every:
        return "no axis explains it"
    shown = every if len(every[0].axes) == 1 and every[0].axes != (_RELATION,) else every[:_PAIRS_SHOWN]
    words = [str(cause) for cause in shown]
    if len(every) > len(shown):
        more = len(every) - len(shown)
        words.append(f"one of {more} other causes" if more > 1 else "one other cause")
    decides = deciding_cell(every, others or {})
    either = f"either {', or '.join(words)}" if len(words) > 1 else words[0]
    return either + (f"; run {decides} to tell" if decides else "")


def axis_names(cells: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the names of the axes that some cells have, in the order in which people look for a cause."""
    further = {name for axes in cells for name in axes}.difference(AXES)
    return (*AXES, *sorted(further))


def _value(axes: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values of some axes, "none" for one that the cell lacks."""
    return (relation(axes),) if names == (_RELATION,) else tuple(axes.get(name) or "none" for name in names)


def _decides(ran: Sequence[tuple[Mapping[str, str], bool]], names: tuple[str, ...]) -> Cause | None:
    """Return the axes as a cause; None if a value both fails and passes, or if the cells have the same result."""
    verdicts: dict[tuple[str, ...], bool] = {}
    for axes, failed in ran:
        if verdicts.setdefault(_value(axes, names), failed) != failed:
            return None
    return Cause(names, verdicts) if len(set(verdicts.values())) == 2 else None
