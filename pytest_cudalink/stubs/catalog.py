"""The catalog: the functions that the stubs export, how they fail, and where their libraries are searched.

Reads ``stubs_catalog.toml`` and a project's own symbol file. Imports the standard library only: the build hook needs it
before anything is installed.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..base.regular_files import read_text

CATALOG_FILE = Path(__file__).parents[1] / "data" / "stubs_catalog.toml"

_PROTOTYPE = re.compile(r"^(?P<result>[\w\s*]+?)(?P<name>\w+)\s*\((?P<parameters>.*)\)\s*;?$", re.DOTALL)
_PARAMETER = re.compile(r"^(?P<type>[\w\s*]*[\s*])(?P<name>\w+)$")
_OUTPUT = re.compile(r"^(?P<name>\w+)(?:\[(?P<length>\w+)\]|:(?P<size>\d+))?$")
_BUILTIN = frozenset(
    {"void", "char", "short", "int", "long", "float", "double", "unsigned", "signed", "size_t"}
    | {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)
#: The keys of a library and of a function, each with the type of its value, or its values; a list is one of texts.
_LIBRARY_KEYS: dict[str, Any] = {
    **dict.fromkeys(("stem", "version", "companion"), str),
    **dict.fromkeys(("names", "wheels", "folders"), list),
    **dict.fromkeys(("missing_library", "missing_symbol"), int),
    **dict.fromkeys(("hint", "results"), dict),
    "homes": bool,
}
_FUNCTION_KEYS: dict[str, Any] = {
    **dict.fromkeys(("prototype", "symbol", "since", "until", "older"), str),
    "tier": ("core", "optional"),
    "out": list,
    "error": int,
    "answer": ("name", "text"),
    "adapter": ("function_attributes", "graph_instantiate", "properties", "properties_v2", "runtime_version"),
}


class CatalogError(ValueError):
    """A catalog or symbol file is invalid; the message names the file, the entry and the fault."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a prototype: its C type without ``enum`` and ``struct``, and its name."""

    type: str
    name: str

    @property
    def is_pointer(self) -> bool:
        return self.type.endswith("*")

    @property
    def pointee(self) -> str:
        """The type that a pointer points to."""
        return self.type.rstrip()[:-1].rstrip()


@dataclass(frozen=True)
class Output:
    """Memory that a failing call fills with zeros."""

    name: str  # the parameter that points to it
    length: str | None = None  # parameter with the number of elements, for a buffer
    size: int | None = None  # exact size in bytes, where the pointed type does not determine it


@dataclass(frozen=True)
class Function:
    """One function of the catalog."""

    name: str  # as programs write it, such as "cuMemsetD32"
    symbol: str  # the exact entry point that is exported and looked up, such as "cuMemsetD32_v2"
    result: str  # type of the result
    parameters: tuple[Parameter, ...]
    tier: str = "core"  # "core" or "optional"
    since: str | None = None  # first CUDA release with it
    until: str | None = None  # the last one
    outputs: tuple[Output, ...] = ()
    error: int | None = None  # result on failure, instead of those of the library
    older: str | None = None  # symbol of the same signature in older libraries
    answer: str | None = None  # "name" or "text" for functions that explain an error code
    adapter: str | None = None  # the C function that stands between caller and library

    @property
    def type_words(self) -> list[str]:
        """The words of the types of its result and parameters."""
        return re.findall(r"\w+", " ".join([self.result, *(parameter.type for parameter in self.parameters)]))


@dataclass(frozen=True)
class CatalogLibrary:
    """One library that a stub replaces; the head of ``stubs_catalog.toml`` explains the keys."""

    name: str
    stem: str
    names: tuple[str, ...]
    missing_library: int
    missing_symbol: int
    hint: tuple[str, int] | None
    results: Mapping[int, str]
    functions: tuple[Function, ...]
    wheels: tuple[str, ...] = ()
    homes: bool = True
    folders: tuple[str, ...] = ()
    version: str = ""
    companion: str = ""


@dataclass(frozen=True)
class Catalog:
    """Libraries by name, the meaning of every type that their functions use, and where it depends on the headers."""

    libraries: Mapping[str, CatalogLibrary]
    types: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[int, Mapping[str, str]] = field(default_factory=dict)

    def types_for(self, headers: int | None) -> dict[str, str]:
        """The types for callers compiled with the headers of one CUDA major; None: of any major."""
        return {**self.types, **(self.headers.get(headers, {}) if headers else {})}


