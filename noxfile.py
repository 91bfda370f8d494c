#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.11"
# dependencies = ["nox[uv]>=2025.2.9"]
# ///
"""Sessions of this project: ``nox -l`` lists them, ``nox -s NAME`` or ``uv run noxfile.py -s NAME`` runs one."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

import nox
from nox.command import CommandFailed

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

from pytest_cudalink.compat import exports  # noqa: E402
from pytest_cudalink.matrix.nox import sessions  # noqa: E402 (from the checkout: nothing is installed yet)

# a session starts a thousand processes: where none may write bytecode, each compiles pytest, numpy and the rest again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# a user without a home, as in many containers, has no place for the caches of uv and of the toolchains
if not os.access(os.path.expanduser("~"), os.W_OK):  # noqa: PTH111 (Path.home raises where there is none)
    os.environ.setdefault("XDG_CACHE_HOME", str(ROOT / ".nox" / "cache"))

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "tests", "ctk-13.0"]

CELLS = {cell.name: cell for cell in sessions(ROOT / "matrices" / "cells.toml", root=ROOT)}
#: The toolkit of every session that is not about toolkits.
BASE = CELLS["ctk-13.0"]
#: Options of pytest for every processor; tests that share something costly stay on one of them.
PARALLEL = ("-n", "auto", "--dist", "loadgroup")
#: What sessions install in addition, by session.
RELEASES = nox.project.load_toml(ROOT / "matrices" / "sessions.toml")


def group(name: str) -> list[str]:
    """Requirements of a dependency group of pyproject.toml."""
    return list(nox.project.dependency_groups(nox.project.load_toml(ROOT / "pyproject.toml"), name))


def project_requirements() -> list[str]:
    """What the project itself requires, for sessions that import it from the checkout."""
    project = nox.project.load_toml(ROOT / "pyproject.toml")["project"]
    return list(project["dependencies"])


def install(session: nox.Session, *requirements: str) -> None:
    """Install the project, editable, and some requirements."""
    session.install("-e", str(ROOT), *requirements)


def install_suite(session: nox.Session, *requirements: str) -> None:
    """Install the project and what the quick tests need, on the toolkit of `BASE`; the rest works without a network."""
    install(session, *BASE.packages, "numpy", *group("test"), "nox", "tox>=4.29", *requirements)
    session.run_install("cudalink", "toolchain", "add", "12.9", "13.0", "13.2")
    session.env["CUDALINK_REQUIRE_TOOLKIT"] = BASE.ctk


@nox.session
def tests(session: nox.Session) -> None:
    """The tests that prove the mission, in minutes, on CUDA 13.0; needs no network after the install."""
    install_suite(session)
    session.run("pytest", *PARALLEL, "-m", "not slow and not apart", *session.posargs)


@nox.session(name="tests-slow")
def tests_slow(session: nox.Session) -> None:
    """The rest of the suite: variants, and cases that are too big for `tests`."""
    install_suite(session, *group("slow"))
    session.run("pytest", *PARALLEL, "-m", "slow and not apart", *session.posargs)


@nox.session
def properties(session: nox.Session) -> None:
    """The property tests on 20,000 fresh examples each; the suite itself takes the same 200 in every run."""
    install(session, *BASE.packages, "numpy", *group("test"))
    session.env["HYPOTHESIS_PROFILE"] = "long"
    session.run("pytest", "-n", "auto", "-m", "hypothesis", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Count the faults in the pure rules that their tests notice. --seconds=N --seed=S judges a part."""
    install(session, *group("test"))
    session.run("python", "-m", "tests.mutants", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Every hook of .pre-commit-config.yaml on every file; the name of a hook as argument runs that one."""
    session.install(*group("lint"))
    session.run("pre-commit", "run", "--all-files", "--show-diff-on-failure", *session.posargs)


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict."""
    install(session, *group("types"), "nox", "tox", "rich", "jinja2", *BASE.packages)
    session.run("mypy", *session.posargs)


@nox.session(venv_backend="none")
def generate(session: nox.Session) -> None:
    """Write the constants that several parts share from the data files, and what pages show; tests compare."""
    session.run(sys.executable, "-m", "tools.make_names")
    session.run(sys.executable, "-m", "tools.export_json")
    session.run(sys.executable, "tests/check_written_ci.py", "--write")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation, fail on a warning, run what its pages show, and look at them in Chromium.

    The pictures that Chromium takes are kept in docs/_build/screenshots.
    """
    install_suite(session, *group("docs"), "build", "pip")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html", *session.posargs)
    site = {"CUDALINK_SITE": "docs/_build/html"}
    session.run("pytest", "-q", *PARALLEL, "tests/docs", env=site)


@nox.session
def links(session: nox.Session) -> None:
    """Follow every link of the documentation to another site; needs the network, and runs every week."""
    try:
        socket.getaddrinfo("github.com", 443)
    except OSError as error:
        session.error(f"github.com cannot be found from here: {error.strerror}; every link would be called broken")
    install(session, *group("docs"))
    session.run("sphinx-build", "-W", "--keep-going", "-b", "linkcheck", "docs", "docs/_build/links", *session.posargs)


@nox.session
def screenshots(session: nox.Session) -> None:
    """Take the pictures of docs/images again, with Chromium."""
    install(session, "rich", "jinja2", *group("test"))
    session.run("python", "-m", "tests.report.screenshots", *session.posargs)


BENCHMARKS = (
    *("linker", "growth", "startup", "empty_tests", "emulator", "guardrails", "stubs", "isolation", "sticky"),
    *("jitlink_contract", "answers"),
)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure the speed of everything that has a limit, with and without a GPU; fails beyond a limit. -- NAME chooses.

    Options, such as --rounds=5, go to every benchmark. The figures are kept as .cudalink/bench/NAME.json.
    """
    released = RELEASES["bench"]
    install(session, *BASE.packages, *released["packages"])
    env = {}
    given = [one for one in session.posargs if one.startswith("-")]
    names = [one for one in session.posargs if one not in given] or BENCHMARKS
    if "stubs" in names:
        tilelang = Path(session.create_tmp()) / "tilelang"
        unpack = ("uv", "pip", "install", "-q", "--no-deps", "--target", str(tilelang), released["stubs"])
        session.run(*unpack, external=True, success_codes=range(256), silent=True)  # this platform may have no wheel
        env["CUDALINK_BENCH_TILELANG"] = str(tilelang / "tilelang" / "lib")
    beyond = []
    for name in names:
        plot = ("--svg", ".cudalink/bench/growth.svg") if name == "growth" else ()
        try:
            session.run("python", f"benchmarks/{name}.py", *plot, *given, env=env)
        except CommandFailed:  # the others are measured all the same
            beyond.append(name)
    if beyond:
        session.error(f"beyond a limit: {', '.join(beyond)}")


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    """All that needs a real driver, in stages; writes docs/hardware/DRIVER-DEVICE.json and its page.

    -- --bundle PATH installs from a bundle of `python -m tools.bundle`, without a network; PATH is its folder, its
    .tar or the folder of its volumes. A nox that was installed from a bundle uses its own environment. Other options go
    to `python -m tests.hardware`.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        session.error("libcuda.so.1 is missing; expected an NVIDIA driver; run this session on a machine with a GPU")
    words = [word for one in session.posargs for word in one.split("=", 1)]
    bundle = words[words.index("--bundle") + 1] if "--bundle" in words[:-1] else None
    options = [one for one in session.posargs if one not in ("--bundle", bundle, f"--bundle={bundle}")]
    folder = Path(session.create_tmp()).resolve()
    if bundle is not None:
        python = gpu_from_bundle(session, Path(bundle), folder)
    elif (Path(sys.prefix) / "bundle.json").is_file():
        python = sys.executable
    else:
        python = str(folder / "network" / "bin" / "python")
        packages = nox.project.load_toml(ROOT / "matrices" / "bundle.toml")["requirements"]
        session.run("uv", "venv", "-q", "--clear", "--python", sys.executable, str(folder / "network"), external=True)
        wanted = ("-e", str(ROOT), *BASE.packages, *packages)
        session.run("uv", "pip", "install", "-q", "--python", python, *wanted, external=True)
    env = {"PYTHONPATH": None, "CUDALINK_REQUIRE_TOOLKIT": BASE.ctk}
    if (cache := Path(python).parents[1] / "cache").is_dir():
        env["CUDALINK_CACHE"] = str(cache)
    # the package is that of the environment, and the tests are those of the checkout
    site = str(
        session.run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", silent=True, external=True)
    )
    Path(site.strip(), "checkout.pth").write_text(f"{ROOT.resolve()}\n", encoding="utf-8")
    session.run(python, "-P", "-m", "tests.hardware", *options, env=env, external=True)


def gpu_from_bundle(session: nox.Session, bundle: Path, folder: Path) -> str:
    """Make an environment from a bundle alone; returns its Python, which finds the tests in this checkout."""
    unbundle = (sys.executable, str(ROOT / "tools" / "unbundle.py"))
    if not (bundle / "manifest.json").is_file():
        shutil.rmtree(folder / "bundle", ignore_errors=True)
        session.run(*unbundle, str(bundle), "--to", str(folder / "bundle"), external=True)
        bundle = folder / "bundle"
    made = folder / "offline"
    session.run(*unbundle, str(bundle), "--venv", str(made), "--cache", str(made / "cache"), external=True)
    return str(made / "bin" / "python")


@nox.session
def bundle(session: nox.Session) -> None:
    """Make a bundle of this checkout and two CUDA releases, install it without a network, and link from it."""
    install(session, *BASE.packages, "pip", *group("test"))
    session.run(
        "pytest",
        "-q",
        "tests/toolchains/test_bundle.py",
        env={"CUDALINK_BUNDLE": "1", "CUDALINK_REQUIRE_TOOLKIT": BASE.ctk},
    )


@nox.session(name="jit-lto")
def jit_lto(session: nox.Session) -> None:
    """Write docs/hardware/jit-lto.md and its plots again from their figures. -- --take FOLDER takes new ones first.

    The plots are jit-lto-time.svg, jit-lto-code.svg and jit-lto-link.svg in docs/images.
    """
    install(session, RELEASES["jit-lto"]["matplotlib"], *group("test"))
    session.run("python", "benchmarks/jit_lto_page.py", *session.posargs)
    session.run("pytest", "-q", "tests/docs/test_jit_lto.py")


@nox.session
def pathfinder(session: nox.Session) -> None:
    """The guard rails on each release of cuda.pathfinder whose private parts they use."""
    install(session, *BASE.packages, "numpy", *group("test"))
    session.env["CUDALINK_REQUIRE_TOOLKIT"] = BASE.ctk
    for version in RELEASES["pathfinder"]["releases"]:
        session.install(f"cuda-pathfinder=={version}")
        env = {"CUDALINK_PATHFINDER": version}
        tests = ("tests/guardrails/test_guard.py", "tests/guardrails/test_wheels.py")
        session.run("pytest", "-q", *tests, *session.posargs, env=env)


@nox.session(name="bench-matrix")
def bench_matrix(session: nox.Session) -> None:
    """Measure sessions through uv against virtualenv, by hand and parallel, and a report of half a million results."""
    install(session, "nox[uv]", "virtualenv", "build", "rich", "jinja2", *RELEASES["bench"]["reports"])
    beyond = []
    for name in session.posargs or ("matrix", "report", "environments"):
        try:
            session.run("python", f"benchmarks/{name}.py")
        except CommandFailed:  # the others are measured all the same
            beyond.append(name)
    if beyond:
        session.error(f"beyond a limit: {', '.join(beyond)}")


@nox.session(name="old-nvjitlink")
def old_nvjitlink(session: nox.Session) -> None:
    """An nvJitLink older than 12.3 counts as missing: the wheels of 12.0 and 12.2."""
    old = RELEASES["old-nvjitlink"]
    install(session, *old["packages"], *group("test"))
    for version in old["releases"]:
        session.install(f"nvidia-nvjitlink-cu12=={version}")
        env = {"CUDALINK_OLD_NVJITLINK": version.rpartition(".")[0]}
        session.run("pytest", "tests/old", *session.posargs, env=env)


def library_environment(session: nox.Session, name: str) -> str:
    """Make the environment of a published library; returns its Python."""
    library = RELEASES["libraries"][name]
    requirements = library["packages"]
    packages = [one for one in CELLS[library["cell"]].packages if not own_bindings(requirements, one)]
    folder = Path(session.create_tmp()) / re.sub(r"[^a-z0-9.]+", "-", name)
    python = str(folder / "bin" / "python")
    session.run("uv", "venv", "-q", "--clear", "--python", sys.executable, str(folder), external=True)
    session.run(
        *("uv", "pip", "install", "-q", "--python", python, "-e", str(ROOT), "uv", "numpy", *group("test")),
        *packages,
        *requirements,
        external=True,
    )
    return python


def run_libraries(session: nox.Session, names: Iterable[str], *arguments: str, **env: str) -> None:
    """Run the tests of some published libraries, each in its environment."""
    for name in names:
        python = library_environment(session, name)
        env["CUDALINK_LIBRARY"] = name.split(" ")[0].rstrip(",")
        session.run(python, "-m", "pytest", "-q", "tests/libraries", *arguments, env=env, external=True)


@nox.session(venv_backend="none")
def libraries(session: nox.Session) -> None:
    """Published libraries on emulated drivers, an environment for each; names as arguments choose some of them."""
    run_libraries(session, session.posargs or RELEASES["libraries"])


def own_bindings(requirements: list[str], package: str) -> bool:
    """Whether a library's requirements replace this package of the cell."""
    return package.startswith("cuda-bindings") and any(one.startswith("cuda-bindings") for one in requirements)


@nox.session(name="driver-versions")
def driver_versions(session: nox.Session) -> None:
    """Emulated drivers of every CUDA version, each with the nvJitLink of that version from the toolchain cache."""
    install(session, *BASE.packages, *group("test"))
    session.run("pytest", "tests/emulated/test_driver_api.py", "-k", "version", *session.posargs)


def run_or_skip(session: nox.Session, *command: str) -> None:
    """Run a program whose exit code 77 says that a checker is not installed: the session is skipped, not successful."""
    try:
        session.run(*command)
    except CommandFailed as failed:
        if str(failed) != "Returned code 77":
            raise
        session.skip("its checker is not installed; the line above names it")


def check_native(session: nox.Session, mode: str, *arguments: str) -> None:
    """Run the C programs of tests/emulated/native in one mode; skip it, with a reason, without the checker."""
    install(session, *BASE.packages)
    run_or_skip(session, "python", "-m", "tests.emulated.checkers", mode, *arguments)


@nox.session
def valgrind(session: nox.Session) -> None:
    """The emulated driver under valgrind, which must find dead memory where the driver finds it; --short for less."""
    short = "--short" in session.posargs
    check_native(session, "valgrind-short" if short else "valgrind")
    if not short:  # also the bundled linker's mutants in Python, and cuda-core with and without the fault
        session.install(*group("test"))
        env = {"CUDALINK_VALGRIND": "1"}
        session.run("pytest", "tests/emulated/test_lifetimes.py", "-k", "valgrind", env=env)
        names = [name for name, library in RELEASES["libraries"].items() if library.get("lifetimes")]
        run_libraries(session, names, "-k", "valgrind", **env)


@nox.session
def sanitizers(session: nox.Session) -> None:
    """The emulated driver with the sanitizers of addresses, undefined behaviour and threads, all of its API called."""
    check_native(session, "sanitizers", *session.posargs)
    check_native(session, "threads", *session.posargs)


@nox.session
def leaks(session: nox.Session) -> None:
    """10,000 links compared with those of libnvJitLink, and as many rounds over objects; --rounds=N for less."""
    check_native(session, "leaks", *(session.posargs or ["--rounds=10000"]))


@nox.session
def atlas(session: nox.Session) -> None:
    """Measure which CUDA release links what another one made, for matrices/atlas.json; -- --check only compares.

    -- --check --short compares three releases, which the tests need anyway.
    """
    install(session)
    if "--short" in session.posargs:
        session.run("cudalink", "toolchain", "add", "12.9", "13.0", "13.2")
        session.run("python", "-m", "tools.make_atlas", *session.posargs)
        return
    releases = [str(release) for release in exports.releases("libnvJitLink", 12) + exports.releases("libnvJitLink", 13)]
    session.run("cudalink", "toolchain", "add", *releases)
    folder = Path(session.create_tmp()) / "nvfatbin"
    for major, distribution in exports.distributions("libnvfatbin").items():
        for release in exports.releases("libnvfatbin", major):
            wheel = f"{distribution}=={exports.wheel_versions('libnvfatbin', release)[-1]}"
            target = ("--no-deps", "--target", str(folder / str(release)))
            session.run("uv", "pip", "install", "-q", *target, wheel, external=True)
    session.run("python", "-m", "tools.make_atlas", "--nvfatbin", str(folder), *session.posargs)


@nox.session(name="fuzz-reader")
def fuzz_reader(session: nox.Session) -> None:
    """Feed libFuzzer's inputs to the reader of device code under sanitizers, for a minute; --runs=N or --seconds=N."""
    install(session)
    run_or_skip(session, "python", "-m", "tests.artifacts.fuzz", *session.posargs)


@nox.session(name="matrix-report")
def matrix_report(session: nox.Session) -> None:
    """Merge the records of the cells that ran, and check the known results; arguments name the required cells."""
    install(session, "rich", "jinja2")
    names = session.posargs
    session.run("cudalink", "report", ".cudalink", "--html", ".cudalink/report.html", "--junit", ".cudalink/report.xml")
    session.run("python", "tests/check_matrix.py", ".cudalink", *names)


@nox.session
def abuse(session: nox.Session) -> None:
    """Use 20,000 damaged images in each way, and end, fork and unload as often; fails on death or hang. --seconds=N."""
    install(session, *BASE.packages)
    session.run("python", "-m", "tests.abuse", *session.posargs)


@nox.session(name="mutated-records")
def mutated_records(session: nox.Session) -> None:
    """Use 100,000 mutated records, reports, cells and measurements in the real commands; --seconds=N."""
    install(session, "rich", "jinja2")
    session.run("python", "-m", "tests.mutated_records", *session.posargs)


@nox.session
def interrupts(session: nox.Session) -> None:
    """Raise an exception at every bytecode of the linker and the fixtures; fails if something is left behind."""
    install(session, *BASE.packages, *group("test"))
    session.run("python", "-m", "tests.interrupts", *session.posargs)
    session.run("python", "-m", "tests.interrupts", "--signals=300")


@nox.session
def fuzz(session: nox.Session) -> None:
    """Change the bytes of cubins and link them; counts crashes of nvJitLink. --seconds=N for each cubin."""
    install(session, *BASE.packages)
    for sample in ("12.9/main.cubin", "13.0/main.cubin", "13.0/user.cubin", "13.0/user-sm_100.cubin"):
        session.run("python", "tests/fuzz_cubin.py", sample, *session.posargs)


@nox.session
@nox.parametrize("cuda_core", [nox.param(version, id=version) for version in RELEASES["targets"]["cuda-core"]])
def targets(session: nox.Session, cuda_core: str) -> None:
    """Steer cuda-core, as released: one environment for each branch; some have other targets, too."""
    released = RELEASES["targets"]
    cell = CELLS[released["cuda-core"][cuda_core]]
    others = released["with"].get(cuda_core, [])
    install(session, *cell.packages, f"cuda-core=={cuda_core}", *others, *released["packages"], *group("test"))
    env = {"CUDALINK_REQUIRE_TOOLKIT": cell.ctk, "CUDALINK_REQUIRE_CUDA_CORE": cuda_core}
    env["CUDALINK_REQUIRE_PACKAGES"] = " ".join(one.partition("==")[0] for one in others)
    session.run("pytest", "tests/targets", *session.posargs, env=env)


@nox.session
@nox.parametrize("release", [nox.param(release, id=release) for release in RELEASES["plugins"]["pytest"]])
def plugins(session: nox.Session, release: str) -> None:
    """The plugin's own suite on each pytest, with other plugins. -- --randomly-seed=N repeats an order.

    The runs that its tests start load the other plugins too, and keep their order. On the newest pytest also the
    sessions of the pages on these plugins.
    """
    released = RELEASES["plugins"]
    requirements = (*released["pytest"][release], *released["packages"])
    install(session, *BASE.packages, "numpy", *group("test"), *requirements)
    env = {"CUDALINK_REQUIRE_TOOLKIT": BASE.ctk, "CUDALINK_TESTS_BESIDE": released["beside"]}
    newest = release == [*released["pytest"]][-1]
    pages = ["tests/docs/test_sessions.py::test_session_with_plugins"] if newest else []
    session.run("pytest", "-n", "auto", "tests/plugin", *pages, *session.posargs, env=env)


@nox.session
def downstream(session: nox.Session) -> None:
    """Released cuda-core and numba-cuda, unmodified, on both backends and on emulated drivers 12.9, 13.0 and 13.2."""
    released = RELEASES["downstream"]
    install(session, *CELLS[released["cell"]].packages, *released["packages"])
    drivers = released["drivers"]
    session.run("cudalink", "toolchain", "add", *drivers)
    with session.chdir("downstream"):
        for driver in drivers:
            for backend in ("driver", "nvjitlink", "each"):
                options = (f"--cudalink-driver={driver}", f"--force-backend={backend}")
                session.run("pytest", *options, *session.posargs)


@nox.session(venv_backend="none")
def suites(session: nox.Session) -> None:
    """Published suites on emulated drivers, file by file: -- CHECKOUT chooses one of cuda-python or numba-cuda.

    Options go to `python -m tests.suites`; --help lists them. Fails if fewer tests pass than expected.toml says.
    """
    from tests.suites.definitions import suites as definitions

    found = definitions()
    checkouts = [one for one in session.posargs if Path(one).is_dir()]
    wanted = [one for before, one in zip(session.posargs, session.posargs[1:], strict=False) if before == "--suite"]
    if not checkouts:
        session.error("no checkout is named; run `nox -s suites -- /path/to/cuda-python` or `-- /path/to/numba-cuda`")
    options = [one for one in session.posargs if one not in (*checkouts, "--suite", *wanted)]
    short = []
    for name, suite in found.items():
        checkout = next((one for one in checkouts if suite.is_in(Path(one))), None)
        if checkout is None or (wanted and name not in wanted):
            continue
        python = suite_environment(session, name, suite.packages)
        session.run(python, "-m", "pytest_cudalink.cli", "toolchain", "add", *suite.drivers, external=True)
        try:
            session.run(python, "-m", "tests.suites", checkout, "--suite", name, *options, external=True)
        except CommandFailed:  # the others run all the same
            short.append(name)
    if short:
        session.error(f"fewer tests pass than expected: {', '.join(short)}")


def suite_environment(session: nox.Session, name: str, packages: Iterable[str]) -> str:
    """Make the environment of a published suite on the toolkit of `BASE`; returns its Python."""
    folder = Path(session.create_tmp()) / re.sub(r"[^a-z0-9.]+", "-", name)
    python = str(folder / "bin" / "python")
    session.run("uv", "venv", "-q", "--clear", "--python", sys.executable, str(folder), external=True)
    requirements = [*packages]
    toolkit = [one for one in BASE.packages if not own_bindings(requirements, one)]
    session.run(
        "uv", "pip", "install", "-q", "--python", python, "-e", str(ROOT), *toolkit, *requirements, external=True
    )
    return python


@nox.session
def coverage(session: nox.Session) -> None:
    """The whole suite under coverage, child processes included; fails below the floor of pyproject.toml."""
    install_suite(session, *group("coverage"), *group("slow"))
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *PARALLEL, "-m", "not apart", *session.posargs)
    session.run("coverage", "combine", "-q")
    session.run("coverage", "report")


