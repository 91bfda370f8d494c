"""The check of nvJitLink's contract: calls on handles that break it, and handles that a test leaves behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...base.finding import Finding, Violation
from ...loader.jitlink import jitlink_contract
from ..parts import JITLINK_CONTRACT, LEDGER
from .check import Phase
from .violation_check import ViolationCheck

if TYPE_CHECKING:
    from ..run import Run


def watch(run: Run) -> None:
    """Let every call be checked from now on, if the run wants that and this system can; `start` makes the check."""
    mode = run.settings.jitlink_contract.value
    if mode != "off" and (contract := jitlink_contract.start()) is not None:
        contract.take()  # what another run in this process has left
        contract.check(strict=mode == "strict")
        run.config.add_cleanup(contract.stop)


def start(run: Run) -> None:
    """Report the violations since `watch`."""
    if run.settings.jitlink_contract.value != "off" and jitlink_contract.start() is not None:
        run.part(JITLINK_CONTRACT)


class JitLinkContractCheck(ViolationCheck):
    """Reports the violations of a run in a process where they can be seen."""

    name, title, handle = "jitlink-contract", "cudalink nvJitLink contract", "handle"

    def __init__(self, run: Run) -> None:
        contract = jitlink_contract.start()
        assert contract is not None  # (`start` has looked)
        super().__init__(run, run.settings.jitlink_contract.value)
        self._contract = contract
        self._waiting: list[Violation] = []
        self._notes: list[str] = []
        self._before = contract.handle_count

    @property
    def violations(self) -> tuple[Violation, ...]:
        self._waiting += self._contract.take()
        return tuple(self._waiting)

    def consume(self, violations: tuple[Violation, ...]) -> None:
        self._waiting = [one for one in self._waiting if one not in violations]

    @property
    def handle_count(self) -> int:
        return self._contract.handle_count

    def _seen_outside(self, text: str) -> Finding:
        if self.mode == "report":
            return Finding("warning", text, why=f"cudalink: outside of tests: {text}", kind=self.title)
        return super()._seen_outside(text)

    def begin(self, nodeid: str) -> None:
        self._before = self.handle_count
        super().begin(nodeid)

    def _alive(self) -> list[str]:
        return self._contract.alive(self._before) if self.handle_count != self._before else []

    def leaves(self) -> bool:
        return bool(self._alive())

    def look(self, phase: Phase) -> None:
        super().look(phase)
        # what had to be destroyed has been: see `leaves`
        if phase.when == "teardown" and (handles := self._alive()):
            self._notes = [f"{one} and not destroyed" for one in handles]
            self._run.part(LEDGER).test.undestroyed = len(handles)

    def sections(self, phase: Phase) -> Iterable[Finding]:
        notes, self._notes = self._notes, []
        shown = [Finding("note", "\n".join(notes), kind=f"{self.title}, notes")] if notes else []
        return [*shown, *super().sections(phase)]
