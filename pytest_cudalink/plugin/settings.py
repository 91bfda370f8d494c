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

__all__ = [
    "OF_EMULATION",
    "OPTIONS",
    "PROVENANCES",
    "Option",
    "Setting",
    "Settings",
    "add_options",
    "asks",
    "check",
    "resolve",
    "restore",
    "share",
    "withhold",
]


#: Values of ``--cudalink-provenance`` besides folders.
PROVENANCES: Final = ("any", "wheels", "system", "conda")


def no_fault(_value: str) -> str | None:
    """Accept any value."""


def _driver_fault(value: str) -> str | None:
    if value in names.DRIVER_WORDS:
        return None
    from ..emulator import EmulatorError, emulation_for

    try:
        emulation_for(value)
    except EmulatorError as error:
        if error.parameter != "version":  # as a cache that is not trusted: no other value would be right
            return str(error)
        return f"expected {', '.join(names.DRIVER_WORDS)} or a CUDA version: {error}"
    return None


def _devices_fault(value: str) -> str | None:
    if re.fullmatch(r"\d{1,4}", value, re.ASCII) and int(value) <= names.LIMIT_DEVICES:
        return None
    return f"expected a number, 0 to {names.LIMIT_DEVICES}"


def _device_fault(value: str) -> str | None:
    return None if not value or value in names.EMULATED_DEVICES else f"expected {', '.join(names.EMULATED_DEVICES)}"


def _memory_fault(value: str) -> str | None:
    if not value or re.fullmatch(r"\d{1,16}(\.\d{1,3})? ?([KMGT]iB|B|)", value, re.ASCII):
        return None
    return "expected a size such as 512MiB or 8GiB"


def _seconds_fault(value: str) -> str | None:
    if re.fullmatch(r"\d{1,8}", value, re.ASCII) and 1 <= int(value) <= names.LIMIT_LINK_SECONDS:
        return None
    return f"expected a number of seconds, 1 to {names.LIMIT_LINK_SECONDS}"


def _faults_fault(value: str) -> str | None:
    if not value:
        return None
    from ..emulator import faults, supported_versions

    try:
        faults.parse(value, supported_versions()[-1])  # valid function names do not depend on the version
    except ValueError as error:
        return str(error)
    return None


def _require_fault(value: str) -> str | None:
    if value in ("auto", "none") or {word.strip() for word in value.split(",")} <= {"driver", "faults", "links"}:
        return None
    return "expected auto, none, or some of driver, faults, links, separated by commas"


def _provenance_fault(value: str) -> str | None:
    if value in PROVENANCES or all(os.path.isabs(folder) for folder in value.split(os.pathsep)):  # noqa: PTH117
        return None
    return f"expected {', '.join(PROVENANCES)}, or absolute paths of folders, separated by {os.pathsep!r}"


def _no_release(value: str) -> str | None:
    """Return what is wrong with a release of a library, or None for one that can be, ``auto`` and ``absent``."""
    if value in names.NVJITLINK_WORDS or re.fullmatch(r"\d+\.\d+", value, re.ASCII):
        return None
    return f"expected {', '.join(names.NVJITLINK_WORDS)}, or a CUDA release such as 13.0"


class Option:
    """One setting: its option, environment variable and ini entry.

    The command-line default is None for each, because any other would hide the environment and the ini file.

    Attributes
    ----------
    choices : tuple of str
        What the value may be; empty for a free value.
    fault : callable
        For a free value: what is wrong with it, as the end of the sentence "FLAG is VALUE; …", or None.
    flag_value : str or None
        What the option means, for one that takes no value on the command line.
    inherited : bool
        Whether its environment variable also counts for a pytest that a test starts.
    """

    # no NamedTuple: every start of pytest would pay for what is generated
    def __init__(
        self,
        *,
        name: str,
        flag: str,
        env: str,
        ini: str,
        default: str,
        help: str,  # noqa: A002 (argparse's word)
        choices: tuple[str, ...] = (),
        metavar: str | None = None,
        fault: Callable[[str], str | None] = no_fault,
        flag_value: str | None = None,
        inherited: bool = True,
    ) -> None:
        self.name, self.flag, self.env, self.ini = name, flag, env, ini
        self.default, self.help, self.choices, self.metavar = default, help, choices, metavar
        self.fault, self.flag_value, self.inherited = fault, flag_value, inherited


