"""Build the stubs of the wheel (for the build hook) and those of other projects.

The build hook loads this file by its path, before the package can be imported; see `_siblings`.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent

#: In addition to the flags of every library of the project: the stubs need as little as possible of their machine.
FLAGS = ("-ldl", "-Wl,-z,relro", "-Wl,-z,noexecstack")


def _siblings() -> Any:
    """The modules of the generator and the catalog, also if this file was loaded by its path, without a package."""
    package = __package__
    if not package:
        package = "_cudalink_sources.stubs"
        for name, folder in (("_cudalink_sources", HERE.parent), (package, HERE)):
            module = ModuleType(name)
            module.__path__ = [str(folder)]
            sys.modules[name] = module
    return importlib.import_module(f"{package}.c_source"), importlib.import_module(f"{package}.catalog")


def libraries(compiler: Any) -> list[Any]:
    """The stubs of the wheel: of every library of the catalog, generated into ``generated/``.

    `compiler`: ``pytest_cudalink.base.compiler``.
    """
    c_source, catalog = _siblings()
    known = catalog.load_catalog()
    return shared_libraries(compiler, c_source.generate(known, known.libraries, HERE / "generated"))


def shared_libraries(compiler: Any, stubs: list[Any]) -> list[Any]:
    """The build descriptions of generated stubs."""
    return [compiler.SharedLibrary(stub.file, stub.sources, stub.file, flags=FLAGS) for stub in stubs]


def build_stubs(
    names: Sequence[str],
    folder: Path,
    *,
    symbols: Path | None = None,
    prefix: str = "stub",
    headers: int | None = None,
) -> list[Path]:
    """Generate and compile stubs for a project, as ``cudalink stubs build`` does.

    `names`: libraries of the catalog.
    `folder`: for the libraries and their headers.
    `symbols`: the project's own symbol file; see `pytest_cudalink.stubs.catalog.load_catalog`.
    `prefix`: first part of the file names.
    `headers`: CUDA major of the callers' headers; see `pytest_cudalink.stubs.c_source.generate`.
    Returns the libraries.
    Raises CatalogError, GeneratorError, CompilerError with a message for the user.
    """
    from ..base import compiler

    c_source, catalog = _siblings()
    with tempfile.TemporaryDirectory(prefix="cudalink-stubs-") as work:
        stubs = c_source.generate(catalog.load_catalog(symbols), names, Path(work), prefix, headers)
        built = [compiler.build(library, folder, strict=False) for library in shared_libraries(compiler, stubs)]
        for stub in stubs:
            shutil.copy(stub.header, folder)
    return built
