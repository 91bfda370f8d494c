"""The origin of items, and which must share a CUDA release. Pure; the data is in `matrices/guardrails.toml`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache
from typing import Any

from ..base.tables import read_matrix
from .items import Item, ItemKind, PackagedWith


@cache
def component_table() -> dict[str, Any]:
    """Parse matrices/guardrails.toml, once."""
    return read_matrix("guardrails.toml")


def packaged_with(kind: ItemKind, name: str, toolkit_names: Iterable[str]) -> PackagedWith:
    """Whether an item comes with the toolkit, the driver or neither.

    `toolkit_names`: the names that cuda.pathfinder counts as the toolkit's; read for dynamic libraries and headers.
    """
    table = component_table()
    if name in table["driver"].get(kind, ()):
        return "driver"
    if kind in ("dynamic-libs", "headers"):
        return "ctk" if name in toolkit_names else "other"
    return "other" if name in table["outside"].get(kind, ()) else "ctk"


def _groups(item: Item, headers_there: Iterable[Item]) -> dict[str, str]:
    """The groups of an item, each with its reason."""
    table = component_table()
    found = {
        group["name"]: group["because"]
        for group in table["groups"]
        if item.name in group.get(item.kind, ()) and ("beside" not in group or _is_beside(group, item, headers_there))
    }
    if item.kind in ("dynamic-libs", "headers"):
        headers = item.name
        if item.kind == "dynamic-libs":
            companions: dict[str, list[str]] = table["companions"]
            headers = next((name for name, libraries in companions.items() if item.name in libraries), item.name)
        found[f"{headers} headers with their library"] = "a header declares what its own release of the library has"
    return found


def _is_beside(group: dict[str, Any], item: Item, headers_there: Iterable[Item]) -> bool:
    """Whether the headers are there that make a group: those of another major are in another folder."""
    return any(
        one.name == group["beside"]
        and (one.version is None or item.version is None or one.version.major == item.version.major)
        for one in headers_there
    )


def besides() -> frozenset[str]:
    """The headers without which the items of some groups are independent."""
    return frozenset(group["beside"] for group in component_table()["groups"] if "beside" in group)


def shared_groups(a: Item, b: Item, headers_there: Collection[Item] = ()) -> dict[str, str]:
    """The groups that require two items to be of one CUDA release, with reasons; empty for independent items.

    `headers_there`: all headers that are there.
    """
    other = _groups(b, headers_there)
    shared = {name: because for name, because in _groups(a, headers_there).items() if name in other}
    if shared and (a.kind, a.name) == (b.kind, b.name):
        return {f"one {a.label} only": "with two, it is not known which one is used"}
    return shared


def archive_and_linker(a: Item, b: Item) -> tuple[Item, Item, str] | None:
    """An item and the one that takes it, with the reason why it must not be newer; None for another pair.

    None also for a pair of which only the majors count, unless the item is of a newer one.
    """
    for row in component_table()["linked"]:
        archive, linker = ((row[end]["kind"], row[end]["name"]) for end in ("archive", "linker"))
        for one, other in ((a, b), (b, a)):
            if (one.kind, one.name) == archive and (other.kind, other.name) == linker:
                if row.get("same") == "major" and not _is_newer_major(one, other):
                    return None
                return one, other, str(row["because"])
    return None


def _is_newer_major(one: Item, other: Item) -> bool:
    return bool(one.version and other.version and one.version.major > other.version.major)


def libraries_by_name(items: Iterable[Item]) -> dict[str, Item]:
    """The toolkit's dynamic libraries by name; the first of a name counts, as looked-up libraries precede others."""
    found: dict[str, Item] = {}
    for item in items:
        if item.kind == "dynamic-libs" and item.packaged_with == "ctk":
            found.setdefault(item.name, item)
    return found