def load_catalog(symbols: Path | None = None) -> Catalog:
    """The catalog, changed by a project's symbol file.

    `symbols`: either a text file with one function name of the catalog a line (``#`` begins a comment): the stubs then
    export exactly these. Or a ``.toml`` file with the tables of ``stubs_catalog.toml``, whose entries are added or
    replace those of the same name, and optionally ``only = [names]``, the exact list.
    Raises CatalogError if a file cannot be read, or an entry is wrong.
    """
    data = _read(CATALOG_FILE)
    origin, only = CATALOG_FILE, None
    if symbols is not None:
        origin = symbols
        if symbols.suffix == ".toml":
            own = _read(symbols)
            only = own.pop("only", None)
            data = _merge(data, own)
        else:
            try:
                lines = read_text(symbols).splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise CatalogError(f"{symbols}: {error}") from error
            only = [name for line in lines if (name := line.partition("#")[0].strip())]
    if unknown := sorted(set(data) - {"libraries", "functions", "types", "headers"}):
        raise CatalogError(f"{origin}: unknown table {unknown[0]!r}; known: libraries, functions, types, headers, only")
    try:
        for key, depth in (("libraries", 1), ("functions", 2), ("types", 0), ("headers", 1)):
            _check_depth(key, data.get(key, {}), depth)
        if only is not None:
            _choose(data, only)
        return _catalog(data)
    except CatalogError as error:
        raise CatalogError(f"{origin}: {error}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise CatalogError(f"{path}: {error}") from error


def _merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables of the catalog's depth (libraries.NAME, functions.LIBRARY.NAME, types) joined; entries of `above` win."""
    merged = dict(below)
    for key, value in above.items():
        known = merged.get(key)
        merged[key] = _merge(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def _check_depth(where: str, value: Any, depth: int) -> None:
    """Refuse values that should be tables, or tables of tables."""
    if not isinstance(value, dict):
        raise CatalogError(f"{where}: expected a table")
    if depth:
        for key, inner in value.items():
            _check_depth(f"{where}.{key}", inner, depth - 1)


def _choose(data: dict[str, Any], only: Any) -> None:
    """Keep the functions named by `only`, by name or by exact symbol."""
    if not isinstance(only, list) or not all(isinstance(name, str) for name in only):
        raise CatalogError("'only' must be a list of function names")
    wanted = set(only)
    for functions in data["functions"].values():
        for name in list(functions):
            symbol = functions[name].get("symbol", name)
            if wanted.isdisjoint((name, symbol)):
                del functions[name]
            wanted -= {name, symbol}
    if wanted:
        raise CatalogError(
            f"{', '.join(sorted(wanted))}: not in the catalog ('cudalink stubs list' shows it); "
            "give the prototype in a .toml symbol file, as [functions.LIBRARY.NAME]"
        )


def _catalog(data: dict[str, Any]) -> Catalog:
    if strange := sorted(set(data.get("headers", {})) - {"11", "12", "13"}):
        raise CatalogError(f"headers.{strange[0]}: expected the CUDA major 11, 12 or 13")
    types = data["types"]
    meanings = [*types.items(), *(pair for names in data.get("headers", {}).values() for pair in names.items())]
    for name, meaning in meanings:
        if not re.fullmatch(r"[A-Za-z_]\w*", name) or not isinstance(meaning, str):
            raise CatalogError(f"types.{name}: expected a C name and a C type as text")
    if strangers := sorted(set(data["functions"]) - set(data["libraries"])):
        raise CatalogError(f"functions.{strangers[0]}: there is no [libraries.{strangers[0]}]")
    libraries = {}
    for name, entry in data["libraries"].items():
        entries = data["functions"].get(name, {}).items()
        functions = tuple(_function(f"functions.{name}.{call}", call, given, types) for call, given in entries)
        _check_symbols(name, functions)
        libraries[name] = _library(name, entry, functions)
    return Catalog(libraries, types, {int(major): names for major, names in data.get("headers", {}).items()})


def _check_symbols(library: str, functions: tuple[Function, ...]) -> None:
    """Refuse a symbol that a library would export twice."""
    owners: dict[str, str] = {}
    for function in functions:
        owner = owners.setdefault(function.symbol, function.name)
        if owner != function.name:
            raise CatalogError(
                f"functions.{library}.{function.name}: {function.symbol} is the symbol of functions.{library}.{owner} "
                "already; to replace that one, use its name"
            )


def _library(name: str, entry: Any, functions: tuple[Function, ...]) -> CatalogLibrary:
    where = f"libraries.{name}"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise CatalogError(f"{where}: a library is named by small letters, digits and _")
    values = _checked(where, entry, _LIBRARY_KEYS, "stem", "names", "missing_library", "missing_symbol")
    hint, results = _hint(where, values.pop("hint", None)), _results(where, values.pop("results", {}))
    return CatalogLibrary(name, hint=hint, results=results, functions=functions, **values)


def _hint(where: str, hint: dict[str, Any] | None) -> tuple[str, int] | None:
    match hint:
        case None:
            return None
        case {"symbol": str(symbol), "version": int(version)}:
            return symbol, version
    raise CatalogError(f"{where}: hint must be {{ symbol = NAME, version = NUMBER }}")


def _results(where: str, results: dict[str, Any]) -> dict[int, str]:
    for code, text in results.items():
        if not code.isdecimal() or int(code) >= 2**31 or not isinstance(text, str):
            msg = f'{where}: results must be names by number, such as 303 = "cudaErrorSharedObjectInitFailed"'
            raise CatalogError(msg)
    return {int(code): text for code, text in results.items()}


def _function(where: str, name: str, entry: Any, types: Mapping[str, str]) -> Function:
    values = _checked(where, entry, _FUNCTION_KEYS, "prototype")
    prototype, symbol, outputs = values.pop("prototype"), values.pop("symbol", name), values.pop("out", ())
    match = _PROTOTYPE.match(" ".join(prototype.split()))
    if match is None:
        raise CatalogError(f"{where}: not a prototype: {prototype!r}; parameters that are functions need a named type")
    if match["name"] != symbol:
        raise CatalogError(f"{where}: the prototype declares {match['name']}, the symbol is {symbol}")
    parameters = tuple(_parameters(where, match["parameters"]))
    written = tuple(_output(where, text, parameters) for text in outputs)
    function = Function(name, symbol, _plain(match["result"]), parameters, outputs=written, **values)
    if function.answer and not _explains(function):
        msg = f"{where}: answer = {function.answer!r}: expected an error code first, and a text as result or in 'out'"
        raise CatalogError(msg)
    if len({parameter.name for parameter in parameters}) < len(parameters):
        raise CatalogError(f"{where}: two parameters have the same name")
    for word in function.type_words:
        if word != "const" and word not in _BUILTIN and word not in types:
            raise CatalogError(f'{where}: the type {word} is not known; add it as [types] {word} = "..."')
    return function


def _explains(function: Function) -> bool:
    """Whether a function takes an error code and returns a text, as its result or first output."""
    code, outputs = function.parameters[:1], [output.name for output in function.outputs[:1]]
    texts = [function.result, *(p.pointee for p in function.parameters if p.name in outputs)]
    return any(not p.is_pointer for p in code) and any(re.fullmatch(r"(const )?char ?\*", text) for text in texts)


def _plain(type_: str) -> str:
    """A type without ``enum``, ``struct`` and a const pointer, with the stars at the end."""
    words = " ".join(re.sub(r"\b(enum|struct)\b", " ", type_).replace("*", " * ").split())
    return re.sub(r"\*\s+(?=\*)", "*", words.removesuffix(" const") if words.endswith("* const") else words)


def _parameters(where: str, text: str) -> Iterator[Parameter]:
    if text.strip() in ("", "void"):
        return
    for number, part in enumerate(text.split(",")):
        match = _PARAMETER.match(" ".join(part.split()))
        if match is None or match["name"] in _BUILTIN:
            raise CatalogError(f"{where}: parameter {number + 1}, {part.strip()!r}, must be a type and a name")
        yield Parameter(_plain(match["type"]), match["name"])


def _output(where: str, text: str, parameters: tuple[Parameter, ...]) -> Output:
    match = _OUTPUT.match(text)
    by_name = {parameter.name: parameter for parameter in parameters}
    if match is None or match["name"] not in by_name or (match["length"] and match["length"] not in by_name):
        raise CatalogError(f"{where}: out = {text!r}: expected PARAMETER, PARAMETER[LENGTH] or PARAMETER:BYTES")
    parameter = by_name[match["name"]]
    if not parameter.is_pointer or (parameter.pointee.startswith("const ") and "*" not in parameter.pointee):
        raise CatalogError(f"{where}: out = {text!r}: a function cannot write to {parameter.type}")
    if parameter.pointee == "void" and not (match["length"] or match["size"]):
        raise CatalogError(f"{where}: out = {text!r}: give the size of what void * points to, as {text}:BYTES")
    return Output(parameter.name, match["length"], int(match["size"]) if match["size"] else None)


def _checked(where: str, entry: Any, known: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """Return the values of a table's keys, with lists as tuples; refuse other keys and other values."""
    if not isinstance(entry, dict):
        raise CatalogError(f"{where}: expected a table")
    if missing := [key for key in required if key not in entry]:
        raise CatalogError(f"{where}: {missing[0]!r} is missing")
    if unknown := entry.keys() - known.keys():
        raise CatalogError(f"{where}: unknown key {min(unknown)!r}")
    for key, value in entry.items():
        kind = known[key]
        of_type: Any = str if isinstance(kind, tuple) else kind
        if not isinstance(value, of_type) or (kind is int and isinstance(value, bool)):
            raise CatalogError(f"{where}: {key} = {value!r} must be {of_type.__name__}")
        if isinstance(value, int) and not -(2**31) <= value < 2**31:
            raise CatalogError(f"{where}: {key} = {value!r} must fit into an int of C")
        if isinstance(kind, tuple) and value not in kind:
            raise CatalogError(f"{where}: {key} = {value!r}: expected one of {', '.join(kind)}")
        if kind is list and not all(isinstance(text, str) for text in value):
            raise CatalogError(f"{where}: {key} must be a list of texts")
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
