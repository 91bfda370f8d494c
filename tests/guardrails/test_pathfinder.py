"""What the guard rails take from cuda.pathfinder, by stand-ins for its parts; `test_guard.py` asks the real one."""

import ctypes
import os
import site
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pytest_cudalink.guardrails import _pathfinder
from pytest_cudalink.guardrails._pathfinder import ResolutionError, Resolved
from pytest_cudalink.guardrails.items import ALREADY_LOADED
from pytest_cudalink.loader import loads

NVRTC = SimpleNamespace(
    dependencies=("a",), optional_dependencies=("b",), linux_sonames=("libnvrtc.so.13", "libnvrtc.so.12")
)
SAME = SimpleNamespace(linux_sonames=("libsame.so.1",))
DESCRIPTORS = {"nvrtc": NVRTC} | dict.fromkeys("hgfedc", SAME)
FOUND = SimpleNamespace(abs_path="/x", found_via="conda")


@pytest.fixture
def parts(monkeypatch) -> dict[tuple[str, str], object]:
    """The private parts of this cuda.pathfinder, which a test takes away or adds to."""
    parts: dict[tuple[str, str], object] = {
        ("dynamic_libs.lib_descriptor", "LIB_DESCRIPTORS"): DESCRIPTORS,
        ("dynamic_libs.load_dl_linux", "abs_path_for_dynamic_library"): lambda name, handle: f"{name} by {handle}",
        ("dynamic_libs.search_steps", "EARLY_FIND_STEPS"): ("wheels",),
        ("dynamic_libs.search_steps", "SearchContext"): lambda descriptor: descriptor,
        ("dynamic_libs.search_steps", "run_find_steps"): lambda context, steps: {
            ("wheels", id(NVRTC)): FOUND,
            ("wheels", id(SAME)): None,
        }[*steps, id(context)],
    }
    monkeypatch.setattr(_pathfinder, "private_part", lambda module, name: parts.get((module, name)))
    return parts


@pytest.fixture
def public(monkeypatch) -> SimpleNamespace:
    """The public parts of this cuda.pathfinder, none of which was asked for before."""
    fake = SimpleNamespace(
        SUPPORTED_NVIDIA_LIBNAMES=("nvrtc", "zz", *"hgfedc"),
        SUPPORTED_BINARY_UTILITIES=("ptxas",),
        SUPPORTED_HEADERS_CTK={"nvcc": "nvcc.h"},
        **{name: f"plain {name}" for name in _pathfinder.LOOKUPS},
    )
    monkeypatch.setattr(_pathfinder, "import_module", {"cuda.pathfinder": fake}.__getitem__)
    monkeypatch.setattr(_pathfinder, "originals", {})
    _pathfinder.stems.cache_clear()
    yield fake
    _pathfinder.stems.cache_clear()


def test_public_parts(public) -> None:
    """Names come from its lists, and whether an item is of the toolkit."""
    assert _pathfinder.library_names() == {"nvrtc", "zz", *"hgfedc"}
    assert _pathfinder.program_names() == {"ptxas"}
    of = [("dynamic-libs", "nvrtc"), ("dynamic-libs", "nvcc"), ("headers", "nvcc"), ("headers", "nvrtc")]
    assert [_pathfinder.packaging(*arguments) for arguments in of] == ["ctk", "other", "ctk", "other"]
    assert _pathfinder.header_file("nvcc", "/i") == "/i/nvcc.h"
    assert _pathfinder.header_file("nvrtc", "/i") == "/i/"


def test_plain_functions_are_kept(public, monkeypatch) -> None:
    """As they were first seen, by the first caller: a guard may have routed them since."""
    assert _pathfinder.plain("find_static_lib") == "plain find_static_lib"
    public.find_static_lib = "routed"
    assert _pathfinder.plain("find_static_lib") == "plain find_static_lib"
    originals: dict[str, str] = {}
    monkeypatch.setattr(_pathfinder, "originals", originals)
    monkeypatch.setattr(_pathfinder, "_public", lambda: originals.update(find_static_lib="by the import") or public)
    assert _pathfinder.plain("find_static_lib") == "by the import"


@pytest.mark.parametrize("conda", [None, "/c"])
def test_look_ups_in_another_environment(monkeypatch, tmp_path, conda) -> None:
    """They search its packages, and its prefix if it is one of conda; then this one's again, and nothing is kept."""
    cleared = []
    monkeypatch.setattr(_pathfinder, "cache_clear", lambda: cleared.append(os.environ.get("CONDA_PREFIX")))
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    if conda:
        monkeypatch.setenv("CONDA_PREFIX", conda)
    (tmp_path / "nvidia/cu13/bin").mkdir(parents=True)
    (tmp_path / "nvidia/cu13/bin/nvcc").touch()
    before = site.getsitepackages, site.ENABLE_USER_SITE
    for inside in (None, str(tmp_path)):
        if inside:
            (tmp_path / "conda-meta").mkdir()
        with _pathfinder.looking_in([tmp_path], tmp_path):
            assert site.ENABLE_USER_SITE is False
            assert _pathfinder.program_of_wheels("nvcc") == str(tmp_path / "nvidia/cu13/bin/nvcc")
            assert _pathfinder.program_of_wheels("ptxas") is None
        assert (site.getsitepackages, site.ENABLE_USER_SITE) == before
        assert cleared == [inside, conda]
        cleared.clear()


