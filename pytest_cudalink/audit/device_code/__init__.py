"""The device code in a wheel, a library or an archive: what it is, and what each driver does with it on each GPU.

`what_happens` is the rule: pure, with the data of `compat`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import fnmatch
from functools import cache
from itertools import compress
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...base.tables import grouped, read_table
from ...base.words import and_more
from ...compat import architectures, atlas
from ...compat.architectures import architecture_of
from ...compat.releases import driver_branch, driver_named, drivers_in, ptx_isa_of
from ...versions import CudaVersion
from .images import RELOCATABLE
from .images import DeviceImage as DeviceImage
from .images import UnreadImage as UnreadImage
from .images import all_images as all_images
from .images import images as images

#: The architectures of data centres and desktops, which are shown where no GPU is asked for.
ROWS: Final = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120", "sm_121")

#: What distinguishes files that hold the same code for several architectures: "kernel_sm80.cubin".
_ARCH_IN_NAME: Final = re.compile(r"(?i)(?:sm|compute|arch|cc)[_-]?\d{2,3}[af]?(?![0-9a-z])")

#: Sections of the fatbins that the CUDA runtime gives to the driver, or that a linker reads.
_REGISTERED: Final = frozenset({".nv_fatbin", ".nv_fatb", *RELOCATABLE})

#: What plain data have of an image, in their order.
_SHOWN: Final = (
    *("kind", "arch", "ptx_isa", "producer", "needs", "packed"),
    *("relocatable", "virtual_arch", "section", "note"),
)


class DriverOutcome(StrEnum):
    """What happens to device code, from good to bad; `UNDRIVEN` is not a fault of the code."""

    UNDRIVEN = "no driver"
    NATIVE = "native"
    COMPILED = "compiled"
    LINKED = "linked"
    TOO_NEW = "222"
    WRONG_TARGET = "218"
    UNKNOWN_FORM = "200"
    NOTHING_FITS = "209"

    @property
    def fails(self) -> bool:
        """Whether the driver refuses the code."""
        return self.severity >= DriverOutcome.TOO_NEW.severity

    @property
    def severity(self) -> int:
        """The place in the order from good to bad."""
        return list(DriverOutcome).index(self)


class DriverAnswer(NamedTuple):
    """The answer for one group of images, one architecture and one driver."""

    outcome: DriverOutcome
    # the image that decides: that runs, that is compiled, or that the driver takes and cannot use
    image: DeviceImage | None = None


def what_happens(images: Iterable[DeviceImage], arch: str, driver: CudaVersion) -> DriverAnswer:
    """Return what a driver does with a group of images on a GPU.

    The choice was recorded for fatbins on driver 580 with an H100 (`campaigns/conformance/fatbin_record.py`): the
    driver looks at the architectures alone, and at what is in an image after it has chosen.

    1. A driver that does not know the GPU drives nothing.
    2. Of the cubins that run on the GPU, that of the highest architecture is taken, of equal ones the first. If it is
       of a newer major release than the driver, it is 200, CUDA_ERROR_INVALID_IMAGE, whatever lies beside it (inferred
       from the answer to a form that driver 580 does not know; 209 if it is a file by itself).
    3. Else, in a group without cubins, LTO-IR is for nvJitLink, which makes a cubin of it.
    4. Else the driver compiles the PTX for the highest architecture that is not newer than the GPU, of equal ones the
       last. If its ISA is too new, it is 222, though older PTX lies beside it. If it is for its architecture alone, and
       that is another one, it is 218.
    5. Else a driver from CUDA 13.1 on compiles Tile IR of no newer release, for the GPUs that tileiras of its release
       knows (by cuda.h; a real 13.0 has 209).
    6. Nothing of these: 209, CUDA_ERROR_NO_BINARY_FOR_GPU.

    `arch`: of the GPU, such as ``"sm_89"``.
    `driver`: the newest CUDA version that the driver supports.
    """
    images = tuple(images)
    gpu = architectures.parse_architecture(arch)[1]
    if not _drives(gpu, driver):
        return DriverAnswer(DriverOutcome.UNDRIVEN)
    if native := [image for image in images if image.kind == "cubin" and serves(image, gpu)]:
        cubin = max(native, key=_specific)
        return DriverAnswer(DriverOutcome.NATIVE if _is_taken_by(cubin, driver) else DriverOutcome.UNKNOWN_FORM, cubin)
    lto = [image for image in images if image.kind == "ltoir" and serves(image, gpu)]
    if lto and not any(image.kind == "cubin" for image in images):
        return DriverAnswer(DriverOutcome.LINKED, max(lto, key=_specific))
    ptx = [image for image in reversed(images) if image.kind == "ptx" and _can_be_chosen(image, gpu)]
    if not ptx and (tile := [image for image in images if image.kind == "tileir" and _compiles(image, gpu, driver)]):
        return DriverAnswer(DriverOutcome.COMPILED, tile[0])
    if not ptx:
        return DriverAnswer(DriverOutcome.NOTHING_FITS)
    chosen = max(ptx, key=_specific)
    if chosen.ptx_isa is None or chosen.ptx_isa > ptx_isa_of(driver):
        return DriverAnswer(DriverOutcome.TOO_NEW, chosen)
    return DriverAnswer(DriverOutcome.COMPILED if serves(chosen, gpu) else DriverOutcome.WRONG_TARGET, chosen)


def _can_be_chosen(ptx: DeviceImage, gpu: int) -> bool:
    """Whether a driver considers PTX for a GPU: also compute_90a for a newer one (recorded)."""
    return _same_family(ptx.number, gpu) if ptx.suffix == "f" else 0 < ptx.number <= gpu


def _compiles(tile: DeviceImage, gpu: int, driver: CudaVersion) -> bool:
    needs = tile.needs
    if needs is None or needs.newer_than:
        return False
    return any(release <= driver for release in atlas.load().tileiras_for(f"sm_{gpu}", needs.version))


def _is_taken_by(cubin: DeviceImage, driver: CudaVersion) -> bool:
    """Minor versions do not matter for cubins: a driver of CUDA 12.0 runs those of 12.9, but not those of 13.0."""
    return cubin.needs is None or cubin.needs.version.major <= driver.major


def _specific(image: DeviceImage) -> tuple[int, bool]:
    return image.number, image.suffix == "a"


def serves(image: DeviceImage, gpu: int) -> bool:
    """Whether an image is for a GPU of its architecture or a later one; a suffix binds it, and the major a cubin."""
    if image.suffix == "a":
        return image.number == gpu
    if image.suffix == "f" or image.kind == "cubin":
        return _same_family(image.number, gpu)
    return 0 < image.number <= gpu


def _same_family(number: int, gpu: int) -> bool:
    """Whether a GPU is of an architecture or of a later minor revision; each of Tegra's is a family by itself."""
    if number == gpu:
        return True
    return number // 10 == gpu // 10 and number < gpu and not {number, gpu} & _tegra()


