"""CUDA runtimes that look installed on the system, for the tests of where libraries come from."""

import shutil
from pathlib import Path

from pytest_cudalink import toolchains


def make_system_runtime(folder: Path, release: str) -> None:
    """Make a toolkit ``RELEASE`` below a folder: a copy of libcudart, and the header that says the release."""
    chain = toolchains.add(release)
    # copies: to the loader, two links of one file are one library
    for path in (Path(chain.library("cudart")), chain.path / "include" / "cuda.h"):
        target = folder / release / path.parent.name
        target.mkdir(parents=True)
        shutil.copy(path, target)
