"""The plugin's settings: command line, then environment, then ini file, then default; each value with its source."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import pytest

from ..compat import names

#: Values of ``--cudalink-provenance`` besides folders.
PROVENANCES: Final = ("any", "wheels", "system", "conda")


def _any(_value: str) -> None:
    """Accept any value."""


def _check_driver(value: str) -> None:
    if value in names.DRIVER_WORDS:
        return
    from ..emulator import EmulatorError, emulation_for

    try:
        emulation_for(value)
    except EmulatorError as error:
        # for another parameter, as a cache that is not trusted, no other value would be right
        start = f"expected {', '.join(names.DRIVER_WORDS)} or a CUDA version: " if error.parameter == "version" else ""
        msg = f"{start}{error}"
        raise ValueError(msg) from None


def _check_devices(value: str) -> None:
    if value in names.EMULATED_ARCHITECTURES:
        return  # without an import of the emulator
    from ..emulator.devices import parse_devices

    parse_devices(value)


def _check_seconds(value: str) -> None:
    if not re.fullmatch(r"\d{1,8}", value, re.ASCII) or not 1 <= int(value) <= names.LIMIT_LINK_SECONDS:
        msg = f"expected a number of seconds, 1 to {names.LIMIT_LINK_SECONDS}"
        raise ValueError(msg)


def _check_faults(value: str) -> None:
    if value:
        from ..emulator import faults, supported_versions

        faults.parse(value, supported_versions()[-1])  # valid function names do not depend on the version


#: What a fault sweep can add to the calls of the driver.
LINKER: Final = "nvJitLink"
COMPILER: Final = "NVRTC"


def _check_sweep(value: str) -> None:
    if value in ("", "likely", "all", "resume"):
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
    try:
        if match:
            if not (COMPILER in others and int(match[1]) in faults.nvrtc_errors()):
                faults.code_of(int(match[1]))
        elif calls not in ("likely", "all"):
            for name in calls.split(","):
                faults.symbol_of(name.strip(), supported_versions()[-1])
    except ValueError as error:
        msg = f"{expected}: {error}"
        raise ValueError(msg) from None


def _check_budget(value: str) -> None:
    match = re.fullmatch(r"\d{1,8}(?::([1-9]\d{0,3})/([1-9]\d{0,3}))?", value, re.ASCII)
    if not match or int(match[1] or 1) > int(match[2] or 1):
        msg = "expected a number of runs, 0 for no limit, or RUNS:K/N such as 0:2/5 for the second of five machines"
        raise ValueError(msg)


def _check_schedules(value: str) -> None:
    if value:
        from .schedule_request import parse

        parse(value)


def _check_required(value: str) -> None:
    words = {word.strip() for word in value.split(",")}
    if value not in ("auto", "none") and not words <= {"driver", "links"}:
        msg = "expected auto, none, or some of driver, links, separated by commas"
        raise ValueError(msg)


def _check_provenance(value: str) -> None:
    if value not in PROVENANCES and not all(os.path.isabs(folder) for folder in value.split(os.pathsep)):  # noqa: PTH117
        msg = f"expected {', '.join(PROVENANCES)}, or absolute paths of folders, separated by {os.pathsep!r}"
        raise ValueError(msg)


def _check_release(value: str) -> None:
    if value not in names.NVJITLINK_WORDS and not re.fullmatch(r"\d+\.\d+", value, re.ASCII):
        msg = f"expected {', '.join(names.NVJITLINK_WORDS)}, or a CUDA release such as 13.0"
        raise ValueError(msg)


class Part:
    """One setting of an option that has several.

    `word`: what stands before its value; empty for a value alone.
    `values`: what it may be; one in capitals stands for any.
    `check`: as that of an `Option`, for such a value.
    `env`: variable of our own processes that counts where the user chose no value.
    """

    def __init__(
        self,
        word: str,
        values: tuple[str, ...],
        default: str,
        check: Callable[[str], None] = _any,
        env: str = "",
    ) -> None:
        self.word, self.values, self.default, self.check, self.env = word, values, default, check, env


class Option:
    """What a user writes on the command line, in the environment or in an ini file: one setting, or several.

    The command-line default is None for each, because any other would hide the environment and the ini file.

    `choices`: what the value may be; empty for a free value.
    `check`: for a free value: raises ValueError with what is wrong, as the end of the sentence "LABEL is VALUE; …".
    `parts`: for an option with several settings: what it says of each, by the name of the setting.
    `flag`: on the command line; empty for a setting that only ini files and variables have.
    `env`: environment variable; empty for a setting without one.
    `inherited`: whether its environment variable also counts for a pytest that a test starts.
    `bare`: what the option means without a value; empty for an option that needs a value.
    """

    # no NamedTuple: every start of pytest would pay for what is generated
    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002 (argparse's word)
        *,
        default: str = "",
        choices: tuple[str, ...] = (),
        metavar: str | None = None,
        check: Callable[[str], None] = _any,
        parts: dict[str, Part] | None = None,
        key: str = "",
        flag: str | None = None,
        env: str | None = None,
        inherited: bool = True,
        bare: str = "",
    ) -> None:
        self.name, self.help, self.default, self.choices = name, help, default, choices
        self.metavar, self.check, self.parts, self.inherited = metavar, check, parts or {}, inherited
        self.bare = bare
        self.ini = f"cudalink_{key or name}"
        self.flag = f"--cudalink-{name.replace('_', '-')}" if flag is None else flag
        self.env = self.ini.upper() if env is None else env

    @property
    def settings(self) -> dict[str, tuple[str, str]]:
        """The name by which messages call each of its settings, and the default."""
        label = self.flag or self.ini
        return {
            name: (f"{label} ({part.word})" if part.word else label, part.default) for name, part in self.parts.items()
        } or {self.name: (label, self.default)}


OPTIONS: Final = (
    Option(
        "backend",
        "force one linker: the driver's cuLink*, or nvJitLink; each runs every link test once on each, and auto lets "
        "the library decide",
        default="auto",
        choices=names.BACKEND_CHOICES,
        key="force_backend",
        flag="--force-backend",
    ),
    Option(
        "driver",
        "choose the driver that this process sees: real, absent, or an emulated driver of a VERSION such as 12.9 or "
        "of the FILE.json of cudalink driver record; auto takes the real driver, and emulates one of the toolkit's "
        "version if there is none and a test forces the driver backend",
        default="auto",
        metavar=f"{{{','.join(names.DRIVER_WORDS)},VERSION}}",
        check=_check_driver,
    ),
    Option(
        "device",
        "choose the devices of an emulated driver, such as h100, sm_90, h100:2 (two of them), h100,memory=8GiB, or "
        "FILE.json of cudalink driver record; "
        f"none emulates a driver without a device; known: {', '.join(names.EMULATED_DEVICES)}",
        default=names.DEFAULT_ARCHITECTURE,
        metavar="DEVICE[:NUMBER][,memory=SIZE]",
        check=_check_devices,
    ),
    Option(
        "nvjitlink",
        "choose the nvJitLink that every library finds: auto leaves it alone, absent hides it, and a VERSION such as "
        "13.0 loads that release from the toolchain cache",
        default="auto",
        metavar=f"{{{','.join(names.NVJITLINK_WORDS)},VERSION}}",
        check=_check_release,
    ),
    Option(
        "faults",
        "let calls of an emulated driver fail: write FUNCTION:NTH=CODE[@MILLISECONDS], lost=CODE or the name of a "
        "preset, separated by semicolons",
        metavar="FAULTS",
        check=_check_faults,
    ),
    Option(
        "fault_sweep",
        "run each test again for each call of an emulated driver that it makes, and let that call fail: likely, with "
        "the likeliest codes; all, with each code that its documentation lists; some functions, separated by commas; "
        "NUMBER:CODE[:STAYS] to repeat a finding; or resume, to go on with a sweep that was interrupted; +nvJitLink "
        "and +NVRTC behind it add the calls of these libraries; fail the run for crashes, hangs, leaks, broken rules "
        "and errors that nobody notices",
        metavar="CALLS",
        check=_check_sweep,
        bare="likely",
        inherited=False,
    ),
    Option(
        "fault_budget",
        "limit the runs of a fault sweep for each test: those that find most come first, a loop fails in six of its "
        "turns, and 0 sets no limit; with :K/N they are shared by N machines, of which this is number K",
        default="1000",
        metavar="RUNS",
        check=_check_budget,
        inherited=False,
        flag="",
    ),
    Option(
        "fault_baseline",
        "fail the run only for findings of a fault sweep that are not in this file, which is relative to the ini file; "
        "write it where there is none",
        metavar="FILE",
        inherited=False,
        flag="",
    ),
    Option(
        "schedules",
        "run each test again under this NUMBER of schedules, in which what it queues on an emulated driver happens "
        "late, in any order that CUDA allows; fail the run for tests that then fail, crash, hang or break a rule; "
        ":SEED repeats the schedules of a run, and 1:SEED@OPERATIONS a failure; with +promised, calls wait only where "
        "CUDA's documentation promises it",
        metavar="NUMBER[:SEED[@OPERATIONS]][+promised]",
        check=_check_schedules,
        bare="200",
        inherited=False,
    ),
    Option(
        "checks",
        "fail a test that frees memory which an emulated driver's linker still needs, or breaks nvJitLink's contract; "
        "report only shows it, off does not check, and strict finds more; lifetimes=MODE and nvjitlink=MODE choose "
        "for one check; order=MODE, which must be named, finds accesses to memory that no stream or event orders",
        default="fail",
        metavar="{off,report,fail,strict}[,CHECK=MODE]",
        parts={
            "lifetime": Part("lifetimes", names.CHECK_MODES, "fail", env="CUDALINK_EMULATOR_LIFETIME"),
            "jitlink_contract": Part("nvjitlink", names.CHECK_MODES, "fail"),
            "order": Part("order", ("off", "report", "fail"), "off"),
        },
    ),
    Option(
        "processes",
        "run the tests in pytest's process (shared), each in its own process (isolated), or all in a second process "
        "that starts again after a crash (restarted); after a test that leaves the driver unusable, or work that does "
        "not end within deadline=SECONDS, continue in a new process (sticky=replace), end the run (sticky=stop), or "
        "do not check (sticky=off)",
        default="shared",
        metavar="{shared,isolated,restarted}[,sticky=MODE][,deadline=SECONDS]",
        parts={
            "tests": Part("", ("shared", "isolated", "restarted"), "shared"),
            "sticky": Part("sticky", ("replace", "stop", "off"), "replace"),
            "sticky_deadline": Part("deadline", ("SECONDS",), "60", _check_seconds),
        },
        inherited=False,
    ),
    Option(
        "target",
        "force only these libraries, separated by commas: bundled, cuda.core, numba-cuda, numba-cuda-mlir, "
        "or a project's own",
        default="all",
        metavar="NAMES",
    ),
    Option(
        "unsteered",
        "choose what happens when a test forces a backend and code that no target covers links on another: fail the "
        "test, warn, or only count the link (allow)",
        default="fail",
        choices=("fail", "warn", "allow"),
    ),
    Option(
        "unsupported",
        "choose what happens when a test fails because the emulated driver does not implement a function: fail the "
        "test, or skip it and name the function",
        default="fail",
        choices=("fail", "skip"),
    ),
    Option(
        "require",
        "fail the run unless everything that it was asked for has happened, such as a fault or a sweep; driver: and a "
        "test ran on the driver that it requested; links: and something was linked; auto: and not every test on the "
        "forced driver backend was skipped; none only shows what did not happen",
        default="auto",
        metavar="{auto,none,driver,links}",
        check=_check_required,
    ),
    Option(
        "provenance",
        "fail a test that loads a CUDA library from elsewhere than the environment's wheels, the system, the conda "
        "prefix or these folders, loads two minor versions of one library, or links inputs of another major version; "
        "any allows everything",
        default="any",
        metavar=f"{{{','.join(PROVENANCES)},PATH}}",
        check=_check_provenance,
    ),
    Option(
        "guard_rails",
        "check that the libraries which cuda.pathfinder finds fit each other and the driver: refuse what does not fit "
        "(best_effort), refuse also what is not known to fit (strict), or only warn (warning_only)",
        default="off",
        choices=names.GUARD_RAIL_MODES,
    ),
    Option(
        "policy",
        "choose the dispatch table by which the bundled linker picks its backend",
        default=names.DEFAULT_POLICY,
        choices=names.POLICIES,
        flag="",
    ),
    Option(
        "report",
        "write the records of the run to a file, one JSON object per line",
        metavar="FILE",
        inherited=False,  # the inner run would overwrite the file of this one
    ),
    Option(
        "toolchains",
        "choose where an emulated driver gets an nvJitLink that the environment lacks: auto fetches it into the cache "
        "before the tests, cached takes it only from there, and with never its links fail with 221",
        default="auto",
        choices=names.TOOLCHAIN_MODES,
        flag="",
    ),
    Option(
        "events",
        "append every event of an emulated driver to a file, one JSON object per line",
        metavar="FILE",
        flag="",
        env="",
    ),
    Option(
        "contain",
        "perform the bundled linker's links on nvJitLink in a worker process (yes), so that a crash of nvJitLink "
        "raises LinkError",
        default="no",
        choices=("no", "yes"),
        flag="",
    ),
    Option(
        "link_timeout",
        "limit the seconds that one call of nvJitLink may take in a link worker",
        default=str(names.LIMIT_LINK_TIMEOUT),
        metavar="SECONDS",
        check=_check_seconds,
        flag="",
    ),
    Option(
        "properties",
        "add properties to tests and suite, which JUnit reports show (on), or leave them out (off)",
        default="on",
        choices=("on", "off"),
        flag="",
        env="",
    ),
)


#: Settings that apply only to an emulated driver.
OF_EMULATION: Final = ("device", "faults", "events")


def label(name: str) -> str:
    """Return the name by which messages call a setting, such as ``--cudalink-driver`` or ``cudalink_events``."""
    return next(option.settings[name][0] for option in OPTIONS if name in option.settings)


class Setting(NamedTuple):
    """A value and its source."""

    value: str
    source: str  # "option", "environment NAME", "ini" or "default"

    def __str__(self) -> str:
        return self.value if self.source == "default" else f"{self.value} (from {self.source})"


class Settings:
    """All settings of one run, each by its name: ``settings.guard_rails.value``."""

    backend: Setting
    policy: Setting
    driver: Setting
    toolchains: Setting
    require: Setting
    device: Setting
    faults: Setting
    fault_sweep: Setting
    fault_budget: Setting
    fault_baseline: Setting
    schedules: Setting
    lifetime: Setting
    jitlink_contract: Setting
    order: Setting
    unsupported: Setting
    events: Setting
    target: Setting
    unsteered: Setting
    provenance: Setting
    nvjitlink: Setting
    contain: Setting
    link_timeout: Setting
    report: Setting
    properties: Setting
    tests: Setting
    sticky: Setting
    sticky_deadline: Setting
    guard_rails: Setting

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
        found = ((name, getattr(self, name)) for name in OF_EMULATION)
        return [f"{name} {setting}" for name, setting in found if setting.source not in ("default", "ini")]

    @property
    def keeps_driver(self) -> bool:
        """Whether the process keeps the driver that it finds, or finds none."""
        return self.driver.value == "real" or (self.driver.value == "auto" and not self.forces_driver)


def add_options(parser: pytest.Parser) -> None:
    """Register every option with its ini twin."""
    group = parser.getgroup("cudalink", "CUDA linking (pytest-cudalink)")
    for option in OPTIONS:
        env = f"environment: {option.env}, " if option.env else ""
        default = f"default: {option.default or 'none'}"
        if option.flag:
            bare = {"nargs": "?", "const": option.bare} if option.bare else {}
            group.addoption(
                option.flag,
                **bare,
                dest=option.ini,
                action="append" if option.parts else "store",
                default=None,
                help=f"{option.help} ({env}{default})",
                choices=option.choices or None,
                metavar=option.metavar,
            )
        text = f"the same as {option.flag}" if option.flag else f"{option.help} ({env}{default})"
        parser.addini(option.ini, text, type="string", default=None)


def asks(config: pytest.Config, options: argparse.Namespace | None = None) -> bool:
    """Whether the command line, the environment or the ini file asks for the plugin; parameters as of `resolve`.

    A variable that no part reads asks, too: the run warns of it. `CUDALINK_CACHE` only says where toolchains are.
    """
    given = config.option if options is None else options
    return any(name.startswith("CUDALINK_") and name != "CUDALINK_CACHE" for name in os.environ) or any(
        getattr(given, option.ini, None) or config.getini(option.ini) for option in OPTIONS
    )


def resolve(config: pytest.Config, options: argparse.Namespace | None = None) -> Settings:
    """Return the settings of a run.

    `options`: the command line as far as it is known, while pytest has not read all of it yet.
    Raises pytest.UsageError if a value is not one of the choices; names the value, its source and the choices.
    """
    given = config.option if options is None else options
    found: dict[str, Setting] = {}
    for option in OPTIONS:
        found |= _resolve(option, config, getattr(given, option.ini, None))
    return Settings(**found)


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


def _resolve(option: Option, config: pytest.Config, given: str | list[str] | None) -> dict[str, Setting]:
    candidates = (
        ("option", given),
        (f"environment {option.env}", os.environ.get(option.env)),
        ("ini", config.getini(option.ini)),
        ("default", option.default),
    )
    source, value = next((source, value) for source, value in candidates if value or source == "default")
    found: dict[str, Setting] = {}
    for text in value if isinstance(value, list) else [str(value)]:  # an option that is repeated changes what it names
        try:
            now = _settings_of(option, Setting(text, source))
        except ValueError as error:
            from ..base.safe_text import block

            msg = f"cudalink: {option.flag or option.ini} is {text!r} (from {source}); {error}"
            raise pytest.UsageError(block(msg)) from None
        found = {name: found.get(name, one) if one.source != source else one for name, one in now.items()}
    return found


def _settings_of(option: Option, given: Setting) -> dict[str, Setting]:
    """Return what an option says of each of its settings; a ValueError says what is expected."""
    if option.choices and given.value not in option.choices:
        msg = f"expected one of {', '.join(option.choices)}"
        raise ValueError(msg)
    if given.source != "default":  # ours: to read it would only cost the start
        option.check(given.value)
    if not option.parts:
        return {option.name: given}
    from ..base.words import read_words

    words = read_words(given.value, {part.word: part.values for part in option.parts.values()})
    found = {}
    for name, part in option.parts.items():
        named = part.default != "off" or f"{part.word}=" in given.value  # a value alone turns nothing on
        if named and part.word in words and given.source != "default":
            found[name] = Setting(words[part.word], given.source)
            try:
                part.check(words[part.word])
            except ValueError as error:
                msg = f"{part.word}: {error}"
                raise ValueError(msg) from None
        elif passed_on := os.environ.get(part.env):
            found[name] = Setting(passed_on, f"environment {part.env}")
        else:
            found[name] = Setting(part.default, "default")
    return found
