"""The rules, pure: items in, verdict out. What is related to what is data, in `matrices/guardrails.toml`.

Nothing here looks at the system, and nothing here imports pytest or CUDA. A `Driver` is asked only by the rule that
needs it, and for its release only when the versions alone do not decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, Protocol

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from ..compat.releases import DRIVER_BRANCH_FLOOR, LATEST_KNOWN, PTX_ISA
from ..tables import read_matrix
from ..versions import CudaVersion, Needs, skew_remedy

__all__ = [
    "ALREADY_LOADED",
    "ARTIFACT_KINDS",
    "Driver",
    "Fact",
    "Item",
    "ItemKind",
    "KnownDriver",
    "PackagedWith",
    "Pipeline",
    "Status",
    "Verdict",
    "branch_of",
    "by_hand",
    "check_constraint",
    "check_driver",
    "check_item",
    "check_pair",
    "check_pipeline",
    "judge",
    "judge_all",
    "libraries_by_name",
    "numbered_like_cuda",
    "packaged_with",
    "parse_constraint",
    "repair",
    "shared_groups",
    "worst",
]

Status = Literal["compatible", "incompatible", "insufficient_metadata"]
ItemKind = Literal["dynamic-libs", "headers", "static-libs", "bitcode-libs", "binaries", "artifacts"]
PackagedWith = Literal["ctk", "driver", "other"]

#: `Item.found_via` of what somebody else loaded, in cuda.pathfinder's words.
ALREADY_LOADED: Final = "was-already-loaded-from-elsewhere"

_NOUNS: Final[dict[ItemKind, str]] = {
    "dynamic-libs": "library",
    "headers": "headers",
    "static-libs": "static library",
    "bitcode-libs": "bitcode library",
    "binaries": "binary",
    "artifacts": "artifact",
}
_SEVERITY: Final[dict[Status, int]] = {"compatible": 0, "insufficient_metadata": 1, "incompatible": 2}
_RELEASE: Final = re.compile(r"\d+(\.\d+){1,2}", re.ASCII)


@cache
def _table() -> dict[str, Any]:
    return read_matrix("guardrails.toml")


#: What may go from one library to another in a pipeline.
ARTIFACT_KINDS: Final = ("ltoir", "ptx", "elf", "cubin")


@dataclass(frozen=True)
class Fact:
    """A value and where it was read, or why it is not known.

    Attributes
    ----------
    value : CudaVersion, str or None
        None when unknown.
    witness : str
        Such as ``"CUDA_VERSION 13000 in /usr/local/cuda/include/cuda.h"``; of an unknown value, the reason.
    """

    value: Any
    witness: str


@dataclass(frozen=True)
class Item:
    """Something of CUDA that a look-up found.

    Attributes
    ----------
    kind : str
        ``"dynamic-libs"``, ``"headers"``, ``"static-libs"``, ``"bitcode-libs"``, ``"binaries"``, or ``"artifacts"``
        for what is linked.
    name : str
        As cuda.pathfinder calls it.
    path : str
        Absolute, as the search returned it.
    found_via : str
        How it was found, in cuda.pathfinder's words.
    packaged_with : str
        ``"ctk"``, ``"driver"`` or ``"other"``.
    version : CudaVersion or None
        The CUDA release that it belongs to.
    witness : str
        Where that was read, or why it is not known.
    wheel : str
        The distribution that owns it; empty for none.
    """

    kind: ItemKind
    name: str
    path: str
    found_via: str
    packaged_with: PackagedWith
    version: CudaVersion | None
    witness: str
    wheel: str = ""

    @property
    def label(self) -> str:
        """``"nvrtc library"``, ``"cudart headers"``."""
        return f"{self.name} {_NOUNS[self.kind]}"

    @property
    def is_of(self) -> str:
        """``"the nvrtc library is of CUDA 13.0"``, ``"the cudart headers are of CUDA 13.0"``."""
        return f"the {self.label} {'are' if self.kind == 'headers' else 'is'} of CUDA {self.version}"

    def __str__(self) -> str:
        release = f"CUDA {self.version}" if self.version else "CUDA release unknown"
        return f"{self.label} at {self.path} (found via {self.found_via}); {release}: {self.witness}"


@dataclass(frozen=True)
class Verdict:
    """What a rule says.

    Attributes
    ----------
    status : str
        ``"compatible"``, ``"incompatible"`` or ``"insufficient_metadata"``.
    rule : str
        Name of the rule: ``"packaging"``, ``"ctk-version-known"``, ``"ctk-constraint"``, ``"same-ctk"``, ``"driver"``
        or ``"pipeline"``.
    message : str
        One sentence.
    fix : str
        The one command that repairs it; empty when there is nothing to repair, or no command does.
    items : tuple of str
        Each item that it is about, with path, how it was found, version and witness.
    otherwise : str
        What else would help.
    """

    status: Status
    rule: str
    message: str
    fix: str = ""
    items: tuple[str, ...] = ()
    otherwise: str = ""

    @property
    def text(self) -> str:
        """All of it, as errors and warnings show it."""
        lines = [self.message, *(f"  found: {item}" for item in self.items), f"  rule:  {self.rule}"]
        if self.fix:
            lines.append(f"  fix:   {self.fix}")
        if self.otherwise:
            lines.append(f"  {'or:   ' if self.fix else 'fix:  '} {self.otherwise}")
        return "\n".join(lines)


class Driver(Protocol):
    """What the driver rule asks, each at most when it needs it."""

    def cuda(self) -> Fact:
        """CUDA version of the driver, as `CudaVersion`."""
        ...

    def release(self) -> Fact:
        """Release of the driver, such as ``"580.65.06"``."""
        ...


@dataclass(frozen=True)
class KnownDriver:
    """A driver whose facts are given.

    Attributes
    ----------
    cuda_version : CudaVersion or None
    release_version : str or None
    witness : str
        Where they are from.
    """

    cuda_version: CudaVersion | None
    release_version: str | None = None
    witness: str = "as given"

    def cuda(self) -> Fact:
        return Fact(self.cuda_version, self.witness if self.cuda_version else "no CUDA version of the driver is known")

    def release(self) -> Fact:
        return Fact(self.release_version, self.witness if self.release_version else "no release of the driver is known")


def branch_of(release: str) -> int:
    """The branch of a driver release: 580 of ``"580.65.06"``.

    Raises
    ------
    ValueError
        If the text is not two or three numbers with dots.
    """
    if not _RELEASE.fullmatch(release):
        msg = f"{release!r} is not a driver release; write two or three numbers, such as '580.65.06'"
        raise ValueError(msg)
    return int(release.split(".", maxsplit=1)[0])


def parse_constraint(value: str | SpecifierSet | None) -> SpecifierSet | None:
    """Read the argument ``ctk_version``.

    Raises
    ------
    ValueError
        If it is neither None, nor a SpecifierSet, nor a non-empty PEP 440 specifier string; or if a bound has a patch
        number: an item's release is known as major and minor only.
    """
    if value is None or isinstance(value, SpecifierSet):
        return _without_patch(value)
    if isinstance(value, str) and value.strip():
        try:
            specifiers = SpecifierSet(value)
        except InvalidSpecifier:
            pass  # said below, in one way for everything that is none
        else:
            return _without_patch(specifiers)
    msg = f"ctk_version = {value!r}: give a PEP 440 version specifier such as '>=13.2,<14', a SpecifierSet, or None"
    raise ValueError(msg)


def _without_patch(specifiers: SpecifierSet | None) -> SpecifierSet | None:
    for specifier in specifiers or ():
        numbers = specifier.version.removesuffix(".*").split(".")
        if any(number.strip("0") for number in numbers[2:]):
            fewer = f"{specifier.operator}{'.'.join(numbers[:2])}"
            msg = (
                f"ctk_version = '{specifiers}': '{specifier}' has a patch number, but the CUDA release of an item is "
                f"known as MAJOR.MINOR; a PEP 440 specifier without one is {fewer}{'.*' if fewer[:2] == '==' else ''}"
            )
            raise ValueError(msg)
    return specifiers


# -- relations


def packaged_with(kind: ItemKind, name: str, toolkit_names: Iterable[str]) -> PackagedWith:
    """Whether an item comes with the toolkit, the driver or neither.

    Parameters
    ----------
    kind, name : str
    toolkit_names : iterable of str
        The names that cuda.pathfinder counts to the toolkit; read for dynamic libraries and headers.
    """
    table = _table()
    if name in table["driver"].get(kind, ()):
        return "driver"
    if kind in ("dynamic-libs", "headers"):
        return "ctk" if name in toolkit_names else "other"
    return "other" if name in table["outside"].get(kind, ()) else "ctk"


def _groups(item: Item) -> dict[str, str]:
    """Every group of an item, with the reason for it."""
    table = _table()
    found = {group["name"]: group["because"] for group in table["groups"] if item.name in group.get(item.kind, ())}
    if item.kind in ("dynamic-libs", "headers"):
        headers = item.name
        if item.kind == "dynamic-libs":
            companions: dict[str, list[str]] = table["companions"]
            headers = next((name for name, libraries in companions.items() if item.name in libraries), item.name)
        found[f"{headers} headers with their library"] = "a header declares what its own release of the library has"
    return found


def shared_groups(a: Item, b: Item) -> dict[str, str]:
    """The groups that oblige two items to be of one CUDA release, with their reasons; empty for independent ones."""
    other = _groups(b)
    shared = {name: because for name, because in _groups(a).items() if name in other}
    if shared and (a.kind, a.name) == (b.kind, b.name):
        return {f"one {a.label} only": "of two, nobody can say which one is used"}
    return shared


def libraries_by_name(items: Iterable[Item]) -> dict[str, Item]:
    """The toolkit's dynamic libraries by name; the first of each counts, as what was looked up does before the rest."""
    found: dict[str, Item] = {}
    for item in items:
        if item.kind == "dynamic-libs" and item.packaged_with == "ctk":
            found.setdefault(item.name, item)
    return found