OPTIONS: Final = (
    Option(
        name="backend",
        flag="--force-backend",
        env=names.VARIABLES["backend"],
        ini="cudalink_force_backend",
        default="auto",
        choices=names.BACKEND_CHOICES,
        help="force what links: the driver's cuLink*, or nvJitLink; auto lets the library decide; each runs link tests "
        "once on each",
    ),
    Option(
        name="policy",
        flag="--cudalink-policy",
        env=names.VARIABLES["policy"],
        ini="cudalink_policy",
        default=names.DEFAULT_POLICY,
        choices=names.POLICIES,
        help="dispatch table that decides which linker is taken",
    ),
    Option(
        name="driver",
        flag="--cudalink-driver",
        env=names.VARIABLES["driver"],
        ini="cudalink_driver",
        default="auto",
        help="the driver that this process sees: real; absent; an emulated one of a VERSION such as 12.9; auto takes "
        "the real one, and where there is none and the driver backend is forced, by the option or a marker, emulates "
        "the toolkit's version",
        metavar=f"{{{','.join(names.DRIVER_WORDS)},VERSION}}",
        fault=_driver_fault,
    ),
    Option(
        name="toolchains",
        flag="--cudalink-toolchains",
        env="CUDALINK_TOOLCHAINS",
        ini="cudalink_toolchains",
        default="auto",
        choices=names.TOOLCHAIN_MODES,
        help="where an emulated driver gets an nvJitLink that the environment lacks: auto fetches it into the cache "
        "before the tests; cached only takes it from there; with never its links fail with 221",
    ),
    Option(
        name="require",
        flag="--cudalink-require",
        env="CUDALINK_REQUIRE",
        ini="cudalink_require",
        default="auto",
        metavar="auto|none|driver,faults,links",
        fault=_require_fault,
        help="what must have happened, or the run fails: driver, a test ran on a driver that it asked for; links, "
        "something was linked; faults, each of --cudalink-faults was triggered; "
        "auto fails a run in which every test on the forced driver backend was skipped; none",
    ),
    Option(
        name="arch",
        flag="--cudalink-arch",
        env=names.VARIABLES["arch"],
        ini="cudalink_arch",
        default=names.DEFAULT_ARCHITECTURE,
        choices=names.EMULATED_ARCHITECTURES,
        help="architecture of the emulated driver's device",
    ),
    Option(
        name="device",
        flag="--cudalink-device",
        env="CUDALINK_DEVICE",
        ini="cudalink_device",
        default="",
        metavar="NAME",
        fault=_device_fault,
        help=f"device of the emulated driver, instead of the first one of its architecture: "
        f"{', '.join(names.EMULATED_DEVICES)}",
    ),
    Option(
        name="device_memory",
        flag="--cudalink-device-memory",
        env="CUDALINK_DEVICE_MEMORY",
        ini="cudalink_device_memory",
        default="",
        metavar="SIZE",
        fault=_memory_fault,
        help="memory of each device of an emulated driver, such as 8GiB; by default what the device has, and never "
        "more than half of what this machine has",
    ),
    Option(
        name="devices",
        flag="--cudalink-devices",
        env="CUDALINK_DEVICES",
        ini="cudalink_devices",
        default="1",
        metavar="NUMBER",
        fault=_devices_fault,
        help=f"how many devices an emulated driver has, 0 to {names.LIMIT_DEVICES}; 0 is a driver without a device",
    ),
    Option(
        name="faults",
        flag="--cudalink-faults",
        env="CUDALINK_FAULTS",
        ini="cudalink_faults",
        default="",
        metavar="FAULTS",
        fault=_faults_fault,
        help="calls of an emulated driver that fail: FUNCTION:NTH=CODE[@MILLISECONDS], lost=CODE or a preset, "
        "separated by semicolons",
    ),
    Option(
        name="lifetime",
        flag="--cudalink-lifetime",
        env="CUDALINK_LIFETIME",
        ini="cudalink_lifetime",
        default="fail",
        choices=names.LIFETIME_MODES,
        help="memory given to an emulated driver's linker that dies too early: fail the test that did it, report it, "
        "or do not check; punish also writes through the dead pointers, as a real driver would",
    ),
    Option(
        name="jitlink_contract",
        flag="--cudalink-jitlink-contract",
        env="CUDALINK_JITLINK_CONTRACT",
        ini="cudalink_jitlink_contract",
        default="fail",
        choices=("off", "warn", "fail", "strict"),
        help="calls that break nvJitLink's contract, such as one on a destroyed handle: fail the test that made them, "
        "report them, or do not check; strict also fails for names of inputs that are freed too early, and recognizes "
        "every old copy of a handle",
    ),
    Option(
        name="unsupported",
        flag="--cudalink-unsupported",
        env="CUDALINK_UNSUPPORTED",
        ini="cudalink_unsupported",
        default="fail",
        choices=("fail", "skip"),
        help="tests that fail after an emulated driver refused a call because it does not emulate that function: leave "
        "them as they are, or skip them with the name of the function",
    ),
    Option(
        name="events",
        flag="--cudalink-events",
        env="CUDALINK_EVENTS",
        ini="cudalink_events",
        default="",
        metavar="FILE",
        help="append every event of an emulated driver to this file, one JSON object per line",
    ),
    Option(
        name="target",
        flag="--cudalink-target",
        env="CUDALINK_TARGET",
        ini="cudalink_target",
        default="all",
        metavar="NAMES",
        help="libraries that are forced, separated by commas: bundled, cuda.core, numba-cuda, numba-cuda-mlir, "
        "pynvjitlink, or a project's own",
    ),
    Option(
        name="unsteered",
        flag="--cudalink-unsteered",
        env="CUDALINK_UNSTEERED",
        ini="cudalink_unsteered",
        default="fail",
        choices=("fail", "warn", "allow"),
        help="tests that force a backend, and in which code that no target steers links on another one: fail them, "
        "warn, or only count these links",
    ),
    Option(
        name="provenance",
        flag="--cudalink-provenance",
        env="CUDALINK_PROVENANCE",
        ini="cudalink_provenance",
        default="any",
        metavar=f"{{{','.join(PROVENANCES)},PATH}}",
        fault=_provenance_fault,
        help="where the CUDA libraries of the tests' processes must come from: wheels of this environment, the system, "
        "the conda prefix, or folders; a library from elsewhere fails the test that loads it, and so do two minors of "
        "one library, and a link of inputs of another major; any lists them in the records",
    ),
    Option(
        name="nvjitlink",
        flag="--cudalink-nvjitlink",
        env=names.VARIABLES["nvjitlink"],
        ini="cudalink_nvjitlink",
        default="auto",
        metavar=f"{{{','.join(names.NVJITLINK_WORDS)},VERSION}}",
        fault=_no_release,
        help="nvJitLink that every library sees: absent, or the real one of a release from the toolchain cache",
    ),
    Option(
        name="contain",
        flag="--cudalink-contain",
        env="CUDALINK_CONTAIN",
        ini="cudalink_contain",
        default="no",
        choices=("no", "yes"),
        flag_value="yes",
        help="perform the bundled linker's links on nvJitLink in a worker process, so that a crash of nvJitLink is a "
        "LinkError",
    ),
    Option(
        name="link_timeout",
        flag="--cudalink-link-timeout",
        env="CUDALINK_LINK_TIMEOUT",
        ini="cudalink_link_timeout",
        default=str(names.LIMIT_LINK_TIMEOUT),
        metavar="SECONDS",
        fault=_seconds_fault,
        help="how long one call of nvJitLink may take in a link worker, for an emulated driver and contained links",
    ),
    Option(
        name="report",
        flag="--cudalink-report",
        env="CUDALINK_REPORT",
        ini="cudalink_report",
        default="",
        metavar="FILE",
        inherited=False,  # the inner run would overwrite the file of this one
        help="write records to a file, one JSON object per line",
    ),
    Option(
        name="properties",
        flag="--cudalink-properties",
        env="CUDALINK_PROPERTIES",
        ini="cudalink_properties",
        default="on",
        choices=("on", "off"),
        help="give tests and suite properties, which JUnit reports show",
    ),
    Option(
        name="isolate",
        flag="--cudalink-isolate",
        env="CUDALINK_ISOLATE",
        ini="cudalink_isolate",
        default="no",
        choices=("no", "yes"),
        flag_value="yes",
        inherited=False,
        help="run every test in its own process, so that a crash fails that test alone",
    ),
    Option(
        name="rerun_after_crash",
        flag="--cudalink-rerun-after-crash",
        env="CUDALINK_RERUN_AFTER_CRASH",
        ini="cudalink_rerun_after_crash",
        default="no",
        choices=("no", "yes"),
        flag_value="yes",
        inherited=False,
        help="run the tests in one other process; when a test crashes it, run the rest in the next one",
    ),
    Option(
        name="sticky",
        flag="--cudalink-sticky",
        env="CUDALINK_STICKY",
        ini="cudalink_sticky",
        default="replace",
        choices=("replace", "stop", "off"),
        help="after a test that leaves the contexts of its process with an error that no call ends, or with work that "
        "does not end: run the rest in a fresh process, stop the run, or do not look",
    ),
    Option(
        name="sticky_deadline",
        flag="--cudalink-sticky-deadline",
        env="CUDALINK_STICKY_DEADLINE",
        ini="cudalink_sticky_deadline",
        default="60",
        metavar="SECONDS",
        fault=_seconds_fault,
        help="how long work on the device may go on after the test that began it",
    ),
    Option(
        name="guard_rails",
        flag="--cudalink-guard-rails",
        env="CUDALINK_GUARD_RAILS",
        ini="cudalink_guard_rails",
        default="off",
        choices=names.GUARD_RAIL_MODES,
        help="compare what cuda.pathfinder finds, and the driver: refuse what does not fit (best_effort), also what is "
        "not known to fit (strict), or only warn (warning_only)",
    ),
)


