"""Everything that an audit reads of a wheel, a folder or a library, in one pass over its files."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Final, Literal

from ..base.elf import Buffer
from ..base.finding import Finding
from ..compat.libraries import MAJORS, majors_of, stem_of
from ..environment.installed import AuditError
from ..versions import CudaVersion, Needs
from .device_code.images import DeviceImage, UnreadImage, in_file
from .device_code.scan import pieces
from .loadable import LoadableLibrary, buffer, data_ranges, is_elf, is_pe, pe_data_ranges, read_elf, read_pe, resolve
from .members import DEVICE_CODE, Budget, Members, members_of
from .opened import OpenedLibrary, SourceError, names_in_data, names_in_source, stem_of_name

_METADATA: Final = re.compile(r"(?:^|/)[^/]+\.(?:dist-info|egg-info)/(?:METADATA|PKG-INFO)$")
#: cu12, cuda12x, cu121 and cuda-13.0, but not the version in numba_cuda-12.0.
_HINT: Final = re.compile(r"(?<![a-z])cu(?:da)?[-_]?(1[1-9])(?![0-9]{2})")
_EVERY: Final = tuple(int(major) for major in MAJORS if major != "none")
#: The images of one file are unpacked to so many bytes; the rest follows from these.
MOST_UNPACKED: Final = 8 << 20
_MOST_TEXT: Final = 4 << 20
#: Part of the message of jitify, which refuses an nvJitLink that is older than the release it was built with.
_REFUSAL: Final = b"need at least version "
#: A variable that nvJitLink reads, 12.2 to 13.5, in a file that contains the linker, such as that of Warp 1.9.0 or of
#: pynvjitlink; libraries that link or open it, and cuSPARSE, have other words of it (measured 2026-11-29).
_LINKER_INSIDE: Final = b"NVJITLINK_TRACE_MESSAGES\0"
#: Names of libraries in one file; the file of a real wheel that has the most, cuda.pathfinder's, has 200.
MOST_NAMES: Final = 1000


@dataclass
class Scan:
    """What was read of a wheel, a folder or a library."""

    path: str
    # libraries that a dynamic loader could load, by their path inside the wheel or folder; DLLs of Windows too
    elves: dict[str, LoadableLibrary] = field(default_factory=dict)
    # CUDA libraries that a file may open at run time, by the file's path
    opened: dict[str, tuple[OpenedLibrary, ...]] = field(default_factory=dict)
    # what the newest LTO-IR in a file needs of nvJitLink, by the file's path
    ltoir: dict[str, Needs] = field(default_factory=dict)
    # the release that compiled a file which opens nvJitLink through jitify, by the file's path
    jitify: dict[str, CudaVersion] = field(default_factory=dict)
    # the device code in libraries and files of device code, without its bytes
    images: list[DeviceImage | UnreadImage] = field(default_factory=list)
    metadata: dict[str, bytes] = field(default_factory=dict)  # the content of each METADATA file, by path
    findings: list[Finding] = field(default_factory=list)  # files that cannot be read
    budget: Budget = field(default_factory=lambda: Budget(""))  # what it may still cost to judge it

    @cached_property
    def resolved(self) -> tuple[dict[str, dict[str, str]], dict[str, set[str]]]:
        """The files that the loader takes for what each file needs, and those that load each; see `resolve`."""
        return resolve(self.elves, self.budget.spend)

    @cached_property
    def linked_majors(self) -> list[set[int]]:
        """The CUDA majors that each library can belong to by what it links, each set of them once."""
        distinct = {_linked_majors(self, name) for name in self.elves}
        return [set(majors) for majors in distinct]

    @property
    def present(self) -> dict[str, str]:
        """The path of each library inside, by SONAME and by file name."""
        inside = {elf.soname: name for name, elf in self.elves.items() if elf.soname}
        return inside | {name.rpartition("/")[2]: name for name in self.elves}


def scan_path(path: str | Path) -> Scan:
    """Read a wheel, a folder with everything below it, or one library.

    Raises AuditError if the path does not exist, or is not a wheel, folder or library.
    """
    budget = Budget(str(path))
    return scan_members(str(path), members_of(Path(path), budget), budget)


def scan_members(path: str, members: Members, budget: Budget) -> Scan:
    """Read the files of a wheel or a folder."""
    scan = Scan(path, budget=budget)
    for name, opened in members:
        try:
            with opened() as stream:
                _read(scan, name, stream)
        except AuditError:
            raise
        except Exception as error:  # noqa: BLE001 (the readers and zipfile raise whatever a damaged file leads them to)
            text = f"cannot be read: {type(error).__name__}: {error}"
            scan.findings.append(Finding("error", text, place=name, kind="unreadable"))
    return scan


def _read(scan: Scan, name: str, stream: IO[bytes]) -> None:
    names: tuple[OpenedLibrary, ...] = ()
    if is_elf(stream):
        library = read_elf(stream)
        if library is None:
            return
        scan.elves[name] = library
        names = names_in_data(stream, data_ranges(stream))
    elif is_pe(name, stream):
        scan.elves[name] = read_pe(name, stream)
        names = names_in_data(stream, pe_data_ranges(stream), dlls=True)
    elif name.endswith(".py"):
        try:
            names = names_in_source(stream)
        except SourceError as error:
            weight: Literal["error", "note"] = "error" if error.certain else "note"
            scan.findings.append(Finding(weight, str(error), place=name, kind="unreadable"))
    elif _METADATA.search(name):
        scan.metadata[name] = stream.read(_MOST_TEXT)
    if len(names) > MOST_NAMES:
        text = f"names {len(names)} libraries of CUDA; expected at most {MOST_NAMES}: the rest was not compared"
        scan.findings.append(Finding("error", text, place=name, kind="unreadable"))
    if names:
        scan.opened[name] = names[:MOST_NAMES]
    if name in scan.elves or name.endswith(DEVICE_CODE):
        _read_device_code(scan, name, stream)


def _read_device_code(scan: Scan, name: str, stream: IO[bytes]) -> None:
    with buffer(stream) as data:
        images = completed(in_file(name, data, pieces(data, text=True), room=MOST_UNPACKED))
        if images:
            linked = scan.elves[name].needed if name in scan.elves else ()
            read_nvjitlink_needs(scan, name, data, images, linked)
    scan.images += images


def read_nvjitlink_needs(
    scan: Scan, name: str, data: Buffer, images: Iterable[DeviceImage | UnreadImage], linked: Iterable[str]
) -> None:
    """Note what the device code of a file asks of nvJitLink: what its newest LTO-IR needs, and the release of jitify.

    LTO-IR asks nothing where the file contains the linker, and neither links nor opens another one. jitify compares the
    nvJitLink that it opened with the release that it was built with. That release is a constant in machine code; the
    cubins of the same library name the release of their compiler.

    `linked`: the libraries that the file is linked with.
    """
    links = "libnvJitLink" in map(stem_of, linked)
    opens = any(stem_of_name(library.name) == "libnvJitLink" for library in scan.opened.get(name, ()))
    read = [image for image in images if isinstance(image, DeviceImage)]
    ltoir = [image.needs for image in read if image.kind == "ltoir" and image.needs]
    made = [image.producer for image in read if image.kind == "cubin" and image.producer]
    if ltoir and (links or opens or data.find(_LINKER_INSIDE) < 0):
        scan.ltoir[name] = max(ltoir)
    if made and not links and (opens or data.find(b"libnvJitLink") >= 0) and data.find(_REFUSAL) >= 0:
        scan.jitify[name] = max(made)


def completed(images: Iterable[DeviceImage | UnreadImage]) -> list[DeviceImage | UnreadImage]:
    """The images of a file, without their bytes; what a packed cubin does not say is taken from its neighbours.

    The header of a packed cubin for sm_100 and later does not tell CUDA 12 from 13, but one compiler made a file.
    """
    completed: list[DeviceImage | UnreadImage] = []
    packed: list[tuple[int, DeviceImage]] = []  # cubins, and their places
    archs: dict[int, str] = {}
    newest = None
    for image in images:
        if isinstance(image, DeviceImage) and image.kind == "cubin":
            newest = max(filter(None, (newest, image.needs)), default=None)
            if image.data is None:
                packed.append((len(completed), image))
            else:
                archs.setdefault(image.number, image.arch)
        completed.append(replace(image, data=None) if isinstance(image, DeviceImage) else image)
    for place, image in packed if newest else ():
        arch = image.arch if image.suffix else archs.get(image.number, image.arch)
        completed[place] = replace(image, arch=arch, needs=image.needs or newest, note="")
    return completed


def file_majors(scan: Scan, name: str) -> tuple[int, ...]:
    """The CUDA majors that a file can belong to, by what it links, by its folder, and by the wheel's name.

    A file that links nothing whose name has a major follows the other files of the wheel. All known majors where
    nothing narrows them.
    """
    majors = set(_linked_majors(scan, name)) or set(_EVERY)
    for hint in (hinted_major(name), wheel_major(scan.path)):
        if hint is not None and int(hint) in majors:
            majors = {int(hint)}
    linked = scan.linked_majors
    others = majors.intersection(*linked) or majors & set().union(*(known for known in linked if len(known) == 1))
    return tuple(sorted(others or majors))


def _linked_majors(scan: Scan, name: str) -> tuple[int, ...]:
    majors = set(_EVERY)
    for library in scan.elves[name].needed if name in scan.elves else ():
        known = majors_of(library)
        if known is not None and library not in scan.resolved[0][name]:
            majors &= {int(major) for major in known}
    return tuple(sorted(majors))


def hinted_major(path: str) -> str | None:
    """The CUDA major in a path such as ``cu12/x.so`` or ``x_cu13.abi3.so``; None without one."""
    majors = set(_HINT.findall(path.lower()))
    return majors.pop() if len(majors) == 1 else None


def wheel_major(path: str) -> str | None:
    """The CUDA major in the name of a wheel, as in ``x_cu12-1.0``, ``cupy_cuda12x`` or ``x-1+cu121``; else None."""
    file = re.split(r"[/\\]", path)[-1]
    if not file.endswith(".whl"):
        return None
    name, _, rest = file.partition("-")
    return hinted_major(f"{name} {rest.partition('-')[0].partition('+')[2]}")