def test_private_parts_by_name(monkeypatch) -> None:
    def module(name: str) -> SimpleNamespace:
        if name != "cuda.pathfinder._there":
            raise ImportError(name)
        return SimpleNamespace(part=1)

    monkeypatch.setattr(_pathfinder, "import_module", module)
    asked = [("there", "part"), ("there", "other"), ("gone", "part")]
    assert [_pathfinder.private_part(*call) for call in asked] == [1, None, None]


def test_descriptors(public, parts) -> None:
    """They name files and dependencies; a library without one has its usual file."""
    assert _pathfinder.dependencies("nvrtc") == ("a", "b")
    assert _pathfinder.sonames("nvrtc") == ("libnvrtc.so.13", "libnvrtc.so.12")
    assert (_pathfinder.dependencies("c"), _pathfinder.sonames("zz")) == ((), ())
    assert list(_pathfinder.stems().items()) == [("libsame", "h"), ("libnvrtc", "nvrtc"), ("libzz", "zz")]
    parts.clear()
    assert (_pathfinder.dependencies("nvrtc"), _pathfinder.sonames("nvrtc")) == ((), ())


def test_a_library_in_the_process(parts, monkeypatch) -> None:
    """It is found by any of its names, and is not loaded for the question."""

    def opened(name: str, mode: int) -> str:
        if (name, mode) != ("libnvrtc.so.12", os.RTLD_NOLOAD):
            raise OSError(name)
        return "a handle"

    monkeypatch.setattr(ctypes, "CDLL", opened)
    assert _pathfinder._loaded("nvrtc") == Resolved("nvrtc by a handle", ALREADY_LOADED, in_process=True)
    assert _pathfinder._loaded("c") is None
    del parts["dynamic_libs.load_dl_linux", "abs_path_for_dynamic_library"]
    assert _pathfinder._loaded("nvrtc") == Resolved("libnvrtc.so.12", ALREADY_LOADED, in_process=True)
    monkeypatch.setattr(sys, "platform", "win32")
    assert _pathfinder._loaded("nvrtc") is None


def test_the_early_search(parts) -> None:
    """It finds nothing where one of its parts is missing."""
    assert _pathfinder.find_early("nvrtc") == Resolved("/x", "conda", in_process=False)
    assert _pathfinder.find_early("c") is _pathfinder.find_early("zz") is None
    for name in [name for name in parts if name[0] == "dynamic_libs.search_steps"]:
        part = parts.pop(name)
        assert _pathfinder.find_early("nvrtc") is None
        parts[name] = part


def test_what_a_search_takes_first(parts, monkeypatch) -> None:
    """What is in the process, then wheels and conda, then what a child loads."""
    asked = []

    def find_in_child(names: list[str]) -> dict[str, str | None]:
        asked.append(names)
        return {name: "child" if name == "c" else None for name in names}

    monkeypatch.setattr(_pathfinder, "find_in_child", find_in_child)
    monkeypatch.setattr(_pathfinder, "_loaded", {"a": "loaded"}.get)
    monkeypatch.setattr(_pathfinder, "find_early", {"a": "no", "b": "early"}.get)
    assert _pathfinder.resolve_all("ab") == {"a": "loaded", "b": "early"}
    assert asked == []
    assert _pathfinder.resolve_all("abcd") == {"a": "loaded", "b": "early", "c": "child", "d": None}
    assert asked == [["c", "d"]], "one child for all"
    assert (_pathfinder.resolve("b"), _pathfinder.resolve("d")) == ("early", None)
    monkeypatch.setattr(_pathfinder, "find_in_child", lambda names: dict.fromkeys(names, ResolutionError("gone")))
    with pytest.raises(ResolutionError, match="gone"):
        _pathfinder.resolve("c")


@pytest.mark.parametrize(
    ("began", "expected"),
    [
        (b"A=1\0LD_LIBRARY_PATH=/began:/x=y\0B=2\0", {"LD_LIBRARY_PATH": "/began:/x=y"}),
        (b"A=1\0", {}),
        (None, {"LD_LIBRARY_PATH": "/now"}),
    ],
)
def test_the_environment_of_a_child(monkeypatch, began, expected) -> None:
    """The path of the loader is the one that this process started with, where that is known."""

    def read() -> bytes:
        if began is None:
            raise OSError
        return began

    monkeypatch.setattr(_pathfinder, "Path", {"/proc/self/environ": SimpleNamespace(read_bytes=read)}.__getitem__)
    monkeypatch.setattr(os, "environ", {"C": "3", "LD_LIBRARY_PATH": "/now"})
    assert _pathfinder._environment() == {"C": "3", **expected}
    monkeypatch.setattr(os, "environ", {"C": "3"})
    assert _pathfinder._environment()["C"] == "3"


