"""Write ``names.py``, the constants that several parts share, from the data files; run by ``nox -s generate``.

    python -m tools.make_names

Reads ``data/*.toml``, ``data/emulator/devices.toml`` and ``matrices/dispatch.toml``. Standard library only, so
that it needs no installed package.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["NAMES", "main", "source"]

_ROOT = Path(__file__).parent.parent
_PACKAGE = _ROOT / "pytest_cudalink"
_DATA = _PACKAGE / "data"
NAMES = _PACKAGE / "compat" / "names.py"
_WIDTH = 120  # of a line, as ruff's formatter has it
#: Words that also make a type, and its name.
_LITERALS = {"GUARD_RAIL_MODES": "GuardRailMode"}
#: Types of the tables; every other tuple is one of strings.
_TYPES = {
    "ARCHITECTURES": "tuple[tuple[int, tuple[int, int], tuple[int, int] | None, str], ...]",
    "RELEASES": (
        "tuple[tuple[tuple[int, int], str, tuple[int, int], tuple[int, int] | None, tuple[int, int] | None], ...]"
    ),
    "FAMILY_SUFFIX_SINCE": "tuple[int, int]",
}
_HEAD = '''\
"""Words, limits and tables that several parts share. Written by ``tools/make_names.py`` from data files: do not edit.

Imports nothing else of the project, because the start of every pytest reads it.
"""

from typing import Literal
'''


def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _literal(value: object) -> str:
    """A value as Python code on one line."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, int) and value > 9999:
        return f"{value:_}"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def _assignment(name: str, value: object) -> str:
    """One constant, laid out as ruff's formatter does it."""
    if isinstance(value, dict):
        pairs = [f"{_literal(key)}: {_literal(value)}" for key, value in value.items()]
        line = f"{name} = {{{', '.join(pairs)}}}"
        return line if len(line) <= _WIDTH else "\n".join([f"{name} = {{", *(f"    {pair}," for pair in pairs), "}"])
    if not isinstance(value, list | tuple):
        return f"{name} = {_literal(value)}"
    literal = f"\n{_LITERALS[name]} = Literal[{', '.join(map(_literal, value))}]" if name in _LITERALS else ""
    name = f"{name}: {_TYPES.get(name, 'tuple[str, ...]')}"
    line = f"{name} = {_literal(value)}"
    if len(line) > _WIDTH:
        line = "\n".join([f"{name} = (", *(f"    {_literal(member)}," for member in value), ")"])
    return line + literal


def _version(text: str | None) -> tuple[int, ...] | None:
    """``(13, 0)`` for ``"13.0"``."""
    return None if text is None else tuple(map(int, text.split(".")))


def _constants() -> Iterator[tuple[str, str, object]]:
    """Every constant: its comment, its name, its value."""
    words = _read(_DATA / "words.toml")
    devices = _read(_DATA / "emulator" / "devices.toml")
    architectures = _read(_DATA / "architectures.toml")
    releases = _read(_DATA / "releases.toml")
    limits = _read(_DATA / "limits.toml")["limits"]
    for name, value in words["words"].items():
        yield "", name, value
    yield "Tables of matrices/dispatch.toml.", "policies", tuple(_read(_ROOT / "matrices" / "dispatch.toml"))
    yield "", "default-policy", words["default-policy"]
    emulated = {name: f"sm_{device['arch']}" for name, device in devices["devices"].items()}
    yield "Devices that an emulated driver can have, and the architecture of each.", "emulated-devices", emulated
    yield "", "emulated-architectures", tuple(dict.fromkeys(emulated.values()))
    yield "", "default-architecture", emulated[devices["default"]]
    for name, value in limits.items():
        yield "", f"limit-{name}", value
    rows = [
        (int(number), _version(entry["since"]), _version(entry.get("dropped")), entry.get("suffixes", ""))
        for number, entry in architectures["architectures"].items()
    ]
    yield "Number, first release, first release without it, suffixes.", "architectures", tuple(rows)
    yield "", "family-suffix-since", _version(architectures["family-suffix-since"])
    known = [
        (_version(name), entry["driver"], entry["ptx-isa"], entry.get("nvvm-ir"), _version(entry.get("stand-in")))
        for name, entry in releases["releases"].items()
    ]
    yield "Release, driver release, PTX ISA, NVVM IR, the release that stands in for it.", "releases", tuple(known)
    floors = {int(major): branch for major, branch in releases["driver-branch-floor"].items()}
    yield "", "driver-branch-floor", floors


def source() -> str:
    """The text of ``names.py``."""
    constants = [
        (f"#: {comment}\n" if comment else "", name.replace("-", "_").upper(), value)
        for comment, name, value in _constants()
    ]
    body = [f"{comment}{_assignment(name, value)}" for comment, name, value in constants]
    return "\n".join([_HEAD, *body, ""])


def main() -> int:
    """Write the file."""
    NAMES.write_text(source(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
