"""The bundled linker: compile with NVRTC, link with nvJitLink or the driver, chosen per linker by a published table.

Names and signatures follow ``cuda.core``, which users know. Importing this package loads no CUDA library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.laziness import names_of

if TYPE_CHECKING:
    from ..probes.libcuda import DriverNotFoundError
    from ._linker import Linker
    from .dispatch import Decision, choose_backend, explain
    from .errors import CompileError, LinkError, VersionSkewError
    from .objectcode import ObjectCode
    from .options import LinkerOptions, ProgramOptions
    from .program import Program
else:
    __getattr__ = names_of(
        __name__,
        {
            "..probes.libcuda": "DriverNotFoundError",
            "._linker": "Linker",
            ".dispatch": "Decision choose_backend explain",
            ".errors": "CompileError LinkError VersionSkewError",
            ".objectcode": "ObjectCode",
            ".options": "LinkerOptions ProgramOptions",
            ".program": "Program",
        },
    )

__all__ = [
    "CompileError",
    "Decision",
    "DriverNotFoundError",
    "LinkError",
    "Linker",
    "LinkerOptions",
    "ObjectCode",
    "Program",
    "ProgramOptions",
    "VersionSkewError",
    "choose_backend",
    "explain",
]
