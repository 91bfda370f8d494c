"""Libraries that an environment lacks: what its files link or open, compared with what the loader finds for them."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from ...base.finding import Finding, Severity
from ...base.install_command import NO_COMMAND, Command
from ...base.regular_files import open_regular
from ...base.tables import grouped
from ...base.words import and_more
from ...compat import exports
from ...compat.libraries import majors_of, packages_of, stem_of
from ...environment import conda
from ...environment.installed import Installed, Place, Unreadable
from ...environment.library_search import Provider, Providers, parts_named_in
from ...environment.loader_search import is_any_reached, library_path
from ...versions import CudaVersion
from .. import install_targets
from ..device_code.images import in_file
from ..device_code.scan import pieces
from ..loadable import buffer, data_ranges, read_dynamic
from ..needs import Need, needs_of_scan
from ..opened import is_part, names_in_data
from ..scan import MOST_NAMES, MOST_UNPACKED, Scan, read_nvjitlink_needs
from .claims import OF_EXTRA, Claim, is_cuda_distribution
from .machine import TargetMachine, driver_here

#: Returns the command that installs requirements with the package manager of a distribution.
Install = Callable[[str, Sequence[str]], Command]
#: A Python extension module, which is loaded where a program imports it, and not before.
EXTENSION: Final = re.compile(r"\.(?:cpython-[^/]*|abi3)\.so$")
#: Libraries of the driver, which no environment brings.
_DRIVER: Final = frozenset({"libcuda", "libnvidia-ml"})


def needs_of_files(place: Place, package: Installed, unreadable: list[Unreadable]) -> list[Need]:
    """What the installed libraries of a distribution need by what they link, and by the LTO-IR in them.

    NVIDIA's own libraries, two thirds of the bytes of an environment, are not searched for LTO-IR: those that have some
    link nvJitLink, by symbols that name its release.
    """
    scan = Scan("")
    names = {os.path.relpath(path, place.prefix): path for path in package.files}  # a prefix may be called cuda-13.0
    of_cuda = conda.is_cuda_package(package.name) if package.manager == "conda" else is_cuda_distribution(package.name)
    for name, path in names.items():
        try:
            elf = read_dynamic(path)
            if elf is None:
                continue
            if any(majors_of(library) is not None for library in (*elf.needed, elf.soname or "")):
                scan.elves[name] = elf
            if of_cuda:
                continue
            with open_regular(path) as stream:
                if opened := names_in_data(stream, data_ranges(stream)):
                    scan.opened[name] = opened[:MOST_NAMES]
                with buffer(stream) as content:
                    found_code = pieces(content, text=False) if content.find(b"libnvJitLink") >= 0 else ()
                    images = in_file(name, content, found_code, room=MOST_UNPACKED)
                    read_nvjitlink_needs(scan, name, content, images, elf.needed)
            if name in scan.jitify:
                scan.elves[name] = elf
        except (OSError, ValueError) as error:
            reason = f"{(isinstance(error, OSError) and error.strerror) or error}"
            unreadable.append(Unreadable(path, f"{reason}: install {package} again"))
    return [replace(need, path=names[need.path]) for need in needs_of_scan(scan)]


def measured_claims(
    package: Installed, needs: Sequence[Need], providers: Providers, declared: Sequence[Claim], install: Install
) -> tuple[list[Claim], list[Finding]]:
    """What the files of a distribution need of the libraries that they get, and those that they do not get."""
    highest: dict[tuple[str, int], Need] = {}
    linked: dict[tuple[str, int], Need] = {}
    for need in needs:
        if need.stem in _DRIVER or (need.how == "opened" and not need.floor):
            continue
        key = need.stem, need.major
        if need.how in ("linked", "symbols"):
            linked.setdefault(key, need)
        if need.floor and (key not in highest or need.floor > (highest[key].floor or need.floor)):
            highest[key] = need
    claims: list[Claim] = []
    older: list[Finding] = []
    for (stem, major), need in highest.items():
        provider = providers.of(stem, major, need.path)
        if provider and provider.owner is None and need.floor and (provider.release or need.floor) < need.floor:
            older.append(_older(package, need, need.floor, provider))
        if provider and provider.owner and provider.owner.name != package.name and need.floor and provider.release:
            claims.append(_claim(package, need, need.floor, provider, declared))
    got = {key: _linked_with(package, need, providers) for key, need in linked.items()}
    absent = {need.stem: need for key, need in linked.items() if not got[key]}
    served = {stem for (stem, _), provider in got.items() if provider}
    # a wheel may have one file for each CUDA major, of which a program loads one; what is declared is reported by name
    served |= {
        stem for stem in absent for claim in declared
        if claim.by == str(package) and claim.satisfied is None and _is_package_of(claim.name, stem)
    }  # fmt: skip
    nowhere = [need for need in absent.values() if need.stem not in served]
    names = sorted({exports.distributions(need.stem).get(need.major) or "" for need in nowhere} - {""})
    fix = install(package.manager, names) if names and package.manager != "conda" else NO_COMMAND
    apart = _without_parts(package, needs, linked, providers)
    return claims, [*older, *(_unprovided(package, need, fix) for need in nowhere), *apart]


def _linked_with(package: Installed, need: Need, providers: Providers) -> Provider | None:
    """The copy that a linked file gets; a program may load one of a toolkit first, where the loader does not look.

    Nothing loads the runtime before NVIDIA's own libraries but those for several processes (``LIB_DESCRIPTORS`` of
    cuda.pathfinder 1.9.1).
    """
    provider = providers.of(need.stem, need.major, need.path)
    before = stem_of(Path(need.path).name).endswith("Mp") or not is_cuda_distribution(package.name)
    runtime = need.stem == "libcudart" and not before
    if provider is None or provider.owner or not runtime:
        return provider
    return provider if is_any_reached(need.path, [provider.library], providers.by_name) else None


def _without_parts(
    package: Installed, needs: Sequence[Need], linked: Mapping[tuple[str, int], Need], providers: Providers
) -> Iterator[Finding]:
    """The copies of cuDNN and of NVRTC, inside a distribution or outside of all, that open their parts in vain.

    A note where the environment has the parts of cuDNN nowhere: the program runs on the CPU alone, as its users do.
    """
    opened: dict[str, set[str]] = {}
    for need in needs:
        if need.how == "opened" and is_part(need.stem, need.path):
            opened.setdefault(need.path, set()).add(need.library)
    got = (providers.of(stem, major, linked[stem, major].path) for stem, major in linked if stem == "libcudnn")
    outside = {each.path: parts_named_in(each.path) for each in got if each and each.owner is None}
    for opener, parts in (opened | outside).items():
        if not parts or is_any_reached(opener, parts, providers.by_name):
            continue
        there = next((each.path for each in providers.all if each.library.startswith(tuple(parts))), "")
        nowhere = not there and opener not in outside and stem_of(Path(opener).name) == "libcudnn"
        named = f"{min(parts)}{and_more(len(parts) - 1)}"
        text = f"{opener}, which {package} loads, opens {named} by name, which the loader does not find for it"
        advice = f"put a folder with all parts of that {stem_of(Path(opener).name)} into LD_LIBRARY_PATH"
        if there:
            advice = f"put {Path(there).parent} into LD_LIBRARY_PATH, if its release fits"
        yield Finding("note" if nowhere else "error", text, otherwise=advice, place=opener, kind="unprovided")


def of_another_major(
    package: Installed, needs: Sequence[Need], providers: Providers, install: Install, machine: TargetMachine | None
) -> Iterator[Finding]:
    """Libraries that a distribution opens by name, where the environment has those of other CUDA majors alone.

    Where it has none at all, the program is one that does without; and where there is no driver, it comes to open none.
    """
    opened = [need for need in needs if need.stem not in _DRIVER and need.how == "opened" and not need.floor]
    for stem, several in grouped((need.stem, need) for need in opened).items():
        there = next((each for each in providers.all if each.stem == stem and each.owner), None)
        if there is None or any(providers.of(stem, need.major, need.path) for need in several):
            continue
        need = several[0]
        name = exports.distributions(stem).get(need.major)
        severity: Severity = "error" if machine or driver_here() else "note"
        opens = f"{Path(need.path).name} of {package} {need.evidence}"
        text = f"{opens}, and there is {there.library} of {there.owner} alone"
        fix = install(package.manager, [name]) if name and package.manager != "conda" else NO_COMMAND
        advice = "" if name else f"install a build of {package.name} for the CUDA release of {there.owner}"
        yield Finding(severity, text, fix, advice, place=need.path, kind="unprovided")


def _older(package: Installed, need: Need, floor: CudaVersion, provider: Provider) -> Finding:
    """An older library that a file gets from its own folder, a folder that a variable names, or the system."""
    folder, file = os.path.split(provider.path)[0], Path(need.path).name
    by_variable = folder in library_path()
    is_old = f"{provider.library} is that of CUDA {provider.release} in {'LD_LIBRARY_PATH' if by_variable else folder}"
    text = f"{is_old}; expected {floor} or newer: {file} of {package} {need.evidence}"
    advice = f"put one of CUDA {floor} or newer there, or before it in LD_LIBRARY_PATH if {file} has no RPATH"
    if by_variable:
        advice = f"take {folder} out of LD_LIBRARY_PATH"
    return Finding("error", text, otherwise=advice, place=provider.path, kind="floor")


def _is_package_of(name: str, stem: str) -> bool:
    """Whether a package brings a library, as far as its name or the table of exports tells."""
    known = exports.distributions(stem).values()
    return stem.removeprefix("lib") in name or name in known


def _claim(package: Installed, need: Need, floor: CudaVersion, provider: Provider, declared: Sequence[Claim]) -> Claim:
    owner, release = provider.owner, provider.release
    assert owner is not None  # checked by the caller
    assert release is not None
    known = exports.wheel_versions(need.stem, floor)
    oldest = known[0] if known else str(floor)
    first = need.wheel or oldest
    if exports.is_numbered(need.stem) and first == oldest:  # every wheel of that release will do
        first = str(floor)
    own = [claim for claim in declared if claim.by == str(package) and claim.name == owner.name]
    said = f"declares {own[0].versions or 'no bound'}" if own else f"declares no requirement on {owner.name}"
    return Claim(
        str(package), owner.name, f">={first}", need.how, f"{need.evidence}; {package.name} {said}",
        release >= floor and install_targets.accepts(f">={first}", owner.version), file=need.path,
    )  # fmt: skip


def _unprovided(package: Installed, need: Need, fix: Command) -> Finding:
    """A library that a distribution does not get. `fix`: installs all those of which NVIDIA has packages."""
    library = need.library
    name = exports.distributions(need.stem).get(need.major)
    claim = Claim(str(package), name or library, "", need.how, need.evidence, None, file=need.path)
    extra = _extra_with(package, need.stem)
    optional = not name and (bool(extra) or EXTENSION.search(need.path) is not None)
    fix = fix if name else NO_COMMAND
    brings = f"{package.name}[{extra}], which requires it" if extra else f"the package that has {library}"
    used = f"{Path(need.path).name} of {package} is linked with it"
    text = f"{library} is missing; expected in the environment or the system: {used}"
    advice = f"install the package that has {library}, or a build of {package.name} for another CUDA release"
    if optional:
        advice = f"nothing, if no program loads this file; else install {brings}"
    severity: Severity = "note" if optional else "error"
    return Finding(severity, text, fix, "" if fix else advice, evidence=(claim,), kind="unprovided")


def _extra_with(package: Installed, stem: str) -> str:
    """The extra of a distribution that brings a library from outside of the toolkit; empty if none does."""
    asked = [OF_EXTRA.match(line) for line in package.requires]
    known = packages_of(stem)
    return next((match["extra"] for match in asked if match and canonicalize_name(match["name"]) in known), "")
