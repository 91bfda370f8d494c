"""One test: what its markers say together, its phases, and the driver that it lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import pytest

if TYPE_CHECKING:
    from ...environment.requirements import Raises, Requirement
    from ...targets.base import Backend


class MarkerPlan(NamedTuple):
    """The result of all ``cudalink`` markers of a test; the nearest marker wins for each keyword."""

    requirements: tuple[Requirement, ...] = ()
    otherwise: Literal["skip", "xfail"] | Raises = "skip"
    backend: Backend | None = None
    isolate: bool = False
    #: Symbols of the driver functions that may wait in the test, where no other may.
    no_wait: frozenset[str] | None = None
    #: Whether the backend is one of both on which ``--force-backend=each`` runs the test, and no marker names one.
    by_option: bool = False


PLAN: Final = pytest.StashKey[MarkerPlan]()
