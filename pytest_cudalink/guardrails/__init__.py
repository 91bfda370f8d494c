"""Compatibility guard rails: they refuse look-ups of cuda.pathfinder that do not fit, before a library is loaded.

``install()`` routes cuda.pathfinder's public functions through one guard for the whole process; a separate
`CompatibilityGuardRails` checks the look-ups made through it. Importing this package loads no CUDA library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import keep_old_paths
from ..base.laziness import names_of

if TYPE_CHECKING:
    from .guard import DRIVER_COMPATIBILITY_VARIABLE as DRIVER_COMPATIBILITY_VARIABLE
    from .guard import MODE_VARIABLE as MODE_VARIABLE
    from .guard import MODES as MODES
    from .guard import CompatibilityGuardRails as CompatibilityGuardRails
    from .items import CompatibilityCheckError as CompatibilityCheckError
    from .items import CompatibilityInsufficientMetadataError as CompatibilityInsufficientMetadataError
    from .items import CompatibilityWarning as CompatibilityWarning
    from .items import DriverCtkCompatibilityError as DriverCtkCompatibilityError
    from .items import Item as Item
    from .items import Verdict as Verdict
    from .pipelines import Pipeline as Pipeline
    from .routing import Routing as Routing
    from .routing import declare_pipeline as declare_pipeline
    from .routing import install as install
    from .routing import installed as installed
    from .routing import process_wide_guard_rails as process_wide_guard_rails
    from .routing import uninstall as uninstall
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

keep_old_paths(__name__)