#: The folders of tests/ that use a dependency; with pytest itself, the file of the plugin that meets its private parts.
LOWEST = (
    *("artifacts", "audit", "cli", "environment", "guardrails", "linker", "matrix", "probes", "process", "report"),
    *("toolchains", "plugin/test_marker.py"),
)


@nox.session(venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """The dependencies, and those of the extras, at the lowest versions that pyproject.toml admits."""
    session.install("--resolution", "lowest-direct", "-e", f"{ROOT}[audit,report,nox,tox]")
    # leaves the above as they are: they satisfy the requirements of the tests
    session.install(*BASE.packages, "numpy", *group("test"))
    session.env["CUDALINK_REQUIRE_TOOLKIT"] = BASE.ctk
    tests = session.posargs or [f"tests/{one}" for one in LOWEST]
    session.run("pytest", "-q", *PARALLEL, "-m", "not slow and not apart", *tests)
    for runner in (("nox", "-l"), ("tox", "l", "--workdir", session.create_tmp())):
        listed = str(session.run(*runner, silent=True))
        if BASE.name not in listed:
            session.error(f"`{' '.join(runner)}` does not list {BASE.name}:\n{listed}")


@nox.session
def stubs(session: nox.Session) -> None:
    """The stubs on the real libraries of several CUDA releases, which cannot share an environment."""
    install(session, *group("test"))
    folders = []
    for release, requirements in RELEASES["stubs"].items():
        folder = Path(session.create_tmp()) / release
        session.run("uv", "pip", "install", "-q", "--no-deps", "--target", str(folder), *requirements, external=True)
        folders.append(str(folder))
    session.env["CUDALINK_STUBS_WHEELS"] = os.pathsep.join(folders)
    session.run("pytest", "tests/stubs/test_real.py", *session.posargs)


@nox.session(name="stubs-valgrind")
def stubs_valgrind(session: nox.Session) -> None:
    """The stubs under valgrind: first calls from many threads, missing libraries, every error path. Needs valgrind."""
    install(session, *group("test"))
    session.run("pytest", "tests/stubs/test_valgrind.py", *session.posargs)


@nox.session(name="stubs-examples")
def stubs_examples(session: nox.Session) -> None:
    """Build the wheels of the example projects, with CMake and with Meson, and use them with and without CUDA."""
    install(session, *BASE.packages, *group("test"), *group("stubs-examples"))
    session.env["CUDALINK_STUBS_EXAMPLES"] = "1"
    session.run("pytest", "tests/stubs/test_examples.py", *session.posargs)


def audited(session: nox.Session, which: str) -> None:
    """Download the published wheels of a session, and tell its tests where they are."""
    folder = Path(session.cache_dir) / "audited"
    folder.mkdir(parents=True, exist_ok=True)
    for requirement in RELEASES[which]["wheels"]:
        name, _, version = requirement.partition("==")
        if not list(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl")):
            session.run("pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder), requirement)
    session.env["CUDALINK_AUDITED_WHEELS"] = str(folder)


@nox.session(name="audit", python="3.11")
def audit(session: nox.Session) -> None:
    """Audit published wheels: CuPy's, TileLang's and small ones of PyTorch's family. Downloads about 270 MB once."""
    install(session, *group("test"), "pip")
    audited(session, "audit")
    session.run("pytest", "tests/audit/test_audit_published.py", *session.posargs)


@nox.session(name="device-code", python="3.11")
def device_code(session: nox.Session) -> None:
    """Audit the device code of published wheels, and compare it with cuobjdump. Downloads about 190 MB once."""
    install(session, *group("test"), "pip")
    audited(session, "device-code")
    session.run("pytest", "tests/audit/test_device_code_published.py", *session.posargs)


@nox.session(name="known-bad", python="3.11")
def known_bad(session: nox.Session) -> None:
    """Run the known-bad entries that need other wheels, each in a separate folder. Downloads about 250 MB once."""
    install(session, *group("test"))
    session.env["CUDALINK_KNOWN_BAD"] = session.create_tmp()
    session.run("pytest", "tests/compat/test_known_bad_released.py", *session.posargs)


def own_wheel(session: nox.Session) -> str:
    """Build this project's wheel: an editable install would compile the native parts for each environment."""
    folder = Path(session.create_tmp()).resolve()
    session.run("uv", "build", "-q", "--wheel", "-o", str(folder), str(ROOT), external=True)
    return str(max(folder.glob("*.whl"), key=os.path.getmtime))


def page_environments(session: nox.Session, environments: dict[str, list[str]]) -> None:
    """Make the environments that pages name before their prompts, each with this project's wheel, for tests."""
    install(session, *group("test"))
    wheel = own_wheel(session)
    root = Path(wheel).parent
    for name, requirements in environments.items():
        folder = root / name
        python = str(folder / "bin" / "python")
        session.run("uv", "venv", "-q", "--clear", "--python", sys.executable, str(folder), external=True)
        session.run("uv", "pip", "install", "-q", "--python", python, wheel, *requirements, external=True)
    session.run("cudalink", "toolchain", "add", "12.9", "13.0")
    session.env["CUDALINK_PAGE_ENVIRONMENTS"] = str(root)


@nox.session
def field(session: nox.Session) -> None:
    """Run the page "What breaks in the field": the releases that broke, and those that repaired them."""
    page_environments(session, RELEASES["field"])
    session.run("pytest", "tests/field", *session.posargs)


@nox.session
def findings(session: nox.Session) -> None:
    """Run the sessions of docs/findings, in the environments that they name; -- ID chooses. --short: no valgrind."""
    from tests.findings import catalog

    chosen = [one for one in session.posargs if not one.startswith("-")]
    wanted = catalog.environments(chosen or [one.id for one in catalog.read()])
    page_environments(session, {name: RELEASES["findings"][name] for name in sorted(wanted)})
    selection = ("-k", " or ".join(chosen)) if chosen else ()
    given = [one for one in session.posargs if one not in (*chosen, "--short")]
    session.env["CUDALINK_VALGRIND"] = "0" if "--short" in session.posargs else "1"
    session.run("pytest", "tests/findings", *selection, *given)


@nox.session(name="finding-releases")
def finding_releases(session: nox.Session) -> None:
    """Run the reproducer of each finding with every release that findings.toml lists; -- ID chooses some findings."""
    install(session, *group("test"))
    session.run("cudalink", "toolchain", "add", "12.9", "13.0")
    session.run("python", "-m", "tests.findings.releases", f"--wheel={own_wheel(session)}", *session.posargs)


@nox.session(name="finding-libraries")
def finding_libraries(session: nox.Session) -> None:
    """Run released versions of other libraries on emulated drivers, into docs/findings; -- LIBRARY chooses. An hour."""
    install(session, *group("test"))
    session.run("cudalink", "toolchain", "add", *("12.9", "13.0", "13.2"))
    folder = Path(session.create_tmp()).resolve()
    given = (f"--folder={folder}", f"--wheel={own_wheel(session)}")
    session.run("python", "-m", "tests.findings.libraries", *given, *session.posargs)


@nox.session
def dist(session: nox.Session) -> None:
    """Build sdist and wheels twice into dist/, check them, install and run them. --short: less; --require: all of it.

    For an old glibc and for aarch64 it needs Debian with the package qemu-user-static; it says what it cannot run, and
    with --require that fails.
    """
    session.install(*group("dist"), *project_requirements())
    session.run("python", "-m", "tests.release", *session.posargs)


@nox.session
def stranger(session: nox.Session) -> None:
    """Walk a newcomer's path from the built wheel, and time it: pip, demo, a red test, a red cell, green. --warm: once.

    It takes the wheel in dist/ if that is the commit's, and writes the seconds of each step into
    .cudalink/stranger.json. Without an option it walks twice, to tell downloads apart.
    """
    session.install("uv>=0.5")
    session.run("python", "-m", "tests.stranger", *session.posargs)


@nox.session
def changelog(session: nox.Session) -> None:
    """Show the next section of the changelog; -- build VERSION writes it, and removes the fragments."""
    session.install(*group("changelog"))
    match session.posargs:
        case ["build", version]:
            session.run("towncrier", "build", "--yes", "--version", version)
        case []:
            session.run("towncrier", "build", "--draft", "--version", "unreleased")
        case other:
            session.error(f"the arguments are {' '.join(other)}; expected none, or: build VERSION")


if __name__ == "__main__":
    nox.main()
