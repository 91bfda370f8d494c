"""What `cudalink` says of itself, and of words that it does not know."""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cudalink import cli
from pytest_cudalink.cli import GROUPS, main, make_parser

_CELLS = """
[cells.one]
ctk = "13.0"
tags = ["ctk"]

[cells.two]
ctk = "12.9"
driver = "13.0"
"""

USAGE = """\
doctor [-h] [-v] [--json] [--ctk-version SPECIFIER]
demo [-h] [--arch ARCH] [--backend {driver,nvjitlink}]
driver [-h] VERB ...
driver run [-h] --version VERSION [--device DEVICE[:NUMBER][,memory=SIZE]] [--faults FAULTS] [--checks MODE]
    [--toolchains {auto,cached,never}] [--events FILE] [--release RELEASE] ...
driver record [-h] [--driver FILE] [-o FILE] [--against FILE] [--answers FILE] [--seconds N]
driver info [-h] [--json]
init [-h] [--runner {nox,tox}] [--ci {github,none}] [--dry-run] [--force]
matrix [-h] VERB ...
matrix check [-h] [--schema] [--file FILE]
matrix list [-h] [--records PATH] [--shard NUMBER/COUNT] [--tags TAG,…] [--json] [--file FILE]
matrix show [-h] [--json] [--file FILE] CELL
matrix github [-h] [--records PATH] [--shard NUMBER/COUNT] [--tags TAG,…] [--gpu-runner LABEL,…] [--jobs NUMBER]
    [--file FILE]
report [-h] [--html FILE] [--markdown FILE] [--save FILE] [--against OLD] [--open] [--cells FILE] [--tags TAG,…]
    [--allow-missing CELL,…] [--fail-on WORD,…] [-q] [DIR ...]
toolchain [-h] VERB ...
toolchain add [-h] [--installer {uv,pip}] [--layout {libs,ctk}] VERSION [VERSION ...]
toolchain list [-h] [--json] [--all]
toolchain remove [-h] VERSION [VERSION ...]
toolchain path [-h] [--library NAME] [--layout {libs,ctk}] VERSION
can-link [-h] [--arch ARCH] [--json] [PRODUCER] [CONSUMER] [KIND]
audit [-h] [--require MAJORS] [--symbols] [--format {text,json,github}] [--environment [PREFIX|PYTHON]]
    [--device-code] [--gpu NAME] [--driver RELEASE] [--require-archs ARCHS] [--assemble] [--toolchain RELEASE]
    [WHEEL|SO|DIR ...]
stubs [-h] [--cmake-dir] ACTION ...
stubs build [-h] [--libs LIBS] [--symbols FILE] [--prefix NAME] [--headers {11,12,13}] -o DIR
stubs generate [-h] [--libs LIBS] [--symbols FILE] [--prefix NAME] [--headers {11,12,13}] -o DIR
stubs list [-h] [--libs LIBS] [--symbols FILE]
stubs describe [-h] [stubs ...]
"""


def _said(arguments: list[str], capsys) -> tuple[int, str]:
    """Return the exit code and the last line of stderr."""
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    return code, capsys.readouterr().err.strip().rpartition("\n")[2]


