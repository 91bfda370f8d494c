"""Build the stubs of the wheel (for the build hook) and those of other projects.

Imports the standard library only: the build hook runs before anything is installed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..base import compiler
from . import c_source, catalog

HERE = Path(__file__).parent

#: In addition to the flags of every library of the project: the stubs need as little as possible of their machine.
FLAGS = ("-ldl", "-Wl,-z,relro", "-Wl,-z,noexecstack")


def libraries() -> list[compiler.SharedLibrary]:
    """The stubs of the wheel: of every library of the catalog, generated into ``generated/``."""
    known = catalog.load_catalog()
    return _shared_libraries(c_source.generate(known, known.libraries, HERE / "generated"))


def _shared_libraries(stubs: Iterable[c_source.Stub]) -> list[compiler.SharedLibrary]:
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
    with tempfile.TemporaryDirectory(prefix="cudalink-stubs-") as work:
        stubs = c_source.generate(catalog.load_catalog(symbols), names, Path(work), prefix, headers)
        built = [compiler.build(library, folder, strict=False) for library in _shared_libraries(stubs)]
        for stub in stubs:
            shutil.copy(stub.header, folder)
    return built
