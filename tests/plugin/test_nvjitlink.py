"""Another nvJitLink than the environment's: none, or the real one of another release."""

import subprocess
import sys
from contextlib import suppress

import pytest

from pytest_cudalink import toolchains
from pytest_cudalink.plugin.conditions import nvjitlink
from tests.nested import ALONE, BOTH


@pytest.fixture(scope="session")
def other(toolkit) -> str:
    """A release in the cache that is not the environment's. A download that fails is tried once more."""
    release = "13.2" if str(toolkit) != "13.2" else "13.3"
    with suppress(toolchains.ToolchainError):
        toolchains.add(release)
    toolchains.add(release)
    return release


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest, samples, toolkit):
    """Run pytest on one module in a separate process."""
    for release in ("12.9", "13.2"):
        pytester.path.joinpath(f"{release}.ptx").write_bytes(samples[f"{release}/user.ptx"])
    return lambda module, *arguments: run_pytest(*arguments, module=module)


REAL = """
import ctypes
from pytest_cudalink import probes
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

def test_version():
    from cuda.bindings import nvjitlink
    assert tuple(nvjitlink.version()) == (13, {minor}) == probes.nvjitlink_version()

def test_links_as_that_release():
    options = LinkerOptions(arch="sm_90", check_inputs=False)
    linker = Linker(ObjectCode.from_ptx("13.2.ptx"), options=options, backend="nvjitlink")
    assert linker.link("cubin").artifact.kind == "cubin"

def test_soname():
    major, minor = ctypes.c_uint(), ctypes.c_uint()
    ctypes.CDLL("libnvJitLink.so.13").nvJitLinkVersion(ctypes.byref(major), ctypes.byref(minor))
    assert minor.value == {minor}
"""


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_real_one_of_another_release(run, other, arguments) -> None:
    """The process links with the nvJitLink of the cache, whatever opens it and by whatever name."""
    result = run(REAL.format(minor=other[-1]), f"--cudalink-nvjitlink={other}", *arguments).ended(passed=3)
    result.shows(f"cudalink: * nvJitLink {other} (preloaded, from option)*")


def test_absent(run) -> None:
    """No search finds any; links fall back to the driver, and LTO says what is missing."""
    result = run(
        """
import pytest
from pytest_cudalink import probes
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

def test_absent():
    with pytest.warns(RuntimeWarning, match="available: --cudalink-nvjitlink=absent hides it") as caught:
        assert probes.nvjitlink_version() is None
    assert "install" not in str(caught[0].message)
    assert Linker(ObjectCode.from_ptx("12.9.ptx"), options=LinkerOptions(arch="sm_90")).backend == "driver"
    with pytest.raises(RuntimeError, match="nvJitLink is not available"):
        Linker(ObjectCode.from_ptx("12.9.ptx"), options=LinkerOptions(arch="sm_90", link_time_optimization=True))

def test_cuda_bindings():
    from cuda.bindings import nvjitlink
    from cuda.pathfinder import DynamicLibNotFoundError
    with pytest.raises(DynamicLibNotFoundError, match="absent hides it"):
        nvjitlink.version()

@pytest.mark.cudalink(nvjitlink=">=12.3")
def test_marked(): pass
""",
        "--cudalink-nvjitlink=absent",
        "--cudalink-driver=13.0",
        "-rs",
        "-W",
        "ignore:nvJitLink is not available:RuntimeWarning",
    ).ended(passed=2, skipped=1)
    result.shows("cudalink: * no nvJitLink (absent, from option)*")
    result.shows("SKIPPED * cudalink: needs nvjitlink >= 12.3 (found none)")


@pytest.mark.parametrize(
    ("release", "said"), [("13.9", "is 13.9 (from option): *13.9*"), ("13.1", "is 13.1*cudalink toolchain add 13.1*")]
)
def test_impossible(run, monkeypatch, tmp_path, release: str, said: str) -> None:
    """A release that there is not, or that is not in the cache, is a usage error with the command that brings it."""
    monkeypatch.setenv("CUDALINK_CACHE", str(tmp_path))
    result = run("def test(): pass\n", f"--cudalink-nvjitlink={release}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*cudalink: --cudalink-nvjitlink {said}"])


def test_another_copy_was_first(run, other, pytester) -> None:
    """Where another copy is loaded already, the run does not begin, and says which."""
    pytester.makepyfile(first="from pytest_cudalink import probes\nprobes.nvjitlink()\n")
    for value in (other, "absent"):
        result = run("def test(): pass\n", "-p", "first", f"--cudalink-nvjitlink={value}")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*libnvJitLink.so* is in * already*oad the plugin early*"])


def _fake_library(path, *names: str):
    path.write_bytes(b"\0" + b"".join(name.encode() + b"\0" for name in names))
    return path


def test_cusparse_that_could_not_use_it(tmp_path, monkeypatch) -> None:
    """An older library of the same major than cuSPARSE was built with is refused, with both releases."""
    ours = _fake_library(tmp_path / "libnvJitLink.so.12", "__nvJitLinkCreate_12_3", "__nvJitLinkCreate_12_4")
    cusparse = _fake_library(tmp_path / "libcusparse.so.12", "__nvJitLinkComplete_12_9", "__nvJitLinkCreate_12_4")
    monkeypatch.setattr(nvjitlink, "installed_wheel", str)
    monkeypatch.setattr(nvjitlink, "files_of", lambda name, _: iter([cusparse] if name.endswith("cu12") else []))
    reason = nvjitlink.unusable_by_cusparse(ours)
    assert "offers names up to 12.4" in reason
    assert "needs those of 12.9" in reason
    _fake_library(ours, "__nvJitLinkCreate_12_9", "__nvJitLinkCreate_12_4")
    assert nvjitlink.unusable_by_cusparse(ours) == ""
    _fake_library(ours, "__nvJitLinkCreate_13_0")  # another SONAME: the two do not meet
    assert nvjitlink.unusable_by_cusparse(ours) == ""


def test_aliases_of_a_real_library(other) -> None:
    """The names tell a library's release, and those that the loader finds are the same."""
    library = toolchains.library_path(other)
    versions = nvjitlink.aliases(library)
    assert max(versions) == (13, int(other[-1]))
    # in a separate process: loaded here, it would be what every later look-up finds
    code = "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); [getattr(library, name) for name in sys.argv[2:]]"
    names = [f"__nvJitLinkCreate_{major}_{minor}" for major, minor in versions]
    subprocess.run([sys.executable, "-c", code, str(library), *names], check=True)


def test_absent_is_no_warning_of_ours(run_pytest) -> None:
    """Records and markers that lack an nvJitLink do not warn; a link that falls back to the driver does."""
    module = "import pytest\n@pytest.mark.cudalink(nvjitlink='>=12')\ndef test_it(): pass"
    options = ("-W", "error", "--cudalink-nvjitlink=absent", "--cudalink-report=records.jsonl")
    result = run_pytest(*options, "-p", "no:cacheprovider", module=module).ended(skipped=1)
    result.stdout.no_fnmatch_line("*RuntimeWarning*")
