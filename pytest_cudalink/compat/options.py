"""The settings of the project: option, ini entry, variable, key of a cell and flag of ``cudalink driver run`` of each.

Imports nothing but words, because the start of every pytest reads it; `plugin/settings.py` has the checks of values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from . import names

#: Where libraries may come from, besides folders.
PROVENANCES: Final = ("any", "wheels", "system", "conda")


class Twin:
    """What a cell or ``cudalink driver run`` calls a setting, and its meaning there."""

    def __init__(self, name: str, help: str) -> None:  # noqa: A002 (argparse's word)
        self.name, self.help = name, help


class Part:
    """One setting of an option that has several.

    `word`: what stands before its value; empty for a value alone.
    `values`: what it may be; one in capitals stands for any.
    `env`: variable of our own processes that counts where the user chose no value.
    """

    def __init__(self, word: str, values: tuple[str, ...], default: str, env: str = "") -> None:
        self.word, self.values, self.default, self.env = word, values, default, env


class Option:
    """What a user writes on the command line, in the environment, in an ini file or a cell: one setting, or several.

    The command-line default is None for each, because any other would hide the environment and the ini file.

    `choices`: what the value may be; empty for a free value.
    `words`: values with a special meaning besides free ones.
    `parts`: for an option with several settings: what it says of each, by the name of the setting.
    `flag`: on the command line; empty for a setting that only ini files and variables have.
    `env`: environment variable; empty for a setting without one.
    `inherited`: whether its environment variable also counts for a pytest that a test starts.
    `bare`: what the option means without a value; empty for an option that needs a value.
    `cell`: the key of a cell, if cells have the setting.
    `program`: the flag of ``cudalink driver run``, if programs have the setting.
    """

    # no NamedTuple: every start of pytest would pay for what is generated
    def __init__(
        self,
        name: str,
        help: str,  # noqa: A002 (argparse's word)
        *,
        default: str = "",
        choices: tuple[str, ...] = (),
        words: tuple[str, ...] = (),
        metavar: str | None = None,
        parts: dict[str, Part] | None = None,
        key: str = "",
        flag: str | None = None,
        env: str | None = None,
        inherited: bool = True,
        bare: str = "",
        cell: Twin | None = None,
        program: Twin | None = None,
    ) -> None:
        self.name, self.help, self.default, self.choices, self.words = name, help, default, choices, words
        self.metavar, self.parts, self.inherited, self.bare = metavar, parts or {}, inherited, bare
        self.cell, self.program = cell, program
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
        cell=Twin(
            "backend",
            "what links: 'auto' lets the policy decide, 'driver' and 'nvjitlink' force one, 'each' runs both",
        ),
    ),
    Option(
        "driver",
        "choose the driver that this process sees: real, absent, or an emulated driver of a VERSION such as 12.9 or "
        "of the FILE.json of cudalink driver record; auto takes the real driver, and emulates one of the toolkit's "
        "version if there is none and a test forces the driver backend",
        default="auto",
        words=names.DRIVER_WORDS,
        metavar=f"{{{','.join(names.DRIVER_WORDS)},VERSION}}",
        cell=Twin(
            "driver",
            "CUDA driver: 'auto' (what the machine has; where it has none and the driver backend is forced, an "
            "emulated one of the toolkit's release), 'real', 'absent', or the CUDA version of an emulated one",
        ),
        program=Twin(
            "--version",
            "choose the CUDA version of the driver, such as 13.0, or a FILE.json of cudalink driver record",
        ),
    ),
    Option(
        "device",
        "choose the devices of an emulated driver, such as h100, sm_90, h100:2 (two of them), h100,memory=8GiB, or "
        "FILE.json of cudalink driver record; "
        f"none emulates a driver without a device; known: {', '.join(names.EMULATED_DEVICES)}",
        default=names.DEFAULT_ARCHITECTURE,
        metavar="DEVICE[:NUMBER][,memory=SIZE]",
        cell=Twin("arch", "architecture of the emulated driver's device, such as 'sm_90'"),
        program=Twin(
            "--device",
            "choose the devices, such as h100, sm_90, h100:2 (two of them), h100,memory=8GiB, FILE.json or none; "
            f"known: {', '.join(names.EMULATED_DEVICES)} (default: {names.DEFAULT_ARCHITECTURE})",
        ),
    ),
    Option(
        "nvjitlink",
        "choose the nvJitLink that every library finds: auto leaves it alone, absent hides it, and a VERSION such as "
        "13.0 loads that release from the toolchain cache",
        default="auto",
        words=names.NVJITLINK_WORDS,
        metavar=f"{{{','.join(names.NVJITLINK_WORDS)},VERSION}}",
        cell=Twin(
            "nvjitlink",
            "nvJitLink: 'auto' (the toolkit's), 'absent', or the CUDA release of another one, preloaded",
        ),
    ),
    Option(
        "faults",
        "let calls of an emulated driver fail: write FUNCTION:NTH=CODE[@MILLISECONDS], lost=CODE or the name of a "
        "preset, separated by semicolons",
        metavar="FAULTS",
        program=Twin(
            "--faults",
            "let calls fail: write FUNCTION:NTH=CODE[@MILLISECONDS], lost=CODE, jit=CODE or the name of a preset, "
            "separated by semicolons",
        ),
    ),
    Option(
        "fault_sweep",
        "run each test again for each call of an emulated driver that it makes, and let that call fail: likely, with "
        "the likeliest codes; all, with each code that its documentation lists; some functions, separated by commas; "
        "NUMBER:CODE[:STAYS] to repeat a finding; or resume, to go on with a sweep that was interrupted; +nvJitLink "
        "and +NVRTC behind it add the calls of these libraries; fail the run for crashes, hangs, leaks, broken rules "
        "and errors that the code ignores",
        metavar="CALLS",
        bare="likely",
        inherited=False,
    ),
    Option(
        "fault_budget",
        "limit the runs of a fault sweep for each test: those that find most come first, a loop fails in six of its "
        "turns, and 0 sets no limit; with :K/N they are shared by N machines, of which this is number K",
        default="1000",
        metavar="RUNS",
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
        program=Twin(
            "--checks",
            "check the memory that the program and its processes pass to the driver's linker: after a violation, fail "
            "lets pytest fail the test, and other programs end with exit code 1 instead of 0; report only shows it, "
            "off does not check, and strict also writes to dead memory, as a real driver does (default: %(default)s)",
        ),
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
            "sticky_deadline": Part("deadline", ("SECONDS",), "60"),
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
    ),
    Option(
        "provenance",
        "fail a test that loads a CUDA library from elsewhere than the environment's wheels, the system, the conda "
        "prefix or these folders, loads two minor versions of one library, or links inputs of another major version; "
        "any allows everything",
        default="any",
        words=PROVENANCES,
        metavar=f"{{{','.join(PROVENANCES)},PATH}}",
        cell=Twin(
            "provenance",
            "where every CUDA library of a test must come from, or the test fails: 'wheels', 'system', 'conda' or a "
            "folder",
        ),
    ),
    Option(
        "guard_rails",
        "check that the libraries which cuda.pathfinder finds fit each other and the driver: refuse what does not fit "
        "(best_effort), refuse also what is not known to fit (strict), or only warn (warning_only)",
        default="off",
        choices=names.GUARD_RAIL_MODES,
        cell=Twin(
            "guard-rails",
            "whether libraries that do not fit are refused as they are looked up: 'best_effort' refuses what is known "
            "not to fit, 'strict' also what is not known to, 'warning_only' warns; 'off' in every cell that crosses "
            "majors",
        ),
    ),
    Option(
        "policy",
        "choose the dispatch table by which the bundled linker picks its backend",
        default=names.DEFAULT_POLICY,
        choices=names.POLICIES,
        flag="",
        cell=Twin("policy", "dispatch table of the bundled linker"),
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
        program=Twin(
            "--toolchains",
            "choose where the driver gets an nvJitLink that this environment lacks: auto fetches it into the cache, "
            "cached takes it only from there, and with never its links answer 221 (default: %(default)s)",
        ),
    ),
    Option(
        "events",
        "append every event of an emulated driver to a file, one JSON object per line",
        metavar="FILE",
        flag="",
        env="",
        program=Twin("--events", "append every event to a file, one JSON object per line; - is stdout"),
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


_PREFIX = "CUDALINK_"


def known_variables() -> set[str]:
    """Return the name of every variable that some part of the project reads."""
    from ..base.tables import read_table

    table = read_table("variables.toml")
    of_settings = {option.env for option in OPTIONS} - {""}
    return of_settings.union(*(table[group] for group in ("parts", "internal", "tests")))


def unread_variables(environment: Iterable[str]) -> list[str]:
    """Return a sentence for each variable of the project that is set and that no part reads.

    `environment`: the names of the variables that are set.
    """
    from ..base.tables import read_table
    from ..base.words import did_you_mean

    names = known_variables()
    prefixes = tuple(read_table("variables.toml")["prefixes"])
    return [
        f"the environment variable {name} is ignored: no part of pytest-cudalink reads it"
        f"{did_you_mean(name, names, alike=0.8)}"
        for name in sorted(environment)
        if name.startswith(_PREFIX) and name not in names and not name.startswith(prefixes)
    ]
