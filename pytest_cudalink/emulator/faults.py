"""Faults that an emulated driver injects: how they are written, and which values they take."""

import math
import re
from dataclasses import dataclass
from functools import cache

from ..base.tables import read_table
from ..compat.names import LIMIT_DELAY, LIMIT_FAULTS
from ..versions import CudaVersion

#: Faults that are not calls: the device is lost, the compiler is missing.
OF_STATE = ("lost", "jit")
_FORM = "FUNCTION:NTH=CODE[@MILLISECONDS], lost=CODE, jit=CODE or the name of a preset"
_LONGEST_DELAY = LIMIT_DELAY / 1000  # seconds


@dataclass(frozen=True)
class Fault:
    """One injected fault. Raises ValueError if a number is out of range."""

    function: str  # symbol of a driver function; "lost" for a device that is lost, "jit" for a missing compiler
    code: int = 0  # CUresult to answer; 0 lets the call through, after the delay
    nth: int = 1  # number of the call, counted from now: 1 is the next call, 0 is every call
    delay: float = 0.0  # seconds to wait first

    def __post_init__(self) -> None:
        code_of(self.code)
        if not 0 <= self.nth < 1 << 32:
            msg = f"{self.function}: call number {self.nth} is out of range; 1 is the next call, 0 is every call"
            raise ValueError(msg)
        if not (math.isfinite(self.delay) and 0 <= self.delay <= _LONGEST_DELAY):
            raise ValueError(f"delay {self.delay} s is out of range; expected 0 to {_LONGEST_DELAY:.0f} s")

    @property
    def milliseconds(self) -> int:
        """The delay in the unit of the native library."""
        return round(self.delay * 1000)


@cache
def _codes() -> dict[str, int]:
    return {row[1]: row[0] for row in read_table("emulator/errors.toml")["errors"]}


def name_of(code: int) -> str:
    """Return the name of a CUresult in cuda.h; ``"unknown CUresult"`` for another number."""
    return next((name for name, number in _codes().items() if number == code), "unknown CUresult")


def words_of(code: int) -> str:
    """Return how cuGetErrorString says a CUresult: ``"out of memory"``."""
    return next((row[2] for row in read_table("emulator/errors.toml")["errors"] if row[0] == code), "unknown error")


def code_of(code: int | str) -> int:
    """Return the number of a CUresult.

    `code`: ``2``, or its name in cuda.h, ``"CUDA_ERROR_OUT_OF_MEMORY"``.
    Raises ValueError if a driver never answers with it.
    """
    known = _codes()
    number = known.get(code, -1) if isinstance(code, str) else code
    if number not in known.values():
        named = "a number or a name of enum cudaError_enum in cuda.h, such as 2 or 'CUDA_ERROR_OUT_OF_MEMORY'"
        raise ValueError(f"{code!r} is not a CUresult of a driver; give {named}")
    return number


def listed_codes(symbol: str) -> tuple[int, ...] | None:
    """Return the errors that the documentation of a function lists, in its order; None for a function without it.

    The function is the driver's, with a CUresult, or NVRTC's, with an nvrtcResult. Left out are the two that every
    function of the driver may answer, CUDA_ERROR_DEINITIALIZED and CUDA_ERROR_NOT_INITIALIZED, and those that say that
    nothing is wrong, CUDA_ERROR_NOT_READY and NVRTC_ERROR_NO_PCH_CREATE_ATTEMPTED.
    """
    known = read_table("emulator/returns.toml")
    symbol = re.sub(r"_pt(ds|sz)$", "", symbol)
    codes = known.get(symbol, known.get(re.sub(r"_v\d+$", "", symbol)))
    return tuple(codes) if codes is not None else None


def nvrtc_functions() -> list[str]:
    """Return the functions of NVRTC that answer an nvrtcResult."""
    return [name for name in read_table("emulator/returns.toml") if name.startswith("nvrtc") and name != "nvrtcResult"]


@cache
def nvrtc_errors() -> dict[int, str]:
    """Return the names in nvrtc.h of the errors of NVRTC, by their numbers."""
    return {number: name for name, number in read_table("emulator/returns.toml")["nvrtcResult"].items()}


def symbol_of(function: str, version: CudaVersion) -> str:
    """Return the symbol that programs call by a name of cuda.h: ``"cuLinkAddData_v2"`` for ``"cuLinkAddData"``.

    `function`: the name in cuda.h, or a symbol.
    `version`: the driver's; the symbol is the newest form that it has.
    Raises ValueError if the driver exports no function of that name.
    """
    known = read_table("emulator/functions.toml")
    forms = known["functions"].get(function, {"plain": ()})["plain"]
    number = sum(since <= version.major * 1000 + version.minor * 10 for since in forms)
    symbol = function if number < 2 else f"{function}_v{number}"
    if not any(symbol in names for names in known["symbols"].values()):
        raise ValueError(f"the driver exports no function {function!r}; give a name of cuda.h, such as 'cuLinkAddData'")
    return symbol


@cache
def presets() -> dict[str, str]:
    """Return the faults of each preset, such as those of ``"forward-compatibility-on-geforce"``, as people write them.

    What machine each stands for is in ``data/emulator/presets.toml``, with the sources.
    """
    return {name: row["faults"] for name, row in read_table("emulator/presets.toml")["presets"].items()}


def parse(text: str, version: CudaVersion) -> tuple[Fault, ...]:
    """Parse faults as people write them, separated by semicolons.

    `text`: such as ``"cuLinkAddData:2=CUDA_ERROR_OUT_OF_MEMORY@50;lost=46"``, or the name of one of `presets`.
    `version`: the driver's.
    Raises ValueError if a fault cannot be parsed or has a value out of range, naming it and what is expected; if they
    are too many.
    """
    faults = []
    for name in filter(None, map(str.strip, text.split(";"))):
        entry = presets().get(name, name)
        match = re.fullmatch(r"(?:(lost|jit)|(\w+):(\d{1,9}))=(\d{1,9}|CUDA_\w+)(?:@(\d{1,9}))?", entry, re.ASCII)
        if match is None or (match[1] is not None and match[5] is not None):
            expected = f"expected {_FORM}, separated by semicolons. Presets: {', '.join(presets())}"
            raise ValueError(f"the fault {entry!r} cannot be read; {expected}")
        code = code_of(match[4] if match[4].startswith("CUDA_") else int(match[4]))
        if not code and not int(match[5] or 0):
            wanted = "give the code of an error, such as 2, or a delay, as in cuMemAlloc:1=0@50"
            raise ValueError(f"the fault {entry!r} has code 0, CUDA_SUCCESS, and changes nothing; {wanted}")
        if match[1] is not None:
            faults.append(Fault(match[1], code))
        else:
            function = symbol_of(match[2], version)
            faults.append(Fault(function, code, int(match[3]), int(match[5] or 0) / 1000))
    if len(faults) > LIMIT_FAULTS:
        raise ValueError(f"{len(faults)} faults are too many; expected at most {LIMIT_FAULTS}")
    return tuple(faults)


def text_of(faults: tuple[Fault, ...] | list[Fault]) -> str:
    """Write faults as ``CUDALINK_EMULATOR_FAULTS`` has them, with symbols and numbers."""
    return ";".join(
        f"{fault.function}={fault.code}"
        if fault.function in OF_STATE
        else f"{fault.function}:{fault.nth}={fault.code}" + (f"@{fault.milliseconds}" if fault.delay else "")
        for fault in faults
    )
