"""An emulated driver whose nvJitLink is missing is made whole before the first test."""

import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import pytest
from packaging.version import Version

from pytest_cudalink import emulator, toolchains
from pytest_cudalink.plugin.conditions import run_driver
from pytest_cudalink.versions import CudaVersion
from tests.nested import NO_AUTOLOAD, with_plugins
from tools import make_toolchains
from tools.package_index import IndexedFile

pytestmark = pytest.mark.xdist_group("toolchains")  # one worker: the cache is filled once

#: A release that no environment of the tests has.
VERSION = "13.4"
RELEASE = CudaVersion(13, 4)
LINK = f"""
import pytest
from pytest_cudalink.linker import ObjectCode

@pytest.mark.parametrize("n", range(4))
def test_link(linker_factory, n, emulated_driver):
    assert str(emulated_driver.version) == "{VERSION}"
    text = b".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() {{ ret; }}"
    assert linker_factory(ObjectCode.from_ptx(text), backend="driver").link("cubin").code
"""
#: An index that refuses every connection.
OFFLINE = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    """An empty cache; the environment has another nvJitLink."""
    if emulator._nvjitlink_of_environment(RELEASE) is not None:
        pytest.skip(f"this environment has nvJitLink {VERSION}")
    monkeypatch.setenv("CUDALINK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "toolchains"


@pytest.fixture
def offline(monkeypatch, tmp_path) -> None:
    """No package index can be reached, and no installer has anything in its own cache."""
    for name, value in {**OFFLINE, "UV_CACHE_DIR": str(tmp_path / "uv"), "UV_HTTP_RETRIES": "0"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def run(run_pytest, pytester, cache):
    """Run pytest on links of an emulated driver."""
    pytester.makepyfile(LINK)

    def go(*arguments: str) -> pytest.RunResult:
        pytester.path.joinpath("stdout").unlink(missing_ok=True)
        # the fixture `pytester` names the cache of the user again
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CUDALINK_CACHE", str(cache.parent))
            return run_pytest(f"--cudalink-driver={VERSION}", "-p", "no:cacheprovider", *arguments)

    return go


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [pytest.param(("-n2",), marks=pytest.mark.weekly), ("--cudalink-processes=isolated",)], ids=str
)
def test_a_run_is_made_whole(run, cache, more) -> None:
    """The controller fetches the toolchain once and the header says so; the second run finds it."""
    result = run(*more)
    result.assert_outcomes(passed=4)
    said = f"cudalink: toolchain {VERSION} was fetched from * (* MB on the disk, * s) into {cache / VERSION}"
    result.stdout.fnmatch_lines([said])
    assert sum("was fetched" in line for line in result.outlines) == 1
    assert [line for line in result.errlines if "fetching" in line or "waiting" in line] == [
        line for line in result.errlines if line.startswith(f"cudalink: fetching the toolchain {VERSION} ")
    ]
    assert sorted(path.name for path in cache.iterdir()) == [f".{VERSION}.lock", VERSION]
    result = run(*more, "-ocudalink_toolchains=cached")
    result.assert_outcomes(passed=4)
    result.stdout.no_fnmatch_line("*was fetched*")


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    "more",
    [(), *(pytest.param((word,), marks=pytest.mark.slow) for word in ("-n2", "--cudalink-processes=isolated"))],
    ids=str,
)
def test_offline_is_one_usage_error(run, cache, more) -> None:
    """Without a network the run ends before its first test, with the command and the option that help."""
    result = run(*more)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text, needs = result.stderr.str(), f"the emulated driver {VERSION} needs nvJitLink {VERSION}"
    assert text.count("ERROR: ") == 1
    for words in (needs, f"`cudalink toolchain add {VERSION}`", "$CUDALINK_CACHE", "CUDALINK_TOOLCHAINS=never"):
        assert words in text
    assert [path.name for path in cache.iterdir() if path.name != f".{VERSION}.lock"] == []


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("source", ["environment CUDALINK_TOOLCHAINS", "ini"])
def test_cached_fetches_nothing(run, cache, pytester, monkeypatch, source) -> None:
    """With ``cached`` a missing toolchain is a usage error at once, and nothing is asked of the network."""
    if source == "ini":
        pytester.makeini("[pytest]\ncudalink_toolchains = cached\n")
    else:
        monkeypatch.setenv("CUDALINK_TOOLCHAINS", "cached")
    result = run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = f"*cudalink_toolchains is cached (from {source}); run: cudalink toolchain add {VERSION}"
    result.stderr.fnmatch_lines([said])
    assert not cache.exists()


@pytest.mark.usefixtures("offline")
def test_never_leaves_the_links_to_fail(run, cache) -> None:
    """With ``never`` the run starts; the header says what is missing and why, and each link says it again."""
    result = run("-ocudalink_toolchains=never")
    result.assert_outcomes(failed=4)
    result.stdout.fnmatch_lines(
        [f"cudalink: *run cudalink toolchain add {VERSION}, toolchains never (from ini))", "*CUDA_ERROR_JIT_*"]
    )
    assert not cache.exists()


