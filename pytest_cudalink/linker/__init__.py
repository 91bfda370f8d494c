"""The bundled linker: compile with NVRTC, link with nvJitLink or the driver, chosen per linker by a published table.

Names and signatures follow ``cuda.core``, which users know. Importing this package loads no CUDA library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..base.laziness import names_of

if TYPE_CHECKING:
    from ..probes.libcuda import DriverNotFoundError as DriverNotFoundError
    from ._linker import Linker as Linker
    from .dispatch import Decision as Decision
    from .dispatch import choose_backend as choose_backend
    from .dispatch import explain as explain
    from .errors import CompileError as CompileError
    from .errors import LinkError as LinkError
    from .errors import VersionSkewError as VersionSkewError
    from .objectcode import ObjectCode as ObjectCode
    from .options import LinkerOptions as LinkerOptions
    from .options import ProgramOptions as ProgramOptions
    from .program import Program as Program
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
