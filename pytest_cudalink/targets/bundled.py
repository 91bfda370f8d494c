"""The bundled linker as a target."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from .base import Backend, Target
from .events import LinkInput
from .steering import Watch, current

__all__ = ["Bundled"]


class Bundled(Target):
    """`pytest_cudalink.linker`: each linker asks what is forced, and lets itself be watched."""

    name: ClassVar[str] = "bundled"
    modules: ClassVar[tuple[str, ...]] = ("pytest_cudalink.linker.forcing",)
    distribution: ClassVar[str | None] = "pytest-cudalink"

    def install(self, module: ModuleType) -> None:
        """Have every linker watched."""

        def watched(inputs: Sequence[tuple[str, str, bytes]]) -> _Watch | None:
            return _Watch(module, inputs) if current() else None

        module.set_watcher(watched)

    def force(self, module: ModuleType, backend: Backend | None) -> None:
        """Set what `pytest_cudalink.linker.forcing` answers."""
        run = current()
        module.set_forced(module.Forced(backend, run.choice.source if run else "") if backend else None)


class _Watch(Watch):
    """A watch that also says what is forced for this linker."""

    def __init__(self, module: ModuleType, inputs: Sequence[tuple[str, str, bytes]]) -> None:
        super().__init__(Bundled.name, (LinkInput(kind, name, code) for kind, name, code in inputs))
        self.forced: Any = module.forced()
        standing = self.forced.backend if self.forced else None
        run = current()
        usual = run.wanted(Bundled.name) if run else self.choice
        if standing != usual.backend:
            self.chose_itself("pytest_cudalink.linker.forcing")  # set there by hand
        elif standing != self.choice.backend:  # a hook has another answer for this link
            self.forced = module.Forced(self.choice.backend, self.choice.source) if self.choice.backend else None
