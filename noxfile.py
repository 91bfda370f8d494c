#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.11"
# dependencies = ["nox[uv]>=2025.2.9", "msgspec>=0.20"]
# ///
"""Sessions of this project: ``nox -l`` lists them, ``nox -s NAME`` or ``uv run noxfile.py -s NAME`` runs one.

tools/sessions.toml has those that only install something and run commands, matrices/cells.toml the matrix.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent))

# from the checkout: nothing is installed yet
from pytest_cudalink.matrix.nox import sessions as define_cells
from tools.nox_sessions import (
    BASE,
    CELLS,
    PARALLEL,
    RELEASES,
    ROOT,
    define_rows,
    environment,
    install,
    own_wheel,
    requirements,
    run_each,
    run_or_skip,
    without_bindings,
)

# a session starts a thousand processes: where none may write bytecode, each compiles pytest, numpy and the rest again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# a user without a home, as in many containers, has no place for the caches of uv and of the toolchains
if not os.access(os.path.expanduser("~"), os.W_OK):  # noqa: PTH111 (Path.home raises where there is none)
    os.environ.setdefault("XDG_CACHE_HOME", str(ROOT / ".nox" / "cache"))

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "tests", "ctk-13.0"]

define_rows()


@nox.session
def links(session: nox.Session) -> None:
    """Follow every link of the documentation to another site; needs the network, and runs every week."""
    try:
        socket.getaddrinfo("github.com", 443)
    except OSError as error:
        session.error(f"github.com cannot be found from here: {error.strerror}; every link would be called broken")
    install(session, "group:docs")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "linkcheck", "docs", "docs/_build/links", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure the speed of everything that has a limit, with and without a GPU; fails beyond a limit. -- NAME chooses.

    Options, such as --rounds=5, go to every benchmark. The figures are kept as .cudalink/bench/NAME.json.
    """
    released = RELEASES["bench"]
    install(session, "toolkit", *released["packages"])
    env = {}
    given = [argument for argument in session.posargs if argument.startswith("-")]
    names = [argument for argument in session.posargs if argument not in given] or released["names"]
    if "stubs" in names:
        tilelang = Path(session.create_tmp()) / "tilelang"
        unpack = ("uv", "pip", "install", "-q", "--no-deps", "--target", str(tilelang), released["stubs"])
        session.run(*unpack, external=True, success_codes=range(256), silent=True)  # this platform may have no wheel
        env["CUDALINK_BENCH_TILELANG"] = str(tilelang / "tilelang" / "lib")

    def measure(name: str) -> None:
        plot = ("--svg", ".cudalink/bench/growth.svg") if name == "growth" else ()
        session.run("python", f"benchmarks/{name}.py", *plot, *given, env=env)

    run_each(session, names, measure, "beyond a limit")


