"""The plugin's settings: command line, then environment, then ini file, then default; each value with its source."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

from ..compat import names
from ..compat.settings_table import OF_EMULATION, OPTIONS, PROVENANCES, Option


def _check_driver(value: str) -> None:
    if value in names.DRIVER_WORDS:
        return
    from ..emulator import EmulatorError, emulation_for

    try:
        emulation_for(value)
    except EmulatorError as error:
        # for another parameter, as a cache that is not trusted, no other value would be right
        start = f"expected {', '.join(names.DRIVER_WORDS)} or a CUDA version: " if error.parameter == "version" else ""
        raise ValueError(f"{start}{error}") from None


def _check_devices(value: str) -> None:
    if value in names.EMULATED_ARCHITECTURES:
        return  # without an import of the emulator
    from ..emulator import parse_devices

    parse_devices(value)


def _check_seconds(value: str) -> None:
    if not re.fullmatch(r"\d{1,8}", value, re.ASCII) or not 1 <= int(value) <= names.LIMIT_LINK_SECONDS:
        raise ValueError(f"expected a number of seconds, 1 to {names.LIMIT_LINK_SECONDS}")


def _check_faults(value: str) -> None:
    from ..emulator import faults, supported_versions

    faults.parse(value, supported_versions()[-1])  # valid function names do not depend on the version


#: What a fault sweep can add to the calls of the driver.
LINKER: Final = "nvJitLink"
COMPILER: Final = "NVRTC"


def check_sweep(value: str) -> None:
    """Raise ValueError with what was expected instead of a request for a fault sweep."""
    if value in ("likely", "all", "resume"):
        return
    from ..emulator import faults, supported_versions
    from ..emulator.control import STAYS

    expected = (
        "expected likely, all, names of driver functions separated by commas, NUMBER:CODE[:STAYS] as a finding has it, "
        f"or resume, and +{LINKER} or +{COMPILER} behind it for the calls of these libraries; put paths of tests "
        "before the option, or write --cudalink-fault-sweep=likely"
    )
    calls, *others = value.split("+")
    if not {LINKER, COMPILER}.issuperset(others) or len(set(others)) < len(others):
        raise ValueError(expected)
    match = re.fullmatch(r"[1-9]\d{0,8}:(\d{1,9})(?::(\w+))?", calls, re.ASCII)
    if match and match[2] not in (None, *STAYS):
        raise ValueError(expected)
    if match and not int(match[1]):
        msg = f"{expected}: code 0 is CUDA_SUCCESS, with which no call fails; name that of an error, such as 2"
        raise ValueError(msg)
    try:
        if match:
            if not (COMPILER in others and int(match[1]) in faults.nvrtc_errors()):
                faults.code_of(int(match[1]))
        elif calls not in ("likely", "all"):
            for name in calls.split(","):
                faults.symbol_of(name.strip(), supported_versions()[-1])
    except ValueError as error:
        raise ValueError(f"{expected}: {error}") from None


def _check_budget(value: str) -> None:
    match = re.fullmatch(r"\d{1,8}(?::([1-9]\d{0,3})/([1-9]\d{0,3}))?", value, re.ASCII)
    if not match or int(match[1] or 1) > int(match[2] or 1):
        msg = "expected a number of runs, 0 for no limit, or RUNS:K/N such as 0:2/5 for the second of five machines"
        raise ValueError(msg)


#: Seeds of schedules are smaller.
LIMIT_SEED: Final = 2**63
#: Most schedules of each test.
_LIMIT_SCHEDULES: Final = 1_000_000


class ScheduleRequest(NamedTuple):
    """What ``--cudalink-schedules`` asks for, and how a report writes it again."""

    number: int  # schedules of each test; those after the first have the seeds that follow
    seed: int | None = None  # of the first; None for any
    displaced: tuple[int, ...] | None = None  # the only operations that may be displaced; None for all
    promised: bool = False  # whether calls wait only where CUDA's documentation promises it

    def __str__(self) -> str:
        """Return how the option has it."""
        seed = "" if self.seed is None else f":{self.seed}"
        displaced = "" if self.displaced is None else f"@{_ranges(self.displaced)}"
        return f"{self.number}{seed}{displaced}" + "+promised" * self.promised

    @property
    def wanted(self) -> str:
        """The numbers of the operations that may be displaced, as the option has them; empty for all."""
        return _ranges(self.displaced or ())

    @property
    def seeds(self) -> Iterator[int]:
        """The seeds, of which each is one schedule of every test."""
        first = self.seed or 0
        return ((first + nth) % LIMIT_SEED for nth in range(self.number))


def parse_schedules(text: str) -> ScheduleRequest:
    """Read what the option asks for.

    Raises ValueError says what is expected.
    """
    match = re.fullmatch(r"(\d{1,7})(?::(\d{1,19})(?:@([\d,-]+))?)?(\+promised)?", text, re.ASCII)
    if match and 1 <= int(match[1]) <= _LIMIT_SCHEDULES and int(match[2] or 0) < LIMIT_SEED:
        displaced = None if match[3] is None else _numbers(match[3])
        if displaced != ():
            return ScheduleRequest(
                int(match[1]), None if match[2] is None else int(match[2]), displaced, bool(match[4])
            )
    raise ValueError(
        f"expected a number of schedules, 1 to {_LIMIT_SCHEDULES}, then :SEED (0 to {LIMIT_SEED - 1}) to choose their "
        "seeds, then @NUMBERS to displace only these operations, then +promised to wait only where CUDA promises it, "
        "such as 200, 200:7, 1:7@3,5-6 or 200+promised; put paths of tests before the option, or write "
        "--cudalink-schedules=200"
    )


def _numbers(text: str) -> tuple[int, ...]:
    """Return numbers in ascending order; empty if a part of the text is not a number or range."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([1-9]\d{0,5})(?:-(\d{1,6}))?", part, re.ASCII)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            return ()
        numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(numbers))


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers in ascending order as the option has them, three and more in a row by the first and last."""
    texts = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        row = [number for _, number in group]
        texts += [f"{row[0]}-{row[-1]}"] if len(row) > 2 else [str(number) for number in row]
    return ",".join(texts)


def _check_required(value: str) -> None:
    words = {word.strip() for word in value.split(",")}
    if value not in ("auto", "none") and not words <= {"driver", "links"}:
        raise ValueError("expected auto, none, or some of driver, links, separated by commas")


def _check_provenance(value: str) -> None:
    if value not in PROVENANCES and not all(os.path.isabs(folder) for folder in value.split(os.pathsep)):  # noqa: PTH117
        msg = f"expected {', '.join(PROVENANCES)}, or absolute paths of folders, separated by {os.pathsep!r}"
        raise ValueError(msg)


def _check_release(value: str) -> None:
    if value not in names.NVJITLINK_WORDS and not re.fullmatch(r"\d+\.\d+", value, re.ASCII):
        raise ValueError(f"expected {', '.join(names.NVJITLINK_WORDS)}, or a CUDA release such as 13.0")


#: Checks of free values, by the setting: each raises ValueError with the end of the sentence "LABEL is VALUE; …".
_CHECKS: Final = {
    "driver": _check_driver,
    "device": _check_devices,
    "nvjitlink": _check_release,
    "faults": _check_faults,
    "fault_sweep": check_sweep,
    "fault_budget": _check_budget,
    "schedules": parse_schedules,
    "sticky_deadline": _check_seconds,
    "require": _check_required,
    "provenance": _check_provenance,
    "link_timeout": _check_seconds,
}


class Setting(NamedTuple):
    """A value and its source."""

    value: str
    source: str  # "option", "environment NAME", "ini" or "default"

    def __str__(self) -> str:
        return self.value if self.source == "default" else f"{self.value} (from {self.source})"


class Settings:
    """All settings of one run, each by its name: ``settings.guard_rails.value``."""

    if TYPE_CHECKING:
        # the names are declared once, in data/options.json

        def __getattr__(self, name: str) -> Setting: ...

        def __setattr__(self, name: str, value: Setting) -> None: ...

    def __init__(self, **settings: Setting) -> None:
        vars(self).update(settings)

    def items(self) -> list[tuple[str, Setting]]:
        """Return every setting with its name."""
        return [(name, getattr(self, name)) for option in OPTIONS for name in option.settings]

    def allows(self, check: str) -> bool:
        """Return whether the violations of a check fail nothing, because the run only reports them."""
        modes = {"jitlink-contract": self.jitlink_contract, "order": self.order, "wait": None, "deadlock": None}
        mode = modes.get(check, self.lifetime)
        return mode is not None and mode.value == "report"

    @property
    def forces_driver(self) -> bool:
        """Whether the driver performs all links, or every second one."""
        return self.backend.value in ("driver", "each")

    @property
    def required(self) -> frozenset[str]:
        """What the run requires: of ``auto``, ``driver`` and ``links``."""
        words = frozenset(word.strip() for word in self.require.value.split(","))
        # a run that hides the driver expects that tests are skipped
        nothing = words == {"none"} or (words == {"auto"} and self.driver.value == "absent")
        return frozenset() if nothing else words

    @property
    def of_emulation(self) -> list[str]:
        """The options of an emulated driver that the command line or the environment gives, with their values."""
        emulated = ((name, getattr(self, name)) for name in OF_EMULATION)
        return [f"{name} {setting}" for name, setting in emulated if setting.source not in ("default", "ini")]

    @property
    def keeps_driver(self) -> bool:
        """Whether the process keeps the driver that it finds, or finds none."""
        return self.driver.value == "real" or (self.driver.value == "auto" and not self.forces_driver)


def resolve(config: pytest.Config, options: argparse.Namespace | None = None) -> Settings:
    """Return the settings of a run.

    `options`: the command line as far as it is known, while pytest has not read all of it yet.
    Raises pytest.UsageError if a value is not one of the choices; names the value, its source and the choices.
    """
    given = config.option if options is None else options
    resolved: dict[str, Setting] = {}
    for option in OPTIONS:
        resolved |= _resolve(option, config, getattr(given, option.ini, None))
    return Settings(**resolved)


def share(settings: Settings) -> Callable[[], None]:
    """Put into the environment what the linkers of this process and of its children read there.

    Returns what restores the environment.
    """
    before = {}
    for option in OPTIONS:
        if option.name in ("contain", "link_timeout"):
            setting: Setting = getattr(settings, option.name)
            if setting.source != "default":
                before[option.env] = os.environ.get(option.env)
                os.environ[option.env] = setting.value
    return partial(restore, before)


def restore(before: dict[str, str | None]) -> None:
    """Give variables of the environment the values that they had; None for one that was not set."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def withhold() -> dict[str, str]:
    """Remove the variables from the environment that a pytest started by a test must not inherit.

    Returns the removed variables: for the other processes of this run, and to be restored when it ends.
    """
    names = [option.env for option in OPTIONS if not option.inherited and option.env in os.environ]
    return {name: os.environ.pop(name) for name in names}


