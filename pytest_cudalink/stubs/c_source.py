"""The generator: from the catalog to self-contained C and assembler, one pair of files for each library, and its build.

Imports the standard library only, as the build hook needs.
"""

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..base import compiler
from .catalog import Catalog, CatalogLibrary, Function, load_catalog

DEFAULT_PREFIX = "stub"
#: In addition to the flags of every library of the project: the stubs need as little as possible of their machine.
FLAGS = ("-ldl", "-Wl,-z,relro", "-Wl,-z,noexecstack")

_NATIVE = Path(__file__).with_name("native")
#: What every stub contains, in this order: one C file, so that a project needs to compile no more. Each compiles alone,
#: with the names of `configuration.h`, in whose place stand those of the library.
_PARTS = ("base", "library_file", "opening", "search", "runtime", "adapters")
#: The lines by which each is a separate file.
_NOT_INLINE = re.compile(r"^#ifndef STUB_\w+_H\n#define STUB_\w+_H\n\n*|^#include .*\n\n?|^#endif\n\Z", re.MULTILINE)
#: Parts of names that other programs search for, in /proc/self/maps and in folders (vLLM, flashinfer).
_SOUGHT = ("libcudart", "libnvrtc", "libcuda", "libnvjitlink", "libnvidia")


class GeneratorError(ValueError):
    """The requested stubs cannot be generated; the message says why and what to do."""


@dataclass(frozen=True)
class Stub:
    """One generated stub."""

    library: CatalogLibrary  # the library that it replaces
    file: str  # name and SONAME of the shared library, such as "libstub_cudart.so"
    describe: str  # the C function that describes it, such as "stub_cudart_describe"
    sources: tuple[Path, ...]  # the C and the assembler file
    header: Path  # declares the describing function


def generate(
    catalog: Catalog, names: Iterable[str], folder: Path, prefix: str = DEFAULT_PREFIX, headers: int | None = None
) -> list[Stub]:
    """Write the sources of some stubs.

    `names`: libraries of the catalog.
    `folder`: output folder; made if it is missing.
    `prefix`: first part of the names: ``lib{prefix}_{library}.so``, ``{prefix}_{library}_describe``.
    `headers`: CUDA major of the headers that every caller is compiled with: 11, 12 or 13. Default: any of them; see
    ``native/adapters.h`` for the functions that depend on it.
    Raises GeneratorError on Windows; for an unknown library or one without functions; for a prefix with which other
    programs take the stub for a CUDA library.
    """
    if sys.platform == "win32":
        msg = "CUDA stubs are written for Linux: on Windows, link with the toolkit's import libraries and /DELAYLOAD"
        raise GeneratorError(msg)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", prefix):
        raise GeneratorError(f"prefix {prefix!r}: expected letters, digits and _, as in a C name")
    if headers not in (None, 11, 12, 13):
        raise GeneratorError(f"headers {headers}: expected the CUDA major that callers are compiled with: 11, 12 or 13")
    stubs = [_plan(catalog, name, folder, prefix) for name in names]
    folder.mkdir(parents=True, exist_ok=True)
    for stub in stubs:
        source, trampolines = stub.sources
        source.write_text(_source(stub, catalog, headers), encoding="utf-8")
        trampolines.write_text(_assembler(stub), encoding="utf-8")
        stub.header.write_text(_header(stub), encoding="utf-8")
    return stubs


def _plan(catalog: Catalog, name: str, folder: Path, prefix: str) -> Stub:
    library = catalog.libraries.get(name)
    if library is None:
        raise GeneratorError(f"no library {name!r} in the catalog; expected {', '.join(catalog.libraries)}")
    if not library.functions:
        raise GeneratorError(
            f"library {name!r}: the symbol file leaves none of its functions; leave the library out, or name functions"
        )
    base = f"{prefix}_{name}"
    if taken := [sought for sought in _SOUGHT if sought in f"lib{base}.so"]:
        msg = f"prefix {prefix!r}: other programs take lib{base}.so for the real {taken[0]}; choose another prefix"
        raise GeneratorError(msg)
    return Stub(
        library=library,
        file=f"lib{base}.so",
        describe=f"{base}_describe",
        sources=(folder / f"{base}.c", folder / f"{base}.S"),
        header=folder / f"{base}.h",
    )


