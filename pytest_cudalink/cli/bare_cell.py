"""``python -m pytest_cudalink.cli.bare_cell``: runs the steps of a bare cell, and judges the libraries that they load.

The runners call it; the keys of the cell come from the environment.
"""

import ast
import os
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Final

from ..guardrails import provenance
from ..loader import loader_log
from ..loader.loads import Opening
from ..matrix import bare
from ..matrix.cells import RunKeys

_VARIABLE: Final = "CUDALINK_PROVENANCE"


def run(keys: RunKeys, environment: MutableMapping[str, str] = os.environ) -> int:
    """Run the steps of a bare cell as `pytest_cudalink.matrix.bare.run` does, with `judge`."""
    return bare.run(keys, environment, judge=judge)


def judge(loads: bare.Loads) -> bare.LoadReport:
    """Return the CUDA libraries that a step has loaded, with what the plugin would say of them in a test."""
    process = provenance.ProcessEnvironment.of(loads.facts["sites"], loads.facts["prefixes"], loads.environment)
    expected = loads.environment.get(_VARIABLE) or "any"
    asked = f"{expected} (from environment {_VARIABLE})"
    loaded: dict[provenance.Library, None] = {}
    told: list[str] = []
    preloaded = loads.environment.get("LD_PRELOAD", "").split()
    listing = loader_log.listing(loads.lists, loads.pid, loads.folder, preloaded)
    openings = _openings(loads.opened)
    for image in listing.images:
        libraries = _libraries(image, openings, process)
        loaded |= dict.fromkeys(libraries)
        copies = [(library, f"by {loads.nodeid}") for library in libraries]
        for number, copy in enumerate(copies):
            told += provenance.faults(copy, copies[:number], expected, asked, process)
    if listing.fault:
        why = "" if expected == "any" else f"\n  --cudalink-provenance is {asked}"
        told.append(f"the CUDA libraries of {loads.nodeid} cannot be listed: {listing.fault}{why}")
    texts = list(dict.fromkeys(told))  # forked children have what their parents have
    problems, notes = ([], texts) if expected == "any" else (texts, [])
    return bare.LoadReport([*map(_record, loaded)], problems, notes)


def _openings(file: Path) -> list[Opening]:
    """Return what `matrix.importing` wrote; nothing where an import opened nothing."""
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    return [Opening(*ast.literal_eval(line)) for line in lines]


def _libraries(
    image: loader_log.LoadedImage, openings: Sequence[Opening], process: provenance.ProcessEnvironment
) -> list[provenance.Library]:
    """Return the CUDA libraries of a program."""
    # what Python code opened comes first: the loader knows only that ctypes did
    every = [*openings, *(opening._replace(through=provenance.shown(opening.through)) for opening in image.openings)]
    described = (provenance.describe(loaded, image.objects, every, process) for loaded in image.objects)
    return [library for library in described if library is not None]


def _record(library: provenance.Library) -> dict[str, str]:
    """Return what a record has of a library."""
    names = ("name", "soname", "path", "real_path", "place", "owner", "version", "witness", "for_whom")
    return {name: getattr(library, name) for name in names}


if __name__ == "__main__":
    sys.exit(run(RunKeys.read(os.environ)))
