"""The rules, pure: items in, verdict out. What is related to what is data, in `matrices/guardrails.toml`.

This module does not look at the system, and imports neither pytest nor CUDA. Only the rule that needs a `Driver` asks
it, and for its release only if the versions alone do not decide.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from ..base.finding import NO_DRIVER
from ..base.install_command import NO_COMMAND, Command
from ..base.words import and_more
from ..compat.releases import DRIVER_BRANCH_FLOOR, LATEST_KNOWN
from ..environment.requirements import why_never
from ..versions import CudaVersion, specifier_of
from .driver import DriverFacts, branch_of
from .items import (
    ALREADY_LOADED,
    Fact,
    Item,
    Verdict,
    archive_and_linker,
    besides,
    compatible,
    libraries_by_name,
    meets_driver,
    shared_groups,
)
from .pipelines import Pipeline, check_pipeline
from .repair import by_hand, extra_of, published_releases, remedies, repair, worth


@dataclass(frozen=True)
class KnownDriver:
    """A driver with given facts."""

    cuda_version: CudaVersion | None
    release_version: str | None = None
    witness: str = "as given"  # where these were read
    assume_forward: bool = False
    hint: str = ""

    def cuda(self) -> Fact:
        return Fact(self.cuda_version, self.witness if self.cuda_version else "no CUDA version of the driver is known")

    def release(self) -> Fact:
        return Fact(self.release_version, self.witness if self.release_version else "no release of the driver is known")


#: What the driver rule asks, each only when it needs the answer.
Driver: TypeAlias = KnownDriver | DriverFacts


def parse_constraint(value: str | SpecifierSet | None, flag: str = "") -> SpecifierSet | None:
    """Read the argument ``ctk_version``.

    `flag`: the option of a command that gave it, where a number alone, ``"13.2"``, stands for ``"==13.2.*"``.
    Raises ValueError if it is neither None, nor a SpecifierSet, nor a non-empty PEP 440 specifier; if no release of
    CUDA meets it; or if a bound has a patch number, as only major and minor of an item's release are known.
    """
    name = flag or "ctk_version"
    if value is None or isinstance(value, SpecifierSet):
        return _without_patch(name, value)
    if isinstance(value, str) and value.strip():
        with suppress(InvalidSpecifier):
            return _without_patch(name, specifier_of(value.strip()) if flag else SpecifierSet(value))
    others = "or a release such as 13.2" if flag else "a SpecifierSet, or None"
    raise ValueError(f"{name} = {value!r}; expected a PEP 440 specifier such as '>=13.2,<14', {others}")


def _without_patch(name: str, specifiers: SpecifierSet | None) -> SpecifierSet | None:
    for specifier in specifiers or ():
        numbers = specifier.version.removesuffix(".*").split(".")
        if any(number.strip("0") for number in numbers[2:]):
            fewer = f"{specifier.operator}{'.'.join(numbers[:2])}"
            has = "has a patch number, but the CUDA release of an item is known as MAJOR.MINOR"
            do = f"write the PEP 440 specifier {fewer}{'.*' if fewer[:2] == '==' else ''}"
            raise ValueError(f"{name} = '{specifiers}': '{specifier}' {has}; {do}")
    if specifiers is not None and (never := why_never("ctk", specifiers)):
        raise ValueError(f"{name} = '{specifiers}': {never}")
    return specifiers


# -- one function for each rule


def check_item(item: Item) -> Verdict:
    """Whether an item can be compared: it is a part of the toolkit, of a known CUDA release."""
    if item.packaged_with == "driver":
        return compatible("packaging", f"{item.label}: comes with the driver", item)
    if item.packaged_with == "other":
        text = f"{item.label}: comes with neither the CUDA toolkit nor the driver, so its CUDA release is not known"
        advice = "look it up with cuda.pathfinder itself"
        return Verdict("unknown", text, otherwise=advice, evidence=(item,), kind="packaging")
    if item.version is None:
        text = f"the CUDA release of the {item.label} is not known: {item.witness}"
        fix = Command((f"cuda-toolkit[{extra_of(item, LATEST_KNOWN)}]",))
        advice = "give a release: cuda-toolkit[...]==13.0.*"
        return Verdict("unknown", text, fix, advice, evidence=(item,), kind="ctk-version-known")
    return compatible("ctk-version-known", item.is_of, item)


def check_constraint(item: Item, constraint: SpecifierSet | None) -> Verdict:
    """Whether the release of a toolkit item satisfies the constraint."""
    if constraint is None or item.version is None:
        return compatible("ctk-constraint", "no release is required", item)
    if constraint.contains(Version(str(item.version))):
        return compatible("ctk-constraint", f"CUDA {item.version} is among '{constraint}'", item)
    # a release, not the constraint itself: for pip, '==13.2' means 13.2.0 alone, and '<=13.2' excludes 13.2.1
    wanted = [release for release in published_releases() if constraint.contains(Version(str(release)))]
    none = NO_COMMAND, f"no known release of CUDA is among '{constraint}'"
    fix, advice = remedies((item,), max(wanted)) if wanted else none
    text = f"{item.is_of}, but ctk_version asks for '{constraint}'"
    return Verdict("error", text, fix, advice, evidence=(item,), kind="ctk-constraint")


def check_pair(a: Item, b: Item, there: Collection[Item] = ()) -> Verdict:
    """Whether two toolkit items may be used together; the repair keeps the release of the second.

    `there`: all items that are there.
    """
    groups = shared_groups(a, b, there) if a.packaged_with == b.packaged_with == "ctk" else {}
    if not groups or a.version is None or b.version is None:
        return compatible("same-ctk", f"the {a.label} and the {b.label} are independent", a, b)
    name, because = next(iter(groups.items()))
    if a.version == b.version:
        return compatible("same-ctk", f"the {a.label} and the {b.label} are both of CUDA {a.version} ({name})", a, b)
    text = f"{a.is_of}, the {b.label} of CUDA {b.version}, but both must be of one CUDA release ({name}: {because})"
    return Verdict("error", text, *remedies((a, b), b.version), evidence=(a, b), kind="same-ctk")


def check_linked(a: Item, b: Item) -> Verdict:
    """Whether a static library is not newer than the item that links it; majors may differ, as measured.

    The repair raises the linker, as the archive belongs to the toolchain that it came with. It replaces the archive
    where the linker is loaded already, and headers: their release is free, and the driver may not run a newer compiler.
    """
    pair = archive_and_linker(a, b) if a.packaged_with == b.packaged_with == "ctk" else None
    if pair is None:
        return compatible("linked", f"the {a.label} and the {b.label} are independent", a, b)
    archive, linker, because = pair
    made, read = archive.version, linker.version
    if made is None or read is None or made <= read:
        return compatible("linked", f"the {linker.label} of CUDA {read} links the {archive.label} of CUDA {made}", a, b)
    replaced = archive.kind == "headers" or linker.found_via == ALREADY_LOADED
    moved, release = (archive, read) if replaced else (linker, made)
    text = f"{archive.is_of}, the {linker.label} of CUDA {read}, which takes it and must not be older: {because}"
    return Verdict("error", text, *remedies((moved,), release), evidence=(archive, linker), kind="linked")


def check_driver(item: Item, driver: Driver, *, others: int = 0) -> Verdict:
    """Whether the driver runs code of a toolkit of the item's release.

    By the CUDA Compatibility guide: backward compatibility; within a major, minor-version compatibility from a driver
    branch on.

    `others`: the number of other items of the same release that the verdict is about.
    """
    ctk, label = item.version, f"{item.label}{and_more(others)}"
    if ctk is None or not meets_driver(item):
        return compatible("driver", f"{item.label}: needs nothing from the driver", item)
    cuda = driver.cuda()
    version: CudaVersion | None = cuda.value
    if version is None:
        unknown = f"driver: unknown: {cuda.witness}"
        text = f"whether the driver runs CUDA {ctk} ({label}) is not known: {cuda.witness}"
        advice = "install the NVIDIA driver; or give its version, driver_cuda_version=13000"
        why = NO_DRIVER if cuda.absent else unknown
        return Verdict("unknown", text, otherwise=advice, why=why, evidence=(item, unknown), kind="driver")
    words = f"driver: CUDA {version}: {cuda.witness}"
    if version >= ctk:
        return compatible("driver", f"a driver of CUDA {version} runs CUDA {ctk} (backward compatibility)", item)
    fault = ""
    if version.major < ctk.major:
        fault = f"the driver is of CUDA {version}, older than major {ctk.major}"
    elif ctk.major not in DRIVER_BRANCH_FLOOR:
        fault = f"for CUDA {ctk.major} no driver branch with minor-version compatibility is known"
    else:
        floor = DRIVER_BRANCH_FLOOR[ctk.major]
        release = driver.release()
        if release.value is None:
            unknown = f"{words}; release unknown: {release.witness}"
            runs = f"a driver of CUDA {version} runs CUDA {ctk} ({label}) from branch {floor} on"
            text = f"{runs}, and the driver's release is not known: {release.witness}"
            fix, advice = repair((item,), version, at_most=True), "give the release, driver_release_version='580.65.06'"
            evidence = (item, unknown)
            return Verdict("unknown", text, fix, otherwise=advice, why=unknown, evidence=evidence, kind="driver")
        words = f"{words}; release {release.value}: {release.witness}"
        if branch_of(release.value) >= floor:
            text = f"release {release.value} runs CUDA {ctk} (minor-version compatibility from branch {floor} on)"
            return compatible("driver", f"a driver of CUDA {version}, {text}", item)
        fault = f"minor-version compatibility needs driver branch {floor} or newer, the driver is {release.value}"
    fix = repair((item,), version, at_most=True)
    instead = f"{by_hand((item,), version)}, or " if item.kind == "binaries" and not fix else ""
    if driver.assume_forward:
        return compatible("driver", f"forward compatibility is assumed: {fault}", item)
    advice = f"{instead}install a driver for CUDA {ctk}{driver.hint}"
    text = f"the driver does not run CUDA {ctk} ({label}): {fault}"
    return Verdict("error", text, fix, advice, evidence=(item, words), kind="driver")


# -- all rules together


def _alone(
    item: Item, remembered: Collection[Item], constraint: SpecifierSet | None, driver: Driver
) -> Iterator[Verdict]:
    """The checks of one item, in order; lazily, so that the driver is asked last."""
    yield check_item(item)
    if item.packaged_with != "ctk":
        return
    yield check_constraint(item, constraint)
    there = (item, *remembered)
    for other in remembered:
        if other != item:
            yield check_pair(item, other, there)
            yield check_linked(item, other)
    if item.name in besides():
        yield from (check_pair(*pair, there) for pair in combinations(remembered, 2))
    yield check_driver(item, driver)


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
    unknown_driver_passes: bool = False,
) -> Verdict:
    """Judge one item together with the accepted ones: the first verdict that does not hold, or the last verdict.

    The order is: packaging, known release, constraint, every remembered item (same release, linked), driver, pipelines.

    `remembered`: accepted items.
    `unknown_driver_passes`: whether pipelines are also judged if the driver is not known; if they hold, the driver's
    verdict is returned.
    """
    for verdict in _alone(item, remembered, constraint, driver):
        if verdict.severity != "note":
            break
    passes = unknown_driver_passes and verdict.kind == "driver" and verdict.severity == "unknown"
    if verdict.severity == "note" or passes:
        for piped in _piped(item, remembered, pipelines):
            if piped.severity != "note":
                return piped
    return verdict


def judge_all(
    items: Iterable[Item],
    *,
    constraint: SpecifierSet | None = None,
    driver: Driver,
    pipelines: Sequence[Pipeline] = (),
) -> list[Verdict]:
    """The verdicts of every rule on a set of items: each item, related pair and pipeline once, in whatever order given.

    Parameters as in `judge`.
    """
    ordered = sorted(set(items), key=lambda item: (item.kind, item.name, item.path, str(item), item.packaged_with))
    verdicts = [verdict for item in ordered for verdict in _alone(item, (), constraint, driver)]
    known = [item for item in ordered if item.packaged_with == "ctk"]
    for number, a in enumerate(known):
        related = [b for b in known[number + 1 :] if shared_groups(a, b, known)]
        ordered_pairs = (sorted((a, b), key=lambda item: worth(item, driver.cuda().value)) for b in related)
        verdicts += [check_pair(less, kept, known) for less, kept in ordered_pairs]
        verdicts += [check_linked(a, b) for b in known[number + 1 :] if archive_and_linker(a, b)]
    for pipeline in sorted(set(pipelines), key=str):
        ends = [
            [item for item in known if item.kind == "dynamic-libs" and item.name == name]
            for name in (pipeline.producer, pipeline.consumer)
        ]
        verdicts += [check_pipeline(pipeline, producer, consumer) for producer in ends[0] for consumer in ends[1]]
    return verdicts
