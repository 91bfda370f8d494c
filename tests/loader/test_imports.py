"""Calling back when a module is imported, and calls that are postponed until then."""

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType
from unittest.mock import Mock

import pytest

from pytest_cudalink.loader.imports import STEERED, ImportWatch, held_starts, postpone, start_postponed
from pytest_cudalink.plugin.watch.backends import TARGETS
from pytest_cudalink.targets.base import Bundled
from pytest_cudalink.targets.bindings import SEAMS
from pytest_cudalink.targets.cuda_core import CudaCore
from pytest_cudalink.targets.numba_cuda import NumbaCuda, NumbaCudaMlir


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package on the path: ``watched.inner`` and ``watched.other``."""
    folder = tmp_path / "watched"
    folder.mkdir()
    (folder / "__init__.py").write_text("ORDER = ['package']\n")
    (folder / "inner.py").write_text("from watched import ORDER\nORDER.append('inner')\n")
    (folder / "other.py").write_text("from watched.inner import ORDER\nORDER.append('other')\n")
    (folder / "broken.py").write_text("raise RuntimeError('broken')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "watched"]:
        del sys.modules[name]


@contextmanager
def watching(callback: Callable[[ModuleType], object], *names: str) -> Iterator[ImportWatch]:
    """A watch of some modules, until the end of the block."""
    watch = ImportWatch(callback)
    watch.watch(names)
    try:
        yield watch
    finally:
        watch.stop()


def test_called_before_the_importer_goes_on(package) -> None:
    """The module is complete, and its importer has not continued; code that only looks for it finds its own loader."""
    seen = []

    def called(module: ModuleType) -> None:
        seen.append(module.__name__)
        module.ORDER.append("called")

    with watching(called, "watched.inner") as watch:
        assert not [name for name in sys.modules if name.startswith("watched")]
        loader = importlib.util.find_spec("watched.inner").loader
        assert loader.get_source("watched.inner") == (package / "inner.py").read_text()
        assert (hasattr(loader, "no_such_method"), seen) == (False, [])
        import watched.other

        assert seen == ["watched.inner"]
        assert watched.ORDER == ["package", "inner", "called", "other"]
        assert type(watched.inner.__loader__).__module__ == "_frozen_importlib_external"
        assert watched.inner.__spec__.loader is watched.inner.__loader__
        importlib.reload(watched.inner)
        assert seen == ["watched.inner"] * 2
        with watching(called, "watched.inner", "watched.missing"):  # at once for what is imported already
            assert seen == ["watched.inner"] * 3
    assert watch not in sys.meta_path


def test_errors_of_the_module_stay(package) -> None:
    """A module that fails, or is not there, fails as without a watch, and may be tried again."""
    seen = []
    with watching(seen.append, "watched.broken", "watched.missing"):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="broken"):
                importlib.import_module("watched.broken")
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("watched.missing")
    assert seen == []


def test_finder_that_asks_the_others(package, monkeypatch) -> None:
    """A finder in front that asks all finders, as numba-cuda's does, gets one answer; the watch calls back once."""

    class Redirector:
        @staticmethod
        def find_spec(name, path, target=None):
            if not name.startswith("watched."):
                return None
            specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not Redirector)
            return next((spec for spec in specs if spec is not None), None)

    seen = []
    with watching(seen.append, "watched.inner"):
        monkeypatch.setattr(sys, "meta_path", [Redirector, *sys.meta_path])
        importlib.import_module("watched.inner")
    assert len(seen) == 1


