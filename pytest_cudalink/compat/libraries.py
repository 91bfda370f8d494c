"""CUDA's libraries by name: which CUDA majors have them, and which packages bring them."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from ..base.tables import read_table

# auditwheel adds a hash after "-", PyTorch's own repair after "."
_NAME = re.compile(
    r"^(?P<stem>lib(?:nvidia-[a-z]+|\w+?(?:-builtins)?))(?:\.alt)?(?:[-.][0-9a-f]{6,})?\.so(?:\.(?P<version>[\d.]+))?$"
)
#: DLLs of CUDA: nvrtc64_120_0.dll, nvJitLink_130_0.dll, cudart64_12.dll, cublas64_13.dll, nvcuda.dll.
_DLL = re.compile(r"(?P<stem>[a-z][\w-]*?)(?:64)?(?:_(?P<version>\d+)(?:_(?P<minor>\d+))?)?\.dll", re.IGNORECASE)
_DRIVER_DLLS = {"nvcuda": "libcuda.so.1", "nvml": "libnvidia-ml.so.1"}
#: A library by its stem, where auditwheel may have put a hash behind it; the loader and Python have further names.
_LIBRARY = re.compile(
    r"(?:(?P<python>libpython3[\d.]*)|(?P<loader>ld-\S+)|(?P<stem>lib\S+?))(?:[-.][0-9a-f]{6,})?\.so(?P<version>[\d.]*)"
)
_SYSTEM_DLL = re.compile(
    r"(?:api-ms-|ext-ms-|kernel32|ntdll|user32|advapi32|shell32|ole32|ws2_32|msvc|vcruntime|ucrtbase|concrt|vcomp|"
    r"dbghelp|bcrypt|psapi|version|rpcrt4|setupapi|cfgmgr32|python3|secur32|crypt32|winmm|gdi32|oleaut32|iphlpapi)"
    r"[\w.-]*\.dll",
    re.IGNORECASE,
)
#: Parts of names that other programs search for, in /proc/self/maps and in folders.
_SOUGHT = ("libcudart", "libnvrtc", "libnvJitLink", "libcuda.so")
#: Symbols of libraries that have no symbol versions.
_UNVERSIONED = {"libcuda": re.compile(r"cu[A-Z]\w+"), "libnvidia-ml": re.compile(r"nvml[A-Z]\w+")}

#: CUDA majors by the version in a SONAME; None for every version.
_Versions = Mapping[str, Sequence[str]] | None


class _Table(NamedTuple):
    majors: tuple[str, ...]
    libraries: dict[str, _Versions]
    families: dict[str, _Versions]


@cache
def _table() -> _Table:
    content = read_table("cuda_libraries.toml")
    majors = tuple(content["majors"])
    libraries: dict[str, _Versions] = dict(content["by-version"])
    families: dict[str, _Versions] = {}
    same = {major: (major,) for major in majors}
    for section, versions in (("numbered-like-cuda", same), ("every-major", None)):
        libraries |= dict.fromkeys(content[section]["libraries"], versions)
        families |= dict.fromkeys(content[section]["families"], versions)
    return _Table(majors, libraries, families)


#: The CUDA majors that are distinguished, and a machine without any CUDA library.
MAJORS: Final = (*_table().majors, "none")


def stem_of(library: str) -> str:
    """``"libcudart"`` for ``"libcudart.so.12"``; the name itself if it is not the name of a shared library."""
    match = _NAME.match(soname_of_dll(library) or library)
    return match["stem"] if match else library


@cache
def soname_of_dll(name: str) -> str | None:
    """The SONAME on Linux of a CUDA DLL: ``"libcudart.so.12"`` for ``"cudart64_12.dll"``; None for other DLLs.

    Numbers of two digits are a major; of three, a major and a minor, which SONAMEs of CUDA 11 and of its builtins have.
    """
    match = _DLL.fullmatch(name)
    if match is None:
        return None
    stem, version = match["stem"], match["version"] or ""
    if stem.lower() in _DRIVER_DLLS:
        return _DRIVER_DLLS[stem.lower()]
    if len(version) == 3:
        with_minor = version.startswith("11") or stem.lower().endswith("-builtins")
        version = f"{version[:2]}.{version[2]}" if with_minor else version[:2]
    table = _table()
    stems = {known.lower(): known for known in table.libraries}
    known = stems.get(f"lib{stem}".lower())
    known = known or next((f"lib{stem}" for family in table.families if f"lib{stem}".startswith(family)), None)
    return known and f"{known}.so{f'.{version}' if version else ''}"


def majors_of(library: str) -> tuple[str, ...] | None:
    """The CUDA majors that have a library; None if it is not one of CUDA's."""
    match = _NAME.match(soname_of_dll(library) or library)
    if match is None:
        return None
    stem, version = match["stem"], match["version"]
    table = _table()
    family = next((family for family in table.families if stem.startswith(family)), None)
    if stem in table.libraries:
        versions = table.libraries[stem]
    elif family:
        versions = table.families[family]
    else:
        return None
    if versions is None or not version:
        return table.majors
    # a whole version, as in libcudart-d0da41ae.so.12.9.79, belongs to the SONAME that it begins with
    return next((tuple(majors) for known, majors in versions.items() if f"{version}.".startswith(f"{known}.")), ())


def packages() -> dict[str, list[str]]:
    """The packages on PyPI of libraries for which there is no table of functions, by the beginning of a stem."""
    table: dict[str, list[str]] = read_table("cuda_libraries.toml")["packages"]
    return table


def packages_of(stem: str) -> tuple[str, ...]:
    """Return the packages on PyPI that bring a library; empty where none is known."""
    return next((tuple(packages()[beginning]) for beginning in packages() if stem.startswith(beginning)), ())


def is_system(library: str) -> bool:
    """Whether a library is one of the system, a compiler or Python, which have no CUDA functions."""
    match = _LIBRARY.fullmatch(library)
    if match is None:
        return _SYSTEM_DLL.fullmatch(library) is not None
    known = (read_table("manylinux.toml")["libraries"], *read_table("cuda_libraries.toml")["system"].values())
    return match["stem"] is None or any(match["stem"] in names for names in known)


def is_foreign(library: str, *, followed: bool) -> bool:
    """Whether a library may be another wheel's, such as libtorch.so, and load CUDA's itself.

    The system names its libraries with a version. Such a name is another wheel's where a requirement may bring it.
    `followed`: whether it is known what each requirement brings.
    """
    match = _LIBRARY.fullmatch(library)
    only_of_system = followed and match is not None and match["version"] != ""
    return majors_of(library) is None and not is_system(library) and not only_of_system


def is_unversioned_symbol(library: str, symbol: str) -> bool:
    """Whether a symbol has the form of the functions of a CUDA library that has no symbol versions."""
    pattern = _UNVERSIONED.get(stem_of(library))
    return pattern is not None and pattern.fullmatch(symbol) is not None


def sought_part(name: str) -> str | None:
    """The part of a file name by which other programs take the file for a CUDA library; None if it has none."""
    return next((part for part in _SOUGHT if part in name), None)
