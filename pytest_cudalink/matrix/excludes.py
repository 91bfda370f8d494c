"""The reasons for leaving a combination out of a matrix; each is checked, so that none outlives its truth."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from .. import toolchains
from ..compat.architectures import known_architectures
from .cells import Cell
from .keys import version_of


def _no_wheels(cell: Cell) -> bool:
    versions = (version_of(value) for value in (cell.ctk, cell.values.nvjitlink))
    return any(version is not None and version not in toolchains.releases() for version in versions)


def _no_skew(cell: Cell) -> bool:
    toolkit = version_of(cell.ctk)
    others = [version for value in (cell.driver, cell.values.nvjitlink) if (version := version_of(value))]
    return bool(others) and all(other == toolkit for other in others)


def _driver_too_old(cell: Cell) -> bool:
    toolkit, driver = version_of(cell.ctk), version_of(cell.driver)
    return toolkit is not None and driver is not None and driver.major < toolkit.major


def _nvjitlink_unusable(cell: Cell) -> bool:
    version = version_of(cell.values.nvjitlink)
    return version is not None and version < (12, 3)


def _other_soname(cell: Cell) -> bool:
    toolkit, nvjitlink = version_of(cell.ctk), version_of(cell.values.nvjitlink)
    return toolkit is not None and nvjitlink is not None and toolkit.major != nvjitlink.major


def _bindings_major(cell: Cell) -> bool:
    toolkit = version_of(cell.ctk)
    major = re.match(r"[=~]*(\d+)\.", cell.versions.get("cuda-bindings", ""))
    return toolkit is not None and major is not None and int(major[1]) != toolkit.major


def _arch_unsupported(cell: Cell) -> bool:
    arch, values = cell.values.arch, (cell.ctk, cell.driver, cell.values.nvjitlink)
    versions = [version for value in values if (version := version_of(value))]
    return bool(arch) and any(arch not in known_architectures(one) for one in versions)


def _python_unsupported(cell: Cell) -> bool:
    # no toolkit wheel depends on Python; cuda-bindings does, and supports 3.9 and newer
    return cell.python is not None and int(cell.python.rstrip("t").removeprefix("3.")) < 11


#: Reasons for leaving out a combination: the condition in words, and its check.
REASONS: Final[dict[str, tuple[str, Callable[[Cell], bool]]]] = {
    "no-skew": ("the driver and nvJitLink are of the toolkit's own release", _no_skew),
    "no-wheels": ("NVIDIA published no wheels of that release", _no_wheels),
    "driver-too-old": ("the driver's major version is older than the toolkit's", _driver_too_old),
    "nvjitlink-unusable": ("that nvJitLink is older than 12.3", _nvjitlink_unusable),
    "other-soname": (
        "that nvJitLink is of another major version, and what needs this toolkit opens its own",
        _other_soname,
    ),
    "bindings-major": ("cuda-bindings is of another major version than the toolkit", _bindings_major),
    "arch-unsupported": ("one of the releases does not know the architecture", _arch_unsupported),
    "python-unsupported": ("the plugin needs Python 3.11 or newer", _python_unsupported),
}
#: Reasons that need a companion key: its name, and the condition in words.
REASONS_WITH: Final = {
    "same-as": ("cell", "another cell has the same values"),
    "known-issue": ("issue", "an open issue, until a date"),
}
