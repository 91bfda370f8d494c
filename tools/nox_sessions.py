"""The parts that the sessions of noxfile.py share, and the sessions of tools/sessions.toml, which are data."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from shutil import which
from typing import Any

import nox
from nox.command import CommandFailed

from pytest_cudalink.matrix import load_cells

ROOT = Path(__file__).parents[1]
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
CELLS = {cell.name: cell for cell in load_cells(ROOT / "matrices" / "cells.toml")}
#: The toolkit of every session that is not about toolkits.
BASE = CELLS["ctk-13.0"]
#: Options of pytest for every processor; tests that share something costly stay on one of them.
PARALLEL = ("-n", "auto", "--dist", "loadgroup")
#: The sessions that are data, and what the others install in addition.
RELEASES = nox.project.load_toml(ROOT / "tools" / "sessions.toml")


def requirements(words: Iterable[str]) -> Iterator[str]:
    """Yield the requirements that the words of a session stand for; see the head of tools/sessions.toml."""
    for word in words:
        kind, _, name = word.partition(":")
        if word == "toolkit":
            yield from BASE.packages
        elif word == "suite":
            yield from (*BASE.packages, "numpy", *requirements(["group:test"]), "nox", "tox>=4.29")
            if not any(map(which, (os.environ.get("CC") or "cc", "gcc", "clang"))):
                yield "ziglang"  # the compiler that built the package where the machine has none
        elif word == "requirements":
            yield from PROJECT["project"]["dependencies"]
        elif kind == "group":
            yield from nox.project.dependency_groups(PROJECT, name)
        else:
            yield word


def install(session: nox.Session, *words: str) -> None:
    """Install the project, editable, and some requirements. After the suite's, its tests need no network."""
    fetch = ("toolchain", "add", "12.9", "13.2", "13.0")
    early: AbstractContextManager[object] = nullcontext()
    if "suite" in words:  # while the C is compiled; the same command says below what fails
        command = (sys.executable, "-m", "pytest_cudalink.cli", *fetch)
        early = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with early:
        session.install("-e", str(ROOT), *requirements(words))
    if "suite" in words:
        session.run_install("cudalink", *fetch)
        session.env["CUDALINK_REQUIRE_TOOLKIT"] = BASE.ctk


def environment(session: nox.Session, name: str, *words: str) -> str:
    """Make an environment beside that of the session; returns its Python."""
    folder = Path(session.create_tmp()).resolve() / re.sub(r"[^a-z0-9.]+", "-", name)
    python = str(folder / "bin" / "python")
    session.run("uv", "venv", "-q", "--clear", "--python", sys.executable, str(folder), external=True)
    session.run("uv", "pip", "install", "-q", "--python", python, *requirements(words), external=True)
    return python


def without_bindings(packages: Iterable[str], own: Iterable[str]) -> Iterator[str]:
    """Yield the packages of a cell, without those that a library's own requirements replace."""
    replaced = any(requirement.startswith("cuda-bindings") for requirement in own)
    return (package for package in packages if not (replaced and package.startswith("cuda-bindings")))


def _git(*words: str) -> str:
    """Return what git prints in this checkout; empty without git."""
    command = ("git", "-C", str(ROOT), *words)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() if which("git") else ""


def own_wheel(session: nox.Session) -> str:
    """Return this commit's wheel: that of ``nox -s dist``, or a new one.

    An editable install would compile the native parts for each environment.
    """
    commit, tag = _git("rev-parse", "HEAD"), _git("describe", "--exact-match", "--match", "v*").removeprefix("v")
    for wheel in () if _git("status", "--porcelain") else (ROOT / "dist").glob(f"*_{os.uname().machine}.whl"):
        version = wheel.name.split("-")[1]
        made_of = re.search(r"\+g([0-9a-f]+)$", version)
        if version == tag or (made_of and commit.startswith(made_of[1])):
            return str(wheel)
    folder = Path(session.create_tmp()).resolve()
    session.env.pop("TMPDIR", None)  # (nox has set it) a newcomer's project would lie in this one, with its settings
    session.run("uv", "build", "-q", "--wheel", "-o", str(folder), str(ROOT), external=True)
    return str(max(folder.glob("*.whl"), key=os.path.getmtime))


def published(session: nox.Session, wheels: Iterable[str]) -> str:
    """Download published wheels, once; returns their folder."""
    folder = Path(session.cache_dir) / "audited"
    folder.mkdir(parents=True, exist_ok=True)
    for requirement in wheels:
        name, _, version = requirement.partition("==")
        if not list(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl")):
            session.run("pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder), requirement)
    return str(folder)


def run_or_skip(session: nox.Session, *command: str) -> None:
    """Run a program whose exit code 77 says that a checker is not installed: the session is skipped, not successful."""
    try:
        session.run(*command)
    except CommandFailed as failed:
        if str(failed) != "Returned code 77":
            raise
        session.skip("its checker is not installed; the line above names it")


def run_each(session: nox.Session, names: Iterable[str], run: Callable[[str], object], failed: str) -> None:
    """Run something for each name, the others too where one fails, and fail at the end with the names of those."""
    bad = []
    for name in names:
        try:
            run(name)
        except CommandFailed:
            bad.append(name)
    if bad:
        session.error(f"{failed}: {', '.join(bad)}")


def run_commands(session: nox.Session, row: dict[str, Any]) -> None:
    """Run a session of tools/sessions.toml."""
    words = row.get("install", ())
    if row.get("project", True):
        install(session, *words)
    else:
        session.install(*requirements(words))
    text = "\n".join((*row["commands"], *row.get("env", {}).values()))
    known = {}
    if "{tmp}" in text:  # else not: tests would have their temporary folders in the checkout, too
        known["tmp"] = str(Path(session.create_tmp()).resolve())
    if "{wheel}" in text:
        known["wheel"] = own_wheel(session)
    if "wheels" in row:
        session.env["CUDALINK_AUDITED_WHEELS"] = published(session, row["wheels"])
    for each in row.get("each", [""]):
        if each:
            session.install(each)
        known["each"] = each.partition("==")[2]
        session.env.update({name: value.format_map(known) for name, value in row.get("env", {}).items()})
        for command in row["commands"]:
            before, _, default = command.partition("{args")
            arguments = session.posargs or shlex.split(default.strip(":}"))
            run_or_skip(session, *shlex.split(before.format_map(known)), *(arguments if default else ()))


def define(name: str, row: dict[str, Any]) -> None:
    """Define a session of tools/sessions.toml."""

    def run(session: nox.Session) -> None:
        run_commands(session, row)

    run.__doc__ = row["about"]
    nox.session(name=name, python=row.get("python"), tags=row.get("tags", ()))(run)


def define_rows() -> None:
    """Define the sessions of tools/sessions.toml, in the order there."""
    for name, row in RELEASES["session"].items():
        define(name, row)
