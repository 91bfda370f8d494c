"""``cudalink completion``: complete the command in a shell, with argcomplete.

argcomplete asks the program at each TAB. A script that is made once, as shtab makes one, could not know the cells of a
project, its tags and the toolchains in the cache, which are what is worth completing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

DESCRIPTION: Final = (
    "Print the code with which a shell completes the commands, options, cells, tags and releases. For bash, add to "
    '~/.bashrc: eval "$(cudalink completion bash)"; for zsh the same with zsh, in ~/.zshrc after compinit; for fish: '
    "cudalink completion fish > ~/.config/fish/completions/cudalink.fish"
)
_MISSING: Final = "cudalink completion: argcomplete is not installed; expected it next to pytest-cudalink; run: {}\n"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the argument."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="choose the shell that reads the output")


def run(options: argparse.Namespace) -> int:
    """Print the code of a shell; return exit code 2 without argcomplete."""
    try:
        from argcomplete.shell_integration import shellcode
    except ImportError:
        from ..installers import install_command

        sys.stderr.write(_MISSING.format(install_command("'pytest-cudalink[completion]'")))
        return 2
    # the code for bash is that for zsh, too
    sys.stdout.write(shellcode(["cudalink"], shell="bash" if options.shell == "zsh" else options.shell) + "\n")
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and end the process, where argcomplete is installed."""
    try:
        import argcomplete
    except ImportError:
        return
    argcomplete.autocomplete(parser, always_complete_options="long")


def offer(action: argparse.Action, values: Callable[[argparse.Namespace], Iterable[object]]) -> None:
    """Complete an option or argument with values, which may depend on the options before it.

    Nothing is offered where they cannot be found out: a shell has no place for an error.
    """

    def completer(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        try:
            return list(map(str, values(parsed_args)))
        except Exception:  # noqa: BLE001 (a file with errors, another user's cache, …: all of them leave no words)
            return []

    action.completer = completer  # type: ignore[attr-defined]