def _names(stub: Stub) -> Iterator[str]:
    """Definitions that the C and the assembler file share."""
    base = stub.describe.removesuffix("_describe")
    yield f"#define STUB_SLOTS {base}_slots"
    yield f"#define STUB_TRAMPOLINES {base}_trampolines"
    yield f"#define STUB_RESOLVE {base}_resolve"
    yield f"#define STUB_COUNT {len(stub.library.functions)}"


def _source(stub: Stub, catalog: Catalog, headers: int | None) -> str:
    library = stub.library
    hint_symbol, hint_version = library.hint or ("", 0)
    kinds = [2 if len(f.parameters) == 2 else 1 for f in library.functions if f.symbol == library.version]
    files = " ".join(source.name for source in stub.sources)
    parts = [(_NATIVE / f"{part}.h").read_text(encoding="utf-8") for part in _PARTS]
    lines = [
        f"/* {stub.file}: lazy-loading stub of {library.stem}. Generated by pytest-cudalink (Apache-2.0); do not edit.",
        f" * Build: cc -O2 -fPIC -shared {files} -ldl -Wl,-soname,{stub.file} -o {stub.file} */",
        "",
        "#if !defined(_GNU_SOURCE)",
        "#define _GNU_SOURCE",
        "#endif",
        "#if !defined(_WIN32)",
        *sorted({line for part in parts for line in part.splitlines() if line.startswith("#include <")}),
        "#endif",
        "",
        *_names(stub),
        f"#define STUB_DESCRIBE {stub.describe}",
        f'#define STUB_FILE "{stub.file}"',
        f'#define STUB_LIBRARY "{library.name}"',
        f'#define STUB_STEM "{library.stem}"',
        f'#define STUB_VARIABLE "CUDALINK_STUBS_{library.name.upper()}"',
        f"#define STUB_HOMES {int(library.homes)}",
        f"#define STUB_VERSION_KIND {kinds[0] if kinds else 0}",
        f'#define STUB_VERSION_SYMBOL "{library.version}"',
        f'#define STUB_HINT_SYMBOL "{hint_symbol}"',
        f"#define STUB_HINT_VERSION {hint_version}",
        f'#define STUB_COMPANION "{library.companion}"',
        f"#define STUB_HEADERS {headers or 0}",
        f"#define STUB_MISSING_SYMBOL {library.missing_symbol}",
        *(f"#define STUB_HAS_{function.adapter} 1" for function in library.functions if function.adapter),
        "",
        _list("names", library.names),
        _list("wheels", library.wheels),
        _list("folders", library.folders),
        "",
        *(f"{_NOT_INLINE.sub('', part).strip()}\n" for part in parts),
        "/* ---- the types of the catalog ---- */",
        "",
        *_typedefs(library, catalog.types_for(headers)),
        "",
        *_results(library),
        "/* ---- what a function answers while the library, or the function in it, is missing ---- */",
        "",
        *(_fallback(function, library) for function in library.functions),
        "static const struct stub_entry stub_entries[STUB_COUNT] = {",
        *(_entry(function) for function in library.functions),
        "};",
        "",
    ]
    return "\n".join(lines)


def _assembler(stub: Stub) -> str:
    return "\n".join(
        [
            f"/* {stub.file}: its trampolines. Generated by pytest-cudalink (Apache-2.0); do not edit. */",
            "",
            *_names(stub),
            "",
            (_NATIVE / "trampolines.S").read_text(encoding="utf-8"),
            "  .text",
            *(f"  stub {function.symbol}, {index}" for index, function in enumerate(stub.library.functions)),
            "",
            '  .section .note.GNU-stack, "", %progbits',
            "",
        ]
    )


def _header(stub: Stub) -> str:
    text = (_NATIVE / "stub.h.in").read_text(encoding="utf-8")
    words = {"FILE": stub.file, "STEM": stub.library.stem, "DESCRIBE": stub.describe}
    for word, value in (words | {"GUARD": f"{stub.describe.upper()}_H"}).items():
        text = text.replace(f"@{word}@", value)
    return text


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)  # a JSON string is a C string


def _list(name: str, values: Iterable[str]) -> str:
    items = "".join(f"{_text(value)}, " for value in values)
    return f"static const char *const stub_{name}[] = {{{items}NULL}};"