def test_a_child(monkeypatch) -> None:
    """It runs apart from the working folder, and the last line of its output is the answer."""
    ran = []

    def run(command: list[str], **options: object) -> SimpleNamespace:
        ran.append((command, options))
        return SimpleNamespace(stdout="noise\n[1]\n\n")

    monkeypatch.setattr(_pathfinder, "_environment", lambda: {"C": "3"})
    monkeypatch.setattr(subprocess, "run", run)
    assert _pathfinder.run_child("program", "a thing", "a", "b") == [1]
    options = {"capture_output": True, "text": True, "check": True, "timeout": 60.0, "env": {"C": "3"}}
    assert ran == [([sys.executable, "-P", "-c", "program", "a", "b"], options)]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (subprocess.CalledProcessError(1, "python", stderr="Traceback\ngone\n"), "gone"),
        (subprocess.CalledProcessError(1, "python"), "Command 'python' returned non-zero exit status 1."),
        (subprocess.TimeoutExpired("python", 60), "Command 'python' timed out after 60 seconds"),
        (OSError("no Python"), "no Python"),
        (None, "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_a_child_that_fails(monkeypatch, error, words) -> None:
    """The error quotes the last line of its stderr, or says what happened."""

    def run(*_: object, **__: object) -> SimpleNamespace:
        if error:
            raise error
        return SimpleNamespace(stdout="no JSON")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ResolutionError) as caught:
        _pathfinder.run_child("", "a thing")
    assert str(caught.value) == f"a thing cannot be determined: {words}"


def test_questions_to_a_child(parts, monkeypatch) -> None:
    """What a search would load, and what the loader finds first."""
    asked, answers = [], [{"nvrtc": ["/x", "conda"], "b": None, "c": "it ends with -7"}, {"libnvrtc.so.13": "/x"}]
    monkeypatch.setattr(
        _pathfinder, "run_child", lambda program, *words: asked.append(words) or answers[len(asked) - 1]
    )
    searched = _pathfinder.find_in_child(["nvrtc", "b", "c"])
    assert str(searched.pop("c")) == "what a search for 'c' would load cannot be determined: it ends with -7"
    assert searched == {"nvrtc": Resolved("/x", "conda"), "b": None}
    assert _pathfinder.first_for_loader(["nvrtc", "zz"]) == {"libnvrtc.so.13": "/x"}
    assert asked[0][1] == '["nvrtc", "b", "c"]'
    error = ResolutionError("no Python")

    def fail(*_: str) -> None:
        raise error

    monkeypatch.setattr(_pathfinder, "run_child", fail)
    assert _pathfinder.find_in_child(["b", "c"]) == {"b": error, "c": error}
    assert asked[1] == (*("what the dynamic loader finds", '["libnvrtc.so.13", "libnvrtc.so.12"]'), loads.__file__)


def test_what_a_library_opens(toolkit) -> None:
    """The builtins of this NVRTC are found, by its RUNPATH or as cuda.pathfinder loads them first; others are not."""
    builtins = f"libnvrtc-builtins.so.{toolkit}"
    assert [_pathfinder.is_opened("nvrtc", file) for file in (builtins, "libnvrtc-builtins.so.1.0")] == [True, False]


def test_caches_are_cleared(public, parts, monkeypatch) -> None:
    """Those of the look-ups, those below them, and ours; one that has none is left alone."""
    cleared: list[str] = []
    functions = {
        name: SimpleNamespace(cache_clear=lambda name=name: cleared.append(name)) for name in _pathfinder.LOOKUPS[1:]
    }
    monkeypatch.setattr(_pathfinder, "originals", {_pathfinder.LOOKUPS[0]: None, **functions})
    below = [
        ("utils.env_vars", "get_cuda_path_or_home"),
        ("utils.find_sub_dirs", "find_sub_dirs_cached"),
        ("dynamic_libs.load_nvidia_dynamic_lib", "_resolve_system_loaded_abs_path_in_subprocess"),
    ]
    for part in below:
        parts[part] = SimpleNamespace(cache_clear=lambda part=part: cleared.append(part[1]))
    assert "libnew" not in _pathfinder.stems()
    public.SUPPORTED_NVIDIA_LIBNAMES = ("new",)
    _pathfinder.cache_clear()
    assert cleared == [*functions, *(name for _, name in below)]
    assert _pathfinder.stems() == {"libnew": "new"}
    parts.clear()
    _pathfinder.cache_clear()