def test_help_alone(capsys, monkeypatch) -> None:
    """`cudalink` alone prints the help, with every command on one line of at most 80 columns, by need."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main([]) == 0
    alone = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--help"])
    assert capsys.readouterr().out == alone
    assert "positional" not in alone
    lines = alone.splitlines()
    assert max(map(len, lines)) <= 80
    for title, group in GROUPS.items():
        below = lines[lines.index(f"{title}:") + 1 :][: len(group)]
        assert [" ".join(line.split()) for line in below] == [f"{name} {text}" for name, text in group.items()]


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Each parser below one; every option of theirs has a help, and every verb."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below_it = dict.fromkeys(action.choices.values())  # one may have two names
            assert parser.prog == "cudalink" or len(action._choices_actions) == len(below_it)
            for below in below_it:
                assert below.description or parser.prog != "cudalink"
                yield below
                yield from _parsers(below)
        else:
            assert action.help, f"{parser.prog}: {action}"


def test_what_each_command_takes(monkeypatch) -> None:
    """Its options, their values, and what may be left out."""
    monkeypatch.setenv("COLUMNS", "1000")
    usages = [parser.format_usage().removeprefix("usage: cudalink ") for parser in _parsers(make_parser())]
    assert "".join(usages) == USAGE.replace("\n    ", " ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["matrix"], "VERB is missing; expected check, list, show, github"),
        (["driver"], "VERB is missing; expected run, record, info"),
        (["toolchain"], "VERB is missing; expected add, fetch, list, remove, path"),
        (["stubs"], "ACTION is missing; expected build, generate, list, describe"),
        (["toolchain", "download", "12.9"], "to fetch CUDA 13.0, type: cudalink toolchain add 13.0"),
        (["matrix", "run"], "`nox -s NAME` or `tox -e NAME` runs one"),
    ],
)
def test_a_verb_that_is_missing_or_often_guessed(words: list[str], expected: str, capsys) -> None:
    """One sentence has the verbs, or says what to type instead."""
    code, said = _said(words, capsys)
    assert (code, said.count("\n")) == (2, 0)
    if len(words) == 1:
        assert said == f"cudalink {words[0]}: {expected}"
    else:
        assert f"no verb '{words[1]}'; " in said
        assert expected in said


def test_a_second_word_for_a_verb(capsys) -> None:
    """``toolchain fetch`` does what ``toolchain add`` does."""
    code, said = _said(["toolchain", "add", "x"], capsys)
    assert (code, "'x' is not a CUDA version" in said) == (1, True)
    assert _said(["toolchain", "fetch", "x"], capsys) == (code, said)


def test_help_imports_no_command() -> None:
    """The help reads no module of a command, so that it is there at once."""
    code = (
        "import sys; from pytest_cudalink.cli import COMMANDS, main, module_of; main([]);"
        "sys.exit(sum(module_of(name) in sys.modules for name in COMMANDS))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_version_says_what_is_bundled(capsys, monkeypatch, tmp_path: Path) -> None:
    """The first line is the version; then the drivers, libraries and releases that come with it."""
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "a" / "b.py"))
    with pytest.raises(SystemExit):
        main(["--version"])
    assert "\nstubs: not built for this system\n" in capsys.readouterr().out
    monkeypatch.undo()
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    first, *rest = capsys.readouterr().out.splitlines()
    assert not stop.value.code
    assert first.startswith("pytest-cudalink 0.")
    assert rest == [
        "emulated drivers: CUDA 12.0 to 13.5 (libcuda.so.1, libnvidia-ml.so.1)",
        "link worker: cudalink-link-worker",
        "stubs: libstub_cuda.so, libstub_cudart.so, libstub_nvrtc.so",
        "toolchains that can be fetched: CUDA 12.0 to 13.5",
    ]


RUN = ("driver", "run", "--version")


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["reporrt"], 2, "no command 'reporrt'; did you mean report? `cudalink --help` lists them"),
        (["xyzzy"], 2, "no command 'xyzzy'; known: doctor, demo, driver, init, matrix, report,"),
        (["matrix", "list", "--tags", "ctkk"], 2, "no cell of {file} has the tag 'ctkk'; did you mean ctk?"),
        *(
            (["matrix", verb, "--tags", tags], 2, "no cell of {file} has the tag 'nope'; known: cross-major, ctk, skew")
            for verb, tags in (("list", "nope"), ("list", "skew,nope"), ("github", "!nope"))
        ),
        (["matrix", "list", "--tags", "gpu"], 2, "no cell of {file} has the tags 'gpu'; known: cross-major, ctk, skew"),
        (["matrix", "show", "tow"], 2, "no cell 'tow' in {file}; did you mean two?"),
        (["matrix", "show", "nope"], 2, "known: one, two\n"),
        (["toolchain", "add", "12.77"], 1, "no wheels of CUDA 12.77 are known; known: 12.0, 12.1"),
        ([*RUN, "99.0", "--", "true"], 2, "CUDA 99.0 cannot be emulated; supported: 12.0 to 12.9, 13.0 to 13.5"),
        ([*RUN, "13.0", "--", "nope"], 2, "there is no program 'nope' on the PATH; correct its name"),
        (["stubs", "list", "--libs", "cudar"], 2, "no library 'cudar' in the catalog; expected cuda, cudart, nvrtc"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_words(arguments: list[str], code: int, expected: str, capsys, tmp_path: Path, monkeypatch) -> None:
    """A word that is not known is an error with the nearest one, or all of them."""
    file = tmp_path / "cells.toml"
    file.write_text(_CELLS)
    monkeypatch.setenv("CUDALINK_CELLS", str(file))
    ended, said = _said(arguments, capsys)
    assert ended == code
    assert expected.format(file=file) in f"{said}\n"


def test_events_on_stdout(tmp_path: Path) -> None:
    """`--events -` writes the events of the driver to stdout."""
    program = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
    words = ["driver", "run", "--version", "13.0", "--toolchains", "never", "--events", "-", "--"]
    command = [sys.executable, "-m", "pytest_cudalink.cli", *words, sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("{")
    assert list(tmp_path.iterdir()) == []
