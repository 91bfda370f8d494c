"""The guard: modes, variables, caching, pipelines, routing; on the toolkit of this environment."""

import functools
import importlib.util
import os
import pickle
import subprocess
import sys
import threading
import types
import warnings

import cuda.pathfinder as pf
import pytest
from packaging.specifiers import SpecifierSet

from pytest_cudalink import guardrails, linker, probes
from pytest_cudalink.guardrails import (
    DRIVER_COMPATIBILITY_VARIABLE,
    MODE_VARIABLE,
    CompatibilityCheckError,
    CompatibilityGuardRails,
    CompatibilityInsufficientMetadataError,
    CompatibilityWarning,
    DriverCtkCompatibilityError,
    Verdict,
    _pathfinder,
    guard,
)
from pytest_cudalink.guardrails.items import Item
from pytest_cudalink.guardrails.routing import route
from pytest_cudalink.linker import Linker, LinkerOptions, VersionSkewError
from pytest_cudalink.loader.imports import postpone
from pytest_cudalink.targets import steering
from pytest_cudalink.versions import CudaVersion

NEW = {"driver_cuda_version": (99, 0)}
OLD = {"driver_cuda_version": 12000, "driver_release_version": "520.30.01"}


@pytest.fixture(autouse=True)
def _clean(monkeypatch, toolkit):
    """Without variables, loaded libraries and the run's guard, which is restored afterwards."""
    monkeypatch.delenv(MODE_VARIABLE, raising=False)
    monkeypatch.delenv(DRIVER_COMPATIBILITY_VARIABLE, raising=False)
    monkeypatch.setattr(guard.attribution, "loaded_libraries", lambda names: [])
    _pathfinder.plain("load_nvidia_dynamic_lib")  # (what is replaced below has to be there)
    before = guardrails.installed()
    guardrails.uninstall()
    yield
    guardrails.uninstall()
    if before is not None:
        guardrails.install(before.guard)
    guardrails.process_wide_guard_rails.cache_clear()


@pytest.mark.parametrize("name", _pathfinder.LOOKUPS)
def test_the_eight_look_ups(name: str) -> None:
    """Each is there with the signature of cuda.pathfinder's, its name and an explanation."""
    ours, theirs = getattr(CompatibilityGuardRails(), name), getattr(pf, name)
    code = theirs.__wrapped__.__code__ if hasattr(theirs, "__wrapped__") else theirs.__code__
    assert ours.__wrapped__.__code__.co_varnames[1 : 1 + code.co_argcount] == code.co_varnames[: code.co_argcount]
    assert (ours.__name__, bool(ours.__doc__)) == (name, True)


def test_answers_are_pathfinders(toolkit) -> None:
    """What passes is what cuda.pathfinder answers, and it is remembered once."""
    rails = CompatibilityGuardRails(**NEW)
    assert rails.load_nvidia_dynamic_lib("nvrtc").abs_path == pf.load_nvidia_dynamic_lib("nvrtc").abs_path
    assert rails.locate_nvidia_header_directory("cudart") == pf.locate_nvidia_header_directory("cudart")
    assert rails.find_nvidia_header_directory("cudart") == pf.find_nvidia_header_directory("cudart")
    assert rails.locate_static_lib("cudadevrt") == pf.locate_static_lib("cudadevrt")
    assert rails.find_static_lib("cudadevrt") == pf.find_static_lib("cudadevrt")
    names = [(item.kind, item.name) for item in rails.remembered]
    assert names == [("dynamic-libs", "nvrtc"), ("headers", "cudart"), ("static-libs", "cudadevrt")]
    assert {item.version for item in rails.remembered} == {toolkit}


@pytest.fixture
def nowhere() -> str:
    """A library that cuda.pathfinder knows and this machine lacks."""
    for name in ("cudla", "cufile", "nvfatbin", "nvjpeg", "npps", "cufftw"):
        if _pathfinder.find_in_child([name])[name] is None:  # (what is there is not to be left in this process)
            return name
    pytest.skip("this machine has every library of the toolkit")


