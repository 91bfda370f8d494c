"""What other projects may implement, in a conftest or a plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..base.finding import Violation
    from ..guardrails import Verdict
    from ..guardrails.provenance import Library
    from ..targets import Choice, LinkEvent, LinkInput, Target, UnsteeredLink


def __dir__() -> list[str]:
    """Return the names of the hooks, which is what pluggy has to look at."""
    return [name for name in globals() if name.startswith("pytest_cudalink_")]


@pytest.hookspec
def pytest_cudalink_targets(config: pytest.Config) -> Sequence[Target] | None:
    """Register targets: libraries whose linking can be steered and watched.

    Called once, before anything is collected.

    Returns targets; one with the name of another replaces it.
    """


@pytest.hookspec(firstresult=True)
def pytest_cudalink_decide(
    config: pytest.Config, target: str, choice: Choice, inputs: Sequence[LinkInput] | None
) -> Choice | None:
    """Veto or change what a target is to take; the first answer that is not None counts.

    Called when a target is imported or the choice changes, with ``inputs`` None, and again for each link with its
    inputs.

    `target`: such as ``"cuda.core"``.
    `choice`: what counts without this hook: ``choice.backend`` is ``"driver"``, ``"nvjitlink"``, or None where the
    library decides.
    `inputs`: what is about to be linked.
    Returns what to take: ``Choice("driver", "why")`` changes it, ``Choice(None, "why")`` is a veto, after which the
    library decides. None: no opinion. An exception for a link fails that link.
    """


@pytest.hookspec
def pytest_cudalink_facts(config: pytest.Config) -> Mapping[str, object] | None:
    """Add facts to the header and to the ``run`` event of the records.

    Returns facts, which the header shows as text; in the records as JSON.
    """


@pytest.hookspec
def pytest_cudalink_library(config: pytest.Config, library: Library, nodeid: str | None, during: str) -> None:
    """Called for each CUDA library that a process of the run has loaded, in that process.

    Called at the end of the phase of the test, not while it is loaded; only for a run with ``--cudalink-report`` or
    ``--cudalink-provenance``, and for one that has two majors of a library.

    `library`: name, file, place, version, and what it was loaded for.
    `nodeid`: the test; None outside tests.
    `during`: the phase of the test; outside tests such as ``"during the collection of tests/test_a.py"``.
    """


@pytest.hookspec
def pytest_cudalink_link(config: pytest.Config, event: LinkEvent) -> None:
    """Called after every link of every target, in the process that performed it.

    `event`: target, backend, inputs, versions, duration, result, and the test.
    """


@pytest.hookspec
def pytest_cudalink_unsteered(config: pytest.Config, link: UnsteeredLink, nodeid: str | None) -> None:
    """Called after every link that no target steers, in the process and the thread that performed it.

    `link`: what linked, the call, the code that made it, and the backend.
    `nodeid`: the test; None outside tests.
    """


@pytest.hookspec
def pytest_cudalink_unsupported(config: pytest.Config, target: str, reason: str) -> None:
    """Called for a target that was imported and cannot be steered, where nothing forces it.

    `target`: name of the target; its links are not watched.
    `reason`: which part of the library is not as the target expects.
    """


@pytest.hookspec
def pytest_cudalink_verdict(config: pytest.Config, verdict: Verdict, nodeid: str | None) -> None:
    """Called after every verdict of the guard rails, in the process that looked a library up.

    Verdicts from before the session begin with the session.

    `verdict`: a finding, whose kind is the rule; severity "note" if the rule holds.
    `nodeid`: the test; None outside tests.
    """


@pytest.hookspec
def pytest_cudalink_violation(
    config: pytest.Config, violation: Violation, nodeid: str | None, maker: str | None
) -> None:
    """Called for every violation that an emulated driver or the checks of nvJitLink noticed, in its process.

    Called at the end of the phase of the test, not inside the call.

    `violation`: the check that noticed it, the rule, how it was broken, the function, and both stacks.
    `nodeid`: the test during which it happened; None outside tests.
    `maker`: the test that created the link state or handle; None where no test did.
    """
