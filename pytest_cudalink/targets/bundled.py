"""The bundled linker as a target."""

from __future__ import annotations

from types import ModuleType
from typing import ClassVar

from .base import Target
from .choice import Backend

__all__ = ["Bundled"]


class Bundled(Target):
    """`pytest_cudalink.linker`: each `Linker` makes its own `Watch` and takes the choice of that."""

    name: ClassVar[str] = "bundled"
    modules: ClassVar[tuple[str, ...]] = ()
    distribution: ClassVar[str | None] = "pytest-cudalink"

    def force(self, module: ModuleType, backend: Backend | None) -> None:
        """Set nothing: no module holds a switch."""
