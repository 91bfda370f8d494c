"""What an audit can find, as a type that every part of it shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class AuditFinding:
    """A fault to repair: the file, the kind, a sentence and how much it weighs.

    Kinds: ``"unreadable"``, ``"metadata"`` (no METADATA, several, or an invalid requirement in it), ``"name"`` (a
    substring search takes it for a CUDA library), ``"rpath"`` (an absolute folder of the machine that built it),
    ``"majors"`` (no CUDA major satisfies every file), ``"symbols"`` (functions of CUDA that no library which the file
    needs defines, or that no known release exports), ``"undeclared"``, ``"floor"``, ``"ceiling"`` and ``"pin"`` (see
    `pytest_cudalink.audit.wheel.declared`), ``"inlined"`` (versioned nvJitLink names that a header inlined), and
    ``"twice"`` (the wheel contains a library that another package brings).
    """

    path: str
    kind: str
    text: str
    severity: Literal["error", "note"] = "error"  # only errors fail `Audit.check` and the command
    suggestion: tuple[str, ...] = ()  # requirements to write, each of which would do
