"""What the run forces on the targets, what they linked, and what linked otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

import pytest

from ...base.finding import Finding
from ...loader.imports import STEERED, postpone, start_postponed
from ..records import LEDGER
from ..run import Run, RunPart
from ..settings import Settings
from .check import Check, Phase

if TYPE_CHECKING:
    from ...targets import Choice, ForcedBackendError, LinkInput, Target, UnsteeredLink
    from ...targets.base import Backend
    from ...targets.steering import Steering

_SECTION: Final = "cudalink forced backend"
#: The plugin's targets, each with the package that has its version; the header names them without importing them.
TARGETS: Final = {
    "bundled": "pytest-cudalink",
    "cuda.core": "cuda-core",
    "numba-cuda": "numba-cuda",
    "numba-cuda-mlir": "numba-cuda-mlir",
}


def steering(run: Run) -> Steering:
    """Return the steering of a run; the first call starts it."""
    part = run.get(Backends)
    if part is None or not part.begun:
        start_postponed()  # that of a run around this one comes first: the last one to start is the active one
        part = run.part(Backends)
        part.begin()
    return part.steering


class Backends(RunPart):
    """The targets of a run, steered from `begin` on: registered first, because a stale recipe raises an error there.

    `begun`: whether `begin` has come to its end: an exception may interrupt it, and the next use begins again.
    Raises pytest.UsageError if a hook registers what is not a target, or the setting names targets that do not exist.
    """

    def __init__(self, run: Run) -> None:
        from ...targets.bindings import SEAMS
        from ...targets.steering import Steering

        self._run = run
        self.begun = False
        targets, config = _targets(run.config), run.config
        self.steering = Steering(
            targets=targets,
            only=_only(run.settings, list(targets)),
            decide=self._decide,
            seams=SEAMS,
            on_link=lambda event: config.hook.pytest_cudalink_link(config=config, event=event),
            on_unsupported=lambda target, reason: config.hook.pytest_cudalink_unsupported(
                config=config, target=target, reason=reason
            ),
            on_mismatch=self._mismatched,
            on_stale=self._stale,
            on_unsteered=self._unsteered,
            nodeid=lambda: run.nodeid,
        )

    def begin(self) -> None:
        """Force what the run asks for, on libraries that are imported now and later; once."""
        if self.begun:
            return
        self._run.config.add_cleanup(self.steering.stop)
        self.steering.start(_choice(self._run.settings))
        self.begun = True

    def _decide(self, target: str, choice: Choice, inputs: tuple[LinkInput, ...] | None) -> Choice:
        """Let hooks veto or change a choice."""
        config = self._run.config
        hook = config.hook.pytest_cudalink_decide
        if not hook.get_hookimpls():
            return choice
        answer: Choice | None = hook(config=config, target=target, choice=choice, inputs=inputs)
        return choice if answer is None else answer

    def _unsteered(self, link: UnsteeredLink, choice: Choice) -> None:
        from ..conditions import unsteered

        run = self._run
        link = replace(link, where=unsteered.shortened(link.where, run.config.invocation_params.dir))
        run.config.hook.pytest_cudalink_unsteered(config=run.config, link=link, nodeid=link.nodeid)
        mode = run.settings.unsteered.value
        if not link.follows and mode != "allow":
            run.part(Mismatches).add(unsteered.problem(link, choice), warn=mode == "warn")

    def _mismatched(self, error: ForcedBackendError) -> None:
        with self._run.lock:
            self._run.part(Mismatches).pending[str(error)] += 1

    def _stale(self, target: str, error: Exception) -> None:
        from ...targets import StaleRecipeError

        text = str(error)
        if not isinstance(error, StaleRecipeError):  # a project's own target
            text = f"cudalink cannot steer {target}: its target raised {type(error).__name__}: {error}"
        self._run.part(LEDGER).here.unsupported[target] = text
        self._run.part(Mismatches).add(text, once=True)


class UnsteeredLinkWarning(UserWarning):
    """Code that no target steers linked on another backend than the forced one, under ``--cudalink-unsteered=warn``."""


class Mismatches(Check):
    """There once something linked otherwise than it was forced: no test passes over that.

    The error may be caught by the code that linked, expected by the test, or raised where no test runs; the next report
    of a phase fails with it then, or the run.

    `pending`: how often each problem occurred that no report has shown.
    """

    category = UnsteeredLinkWarning

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.pending: Counter[str] = Counter()
        self._outside: Counter[str] = Counter()
        self._warnings: Counter[str] = Counter()

    def add(self, text: str, *, warn: bool = False, once: bool = False) -> None:
        """Fail the current test with a problem, or warn of it there; outside of tests, the run.

        `once`: do not say how often it occurred: each try to import a library fails in the same way.
        """
        run = self._run
        if run.is_isolated and not run.collected:
            return  # the process that waits for this one has collected, too
        with run.lock:
            problems = self._warnings if warn else self._outside if run.nodeid is None else self.pending
            problems[text] = 1 if once else problems[text] + 1

    def sections(self, phase: Phase) -> Iterator[Finding]:
        yield from self._warned()
        shown, self.pending = self.pending, Counter()
        failed = phase.report.failed
        if text := "\n".join(
            problem for problem in _with_number(shown) if not failed or problem not in phase.report.longreprtext
        ):
            yield Finding("error", text, kind=_SECTION)

    def _warned(self) -> list[Finding]:
        warned, self._warnings = self._warnings, Counter()
        return [Finding("warning", text) for text in _with_number(warned)]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Leave out of the summary what the error of a collected file shows."""
        if report.failed:
            for text in [text for text in self._outside if text in report.longreprtext]:
                del self._outside[text]

    def finish(self) -> list[Finding]:
        """Fail the run for those that no report will show, or warn of them."""
        texts = [*_with_number(self.pending), *_with_number(self._outside)]
        return [*(Finding("error", text) for text in texts), *self._warned()]


