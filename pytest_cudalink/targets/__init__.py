"""Targets: the libraries whose linking can be steered and watched.

A project adds its own with the hook ``pytest_cudalink_targets``. Importing this imports none of the libraries.
"""

from __future__ import annotations

from .base import ForcedBackendError, StaleRecipeError, Target
from .events import LinkEvent, LinkInput
from .steering import Choice, Watch, watch

__all__ = [
    "Choice",
    "ForcedBackendError",
    "LinkEvent",
    "LinkInput",
    "StaleRecipeError",
    "Target",
    "Watch",
    "watch",
]