@pytest.mark.usefixtures("offline")
def test_nothing_is_fetched_for_no_test(run, cache, pytester) -> None:
    """A folder with the environment of a user who has just installed the plugin has no test: pytest says so."""
    for file in pytester.path.glob("*.py"):
        file.unlink()
    (pytester.path / "venv" / "lib").mkdir(parents=True)
    (pytester.path / "venv" / "pyvenv.cfg").touch()
    (pytester.path / "venv" / "lib" / "test_theirs.py").touch()
    result = run()
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(["collected 0 items"])
    assert not cache.exists()


@pytest.mark.parametrize(
    ("file", "arguments", "ini", "may"),
    [
        ("sub/test_a.py", (), "", True),
        ("sub/conftest.py", (), "", True),
        ("sub/test_a.txt", (), "", True),
        ("a.py", ("--doctest-modules",), "", True),
        ("a.md", ("--doctest-glob=*.md",), "", True),
        ("a.py", ("a.py",), "", True),
        ("a.py", ("--pyargs", "a"), "", True),
        ("check_a.py", (), "python_files = check_*.py", True),
        ("other/test_a.py", (), "testpaths = sub", False),
        ("build/test_a.py", (), "", False),
        ("a.py", (), "", False),
    ],
)
def test_what_may_have_tests(pytester, file, arguments, ini, may) -> None:
    """Files count by the names that the settings give; anything that names cannot tell may have tests."""
    (pytester.path / "sub").mkdir()
    path = pytester.path / file
    path.parent.mkdir(exist_ok=True)
    path.touch()
    pytester.makeini(f"[pytest]\n{ini}\n")
    assert run_driver._may_collect(pytester.parseconfig("-p", "no:cudalink", *arguments)) is may


def test_a_plugin_or_a_link_may_have_tests(pytester) -> None:
    """A plugin can collect files by any name; a link leads to folders that are not looked at here."""
    config = pytester.parseconfig("-p", "no:cudalink")
    assert not run_driver._may_collect(config)
    (pytester.path / "linked").symlink_to(pytester.path.parent)
    assert run_driver._may_collect(config)
    (pytester.path / "linked").unlink()
    config.pluginmanager.register(type("Other", (), {"pytest_collect_file": lambda self, file_path: None})())
    assert run_driver._may_collect(config)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    "word",
    ["--help", "--collect-only", *(pytest.param(f"--{o}", marks=pytest.mark.slow) for o in ("markers", "fixtures"))],
)
def test_nothing_is_fetched_to_show_something(run, cache, word) -> None:
    """Help and collection work offline, and do not download."""
    assert run(word).ret == 0
    assert not cache.exists()