def numbered_like_cuda(wheel: str) -> bool:
    """Whether the version of a wheel begins with the CUDA release that it belongs to."""
    base = re.sub(r"-cu\d+$", "", wheel)
    return base in _table()["wheels"]["numbered-like-cuda"]


# -- what repairs it


def _releases() -> list[CudaVersion]:
    """The releases of which there are wheels."""
    toolkit = _table()["toolkit"]
    known = {CudaVersion.parse(toolkit["oldest"]), *PTX_ISA}
    return sorted(known - set(map(CudaVersion.parse, toolkit["unpublished"])))


def _extra(item: Item, version: CudaVersion) -> str:
    """The extra of cuda-toolkit that brings an item, in a release."""
    table = _table()
    toolkit, names, companions = table["toolkit"], table["extras"], table["companions"]
    known = (*toolkit["extras"], *toolkit["extras-since-13"])
    family = next((name for name, libraries in companions.items() if item.name in libraries), "all")
    candidates = (names.get(f"{item.kind} {item.name}"), names.get(item.name), item.name.lower(), family)
    extra: str = next((candidate for candidate in candidates if candidate in known), "all")
    return "nvcc" if extra in toolkit["extras-since-13"] and version.major < 13 else extra


def _installable(items: Sequence[Item], version: CudaVersion, *, at_most: bool) -> bool:
    """Whether wheels bring items in a release: it has to be published, and up to CUDA 12 no wheel brings programs."""
    published = version > LATEST_KNOWN or any(
        one == version or (at_most and one < version) for one in _releases() if one.major == version.major
    )
    moved = any(item.kind == "binaries" and item.version != version for item in items)
    return published and not (moved and version.major < 13)


