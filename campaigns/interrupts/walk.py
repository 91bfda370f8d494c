"""Run a scenario once for each bytecode of the package that it executes, with an exception raised before that one.

A signal's exception arrives at fewer places: CPython looks for signals as it enters a function or resumes a generator,
after a call of something that is not a Python function, and when it jumps backwards (ceval.c, CHECK_EVAL_BREAKER). The
walk says of each place whether a signal can arrive there. After a call of a Python function it says so too, although no
signal can: tracing does not tell the two apart.
"""

import contextlib
import dis
import gc
import linecache
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest_cudalink

_PACKAGE = str(Path(pytest_cudalink.__file__).parent)
#: Files whose bytecodes are walked; the blocks of the package's ``with`` statements run in contextlib's.
_WALKED = (_PACKAGE, str(contextlib.__file__))
_BACKWARDS = frozenset(name for name in dis.opmap if name.startswith(("JUMP_BACKWARD", "POP_JUMP_BACKWARD")))


class Interrupt(BaseException):
    """What Ctrl-C or a test's timeout would raise."""


class Place(NamedTuple):
    """Where an exception was raised."""

    file: str  # relative to the package
    function: str
    line: int
    bytecode: str  # the one before which the exception was raised; "RESUME" as the function begins
    signal: bool  # whether a signal's exception may arrive there

    @property
    def source(self) -> str:
        """The text of the line."""
        path = self.file if self.file.startswith("/") else f"{_PACKAGE}/{self.file}"
        return linecache.getline(path, self.line).strip()

    def __str__(self) -> str:
        kind = "signal" if self.signal else "bytecode"
        return f"{self.file}:{self.line} in {self.function}, {kind}, before {self.bytecode}: {self.source}"


@cache
def _bytecodes(code: CodeType) -> dict[int, tuple[str, bool]]:
    """Return name, and whether a signal may arrive, of each bytecode by its offset."""
    opcodes, before, at = {}, "", 0
    handlers = getattr(dis, "_parse_exception_table")(code)  # noqa: B009 (unknown to mypy)

    def handler(offset: int) -> int | None:
        return next((handler.target for handler in handlers if handler.start <= offset < handler.end), None)

    for instruction in dis.get_instructions(code):
        # a signal's exception comes from the call: the next bytecode shows the same only under the same handler
        called = before.startswith("CALL") and handler(at) == handler(instruction.offset)
        opcodes[instruction.offset] = instruction.opname, called or instruction.opname in _BACKWARDS
        before, at = instruction.opname, instruction.offset
    return opcodes


class _Tracer:
    """Counts the events of one run, and raises at one of them."""

    def __init__(self, at: int | None) -> None:
        self.count, self._at = 0, at
        self.place: Place | None = None

    def enter(self, frame: FrameType, _event: str, _argument: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(_WALKED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self._step(frame, "RESUME", signal=True)
        return self._inside

    def _inside(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        if event == "opcode":
            name, signal = _bytecodes(frame.f_code)[frame.f_lasti]
            self._step(frame, name, signal=signal)
        return self._inside

    def _step(self, frame: FrameType, name: str, *, signal: bool) -> None:
        number, self.count = self.count, self.count + 1
        if number == self._at:
            code = frame.f_code
            file = code.co_filename.removeprefix(_PACKAGE + "/")
            self.place = Place(file, code.co_qualname, frame.f_lineno or code.co_firstlineno, name, signal)
            raise Interrupt


class Walk:
    """The walk over one scenario.

    `run`: does the work.
    `look`: returns what there is outside of the scenario, by name; compared before and after.
    `check`: raises AssertionError if the next link does not work.
    `begin`: called before each run, untraced.
    `repair`: opens the locks that are held, so that the next link does not wait for ever.
    `failures`: each place at which something was left behind, and what.
    `walked`, `signals`: number of the bytecodes that were walked, and of those at which a signal can arrive.
    `sound`: whether nothing is left of the failures, so that the walk may go on in this process.
    """

    def __init__(
        self,
        run: Callable[[], object],
        look: Callable[[], dict[str, object]],
        check: Callable[[], object],
        begin: Callable[[], object] = lambda: None,
        repair: Callable[[], object] = lambda: None,
    ) -> None:
        self._run, self._look, self._check, self._begin, self._repair = run, look, check, begin, repair
        self.failures: list[tuple[Place, str]] = []
        self.walked = self.signals = 0
        self.sound = True

    def count(self) -> int:
        """Return the number of bytecodes of an undisturbed run, which must leave nothing behind either."""
        for _ in range(3):  # caches fill
            self._begin()
            self._run()
        gc.collect()
        gc.freeze()  # what is garbage afterwards is collected in no time
        self._begin()
        before = self._look()
        tracer, _, _ = self._traced(None)
        gc.collect()
        left = _differences(before, self._look())
        assert not left, left
        self._check()
        return tracer.count

    def at(self, number: int) -> bool:
        """Raise at one bytecode, and note what is left behind; return whether the run came so far."""
        self._begin()
        before = self._look()
        tracer, problem, ignored = self._traced(number)
        if tracer.place is None:
            return False
        gc.collect()
        self.walked += 1
        self.signals += tracer.place.signal
        # Python ignores an exception in a finalizer: the next link does what is left
        problem = problem or ("" if ignored else _differences(before, self._look()))
        if problem:
            self._repair()
        try:
            self._check()
        except Exception as error:  # noqa: BLE001 (each is a finding)
            problem += f"; the next link: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        after = _differences(before, self._look())
        if after and not problem:
            problem = f"after the next link: {after}"
        if problem:
            self.failures.append((tracer.place, problem.strip("; ")))
            self.sound = "; the next link" not in problem and not after
        return True

    def _traced(self, at: int | None) -> tuple[_Tracer, str, bool]:
        """Run with an interrupt; return also another error, and whether Python ignored the interrupt."""
        tracer, problem, ignored = _Tracer(at), "", True
        # Python 3.12 traces bytecodes from a function's first call on only if a frame asked for them before
        sys._getframe().f_trace_opcodes = True
        sys.settrace(tracer.enter)
        try:
            self._run()
        except Interrupt:
            ignored = False
        except Exception as error:  # noqa: BLE001 (the interrupt must not become another error)
            problem = f"{type(error).__name__} instead of the interrupt: {error}"
        finally:
            sys.settrace(None)
        return tracer, problem, ignored


def _differences(before: dict[str, object], after: dict[str, object]) -> str:
    return "; ".join(f"{name}: {before[name]} -> {after[name]}" for name in before if before[name] != after[name])
