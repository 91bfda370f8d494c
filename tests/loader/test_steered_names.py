"""Constants that start-up uses, against what they stand for."""

from pytest_cudalink.loader.imports import STEERED
from pytest_cudalink.plugin.watch.backends import TARGETS
from pytest_cudalink.targets.base import Bundled
from pytest_cudalink.targets.bindings import SEAMS
from pytest_cudalink.targets.cuda_core import CudaCore
from pytest_cudalink.targets.numba_cuda import NumbaCuda, NumbaCudaMlir

OWN = (Bundled, CudaCore, NumbaCuda, NumbaCudaMlir)


def test_every_steered_module_wakes_the_steering() -> None:
    """What targets, fakes and seams watch is what start-up watches for them."""
    watched = [name for target in OWN for name in target.modules]
    assert sorted(STEERED) == sorted({*watched, *SEAMS})


def test_the_header_knows_every_target() -> None:
    """The targets that a header names without importing them are those of the plugin."""
    assert {target.name: target.distribution for target in OWN} == TARGETS
