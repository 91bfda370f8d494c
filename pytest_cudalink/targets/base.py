"""What a library must offer to be steered, recipes that force its releases, the bundled linker as a target; links."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, Literal, NamedTuple, cast

from ..base.laziness import cached_property
from ..environment.wheels import installed_wheel

Backend = Literal["driver", "nvjitlink"]


class BackendChoice(NamedTuple):
    """A backend, and who chose it."""

    backend: Backend | None = None  # "driver" or "nvjitlink"; None: the library decides
    source: str = "default"  # who chose it, in the words that messages use, such as "the fixture force_backend"


# -- links, as hooks and records receive them


@dataclass(frozen=True)
class LinkInput:
    """One input of a link."""

    kind: str  # "ptx", "ltoir", "cubin", "fatbin", "object" or "library"
    name: str = ""
    code: bytes | None = field(default=None, repr=False)  # None when the library read a file itself

    @cached_property
    def producer(self) -> str | None:
        """The CUDA release that made the bytes, as `pytest_cudalink.artifacts` reads it, on first use."""
        if self.code is None:
            return None
        from .. import artifacts

        artifact = artifacts.inspect(self.code)
        return None if artifact.producer is None else str(artifact.producer)


@dataclass(frozen=True)
class LinkEvent:
    """One link, finished or refused."""

    target: str  # the library that linked
    backend: str  # "driver" or "nvjitlink"; "unknown" if the link failed before its backend was known
    inputs: tuple[LinkInput, ...]
    duration: float  # seconds, from the construction of the linker to the image
    error: BaseException | None = None  # the error with which the link failed
    nodeid: str | None = None  # the test; None outside tests
    forced: str | None = None  # who forced the backend; None if the library chose
    _driver: Callable[[], str | None] = field(default=lambda: None, repr=False)
    _nvjitlink: Callable[[], str | None] = field(default=lambda: None, repr=False)

    @cached_property
    def driver(self) -> str | None:
        """The CUDA version of the driver, read on first use."""
        return self._driver()

    @cached_property
    def nvjitlink(self) -> str | None:
        """The version of nvJitLink, read on first use."""
        return self._nvjitlink()

    @property
    def result(self) -> str:
        """``"ok"``, or the error's type and code: ``"LinkError: NVJITLINK_ERROR_PTX_COMPILE"``."""
        return "ok" if self.error is None else outcome(self.error)

    @property
    def message(self) -> str:
        """The first line of the error, at most 300 characters."""
        return "" if self.error is None else (str(self.error).strip().splitlines() or [""])[0][:300]


def outcome(error: BaseException) -> str:
    """Return an error's type, and its code where it has one."""
    kind = type(error).__name__
    code = getattr(error, "code_name", "")
    word = (str(error).split() or [""])[0].rstrip(":")  # an error of cuda-bindings or cuda.core begins with it
    if not code and word.startswith(("CUDA_ERROR_", "ERROR_", "NVJITLINK_ERROR_")):
        code = word
    return f"{kind}: {code}" if code else kind


# -- targets


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
        wheel = installed_wheel(self.distribution)
        return wheel.version if wheel is not None else None

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
        raise TypeError(f"{answer!r} is not a list of targets; return [{_shown(answer)}]") from None
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
    if not isinstance(modules, tuple | list) or not all(isinstance(module, str) and module for module in modules):
        return f"{_shown(target)} has the modules {modules!r}; write their full names in a tuple: ('my_library',)"
    return ""


def _shown(target: object) -> str:
    return f"{(target if isinstance(target, type) else type(target)).__name__}()"


_LITERALS: dict[str, object] = {"none": None, "true": True, "false": False}


@dataclass(frozen=True)
class Recipe:
    """The names to set in a module to force some releases of a library."""

    target: str
    versions: str  # PEP 440 specifier of the releases that the recipe is for
    tested: str  # the releases whose wheels the recipe was tested on
    module: str  # the module that has the switch
    # for each choice, names of that module and what to set them to: "none", "true", "false", or a key of the objects
    # that the target offers
    driver: Mapping[str, str]
    nvjitlink: Mapping[str, str]
    undecided: Mapping[str, str]
    needs: Sequence[str] = ()  # further names that the module must have

    def check(self, module: ModuleType, version: str) -> None:
        """Reject a module that does not have the switch, or has another one.

        Raises StaleRecipeError names the release, what is missing, and the releases that are known.
        """
        names = dict.fromkeys([*self.undecided, *self.needs])
        missing = [name for name in names if not hasattr(module, name)]
        if missing:
            raise StaleRecipeError(self._stale(version, f"{module.__name__} has no {', '.join(missing)}"))
        unlike = [
            f"{name} = {getattr(module, name)!r}"
            for name, value in self.undecided.items()
            if value in _LITERALS and getattr(module, name) is not _LITERALS[value]
        ]
        if unlike:
            raise StaleRecipeError(self._stale(version, f"{module.__name__} starts with {', '.join(unlike)}"))

    def _stale(self, version: str, installed: str) -> str:
        return (
            f"cudalink cannot steer {self.target} {version}: {installed}, which the recipe for {self.versions} "
            f"(tested on {self.tested}) relies on. Update pytest-cudalink, install a tested release, or name the "
            "targets that are to be forced, without this one, with --cudalink-target"
        )

    def apply(self, module: ModuleType, backend: Backend | None, objects: Mapping[str, Any]) -> None:
        """Set the module's names for a backend; None sets them as they were before the library decided."""
        values = {"driver": self.driver, "nvjitlink": self.nvjitlink, None: self.undecided}[backend]
        for name, value in values.items():
            setattr(module, name, _LITERALS[value] if value in _LITERALS else objects[value])


@cache
def recipes(target: str) -> tuple[Recipe, ...]:
    """Return every recipe of a target."""
    from ..base.tables import read_matrix

    rows: list[dict[str, Any]] = read_matrix("recipes.toml").get(target, [])
    return tuple(Recipe(target=target, **row) for row in rows)


def recipe_for(target: str, version: str) -> Recipe:
    """Return the recipe for a release.

    Raises StaleRecipeError if no recipe is for that release; lists the known ones.
    """
    from packaging.specifiers import SpecifierSet

    for recipe in recipes(target):
        if SpecifierSet(recipe.versions).contains(version, prereleases=True):
            return recipe
    known = "; ".join(recipe.versions for recipe in recipes(target)) or "none"
    which = f" {version}" if version != "0" else ", which is not installed: another package brings its module"
    raise StaleRecipeError(
        f"cudalink cannot steer {target}{which}: expected {target} {known}. Install such a release, or name the "
        "targets that are to be forced, without this one, with --cudalink-target"
    )