@nox.session(name="bench-matrix")
def bench_matrix(session: nox.Session) -> None:
    """Measure sessions through uv against virtualenv, by hand and parallel, and a report of half a million results."""
    install(session, "nox[uv]", "virtualenv", "build", "rich", "jinja2", *RELEASES["bench"]["reports"])
    names = session.posargs or ("matrix", "report", "environments")
    run_each(session, names, lambda name: session.run("python", f"benchmarks/{name}.py"), "beyond a limit")


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    """All that needs a real driver, in stages; writes docs/hardware/DRIVER-DEVICE.json.

    -- --bundle PATH installs from a bundle of `python -m tools.bundle`, without a network; PATH is its folder, its
    .tar or the folder of its volumes. A nox that was installed from a bundle uses its own environment. Other options go
    to `python -m campaigns.hardware`.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        session.error("libcuda.so.1 is missing; expected an NVIDIA driver; run this session on a machine with a GPU")
    words = [word for argument in session.posargs for word in argument.split("=", 1)]
    bundle = words[words.index("--bundle") + 1] if "--bundle" in words[:-1] else None
    options = [argument for argument in session.posargs if argument not in ("--bundle", bundle, f"--bundle={bundle}")]
    folder = Path(session.create_tmp()).resolve()
    if bundle is not None:
        python = gpu_from_bundle(session, Path(bundle), folder)
    elif (Path(sys.prefix) / "bundle.json").is_file():
        python = sys.executable
    else:
        packages = nox.project.load_toml(ROOT / "tools" / "bundle.toml")["requirements"]
        python = environment(session, "network", "-e", str(ROOT), "toolkit", *packages)
    env = {"PYTHONPATH": None, "CUDALINK_REQUIRE_TOOLKIT": BASE.ctk}
    if (cache := Path(python).parents[1] / "cache").is_dir():
        env["CUDALINK_CACHE"] = str(cache)
    session.run(python, "-m", "campaigns.hardware", *options, env=env, external=True)


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


def run_libraries(session: nox.Session, names: Iterable[str], *arguments: str, **env: str) -> None:
    """Run the tests of some published libraries, each in its environment."""
    for name in names:
        own = RELEASES["libraries"][name]["packages"]
        packages = without_bindings(CELLS[RELEASES["libraries"][name]["cell"]].packages, own)
        python = environment(session, name, "-e", str(ROOT), "uv", "numpy", "group:test", *packages, *own)
        env["CUDALINK_LIBRARY"] = name.split(" ")[0].rstrip(",")
        session.run(python, "-m", "pytest", "-q", "campaigns/libraries", *arguments, env=env, external=True)


@nox.session(venv_backend="none")
def libraries(session: nox.Session) -> None:
    """Published libraries on emulated drivers, an environment for each; names as arguments choose some of them."""
    run_libraries(session, session.posargs or RELEASES["libraries"])


@nox.session(tags=["checker"])
def valgrind(session: nox.Session) -> None:
    """The emulated driver under valgrind, which must find dead memory where the driver finds it; --short for less."""
    short = "--short" in session.posargs
    install(session, "toolkit", "group:test")
    run_or_skip(session, "python", "-m", "tests.emulator.checkers", "valgrind-short" if short else "valgrind")
    if not short:  # also the bundled linker's mutants in Python, and cuda-core with and without the fault
        env = {"CUDALINK_VALGRIND": "1"}
        session.run("pytest", "tests/emulator/test_lifetimes.py", "-k", "valgrind", env=env)
        names = [name for name, library in RELEASES["libraries"].items() if library.get("lifetimes")]
        run_libraries(session, names, "-k", "valgrind", **env)


@nox.session
@nox.parametrize("cuda_core", [nox.param(version, id=version) for version in RELEASES["targets"]["cuda-core"]])
def targets(session: nox.Session, cuda_core: str) -> None:
    """Steer cuda-core, as released: one environment for each branch; some have other targets, too."""
    released = RELEASES["targets"]
    cell = CELLS[released["cuda-core"][cuda_core]]
    others = released["with"].get(cuda_core, [])
    install(session, *cell.packages, f"cuda-core=={cuda_core}", *others, *released["packages"], "group:test")
    env = {"CUDALINK_REQUIRE_TOOLKIT": cell.ctk, "CUDALINK_REQUIRE_CUDA_CORE": cuda_core}
    env["CUDALINK_REQUIRE_PACKAGES"] = " ".join(other.partition("==")[0] for other in others)
    session.run("pytest", "tests/targets", *session.posargs, env=env)


@nox.session
@nox.parametrize("release", [nox.param(release, id=release) for release in RELEASES["plugins"]["pytest"]])
def plugins(session: nox.Session, release: str) -> None:
    """The plugin's own suite on each pytest, with other plugins. -- --randomly-seed=N repeats an order.

    The runs that its tests start load the other plugins too, and keep their order. On the newest pytest also the
    sessions of the pages on these plugins.
    """
    released = RELEASES["plugins"]
    install(session, "toolkit", "numpy", "group:test", *released["pytest"][release], *released["packages"])
    env = {"CUDALINK_REQUIRE_TOOLKIT": BASE.ctk, "TESTS_BESIDE": released["beside"]}
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
    """Published suites, file by file, on emulated drivers with their own toolkit: -- CHECKOUT, such as of cuda-python.

    Options go to `python -m campaigns.suites`; --help lists them. Fails if fewer tests pass than expected.toml says, or
    if a verdict is not that of the GPU where the suite ran with `--driver real`.
    """
    from campaigns.suites.definitions import suites as definitions
    from campaigns.suites.hardware import EMULATED, REAL

    suites = definitions()
    given = list(pairwise(("", *session.posargs)))
    checkouts = [word for before, word in given if Path(word).is_dir() and before != "--records"]
    wanted = [word for before, word in given if before == "--suite"]
    drivers = [word for before, word in given if before == "--driver"]
    if not checkouts:
        session.error("no checkout is named; run `nox -s suites -- /path/to/cuda-python` or `-- /path/to/numba-cuda`")
    if unknown := [driver for driver in drivers if driver != REAL and f"ctk-{driver}" not in CELLS]:
        cells = ", ".join(name for name, cell in CELLS.items() if name == f"ctk-{cell.ctk}")
        session.error(f"no toolkit is known for --driver {', '.join(unknown)}; matrices/cells.toml has {cells}")
    taken = {*checkouts, "--suite", *wanted, "--driver", *drivers}
    options = [argument for argument in session.posargs if argument not in taken]
    at = {name: next((path for path in checkouts if suite.is_in(Path(path))), "") for name, suite in suites.items()}

    def run(row: str) -> None:
        name, _, driver = row.rpartition(" on ")
        release = EMULATED if driver == REAL else driver
        packages = suites[name].packages_on(release)
        toolkit = without_bindings(
            CELLS[f"ctk-{release}"].packages, packages
        )  # a driver's own: skew is another session's
        python = environment(session, row, "-e", str(ROOT), *toolkit, *packages)
        if driver != REAL:
            session.run(python, "-m", "pytest_cudalink.cli", "toolchain", "add", driver, external=True)
        session.run(
            python, "-m", "campaigns.suites", at[name], "--suite", name, "--driver", driver, *options, external=True
        )

    chosen = [name for name in at if at[name] and name in (wanted or at)]
    rows = [f"{name} on {driver}" for name in chosen for driver in drivers or suites[name].drivers]
    run_each(session, rows, run, "fewer tests pass than expected")


#: The folders of tests/ that use a dependency; with pytest itself, the file of the plugin that meets its private parts.
LOWEST = (
    *("artifacts", "audit", "cli", "doctor", "environment", "guardrails", "linker", "matrix", "probes", "report"),
    *("loader", "emulator/runtime", "toolchains", "plugin/test_marker.py"),
)


@nox.session(venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """The dependencies, and those of the extras, at the lowest versions that pyproject.toml admits."""
    session.install("--resolution", "lowest-direct", "-e", f"{ROOT}[audit,report,nox,tox]")
    # leaves the above as they are: they satisfy the requirements of the tests
    session.install(*requirements(["toolkit", "numpy", "group:test"]))
    session.env["CUDALINK_REQUIRE_TOOLKIT"] = BASE.ctk
    tests = session.posargs or [f"tests/{path}" for path in LOWEST]
    session.run(
        "pytest", "-q", *PARALLEL, "-m", "not (slow or apart)", *tests
    )  # no limit of CPU: old releases are slow
    for runner in (("nox", "-l"), ("tox", "l", "--workdir", session.create_tmp())):
        listed = str(session.run(*runner, silent=True))
        if BASE.name not in listed:
            session.error(f"`{' '.join(runner)}` does not list {BASE.name}:\n{listed}")


@nox.session
def stubs(session: nox.Session) -> None:
    """The stubs on the real libraries of several CUDA releases, which cannot share an environment."""
    install(session, "group:test")
    folders = []
    for release, wheels in RELEASES["stubs"].items():
        folder = Path(session.create_tmp()) / release
        session.run("uv", "pip", "install", "-q", "--no-deps", "--target", str(folder), *wheels, external=True)
        folders.append(str(folder))
    session.env["CUDALINK_STUBS_WHEELS"] = os.pathsep.join(folders)
    session.run("pytest", "tests/stubs/test_real.py", *session.posargs)


def page_environments(session: nox.Session, environments: dict[str, list[str]]) -> None:
    """Make the environments that pages name before their prompts, each with this project's wheel, for tests."""
    install(session, "group:test")
    wheel = own_wheel(session)
    for name, packages in environments.items():
        environment(session, name, wheel, *packages)
    session.run("cudalink", "toolchain", "add", "12.9", "13.0")
    session.env["CUDALINK_PAGE_ENVIRONMENTS"] = str(Path(session.create_tmp()).resolve())


@nox.session
def findings(session: nox.Session) -> None:
    """Run the sessions of the findings and, as "field", of what breaks there; -- ID chooses. --short: no valgrind."""
    from campaigns.findings import catalog

    chosen = [argument for argument in session.posargs if not argument.startswith("-")]
    page_environments(session, {name: RELEASES["findings"][name] for name in sorted(catalog.environments(chosen))})
    selection = ("-k", " or ".join(chosen)) if chosen else ()
    given = [argument for argument in session.posargs if argument not in (*chosen, "--short")]
    session.env["CUDALINK_VALGRIND"] = "0" if "--short" in session.posargs else "1"
    session.run("pytest", "campaigns/findings", *selection, *given)


define_cells(ROOT / "matrices" / "cells.toml", root=ROOT)

if __name__ == "__main__":
    nox.main()
