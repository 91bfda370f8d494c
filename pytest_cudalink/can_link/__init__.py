"""Measured compatibility: which inputs really link where, compared with what our rules predict.

For every pair of installed toolchains, the compiler of one makes PTX, LTO-IR and cubins of two small units. The
nvJitLink of the other links them, the emulated driver of the other links them, and what the first one's own nvJitLink
linked is loaded on that driver. A link counts if its image has the kernel. Every answer is compared with the
predictions: the artifact's own header, the policies of `matrices/dispatch.toml`, and the guard rails. A disagreement is
a finding. ``tools/make_atlas.py`` measures more kinds and architectures, in batches, for ``matrices/atlas.json``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..laziness import names_of

if TYPE_CHECKING:
    from .measuring import Finding, Measurement, findings, measure
else:
    __getattr__ = names_of(__name__, {".measuring": "Finding Measurement findings measure"})

__all__ = ["Finding", "Measurement", "findings", "measure"]