#: Settings that apply only to an emulated driver; ``CUDALINK_EMULATOR_*`` can set them too.
OF_EMULATION: Final = ("arch", "device", "device_memory", "devices", "faults", "events")


class Setting(NamedTuple):
    """A value and its source.

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


class Settings:
    """All settings of one run, each by its name: ``settings.guard_rails.value``."""

    backend: Setting
    policy: Setting
    driver: Setting
    toolchains: Setting
    require: Setting
    arch: Setting
    device: Setting
    device_memory: Setting
    devices: Setting
    faults: Setting
    lifetime: Setting
    jitlink_contract: Setting
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
    isolate: Setting
    rerun_after_crash: Setting
    sticky: Setting
    sticky_deadline: Setting
    guard_rails: Setting

    def __init__(self, **settings: Setting) -> None:
        vars(self).update(settings)

    def items(self) -> list[tuple[str, Setting]]:
        """Return every setting with its name."""
        return [(option.name, getattr(self, option.name)) for option in OPTIONS]

    @property
    def forces_driver(self) -> bool:
        """Whether the driver performs all links, or every second one."""
        return self.backend.value in ("driver", "each")

    @property
    def required(self) -> frozenset[str]:
        """What the run requires: of ``auto``, ``driver``, ``faults`` and ``links``."""
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
        twins = f"(environment: {option.env}, ini: {option.ini}, default: {option.default or 'none'})"
        takes = (
            {"action": "store_const", "const": option.flag_value}
            if option.flag_value
            else {"choices": option.choices or None, "metavar": option.metavar}
        )
        group.addoption(option.flag, dest=option.ini, default=None, help=f"{option.help} {twins}", **takes)
        known = f"; one of {', '.join(option.choices)}" if option.choices else ""
        parser.addini(option.ini, f"{option.help}{known}", type="string", default=None)


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

    Parameters
    ----------
    config : pytest.Config
    options : argparse.Namespace, optional
        The command line as far as it is known, while pytest has not read all of it yet.

    Raises
    ------
    pytest.UsageError
        If a value is not one of the choices; names the value, its source and the choices.
    """
    given = config.option if options is None else options
    return Settings(**{option.name: _resolve(option, config, getattr(given, option.ini, None)) for option in OPTIONS})


