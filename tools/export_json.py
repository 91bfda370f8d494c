"""Write what is known of CUDA releases as JSON with a schema: ``matrices/compat.json`` and ``compat.schema.json``.

    python -m tools.export_json

``nox -s generate`` runs it, and a test compares. Both files are in the wheel, for programs that are not Python. What
the libraries export stays in the files that `exports` reads: they are too large to be here twice.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from pytest_cudalink.base.tables import matrices_dir, read_table
from pytest_cudalink.compat import exports, known_bad
from pytest_cudalink.compat.architectures import ARCHITECTURES, Architecture
from pytest_cudalink.compat.names import FAMILY_SUFFIX_SINCE
from pytest_cudalink.compat.releases import DRIVER_BRANCH_FLOOR, DRIVER_RELEASES, NVVM_IR, PTX_ISA, STAND_INS
from pytest_cudalink.versions import CudaVersion

#: Number of the format; a change that breaks readers raises it.
FORMAT: Final = 1
_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_VERSION: Final = {"type": "string", "pattern": r"^\d+\.\d+$"}
_TEXT: Final = {"type": "string"}
_RANGES: Final = {
    "type": "object",
    "additionalProperties": {"type": "string", "description": "PEP 440 specifier"},
}


def data() -> dict[str, Any]:
    """Return everything as plain data: versions are text, dates are ISO 8601."""
    return {
        "format": FORMAT,
        "releases": {str(release): _release(release) for release in sorted(PTX_ISA)},
        "minor_version_compatibility": {
            str(major): {"driver_branch": branch} for major, branch in sorted(DRIVER_BRANCH_FLOOR.items())
        },
        "architectures": {f"sm_{architecture.number}": _architecture(architecture) for architecture in ARCHITECTURES},
        "family_suffix_since": ".".join(map(str, FAMILY_SUFFIX_SINCE)),
        "libraries": {stem: _library(stem) for stem in exports.libraries()},
        "cudadevrt": {"links": read_table("cudadevrt.toml")["links"]},
        "components": {name: list(wheels) for name, wheels in known_bad.components().items()},
        "known_bad": msgspec.json.decode(msgspec.json.encode([asdict(entry) for entry in known_bad.entries()])),
        "atlas": {"file": "atlas.json", "schema": "atlas.schema.json"},
    }


def _release(release: CudaVersion) -> dict[str, Any]:
    stand_in = STAND_INS.get(release)
    return {
        "driver": DRIVER_RELEASES[release],
        "ptx_isa": _number(PTX_ISA[release]),
        "nvvm_ir": _number(NVVM_IR[release]) if release in NVVM_IR else None,
        "stand_in": str(stand_in) if stand_in else None,
    }


def _number(pair: Iterable[int]) -> str:
    return ".".join(map(str, pair))


def _architecture(architecture: Architecture) -> dict[str, Any]:
    return {
        "since": str(architecture.since),
        "dropped": str(architecture.dropped) if architecture.dropped else None,
        "suffixes": list(architecture.suffixes),
    }


def _library(stem: str) -> dict[str, Any]:
    distributions = exports.distributions(stem)
    majors = {
        str(major): {
            "soname": soname,
            "distribution": distributions.get(major),
            "wheels": {
                str(release): list(exports.wheel_versions(stem, release)) for release in exports.releases(stem, major)
            },
        }
        for major, soname in exports.sonames(stem).items()
    }
    file = f"pytest_cudalink/data/exports/{stem}.json" if distributions else None
    return {"majors": majors, "exports": file}


def schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of the data."""
    optional_version = {**_VERSION, "type": ["string", "null"]}
    optional_text = {"type": ["string", "null"]}
    texts = {"type": "array", "items": _TEXT}
    release = {
        "driver": {**_TEXT, "description": "driver release that the CUDA release first came with"},
        "ptx_isa": {**_VERSION, "description": "PTX ISA that it writes and, at most, reads"},
        "nvvm_ir": {**optional_version, "description": "NVVM IR of its LTO-IR; null without wheels"},
        "stand_in": {**optional_version, "description": "release whose nvJitLink stands in, where it has no wheels"},
    }
    architecture = {
        "since": {**_VERSION, "description": "first release that compiles for it; 12.0 stands for anything older"},
        "dropped": {**optional_version, "description": "first release that no longer does"},
        "suffixes": {"type": "array", "items": {"enum": ["a", "f"]}},
    }
    major = {
        "soname": _TEXT,
        "distribution": {**optional_text, "description": "package on PyPI; null for the driver's library"},
        "wheels": {
            "description": "versions of the wheels of each release, oldest first",
            **_map(_VERSION["pattern"], texts),
        },
    }
    library = {
        "majors": _map(r"^\d+$", _record(major)),
        "exports": {**optional_text, "description": "file of the wheel of pytest-cudalink with the exported symbols"},
    }
    codes = {"type": "integer", "description": "code of nvJitLink for libcudadevrt.a of the release; 0: it links"}
    entry = {
        **dict.fromkeys(("id", "title", "happens", "advice", "since", "mended", "test"), _TEXT),
        "versions": {**_RANGES, "description": "range of each distribution or component; all must be there"},
        "newer": {"type": "object", "additionalProperties": _TEXT},
        "unless": {**_RANGES, "description": "not met where one of these is there"},
        "arch": {**texts, "description": "GPU architectures; empty: any"},
        "driver": {**_TEXT, "description": "range of driver releases; empty: any"},
        "kinds": {"type": "array", "items": {"enum": ["ptx", "ltoir", "cubin", "archive"]}},
        "threads": {**texts, "description": "OWNER/REPOSITORY#NUMBER on GitHub"},
        "seen": {"enum": ["measured", "reported"]},
        "date": {"type": "string", "format": "date"},
    }
    top = {
        "format": {"const": FORMAT},
        "releases": _map(_VERSION["pattern"], _record(release)),
        "minor_version_compatibility": {
            "description": "oldest driver branch that runs every minor of a CUDA major",
            **_map(r"^\d+$", _record({"driver_branch": {"type": "integer"}})),
        },
        "architectures": _map(r"^sm_\d+$", _record(architecture)),
        "family_suffix_since": {**_VERSION, "description": "first release with targets such as sm_120f"},
        "libraries": _map("^lib", _record(library)),
        "cudadevrt": _record({"links": _map(_VERSION["pattern"], _map(_VERSION["pattern"], codes))}),
        "components": {"type": "object", "additionalProperties": texts},
        "known_bad": {"type": "array", "items": _record(entry)},
        "atlas": {
            "description": "files next to this one: which release links or loads what another one made, as measured",
            **_record({"file": _TEXT, "schema": _TEXT}),
        },
    }
    return {
        "$schema": _DRAFT,
        "$id": f"urn:pytest-cudalink:compat:{FORMAT}",
        "title": "What pytest-cudalink knows of CUDA releases",
        "description": "Versions are MAJOR.MINOR of CUDA releases. Readers ignore keys that they do not know.",
        **_record(top),
    }


def _record(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _map(pattern: Any, values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "patternProperties": {str(pattern): values}, "additionalProperties": False}


def main(folder: Path | None = None) -> None:
    """Write both files. `folder`: default: ``matrices/``."""
    target = folder or matrices_dir()
    for name, content in (("compat.json", data()), ("compat.schema.json", schema())):
        (target / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