def by_hand(items: Sequence[Item], version: CudaVersion) -> str:
    """What to do where `repair` has no command."""
    if any(item.kind == "binaries" for item in items):
        return f"put the bin folder of a CUDA {version} toolkit first on PATH"
    oldest = _table()["toolkit"]["oldest"]
    return f"take all of it from an installed CUDA {version}, or from {oldest} or newer, of which there are wheels"


def repair(items: Sequence[Item], version: CudaVersion, *, at_most: bool = False) -> str:
    """The command that installs items of one CUDA release as wheels, where every search looks first.

    Empty where there is none: no wheels are of that release, or none brings one of the items; see `by_hand`.

    Parameters
    ----------
    items : sequence of Item
    version : CudaVersion
        The release.
    at_most : bool
        The newest release of that major up to `version`, instead of `version` itself.
    """
    if not _installable(items, version, at_most=at_most):
        return ""
    extras = ",".join(sorted({_extra(item, version) for item in items}))
    exactly, up_to = f"=={version}.*", f">={version.major}.0,<{version.major}.{version.minor + 1}"
    bound = up_to if at_most else exactly
    words = [f"'cuda-toolkit[{extras}]{bound}'"]
    if version.major >= 13 and any(item.name == "nvJitLink" for item in items):
        words.append(f"'nvidia-nvjitlink{bound}'")  # which cuda-toolkit 13 only bounds from below
    return f"{_make_way(items, version.major)}pip install {' '.join(words)}"