def share(settings: Settings) -> Callable[[], None]:
    """Put into the environment what the linkers of this process and of its children read there.

    Returns
    -------
    callable
        Restores the environment.
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

    Returns
    -------
    dict of str to str
        The removed variables: for the other processes of this run, and to be restored when it ends.
    """
    names = [option.env for option in OPTIONS if not option.inherited and option.env in os.environ]
    return {name: os.environ.pop(name) for name in names}


def _resolve(option: Option, config: pytest.Config, given: str | None) -> Setting:
    candidates = (
        ("option", given),
        (f"environment {option.env}", os.environ.get(option.env)),
        ("ini", config.getini(option.ini)),
        ("default", option.default),
    )
    source, value = next((source, str(value)) for source, value in candidates if value or source == "default")
    return check(option, Setting(value, source))


def check(option: Option, setting: Setting) -> Setting:
    """Return the setting; raise the common UsageError if its value is invalid.

    Raises
    ------
    pytest.UsageError
        Names the option, the value, its source and what is expected.
    """
    fault = option.fault(setting.value)
    if option.choices and setting.value not in option.choices:
        fault = f"expected one of {', '.join(option.choices)}"
    if fault:
        msg = f"cudalink: {option.flag} is {setting.value!r} (from {setting.source}); {fault}"
        raise pytest.UsageError(msg)
    return setting
