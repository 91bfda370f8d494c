"""The command ``cudalink``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import metadata

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    return int(options.run(options))


def _parser() -> argparse.ArgumentParser:
    description = "Test CUDA JIT-link code against every driver and toolkit pair."
    parser = argparse.ArgumentParser(prog="cudalink", description=description)
    parser.add_argument("--version", action="version", version=f"pytest-cudalink {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    demo = commands.add_parser(
        "demo",
        help="compile and link the two-module sample, and prove the result",
        description="Compile two CUDA C++ units with NVRTC and link them as PTX and as LTO-IR. Without a GPU the "
        "proof is in the images; with one the kernel runs and NumPy checks its results. Exit code 1 on a mismatch.",
    )
    demo.add_argument("--arch", help="architecture, such as sm_90 (default: the device's, else sm_90)")
    demo.add_argument("--backend", choices=("driver", "nvjitlink"), help="force the linker of the PTX link")
    demo.set_defaults(run=_demo)
    return parser


def _version() -> str:
    try:
        return metadata.version("pytest-cudalink")
    except metadata.PackageNotFoundError:
        return "(run from a source tree, not installed)"


def _demo(options: argparse.Namespace) -> int:
    from . import demo

    try:
        return demo.run(options.arch, options.backend)
    except ValueError as error:
        sys.stderr.write(f"cudalink demo: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
