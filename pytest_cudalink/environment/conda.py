"""The packages of a conda prefix, read from ``conda-meta``, and conda's rules for versions, by py-rattler.

conda's rules are not those of Python: ``13.0a0`` comes before ``13.0``, ``=12.9`` is a prefix and ``12.9`` is exact.
py-rattler is in the extra ``audit``; `rules` returns None without it.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from ..base.regular_files import read_bounded
from .installed import Installed, Unreadable, is_library

#: Most bytes that are read of a record; the longest known lists 40,000 files in 12 MB.
_MOST_RECORD: Final = 64 << 20
_NAME: Final = re.compile(r"[a-z0-9_][a-z0-9._-]{0,200}", re.ASCII)
_FIRST: Final = re.compile(r"^(?:[^:\s\[]+::)?([A-Za-z0-9_][A-Za-z0-9._-]*)")
_CUDA: Final = re.compile(
    r"(?:__cuda|cuda|cudatoolkit|cudnn|nccl|cuda-.+|lib(?:cublas|cudnn|cudss|cufft|cufile|curand|cusolver|cusparse"
    r"|cutensor|npp|nvjitlink|nvfatbin|nvjpeg|nvptxcompiler|nvvm).*)"
)


@dataclass(frozen=True)
class CondaPackage:
    """One record of ``conda-meta``."""

    installed: Installed  # its `requires` are conda's `depends`
    build: str
    build_number: int
    constrains: tuple[str, ...]  # what another package must be, if it is installed


def read_packages(prefix: Path, *, files: bool = True) -> tuple[list[CondaPackage], list[Unreadable]]:
    """Return the packages of a conda prefix, and the records that cannot be read."""
    packages: list[CondaPackage] = []
    unreadable: list[Unreadable] = []
    for record in sorted((prefix / "conda-meta").glob("*.json")):
        try:
            packages.append(_package(prefix, record, files=files))
        except (OSError, ValueError, RecursionError) as error:
            reason = str(error.strerror if isinstance(error, OSError) else error)
            text = f"conda's record is invalid ({reason[:200]}): install the package again with conda"
            unreadable.append(Unreadable(str(record), text))
    return packages, unreadable


def _package(prefix: Path, record: Path, *, files: bool) -> CondaPackage:
    """Read one record.

    Raises OSError if it cannot be read.
    Raises ValueError if it is not JSON, or a value is not what conda writes.
    """
    content = json.loads(read_bounded(record, _MOST_RECORD))
    if not isinstance(content, dict):
        msg = f"it is a {type(content).__name__}; expected an object"
        raise ValueError(msg)  # noqa: TRY004 (the text is wrong, not the call)
    name, version, build = (content.get(key, "") for key in ("name", "version", "build"))
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise ValueError(f"name is {str(name)[:80]!r}; expected lower-case letters, digits, '.', '_' and '-'")
    if not (isinstance(version, str) and version and isinstance(build, str)):
        raise ValueError(f"version is {str(version)[:80]!r}, build is {str(build)[:80]!r}; expected texts")
    number = content.get("build_number")
    libraries = (path for path in _texts(content, "files") if is_library(path)) if files else ()
    paths = (os.path.normpath(prefix / path) for path in libraries)
    installed = Installed(
        name, version[:200], "conda", str(record), _texts(content, "depends"),
        tuple(path for path in paths if os.path.isfile(path)),  # noqa: PTH113 (text, many)
    )  # fmt: skip
    return CondaPackage(installed, build, number if isinstance(number, int) else 0, _texts(content, "constrains"))


def _texts(content: dict[str, Any], key: str) -> tuple[str, ...]:
    value = content.get(key) or []
    if not (isinstance(value, list) and all(isinstance(text, str) for text in value)):
        raise ValueError(f"{key} is {str(value)[:80]!r}; expected a list of texts")
    return tuple(value)


def name_of(spec: str) -> str:
    """The package that a match specification is about; empty if it names none."""
    match = _FIRST.match(spec.strip())
    return match[1].lower() if match else ""


def is_cuda_package(name: str) -> bool:
    """Whether a conda package is one of CUDA's, or the virtual package of the driver."""
    return _CUDA.fullmatch(name) is not None


class Rules:
    """conda's rules for versions and match specifications."""

    def __init__(self, rattler: Any) -> None:
        self._rattler = rattler
        self._version = cache(self._read_version)
        self._specification = cache(rattler.VersionSpec)

    def _read_version(self, text: str) -> Any:
        try:
            return self._rattler.Version(text)
        except Exception:  # noqa: BLE001 (rattler has an exception class for each kind of error)
            return None

    def version_part(self, spec: str) -> str:
        """The versions that a match specification accepts, as conda writes them; ``"*"`` for every version.

        Raises ValueError if the specification is invalid.
        """
        try:
            version = self._rattler.MatchSpec(spec).version
        except Exception as error:
            msg = f"{spec[:200]!r} is not a match specification of conda; expected NAME [VERSION [BUILD]]"
            raise ValueError(msg) from error
        return str(version) if version is not None else "*"

    def accepts(self, versions: str, version: str) -> bool:
        """Whether the version part of a specification accepts a version."""
        read = self._version(version)
        return read is not None and bool(self._specification(versions).matches(read))

    def matches(self, spec: str, package: CondaPackage) -> bool:
        """Whether a package, with its build, satisfies a match specification."""
        installed = package.installed
        try:
            build = self._rattler.BuildString(package.build)
            # (no specification is compared with the platform)
            record = self._rattler.PackageRecord(
                installed.name, installed.version, build, package.build_number, "noarch"
            )
            return bool(self._rattler.MatchSpec(spec).matches(record))
        except Exception as error:
            text = f"{installed.name} {installed.version[:80]!r} cannot be compared with {spec[:200]!r}"
            raise ValueError(text) from error


@cache
def rules() -> Rules | None:
    """The rules of conda, by py-rattler; None if that is not installed."""
    try:
        import rattler
    except ImportError:
        return None
    return Rules(rattler)


def virtual_driver(version: str) -> CondaPackage:
    """The virtual package ``__cuda`` that conda sees with a driver of a CUDA version."""
    return CondaPackage(Installed("__cuda", version, "conda", "the driver"), "0", 0, ())


def cuda_specs(package: CondaPackage) -> Iterator[tuple[str, str, bool]]:
    """Yield name, specification, and whether it must be installed, for what a package asks of CUDA's packages."""
    for specs, must in ((package.installed.requires, True), (package.constrains, False)):
        for spec in specs:
            if is_cuda_package(name := name_of(spec)):
                yield name, spec, must