def cudalink(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Result of ``cudalink driver run``."""
    program = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    command = [sys.executable, "-m", "pytest_cudalink.cli", "driver", "run", "--version", VERSION, *arguments]
    return subprocess.run([*command, "--", sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_command_is_made_whole(cache) -> None:
    """``cudalink driver run`` fetches, too; only the program writes to stdout."""
    done = cudalink()
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    first, second = done.stderr.splitlines()
    assert first.startswith(f"cudalink driver run: fetching the toolchain {VERSION} ")
    assert second.startswith(f"cudalink driver run: toolchain {VERSION} was fetched from ")
    again = cudalink("--toolchains", "cached")
    assert (again.returncode, again.stdout, again.stderr) == (0, "0\n", "")
    assert (cache / VERSION).is_dir()


@pytest.mark.usefixtures("cache", "offline")
def test_the_command_offline(monkeypatch) -> None:
    """Without a network it ends with 2 and names the command; ``cached`` asks no network, and ``never`` starts."""
    done = cudalink()
    assert (done.returncode, done.stdout) == (2, "")
    assert f"`cudalink toolchain add {VERSION}`" in done.stderr
    assert "--toolchains never" in done.stderr
    monkeypatch.setenv("CUDALINK_TOOLCHAINS", "cached")
    done = cudalink()
    assert done.returncode == 2
    assert done.stderr.endswith(f"run cudalink toolchain add {VERSION}\n")
    done = cudalink("--toolchains", "never")
    assert (done.returncode, done.stdout) == (0, "0\n")
    assert done.stderr.endswith("links will answer 221 until then\n")


def test_a_driver_of_two_releases(monkeypatch, cache) -> None:
    """A driver of CUDA 13 whose device CUDA 13 dropped lacks two releases; a driver that has its own lacks none."""
    monkeypatch.setattr(emulator, "_nvjitlink_of_environment", lambda _: None)
    assert emulator.emulation_for("13.4", device="sm_70").lacks == (RELEASE, CudaVersion(12, 9))
    assert emulator.emulation_for("12.9", device="sm_70").lacks == (CudaVersion(12, 9),)
    assert emulator.emulation_for("12.7").lacks == (CudaVersion(12, 8),)
    whole = emulator.emulation_for("13.4")._replace(nvjitlink=Path("libnvJitLink.so.13"))
    assert (whole.lacks, whole.missing) == ((), "")
    assert not cache.exists()


def fake_installer(command, *_) -> None:
    """Stand in for uv: unpack one library."""
    site = Path(command[command.index("--target") + 1])
    folder = site / "nvidia" / "nvjitlink" / "lib"
    folder.mkdir(parents=True)
    (folder / "libnvJitLink.so.13").write_bytes(b"x" * 2_000_000)
    for name in ("__init__.py", "__algorithm/copy.h", "__pycache__/x.pyc"):
        file = site / "nvidia" / "nvjitlink" / "include" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_who_waits_says_so(monkeypatch, cache) -> None:
    """One of two fetches, the other says that it waits, and both report the folder, the size and the source."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "mine=https://user:secret@index.example/simple")
    monkeypatch.setattr(toolchains, "_installer", lambda _: ["uv"])
    fetching, go_on, said = threading.Event(), threading.Event(), []

    def slow(command, *_) -> None:
        fetching.set()
        assert go_on.wait(60)
        fake_installer(command)

    monkeypatch.setattr(toolchains, "run_installer", slow)

    def hear(text: str) -> None:
        said.append(text)
        if text.startswith("waiting"):
            go_on.set()

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(toolchains.provide, [RELEASE], hear)
        assert fetching.wait(60)
        second = pool.submit(toolchains.provide, [RELEASE], hear)
        lines = [line for each in (first, second) for line in each.result(60)]
    assert said == [
        f"fetching the toolchain {VERSION} (44 to 133 MB) from https://index.example/simple into {cache / VERSION}",
        f"waiting for the process that fetches the toolchain {VERSION} into {cache / VERSION}",
    ]
    assert [line.rpartition(" into ")[2] for line in lines] == [str(cache / VERSION)] * 2
    first = rf"toolchain {VERSION} was fetched from https://index.example/simple \(2 MB on the disk, \d\d? s\) into "
    assert re.match(first, lines[0])
    assert toolchains.provide([RELEASE], hear) == []
    made = cache / VERSION / "include"
    assert [str(path.relative_to(made)) for path in sorted(made.rglob("*"))] == ["__algorithm", "__algorithm/copy.h"]


@pytest.mark.parametrize("page", ["tutorials/first-red-test.md", "how-to/without-a-gpu.md", "reference/emulator.md"])
def test_pages_name_the_download(page) -> None:
    """Pages and messages give one figure, and the script that measures it reads the wheels of every release."""
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    assert re.findall(r"\((\d+ to \d+ MB)\)", text) == [toolchains.DOWNLOADS["libs"]]


def test_what_a_release_downloads(monkeypatch, capsys) -> None:
    """It is the wheels for the machine that has the larger ones; the file is left as it is."""
    platforms = (("manylinux_aarch64", 10**6), ("manylinux_x86_64", 2 * 10**6), ("win_amd64", 3 * 10**6))

    def files(_index: str, name: str) -> list[IndexedFile]:
        return [
            IndexedFile(f"{name}-{platform}.whl", "", Version(library["version"]), size, sha256, yanked=False)
            for entry in toolchains.releases_table().values()
            for library in (*entry["libs"], *entry["ctk"])
            if library["name"] == name
            for (platform, size), sha256 in zip(cycle(platforms), library["sha256"], strict=False)
        ]

    before = make_toolchains.TARGET.read_bytes()
    monkeypatch.setattr(make_toolchains, "files_of", files)
    assert make_toolchains.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(map(str, toolchains.releases()))
    assert {"12.9: libs 6 MB, ctk 10 MB", "13.0: libs 6 MB, ctk 14 MB"} <= set(lines)
    assert make_toolchains.TARGET.read_bytes() == before


def test_a_broken_download_leaves_nothing(monkeypatch, cache) -> None:
    """What was interrupted leaves no half toolchain, and the next attempt makes it whole."""

    def interrupted(command, *_) -> None:
        fake_installer(command)
        raise KeyboardInterrupt

    monkeypatch.setattr(toolchains, "run_installer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        toolchains.provide([RELEASE], lambda _: None)
    assert [path.name for path in cache.iterdir()] == [f".{VERSION}.lock"]
    (cache / VERSION / "lib64").mkdir(parents=True)  # left by hand: without a manifest it is no toolchain
    monkeypatch.setattr(toolchains, "run_installer", fake_installer)
    (made,) = toolchains.provide([RELEASE], lambda _: None)
    assert made.endswith(f"into {toolchains.library_path(VERSION).parents[1]}")


@pytest.mark.usefixtures("offline")
def test_a_nested_run_under_the_command(cache, pytester, monkeypatch) -> None:
    """A pytest that ``cudalink driver run`` started keeps that driver, and fetches nothing."""
    monkeypatch.setenv("CUDALINK_CACHE", str(cache.parent))
    for name, value in NO_AUTOLOAD.items():
        monkeypatch.setenv(name, value)
    pytester.makepyfile("def test(emulated_driver): pass")
    command = [sys.executable, "-m", "pytest_cudalink.cli", "driver", "run", "--version", VERSION, "--toolchains=never"]
    result = pytester.run(*command, "--", sys.executable, "-m", "pytest", *with_plugins())
    result.assert_outcomes(passed=1)
    assert not cache.exists()
