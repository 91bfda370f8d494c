"""Faults that an emulated driver is told to make: how they are written, and what may stand in them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache

from ..versions import CudaVersion
from ._tables import table

__all__ = ["Fault", "code_of", "parse", "symbol_of", "text_of"]

_FORM = "FUNCTION:NTH=CODE[@MILLISECONDS] or lost=CODE"
_LONGEST_DELAY = 86_400.0  # seconds
_MOST = 64  # FAULTS in native/core.c
_LONGEST_TEXT = 4095  # characters; read_faults in native/core.c


@dataclass(frozen=True)
class Fault:
    """One of them.

    Attributes
    ----------
    function : str
        Symbol of a driver function; ``"lost"`` for a device that is lost.
    code : int
        CUresult to answer; 0 lets the call through, after the delay.
    nth : int
        Which call from now on, 1 for the next; 0 for every one.
    delay : float
        Seconds to wait first.

    Raises
    ------
    ValueError
        If a number is none that it can be.
    """

    function: str
    code: int = 0
    nth: int = 1
    delay: float = 0.0

    def __post_init__(self) -> None:
        code_of(self.code)
        if not 0 <= self.nth < 1 << 32:
            msg = f"call number {self.nth} of {self.function} cannot be meant: 1 is the next, 0 is every one"
            raise ValueError(msg)
        if not (math.isfinite(self.delay) and 0 <= self.delay <= _LONGEST_DELAY):
            msg = f"a delay of {self.delay} s cannot be had: 0 to {_LONGEST_DELAY:.0f} can"
            raise ValueError(msg)

    @property
    def milliseconds(self) -> int:
        """The delay as the native library counts it."""
        return round(self.delay * 1000)


@cache
def _codes() -> dict[str, int]:
    return {row[1]: row[0] for row in table("errors")["errors"]}


def code_of(code: int | str) -> int:
    """The number of a CUresult.

    Parameters
    ----------
    code : int or str
        ``2``, or its name in cuda.h, ``"CUDA_ERROR_OUT_OF_MEMORY"``.

    Raises
    ------
    ValueError
        If no driver answers with it.
    """
    known = _codes()
    number = known.get(code, -1) if isinstance(code, str) else code
    if number not in known.values():
        msg = (
            f"{code!r} is no CUresult that a driver answers with; give a number or a name of enum cudaError_enum in "
            "cuda.h, such as 2 or 'CUDA_ERROR_OUT_OF_MEMORY'"
        )
        raise ValueError(msg)
    return number


def symbol_of(function: str, version: CudaVersion) -> str:
    """The symbol that programs call by a name of cuda.h: ``"cuLinkAddData_v2"`` for ``"cuLinkAddData"``.

    Parameters
    ----------
    function : str
        The name, or a symbol.
    version : CudaVersion
        Of the driver, whose newest form it is.

    Raises
    ------
    ValueError
        If the driver exports none of that name.
    """
    known = table("functions")
    forms = known["functions"].get(function, {"plain": ()})["plain"]
    number = sum(since <= version.major * 1000 + version.minor * 10 for since in forms)
    symbol = function if number < 2 else f"{function}_v{number}"
    if symbol not in known["symbols"]:
        msg = f"the driver exports no function {function!r}; give a name of cuda.h, such as 'cuLinkAddData'"
        raise ValueError(msg)
    return symbol


def parse(text: str, version: CudaVersion) -> tuple[Fault, ...]:
    """Read faults as people write them: separated by semicolons.

    Parameters
    ----------
    text : str
        Such as ``"cuLinkAddData:2=CUDA_ERROR_OUT_OF_MEMORY@50;lost=46"``.
    version : CudaVersion
        Of the driver.

    Raises
    ------
    ValueError
        If one cannot be read, or cannot be; says which, and what is expected.
    """
    found = []
    for entry in filter(None, map(str.strip, text.split(";"))):
        match = re.fullmatch(r"(?:lost|(\w+):(\d{1,9}))=(\d{1,9}|CUDA_\w+)(?:@(\d{1,9}))?", entry, re.ASCII)
        if match is None or (match[1] is None and match[4] is not None):
            msg = f"the fault {entry!r} cannot be read; expected {_FORM}, separated by semicolons"
            raise ValueError(msg)
        code = code_of(match[3] if match[3].startswith("CUDA_") else int(match[3]))
        if match[1] is None:
            found.append(Fault("lost", code))
        else:
            function = symbol_of(match[1], version)
            found.append(Fault(function, code, int(match[2]), int(match[4] or 0) / 1000))
    if len(found) > _MOST or len(text_of(found)) > _LONGEST_TEXT:
        msg = f"{len(found)} faults are too many; {_MOST} can wait at once"
        raise ValueError(msg)
    return tuple(found)


def text_of(faults: tuple[Fault, ...] | list[Fault]) -> str:
    """As ``CUDALINK_EMULATOR_FAULTS`` has them: in symbols and numbers."""
    return ";".join(
        f"lost={one.code}"
        if one.function == "lost"
        else f"{one.function}:{one.nth}={one.code}" + (f"@{one.milliseconds}" if one.delay else "")
        for one in faults
    )