def test_watches_and_threads(package) -> None:
    """One execution and one call, however many threads import; a pytest inside a pytest watches too."""
    seen = []
    outer, inner = (lambda _: seen.append("outer")), (lambda _: seen.append("inner"))
    with watching(outer, "watched.inner"), watching(inner, "watched.inner"), ThreadPoolExecutor(8) as pool:
        list(pool.map(importlib.import_module, ["watched.other"] * 8))
    assert sorted(seen) == ["inner", "outer"]


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.mark.parametrize("first", ["an import", "a request"])
def test_postponed(package, calls, first) -> None:
    """The call is made once, by the first import of a module or by the first request; at once, if one is there."""
    # what it starts may import the module, too
    postpone(lambda: calls.append("started") or importlib.import_module("watched.inner"), until=["watched.inner"])
    importlib.import_module("watched")
    assert calls == []
    importlib.import_module("watched.inner") if first == "an import" else start_postponed()
    assert calls == ["started"]
    importlib.import_module("watched.other")
    start_postponed()
    assert calls == ["started"]
    postpone(lambda: calls.append("again"), until=["watched.missing", "watched.other"])
    assert calls == ["started", "again"]


def test_held(package, calls) -> None:
    """A call that an import would start in a block waits for the end of the outermost one: its modules are complete."""
    (package / "outer.py").write_text("from watched import inner\nCOMPLETE = True\n")
    postpone(lambda: calls.append(importlib.import_module("watched.outer").COMPLETE), until=["watched.inner"])
    with held_starts():
        with held_starts():
            importlib.import_module("watched.outer")
        assert calls == []
    assert calls == [True]


def test_what_a_call_raises(package) -> None:
    """The import raises it, or what watches a module that is there; a postponed call is not made again."""
    failing = Mock(side_effect=RuntimeError("mine"))
    postpone(failing, until=["watched.inner"])
    with pytest.raises(RuntimeError, match="mine"):
        importlib.import_module("watched.inner")
    with pytest.raises(RuntimeError, match="mine"):
        ImportWatch(failing).watch(["watched"])
    sys.meta_path.pop(0)
    start_postponed()
    assert failing.call_count == 2


def test_cancelled_and_in_order(package, calls) -> None:
    """A cancelled call is not made, cancelling again is harmless; others are made in their order.

    The run inside of a run starts after the outer one, so that it is the active one.
    """
    cancel = postpone(lambda: calls.append("started"), until=["watched.inner"])
    for name in ("outer", "inner"):
        postpone(lambda name=name: calls.append(name), until=["watched.inner"])
    cancel()
    cancel()
    start_postponed()
    importlib.import_module("watched.inner")
    assert calls == ["outer", "inner"]


def test_a_second_thread_waits_for_the_call(package, calls) -> None:
    """Whatever a thread does after its request, it finds the postponed work done."""
    begun, finish = threading.Event(), threading.Event()

    def start() -> None:
        begun.set()
        assert finish.wait(60)
        calls.append("started")

    def ask() -> None:
        start_postponed()
        calls.append("asked")

    postpone(start, until=["watched.inner"])
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(ask)
        assert begun.wait(60)
        assert calls == []
        finish.set()
    assert calls == ["started", "asked", "asked"]


def test_watched_by_what_the_module_itself_imports(package) -> None:
    """A watch that starts half-way through a module is called back when the module is complete."""
    (package / "outer.py").write_text("import watched.inner\ndef late(): pass\n")
    seen = []
    second = ImportWatch(lambda module: seen.append((module.__name__, hasattr(module, "late"))))
    cancel = postpone(lambda: second.watch(["watched.outer"]), until=["watched.outer", "watched.inner"])
    try:
        import watched.outer  # noqa: F401
    finally:
        cancel()
        second.stop()
    assert seen == [("watched.outer", True)]


OWN = (Bundled, CudaCore, NumbaCuda, NumbaCudaMlir)


def test_every_steered_module_wakes_the_steering() -> None:
    """What targets, fakes and seams watch is what start-up watches for them."""
    watched = [name for target in OWN for name in target.modules]
    assert sorted(STEERED) == sorted({*watched, *SEAMS})


def test_the_header_knows_every_target() -> None:
    """The targets that a header names without importing them are those of the plugin."""
    assert {target.name: target.distribution for target in OWN} == TARGETS