def _resolve(option: Option, config: pytest.Config, typed: str | list[str] | None) -> dict[str, Setting]:
    candidates = (
        ("option", typed),
        (f"environment {option.env}", os.environ.get(option.env)),
        ("ini", config.getini(option.ini)),
        ("default", option.default),
    )
    source, value = next((source, value) for source, value in candidates if value or source == "default")
    resolved: dict[str, Setting] = {}
    for text in value if isinstance(value, list) else [str(value)]:  # an option that is repeated changes what it names
        try:
            now = _settings_of(option, Setting(text, source))
        except ValueError as error:
            from ..base.safe_text import block

            msg = f"cudalink: {option.flag or option.ini} is {text!r} (from {source}); {error}"
            raise pytest.UsageError(block(msg)) from None
        resolved = {
            name: resolved.get(name, setting) if setting.source != source else setting for name, setting in now.items()
        }
    return resolved


def _settings_of(option: Option, setting: Setting) -> dict[str, Setting]:
    """Return the settings that an option sets, by name. Raises ValueError with what is expected."""
    if option.choices and setting.value not in option.choices:
        raise ValueError(f"expected one of {', '.join(option.choices)}")
    # the default is ours: to read it would only cost the start
    if setting.source != "default" and (check := _CHECKS.get(option.name)):
        check(setting.value)
    if not option.parts:
        return {option.name: setting}
    from ..base.words import read_words

    words = read_words(setting.value, {part.word: part.values for part in option.parts.values()})
    settings = {}
    for name, part in option.parts.items():
        named = part.default != "off" or f"{part.word}=" in setting.value  # a value alone turns nothing on
        if named and part.word in words and setting.source != "default":
            settings[name] = Setting(words[part.word], setting.source)
            try:
                if check := _CHECKS.get(name):
                    check(words[part.word])
            except ValueError as error:
                raise ValueError(f"{part.word}: {error}") from None
        elif passed_on := os.environ.get(part.env):
            settings[name] = Setting(passed_on, f"environment {part.env}")
        else:
            settings[name] = Setting(part.default, "default")
    return settings
