"""Load every library of an installed wheel; its environment's Python runs this file, and nothing of this project.

    python loads.py WHEEL

Prints JSON: the error by file, and by imported module; empty for none. Each has a process of its own.
"""

import ctypes
import importlib
import importlib.metadata
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

from operations import outcome  # beside this script


def needed(path: str) -> list[str]:
    """The libraries that a file is linked with, as readelf reads them."""
    done = subprocess.run(["readelf", "-dW", path], capture_output=True, text=True, errors="replace", check=True)
    return re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout)


def load(path: str, places: dict[str, str], visited: set[str]) -> None:
    """Load what a library needs of this environment, wherever it lies, then the library, with every symbol bound."""
    if path in visited:
        return
    visited.add(path)
    for name in needed(path):
        if name in places:
            load(places[name], places, visited)
    ctypes.CDLL(path, os.RTLD_NOW | os.RTLD_GLOBAL)


def imports(modules: list[str]) -> None:
    """Import what can be imported: packages load libraries by themselves."""
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception:  # noqa: BLE001 (whatever a module raises)
            continue


def main(wheel: str) -> None:
    distribution = importlib.metadata.distribution(wheel.split("-", maxsplit=1)[0])
    listed = [file for file in distribution.files or () if ".." not in file.parts]
    modules = sorted({file.parts[0] for file in listed if len(file.parts) == 2 and file.name == "__init__.py"})
    site = Path(str(distribution.locate_file("")))
    places = {path.name: str(path) for path in sorted(site.rglob("*.so*")) if path.is_file()}
    places = {name: path for name, path in places.items() if not name.startswith(("libcuda.so", "libnvidia-ml.so"))}
    own = f"cpython-{sys.version_info[0]}{sys.version_info[1]}-"
    files: dict[str, str] = {}
    for file in listed:
        path = Path(str(distribution.locate_file(file)))
        # extensions of other versions of Python are not for this one
        if ".so" not in file.name or ("cpython-" in file.name and own not in file.name) or not path.is_file():
            continue
        with path.open("rb") as opened:
            head = opened.read(20)
        # libraries of x86-64
        if head[:4] != b"\x7fELF" or struct.unpack_from("<H", head, 18) != (62,):
            continue
        alone = outcome(lambda path=path: load(str(path), places, set()))  # type: ignore[misc]
        # some are loaded by their packages only, which open others before them
        files[str(file)] = alone and outcome(
            lambda path=path: (imports(modules), load(str(path), places, set()))  # type: ignore[misc]
        )
    imported = {module: outcome(lambda module=module: importlib.import_module(module)) for module in modules}  # type: ignore[misc]
    print(json.dumps({"files": files, "imports": imported}))


if __name__ == "__main__":
    main(sys.argv[1])
