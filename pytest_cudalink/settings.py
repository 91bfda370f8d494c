"""The plugin's settings: command line, then environment, then ini file, then default; each value with its source."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest

__all__ = ["OPTIONS", "POLICIES", "Option", "Setting", "Settings", "add_options", "resolve"]


#: Names of the dispatch tables. A constant, so that start-up does not read `matrices/dispatch.toml`; a test compares.
POLICIES: Final = ("strict-major", "newer-driver-ok", "released")


def no_fault(_value: str) -> str | None:
    """Accept any value."""


@dataclass(frozen=True)
class Option:
    """One setting and its twins.

    The command-line default is None for each, because any other would hide the environment and the ini file.

    Attributes
    ----------
    choices : tuple of str
        What the value may be; empty for a free value.
    fault : callable
        For a free value: what is wrong with it, as the end of the sentence "FLAG is VALUE; …", or None.
    """

    name: str
    flag: str
    env: str
    ini: str
    default: str
    help: str
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    fault: Callable[[str], str | None] = no_fault


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
            choices=option.choices or None,
            metavar=option.metavar,
            default=None,
            help=f"{option.help} {twins}",
        )
        known = f"; one of {', '.join(option.choices)}" if option.choices else ""
        parser.addini(option.ini, f"{option.help}{known}", type="string", default=None)


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
    fault = option.fault(value)
    if option.choices and value not in option.choices:
        fault = f"expected one of {', '.join(option.choices)}"
    if fault:
        msg = f"cudalink: {option.flag} is {value!r} (from {source}); {fault}"
        raise pytest.UsageError(msg)
    return Setting(value, source)
