"""What this installation brings along, for ``cudalink --version``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

__all__ = ["lines"]

_PACKAGE = Path(__file__).parents[1]


def lines() -> Iterator[str]:
    """Yield a line for each part: what it is for, and the files of a native one."""
    from .. import emulator, toolchains

    versions, releases = emulator.supported_versions(), toolchains.releases()
    yield f"emulated drivers: CUDA {versions[0]} to {versions[-1]} ({_files('emulator', 'lib*.so.1')})"
    yield f"link worker: {_files('worker', 'cudalink-*')}"
    yield f"stubs: {_files('stubs', 'lib*.so')}"
    yield f"toolchains that can be fetched: CUDA {releases[0]} to {releases[-1]}"


def _files(part: str, pattern: str) -> str:
    """Return the names of a part's native files; they are missing where no wheel was built for the system."""
    found = sorted(path.name for path in (_PACKAGE / part / "lib").glob(pattern))
    return ", ".join(found) or "not built for this system"
