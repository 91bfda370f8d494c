"""Audit a wheel: which CUDA libraries it needs, of which releases, and whether its requirements bring them.

`audit` reads files and opens none of them as a library. Which CUDA majors a wheel loads with follows from what the
dynamic loader needs before a program runs: needed libraries and symbol versions. Libraries that a program opens itself,
as the stubs do, do not count for that; they count among the needs (`needs`), where each kind of evidence is kept apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import keep_old_paths
from ..base.laziness import names_of

if TYPE_CHECKING:
    from ..compat.libraries import MAJORS as MAJORS
    from ..environment.installed import AuditError as AuditError
    from .needs import Need as Need
    from .wheel import Audit as Audit
    from .wheel import AuditFinding as AuditFinding
    from .wheel import Dependency as Dependency
    from .wheel import FileAudit as FileAudit
    from .wheel import audit as audit
else:
    __getattr__ = names_of(
        __name__,
        {
            ".wheel": "Audit AuditFinding Dependency FileAudit audit",
            "..compat.libraries": "MAJORS",
            ".needs": "Need",
            "..environment.installed": "AuditError",
        },
    )

keep_old_paths(__name__)