@cache
def _tegra() -> frozenset[int]:
    return frozenset(read_table("device_code.toml")["tegra"]["architectures"])


@cache
def _dropped_since() -> CudaVersion:
    return CudaVersion.parse(read_table("device_code.toml")["drivers"]["dropped-since"])


_KNOWN: Final = {architecture.number: architecture for architecture in architectures.ARCHITECTURES}


def _drives(gpu: int, driver: CudaVersion) -> bool:
    known = _KNOWN[gpu]
    return driver >= known.since and (known.dropped is None or driver < _dropped_since())


# -- the groups of a wheel


@dataclass(frozen=True)
class ImageGroup:
    """Images between which a driver or a program chooses, with all the places that have the same."""

    paths: tuple[str, ...]  # files that have such a group
    count: int  # how many groups of these files are the same
    images: tuple[DeviceImage, ...]  # those of the first of them, without their bytes
    for_linker: bool  # whether a linker gets them, not the driver: relocatable cubins, and what objects hold

    @property
    def is_for_one_gpu(self) -> bool:
        """Whether all its images run on the very architecture, or family, that they are for."""
        return all(image.suffix for image in self.images)

    def answer(self, arch: str, driver: CudaVersion) -> DriverAnswer:
        """What a driver does with it on a GPU: `what_happens`."""
        return what_happens(self.images, arch, driver)


