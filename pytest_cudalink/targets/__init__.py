"""Targets: the libraries whose linking can be steered and watched.

A project adds its own with the hook ``pytest_cudalink_targets``. Importing this package imports none of the libraries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.laziness import names_of
from .base import BackendChoice

if TYPE_CHECKING:
    from .base import ForcedBackendError, LinkEvent, LinkInput, StaleRecipeError, Target
    from .steering import UnsteeredLink, Watch, watch
else:
    __getattr__ = names_of(
        __name__,
        {
            ".base": "ForcedBackendError LinkEvent LinkInput StaleRecipeError Target",
            ".steering": "UnsteeredLink Watch watch",
        },
    )

__all__ = [
    "BackendChoice",
    "Choice",
    "ForcedBackendError",
    "LinkEvent",
    "LinkInput",
    "StaleRecipeError",
    "Target",
    "UnsteeredLink",
    "Watch",
    "watch",
]

#: The short name of `BackendChoice`, for hooks: ``Choice("driver", "why")``.
Choice = BackendChoice
