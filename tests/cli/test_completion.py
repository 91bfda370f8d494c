"""Completion, as the shells ask for it."""

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink.cli import COMMANDS, main

#: A folder with a `cudalink` that runs this Python, first on the PATH.
_COMMAND = f"""#!/bin/sh
exec {sys.executable} -m pytest_cudalink.cli "$@"
"""
#: What bash does at TAB: the function that is registered for the command, with the words of the line.
_ASK = """
eval "$(register-python-argcomplete cudalink)" || exit 3
name=$(complete -p cudalink | sed 's/.*-F \\([^ ]*\\).*/\\1/')
compopt() { :; }
for COMP_LINE in "$@"; do
    COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMP_KEY=9 COMPREPLY=()
    read -r -a COMP_WORDS <<< "$COMP_LINE"
    [ "${COMP_LINE: -1}" = " " ] && COMP_WORDS+=("")
    COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
    "$name" cudalink "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
    echo "$COMP_LINE>" $(compgen -W "${COMPREPLY[*]}" -- "")
done
"""
_CELLS = """
[cells.first]
ctk = "13.0"
tags = ["nightly"]

[cells.second]
ctk = "12.9"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch) -> Path:
    """A project with two cells, and the command on the PATH."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "cudalink"
    command.write_text(_COMMAND)
    command.chmod(0o755)
    (tmp_path / "matrices").mkdir()
    (tmp_path / "matrices" / "cells.toml").write_text(_CELLS)
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("PATH", f"{command.parent}:{Path(sys.executable).parent}", prepend=":")
    monkeypatch.setenv("CUDALINK_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDALINK_CELLS", raising=False)
    return tmp_path


def _completed(folder: Path, *lines: str) -> dict[str, set[str]]:
    """Return the words that bash offers at the end of each line."""
    done = subprocess.run(
        ["bash", "--norc", "-c", _ASK, "ask", *lines], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers = (line.split(">", 1) for line in done.stdout.splitlines())
    return {line: {*words.split()} for line, words in answers}


@pytest.mark.slow
def test_bash(place: Path) -> None:
    """Commands, verbs, options, and values that depend on the project and the cache."""
    expected = {
        "cudalink ": {*COMMANDS, "--help", "--version"},
        "cudalink ma": {"matrix"},
        "cudalink matrix ": {"check", "github", "list", "show", "--help"},
        "cudalink matrix list --ta": {"--tags"},
        "cudalink matrix list --tags n": {"nightly"},
        "cudalink matrix show f": {"first"},
        "cudalink toolchain add 13.": {f"13.{minor}" for minor in range(6)},
        "cudalink driver run --version 12.": {f"12.{minor}" for minor in range(10)},
        "cudalink can-link 12.4 nvjitlink-12.": {f"nvjitlink-12.{minor}" for minor in (*range(7), 8, 9)},
        "cudalink can-link 12.4 this fatbin-": {"fatbin-ptx", "fatbin-cubin", "fatbin-ltoir"},
        "cudalink matrix --nothing": set(),
    }
    assert _completed(place, *expected) == expected


def test_nothing_is_offered_for_broken_cells(place: Path) -> None:
    """A file of cells with errors is no reason for a traceback in the shell; of a sound one their names are offered."""
    line, options = "cudalink matrix show ", {"--help", "--json", "--file"}
    assert _completed(place, line) == {line: {"first", "second", *options}}
    (place / "matrices" / "cells.toml").write_text("[[[")
    assert _completed(place, line) == {line: options}


def test_without_argcomplete(monkeypatch) -> None:
    """A shell that asks gets no words and no error."""
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    monkeypatch.setenv("_ARGCOMPLETE", "1")
    assert main([]) == 0
