"""Sessions of the pages: each command after a prompt, with what it prints under it."""

import doctest
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_cudalink import emulator, toolchains
from pytest_cudalink.versions import CudaVersion

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
#: The toolkit whose output the pages show.
WRITTEN_FOR = CudaVersion(13, 0)
#: The name of an environment before a prompt.
ENVIRONMENT = r"^\((\S+)\) \$ "
#: Where a session of nox has made the environments of tools/sessions.toml that pages name.
ENVIRONMENTS = os.environ.get("CUDALINK_PAGE_ENVIRONMENTS")


def blocks(text: str) -> str:
    """The ``console`` blocks of a page or of one of its sections, as one session."""
    return "".join(re.findall(r"^```console\n(\$ .*?)^```", text, re.MULTILINE | re.DOTALL))


def steps(session: str) -> list[tuple[str, str]]:
    """Each command of a session, with what it prints."""
    parts = re.split(r"^\$ (.*)\n", session, flags=re.MULTILINE)
    assert not parts[0]
    return list(zip(parts[1::2], parts[2::2], strict=True))


def run(command: str, folder: Path) -> str:
    """Run a command as a shell does, with this environment's programs; both of its streams."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    added = ("-p", "cudalink", "-p", "no:cacheprovider")
    for name, text in {
        "cudalink": f'#!/bin/sh\nexec "{sys.executable}" -m pytest_cudalink.cli "$@"',
        "pytest": f"#!{sys.executable}\nimport sys, pytest\nsys.exit(pytest.main([*{added}, *sys.argv[1:]]))",
        "python": f'#!/bin/sh\nexec "{sys.executable}" "$@"',
        "cc": f'#!/bin/sh\nexec "{COMPILER}" "$@"',
    }.items():
        (bin_folder / name).write_text(f"{text}\n", encoding="utf-8")
        (bin_folder / name).chmod(0o755)
    left_out = re.compile("CUDALINK_(?!CACHE$)|PYTEST_")
    own = {name: value for name, value in os.environ.items() if not left_out.match(name)}
    printed = shell(command, folder, {**own, "PATH": f"{bin_folder}:{os.environ['PATH']}"})
    return printed.replace(f" {' '.join(added)}", "")  # in commands that repeat a finding


def shell(command: str, folder: Path, env: Mapping[str, str]) -> str:
    """Run a command as a shell does, in an environment; both of its streams, in the order of a terminal."""
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env={**env, "PYTHONUNBUFFERED": "1"},  # else what goes to stderr overtakes what goes to stdout
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,  # a minute under valgrind is several where other processes run
        check=False,
    )
    return done.stdout


def matches(shown: str, printed: str) -> bool:
    """Whether a command printed what a page shows. ``...`` stands for what differs between runs.

    pytest's rules are as long as the text in them leaves room for: a run of 12 s has one sign fewer than one of 2 s.
    """
    shown, printed = (re.sub(r"={4,}|_{4,}", lambda rule: 4 * rule[0][0], text) for text in (shown, printed))
    return doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS)


def as_written(printed: str, toolkit: CudaVersion) -> str:
    """What a command printed, with the versions of `WRITTEN_FOR` in the places of those of a toolkit."""
    drivers = re.escape(emulator.release_of(toolkit)), emulator.release_of(WRITTEN_FOR)
    versions = rf"(?<![\d.]){re.escape(str(toolkit))}\b", str(WRITTEN_FOR)
    return re.sub(*versions, re.sub(*drivers, printed))


def check(session: str, folder: Path, toolkit: CudaVersion = WRITTEN_FOR) -> None:
    """Run each command; it must print what the session shows, or that with the versions of the installed toolkit.

    The toolchains of its emulated drivers are fetched before: a run that fetches one says so, which no page shows.
    """
    for version in sorted({*re.findall(r"(?:--cudalink-driver=|driver run --version )(\d+\.\d+)", session)}):
        toolchains.add(version)
    for command, shown in steps(session):
        printed = run(command, folder)
        assert matches(shown, printed) or matches(shown, as_written(printed, toolkit)), f"$ {command}\n{printed}"


def environment_blocks(text: str) -> str:
    """The ``console`` blocks of a page or section whose commands run in named environments, as one session."""
    return "".join(re.findall(r"^```console\n(\(.*?)^```", text, re.MULTILINE | re.DOTALL))


def environment_steps(session: str) -> list[tuple[str, str, str]]:
    """Each command of a session in named environments: environment, command, and what it prints."""
    parts = re.split(ENVIRONMENT + r"(.*)\n", session, flags=re.MULTILINE)
    assert not parts[0]
    return list(zip(parts[1::3], parts[2::3], parts[3::3], strict=True))


def copy_of(files: Path, folder: Path) -> Path:
    """Copy the files of a page to a folder in which pytest's settings are its defaults; returns the folder."""
    shutil.copytree(files, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # else this project's: warnings are errors
    return folder


def in_environment(environment: Path, command: str, folder: Path) -> str:
    """Run a command as a shell with an activated environment does; both of its streams, without colours."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("CUDALINK_", "PYTEST_", "NOX"))}
    env = {
        **own,
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(environment),
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
        "NO_COLOR": "1",
    }
    return shell(command, folder, env).replace("PYTEST_ADDOPTS='-p no:cacheprovider' ", "")


def check_in_environments(session: str, root: Path, folder: Path) -> None:
    """Run each command in its environment under a folder; it must print what the session shows."""
    for environment, command, shown in environment_steps(session):
        printed = in_environment(root / environment, command, folder)
        assert matches(shown, printed), f"({environment}) $ {command}\n{printed}"
