"""The command ``cudalink``: one module of this package for each subcommand, imported only when it runs."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from typing import Final

__all__ = ["COMMANDS", "main"]

_BROKEN_PIPE: Final = 141  # what a shell gives for SIGPIPE

#: Help line of every subcommand, in the order of the help. The module of the same name in this package has
#: ``DESCRIPTION``, ``configure(parser)`` and ``run(options) -> exit code``.
COMMANDS: Final = {
    "demo": "compile and link the two-module sample, and prove the result",
    "doctor": "check whether the CUDA components of this environment fit together, and show repairs",
    "driver": "run a program on an emulated driver, or show the driver that is there",
    "init": "add a matrix to a project",
    "matrix": "check, list and show the cells of a project",
    "report": "merge the records of all cells into one report",
    "skew": "measure what links with what, and compare it with the rules",
    "toolchain": "fetch and list the libraries of other CUDA releases",
    "audit": "show what a wheel or an environment needs of CUDA, and which GPUs and drivers take its device code",
    "compat": "look up which CUDA releases export a symbol, and releases that are known to be bad",
    "stubs": "build lazy-loading CUDA stubs, and show what they find",
}

_INTERRUPTED: Final = 130  # what a shell gives for SIGINT


def _run(arguments: Sequence[str] | None) -> int:
    """Run one subcommand; return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    wanted = given[0] if given and given[0] in COMMANDS else None
    parser = argparse.ArgumentParser(
        prog="cudalink", description="Test CUDA JIT-link code against every driver and toolkit pair."
    )
    parser.add_argument("--version", action="version", version=f"pytest-cudalink {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, line in COMMANDS.items():
        if name == wanted:
            module = import_module(f"{__name__}.{name}")
            command = commands.add_parser(name, help=line, description=module.DESCRIPTION)
            module.configure(command)
            command.set_defaults(run=module.run)
        else:
            commands.add_parser(name, help=line)
    options = parser.parse_args(given)
    _write_anything()
    _warn_of_variables()
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        sys.stderr.write("cudalink: interrupted\n")
        return _INTERRUPTED


def _write_anything() -> None:
    """Escape characters that the encoding of a stream lacks, so that a path in the output cannot raise."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _warn_of_variables() -> None:
    """Name the variables that look like ours and that no part reads."""
    given = [name for name in os.environ if name.startswith("CUDALINK_")]
    if given:
        from ..compat.variables import unread_variables

        sys.stderr.writelines(f"cudalink: {sentence}\n" for sentence in unread_variables(given))


def _version() -> str:
    try:
        return metadata.version("pytest-cudalink")
    except metadata.PackageNotFoundError:
        return "(run from a source tree, not installed)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; return its exit code."""
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # a write error is reported here, not by the interpreter at its end
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EIO):
            raise
        # the rest of the output has nowhere to go either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            return _BROKEN_PIPE
        sys.stderr.write(f"cudalink: cannot write: {error}\n")
        return 1