@dataclass(frozen=True)
class DeviceCode:
    """The device code of a wheel, a folder, a library or an archive."""

    path: str
    groups: tuple[ImageGroup, ...]
    faults: tuple[UnreadImage, ...]  # what could not be read

    @property
    def judged(self) -> tuple[ImageGroup, ...]:
        """The groups with code that a driver gets; where there are only those for a linker, these."""
        with_code = tuple(group for group in self.groups if not all(image.empty for image in group.images))
        return tuple(group for group in with_code if not group.for_linker) or with_code

    def answers(self, arch: str, driver: CudaVersion) -> list[tuple[ImageGroup, DriverAnswer]]:
        """The answer for each group that a driver gets, the worst first."""
        answers = [(group, group.answer(arch, driver)) for group in self.judged]
        return sorted(answers, key=lambda pair: -pair[1].outcome.severity)

    def _faults(self, arch: str, driver: CudaVersion) -> Iterator[tuple[ImageGroup, DriverAnswer, bool]]:
        """Yield each group that a driver gets, its answer, and whether that is a fault, in the order of the groups.

        A failure is not a fault where the group is for other GPUs alone, and its files have code that fits: a program
        chooses between translation units that are written for one GPU each, such as for sm_90a and sm_100a. Code for an
        architecture with a suffix runs nowhere else, so that it cannot have been forgotten for this one.
        """
        answers = [(group, group.answer(arch, driver)) for group in self.judged]
        fitting = {path for group, answer in answers if not answer.outcome.fails for path in group.paths}
        for group, answer in answers:
            excused = answer.image is None and group.is_for_one_gpu and fitting.issuperset(group.paths)
            yield group, answer, answer.outcome.fails and not excused

    def served(self, arch: str, drivers: Iterable[CudaVersion]) -> dict[CudaVersion, int]:
        """Return how many files each driver that knows a GPU takes as a whole."""
        files_served: dict[CudaVersion, int] = {}
        for driver in drivers:
            refused: dict[str, bool] = {}
            for group, answer, fails in self._faults(arch, driver):
                if answer.outcome is not DriverOutcome.UNDRIVEN:
                    refused |= {path: refused.get(path) or fails for path in group.paths}
            if refused:
                files_served[driver] = sum(not fails for fails in refused.values())
        return files_served

    def failures(self, archs: Iterable[str], drivers: Iterable[CudaVersion], files: str = "*") -> list[str]:
        """A sentence for each group, architecture and outcome that fails, with the drivers on which it does."""
        drivers, archs, lines = tuple(drivers), tuple(archs), []
        matches = [any(fnmatch(path, files) for path in group.paths) for group in self.judged]
        if archs and files != "*" and not any(matches):
            return [f"files is {files!r}; no file with device code matches; expected a pattern that matches one"]
        for arch in archs:
            by_driver = [list(self._faults(arch, driver)) for driver in drivers]
            for faults in compress(zip(*by_driver, strict=True), matches):
                pairs = zip(drivers, faults, strict=True)
                failed = grouped((answer, driver) for driver, (_, answer, fails) in pairs if fails)
                lines += [_failure(faults[0][0], arch, answer, on) for answer, on in failed.items()]
        return lines

    def check(self, archs: Sequence[str], drivers: str | Sequence[str] = ">=525", files: str = "*") -> None:
        """Raise unless a driver takes every group on every GPU.

        `archs`: GPUs: ``"sm_89"``, ``"8.9"`` or ``"L4"``.
        `drivers`: a range such as ``">=525"`` or ``">=12.2,<580"``, or single drivers: ``["535", "12.4"]``.
        `files`: only files of the wheel that match: ``"*_cuda13*.so"``.
        Raises AssertionError with a line for each group that a driver refuses, and for each file that cannot be read;
        also if no file matches, or there is no device code.
        Raises ValueError if a GPU or driver is unknown.
        """
        named = [architecture_of(arch) for arch in archs]
        chosen = drivers_in(drivers) if isinstance(drivers, str) else tuple(map(driver_named, drivers))
        lines = [f"{fault.path}: {fault.text}" for fault in self.faults] + self.failures(named, chosen, files)
        if named and not self.groups:
            lines.append(self.absence(named))
        if lines:
            raise AssertionError("\n".join([self.path, *(f"  {line}" for line in lines)]))

    def absence(self, archs: Iterable[str]) -> str:
        """Return the sentence for GPUs whose code is required where there is no device code."""
        return f"no device code; expected code for {', '.join(archs)}"

    def to_json(self, archs: Iterable[str] = (), drivers: Iterable[CudaVersion] = ()) -> dict[str, Any]:
        """The audit as plain data, with the answer for each of some GPUs and drivers."""
        drivers, archs = tuple(drivers), tuple(archs)
        return {
            "path": self.path,
            "groups": [
                {
                    "paths": list(group.paths),
                    "count": group.count,
                    "for_linker": group.for_linker,
                    "images": [plain(image) for image in group.images],
                    "answers": {
                        arch: {str(driver): str(group.answer(arch, driver).outcome) for driver in drivers}
                        for arch in archs
                    },
                }
                for group in self.groups
            ],
            "faults": [{"path": fault.path, "text": fault.text} for fault in self.faults],
        }


