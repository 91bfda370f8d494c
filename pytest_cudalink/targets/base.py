"""What a library must offer to be steered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from importlib import metadata
from types import ModuleType
from typing import ClassVar, Literal, cast

__all__ = ["Backend", "ForcedBackendError", "StaleRecipeError", "Target", "registered"]

Backend = Literal["driver", "nvjitlink"]


class StaleRecipeError(RuntimeError):
    """A library no longer has the switch that a recipe knows: a newer release has moved it."""


class ForcedBackendError(RuntimeError):
    """A library was told to link with one backend, and linked with another."""


class Target(ABC):
    """A library whose linking can be steered.

    The library is never imported by the plugin. When the suite imports one of `modules`, that module is handed to
    `install`, before anybody else sees it, and then to `force`.

    Attributes
    ----------
    name : str
        As ``--cudalink-target`` and the records have it.
    modules : tuple of str
        Full names of the modules that hold the switch or that are to be watched.
    distribution : str or None
        Name of the package on the index, for the version in messages.
    """

    name: ClassVar[str]
    modules: ClassVar[tuple[str, ...]]
    distribution: ClassVar[str | None] = None

    def version(self) -> str | None:
        """Installed version of the distribution, or None."""
        if self.distribution is None:
            return None
        try:
            return metadata.version(self.distribution)
        except metadata.PackageNotFoundError:
            return None

    def install(self, module: ModuleType) -> None:  # noqa: B027 (a target that only forces has nothing to wrap)
        """Prepare a module that was just imported, once for each module object; wrap here what links, with `watch`.

        Raises
        ------
        StaleRecipeError
            If the module does not have what the target relies on: an error where it is to be forced, else the module is
            left alone and the summary says so.
        """

    @abstractmethod
    def force(self, module: ModuleType, backend: Backend | None) -> None:
        """Make the library link with a backend from now on; None gives the choice back to it.

        Called after `install`, and whenever the choice or a faked version changes: with None it must also forget what
        the library has decided before. Linkers that live keep the backend that they were made with.
        """

    def which_backend(self, module: ModuleType) -> str | None:
        """Ask the library which backend it takes; None when it has not decided or cannot say."""
        del module
        return None


def registered(answer: Iterable[object]) -> list[Target]:
    """What an implementation of ``pytest_cudalink_targets`` returned, if it is targets.

    Raises
    ------
    TypeError
        Says what is no target, and what to write.
    """
    try:
        targets = cast("list[Target]", list(answer))
    except TypeError:
        msg = f"{answer!r} is no list of targets; return [{_shown(answer)}]"
        raise TypeError(msg) from None
    for target in targets:
        if fault := _fault(target):
            raise TypeError(fault)
    return targets


def _fault(target: object) -> str:
    if not isinstance(target, Target):
        made = isinstance(target, type) and issubclass(target, Target)
        advice = f"return an instance, {_shown(target)}" if made else "inherit from pytest_cudalink.targets.Target"
        return f"{target!r} is no target; {advice}"
    name, modules = getattr(target, "name", None), getattr(target, "modules", None)
    if not isinstance(name, str) or not name:
        return f"{_shown(target)} has the name {name!r}; give the class a name such as 'my-library'"
    if not isinstance(modules, tuple | list) or not all(isinstance(one, str) and one for one in modules):
        return f"{_shown(target)} has the modules {modules!r}; write their full names in a tuple: ('my_library',)"
    return ""


def _shown(target: object) -> str:
    return f"{(target if isinstance(target, type) else type(target)).__name__}()"
