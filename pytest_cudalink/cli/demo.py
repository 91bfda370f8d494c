"""``cudalink demo``."""

from __future__ import annotations

import argparse
import sys
from typing import Final

__all__ = ["DESCRIPTION", "configure", "run"]

DESCRIPTION: Final = (
    "Compile two CUDA C++ units with NVRTC and link them as PTX and as LTO-IR. Without a GPU the proof is in the "
    "images; with one the kernel runs and NumPy checks its results. Exit code 1 on a mismatch."
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--arch", help="architecture, such as sm_90 (default: the device's, else sm_90)")
    parser.add_argument("--backend", choices=("driver", "nvjitlink"), help="force the linker of the PTX link")


def run(options: argparse.Namespace) -> int:
    """Run the sample; exit code 2 for an option that it cannot take."""
    from ..linker import sample

    try:
        return sample.run(options.arch, options.backend)
    except ValueError as error:
        sys.stderr.write(f"cudalink demo: {error}\n")
        return 2
