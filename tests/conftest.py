"""Shared fixtures: sample images of several toolkits, and a guard against silently skipped toolkits."""

import fcntl
import gc
import importlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from pytest_cudalink import probes, toolchains
from pytest_cudalink.base.compiler import find_compiler
from pytest_cudalink.compat.settings_table import OPTIONS
from pytest_cudalink.linker import ObjectCode
from pytest_cudalink.plugin.pytest_private import rename
from pytest_cudalink.targets.steering import current
from pytest_cudalink.versions import CudaVersion
from tests import compiled
from tests.nested import Forks, NestedPytest
from tests.report import chromium

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent
ARTIFACTS = Path(__file__).parent / "data" / "artifacts"
CACHE = toolchains.cache_root()
#: Seconds of CPU that the loop of `slowness` takes where a quick test has one: 0.028, measured 2026-11-28, Python 3.11.
QUICK_LOOP = 0.03

# the same examples in every run: what only some runs find is for the long profile, not for a gate
settings.register_profile(
    "default", deadline=None, max_examples=100, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", deadline=None, max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

gc.disable()  # a fourth of the time to collect the tests


def pytest_collection_finish() -> None:
    """Leave what was collected, 300,000 objects, to no garbage collection: a test would pay for a visit to each."""
    gc.enable()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Let every second worker of xdist collect from the end.

    In a new clone, each of two then compiles half of the modules, and finds the bytecode of the others.
    """
    report = yield
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    if isinstance(collector, pytest.Directory) and int(worker[2:]) % 2:
        report.result.reverse()  # its files and folders
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Give all workers one order, which xdist compares, before pytest sorts by parameters.

    Then give tests the suffix by which xdist keeps a group on one worker: xdist 3.8 sets it in vain on pytest 9.2.
    """
    items.sort(key=lambda item: item.nodeid.partition("::")[0])
    yield
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        if mark is not None and not item.nodeid.endswith(f"@{mark.args[0]}"):
            rename(item, f"{item.nodeid}@{mark.args[0]}")


@pytest.fixture(scope="session")
def samples() -> dict[str, bytes]:
    """Every sample image by its path below tests/data/artifacts, such as ``"13.0/main.ptx"``."""
    return {str(path.relative_to(ARTIFACTS)): path.read_bytes() for path in ARTIFACTS.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def sample_code(samples: dict[str, bytes]):
    """Make an ObjectCode of one sample: ``sample_code("13.0/main.ptx")``."""

    def make(name: str) -> ObjectCode:
        kind = {"o": "object", "a": "library"}.get(name.rsplit(".", 1)[1], name.rsplit(".", 1)[1])
        return getattr(ObjectCode, f"from_{kind}")(samples[name], name=name)

    return make


@pytest.fixture(scope="session")
def toolkit() -> CudaVersion:
    """CUDA release of NVRTC and nvJitLink in this environment; a session that promised one fails without it."""
    wanted = os.environ.get("CUDALINK_REQUIRE_TOOLKIT")
    nvjitlink = probes.nvjitlink()
    if wanted is not None and (nvjitlink.usable is None or wanted not in (str(nvjitlink.usable), "latest")):
        pytest.fail(f"this session promised CUDA {wanted}, found {nvjitlink}")
    if nvjitlink.usable is None:
        pytest.skip("needs the wheels of a CUDA toolkit: pip install 'pytest-cudalink[cu13]'")
    return nvjitlink.usable


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Make a folder once for all workers of the run: ``once("wheel", fill)`` gives it, filled by the first worker."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name: str, fill: Callable[[Path], object]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                folder.mkdir(exist_ok=True)
                fill(folder)
                done.touch()
        return folder

    return make


@pytest.fixture(scope="session", autouse=True)
def kept_programs(once) -> None:
    """Give `compile_c` the folder that this run's workers share."""
    compiled.keep_in(once("compiled", lambda _: None))


@pytest.fixture
def as_kept(tmp_path: Path) -> Callable[[Path, str], None]:
    """Compare a text with the file that keeps it; a failure names the file with the new one."""

    def compare(file: Path, text: str) -> None:
        new = tmp_path / file.name
        new.write_text(text, encoding="ascii")
        if text != file.read_text(encoding="ascii"):
            pytest.fail(f"see diff {file} {new}; if the new answers are right, copy that file there")

    return compare


@pytest.fixture(scope="session")
def wheel(once) -> Path:
    """A wheel built from this tree, whose libraries are not optimized: that takes half the time."""

    def build(folder: Path) -> None:
        uv, compiler = Path(sys.executable).with_name("uv"), folder / "cc"
        compiler.write_text(f'#!/bin/sh\nexec {shlex.join(find_compiler())} "$@" -O0\n', encoding="utf-8")
        compiler.chmod(0o755)
        command, env = [uv, "build", "-q", "--wheel", "--out-dir", folder, ROOT], {**os.environ, "CC": str(compiler)}
        subprocess.run(command, check=True, capture_output=True, env=env)

    return next(once("wheel", build).glob("*.whl"))


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Pytest's own, whose home folder is empty: the toolchains stay where they are, or each test would fetch them."""
    monkeypatch.setenv("CUDALINK_CACHE", str(CACHE))
    return pytester


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Import a module of a folder of scripts; skip without a package that it needs."""

    def load(folder: str, name: str, *needs: str) -> ModuleType:
        for package in needs:
            pytest.importorskip(package)
        monkeypatch.syspath_prepend(ROOT / folder)
        return importlib.import_module(name)

    return load


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """The process that nested pytests are forked from."""
    with Forks() as forks:
        yield forks


@pytest.fixture
def run_pytest(pytester: pytest.Pytester, forks: Forks) -> NestedPytest:
    """Run pytest in the folder of ``pytester`` with this plugin alone: ``run_pytest("-x", plugins=("randomly",))``."""
    return NestedPytest(pytester, forks)


def cpu_seconds() -> float:
    """CPU time of this process and of what it started and waited for, forked runs included."""
    return sum(os.times()[:4]) + Forks.cpu_seconds


def slowness() -> float:
    """How many times longer this machine computes just now than the one of `QUICK_LOOP`; at least 1."""
    before = time.process_time()
    sum(number * number for number in range(1_000_000))
    return max(1.0, (time.process_time() - before) / QUICK_LOOP)


@pytest.fixture(autouse=True)
def a_second(request: pytest.FixtureRequest) -> Iterator[None]:
    """In the quick tier, a test takes at most a second of CPU, with its own fixtures and processes.

    CPU time does not grow with what else the machine runs, as time does. Fixtures of wider scope are set up before.
    """
    # zig, where there is no other compiler, builds the C library that a first program of a kind needs
    config = request.config
    limited = "not slow and not apart" in config.option.markexpr and "ziglang" not in find_compiler()
    # those of a folder that only an argument names have another tier
    limited &= not any(request.path.is_relative_to(config.rootpath / name) for name in config.getini("norecursedirs"))
    before = cpu_seconds()
    yield
    seconds = cpu_seconds() - before
    # the half more is for what the first test of a process pays for others: imports, and bytecode that is not there yet
    if limited and seconds > 1.5 and seconds > 1.5 * (limit := max(slowness() for _ in range(3))):
        pytest.fail(
            f"the test took {seconds:.2f} s of CPU; expected at most 1 s in the quick tier, here {limit:.2f} s: share "
            "a run of pytest or a compiled program between tests, or mark the test slow",
            pytrace=False,
        )


@pytest.fixture(autouse=True)
def clean_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test starts has the settings that the test gives it, whatever those of this run are."""
    for option in OPTIONS:
        monkeypatch.delenv(option.env, raising=False)


@pytest.fixture(autouse=True)
def clean_choices() -> Iterator[None]:
    """No test inherits a forced backend or a faked probe from another; the run itself may force one."""
    run = current()
    choice = run and run.choice
    yield
    assert current() is run
    assert (run and run.choice) == choice
    assert not probes.fakes().fakes_driver
    assert not probes.fakes().fakes_nvjitlink


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    """One browser for all tests of a module."""
    program = chromium.find()
    if program is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium), found none on PATH")
    page = chromium.Page(program, tmp_path_factory.mktemp("profile"))
    yield page
    page.close()
