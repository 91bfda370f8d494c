"""Reading the head and the symbols of PTX text.

Source of the grammar: PTX ISA, "Directives" and "Linking Directives".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ._damage import Damaged

__all__ = ["PtxModule", "looks_like_ptx", "read_ptx"]

_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_HEAD_SKIP = re.compile(rb"(?:\s+|//[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)
_VERSION = re.compile(rb"\.version\s+(\d+)\.(\d+)")
_TARGET = re.compile(rb"\.target\s+([A-Za-z_]\w*)")
_RELEASE = re.compile(rb"Cuda compilation tools, release (\d+)\.(\d+)")
_NAME = rb"([A-Za-z_$%][\w$]*)"
# Both begin with a literal dot, which lets the search skip everything else: the linkage and a function with its
# optional return parameter, or a variable up to its last identifier.
_FUNCTION = re.compile(
    rb"\.(?:(visible|extern|weak)\s+\.)?(entry|func)\b(?:\s*\.noreturn\b)?\s*(?:\([^()]*\))?\s*"
    + _NAME
    + rb"\s*(?:\([^()]*\))?[^;{]*([;{])"
)
_VARIABLE = re.compile(rb"\.(visible|extern)\s+\.(?:global|const|shared)\b[^;={\[]*?" + _NAME + rb"\s*(?=[\[=;])")


@dataclass(frozen=True)
class PtxModule:
    """What the text says of itself.

    Attributes
    ----------
    isa : tuple of int
        The ``.version`` directive.
    target : str
        The first ``.target``, such as ``"sm_90a"``.
    release : tuple of int or None
        CUDA release in NVIDIA's header comment; None when another compiler wrote the text.
    kernels, defined, undefined : tuple of str
        Entries with a body; strong external definitions; external declarations without a definition here.
    """

    isa: tuple[int, int]
    target: str
    release: tuple[int, int] | None
    kernels: tuple[str, ...]
    defined: tuple[str, ...]
    undefined: tuple[str, ...]


def looks_like_ptx(data: bytes) -> bool:
    """Whether the first thing after white space and comments is a ``.version`` directive."""
    skipped = _HEAD_SKIP.match(data)
    at = skipped.end() if skipped else 0
    return _VERSION.match(data, at) is not None


def read_ptx(data: bytes) -> PtxModule:
    """Read PTX text, with or without its terminating NUL.

    Raises
    ------
    Damaged
        If a NUL stands inside the text, or there is no ``.target``.
    """
    text = data.rstrip(b"\0")
    if (at := text.find(b"\0")) >= 0:
        raise Damaged(f"PTX has a NUL at byte {at}, before its end")
    release = _RELEASE.search(text)
    plain = _COMMENT.sub(b" ", text)
    version = _VERSION.search(plain)
    target = _TARGET.search(plain)
    if version is None or target is None:
        raise Damaged("PTX has no .target directive" if version else "PTX has no .version directive")
    kernels, defined, declared = [], [], []
    for linkage, kind, raw, end in _FUNCTION.findall(plain):
        name = raw.decode("ascii")
        if end == b";":
            if linkage == b"extern":
                declared.append(name)
            continue
        if kind == b"entry":
            kernels.append(name)
        if linkage == b"visible":
            defined.append(name)
    for linkage, raw in _VARIABLE.findall(plain):
        (declared if linkage == b"extern" else defined).append(raw.decode("ascii"))
    here = set(defined)
    return PtxModule(
        isa=(int(version[1]), int(version[2])),
        target=target[1].decode("ascii"),
        release=(int(release[1]), int(release[2])) if release else None,
        kernels=tuple(kernels),
        defined=tuple(defined),
        undefined=tuple(name for name in declared if name not in here),
    )
