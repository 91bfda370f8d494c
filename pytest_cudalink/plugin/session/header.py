"""The header of a run: backend and policy with their sources, what the machine has, and what is forced."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ... import probes
from ...compat.names import DEFAULT_ARCHITECTURE
from ...compat.settings_table import OF_EMULATION
from ...versions import CudaVersion
from ..conditions import run_driver
from ..records.facts import Environment
from ..run import Run
from ..settings import Settings
from ..watch import BACKENDS, backends
from . import account


def lines(run: Run) -> list[str]:
    """Return the lines of the header."""
    settings, fakes, cell = run.settings, probes.fakes(), run.cell
    provenance, fails = settings.provenance, "a test that loads another one fails"
    contract, inherited = settings.jitlink_contract, run_driver.inherited(run.config)
    asks_for_linker = settings.backend.value != "auto"
    parts = [
        f"backend {settings.backend}",
        # it decides nothing unless the bundled linker is used, which is not known yet
        *([f"policy {settings.policy}"] if settings.policy.source != "default" or asks_for_linker else []),
        _faked("nvJitLink", "nvjitlink") if fakes.fakes_nvjitlink else _nvjitlink(settings, probes.nvjitlink_wheel()),
        _faked("driver CUDA", "driver")
        if fakes.fakes_driver
        else _driver(run, probes.driver_version_elsewhere(), inherited=inherited),
        *([f"guard rails {settings.guard_rails}"] if settings.guard_rails.value != "off" else []),
        *([f"nvJitLink contract {contract}"] if contract.source != "default" else []),
    ]
    return [
        f"cudalink: {', '.join(parts)}",
        *(_forced(run) if settings.backend.value != "auto" else []),
        *_of_worker(run),
        *([f"cudalink: CUDA libraries must come from {provenance}; {fails}"] if provenance.value != "any" else []),
        *_of_emulation(run, inherited=inherited),
        *([f"cudalink: schedules {settings.schedules}"] if settings.schedules.value else []),
        *(f"cudalink: {toolchain}" for toolchain in run_driver.fetched(run.config)),
        *(f"cudalink: {line}" for line in (cell.lines if cell else ())),
        *(f"cudalink: {sentence}" for sentence in (*account.blocked_lines(run.config), *run.unread_variables)),
        *(f"cudalink: {name}: {value}" for name, value in run.hook_facts.items()),
    ]


def driver_lines(run: Run) -> list[str]:
    """Return the lines on a driver that was emulated after the header was shown, for markers that ask for it."""
    driver = _driver(run, probes.driver_version_elsewhere(), inherited=False)
    return [
        f"cudalink: {driver}, because a marker forces the driver backend",
        *_of_emulation(run, inherited=False),
        *(f"cudalink: {toolchain}" for toolchain in run_driver.fetched(run.config)),
    ]


def _faked(shown: str, name: str) -> str:
    fact = Environment()[name]
    return f"{shown} {fact.value or 'none'} ({fact.kind} by {fact.source})"


def _nvjitlink(settings: Settings, wheel: str | None) -> str:
    if settings.nvjitlink.value == "absent":
        return f"no nvJitLink (absent, from {settings.nvjitlink.source})"
    if settings.nvjitlink.value != "auto":
        return f"nvJitLink {settings.nvjitlink.value} (preloaded, from {settings.nvjitlink.source})"
    if wheel is None:
        return "no nvJitLink wheel"
    first = probes.FIRST_USABLE_NVJITLINK
    return f"nvJitLink {wheel}" + (
        "" if CudaVersion.parse(wheel) >= first else f" (unusable: {first} or newer is needed)"
    )


def _driver(run: Run, version: CudaVersion | None, *, inherited: bool) -> str:
    settings, emulation = run.settings, run.emulation
    source = "" if settings.driver.source == "default" else f", from {settings.driver.source}"
    if emulation is not None:
        if settings.driver.value == "auto":
            source = ", from the environment" if inherited else ", of the toolkit's version"
        never = f", toolchains {settings.toolchains}" if settings.toolchains.value == "never" else ""
        missing = f"; {emulation.missing}{never}" if emulation.missing else ""
        return f"driver CUDA {version} (emulated, {emulation.arch}, release {emulation.release}{source}{missing})"
    if settings.driver.value == "absent":
        return f"no driver (absent{source})"
    return f"driver CUDA {version}" if version else "no driver"


def _forced(run: Run) -> list[str]:
    """Return which targets are forced, of those that are installed, which of them cannot be, and what is not forced."""
    from ..conditions.unsteered import CONSEQUENCES

    settings = run.settings
    only: Collection[str] | None = None
    if run.get(BACKENDS) is None:  # postponed, with the plugin's own targets
        installed = {name: probes.wheel_version(package) for name, package in backends.TARGETS.items()}
        versions = {name: version for name, version in installed.items() if version is not None}
        packages: Mapping[str, str | None] = backends.TARGETS
    else:
        steering = backends.steering(run)
        only = steering.only
        releases = {name: (target.version(), target.distribution) for name, target in steering.targets.items()}
        versions = {name: version or "" for name, (version, package) in releases.items() if version or package is None}
        packages = {name: package for name, (_version, package) in releases.items()}
    asked = {name: version for name, version in versions.items() if only is None or name in only}
    libraries = {name: version for name, version in asked.items() if name != "bundled"}
    stale = {name: why for name, version in libraries.items() if (why := _unfit(packages[name], version))}
    names = [
        name if name == "bundled" or not version else f"{name} {version}"
        for name, version in asked.items()
        if name not in stale
    ]
    how = "each backend in turn" if settings.backend.value == "each" else settings.backend.value
    narrowed = f" (--cudalink-target from {settings.target.source})" if only is not None else ""
    unsteered, allowed = settings.unsteered, only is not None  # then other code may link as it likes
    consequence = CONSEQUENCES["allow" if allowed else unsteered.value]
    source = "" if unsteered.source == "default" else f", from {unsteered.source}"
    chosen = "" if allowed else f" (unsteered {unsteered.value}{source})"
    return [
        f"cudalink: forced to {how}: {', '.join(names) or 'no target that is installed'}{narrowed}",
        *(f"cudalink: not forced: {name} {asked[name]}: {why}" for name, why in stale.items()),
        f"cudalink: not forced: code that calls a linker itself{chosen}; {consequence}",
    ]


def _unfit(package: str | None, version: str) -> str:
    """Return why a release cannot be forced, as far as its version says; empty if it can, or needs no recipe.

    Reads the table and not `targets.base`: a run imports targets when a library that they steer is imported.
    """
    from ...base.tables import read_matrix

    known = read_matrix("recipes.toml").get(package or "", [])
    if not known or not version:
        return ""
    from packaging.specifiers import SpecifierSet

    if any(SpecifierSet(row["versions"]).contains(version, prereleases=True) for row in known):
        return ""
    return f"expected {package} {'; '.join(row['versions'] for row in known)}"


def _of_worker(run: Run) -> list[str]:
    """Return the settings of link workers other than the defaults."""
    settings, words = run.settings, []
    if settings.contain.value == "yes":
        real = run.emulated is None and probes.driver_version_elsewhere() is not None
        left = "; the real driver links in this process" if real else ""
        words.append(f"contain {settings.contain}{left}")
    if settings.link_timeout.source != "default":
        words.append(f"limit of a call, in seconds: {settings.link_timeout}")
    return [f"cudalink: link worker: {', '.join(words)}"] if words else []


def _of_emulation(run: Run, *, inherited: bool) -> list[str]:
    """Return the emulator's settings other than the defaults, and settings that are ignored in this run."""
    settings, emulation = run.settings, run.emulation
    asked = [(name, getattr(settings, name)) for name in OF_EMULATION]
    words = [f"{name} {setting}" for name, setting in asked if setting.source != "default"]
    lifetimes = [f"lifetimes {settings.lifetime}"] if settings.lifetime.source != "default" else []
    if emulation is not None and not inherited:
        words += lifetimes
        return [f"cudalink: emulated driver: {', '.join(words)}"] if words else []
    shown, why = [], "ignored (no emulated driver in this run)"
    if emulation is not None:
        why = "ignored (the emulated driver comes from the environment)"
        inside = {"device": str(emulation.devices), "faults": emulation.faults, "events": str(emulation.events or "")}
        known = [f"{name} {value}" for name, value in inside.items() if value not in ("", DEFAULT_ARCHITECTURE)]
        known += lifetimes
        shown = [f"cudalink: emulated driver: {', '.join(known)}"] if known else []
    elif run_driver.may_come_late(settings):
        why = "ignored unless a marker forces the driver backend, for which a driver is emulated after collection"
    return [*shown, *([f"cudalink: {why}: {', '.join(words)}"] if words else [])]
