"""GPUs by name, and drivers by release: what an architecture and a CUDA version are called where they are sold."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable
from functools import cache
from typing import Final

from ..base.tables import read_table
from ..versions import FIRST_BRANCH, CudaVersion, ranges
from .architectures import ARCHITECTURES, parse_architecture
from .releases import DRIVER_RELEASES

#: What is said with a name and distinguishes nothing.
_MAKER: Final = re.compile(r"nvidia|geforce|tesla|quadro|[^a-z0-9]")
_COMPARED: Final[dict[str, Callable[[CudaVersion, CudaVersion], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
    "": operator.eq,
}


@cache
def gpus() -> dict[str, int]:
    """Return the architecture's number of each GPU, by its name."""
    table = read_table("gpus.toml")["gpus"]
    return {name: int(number) for number, names in table.items() for name in names}


def architecture_of(name: str) -> str:
    """Return the architecture of a GPU: ``"sm_89"`` for ``"L4"``, ``"RTX 4090"``, ``"8.9"`` or ``"sm_89"``.

    Raises ValueError if there is no such GPU; names the nearest.
    """
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
    chosen = list(DRIVER_RELEASES)
    for part in text.split(","):
        match = re.fullmatch(r"\s*(>=|<=|==|>|<|)\s*(\S+)\s*", part)
        if match is None:
            msg = f"drivers {text!r}: {part!r} is not a bound; write a range such as '>=525' or '>=535,<580'"
            raise ValueError(msg)
        bound = driver_named(match[2])
        chosen = [one for one in chosen if _COMPARED[match[1]](one, bound)]
    if not chosen:
        msg = f"drivers {text!r}: no known driver is in this range"
        raise ValueError(msg)
    return tuple(chosen)
