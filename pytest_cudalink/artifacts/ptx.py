"""Reading the head and the symbols of PTX text.

Source of the grammar: PTX ISA, "Directives" and "Linking Directives".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .damage import Damaged

__all__ = ["PtxModule", "looks_like_ptx", "read_ptx"]

# Every pattern is linear in the text: possessive quantifiers try nothing twice, and an unterminated comment or
# declaration matches up to the end of the text, so that the search does not begin again inside of it.
_COMMENT_OR_STRING = re.compile(rb'"[^"\n]*+"|//[^\n]*+|/\*(?:.*?\*/|(?P<open>.*+))', re.DOTALL)
_HEAD_SKIP = re.compile(rb"(?:\s++|//[^\n]*+|/\*.*?\*/)*+", re.DOTALL)
_VERSION = re.compile(rb"\.version\s++(\d{1,4})\.(\d{1,4})(?!\d)")
_TARGET = re.compile(rb"\.target\s++([A-Za-z_]\w*+)")
_RELEASE = re.compile(rb"Cuda compilation tools, release (\d{1,4})\.(\d{1,4})(?!\d)")
_NAME = re.compile(rb"[A-Za-z_$%][\w$]*+")
_BETWEEN_NAMES = re.compile(rb"[^\w$%]++")
# Both begin with a literal dot, so that the search skips everything else: the linkage and a function with its
# optional return parameter, or a variable up to its size, value or end.
_FUNCTION = re.compile(
    rb"\.(?:(visible|extern|weak)\s++\.)?(entry|func)\b\s*+(?:\.noreturn\b\s*+)?(?:\([^()]*+\)\s*+)?("
    + _NAME.pattern
    + rb")\s*+(?:\([^()]*+\))?[^;{]*+([;{]|\Z)"
)
_VARIABLE = re.compile(rb"\.(visible|extern)\s++\.(?:global|const|shared)\b([^;={\[]*+)([;={\[]|\Z)")


@dataclass(frozen=True)
class PtxModule:
    """The directives and symbols of a PTX text.

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
    """Whether a ``.version`` directive comes first, after white space and comments."""
    skipped = _HEAD_SKIP.match(data)
    at = skipped.end() if skipped else 0
    return _VERSION.match(data, at) is not None


def read_ptx(data: bytes) -> PtxModule:
    """Read PTX text, with or without its terminating NUL.

    Raises
    ------
    Damaged
        If a NUL stands inside the text, there is no ``.target``, or the text ends inside of a comment or declaration.
    """
    text = data.rstrip(b"\0")
    if (at := text.find(b"\0")) >= 0:
        raise Damaged(f"PTX has a NUL at byte {at}, before its end")
    release = _RELEASE.search(text)
    plain = _COMMENT_OR_STRING.sub(_blank, text)
    version = _VERSION.search(plain)
    target = _TARGET.search(plain)
    if version is None or target is None:
        raise Damaged("PTX has no .target directive" if version else "PTX has no .version directive")
    kernels, defined, declared = _functions(plain)
    for linkage, name in _variables(plain):
        (declared if linkage == b"extern" else defined).append(name)
    here = set(defined)
    return PtxModule(
        isa=(int(version[1]), int(version[2])),
        target=target[1].decode("ascii"),
        release=(int(release[1]), int(release[2])) if release else None,
        kernels=tuple(kernels),
        defined=tuple(defined),
        undefined=tuple(name for name in declared if name not in here),
    )


def _functions(plain: bytes) -> tuple[list[str], list[str], list[str]]:
    """Names of kernels, strong definitions and external declarations."""
    kernels, defined, declared = [], [], []
    for linkage, kind, raw, end in _FUNCTION.findall(plain):
        name = raw.decode("ascii")
        if not end:
            raise Damaged(f"PTX ends in the head of .{kind.decode('ascii')} {name}")
        if end == b";":
            if linkage == b"extern":
                declared.append(name)
            continue
        if kind == b"entry":
            kernels.append(name)
        if linkage == b"visible":
            defined.append(name)
    return kernels, defined, declared


def _variables(plain: bytes) -> Iterator[tuple[bytes, str]]:
    """Linkage and name of the variables that other modules can use or must define."""
    for linkage, head, end in _VARIABLE.findall(plain):
        if not end:
            raise Damaged(f"PTX ends in the declaration of a .{linkage.decode('ascii')} variable")
        *_, raw = _BETWEEN_NAMES.split(head.rstrip())
        if end != b"{" and _NAME.fullmatch(raw):
            yield linkage, raw.decode("ascii")


def _blank(found: re.Match[bytes]) -> bytes:
    """Blank a comment or string, which may contain text that looks like a directive."""
    if found["open"] is not None:
        raise Damaged(f"PTX has a comment at byte {found.start()} that does not end")
    return b'""' if found[0].startswith(b'"') else b" "
