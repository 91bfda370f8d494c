"""The command ``cudalink``: one module of this package for each subcommand, imported only when it runs."""

import argparse
import errno
import io
import os
import sys
from collections.abc import Container, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NoReturn

from ..base.safe_text import BLOCK_LIMIT, block, complain, line

_BROKEN_PIPE: Final = 141  # what a shell gives for SIGPIPE

#: The subcommands by what a user needs, with a line for each, in the order of the help. The module of the same name in
#: this package, with _ for -, has ``DESCRIPTION``, ``configure(parser)`` and ``run(options) -> exit code``. Those with
#: verbs may have ``GUESSED``: a verb that people try and that does not exist, and what to type instead.
GROUPS: Final = {
    "look at this environment": {
        "doctor": "check whether the CUDA parts here fit together, and show repairs",
        "demo": "compile and link the two-module sample, and prove the result",
        "driver": "run a program on an emulated driver, or show the driver here",
    },
    "test a project": {
        "init": "add a matrix to a project",
        "matrix": "check, list and show the cells of a project",
        "report": "merge the records of all cells into one report",
    },
    "other CUDA releases": {
        "toolchain": "fetch and list the libraries of other CUDA releases",
        "can-link": "answer whether one release links what another one made",
    },
    "build and check wheels": {
        "audit": "show the CUDA, GPUs and drivers that a wheel or environment needs",
        "stubs": "build lazy-loading CUDA stubs, and show the libraries they find",
    },
}
#: Help line of every subcommand.
COMMANDS: Final = {name: line for group in GROUPS.values() for name, line in group.items()}

_INTERRUPTED: Final = 130  # what a shell gives for SIGINT


class _Version(argparse.Action):
    """Print the version and what is bundled, and stop; nothing of that is read unless it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from .. import emulator, toolchains
        from ..environment.wheels import own_version

        versions, releases = emulator.supported_versions(), toolchains.releases()
        sys.stdout.write(
            f"pytest-cudalink {own_version() or '(run from a source tree, not installed)'}\n"
            f"emulated drivers: CUDA {versions[0]} to {versions[-1]} ({_native('emulator', 'lib*.so.1')})\n"
            f"link worker: {_native('emulator/worker', 'cudalink-*')}\n"
            f"stubs: {_native('stubs', 'lib*.so')}\n"
            f"toolchains that can be fetched: CUDA {releases[0]} to {releases[-1]}\n"
        )
        parser.exit()


def _native(part: str, pattern: str) -> str:
    """Return the names of a part's native files; they are missing where no wheel was built for the system."""
    files = sorted(path.name for path in (Path(__file__).parents[1] / part / "lib").glob(pattern))
    return ", ".join(files) or "not built for this system"


def module_of(command: str) -> str:
    """Return the name of the module of a subcommand."""
    return f"{__name__}.{command.replace('-', '_')}"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors repeat no argument that a terminal would obey."""

    def error(self, message: str) -> NoReturn:
        """End the process, as any parser."""
        super().error(block(message))


def make_parser(wanted: Container[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of the command; only the subcommands that are wanted are imported and have their options."""
    parser = _Parser(
        prog="cudalink",
        description="Test CUDA JIT-link code against every driver and toolkit pair.",
        epilog=_commands(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="cudalink [-h] [--version] COMMAND ...",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and what is bundled, and exit")
    commands = parser.add_subparsers(prog="cudalink", help=argparse.SUPPRESS)
    for name in COMMANDS:
        if name in wanted:
            module = import_module(module_of(name))
            command = commands.add_parser(name, description=module.DESCRIPTION)
            module.configure(command)
            command.set_defaults(run=module.run)
        else:
            commands.add_parser(name)
    return parser


def _commands() -> str:
    """Return the commands by need, as the help shows them."""
    width = max(map(len, COMMANDS))
    blocks = [
        "\n".join([f"{title}:", *(f"  {name:<{width}}  {line}" for name, line in group.items())])
        for title, group in GROUPS.items()
    ]
    return "\n\n".join([*blocks, "`cudalink COMMAND --help` shows the options of a command."])


def _run(arguments: Sequence[str] | None) -> int:
    """Run one subcommand; return its exit code."""
    _prepare_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "_ARGCOMPLETE" in os.environ:
        from .arguments import complete

        # the line as the shell has it: words before the cursor
        complete(make_parser(os.environ.get("COMP_LINE", "").split()[1:2]))
    parser = make_parser(given[:1])
    if not given:
        parser.print_help()
        return 0
    if given[0] not in COMMANDS and not given[0].startswith("-"):
        from .arguments import hint

        parser.error(f"there is no command {given[0]!r}{hint(given[0], COMMANDS)} `cudalink --help` lists them")
    if len(given) > 1 and given[0] in COMMANDS:
        guessed = getattr(import_module(module_of(given[0])), "GUESSED", {})
        if given[1] in guessed:
            complain(f"cudalink {given[0]}: there is no verb {given[1]!r}; {guessed[given[1]]}")
            return 2
    options = parser.parse_args(given)
    if "run" not in options:  # nothing but --
        parser.print_help()
        return 0
    return _carry_out(given[0], options)


def _carry_out(command: str, options: argparse.Namespace) -> int:
    from .arguments import CommandError, check_verb

    try:
        check_verb(options)
        _warn_of_variables()
        return int(options.run(options))
    except CommandError as error:
        complain(f"cudalink {command}{error.verb and f' {error.verb}'}: {line(error.args[0], BLOCK_LIMIT)}")
        return 2
    except KeyboardInterrupt:
        complain("cudalink: interrupted")
        return _INTERRUPTED


class _WriteError(BaseException):
    """No reader takes the output; the cause is an `OSError`.

    It is not one itself, because a command would take that for an error of one of its files.
    """


class _Stream(io.TextIOWrapper):
    """Stdout or stderr, whose errors no command handles."""

    def write(self, text: str, /) -> int:
        """Write as every text stream."""
        try:
            return super().write(text)
        except OSError as error:
            raise _WriteError from error


def _prepare_streams() -> None:
    """Escape characters that the encoding of a stream lacks, and write each line at once.

    A path in the output cannot raise then, and the log of a CI job has both streams in the order in which they were
    written.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:
            stream.flush()
            binary = open(stream.fileno(), "wb", closefd=False)  # noqa: SIM115
            setattr(sys, name, _Stream(binary, stream.encoding, "backslashreplace", line_buffering=True))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace", line_buffering=True)


def _warn_of_variables() -> None:
    """Name the variables that look like ours and that no part reads."""
    given = [name for name in os.environ if name.startswith("CUDALINK_")]
    if given:
        from ..compat.settings_table import unread_variables

        for sentence in unread_variables(given):
            complain(f"cudalink: {sentence}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; return its exit code."""
    try:
        try:
            return _run(arguments)
        finally:
            sys.stdout.flush()  # a write error is reported here, not by the interpreter at its end
    except (OSError, _WriteError) as caught:
        error = caught if isinstance(caught, OSError) else caught.__cause__
        if not isinstance(error, OSError) or error.errno not in (errno.EPIPE, errno.ENOSPC, errno.EIO):
            raise
        # the rest of the output has nowhere to go either
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            os.dup2(nowhere, sys.stderr.fileno())
            return _BROKEN_PIPE
        complain(f"cudalink: cannot write: {error}")
        return 1