def plain(image: DeviceImage) -> dict[str, Any]:
    """Return the facts of an image as plain data."""
    shown = {name: getattr(image, name) for name in _SHOWN}
    shown["ptx_isa"] = image.ptx_isa and ".".join(map(str, image.ptx_isa))
    releases = {"producer": image.producer, "needs": image.needs}
    return shown | {name: release and str(release) for name, release in releases.items()}


def device_code(path: str | Path) -> DeviceCode:
    """Audit the device code of a wheel, a folder with everything below it, a library, an archive or one image.

    Raises AuditError if there is no such file, or a wheel is damaged.
    """
    return code_of(str(path), all_images(path))


def code_of(path: str, images_and_faults: Iterable[DeviceImage | UnreadImage]) -> DeviceCode:
    """Return the device code that consists of these images, which may come one by one."""
    fatbins: dict[tuple[str, int], list[DeviceImage]] = {}
    loose: dict[str, list[DeviceImage]] = {}
    faults = []
    for item in images_and_faults:
        if isinstance(item, UnreadImage):
            faults.append(item)
            continue
        image = replace(item, data=None)
        if image.group:
            fatbins.setdefault((image.path, image.group), []).append(image)
        else:
            loose.setdefault(_ARCH_IN_NAME.sub("*", image.path), []).append(image)
    groups = []
    for (name, _), together in fatbins.items():
        if _is_loose(together):
            loose.setdefault(name, []).extend(together)
        else:
            groups.append(together)
    return DeviceCode(path, tuple(_joined([*groups, *loose.values()])), tuple(faults))


def _is_loose(images: Sequence[DeviceImage]) -> bool:
    """Whether a program chooses such a fatbin: it has one architecture, and lies where the CUDA runtime has none."""
    section = images[0].section
    return bool(section) and section not in _REGISTERED and len({image.number for image in images}) == 1


def _joined(groups: Sequence[list[DeviceImage]]) -> Iterable[ImageGroup]:
    """One group for all that have the same images."""
    bare = ([replace(image, path="", at=0, group=0) for image in together] for together in groups)
    same = grouped(
        ((tuple(dict.fromkeys(images)), _is_for_linker(images)), together[0])
        for together, images in zip(groups, bare, strict=True)
    )
    for (alike, for_linker), firsts in same.items():
        paths = tuple(dict.fromkeys(first.path for first in firsts))
        yield ImageGroup(paths, len(firsts), alike, for_linker)


def _is_for_linker(images: Sequence[DeviceImage]) -> bool:
    """Whether no driver takes a group: it has neither a linked cubin nor only PTX that no linker gets."""
    linked = any(image.kind == "cubin" and not image.relocatable for image in images)
    return not linked and not all(image.kind == "ptx" and not image.relocatable for image in images)


def _failure(group: ImageGroup, arch: str, answer: DriverAnswer, drivers: Sequence[CudaVersion]) -> str:
    image = answer.image
    if image is None:
        kinds = ", ".join(dict.fromkeys(f"{image.kind} for {image.arch}" for image in group.images[:12]))
        why = f"nothing fits among {kinds}{', ...' if len(group.images) > 12 else ''}"
    elif answer.outcome is DriverOutcome.TOO_NEW:
        needs, isa = image.needs, ".".join(map(str, image.ptx_isa or "?"))
        asks = f"needs a driver for {'a release ' if needs.newer_than else ''}{needs}" if needs else "cannot be read"
        why = f"PTX {isa} for {image.arch} {asks}"
    elif answer.outcome is DriverOutcome.UNKNOWN_FORM:
        why = f"the cubin for {image.arch} is taken, and it is of {image.needs}"
    else:
        why = f"the PTX that is taken is for {image.arch} alone"
    where = group.paths[0] + and_more(len(group.paths) - 1, "file")
    return f"{where}: {answer.outcome} on {arch} with driver {_spoken(drivers)}: {why}"


def _spoken(drivers: Sequence[CudaVersion]) -> str:
    """Drivers as ranges of branches: ``"525 to 535"``."""
    first, last = min(drivers), max(drivers)
    if first == last:
        return f"{driver_branch(first)} (CUDA {first})"
    return f"{driver_branch(first)} to {driver_branch(last)} (CUDA {first} to {last})"