def _make_way(items: Sequence[Item], major: int) -> str:
    """Remove wheels of a newer major: they have other names than those of `major`, would stay, and are found first."""
    newer = sorted({item.wheel for item in items if item.wheel and item.version and item.version.major > major})
    return f"pip uninstall -y {' '.join(newer)} && " if newer else ""


# -- the rules, one function each


def _fine(rule: str, message: str, *items: Item) -> Verdict:
    return Verdict("compatible", rule, message, items=tuple(map(str, items)))


def check_item(item: Item) -> Verdict:
    """Whether there is anything to compare: packaging, and a known CUDA release."""
    if item.packaged_with == "driver":
        return _fine("packaging", f"{item.label}: comes with the driver", item)
    if item.packaged_with == "other":
        return Verdict(
            "insufficient_metadata",
            "packaging",
            f"{item.label}: comes with neither the CUDA toolkit nor the driver; its CUDA release cannot be told",
            items=(str(item),),
            otherwise="look it up with cuda.pathfinder itself",
        )
    if item.version is None:
        return Verdict(
            "insufficient_metadata",
            "ctk-version-known",
            f"the CUDA release of the {item.label} is not known: {item.witness}",
            f"pip install 'cuda-toolkit[{_extra(item, LATEST_KNOWN)}]'",
            (str(item),),
            otherwise="name the release that you mean: cuda-toolkit[...]==13.0.*",
        )
    return _fine("ctk-version-known", item.is_of, item)


def check_constraint(item: Item, constraint: SpecifierSet | None) -> Verdict:
    """Whether a toolkit item's release is among those that were asked for."""
    if constraint is None or item.version is None:
        return _fine("ctk-constraint", "no release was asked for", item)
    if constraint.contains(Version(str(item.version)), prereleases=True):
        return _fine("ctk-constraint", f"CUDA {item.version} is among '{constraint}'", item)
    # a release, not the constraint itself: to pip '==13.2' is 13.2.0 alone, and '<=13.2' is without 13.2.1
    wanted = [release for release in _releases() if constraint.contains(Version(str(release)), prereleases=True)]
    fix = repair((item,), max(wanted)) if wanted else ""
    instead = by_hand((item,), max(wanted)) if wanted else f"no known release of CUDA is among '{constraint}'"
    return Verdict(
        "incompatible",
        "ctk-constraint",
        f"{item.is_of}, but ctk_version asks for '{constraint}'",
        fix,
        (str(item),),
        otherwise="" if fix else instead,
    )


