"""The errors and the warning of the guard rails."""

from __future__ import annotations

from .items import Verdict


class CompatibilityCheckError(RuntimeError):
    """Refused items: they do not fit each other, the driver, or the requested release.

    `verdict`: the rule, the items with their witnesses, and the repair.
    """

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__(verdict.text)

    def __reduce__(self) -> tuple[type[CompatibilityCheckError], tuple[Verdict]]:
        return type(self), (self.verdict,)


class CompatibilityInsufficientMetadataError(CompatibilityCheckError):
    """Too little is known about an item or the driver to decide whether it fits."""


class DriverCtkCompatibilityError(CompatibilityCheckError):
    """The driver is too old for the toolkit that an item belongs to."""


class CompatibilityWarning(UserWarning):
    """The text of a `CompatibilityCheckError`, as a warning in the mode ``warning_only``."""


def error_of(verdict: Verdict) -> CompatibilityCheckError:
    """The error for a verdict that is not "compatible"."""
    if verdict.status == "insufficient_metadata":
        return CompatibilityInsufficientMetadataError(verdict)
    if verdict.rule == "driver":
        return DriverCtkCompatibilityError(verdict)
    return CompatibilityCheckError(verdict)
