"""Calling back when a module is imported, and calls that are postponed until then."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading

import pytest

from pytest_cudalink.loader.imports import ImportWatch, postpone, start_postponed


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


def test_called_before_the_importer_goes_on(package) -> None:
    """The module is complete, and its importer has not continued."""
    seen = []
    watch = ImportWatch(lambda module: (seen.append(module.__name__), module.ORDER.append("called")))
    watch.watch(["watched.inner"])
    try:
        assert not [name for name in sys.modules if name.startswith("watched")]
        import watched.other

        assert seen == ["watched.inner"]
        assert watched.ORDER == ["package", "inner", "called", "other"]
        assert type(watched.inner.__loader__).__module__ == "_frozen_importlib_external"
        assert watched.inner.__spec__.loader is watched.inner.__loader__
        importlib.reload(watched.inner)
        assert seen == ["watched.inner"] * 2
    finally:
        watch.stop()
    assert watch not in sys.meta_path


def test_found_without_being_imported(package) -> None:
    """Code that only looks for a module gets a loader that answers as the module's own loader."""
    watch = ImportWatch(lambda _: None)
    watch.watch(["watched.inner"])
    try:
        spec = importlib.util.find_spec("watched.inner")
        assert spec.loader.get_source("watched.inner") == (package / "inner.py").read_text()
        assert not hasattr(spec.loader, "no_such_method")
    finally:
        watch.stop()


def test_called_at_once_for_an_imported_module(package) -> None:
    """A module that is imported already is reported when it is watched."""
    import watched.inner  # noqa: F401

    seen = []
    watch = ImportWatch(lambda module: seen.append(module.__name__))
    watch.watch(["watched.inner", "watched.missing"])
    watch.stop()
    assert seen == ["watched.inner"]


def test_errors_of_the_module_stay(package) -> None:
    """A module that fails, or is not there, fails as without a watch, and may be tried again."""
    seen = []
    watch = ImportWatch(seen.append)
    watch.watch(["watched.broken", "watched.missing"])
    try:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="broken"):
                importlib.import_module("watched.broken")
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("watched.missing")
    finally:
        watch.stop()
    assert seen == []


def test_finder_that_asks_the_others(package, monkeypatch) -> None:
    """A finder in front that asks all finders, as numba-cuda's does, gets one answer; the watch calls back once."""

    class Redirector:
        @staticmethod
        def find_spec(name, path, target=None):
            if not name.startswith("watched."):
                return None
            found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not Redirector)
            return next((spec for spec in found if spec is not None), None)

    seen = []
    watch = ImportWatch(seen.append)
    watch.watch(["watched.inner"])
    monkeypatch.setattr(sys, "meta_path", [Redirector, *sys.meta_path])
    try:
        importlib.import_module("watched.inner")
        assert len(seen) == 1
    finally:
        watch.stop()


def test_two_watches_are_both_called(package) -> None:
    """A pytest inside a pytest watches too."""
    seen = []
    watches = [ImportWatch(lambda _, name=name: seen.append(name)) for name in ("outer", "inner")]
    for watch in watches:
        watch.watch(["watched.inner"])
    try:
        importlib.import_module("watched.inner")
    finally:
        for watch in watches:
            watch.stop()
    assert sorted(seen) == ["inner", "outer"]


def test_imports_in_threads(package) -> None:
    """One execution, one call."""
    seen = []
    watch = ImportWatch(seen.append)
    watch.watch(["watched.inner"])
    threads = [threading.Thread(target=importlib.import_module, args=("watched.other",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watch.stop()
    assert len(seen) == 1


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.mark.parametrize("first", ["an import", "a request"])
def test_postponed(package, calls, first) -> None:
    """The call is made once, by the first import of a module or by the first request."""
    postpone(lambda: calls.append("started"), until=["watched.inner"])
    importlib.import_module("watched")
    assert calls == []
    importlib.import_module("watched.inner") if first == "an import" else start_postponed()
    assert calls == ["started"]
    importlib.import_module("watched.other")
    start_postponed()
    assert calls == ["started"]


def test_postponed_for_a_module_that_is_there(package, calls) -> None:
    """Nothing is postponed if one of the modules is imported already."""
    importlib.import_module("watched.other")
    postpone(lambda: calls.append("started"), until=["watched.inner", "watched.other"])
    assert calls == ["started"]


def test_cancelled(package, calls) -> None:
    """A cancelled call is not made; cancelling again is harmless."""
    cancel = postpone(lambda: calls.append("started"), until=["watched.inner"])
    cancel()
    cancel()
    importlib.import_module("watched.inner")
    start_postponed()
    assert calls == []


def test_postponed_calls_keep_their_order(package, calls) -> None:
    """The run inside of a run starts after the outer one, so that it is the active one."""
    postpone(lambda: calls.append("outer"), until=["watched.inner"])
    postpone(lambda: calls.append("inner"), until=["watched.inner"])
    start_postponed()
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
    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert begun.wait(60)
    assert calls == []
    finish.set()
    for thread in threads:
        thread.join()
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
