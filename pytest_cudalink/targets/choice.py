"""The one type for a backend and who chose it, from the option of a run to the decision of a linker."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Backend", "BackendChoice"]

Backend = Literal["driver", "nvjitlink"]


class BackendChoice(NamedTuple):
    """A backend, and who chose it.

    Attributes
    ----------
    backend : str or None
        ``"driver"`` or ``"nvjitlink"``; None: the library decides.
    source : str
        Who chose it, in the words that messages use, such as ``"the fixture force_backend"``.
    """

    backend: Backend | None = None
    source: str = "default"
