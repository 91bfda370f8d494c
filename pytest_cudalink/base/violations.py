"""A broken rule, whichever check noticed it: lifetimes, order, waits, or the contract of nvJitLink's calls."""

from __future__ import annotations

from typing import Final, NamedTuple

#: Parts of the file names of code that runs every test, and so tells nothing about one.
RUNNERS: Final = (
    *("/_pytest/", "/pluggy/", "/xdist/", "/execnet/", "/pytest_cudalink/", "/runpy.py", "/contextlib.py"),
    *("/bin/pytest", "/pytest/__main__.py"),
)


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
    # nvJitLink a key of `pytest_cudalink.loader.jitlink.jitlink_contract.RULES`
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
