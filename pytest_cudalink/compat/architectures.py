"""GPU architectures, the CUDA releases that know them, and the names by which GPUs and drivers are sold."""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

from ..base.tables import read_table
from ..versions import FIRST_BRANCH, CudaVersion, ranges
from .names import ARCHITECTURES as _ROWS
from .names import FAMILY_SUFFIX_SINCE
from .releases import DRIVER_RELEASES, PTX_ISA

__all__ = ["ARCHITECTURES", "Architecture", "dropped_by", "known_architectures", "parse_architecture"]


class Architecture(NamedTuple):
    """A GPU architecture and the CUDA releases that compile and link for it."""

    number: int  # compute capability times ten: 90 for sm_90
    since: CudaVersion  # first release that knows it; 12.0 also stands for anything older
    dropped: CudaVersion | None  # first release that no longer does
    suffixes: str  # letters that may follow the number: `a` architecture-specific, `f` family-specific


ARCHITECTURES: tuple[Architecture, ...] = tuple(
    Architecture(number, CudaVersion(*since), None if dropped is None else CudaVersion(*dropped), suffixes)
    for number, since, dropped, suffixes in _ROWS
)


@cache
def known_architectures(release: CudaVersion | None = None) -> tuple[str, ...]:
    """Names such as ``"sm_90a"`` that a CUDA release links for; every one ever known when `release` is None."""
    names = []
    if release is not None:
        release = max(release, min(PTX_ISA))
    for arch in ARCHITECTURES:
        if release is not None and (release < arch.since or (arch.dropped and release >= arch.dropped)):
            continue
        family = release is None or release >= FAMILY_SUFFIX_SINCE
        suffixes = ["", *(s for s in arch.suffixes if s != "f" or family)]
        names += [f"sm_{arch.number}{suffix}" for suffix in suffixes]
    return tuple(names)


@cache
def parse_architecture(text: str) -> tuple[str, int, str]:
    """Split ``"sm_90a"`` into ``("sm", 90, "a")``; the prefix may be ``sm``, ``compute`` or ``lto``.

    Raises ValueError if the text has another form, or names an architecture that no known CUDA release has; lists the
    known ones.
    """
    match = re.fullmatch(r"(sm|compute|lto)_(\d{2,3})([af]?)", text, re.ASCII)
    if match is None or f"sm_{match[2]}{match[3]}" not in known_architectures():
        known = ", ".join(known_architectures())
        msg = f"unknown architecture {text!r}; known: {known} (or compute_ with the same numbers)"
        raise ValueError(msg)
    return match[1], int(match[2]), match[3]


def dropped_by(release: CudaVersion, arch: str) -> bool:
    """Whether a CUDA release no longer links for an architecture such as ``"sm_70"`` that earlier ones knew."""
    dropped = {f"sm_{one.number}": one.dropped for one in ARCHITECTURES}.get(arch)
    return dropped is not None and release >= dropped


#: What is said with a name and distinguishes nothing.
_MAKER: Final = re.compile(r"nvidia|geforce|tesla|quadro|[^a-z0-9]")


@cache
def gpus() -> dict[str, int]:
    """Return the architecture's number of each GPU, by its name."""
    table = read_table("gpus.toml")["gpus"]
    return {name: int(number) for number, names in table.items() for name in names}


def architecture_of(name: str) -> str:
    """Return the architecture of a GPU: ``"sm_89"`` for ``"L4"``, ``"RTX 4090"``, ``"8.9"`` or ``"sm_89"``.

    Raises ValueError if there is no such GPU; names the nearest.
    """
    import difflib

    text = name.strip()
    if capability := re.fullmatch(r"(\d{1,2})\.(\d)", text, re.ASCII):
        text = f"sm_{capability[1]}{capability[2]}"
    if re.fullmatch(r"(?:sm|compute)_\d+[af]?", text, re.ASCII):
        return f"sm_{parse_architecture(text)[1]}"
    known = {_MAKER.sub("", one.lower()): one for one in gpus()}
    wanted = _MAKER.sub("", text.lower())
    # a name may go on with the size of the memory and the form: "A100-SXM4-80GB"
    found = known.get(_MAKER.sub("", re.split(r"-?(?:sxm|pcie|nvl|\d+gb)", text.lower())[0]))
    if found is not None:
        return f"sm_{gpus()[found]}"
    near = [known[one] for one in difflib.get_close_matches(wanted, known, 3)]
    hint = f"did you mean {' or '.join(near)}?" if near else "give a name such as L4 or RTX 4090"
    msg = f"GPU {name!r} is unknown; {hint}; an architecture such as sm_{ARCHITECTURES[-1].number} does, too"
    raise ValueError(msg)


def driver_branch(release: CudaVersion) -> int:
    """Return the driver branch that a CUDA release came with: 535 for 12.2."""
    return int(DRIVER_RELEASES[release].partition(".")[0])


def driver_named(text: str) -> CudaVersion:
    """Return the CUDA version of a driver: 12.2 for ``"535"``, ``"535.104.05"``, ``"R535"`` or ``"12.2"``.

    Raises ValueError if it is no driver's release, or that of a driver older than CUDA 12.0.
    """
    digits = re.fullmatch(r"[Rr]?(\d{1,4}(?:\.\d{1,4}){0,2})", text.strip(), re.ASCII)
    releases = list(DRIVER_RELEASES)
    oldest = releases[0]
    if digits is not None:
        numbers = tuple(int(one) for one in digits[1].split("."))
        if numbers[0] < FIRST_BRANCH:
            version = CudaVersion.parse(digits[1])
            if len(numbers) > 2:
                msg = f"driver {text!r}: drivers of one CUDA release answer alike; write {version}, or its release"
                raise ValueError(msg)
            if version in DRIVER_RELEASES:
                return version
        elif numbers[0] >= driver_branch(oldest):
            return max(one for one in releases if driver_branch(one) <= numbers[0])
    msg = (
        f"driver {text!r}: expected a release from {driver_branch(oldest)} on, such as 535 or 535.104.05, "
        f"or a CUDA version from {ranges(releases)}"
    )
    raise ValueError(msg)


def drivers_in(text: str) -> tuple[CudaVersion, ...]:
    """Return the CUDA versions of drivers in a range such as ``">=525"``, ``">=12.2,<580"`` or ``"535"``.

    Raises ValueError if a part of the range is not a driver, or no known driver is in it.
    """
    from packaging.specifiers import Specifier

    chosen = list(DRIVER_RELEASES)
    for part in text.split(","):
        match = re.fullmatch(r"\s*(>=|<=|==|>|<|)\s*([^\s<>=]\S*)\s*", part)
        if match is None:
            msg = f"drivers {text!r}: {part!r} is not a bound; write a range such as '>=525' or '>=535,<580'"
            raise ValueError(msg)
        bound = Specifier(f"{match[1] or '=='}{driver_named(match[2])}")
        chosen = [one for one in chosen if bound.contains(str(one))]
    if not chosen:
        msg = f"drivers {text!r}: no known driver is in this range"
        raise ValueError(msg)
    return tuple(chosen)