def _keep_last(a: Item, b: Item, driver: CudaVersion | None) -> tuple[Item, Item]:
    """Order a pair so that the second is the one to go on with.

    It is what the driver runs, then what is loaded and cannot be exchanged, then the only wheel, then the newer one.
    """

    def worth(item: Item) -> tuple[bool, bool, bool, CudaVersion]:
        version = item.version or CudaVersion(0, 0)
        runs = driver is None or version <= driver
        return runs, item.found_via == ALREADY_LOADED, item.found_via == "site-packages", version

    return (a, b) if worth(a) <= worth(b) else (b, a)


def check_pair(a: Item, b: Item) -> Verdict:
    """Whether two toolkit items may be used together; the repair goes on with the release of the second."""
    groups = shared_groups(a, b) if a.packaged_with == b.packaged_with == "ctk" else {}
    if not groups or a.version is None or b.version is None:
        return _fine("same-ctk", f"the {a.label} and the {b.label} are independent", a, b)
    name, because = next(iter(groups.items()))
    if a.version == b.version:
        return _fine("same-ctk", f"the {a.label} and the {b.label} are both of CUDA {a.version} ({name})", a, b)
    fix = repair((a, b), b.version)
    return Verdict(
        "incompatible",
        "same-ctk",
        f"{a.is_of}, the {b.label} of CUDA {b.version}, but both must be of one CUDA release ({name}: {because})",
        fix,
        (str(a), str(b)),
        otherwise="" if fix else by_hand((a, b), b.version),
    )


def check_driver(item: Item, driver: Driver, *, assume_forward: bool = False, hint: str = "") -> Verdict:
    """Whether the driver runs what a toolkit of the item's release makes.

    The rules are those of the CUDA Compatibility guide: backward compatibility; within a major, minor-version
    compatibility from a driver branch on.

    Parameters
    ----------
    item : Item
    driver : Driver
    assume_forward : bool
        Whether an incompatible driver is let pass because NVIDIA's forward-compatibility package is said to be there.
    hint : str
        Appended to the advice about what `assume_forward` would let pass.
    """
    ctk = item.version
    if ctk is None or item.packaged_with != "ctk":
        return _fine("driver", f"{item.label}: asks nothing of the driver", item)
    cuda = driver.cuda()
    version: CudaVersion | None = cuda.value
    if version is None:
        return Verdict(
            "insufficient_metadata",
            "driver",
            f"whether the driver runs CUDA {ctk} ({item.label}) is not known: {cuda.witness}",
            items=(str(item), f"driver: unknown: {cuda.witness}"),
            otherwise="install the NVIDIA driver; or say what it will be, driver_cuda_version=13000",
        )
    words = f"driver: CUDA {version}: {cuda.witness}"
    if version >= ctk:
        return _fine("driver", f"a driver of CUDA {version} runs CUDA {ctk} (backward compatibility)", item)
    fault = ""
    if version.major < ctk.major:
        fault = f"the driver is of CUDA {version}, older than major {ctk.major}"
    elif ctk.major not in DRIVER_BRANCH_FLOOR:
        fault = f"for CUDA {ctk.major} no driver branch with minor-version compatibility is known"
    else:
        floor = DRIVER_BRANCH_FLOOR[ctk.major]
        release = driver.release()
        if release.value is None:
            return Verdict(
                "insufficient_metadata",
                "driver",
                f"a driver of CUDA {version} runs CUDA {ctk} ({item.label}) from branch {floor} on, and the driver's "
                f"release is not known: {release.witness}",
                repair((item,), version, at_most=True),
                (str(item), f"{words}; release unknown: {release.witness}"),
                otherwise="say what the release is, driver_release_version='580.65.06'",
            )
        words = f"{words}; release {release.value}: {release.witness}"
        if branch_of(release.value) >= floor:
            text = f"release {release.value} runs CUDA {ctk} (minor-version compatibility from branch {floor} on)"
            return _fine("driver", f"a driver of CUDA {version}, {text}", item)
        fault = f"minor-version compatibility needs driver branch {floor} or newer, the driver is {release.value}"
    fix = repair((item,), version, at_most=True)
    instead = f"{by_hand((item,), version)}, or " if item.kind == "binaries" and not fix else ""
    if assume_forward:
        return _fine("driver", f"forward compatibility is assumed: {fault}", item)
    return Verdict(
        "incompatible",
        "driver",
        f"the driver does not run CUDA {ctk} ({item.label}): {fault}",
        fix,
        (str(item), words),
        otherwise=f"{instead}install a driver for CUDA {ctk}{hint}",
    )


