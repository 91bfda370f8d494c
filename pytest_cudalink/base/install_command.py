"""Commands that install and uninstall packages, and the program of this environment that does it."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal, NamedTuple

from .tables import read_matrix

#: The words of each action; {} is the option that names the environment.
_WORDS: Final = {
    "pip": {
        "uninstall": "pip{} uninstall -y",
        "install": "pip{} install",
        "upgrade": "pip{} install --upgrade",
        "reinstall": "pip{} install --force-reinstall --no-deps",
    },
    "uv": {
        "uninstall": "uv pip uninstall{}",
        "install": "uv pip install{}",
        "upgrade": "uv pip install{} --upgrade",
        "reinstall": "uv pip install{} --reinstall --no-deps",
    },
    "conda": {
        "uninstall": "conda remove{}",
        "install": "conda install{}",
        "upgrade": "conda update{}",
        "reinstall": "conda install{}",
    },
}


class Installer(NamedTuple):
    """What installs packages into an environment."""

    name: Literal["pip", "uv", "conda"] = "pip"  # "pip", "uv" or "conda"
    option: str = ""  # names the environment, with a space before; empty where it is the active one

    def words(self, action: str, packages: Iterable[str]) -> list[str]:
        """Return the words that a shell runs. `action`: ``"uninstall"``, or as in `Command`."""
        return [*shlex.split(_WORDS[self.name][action].format(self.option)), *packages]


class Command(NamedTuple):
    """A command that changes what is installed; false if it changes nothing, and as text what a shell runs."""

    install: tuple[str, ...] = ()  # requirements (PEP 508); for conda, its own specs
    uninstall: tuple[str, ...] = ()  # packages that are removed first
    action: Literal["install", "upgrade", "reinstall"] = "install"  # "reinstall" leaves the dependencies alone
    installer: Installer | None = None  # None: pip, until `by` decides
    remover: Installer | None = None  # uninstalls, if that is not the installer

    def __bool__(self) -> bool:
        return bool(self.install or self.uninstall)

    def __str__(self) -> str:
        return " ".join(self.words)

    @property
    def words(self) -> list[str]:
        """The words of a shell."""
        installer = self.installer or Installer()
        first = (self.remover or installer).words("uninstall", self.uninstall) if self.uninstall else []
        then = installer.words(self.action, self.install) if self.install else []
        return [*map(shlex.quote, first), *["&&"] * bool(first and then), *map(shlex.quote, then)]

    def by(self, installer: Installer) -> Command:
        """Return the command for an installer, unless one is decided or nothing is to do."""
        if self.installer is not None or not self:
            return self
        if installer.name != "conda":
            return self._replace(installer=installer)
        packages = dict.fromkeys(package for wanted in self.install for package in _of_conda(wanted))
        return Command(tuple(packages), installer=installer)


#: Nothing to install or uninstall.
NO_COMMAND: Final = Command()


def _of_conda(requirement: str) -> Iterable[str]:
    """The conda packages of a requirement: the releases of CUDA's packages follow cuda-version."""
    from packaging.requirements import Requirement

    wanted = Requirement(requirement)
    bound = ",".join(sorted(map(str, wanted.specifier), reverse=True))
    bound = re.sub(r"^==([\d.]+)\.\*$", r"=\1", bound)
    if wanted.name != "cuda-toolkit":
        return [] if wanted.name.startswith("nvidia-") else [f"{wanted.name}{bound}"]
    names = read_matrix("guardrails.toml")["conda"]
    packages = [package for extra in sorted(wanted.extras) for package in names.get(extra, ["cuda-toolkit"])]
    return [*([f"cuda-version{bound}"] if bound else []), *packages]


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


def install_command(*requirements: str, again: bool = False) -> str:
    """Return the command that installs requirements into this environment.

    `again`: whether they are installed already, and damaged.
    """
    return str(Command(requirements, action="reinstall" if again else "install", installer=installer_here()))
