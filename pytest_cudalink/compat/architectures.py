"""GPU architectures, the CUDA releases that know them, and the names by which GPUs and drivers are sold."""

import re
from functools import cache
from typing import Final, NamedTuple

from ..base.tables import read_table
from ..versions import CudaVersion
from .names import ARCHITECTURES as _ROWS
from .names import FAMILY_SUFFIX_SINCE
from .releases import PTX_ISA

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
        raise ValueError(f"unknown architecture {text!r}; known: {known} (or compute_ with the same numbers)")
    return match[1], int(match[2]), match[3]


def dropped_by(release: CudaVersion, arch: str) -> bool:
    """Whether a CUDA release no longer links for an architecture such as ``"sm_70"`` that earlier ones knew."""
    dropped = {f"sm_{architecture.number}": architecture.dropped for architecture in ARCHITECTURES}.get(arch)
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
    known = {_MAKER.sub("", gpu.lower()): gpu for gpu in gpus()}
    wanted = _MAKER.sub("", text.lower())
    # a name may go on with the size of the memory and the form: "A100-SXM4-80GB"
    number = known.get(_MAKER.sub("", re.split(r"-?(?:sxm|pcie|nvl|\d+gb)", text.lower())[0]))
    if number is not None:
        return f"sm_{gpus()[number]}"
    near = [known[match] for match in difflib.get_close_matches(wanted, known, 3)]
    hint = f"did you mean {' or '.join(near)}?" if near else "give a name such as L4 or RTX 4090"
    msg = f"GPU {name!r} is unknown; {hint}; an architecture such as sm_{ARCHITECTURES[-1].number} does, too"
    raise ValueError(msg)
