"""A finding: what is wrong, why, and what repairs it; the doctor and the audits make them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from .install_command import NO_COMMAND, Command

__all__ = ["NO_DRIVER", "SEVERITIES", "VERDICTS", "Finding", "Severity", "exit_code_of", "plain"]

Severity = Literal["error", "unknown", "warning", "note"]
#: The worst first.
SEVERITIES: Final = get_args(Severity)
#: The word for an environment, by exit code.
VERDICTS: Final = ("coherent", "incoherent", "not enough known")
#: `Finding.why` of all that cannot be compared with a driver, because this machine has none.
NO_DRIVER: Final = "no driver here: the toolkit was not compared with one"


@dataclass(frozen=True)
class Finding:
    """A fault, or a note for the reader, and what repairs it."""

    severity: Severity  # "error", "unknown" (not enough is known), "warning" or "note"; the first two set the exit code
    what: str  # one sentence: what is wrong, and what is expected
    fix: Command = NO_COMMAND  # repairs it; false if no command does
    otherwise: str = ""  # another remedy, or the only one where no command helps
    why: str = ""  # the cause, which several findings may have in common; empty if the finding stands alone
    evidence: tuple[Any, ...] = ()  # what requires it
    place: str = ""  # the distribution or file that it is about
    kind: str = ""  # which check found it
    suggestion: tuple[str, ...] = ()  # requirements to declare, each of which would do

    @property
    def remedies(self) -> tuple[str, ...]:
        """The command and the other remedy, as far as there are any: the better first."""
        return tuple(filter(None, (str(self.fix), self.otherwise)))


def plain(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a dataclass as plain data, for `dataclasses.asdict`; commands are text."""
    return {name: str(value) if isinstance(value, Command) else value for name, value in fields}


def exit_code_of(severities: Iterable[Severity]) -> int:
    """Return 1 if there is an error, else 2 if not enough is known, else 0; `VERDICTS` has a word for each."""
    there = set(severities)
    return 1 if "error" in there else 2 if "unknown" in there else 0
