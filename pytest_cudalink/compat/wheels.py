"""Installed wheels by the names of their packages, read from their metadata; nothing is imported or loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib import metadata

__all__ = ["NVJITLINK", "TILEIRAS", "all_versions", "installed_wheel", "installed_wheels"]

#: Packages that bring nvJitLink: of CUDA 13, and of CUDA 12. Both can be installed at once.
NVJITLINK: Final = ("nvidia-nvjitlink", "nvidia-nvjitlink-cu12")
#: The requirement that brings tileiras with ptxas and libNVVM, without a version.
TILEIRAS: Final = "cuda-toolkit[nvcc,nvvm,tileiras]"


def installed_wheels(*names: str) -> Iterator[metadata.Distribution]:
    """Yield the packages of `names` that are installed, in that order."""
    from importlib import metadata

    for name in names:
        with suppress(metadata.PackageNotFoundError):
            yield metadata.distribution(name)


def installed_wheel(*names: str) -> metadata.Distribution | None:
    """Return the first package of `names` that is installed; None if none of them is."""
    return next(installed_wheels(*names), None)


def all_versions() -> dict[str, str]:
    """Return the version of every installed package by its name; the first on ``sys.path`` counts.

    One whose metadata is not UTF-8 is left out: `pytest_cudalink.audit` names the file.
    """
    from importlib import metadata

    found: dict[str, str] = {}
    for one in metadata.distributions():
        with suppress(UnicodeDecodeError):
            if name := one.metadata["Name"]:  # None where the metadata is missing
                found.setdefault(name, one.version)
    return found