def test_errors_are_pathfinders(nowhere) -> None:
    """What cuda.pathfinder does not know or find is its own error."""
    rails = CompatibilityGuardRails(**NEW)
    for look_up, name, error, words in (
        (rails.load_nvidia_dynamic_lib, "bogus", pf.DynamicLibUnknownError, "bogus"),
        (rails.load_nvidia_dynamic_lib, nowhere, pf.DynamicLibNotFoundError, nowhere),
        (rails.find_nvidia_header_directory, "bogus", RuntimeError, "UNKNOWN"),
        (rails.find_static_lib, "bogus", ValueError, "bogus"),
        (rails.find_bitcode_lib, "bogus", ValueError, "bogus"),
        (rails.find_nvidia_binary_utility, "bogus", Exception, "bogus"),
    ):
        with pytest.raises(error, match=words):
            look_up(name)
    assert rails.remembered == ()


@pytest.mark.parametrize(
    "arguments",
    [{"ctk_version": "13.2"}, {"driver_cuda_version": 13}, {"driver_release_version": "580"}, {"mode": "lenient"}],
)
def test_wrong_arguments(arguments) -> None:
    with pytest.raises(ValueError, match=r"PEP 440|driver_cuda_version|driver release|mode"):
        CompatibilityGuardRails(**arguments)
    with pytest.raises(TypeError):
        CompatibilityGuardRails(">=13")  # type: ignore[misc]


def test_constraint_and_error(toolkit) -> None:
    """A release outside of the constraint is refused each time, with its verdict; nothing is remembered."""
    rails = CompatibilityGuardRails(ctk_version=SpecifierSet("<12"), **NEW)
    for _ in range(2):
        with pytest.raises(CompatibilityCheckError, match=f"nvrtc headers are of CUDA {toolkit}") as caught:
            rails.locate_nvidia_header_directory("nvrtc")
    assert caught.value.verdict.rule == "ctk-constraint"
    assert pickle.loads(pickle.dumps(caught.value)).verdict == caught.value.verdict
    assert rails.remembered == ()


def test_driver_too_old(toolkit) -> None:
    """The driver's refusal has its own type, and says how to relax it."""
    with pytest.raises(DriverCtkCompatibilityError, match=DRIVER_COMPATIBILITY_VARIABLE) as caught:
        CompatibilityGuardRails(driver_cuda_version="11.0").load_nvidia_dynamic_lib("nvrtc")
    assert f"does not run CUDA {toolkit}" in str(caught.value)


def test_neither_toolkit_nor_driver(monkeypatch) -> None:
    """Nsight is not part of a toolkit; best_effort lets it pass, and does not remember it."""
    monkeypatch.setitem(_pathfinder.originals, "find_nvidia_binary_utility", lambda name: f"/opt/nsight/{name}")
    for mode, passes in (("strict", False), ("best_effort", True)):
        rails = CompatibilityGuardRails(mode=mode, **NEW)
        if passes:
            assert rails.find_nvidia_binary_utility("nsys") == "/opt/nsight/nsys"
        else:
            with pytest.raises(
                CompatibilityInsufficientMetadataError, match="(?s)neither the CUDA toolkit nor .* best_effort"
            ):
                rails.find_nvidia_binary_utility("nsys")
        assert rails.remembered == ()


def test_not_found_is_no_fault(monkeypatch) -> None:
    """None from a search passes through."""
    for headers in (None, types.SimpleNamespace(abs_path=None, found_via="")):
        monkeypatch.setitem(_pathfinder.originals, "locate_nvidia_header_directory", lambda _, given=headers: given)
        assert CompatibilityGuardRails(**NEW).locate_nvidia_header_directory("cufft") is headers
        assert CompatibilityGuardRails(**NEW).find_nvidia_header_directory("cufft") is None


# -- modes and variables


def test_modes(toolkit) -> None:
    """Off and warning_only give the plain answer, the second with a warning at this line; the others refuse."""
    refused = {"ctk_version": "<12", **NEW}
    plain = pf.find_nvidia_header_directory("cudart")
    for mode in ("strict", "best_effort"):
        with pytest.raises(CompatibilityCheckError):
            CompatibilityGuardRails(mode=mode, **refused).find_nvidia_header_directory("cudart")
    assert CompatibilityGuardRails(mode="off", **refused).find_nvidia_header_directory("cudart") == plain
    rails = CompatibilityGuardRails(mode="warning_only", **refused)
    with pytest.warns(CompatibilityWarning, match=f"cudart headers are of CUDA {toolkit}") as caught:
        assert rails.find_nvidia_header_directory("cudart") == plain
    assert rails.remembered == ()
    (warning,) = caught
    assert warning.filename == __file__
    for words in ("found: cudart headers at", "rule:  ctk-constraint", "fix:   "):
        assert words in str(warning.message)


