"""The program that installs packages into this environment, so that advice names one that is there."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from pathlib import Path
from typing import Literal, NamedTuple


class Installer(NamedTuple):
    """What installs packages into an environment."""

    name: Literal["pip", "uv", "conda"] = "pip"  # "pip", "uv" or "conda"
    option: str = ""  # names the environment, with a space before; empty where it is the active one


def installer_here(*, by_conda: bool = False) -> Installer:
    """Return what installs packages into the environment of this process: pip, or uv where it has no pip.

    `by_conda`: whether conda is preferred where it made the environment.
    """
    prefix = Path(sys.prefix)
    if by_conda and (prefix / "conda-meta").is_dir():
        active = os.environ.get("CONDA_PREFIX") == str(prefix)
        return Installer("conda", "" if active else f" --prefix {shlex.quote(str(prefix))}")
    if importlib.util.find_spec("pip") is not None:
        return Installer("pip")
    active = str(prefix) in (os.environ.get("VIRTUAL_ENV"), str(Path.cwd() / ".venv"))
    return Installer("uv", "" if active else f" --python {shlex.quote(str(prefix))}")


def install_command(requirements: str, *, again: bool = False) -> str:
    """Return the command that installs requirements into this environment.

    `requirements`: in the words of a shell.
    `again`: whether they are installed already, and damaged.
    """
    found = installer_here()
    program, option = ("uv pip", "--reinstall") if found.name == "uv" else ("pip", "--force-reinstall")
    return f"{program} install{found.option} {f'{option} --no-deps ' if again else ''}{requirements}"
