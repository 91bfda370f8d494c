"""Names of CUDA libraries that a program opens at run time: in read-only data of libraries, and in Python sources.

A name proves an intention, not a call. Sources are parsed and never imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final

from .libraries import majors_of, soname_of_dll

__all__ = ["names_in_data", "names_in_source", "stem_of_name"]

#: Functions that open a library by its file name, and those of cuda.pathfinder, which take the name without "lib".
_BY_FILE: Final = frozenset({"CDLL", "PyDLL", "OleDLL", "WinDLL", "LoadLibrary", "LoadLibraryEx", "dlopen"})
_BY_NAME: Final = frozenset({"load_nvidia_dynamic_lib", "load_nvidia_dynamic_library"})
_CHUNK: Final = 4 << 20
_LONGEST: Final = 96
_MOST_SOURCE: Final = 4 << 20
#: A file name, perhaps with a format in it, that ends a string of C.
_UNIX = re.compile(rb"lib[A-Za-z0-9_-]{2,40}(?:\.alt)?\.so[A-Za-z0-9_.%{}$-]{0,20}(?=\0)")
_WINDOWS = re.compile(rb"[A-Za-z][A-Za-z0-9_%{}-]{3,40}\.dll(?=\0)", re.IGNORECASE)
_WINDOWS_WIDE = re.compile(rb"(?:[A-Za-z0-9_%{}-]\0){4,40}\.\0d\0l\0l\0(?=\0\0)", re.IGNORECASE)
#: What may stand before the name in its string: nothing, or the path of a folder.
_BEFORE: Final = b"\0/\\"


def stem_of_name(name: str) -> str | None:
    """The stem of a CUDA library such as ``libnvrtc``, for ``libnvrtc.so.%d`` too; None for other names."""
    name = re.split(r"[/\\]", name)[-1]
    if name.lower().endswith(".dll"):
        name = soname_of_dll(name) or name
    stem, suffix, _ = name.partition(".so")
    stem = stem.removesuffix(".alt")
    return stem if suffix and majors_of(f"{stem}.so") is not None else None


def names_in_data(stream: IO[bytes], ranges: Iterable[tuple[int, int]]) -> tuple[str, ...]:
    """The names of CUDA libraries that end a C string in these ranges of a file, given as offset and size; sorted."""
    found: set[str] = set()
    for offset, size in ranges:
        stream.seek(offset)
        left, tail = size, b"\0"
        while left > 0 and (chunk := stream.read(min(left, _CHUNK))):
            left -= len(chunk)
            data = tail + chunk
            for pattern in (_UNIX, _WINDOWS):
                found |= {
                    match[0].decode() for match in pattern.finditer(data) if data[max(match.start() - 1, 0)] in _BEFORE
                }
            found |= {match[0].decode("utf-16-le", "replace") for match in _WINDOWS_WIDE.finditer(data)}
            tail = data[-_LONGEST:]
    return tuple(sorted(name for name in found if stem_of_name(name)))


def names_in_source(source: bytes) -> tuple[str, ...]:
    """The names of CUDA libraries that a Python source passes to ctypes or cuda.pathfinder, sorted.

    Where the argument of such a call is not a constant, every constant of the module that is the file name of a CUDA
    library counts.
    """
    if len(source) > _MOST_SOURCE or not any(name.encode() in source for name in (*_BY_FILE, *_BY_NAME)):
        return ()
    try:
        tree = ast.parse(source)
        return tuple(sorted(set(_called(tree))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _called(tree: ast.AST) -> Iterator[str]:
    open_ended = False
    constants: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            constants.append(node.value)
        if not isinstance(node, ast.Call) or not node.args:
            continue
        function = _name(node.func)
        argument = _text(node.args[0])
        if function in _BY_NAME:
            if argument is not None and majors_of(f"lib{argument}.so") is not None:
                yield f"lib{argument}.so"
        elif function in _BY_FILE:
            if argument is None:
                open_ended = True
            elif stem_of_name(argument):
                yield argument
    if open_ended:
        yield from (one for one in constants if len(one) <= _LONGEST and " " not in one and stem_of_name(one))


def _name(function: Any) -> str:
    """The last part of the name of a called function."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _text(argument: ast.expr) -> str | None:
    """The text of a constant or of an f-string, with ``{}`` for its values; None for other expressions."""
    match argument:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in parts)  # type: ignore[misc]
    return None