@dataclass(frozen=True)
class Pipeline:
    """What one library makes and another one reads.

    Attributes
    ----------
    producer, consumer : str
        Names of dynamic libraries, such as ``"nvrtc"`` and ``"nvJitLink"``.
    artifact_kind : str
        One of `ARTIFACT_KINDS`.

    Raises
    ------
    ValueError
        If the kind is another one, or there is no rule for the pair.
    """

    producer: str
    consumer: str
    artifact_kind: str

    def __post_init__(self) -> None:
        """Refuse what no rule speaks of."""
        if self.artifact_kind not in ARTIFACT_KINDS:
            msg = f"artifact kind {self.artifact_kind!r} has no pipeline rule; known: {', '.join(ARTIFACT_KINDS)}"
            raise ValueError(msg)
        if self._row() is None:
            known = ", ".join(f"{row['producer']} -> {row['consumer']}" for row in _table()["pipelines"])
            msg = f"there is no rule for a pipeline {self.producer!r} -> {self.consumer!r}; known: {known} (* is any)"
            raise ValueError(msg)

    def _row(self) -> dict[str, Any] | None:
        for row in _table()["pipelines"]:
            ends = ((row["producer"], self.producer), (row["consumer"], self.consumer))
            if all(wanted in ("*", name) for wanted, name in ends) and self.artifact_kind in row["kinds"]:
                found: dict[str, Any] = row
                return found
        return None

    @property
    def relation(self) -> str:
        """``"exact"``, ``"same-major"`` or ``"any"``."""
        row = self._row()
        return str(row["relation"]) if row else "any"

    @property
    def because(self) -> str:
        """The reason of the rule."""
        row = self._row()
        return str(row["because"]) if row else ""

    def __str__(self) -> str:
        return f"{self.artifact_kind} from {self.producer} to {self.consumer}"


def check_pipeline(pipeline: Pipeline, producer: Item, consumer: Item) -> Verdict:
    """Whether the consumer's release may read what the producer's release writes."""
    made, read = producer.version, consumer.version
    if made is None or read is None:
        return _fine("pipeline", f"{pipeline}: not judged, a release is not known", producer, consumer)
    holds: Callable[[], bool] = {
        "any": lambda: True,
        "exact": lambda: made == read,
        "same-major": lambda: made.major == read.major and made <= read,
    }[pipeline.relation]
    if holds():
        return _fine("pipeline", f"{pipeline}: CUDA {made} into CUDA {read} ({pipeline.relation})", producer, consumer)
    if pipeline.relation == "same-major" and made.major == read.major:
        words = skew_remedy(Needs(made), read)
    else:
        words = f"linker is of CUDA {read}; {pipeline.because}"
    ends: tuple[Item, ...] = (producer, consumer)
    release = max(made, read)
    loaded = [end.version for end in ends if end.found_via == ALREADY_LOADED and end.version]
    if producer.kind == "artifacts":  # it is there already: only its reader can be another one
        ends, release = (consumer,), made
    elif len(loaded) == 1:
        release = loaded[0]
    fix = repair(ends, release)
    return Verdict(
        "incompatible",
        "pipeline",
        f"{pipeline}: made by CUDA {made}, {words}",
        fix,
        (str(producer), str(consumer)),
        otherwise="" if fix else by_hand(ends, release),
    )


