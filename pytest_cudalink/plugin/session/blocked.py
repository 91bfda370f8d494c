"""Parts of the plugin that ``-p no:cudalink-PART`` turns off: a run says which, and refuses those that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from ...compat.settings import label
from ...report.asked_for import AskedFor
from .. import parts
from ..settings import Setting

if TYPE_CHECKING:
    from ..settings import Settings

#: What is off without a part, and the values of the settings that ask for nothing of it.
_CHECKS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "lifetimes": ("lifetime checks are off", {"lifetime": "off"}),
    "deadlocks": ("deadlocks in the emulated driver fail no test", {}),
    "order": ("the order of accesses is not checked", {"order": "off"}),
    "no-wait": ("calls that wait fail no test that forbids it", {}),
    "jitlink-contract": ("checks of nvJitLink's contract are off", {"jitlink_contract": "off"}),
    "sticky": ("checks of the contexts after each test are off", {"sticky": "off"}),
    "require": ("nothing is required of the run", {"require": "none"}),
    "provenance": ("checks of where CUDA libraries come from are off", {"provenance": "any"}),
    "mismatches": ("links on another backend than the forced one fail nothing", {"backend": "auto"}),
    "native-links": ("links of native code are not counted", {"unsteered": "allow"}),
    "loaded-modules": ("modules that no seen link made are not counted", {}),
    "causes": ("causes of failures, such as refused calls, are not shown", {"unsupported": "fail"}),
    "faults": ("faults that were not triggered are not shown", {"faults": ""}),
    "event-file": ("events that are missing in the file of events fail nothing", {"events": ""}),
    "record-file": ("no records are written", {"report": ""}),
    "results": ("no records are written", {"report": ""}),
}
#: Parts that others need.
_NEEDED: Final = sorted(
    {"lifecycle", "listener", "isolated", "sticky-stop"}
    | {key.name for key in vars(parts).values() if isinstance(key, parts.Key)}.difference(_CHECKS)
)


def apply(config: pytest.Config, settings: Settings, *, isolated: bool) -> Settings:
    """Turn off, in the settings, what is blocked; return them.

    `isolated`: whether another process waits for this one.
    Raises pytest.UsageError if a part is blocked that a setting asks for, or that others need.
    """
    for part in _NEEDED:
        if config.pluginmanager.is_blocked(f"cudalink-{part}"):
            msg = (
                f"cudalink: -p no:cudalink-{part} blocks a part that others need; leave it out, or turn off the whole "
                "plugin with -p no:cudalink"
            )
            raise pytest.UsageError(msg)
    for part in _blocked(config):
        _, idle = _CHECKS[part]
        for name, setting in settings.items():
            if setting.value == idle.get(name, setting.value):
                continue
            if isolated and name == "events":  # from the process that waits, for the last calls before a crash
                continue
            if setting.source != "default":
                msg = (
                    f"cudalink: {label(name)} is {setting}, and -p no:cudalink-{part} blocks the part that does it; "
                    "leave one of the two out"
                )
                raise pytest.UsageError(msg)
            setattr(settings, name, Setting(idle[name], f"-p no:cudalink-{part}"))
    return settings


def asked(config: pytest.Config) -> list[AskedFor]:
    """Return what is off, which the user who blocks it allows."""
    off = lines(config)
    return [AskedFor("checks", len(off), 0, allowed=dict.fromkeys(off, 1))] if off else []


def lines(config: pytest.Config) -> list[str]:
    """Return what is off, a line for each part."""
    return [f"{_CHECKS[part][0]}: -p no:cudalink-{part}" for part in _blocked(config)]


def _blocked(config: pytest.Config) -> list[str]:
    return [part for part in _CHECKS if config.pluginmanager.is_blocked(f"cudalink-{part}")]
