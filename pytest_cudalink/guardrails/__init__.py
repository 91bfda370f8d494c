"""Compatibility guard rails: they refuse look-ups of cuda.pathfinder that do not fit, before a library is loaded.

``install()`` routes cuda.pathfinder's public functions through one guard for the whole process; a separate
`CompatibilityGuardRails` checks the look-ups made through it. Importing this package loads no CUDA library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import keep_old_paths
from ..base.laziness import names_of

if TYPE_CHECKING:
    from .guard import (
        DRIVER_COMPATIBILITY_VARIABLE,
        MODE_VARIABLE,
        MODES,
        CompatibilityGuardRails,
    )
    from .items import (
        CompatibilityCheckError,
        CompatibilityInsufficientMetadataError,
        CompatibilityWarning,
        DriverCtkCompatibilityError,
        Item,
        Verdict,
    )
    from .pipelines import Pipeline
    from .routing import Routing, declare_pipeline, install, installed, process_wide_guard_rails, uninstall
else:
    __getattr__ = names_of(
        __name__,
        {
            ".guard": "DRIVER_COMPATIBILITY_VARIABLE MODE_VARIABLE MODES CompatibilityGuardRails",
            ".items": "CompatibilityCheckError CompatibilityInsufficientMetadataError CompatibilityWarning "
            "DriverCtkCompatibilityError Item Verdict",
            ".pipelines": "Pipeline",
            ".routing": "Routing declare_pipeline install installed process_wide_guard_rails uninstall",
        },
    )

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

keep_old_paths(__name__)
