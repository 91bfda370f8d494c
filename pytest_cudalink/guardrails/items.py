"""The data of the guard rails: items, their origin, which must share a CUDA release, verdicts and errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Literal

from ..base.finding import Finding
from ..base.tables import read_matrix
from ..versions import CudaVersion

Status = Literal["compatible", "incompatible", "insufficient_metadata"]
ItemKind = Literal["dynamic-libs", "headers", "static-libs", "bitcode-libs", "binaries", "artifacts"]
#: What the severities of verdicts are called; the others are "incompatible".
_STATUS: Final[dict[str, Status]] = {"note": "compatible", "unknown": "insufficient_metadata"}
PackagedWith = Literal["ctk", "driver", "other"]

#: `Item.found_via` of a library that other code loaded, in cuda.pathfinder's words.
ALREADY_LOADED: Final = "was-already-loaded-from-elsewhere"

_NOUNS: Final[dict[ItemKind, str]] = {
    "dynamic-libs": "library",
    "headers": "headers",
    "static-libs": "static library",
    "bitcode-libs": "bitcode library",
    "binaries": "binary",
    "artifacts": "artifact",
}


def label_of(kind: ItemKind, name: str) -> str:
    """Return the words for an item: ``"nvrtc library"``, ``"cudart headers"``."""
    return f"{name} {_NOUNS[kind]}"


@dataclass(frozen=True)
class Fact:
    """A value and where it was read, or why it is not known."""

    value: Any  # None when unknown
    witness: str  # such as "CUDA_VERSION 13000 in /usr/local/cuda/include/cuda.h"; for an unknown value, the reason
    stated: bool = field(default=False, compare=False)  # whether a caller or a fake says so, and no file here
    absent: bool = field(default=False, compare=False)  # whether that of which it is a fact does not exist here


@dataclass(frozen=True)
class Item:
    """A component of CUDA that a look-up found."""

    # "dynamic-libs", "headers", "static-libs", "bitcode-libs", "binaries", or "artifacts" for an input of a link
    kind: ItemKind
    name: str  # its name in cuda.pathfinder
    path: str  # absolute, as the search returned it
    found_via: str  # how it was found, in cuda.pathfinder's words
    packaged_with: PackagedWith  # "ctk", "driver" or "other"
    version: CudaVersion | None  # the CUDA release that it belongs to
    witness: str  # where the release was read, or why it is not known
    wheel: str = ""  # the distribution that owns it; empty if no distribution does

    @property
    def label(self) -> str:
        """Its name and what it is; see `label_of`."""
        return label_of(self.kind, self.name)

    @property
    def is_of(self) -> str:
        """``"the nvrtc library is of CUDA 13.0"``, ``"the cudart headers are of CUDA 13.0"``."""
        return f"the {self.label} {'are' if self.kind == 'headers' else 'is'} of CUDA {self.version}"

    def __str__(self) -> str:
        release = f"CUDA {self.version}" if self.version else "CUDA release unknown"
        return f"{self.label} at {self.path} (found via {self.found_via}); {release}: {self.witness}"


class Verdict(Finding):
    """The answer of a rule: a finding, also where the rule holds.

    `severity`: "note" if the rule holds, "unknown" if too little is known, "warning" if it does not hold, and the atlas
    has measured that it works although nothing promises it; else "error".
    `kind`: the rule: "packaging", "ctk-version-known", "ctk-constraint", "same-ctk", "linked", "driver" or "pipeline".
    `evidence`: the items that it is about, and what is known of the driver.
    """

    @property
    def status(self) -> Status:
        """``"compatible"``, ``"incompatible"`` or ``"insufficient_metadata"``."""
        return _STATUS.get(self.severity, "incompatible")

    @property
    def rule(self) -> str:
        """The name of the rule, `kind`."""
        return self.kind

    @property
    def message(self) -> str:
        """The sentence, `what`."""
        return self.what

    @property
    def items(self) -> tuple[str, ...]:
        """`evidence` as text: each item with path, how it was found, version and witness."""
        return tuple(map(str, self.evidence))

    @property
    def text(self) -> str:
        """The whole verdict, as errors and warnings show it."""
        lines = [self.what, *(f"  found: {item}" for item in self.evidence), f"  rule:  {self.kind}"]
        lines += [f"  {'or:   ' if number else 'fix:  '} {remedy}" for number, remedy in enumerate(self.remedies)]
        return "\n".join(lines)


def compatible(rule: str, message: str, *items: Item) -> Verdict:
    """The verdict of a rule that holds."""
    return Verdict("note", message, evidence=items, kind=rule)


class CompatibilityCheckError(RuntimeError):
    """Refused items: they do not fit each other, the driver, or the requested release.

    `verdict`: the rule, the items with their witnesses, and the repair.
    """

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(verdict.text)

    def __reduce__(self) -> tuple[type[CompatibilityCheckError], tuple[Verdict]]:
        return type(self), (self.verdict,)


class CompatibilityInsufficientMetadataError(CompatibilityCheckError):
    """Too little is known about an item or the driver to decide whether it fits."""


class DriverCtkCompatibilityError(CompatibilityCheckError):
    """The driver is too old for the toolkit that an item belongs to."""


class CompatibilityWarning(UserWarning):
    """The text of a `CompatibilityCheckError`, as a warning in the mode ``warning_only``."""


def error_of(verdict: Verdict) -> CompatibilityCheckError:
    """The error for a verdict that is not "compatible"."""
    if verdict.severity == "unknown":
        return CompatibilityInsufficientMetadataError(verdict)
    if verdict.kind == "driver":
        return DriverCtkCompatibilityError(verdict)
    return CompatibilityCheckError(verdict)


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


def meets_driver(item: Item) -> bool:
    """Whether a part of the toolkit runs on a driver, or makes what does: headers and disassemblers do neither."""
    without = component_table()["needs-no-driver"].get(item.kind, ())
    return item.packaged_with == "ctk" and "*" not in without and item.name not in without


def _groups(item: Item, there: Iterable[Item]) -> dict[str, str]:
    """The groups of an item, each with its reason."""
    table = component_table()
    groups = {
        group["name"]: group["because"]
        for group in table["groups"]
        if item.name in group.get(item.kind, ()) and ("beside" not in group or _is_beside(group, item, there))
    }
    if item.kind in ("dynamic-libs", "headers"):
        headers = item.name
        if item.kind == "dynamic-libs":
            companions: dict[str, list[str]] = table["companions"]
            headers = next((name for name, libraries in companions.items() if item.name in libraries), item.name)
        groups[f"{headers} headers with their library"] = "a header declares what its own release of the library has"
    return groups


def _is_beside(group: dict[str, Any], item: Item, there: Iterable[Item]) -> bool:
    """Whether the headers are there that make a group: those of another major are in another folder."""
    return any(
        header.name == group["beside"]
        and (header.version is None or item.version is None or header.version.major == item.version.major)
        for header in there
    )


def besides() -> frozenset[str]:
    """The headers without which the items of some groups are independent."""
    return frozenset(group["beside"] for group in component_table()["groups"] if "beside" in group)


def shared_groups(a: Item, b: Item, there: Collection[Item] = ()) -> dict[str, str]:
    """The groups that require two items to be of one CUDA release, with reasons; empty for independent items.

    `there`: all items that are there.
    """
    other = _groups(b, there)
    shared = {name: because for name, because in _groups(a, there).items() if name in other}
    if shared and (a.kind, a.name) == (b.kind, b.name):
        return {f"one {a.label} only": "with two, it is not known which one is used"}
    return shared


def archive_and_linker(a: Item, b: Item) -> tuple[Item, Item, str] | None:
    """An item and the one that takes it, with the reason why it must not be newer; None for another pair.

    None also for a pair of which only the majors count, unless the item is of a newer one.
    """
    for row in component_table()["linked"]:
        archive, linker = ((row[end]["kind"], row[end]["name"]) for end in ("archive", "linker"))
        for item, other in ((a, b), (b, a)):
            if (item.kind, item.name) == archive and (other.kind, other.name) == linker:
                if row.get("same") == "major" and not _is_newer_major(item, other):
                    return None
                return item, other, str(row["because"])
    return None


def _is_newer_major(item: Item, other: Item) -> bool:
    return bool(item.version and other.version and item.version.major > other.version.major)


def libraries_by_name(items: Iterable[Item]) -> dict[str, Item]:
    """The toolkit's dynamic libraries by name; the first of a name counts, as looked-up libraries precede others."""
    libraries: dict[str, Item] = {}
    for item in items:
        if item.kind == "dynamic-libs" and item.packaged_with == "ctk":
            libraries.setdefault(item.name, item)
    return libraries