def _with_number(problems: Counter[str]) -> list[str]:
    return [text if number == 1 else f"{text} ({number} times)" for text, number in problems.items()]


def start(run: Run) -> None:
    """Steer when a library is imported, or the bundled one links; at once where there may be other targets."""
    settings, config = run.settings, run.config
    if settings.target.source != "default" or config.hook.pytest_cudalink_targets.get_hookimpls():
        steering(run)
    else:
        config.add_cleanup(postpone(lambda: run.part(Backends).begin(), until=STEERED))
    if settings.policy.source != "default":
        from ...linker import policy

        undo = ExitStack()
        undo.callback(policy.set_default_policy, policy.set_default_policy(settings.policy.value))
        config.add_cleanup(undo.close)


def _choice(settings: Settings) -> Choice:
    from ...targets import Choice

    backend = settings.backend
    if backend.value not in ("driver", "nvjitlink"):
        return Choice(None, option_of(settings) if backend.value == "each" else backend.source)
    return Choice(cast("Backend", backend.value), option_of(settings))


def option_of(settings: Settings) -> str:
    """Return the source of a backend that the option chose."""
    return f"--force-backend, from {settings.backend.source}"


def _targets(config: pytest.Config) -> dict[str, Target]:
    """Return the plugin's targets and those that hooks register, by name."""
    from ...targets.base import Bundled, registered
    from ...targets.cuda_core import CudaCore
    from ...targets.numba_cuda import NumbaCuda, NumbaCudaMlir

    own: tuple[Target, ...] = (Bundled(), CudaCore(), NumbaCuda(), NumbaCudaMlir())
    targets = {target.name: target for target in own}
    for added in reversed(config.hook.pytest_cudalink_targets(config=config)):
        try:
            targets.update({target.name: target for target in registered(added)})
        except TypeError as error:
            raise pytest.UsageError(f"cudalink: the hook pytest_cudalink_targets: {error}") from error
    return targets


def _only(settings: Settings, known: Sequence[str]) -> frozenset[str] | None:
    """Return the names of the targets that may be forced; None for all."""
    value = settings.target.value
    if value == "all":
        return None
    names = [name.strip() for name in value.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        wrong = ", ".join(map(repr, unknown)) or "nothing"
        raise pytest.UsageError(
            f"cudalink: --cudalink-target is {value!r} (from {settings.target.source}); {wrong} is not a target, "
            f"expected all or some of {', '.join(known)}"
        )
    return frozenset(names)
