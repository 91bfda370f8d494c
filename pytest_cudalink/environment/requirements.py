"""The requirements of a test, and how it fails where they are not met. Pure: no pytest, no CUDA.

A version requirement is a PEP 440 specifier such as ``">=13"``; a number alone, ``"13.2"``, stands for ``"==13.2.*"``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..compat.architectures import ARCHITECTURES, known_architectures
from ..compat.releases import DRIVER_RELEASES, driver_numbered, may_exist, not_a_branch
from ..versions import NUMBERS, distribution_version, ranges, specifier_of

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

#: The requirements that the marker takes, in the order in which they are checked: the cheapest first.
NAMES: Final = ("ctk", "nvjitlink", "driver", "gpu", "arch")

_ARCHITECTURE: Final = re.compile(r"(?:sm|compute)_(\d+)(\d)([af]?)", re.ASCII)
#: The only compute capability that does not belong to the family of a smaller minor.
_OWN_FAMILY: Final = (10, 1)


@dataclass(frozen=True)
class EnvironmentFact:
    """One fact of the environment."""

    value: str | None  # a version, an architecture such as "sm_90", or a name; None if absent
    kind: str = "real"  # "real", "emulated", "faked" or "absent"
    source: str = ""  # where it was read

    def __str__(self) -> str:
        if self.value is None:
            return "none, faked" if self.kind == "faked" else "none"
        return self.value if self.kind == "real" else f"{self.value}, {self.kind}"


@dataclass(frozen=True)
class Requirement:
    """One requirement of a test."""

    name: str  # one of `NAMES`
    text: str  # as messages show it: "driver >= 13.2"
    specifier: SpecifierSet | None = None
    arch: str | None = None
    wanted: bool = True

    def met_by(self, fact: EnvironmentFact) -> bool:
        """Whether a fact of the environment meets the requirement; an absent one meets no version."""
        if self.name == "gpu":
            return (fact.value is not None and fact.kind == "real") == self.wanted
        if fact.value is None:
            return False
        if self.name != "arch":
            return self.specifier is not None and _contains(self.specifier, fact.value)
        match = _ARCHITECTURE.fullmatch(fact.value)
        if match is None:
            return False
        if self.arch is not None:
            return _runs(self.arch, int(match[1]), int(match[2]))
        return self.specifier is not None and _contains(self.specifier, f"{match[1]}.{match[2]}")

    def __str__(self) -> str:
        return self.text


def _runs(arch: str, major: int, minor: int) -> bool:
    """Whether a device of a compute capability runs code for an architecture.

    ``sm_90a`` is the same device as ``sm_90``, with its specific features. The family of ``sm_100f`` includes the later
    minors of its major, except 10.1, a separate family that was renamed to 11.0 (PTX ISA, "Target architectures").
    """
    match = _ARCHITECTURE.fullmatch(arch)
    if match is None:
        return False
    wanted = (int(match[1]), int(match[2]))
    if match[3] != "f" or (major, minor) == wanted:
        return (major, minor) == wanted
    return major == wanted[0] and minor > wanted[1] and _OWN_FAMILY not in (wanted, (major, minor))


def _contains(specifier: SpecifierSet, version: str) -> bool:
    number = distribution_version(version)
    return number is not None and specifier.contains(number, prereleases=True)


def _shown(specifier: SpecifierSet) -> str:
    """A specifier as ``>= 13.2, < 14``, in this order however it was written."""
    from packaging.version import Version

    parts = sorted(specifier, key=lambda part: (Version(part.version.removesuffix(".*")), part.operator))
    return ", ".join(f"{part.operator} {part.version}" for part in parts)


def _specifier(name: str, value: object, example: str) -> SpecifierSet:
    if isinstance(value, str) and value.strip():
        with suppress(ValueError):  # InvalidSpecifier is one, and so is InvalidVersion
            specifier = specifier_of(value.strip())
            _shown(specifier)  # (=== takes anything)
            return specifier
    raise ValueError(f"{name}={value!r} is not a version specifier; write {example}")


def why_never(name: str, specifier: SpecifierSet) -> str:
    """What makes a specifier one that no environment ever meets: a branch of drivers, or no release; else empty."""
    ends = {""}  # third numbers, which versions of wheels have
    for part in specifier:
        text = NUMBERS.search(part.version)[0]  # type: ignore[index] # (each version has a number)
        try:
            (driver_numbered if name == "driver" else not_a_branch)(text)
        except ValueError as error:
            return str(error)
        if rest := text.split(".")[2:]:
            ends |= {f".{'.'.join(rest)}", f".{int(rest[0]) + 1}"}
    if any(_contains(specifier, f"{release}{end}") for release in may_exist() for end in ends):
        return ""
    return f"no release of CUDA is; expected {ranges(DRIVER_RELEASES)}, or a newer one"


def _parse(name: str, value: object) -> Requirement:
    match name:
        case "gpu":
            if not isinstance(value, bool):
                msg = f"gpu={value!r}; expected True for a real device, or False for none"
                raise ValueError(msg)  # noqa: TRY004 (one kind of error for every invalid value)
            return Requirement(name, "a GPU" if value else "no GPU", wanted=value)
        case "arch":
            if isinstance(value, str) and (match := _ARCHITECTURE.fullmatch(value)):
                arch = value.replace("compute_", "sm_")
                if arch not in known_architectures() and int(match[1] + match[2]) <= ARCHITECTURES[-1].number:
                    msg = f"arch={value!r} is unknown; expected {', '.join(known_architectures())}, or a newer one"
                    raise ValueError(msg)
                return Requirement(name, f"arch {arch}", arch=arch)
            example = "arch='sm_90', or a specifier of the compute capability: arch='>=9.0'"
            specifier = _specifier(name, value, example)
        case _:
            specifier = _specifier(name, value, f"{name}='>=13.0'")
            if fault := why_never(name, specifier):
                raise ValueError(f"{name}={value!r}: {fault}")
    return Requirement(name, f"{name} {_shown(specifier)}", specifier)


def parse(keywords: Mapping[str, object]) -> list[Requirement]:
    """The requirements among a marker's keywords, in the order of `NAMES`; None means no requirement.

    Raises ValueError for an invalid value; the message says what to write.
    """
    return [_parse(name, keywords[name]) for name in NAMES if keywords.get(name) is not None]


def unmet(requirements: Iterable[Requirement], facts: Mapping[str, EnvironmentFact]) -> list[Requirement]:
    """The requirements that are not met. `facts` is read only for these requirements, in order."""
    return [requirement for requirement in requirements if not requirement.met_by(facts[requirement.name])]


class Raises:
    """A documented failure: how a test must fail where its requirement does not hold.

    `expected`: a string is the name of a code of the driver or of nvJitLink: ``"CUDA_ERROR_UNSUPPORTED_PTX_VERSION"``,
    ``"NVJITLINK_ERROR_PTX_COMPILE"``; an integer is its number; a type matches its instances. One match is enough.
    KeyboardInterrupt is not accepted: it ends the run.
    `match`: a regular expression that the message must contain, as in `pytest.raises`.
    Raises TypeError if nothing is expected, or a value has another type; `ValueError` for an invalid regular
    expression.
    """

    def __init__(self, *expected: str | int | type[BaseException], match: str | None = None) -> None:
        if not expected and match is None:
            raise TypeError("Raises() needs a code such as 'CUDA_ERROR_INVALID_PTX', an exception type, or match=...")
        for item in expected:
            if not _can_be_expected(item):
                raise TypeError(f"Raises({item!r}): expected the name or number of a code, or an exception type")
        self.expected = expected
        self.match = match
        try:
            self._pattern = re.compile(match) if match is not None else None
        except re.error as error:
            raise ValueError(f"Raises(match={match!r}) is not a regular expression: {error}") from error

    def matches(self, error: BaseException) -> bool:
        """Whether an exception is the documented failure."""
        if self.expected and not any(_is(error, item) for item in self.expected):
            return False
        return self._pattern is None or self._pattern.search(str(error)) is not None

    def __str__(self) -> str:
        parts = [item.__name__ if isinstance(item, type) else str(item) for item in self.expected]
        text = " or ".join(parts) or "an exception"
        return f"{text} matching {self.match!r}" if self.match is not None else text

    def __repr__(self) -> str:
        parts = [item.__name__ if isinstance(item, type) else repr(item) for item in self.expected]
        parts += [f"match={self.match!r}"] if self.match is not None else []
        return f"Raises({', '.join(parts)})"


def _can_be_expected(item: object) -> bool:
    if isinstance(item, type):
        return issubclass(item, BaseException) and not issubclass(item, KeyboardInterrupt)
    return isinstance(item, str | int) and not isinstance(item, bool) and item != ""


def _is(error: BaseException, expected: str | int | type[BaseException]) -> bool:
    if isinstance(expected, type):
        return isinstance(error, expected)
    # the error that reaches a test often has a library's error as its cause
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        if _has_code(cause, expected):
            return True
        seen.add(id(cause))
        cause = cause.__cause__
    return False


def _has_code(error: BaseException, expected: str | int) -> bool:
    """Whether an exception carries a code: in an attribute, or as a word of its message."""
    if isinstance(expected, int):
        values: list[Any] = [getattr(error, name, None) for name in ("code", "status")]
        return any(value is not None and not isinstance(value, str) and value == expected for value in values)
    if expected in (getattr(error, "code_name", None), getattr(error, "name", None)):
        return True
    # cuda-bindings writes nvJitLink's codes without their prefix
    names = {expected, expected.removeprefix("NVJITLINK_")}
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(error)) for name in names)