@pytest.mark.parametrize("mode", ["best_effort", "warning_only"])
def test_an_unknown_driver_is_no_fault_of_a_library(mode: str) -> None:
    """The library passes without a warning, and later ones are compared with it."""
    rails = CompatibilityGuardRails(mode=mode)
    with probes.fake(driver=None), warnings.catch_warnings():
        warnings.simplefilter("error")
        rails.load_nvidia_dynamic_lib("nvrtc")
    assert [item.name for item in rails.remembered] == ["nvrtc"]


@pytest.mark.parametrize("value", [None, ""])
def test_default_mode(monkeypatch, value) -> None:
    if value is not None:
        monkeypatch.setenv(MODE_VARIABLE, value)
        monkeypatch.setenv(DRIVER_COMPATIBILITY_VARIABLE, value)
    assert guard.mode_from_environment() == guard.DEFAULT_MODE == "best_effort"
    assert guardrails.process_wide_guard_rails().mode == "best_effort"
    assert not guard.forward_compatibility_assumed("strict")


@pytest.mark.parametrize("mode", guardrails.MODES)
def test_mode_from_environment(monkeypatch, mode: str) -> None:
    """The shared guard and one with mode=None follow the variable; others do not."""
    monkeypatch.setenv(MODE_VARIABLE, mode)
    assert guardrails.process_wide_guard_rails().mode == mode
    assert CompatibilityGuardRails(mode=None).mode == mode
    assert CompatibilityGuardRails().mode == "strict"


@pytest.mark.parametrize("value", ["on", "STRICT", " strict"])
def test_wrong_mode(monkeypatch, value: str) -> None:
    """Another value is a RuntimeError that lists the values, at the look-up."""
    monkeypatch.setenv(MODE_VARIABLE, value)
    with pytest.raises(RuntimeError, match="off, best_effort, strict, warning_only"):
        guardrails.process_wide_guard_rails().find_static_lib("cudadevrt")


@pytest.mark.parametrize("mode", guardrails.MODES)
def test_driver_variable_is_always_judged(monkeypatch, mode: str) -> None:
    """Its value in every mode, off too."""
    monkeypatch.setenv(DRIVER_COMPATIBILITY_VARIABLE, "assume")
    with pytest.raises(RuntimeError, match="default, assume_forward_compatibility"):
        CompatibilityGuardRails(mode=mode, **NEW).find_static_lib("cudadevrt")


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_forward_compatibility_is_for_linux(monkeypatch, platform: str) -> None:
    """Its platform in every mode but off; the hint is given on Linux only."""
    monkeypatch.setenv(DRIVER_COMPATIBILITY_VARIABLE, "assume_forward_compatibility")
    assert guard.forward_compatibility_assumed("strict")
    assert DRIVER_COMPATIBILITY_VARIABLE in guard.driver_hint()
    monkeypatch.setattr(sys, "platform", platform)
    assert guard.driver_hint() == ""
    assert not guard.forward_compatibility_assumed("off")
    for mode in ("strict", "best_effort", "warning_only"):
        with pytest.raises(RuntimeError, match=f"Linux only, this is {platform}"):
            guard.forward_compatibility_assumed(mode)


def test_forward_compatibility_assumed(monkeypatch, toolkit) -> None:
    """It relaxes the driver's refusal, and nothing else."""
    monkeypatch.setenv(DRIVER_COMPATIBILITY_VARIABLE, "assume_forward_compatibility")
    CompatibilityGuardRails(**OLD).load_nvidia_dynamic_lib("nvrtc")
    with pytest.raises(CompatibilityCheckError, match="ctk_version asks for"):
        CompatibilityGuardRails(ctk_version="<12", **OLD).load_nvidia_dynamic_lib("nvrtc")


def test_a_second_look_up_is_not_judged_again() -> None:
    """The first answer is cached, with its verdict; after `cache_clear` it is asked again, also in cuda.pathfinder."""
    verdicts: list[Verdict] = []
    rails = CompatibilityGuardRails(on_verdict=verdicts.append, **NEW)
    first = rails.locate_nvidia_header_directory("cudart")
    assert rails.locate_nvidia_header_directory("cudart") is first
    assert [verdict.status for verdict in verdicts] == ["compatible"]
    before = pf.locate_nvidia_header_directory("cudart")
    rails.cache_clear()
    assert rails.remembered == ()
    assert rails.locate_nvidia_header_directory("cudart") is not first
    assert pf.locate_nvidia_header_directory("cudart") is not before
    assert len(verdicts) == 2


