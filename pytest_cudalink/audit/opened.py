"""Names of CUDA libraries that a program opens at run time: in read-only data of libraries, and in Python sources.

A name proves an intention, not a call. Sources are parsed and never imported.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final, NamedTuple

from ..base.tables import read_table
from ..compat.libraries import majors_of, soname_of_dll, stem_of

#: Functions that open a library by its file name, and those of cuda.pathfinder, which take the name without "lib".
_BY_FILE: Final = frozenset({"CDLL", "PyDLL", "OleDLL", "WinDLL", "LoadLibrary", "LoadLibraryEx", "dlopen"})
_BY_NAME: Final = frozenset({"load_nvidia_dynamic_lib", "load_nvidia_dynamic_library"})
_CHUNK: Final = 4 << 20
_LONGEST: Final = 128
_MOST_SOURCE: Final = 4 << 20
#: Handlers that expect a library to be absent; bare ones do, too.
_HANDLERS: Final = frozenset({"Exception", "BaseException", "OSError", "RuntimeError", "DynamicLibNotFoundError"})
#: A file name, perhaps with a format in it, that ends a string of C.
_UNIX: Final = re.compile(rb"lib[A-Za-z0-9_-]{2,40}(?:\.alt)?\.so[A-Za-z0-9_.%{}$-]{0,20}(?=\0)")
#: The end of the name of a DLL, and what may come before it.
_DLL_ENDS: Final = (b".dll\0", ".dll\0".encode("utf-16-le"))
_DLL_NAME: Final = re.compile(r"(?:^|.*[\0/\\])([A-Za-z][A-Za-z0-9_%{}-]{3,40}\.dll)", re.DOTALL)
#: From a format in the name of a DLL to its end: ``_%d_0.dll``.
_FORMAT: Final = re.compile(r"_?(?:%|\{).*\.dll$", re.IGNORECASE)
#: What may stand before the name in its string: nothing, or the path of a folder.
_BEFORE: Final = b"\0/\\"


_OPENERS: Final = tuple(name.encode() for name in sorted(_BY_FILE | _BY_NAME))
_CERTAIN: Final = frozenset(name.encode() for name in _BY_NAME)
#: File names in a source, whatever they are part of.
_FILES: Final = re.compile(rb"lib[A-Za-z0-9_-]{2,40}\.so|[A-Za-z][A-Za-z0-9_-]{3,40}\.dll")
#: The encodings that a source may name; a codec may do anything with bytes, in any time.
_ENCODINGS: Final = {
    **dict.fromkeys(("utf-8", "utf8", "utf-8-sig", "ascii", "us-ascii"), "utf-8-sig"),
    **dict.fromkeys(("latin-1", "latin1", "iso-8859-1", "iso-latin-1"), "latin-1"),
}
_CODING: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.ASCII | re.DOTALL)
_COMMENT: Final = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\f]*(?:#|\Z)")
_MOST_HEAD: Final = 64 << 10
_SHOWN: Final = 40


class OpenedLibrary(NamedTuple):
    """A library of CUDA that a file may open."""

    name: str  # as it is written: "libnvrtc.so.12", "libnvrtc.so.%d"
    # whether a Python source loads it by this name, without a folder, where no handler expects its absence
    demanded: bool = False


def stem_of_name(name: str) -> str | None:
    """The stem of a CUDA library such as ``libnvrtc``, for ``libnvrtc.so.%d`` too; None for other names."""
    name = re.split(r"[/\\]", name)[-1]
    name = soname_of_dll(_FORMAT.sub(".dll", name)) or name
    stem, suffix, _ = name.partition(".so")
    stem = stem.removesuffix(".alt")
    return stem if suffix and majors_of(f"{stem}.so") is not None else None


def is_part(stem: str, path: str) -> bool:
    """Whether a library that a file opens by name is a part of the one that the file is."""
    whole = stem_of(re.split(r"[/\\]", path)[-1])
    return whole in read_table("cuda_libraries.toml")["in-parts"] and stem.startswith((f"{whole}_", f"{whole}-"))


def names_in_data(
    stream: IO[bytes], ranges: Iterable[tuple[int, int]], *, dlls: bool = False
) -> tuple[OpenedLibrary, ...]:
    """The names of CUDA libraries that end a C string in these ranges of a file, given as offset and size."""
    names: set[str] = set()
    for offset, size in ranges:
        stream.seek(offset)
        left, tail = size, b"\0"
        while chunk := stream.read(min(left, _CHUNK)):
            left -= len(chunk)
            data = tail + chunk
            names |= {match[0].decode() for match in _UNIX.finditer(data) if data[max(match.start() - 1, 0)] in _BEFORE}
            if dlls:
                names |= set(_dlls(data))
            tail = data[-_LONGEST:]
    return tuple(OpenedLibrary(name) for name in sorted(names) if stem_of_name(name))


def _dlls(data: bytes) -> Iterator[str]:
    """The names of DLLs that end a string, of one byte or two for each character."""
    for end, width in zip(_DLL_ENDS, (1, 2), strict=True):
        at = data.find(end)
        while at >= 0:
            stop = at + 4 * width
            before = data[max(stop - _LONGEST // width * width, stop % width) : stop]
            match = _DLL_NAME.fullmatch(before.decode("latin-1" if width == 1 else "utf-16-le", "replace"))
            if match:
                yield match[1]
            at = data.find(end, stop)


class SourceError(ValueError):
    """A Python source that opens libraries, and of which no one can say here which.

    `certain`: whether the source names a library of CUDA, or may hide what it names.
    """

    def __init__(self, text: str, *, certain: bool) -> None:
        super().__init__(text)
        self.certain = certain


def names_in_source(stream: IO[bytes]) -> tuple[OpenedLibrary, ...]:
    """The names of CUDA libraries that a Python source passes to ctypes or cuda.pathfinder, sorted.

    Where the argument of such a call is not a constant, every constant of the module that is the file name of a CUDA
    library counts.

    Raises SourceError if it may open libraries, and has more than 4 MiB, is nested too deep, is not what this Python
    calls Python, or names an encoding that is not run here.
    """
    source = stream.read(_MOST_SOURCE + 1)
    encoding = _encoding(source)
    if encoding not in _ENCODINGS:
        text = f"says that its encoding is {encoding[:_SHOWN]!r}; expected utf-8, latin-1 or ascii: it was not read"
        raise SourceError(text, certain=True)
    opens, certain = _mentioned(source, stream)
    if not opens:
        return ()
    unread = "it opens libraries, and which ones was not read"
    if len(source) > _MOST_SOURCE:
        text = f"has more than {_MOST_SOURCE >> 20} MiB; {unread}: load them in a smaller module"
        raise SourceError(text, certain=certain)
    try:
        # as text, of which Python believes no encoding that the file names
        tree = ast.parse(source.decode(_ENCODINGS[encoding]))
        calls = _Calls()
        calls.visit(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = f"{error.msg}, line {error.lineno}" if isinstance(error, SyntaxError) else type(error).__name__
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        text = f"Python {python} cannot read it ({reason}); {unread}: audit it with the Python that it is for"
        raise SourceError(text, certain=certain) from error
    if calls.open_ended:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_file(node.value):
                calls.names.setdefault(node.value, False)
    return tuple(OpenedLibrary(name, demanded) for name, demanded in sorted(calls.names.items()))


def _encoding(source: bytes) -> str:
    """The encoding that a source names in its first two lines (PEP 263), normalized; utf-8 without one."""
    for line in re.split(rb"\r\n|\r|\n", source[:_MOST_HEAD], maxsplit=2)[:2]:
        if match := _CODING.match(line):
            return match[1].decode().lower().replace("_", "-")
        if not _COMMENT.match(line):
            break
    return "utf-8"


def _mentioned(source: bytes, rest: IO[bytes]) -> tuple[bool, bool]:
    """Whether a source calls what opens libraries by name, and whether it names one of CUDA's."""
    opens = certain = False
    tail = b""
    while source:
        data = tail + source
        functions = {name for name in _OPENERS if name in data}
        opens = opens or bool(functions)
        certain = certain or bool(functions & _CERTAIN)
        if not certain and (b".so" in data or b".dll" in data):  # the pattern alone takes a second for 2,000 sources
            certain = any(stem_of_name(match.decode()) for match in _FILES.findall(data))
        tail, source = data[-_LONGEST:], rest.read(_CHUNK)
    return opens, certain