def _typedefs(library: CatalogLibrary, types: Mapping[str, str]) -> Iterator[str]:
    used = {word for function in library.functions for word in function.type_words}
    for name, meaning in types.items():
        if name in used:
            yield f"typedef {meaning} {name};"


def _results(library: CatalogLibrary) -> Iterator[str]:
    if not any(function.answer for function in library.functions):
        return
    yield "static const char *stub_result_name(int code)"
    yield "{"
    for code, name in library.results.items():
        yield f"  if (code == {code}) return {_text(name)};"
    yield '  return "unrecognized error code";'
    yield "}"
    yield ""


def _fallback(function: Function, library: CatalogLibrary) -> str:
    """The C function that answers while the real one is missing."""
    parameters = ", ".join(_declare(parameter.type, parameter.name) for parameter in function.parameters)
    body = [f"  (void){parameter.name};" for parameter in function.parameters]
    outputs = {output.name: output for output in function.outputs}
    for name, output in outputs.items():
        if output.length:
            body.append(
                f"  if ({name} && {output.length} > 0) memset({name}, 0, (size_t){output.length} * sizeof *{name});"
            )
        else:
            size = f"sizeof *{name}" if output.size is None else str(output.size)
            body.append(f"  if ({name}) memset((void *){name}, 0, {size});")
    if function.answer:
        code = function.parameters[0].name
        answer = {
            "name": f"stub_result_name({code})",
            "text": f"{code} ? stub_complaint({_text(function.symbol)}) : stub_result_name(0)",
        }[function.answer]
        if "*" in function.result:
            body.append(f"  return {answer};")
        else:
            pointer = function.outputs[0].name
            body.append(f"  if ({pointer}) *{pointer} = {answer};")
            body.append("  return 0;")
    elif function.error is not None:
        body.append(f"  return ({function.result}){function.error};")
    elif function.result.endswith("*"):
        body.append("  return NULL;")
    elif function.result != "void":
        body.append(f"  return ({function.result})stub_failed({library.missing_library}, {library.missing_symbol});")
    head = _declare(function.result, f"stub_fallback_{function.symbol}({parameters or 'void'})")
    return "\n".join([f"static {head}", "{", *body, "}", ""])


def _declare(type_: str, name: str) -> str:
    return f"{type_}{'' if type_.endswith('*') else ' '}{name}"


def _entry(function: Function) -> str:
    older = _text(function.older) if function.older else "NULL"
    adapt = f"stub_adapt_{function.adapter}" if function.adapter else "NULL"
    optional = int(function.tier == "optional")
    fallback = f"(stub_function)stub_fallback_{function.symbol}"
    return f"    {{{_text(function.symbol)}, {older}, {optional}, {fallback}, {adapt}}},"


# -- the build of the wheel's stubs, for the build hook, and of those of other projects


def libraries() -> list[compiler.SharedLibrary]:
    """The stubs of the wheel: of every library of the catalog, generated into ``generated/``."""
    known = load_catalog()
    return _shared_libraries(generate(known, known.libraries, _NATIVE.with_name("generated")))


def _shared_libraries(stubs: Iterable[Stub]) -> list[compiler.SharedLibrary]:
    """The build descriptions of generated stubs."""
    return [compiler.SharedLibrary(stub.file, stub.sources, flags=FLAGS) for stub in stubs]


def build_stubs(
    names: Sequence[str], folder: Path, *, symbols: Path | None = None, prefix: str = "stub", headers: int | None = None
) -> list[Path]:
    """Generate and compile stubs for a project, as ``cudalink stubs build`` does.

    `names`: libraries of the catalog.
    `folder`: for the libraries and their headers.
    `symbols`: the project's own symbol file; see `pytest_cudalink.stubs.catalog.load_catalog`.
    `prefix`: first part of the file names.
    `headers`: CUDA major of the callers' headers; see `generate`.
    Returns the libraries.
    Raises CatalogError, GeneratorError, CompilerError with a message for the user.
    """
    with tempfile.TemporaryDirectory(prefix="cudalink-stubs-") as work:
        stubs = generate(load_catalog(symbols), names, Path(work), prefix, headers)
        built = [compiler.build(library, folder, strict=False) for library in _shared_libraries(stubs)]
        for stub in stubs:
            shutil.copy(stub.header, folder)
    return built