def test_threads() -> None:
    """Look-ups from many threads remember each item once."""
    rails = CompatibilityGuardRails(**NEW)
    names = ["nvrtc", "nvJitLink", "cudart"] * 4
    threads = [threading.Thread(target=rails.load_nvidia_dynamic_lib, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(item.name for item in rails.remembered) == ["cudart", "nvJitLink", "nvrtc"]


# -- pipelines


def stand_in(monkeypatch, releases: dict[str, str]) -> list[str]:
    """Let look-ups find items of these releases, by name or by path; returns what they load by now: nothing real."""
    loaded: list[str] = []

    def item(kind, name, path, via) -> Item:
        release = CudaVersion.parse(releases.get(path, releases[name]))
        return Item(kind, name, path, via, "ctk", release, "as the test says")

    def load(name: str) -> types.SimpleNamespace:
        loaded.append(name)
        return types.SimpleNamespace(abs_path=f"/x/{name}")

    monkeypatch.setattr(guard, "make_item", item)
    monkeypatch.setattr(_pathfinder, "resolve", lambda name: _pathfinder.Resolved(f"/x/{name}", "site-packages"))
    monkeypatch.setitem(_pathfinder.originals, "load_nvidia_dynamic_lib", load)
    return loaded


@pytest.fixture
def skewed(monkeypatch) -> CompatibilityGuardRails:
    """A guard that finds an NVRTC 13.2, an nvJitLink 13.0 and a cudadevrt 13.1, without loading any."""
    stand_in(monkeypatch, {"nvrtc": "13.2", "nvJitLink": "13.0", "cudadevrt": "13.1"})
    return CompatibilityGuardRails(**NEW)


def test_the_fix_is_for_the_installer(skewed, monkeypatch) -> None:
    """An environment without pip is told what uv installs, also in the verdict that reports get."""
    verdicts: list[Verdict] = []
    skewed.on_verdict = verdicts.append
    skewed.declare_pipeline("nvrtc", "nvJitLink", "ltoir")
    skewed.load_nvidia_dynamic_lib("nvrtc")
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else find(name))
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    with pytest.raises(CompatibilityCheckError, match="fix:   uv pip install 'cuda-toolkit"):
        skewed.load_nvidia_dynamic_lib("nvJitLink")
    assert str(verdicts[-1].fix).startswith("uv pip install 'cuda-toolkit")


@pytest.mark.parametrize("order", [("nvrtc", "nvJitLink"), ("nvJitLink", "nvrtc")])
def test_pipeline_before_its_ends(skewed, order) -> None:
    """Declared first: the second end is refused, whichever it is, and can be asked for again."""
    skewed.declare_pipeline("nvrtc", "nvJitLink", "ltoir")
    skewed.declare_pipeline("nvrtc", "nvJitLink", "ptx")
    skewed.load_nvidia_dynamic_lib(order[0])
    for _ in range(2):
        with pytest.raises(CompatibilityCheckError, match="made by CUDA 13.2, linker understands up to 13.0"):
            skewed.load_nvidia_dynamic_lib(order[1])
    assert [item.name for item in skewed.remembered] == [order[0]]


def test_pipeline_after_its_ends(skewed) -> None:
    """Declared last: the declaration is refused and not kept; one that holds is."""
    for name in ("nvrtc", "nvJitLink"):
        skewed.load_nvidia_dynamic_lib(name)
    with pytest.raises(CompatibilityCheckError, match="ltoir from nvrtc to nvJitLink"):
        skewed.declare_pipeline("nvrtc", "nvJitLink", "ltoir")
    skewed.declare_pipeline("nvrtc", "nvJitLink", "cubin")
    assert [pipeline.artifact_kind for pipeline in skewed.pipelines] == ["cubin"]
    for kind in ("fatbin", "object", ""):
        with pytest.raises(ValueError, match="known: ltoir, ptx, elf, cubin"):
            skewed.declare_pipeline("nvrtc", "nvJitLink", kind)


@pytest.mark.parametrize("loads_first", [True, False])
def test_an_archive_that_nvjitlink_cannot_link(skewed, monkeypatch, loads_first) -> None:
    """The second look-up is refused, whichever it is, with both items and the command that repairs it."""
    located = types.SimpleNamespace(abs_path="/x/libcudadevrt.a", found_via="site-packages")
    monkeypatch.setitem(_pathfinder.originals, "locate_static_lib", lambda name: located)
    steps = [lambda: skewed.load_nvidia_dynamic_lib("nvJitLink"), lambda: skewed.find_static_lib("cudadevrt")]
    first, second = steps if loads_first else steps[::-1]
    first()
    with pytest.raises(CompatibilityCheckError) as caught:
        second()
    text = str(caught.value)
    for part in ("/x/nvJitLink", "/x/libcudadevrt.a", "rule:  linked", "bad input", "'nvidia-nvjitlink==13.1.*'"):
        assert part in text
    assert len(skewed.remembered) == 1


def test_declare_pipeline_for_the_process() -> None:
    """The function of the package goes to the guard that is installed, else to the shared one."""
    guardrails.declare_pipeline("nvrtc", "nvJitLink", "ptx")
    assert len(guardrails.process_wide_guard_rails().pipelines) == 1
    own = CompatibilityGuardRails(**NEW)
    guardrails.install(own)
    guardrails.declare_pipeline("nvrtc", "nvJitLink", "cubin")
    assert [pipeline.artifact_kind for pipeline in own.pipelines] == ["cubin"]


def link(code, **keywords):
    """Link one input, without looking at duplicates or the device."""
    return Linker(code, options=LinkerOptions(arch="sm_90"), backend="nvjitlink", **keywords)


def test_linker_minds_the_rule(sample_code, toolkit) -> None:
    """LTO-IR of another major is refused where guard rails are installed, with the rule's words; otherwise it links."""
    code = sample_code("12.9/main.ltoir") if toolkit.major == 13 else sample_code("13.0/main.ltoir")
    if toolkit.major == 13:
        link(code).close()
    guardrails.install(CompatibilityGuardRails(mode="best_effort", **NEW))
    with pytest.raises(VersionSkewError) as caught:
        link(code)
    if toolkit.major == 13:
        for words in ("must not link this input", "made by CUDA 12.9", "within one major version", "rule:  pipeline"):
            assert words in str(caught.value)
        assert isinstance(caught.value.__cause__, CompatibilityCheckError)
    guardrails.install(CompatibilityGuardRails(mode="off", **NEW))
    if toolkit.major == 13:
        link(code).close()


def test_linker_declares_its_pipelines(toolkit) -> None:
    """What this process's NVRTC made goes by a declared pipeline; what was brought along does not."""
    own = CompatibilityGuardRails(mode="best_effort", **NEW)
    guardrails.install(own)
    own.load_nvidia_dynamic_lib("nvrtc")
    options = linker.ProgramOptions(arch="sm_90", relocatable_device_code=True)
    with linker.Program('extern "C" __global__ void k() {}', "c++", options) as program:
        for kind in ("ltoir", "ptx"):
            with link(program.compile(kind)) as made:
                made.link()
    assert {pipeline.artifact_kind for pipeline in own.pipelines} == {"ltoir", "ptx"}


# -- routing


def test_install_and_uninstall() -> None:
    """Names of modules get other functions, in compiled ones too, and their own again; pathfinder keeps its own."""
    import cuda.bindings.nvrtc  # noqa: F401 (its compiled module has load_nvidia_dynamic_lib)

    importer = types.ModuleType("importer_of_pathfinder")
    importer.renamed = pf.load_nvidia_dynamic_lib
    sys.modules[importer.__name__] = importer
    # no references, which `install` would look for among all objects of the process
    inside = sys.modules["cuda.pathfinder._dynamic_libs.load_nvidia_dynamic_lib"]
    plain = {name: id(getattr(pf, name)) for name in _pathfinder.LOOKUPS}
    kept = id(inside.load_nvidia_dynamic_lib)
    own = CompatibilityGuardRails(mode="best_effort", ctk_version="<12", **NEW)
    try:
        routing = guardrails.install(own)
        assert guardrails.installed() is routing
        assert pf.load_nvidia_dynamic_lib is importer.renamed is own.load_nvidia_dynamic_lib
        assert id(inside.load_nvidia_dynamic_lib) == kept
        assert {"importer_of_pathfinder.renamed", "cuda.pathfinder.find_static_lib"} <= set(routing.routed)
        assert [*routing.routed] == sorted(routing.routed)
        assert any(name.startswith("cuda.bindings.") for name in routing.routed)
        with pytest.raises(CompatibilityCheckError):
            pf.find_nvidia_header_directory("cudart")
        assert guardrails.install(own).guard is own
        other = CompatibilityGuardRails(mode="off")
        guardrails.install(other)
        assert importer.renamed is other.load_nvidia_dynamic_lib
        assert id(_pathfinder.plain("load_nvidia_dynamic_lib")) == plain["load_nvidia_dynamic_lib"]
    finally:
        guardrails.uninstall()
        del sys.modules[importer.__name__]
    assert {name: id(getattr(pf, name)) for name in plain} == plain
    assert id(importer.renamed) == plain["load_nvidia_dynamic_lib"]
    assert guardrails.installed() is None
    postpone(lambda: route(own), until=["no.such.module"])
    guardrails.uninstall()
    assert guardrails.installed() is None


def test_what_cannot_be_routed_is_named() -> None:
    """Default arguments, closures, class attributes, partial objects and dictionaries keep the old function."""

    # made here, where nothing is installed yet
    def by_default(name: str, load=pf.find_static_lib) -> str:
        return load(name)

    def closing(load):
        def call(name: str) -> str:
            return load(name)

        return call

    class Holder:
        load = staticmethod(pf.find_bitcode_lib)
        locate = pf.locate_static_lib

    kept = (closing(pf.find_static_lib), functools.partial(pf.find_nvidia_binary_utility), {"x": pf.locate_bitcode_lib})
    pair = ("load_nvidia_dynamic_lib", pf.load_nvidia_dynamic_lib)
    left = "\n".join(guardrails.install(CompatibilityGuardRails(mode="off")).not_routed)
    assert "a default argument of test_what_cannot_be_routed_is_named.<locals>.by_default" in left
    assert "closing.<locals>.call in" in left
    assert "find_nvidia_binary_utility: an instance of functools.partial" in left
    assert "locate_bitcode_lib: a dictionary" in left
    assert "load_nvidia_dynamic_lib: a tuple" in left
    assert "locate_static_lib: an attribute of the class test_guard.test_what_cannot_be_" in left.replace(
        __name__, "test_guard"
    )
    assert "find_bitcode_lib: an instance of builtins.staticmethod" in left
    assert "cuda.pathfinder._" not in left
    del kept, by_default, Holder, pair


def test_routing_walks_over_no_objects() -> None:
    """Where nothing but modules refers to the look-ups, their references are counted: a walk takes 10 to 40 ms."""
    program = (
        "import gc; from pytest_cudalink import guardrails; gc.get_referrers = None\n"
        "assert guardrails.install().routed; guardrails.uninstall()\n"
        "from cuda.pathfinder import find_static_lib; kept = [find_static_lib]\n"
        "try: guardrails.install()\n"
        "except TypeError: print('walked')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "walked\n"), done.stderr


def test_lazy_modules_stay_lazy(tmp_path, monkeypatch) -> None:
    """A module that is imported lazily is neither executed by routing, nor does its error end it."""
    (tmp_path / "heavy_module.py").write_text("raise ImportError('an optional dependency is missing')", "utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = importlib.util.find_spec("heavy_module")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "heavy_module", module)
    spec.loader.exec_module(module)
    guardrails.install(CompatibilityGuardRails(mode="off"))
    guardrails.uninstall()


class Closed(types.ModuleType):
    """A module of a subclass, any look at which is an error."""

    def __getattribute__(self, name: str) -> object:
        raise LookupError(name)

    def __setattr__(self, name: str, value: object) -> None:
        raise LookupError(name)


class Claims:
    """An object that says it is a module, and fails when anything else of it is looked at."""

    def __getattribute__(self, name: str) -> object:
        if name == "__class__":
            return types.ModuleType
        raise ImportError(name)


class Fails(Claims):
    """An object that fails even when its class is looked at."""

    def __init__(self, held: object) -> None:
        object.__setattr__(self, "held", held)

    def __getattribute__(self, name: str) -> object:
        raise ImportError(name)


def test_only_plain_modules_are_touched(monkeypatch) -> None:
    """What is more than a module is neither asked nor changed; a function in it stays, and is reported."""
    closed = types.ModuleType("closed_module")
    closed.load = pf.find_static_lib
    closed.__class__ = Closed
    fails = Fails(pf.find_static_lib)
    for name, value in {"closed_module": closed, "claims": Claims(), "fails": fails, 7: "x"}.items():
        monkeypatch.setitem(sys.modules, name, value)
    steering.replace_everywhere(object(), None)
    routing = guardrails.install(CompatibilityGuardRails(mode="off"))
    assert "closed_module.load" not in routing.routed
    assert "find_static_lib: the module closed_module, of the class Closed" in routing.not_routed
    assert object.__getattribute__(closed, "__dict__")["load"] is _pathfinder.plain("find_static_lib")


def test_dependencies_are_judged_first(monkeypatch) -> None:
    """A library is refused when what it would bring along is, and then neither is loaded."""
    loaded = stand_in(monkeypatch, {"cusparse": "13.0", "nvJitLink": "12.9"})
    rails = CompatibilityGuardRails(ctk_version=">=13", **NEW)
    with pytest.raises(CompatibilityCheckError, match=r"nvJitLink library is of CUDA 12\.9"):
        rails.load_nvidia_dynamic_lib("cusparse")
    assert (loaded, rails.remembered) == ([], ())
    monkeypatch.setitem(_pathfinder.originals, "load_nvidia_dynamic_lib", lambda name: {}[name])
    rails = CompatibilityGuardRails(**NEW)
    with pytest.raises(KeyError, match="nvJitLink"):
        rails.load_nvidia_dynamic_lib("nvJitLink")
    assert rails.remembered == ()


def test_only_loading_would_show(monkeypatch) -> None:
    """If no search finds the file, that is insufficient metadata, and best_effort loads."""

    def resolve(name: str):
        raise _pathfinder.ResolutionError("the child was killed")

    monkeypatch.setattr(_pathfinder, "resolve", resolve)
    with pytest.raises(CompatibilityInsufficientMetadataError, match="the child was killed"):
        CompatibilityGuardRails(**NEW).load_nvidia_dynamic_lib("nvrtc")
    assert CompatibilityGuardRails(mode="best_effort", **NEW).load_nvidia_dynamic_lib("nvrtc").abs_path


def test_import_is_light() -> None:
    """Importing the guard rails imports neither cuda.pathfinder nor pytest, and loads nothing."""
    code = (
        "import sys, pytest_cudalink.guardrails, pytest_cudalink.doctor\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('cuda', 'pytest', '_pytest')])\n"
        "print('libcuda' in open('/proc/self/maps').read())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "False"]


def test_private_parts_are_there(nowhere) -> None:
    """The private parts of the installed cuda.pathfinder are found, and agree with its public answer."""
    wanted = os.environ.get("CUDALINK_PATHFINDER")
    assert wanted in (None, pf.__version__)
    assert _pathfinder.sonames("nvrtc")
    assert _pathfinder.stems()["libnvJitLink"] == "nvJitLink"
    assert {"nvJitLink", "cublas"} <= {*_pathfinder.dependencies("cusolver")}
    names = ("nvrtc", "nvJitLink", "cudart")
    early = {name: _pathfinder.find_early(name) for name in names}
    assert _pathfinder.find_in_child([*names, nowhere]) == {**early, nowhere: None}, "each as if it were the first"
    assert {resolved.found_via for resolved in early.values()} == {"site-packages"}
    assert _pathfinder.find_early(nowhere) is None


def test_without_private_parts(monkeypatch) -> None:
    """If a version has no private parts, the public function gives the same answer in a child process."""
    known = _pathfinder.resolve("nvJitLink").path
    monkeypatch.setattr(_pathfinder, "private_part", lambda module, name: None)
    _pathfinder.stems.cache_clear()
    assert _pathfinder.resolve("nvJitLink").path == known
    assert _pathfinder.dependencies("cusolver") == ()
    assert _pathfinder.stems()["libnvrtc"] == "nvrtc"
    monkeypatch.undo()
    _pathfinder.stems.cache_clear()
    assert _pathfinder.packaging("dynamic-libs", "cuda") == "driver"
    assert _pathfinder.packaging("dynamic-libs", "nccl") == "other"
    assert _pathfinder.packaging("headers", "nvjitlink") == "ctk"


def test_a_child_minds_no_file_of_the_working_directory(tmp_path, monkeypatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong one')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert _pathfinder.run_child("import json; print(json.dumps([1]))", "a thing") == [1]
