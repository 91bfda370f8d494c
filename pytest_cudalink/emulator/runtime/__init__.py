"""The CUDA runtime on an emulated driver: what ``cuda.bindings.runtime`` asks is answered by the driver.

A run whose tests import neither that module nor ``multiprocessing`` pays for two names of the import watch alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING

from ...loader.imports import ImportWatch

if TYPE_CHECKING:
    from ..control import DriverControl


def serve(control: DriverControl) -> Callable[[], None]:
    """Answer the functions of ``cuda.bindings.runtime`` from now on, even if it is imported later.

    Processes that multiprocessing starts answer them too.

    `control`: the emulated driver of this process.
    Returns what restores the functions.
    """
    before: list[tuple[ModuleType, str, object]] = []

    def replace(module: ModuleType, name: str, function: object) -> None:
        before.append((module, name, getattr(module, name)))
        setattr(module, name, function)

    def replace_runtime(module: ModuleType) -> None:
        try:
            from cuda.bindings import driver  # part of the same package
        except ImportError:
            return
        from .cuda_runtime import Runtime

        for name, function in Runtime(module, driver, control.refuse).functions().items():
            replace(module, name, function)

    def reach_children(module: ModuleType) -> None:
        original = module.get_preparation_data
        # a child unpickles this before its program, and ignores keys that it does not know
        prepare = wraps(original)(lambda name: {**original(name), "cudalink": _InChild()})
        replace(module, "get_preparation_data", prepare)

    def undo() -> None:
        for watch in watches:
            watch.stop()
        for module, name, function in reversed(before):
            setattr(module, name, function)

    watches = ImportWatch(replace_runtime), ImportWatch(reach_children)
    for watch, module in zip(watches, ("cuda.bindings.runtime", "multiprocessing.spawn"), strict=True):
        watch.watch([module])
    return undo


class _InChild:
    """Answers the runtime's functions in the process that unpickles it."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _serve_in_child, ()


def _serve_in_child() -> None:
    from .. import preload

    present = preload.emulated_driver()
    if present is not None:
        serve(present)