class _Calls(ast.NodeVisitor):
    """Collects the names in calls that open libraries, and whether a handler around the call expects their absence."""

    def __init__(self) -> None:
        self.names: dict[str, bool] = {}
        self.open_ended = False
        self._handled = 0

    # the names of these methods are those that ast expects
    def visit_Try(self, node: ast.Try) -> None:
        handled = any(_expects_absence(handler.type) for handler in node.handlers)
        self._handled += handled
        for statement in node.body:
            self.visit(statement)
        self._handled -= handled
        for other in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(other)

    def visit_With(self, node: ast.With) -> None:
        handled = any(
            isinstance(item.context_expr, ast.Call)
            and _name(item.context_expr.func) == "suppress"
            and any(_expects_absence(argument) for argument in item.context_expr.args)
            for item in node.items
        )
        self._handled += handled
        self.generic_visit(node)
        self._handled -= handled

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        function = _name(node.func)
        if function not in _BY_FILE | _BY_NAME or not node.args:
            return
        argument = _text(node.args[0])
        if argument is None:
            self.open_ended |= function in _BY_FILE
            return
        if function in _BY_NAME:
            argument = f"lib{argument}.so"
        if stem_of_name(argument):
            # no requirement brings a file without a version in its name: the wheels have libcudart.so.12 only. A file
            # in a folder is that of a system's toolkit, or one that the program has found before
            certain = function in _BY_NAME or not (argument.endswith(".so") or re.search(r"[/\\]", argument))
            self.names[argument] = self.names.get(argument) or (certain and not self._handled)


def _expects_absence(handler: ast.expr | None) -> bool:
    """Whether an ``except`` clause catches what the absence of a library raises."""
    if isinstance(handler, ast.Tuple):
        return any(_expects_absence(element) for element in handler.elts)
    return handler is None or _name(handler) in _HANDLERS


def _is_file(text: str) -> bool:
    return len(text) <= _LONGEST and " " not in text and stem_of_name(text) is not None


def _name(function: Any) -> str:
    """The last part of the name of a function or class."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _text(argument: ast.expr) -> str | None:
    """The text of a constant or of an f-string, with ``{}`` for its values; None for other expressions."""
    match argument:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
    return None
