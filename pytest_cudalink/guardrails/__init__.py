"""Compatibility guard rails: look-ups of cuda.pathfinder that are refused before anything is loaded that does not fit.

``install()`` routes cuda.pathfinder's public functions through one guard for the whole process; a
`CompatibilityGuardRails` of one's own checks what is looked up through it. Importing this loads no CUDA library.
"""

from __future__ import annotations

from .errors import (
    CompatibilityCheckError,
    CompatibilityInsufficientMetadataError,
    CompatibilityWarning,
    DriverCtkCompatibilityError,
)
from .guard import (
    DRIVER_COMPATIBILITY_VARIABLE,
    MODE_VARIABLE,
    MODES,
    CompatibilityGuardRails,
)
from .items import Item, Verdict
from .pipelines import Pipeline
from .routing import Routing, declare_pipeline, install, installed, process_wide_guard_rails, uninstall

__all__ = [
    "DRIVER_COMPATIBILITY_VARIABLE",
    "MODES",
    "MODE_VARIABLE",
    "CompatibilityCheckError",
    "CompatibilityGuardRails",
    "CompatibilityInsufficientMetadataError",
    "CompatibilityWarning",
    "DriverCtkCompatibilityError",
    "Item",
    "Pipeline",
    "Routing",
    "Verdict",
    "declare_pipeline",
    "install",
    "installed",
    "process_wide_guard_rails",
    "uninstall",
]
