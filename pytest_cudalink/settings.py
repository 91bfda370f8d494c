"""The plugin's settings: command line, then environment, then ini file, then default; each value with its source."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

import pytest

__all__ = ["OPTIONS", "POLICIES", "Option", "Setting", "Settings", "add_options", "resolve"]


#: Names of the dispatch tables. A constant, so that start-up does not read `matrices/dispatch.toml`; a test compares.
POLICIES: Final = ("strict-major", "newer-driver-ok", "released")


@dataclass(frozen=True)
class Option:
    """One setting and its twins.

    The command-line default is None for each, because any other would hide the environment and the ini file.
    """

    name: str
    flag: str
    env: str
    ini: str
    default: str
    choices: tuple[str, ...]
    help: str


OPTIONS: Final = (
    Option(
        name="backend",
        flag="--force-backend",
        env="CUDALINK_FORCE_BACKEND",
        ini="cudalink_force_backend",
        default="auto",
        choices=("auto", "driver", "nvjitlink"),
        help="force what links: the driver's cuLink*, or nvJitLink; auto lets the policy decide",
    ),
    Option(
        name="policy",
        flag="--cudalink-policy",
        env="CUDALINK_POLICY",
        ini="cudalink_policy",
        default="strict-major",
        choices=POLICIES,
        help="dispatch table that decides which linker is taken",
    ),
)


@dataclass(frozen=True)
class Setting:
    """A value and where it came from.

    Attributes
    ----------
    value : str
    source : str
        ``"option"``, ``"environment NAME"``, ``"ini"`` or ``"default"``.
    """

    value: str
    source: str

    def __str__(self) -> str:
        return self.value if self.source == "default" else f"{self.value} (from {self.source})"


@dataclass(frozen=True)
class Settings:
    """All settings of one run."""

    backend: Setting
    policy: Setting


def add_options(parser: pytest.Parser) -> None:
    """Register every option with its ini twin."""
    group = parser.getgroup("cudalink", "CUDA linking (pytest-cudalink)")
    for option in OPTIONS:
        twins = f"(environment: {option.env}, ini: {option.ini}, default: {option.default})"
        group.addoption(
            option.flag,
            dest=option.ini,
            choices=option.choices,
            default=None,
            help=f"{option.help} {twins}",
        )
        parser.addini(option.ini, f"{option.help}; one of {', '.join(option.choices)}", type="string", default=None)


def resolve(config: pytest.Config) -> Settings:
    """The settings of a run.

    Raises
    ------
    pytest.UsageError
        If a value is none of the choices, naming it, its source and the choices.
    """
    return Settings(**{option.name: _resolve(option, config) for option in OPTIONS})


def _resolve(option: Option, config: pytest.Config) -> Setting:
    candidates = (
        ("option", config.getoption(option.ini)),
        (f"environment {option.env}", os.environ.get(option.env)),
        ("ini", config.getini(option.ini)),
        ("default", option.default),
    )
    source, value = next((source, str(value)) for source, value in candidates if value)
    if value not in option.choices:
        msg = f"cudalink: {option.flag} is {value!r} (from {source}); expected one of {', '.join(option.choices)}"
        raise pytest.UsageError(msg)
    return Setting(value, source)
