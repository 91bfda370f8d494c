"""Targets: the libraries whose linking can be steered and watched.

A project adds its own with the hook ``pytest_cudalink_targets``. Importing this package imports none of the libraries.
"""

from __future__ import annotations

from .base import ForcedBackendError, StaleRecipeError, Target
from .choice import BackendChoice
from .events import LinkEvent, LinkInput
from .steering import Watch, watch
from .unsteered import UnsteeredLink

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
