"""What a library must offer to be steered, who chose a backend, and the bundled linker as such a target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from types import ModuleType
from typing import ClassVar, Literal, NamedTuple, cast

from ..compat.wheels import installed_wheel

Backend = Literal["driver", "nvjitlink"]


class BackendChoice(NamedTuple):
    """A backend, and who chose it."""

    backend: Backend | None = None  # "driver" or "nvjitlink"; None: the library decides
    source: str = "default"  # who chose it, in the words that messages use, such as "the fixture force_backend"


class StaleRecipeError(RuntimeError):
    """A library no longer has the switch that a recipe sets: a newer release has moved it."""


class ForcedBackendError(RuntimeError):
    """A library was forced to one backend, and linked with another."""


class Target(ABC):
    """A library whose linking can be steered.

    The plugin never imports the library. When the suite imports one of `modules`, the plugin hands that module to
    `install`, before its importer sees it, and then to `force`.
    """

    name: ClassVar[str]  # the name in `--cudalink-target` and in the records
    modules: ClassVar[tuple[str, ...]]  # full names of the modules that hold the switch or that are to be watched
    distribution: ClassVar[str | None] = None  # name of the package on the index, for the version in messages

    def version(self) -> str | None:
        """Return the installed version of the distribution, or None."""
        if self.distribution is None:
            return None
        found = installed_wheel(self.distribution)
        return found.version if found is not None else None

    def install(self, module: ModuleType) -> None:  # noqa: B027 (a target that only forces has nothing to wrap)
        """Prepare a module that was just imported, once for each module object; wrap here what links, with `watch`.

        Raises StaleRecipeError if the module lacks what the target relies on. That is an error if the target is to be
        forced; otherwise the module stays as it is and the summary reports it.
        """

    @abstractmethod
    def force(self, module: ModuleType, backend: Backend | None) -> None:
        """Make the library link with a backend from now on; None gives the choice back to the library.

        Called after `install`, and whenever the choice or a faked version changes: with None it must also forget what
        the library has decided before. Linkers that exist already keep the backend that they were made with.
        """

    def which_backend(self, module: ModuleType) -> str | None:
        """Return the backend that the library reports; None if it has not decided or cannot say."""
        del module
        return None


class Bundled(Target):
    """`pytest_cudalink.linker`: each `Linker` makes its own `Watch` and takes the choice of that."""

    name: ClassVar[str] = "bundled"
    modules: ClassVar[tuple[str, ...]] = ()
    distribution: ClassVar[str | None] = "pytest-cudalink"

    def force(self, module: ModuleType, backend: Backend | None) -> None:
        """Set nothing: no module holds a switch."""


def registered(answer: Iterable[object]) -> list[Target]:
    """Return the targets that an implementation of ``pytest_cudalink_targets`` returned.

    Raises TypeError names what is not a target, and says what to write.
    """
    try:
        targets = cast("list[Target]", list(answer))
    except TypeError:
        msg = f"{answer!r} is not a list of targets; return [{_shown(answer)}]"
        raise TypeError(msg) from None
    for target in targets:
        if fault := _fault(target):
            raise TypeError(fault)
    return targets


def _fault(target: object) -> str:
    if not isinstance(target, Target):
        made = isinstance(target, type) and issubclass(target, Target)
        advice = f"return an instance, {_shown(target)}" if made else "inherit from pytest_cudalink.targets.Target"
        return f"{target!r} is not a target; {advice}"
    name, modules = getattr(target, "name", None), getattr(target, "modules", None)
    if not isinstance(name, str) or not name:
        return f"{_shown(target)} has the name {name!r}; give the class a name such as 'my-library'"
    if not isinstance(modules, tuple | list) or not all(isinstance(one, str) and one for one in modules):
        return f"{_shown(target)} has the modules {modules!r}; write their full names in a tuple: ('my_library',)"
    return ""


def _shown(target: object) -> str:
    return f"{(target if isinstance(target, type) else type(target)).__name__}()"
