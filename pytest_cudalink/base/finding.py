"""What is wrong, why, and what repairs it: findings of the doctor and the audits, and rules that a program broke."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, get_args

from .install_command import NO_COMMAND, Command

Severity = Literal["error", "unknown", "warning", "note"]
#: The worst first.
SEVERITIES: Final = get_args(Severity)
#: The word for an environment, by exit code.
VERDICTS: Final = ("coherent", "incoherent", "not enough known")
#: `Finding.why` of all that cannot be compared with a driver, because this machine has none.
NO_DRIVER: Final = "no driver here: the toolkit was not compared with one"
#: Parts of the file names of code that runs every test, and so tells nothing about one.
RUNNERS: Final = (
    *("/_pytest/", "/pluggy/", "/xdist/", "/execnet/", "/pytest_cudalink/", "/runpy.py", "/contextlib.py"),
    *("/bin/pytest", "/pytest/__main__.py"),
)


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
    suggestion: tuple[str, ...] = ()  # requirements to declare or changes to make, each of which would do

    @property
    def remedies(self) -> tuple[str, ...]:
        """The command and the other remedy, as far as there are any: the better first."""
        return tuple(filter(None, (str(self.fix), self.otherwise)))


@dataclass(frozen=True)
class RerunFinding(Finding):
    """A fault that other runs of a test have shown; `place` is the test, and `evidence` has lines."""

    category: str = ""  # what ran it again: "fault" or "schedule"
    repeat: str = ""  # the command that finds it again
    operations: tuple[Any, ...] = ()  # what was queued around what a schedule displaced, as in records


def plain(fields: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a dataclass as plain data, for `dataclasses.asdict`; commands are text."""
    return {name: str(value) if isinstance(value, Command) else value for name, value in fields}


def exit_code_of(severities: Iterable[Severity]) -> int:
    """Return 1 if there is an error, else 2 if not enough is known, else 0; `VERDICTS` has a word for each."""
    there = set(severities)
    return 1 if "error" in there else 2 if "unknown" in there else 0


class Violation(NamedTuple):
    """A rule that a program broke."""

    check: str  # the check that noticed it: "lifetimes", "order", "wait", "deadlock" or "jitlink-contract"
    number: int  # number of the violation among those of its check and process, from 1
    # number of the CUlinkState or nvJitLinkHandle in the order of creation, from 1; 0 for one that was never created,
    # and for a CUuserObject
    handle: int
    # name of the rule: for lifetimes the option of cuLinkCreate whose memory must live, such as
    # "CU_JIT_ERROR_LOG_BUFFER", "optionValues" for the array itself, or the type of a handle that was used after it was
    # destroyed, or whose references were released too often, such as "CUlinkState", or an argument that was NULL; for
    # nvJitLink one of those in `data/rules.toml`
    rule: str
    what: str  # how the rule was broken
    text: str  # the violation in one line: handle, rule or call, how it was broken, what is expected and what was found
    call: str  # the function at whose entry it was noticed
    native_stack: tuple[str, ...]  # the native code that called it, innermost first
    python_stack: tuple[str, ...] = ()  # the Python code that called it, outermost first; empty where that is not known
    # lines on what was done to the handle before: where it was created, given its memory, or destroyed
    history: tuple[str, ...] = ()
    advice: str = ""  # the rule in a sentence; empty where `text` has it
    fix: str = ""  # the smallest change of the program that ends the violation; empty where `text` says it
    process: str = ""  # the process in which it happened, in words; empty for this one
    test: str = ""  # the test that started that process; empty for none

    def __str__(self) -> str:
        return f"{self.process}: {self.text}" if self.process else self.text

    @property
    def long_repr(self) -> str:
        """The violation in several lines, with both stacks and the history of the handle."""
        lines = [str(self)]
        lines += ["called from:", *(f"  {line}" for line in self.python_stack)] if self.python_stack else []
        lines += self.history
        lines += ["native frames:", *(f"  {line}" for line in self.native_stack)] if self.native_stack else []
        return "\n".join([*lines, self.advice] if self.advice else lines)
