"""Explains by an axis why a test fails in some cells only."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

__all__ = ["explain", "relation"]

#: In the order in which people look for a cause.
_ORDER = ("ctk", "driver", "nvjitlink", "backend", "policy", "python", "arch")


def relation(axes: Mapping[str, str]) -> str:
    """Return the relation of toolkit and driver, such as ``"ctk newer major than driver"``; empty if one is unknown."""
    versions = []
    for name in ("ctk", "driver"):
        major, _, minor = axes.get(name, "").partition(".")
        if not (major.isdigit() and minor.isdigit()):
            return ""
        versions.append((int(major), int(minor)))
    ctk, driver = versions
    if ctk == driver:
        return "ctk same as driver"
    way = "newer" if ctk > driver else "older"
    return f"ctk {way} {'minor' if ctk[0] == driver[0] else 'major'} than driver"


def explain(cells: Sequence[Mapping[str, str]], bad: Sequence[bool | None]) -> str:
    """Return the axis whose values alone decide whether a test fails.

    Parameters
    ----------
    cells : sequence of mappings
        The axes of each cell.
    bad : sequence of bool or None
        Whether the test fails there; None where it did not run.

    Returns
    -------
    str
        Such as ``"ctk 13.2"``. Several axes are joined by "or" if the cells do not distinguish them; two are joined by
        "with" if only both together decide; otherwise ``"no axis explains it"``.
    """
    ran = [(dict(axes), failed) for axes, failed in zip(cells, bad, strict=True) if failed is not None]
    names = [name for name in _ORDER if len({axes.get(name, "") for axes, _ in ran}) > 1]
    single = [found for name in names if (found := _decides(ran, (name,)))]
    related = [{"relation": relation(axes)} for axes, _ in ran]
    if not single and all(one["relation"] for one in related):
        found = _decides([(axes, failed) for axes, (_, failed) in zip(related, ran, strict=True)], ("relation",))
        if found:
            single.append((found[0], found[1].replace("relation ", "")))
    if single:
        # an axis with fewer values says more: one with a value for each cell explains everything
        fewest = min(count for count, _ in single)
        return " or ".join(text for count, text in single if count == fewest)
    pairs = [found for pair in itertools.combinations(names, 2) if (found := _decides(ran, pair))]
    # where every pair of values is one cell, a pair explains anything, unless it is one that fails
    useful = [(count, text) for count, text in pairs if count < len(ran) or text.count(" with ") == 1]
    return min(useful)[1] if useful else "no axis explains it"


def _decides(ran: Sequence[tuple[Mapping[str, str], bool]], names: tuple[str, ...]) -> tuple[int, str] | None:
    """Return how many values the axes have and which of them fail; None if a value both fails and passes."""
    verdicts: dict[tuple[str, ...], bool] = {}
    for axes, failed in ran:
        value = tuple(axes.get(name, "") for name in names)
        if verdicts.setdefault(value, failed) != failed:
            return None
    failing = [value for value, failed in verdicts.items() if failed]
    if len(names) == 1:
        return len(verdicts), f"{names[0]} {', '.join(value[0] or 'none' for value in failing)}"
    texts = [
        " with ".join(f"{name} {one or 'none'}" for name, one in zip(names, value, strict=True)) for value in failing
    ]
    return len(verdicts), ", ".join(texts)
