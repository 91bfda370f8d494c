"""The ``cudalink`` marker and the parametrization of ``dispatch_case``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from .settings import POLICIES

__all__ = ["MARKER", "check", "parametrize", "register"]

#: Signature and explanation, as ``pytest --markers`` shows them.
MARKER = (
    "cudalink(*, policy='strict-major'): "
    "policy names the dispatch table whose cases the fixture dispatch_case runs through: "
    f"{', '.join(POLICIES)}."
)

_KEYWORDS = frozenset({"policy"})


def register(config: pytest.Config) -> None:
    """Make the marker known, so that ``--strict-markers`` accepts it."""
    config.addinivalue_line("markers", MARKER)


def _faults(mark: pytest.Mark) -> Iterable[str]:
    """What is wrong with one use of the marker."""
    if wrong := [repr(value) for value in mark.args] + sorted(set(mark.kwargs) - _KEYWORDS):
        yield f"takes the keywords {', '.join(sorted(_KEYWORDS))}, got {', '.join(wrong)}"
    if "policy" in mark.kwargs and mark.kwargs["policy"] not in POLICIES:
        yield f"policy {mark.kwargs['policy']!r} is unknown; known: {', '.join(POLICIES)}"


def check(items: Iterable[pytest.Item]) -> None:
    """Refuse wrong markers once everything is collected.

    Raises
    ------
    pytest.UsageError
        Naming each test and what is wrong with its marker.
    """
    found: dict[str, None] = {}
    for item in items:
        for mark in item.iter_markers("cudalink"):
            # one line for a test, not one for each of its parameters
            name = item.nodeid.partition("[")[0]
            found.update(dict.fromkeys(f"{name}: @pytest.mark.cudalink {fault}" for fault in _faults(mark)))
    if found:
        raise pytest.UsageError("\n".join(found))


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Expand ``dispatch_case`` over every concrete case of the policy's table."""
    if "dispatch_case" not in metafunc.fixturenames:
        return
    from .linker import dispatch

    policy: Any = dispatch.DEFAULT_POLICY
    for mark in metafunc.definition.iter_markers("cudalink"):
        policy = mark.kwargs.get("policy", policy)
        break
    # a wrong name is reported by `check`, where it can be a usage error
    expanded = list(dispatch.cases(policy if policy in POLICIES else dispatch.DEFAULT_POLICY))
    metafunc.parametrize("dispatch_case", expanded, indirect=True, ids=[case.id for case in expanded])
