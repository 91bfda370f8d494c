"""The published suites of `suites.toml`: which files they have, and how pytest runs one."""

import io
import os
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

DEFINITIONS = Path(__file__).with_name("suites.toml")
PLUGINS = Path(__file__).with_name("plugins")


@dataclass(frozen=True)
class Suite:
    """A published suite."""

    name: str
    folder: str  # where pytest starts, below the checkout
    files: tuple[str, ...]  # patterns of its test files, below the folder
    # what is installed for it, besides the toolkit of the driver; `{major}` stands for its major release
    packages: tuple[str, ...]
    # what it runs on unless the command line says otherwise
    drivers: tuple[str, ...]
    backends: tuple[str, ...]
    timeout: float  # seconds for one file
    options: tuple[str, ...]  # options of pytest
    # patterns of files that are left out, with the reason; with `::`, the beginning of the IDs of tests
    skip: Mapping[str, str]
    modules: str = ""  # the package whose modules the files are; empty where pytest is given the files
    sources: str = ""  # folder of the files, if that is another one
    # packages that also find modules in a folder of the checkout, as "package=folder": the tests need some that no
    # wheel has
    extends: tuple[str, ...] = ()
    # names that a released module lacks, and the module that has them: "package.module.NAME=package.other"
    names: tuple[str, ...] = ()
    commit: str = ""  # of the checkout, if the suite is that of a release
    device: str = ""  # of the emulated driver, if it is not the default
    # patterns of tests, as `hardware.test_name` names them, whose verdict may differ from a GPU's, with the reason
    differs: Mapping[str, str] = field(default_factory=dict)

    def packages_on(self, driver: str) -> list[str]:
        """Return what is installed for it to run on a driver of a CUDA version."""
        return [package.format(major=driver.partition(".")[0]) for package in self.packages]

    def record_name(self, file: str) -> str:
        """Return the name of a file's record, which `cudalink report` takes for its cell."""
        return "-".join((*self.name.split(), *Path(file).with_suffix("").parts))

    def at_commit(self, checkout: Path, copies: Path) -> Path:
        """Return where the suite's files are: in the checkout, or in a copy of the repository at the suite's commit.

        `copies`: the folder of the copies.
        """
        copy = copies / self.commit
        if self.commit and (checkout / ".git").exists() and not copy.exists():
            git = ["git", "-C", str(checkout), "archive", "--format=tar", self.commit]
            with tarfile.open(fileobj=io.BytesIO(subprocess.run(git, capture_output=True, check=True).stdout)) as files:
                files.extractall(copy, filter="data")
        return copy if self.commit and copy.exists() else checkout

    def differs_in(self, test: str) -> bool:
        """Return whether a test may have another verdict than on a GPU."""
        return any(fnmatch(test, pattern.replace("[", "[[]")) for pattern in self.differs)

    def is_in(self, checkout: Path) -> bool:
        """Whether a checkout has this suite."""
        return any(any((checkout / (self.sources or self.folder)).glob(pattern)) for pattern in self.files)

    def test_files(self, checkout: Path, pattern: str = "*") -> list[str]:
        """Return the files of the suite whose paths below its folder match, sorted.

        `pattern`: as in a shell; a text without a wildcard may stand anywhere in the path.
        """
        folder = checkout / (self.sources or self.folder)
        wanted = pattern if any(letter in pattern for letter in "*?[") else f"*{pattern}*"
        paths = {str(path.relative_to(folder)) for pattern in self.files for path in folder.glob(pattern)}
        return sorted(
            file for file in paths if fnmatch(file, wanted) and not any(fnmatch(file, pattern) for pattern in self.skip)
        )

    def environment(self, checkout: Path) -> dict[str, str]:
        """Return the environment variables of a run."""
        if not (self.extends or self.names):
            return {}
        folders = (f"{package}={checkout / path}" for package, path in (e.split("=") for e in self.extends))
        return {
            "CUDALINK_SUITE_SOURCES": os.pathsep.join(folders),
            "CUDALINK_SUITE_NAMES": os.pathsep.join(self.names),
            "PYTHONPATH": str(PLUGINS),
        }

    def command(self, file: str) -> list[str]:
        """Return the command that runs one file; ``-P``, so that the checkout's sources hide no installed package."""
        what = [file]
        if self.modules:
            what = ["--pyargs", ".".join((self.modules, *Path(file).with_suffix("").parts))]
        left_out = [f"--deselect={nodeid}" for nodeid in self.skip if "::" in nodeid]
        return [sys.executable, "-P", "-m", "pytest", "-q", *self.options, *left_out, *what]


@cache
def suites(definitions: Path = DEFINITIONS) -> dict[str, Suite]:
    content: dict[str, Any] = tomllib.loads(definitions.read_text(encoding="utf-8"))

    def values_of(name: str) -> dict[str, Any]:
        given = dict(content["suites"][name])
        other = given.pop("like", "")
        return {**(values_of(other) if other else {"skip": {}, **content["defaults"]}), **given}

    defined = {}
    for name in content["suites"]:
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in values_of(name).items()}
        defined[name] = Suite(name=name, **values)
    return defined