# -- together


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The most severe verdict: incompatible before insufficient metadata before compatible; of equals the first.

    Raises
    ------
    ValueError
        If there is none.
    """
    return max(verdicts, key=lambda verdict: _SEVERITY[verdict.status])


def _alone(
    item: Item,
    remembered: Iterable[Item],
    constraint: SpecifierSet | None,
    driver: Driver,
    *,
    assume_forward: bool,
    hint: str,
) -> Iterator[Verdict]:
    """The checks of one item, in their order; lazily, so that the driver is asked last."""
    yield check_item(item)
    if item.packaged_with != "ctk":
        return
    yield check_constraint(item, constraint)
    for other in remembered:
        if other != item:
            yield check_pair(item, other)
    yield check_driver(item, driver, assume_forward=assume_forward, hint=hint)


def _piped(item: Item, remembered: Iterable[Item], pipelines: Iterable[Pipeline]) -> Iterator[Verdict]:
    libraries = libraries_by_name((item, *remembered))
    for pipeline in pipelines:
        if item.name in (pipeline.producer, pipeline.consumer):
            ends = libraries.get(pipeline.producer), libraries.get(pipeline.consumer)
            if ends[0] is not None and ends[1] is not None:
                yield check_pipeline(pipeline, ends[0], ends[1])


def judge(
    item: Item,
    remembered: Sequence[Item] = (),
    *,
    constraint: SpecifierSet | None = None,
    driver: Driver,
    pipelines: Sequence[Pipeline] = (),
    assume_forward: bool = False,
    hint: str = "",
    unknown_driver_passes: bool = False,
) -> Verdict:
    """Judge one item beside those that were accepted before: the first verdict that is not "compatible", or the last.

    The order is: packaging, known release, constraint, every remembered item, driver, pipelines.

    Parameters
    ----------
    item : Item
    remembered : sequence of Item
        Accepted items.
    constraint : SpecifierSet, optional
    driver : Driver
    pipelines : sequence of Pipeline
    assume_forward, hint
        As in `check_driver`.
    unknown_driver_passes : bool
        Whether pipelines are judged as well where the driver is not known; its verdict is given if they hold.
    """
    *_, verdict = _until_fault(_alone(item, remembered, constraint, driver, assume_forward=assume_forward, hint=hint))
    passes = unknown_driver_passes and verdict.rule == "driver" and verdict.status == "insufficient_metadata"
    if verdict.status == "compatible" or passes:
        for piped in _piped(item, remembered, pipelines):
            if piped.status != "compatible":
                return piped
    return verdict


def _until_fault(verdicts: Iterable[Verdict]) -> Iterator[Verdict]:
    """Verdicts up to and with the first that is not "compatible"."""
    for verdict in verdicts:
        yield verdict
        if verdict.status != "compatible":
            return


def judge_all(
    items: Iterable[Item],
    *,
    constraint: SpecifierSet | None = None,
    driver: Driver,
    pipelines: Sequence[Pipeline] = (),
    assume_forward: bool = False,
    hint: str = "",
) -> list[Verdict]:
    """The verdict of every rule on a set of items, each pair and each pipeline once; in no way dependent on the order.

    Of pairs, those that share a group. Parameters as in `judge`.
    """
    ordered = sorted(set(items), key=lambda item: (item.kind, item.name, item.path, str(item), item.packaged_with))
    verdicts: list[Verdict] = []
    for item in ordered:
        verdicts += _alone(item, (), constraint, driver, assume_forward=assume_forward, hint=hint)
    known = [item for item in ordered if item.packaged_with == "ctk"]
    for number, a in enumerate(known):
        related = [b for b in known[number + 1 :] if shared_groups(a, b)]
        verdicts += [check_pair(*_keep_last(a, b, driver.cuda().value)) for b in related]
    for pipeline in sorted(set(pipelines), key=str):
        ends = [
            [item for item in known if item.kind == "dynamic-libs" and item.name == name]
            for name in (pipeline.producer, pipeline.consumer)
        ]
        verdicts += [check_pipeline(pipeline, producer, consumer) for producer in ends[0] for consumer in ends[1]]
    return verdicts
