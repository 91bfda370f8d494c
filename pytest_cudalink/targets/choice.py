"""The one type for a backend and who chose it, from the option of a run to the decision of a linker."""

from __future__ import annotations

from typing import Literal, NamedTuple

Backend = Literal["driver", "nvjitlink"]


class BackendChoice(NamedTuple):
    """A backend, and who chose it."""

    backend: Backend | None = None  # "driver" or "nvjitlink"; None: the library decides
    source: str = "default"  # who chose it, in the words that messages use, such as "the fixture force_backend"
