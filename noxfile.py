#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.11"
# dependencies = ["nox[uv]>=2025.2.9"]
# ///
"""Sessions of this project: ``nox -l`` lists them, ``nox -s NAME`` or ``uv run noxfile.py -s NAME`` runs one."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import nox

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

from pytest_cudalink.matrix.nox import sessions  # noqa: E402 (from the checkout: nothing is installed yet)

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["lint", "types", "tests", "ctk-13.0"]

CELLS = {cell.name: cell for cell in sessions(ROOT / "matrices" / "cells.toml", root=ROOT)}
#: The one toolkit that sessions use which are not about toolkits.
BASE = CELLS["ctk-13.0"]


def group(name: str) -> list[str]:
    """Requirements of a dependency group of pyproject.toml."""
    return list(nox.project.dependency_groups(nox.project.load_toml(ROOT / "pyproject.toml"), name))


def install(session: nox.Session, *requirements: str) -> None:
    """Install the project, editable, beside some requirements."""
    session.install("-e", str(ROOT), *requirements)


@nox.session
def tests(session: nox.Session) -> None:
    """The whole suite on one toolkit, 13.0."""
    install(session, *BASE.packages, "numpy", *group("test"), *group("stubs"), *group("docs"), "build", "nox", "pip")
    session.env["CUDALINK_REQUIRE_TOOLKIT"] = BASE.ctk
    session.run("pytest", "-n", "2", "--dist", "loadgroup", *session.posargs)


@nox.session
def properties(session: nox.Session) -> None:
    """The property tests on 20,000 fresh examples each; the suite itself takes the same 200 in every run."""
    install(session, *BASE.packages, "numpy", *group("test"))
    session.env["HYPOTHESIS_PROFILE"] = "long"
    session.run("pytest", "-n", "2", "-m", "hypothesis", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Ruff: rules and formatting."""
    session.install(*group("lint"))
    session.run("ruff", "check", *session.posargs)
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Mypy, strict."""
    install(session, *group("types"), "nox", "tox", "rich", "jinja2", *BASE.packages)
    session.run("mypy", *session.posargs)


@nox.session(venv_backend="none")
def generate(session: nox.Session) -> None:
    """Write the constants that several parts share from the data files; a test compares."""
    session.run(sys.executable, "pytest_cudalink/compat/make_names.py")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation; a warning is an error."""
    install(session, *group("docs"))
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure what the project promises about speed, as ratios within one run; fails beyond a limit."""
    install(session, *BASE.packages)
    session.run("python", "benchmarks/linker.py", *session.posargs)
    session.run("python", "benchmarks/startup.py", *session.posargs)
    session.run("python", "benchmarks/empty_tests.py", *session.posargs)
    session.run("python", "benchmarks/emulator.py", *session.posargs)
    session.run("python", "benchmarks/guardrails.py", *session.posargs)
    tilelang = Path(session.create_tmp()) / "tilelang"
    unpack = ("uv", "pip", "install", "-q", "--no-deps", "--target", str(tilelang), "tilelang==0.1.15")
    session.run(*unpack, external=True, success_codes=range(256), silent=True)  # another machine's wheel may be missing
    env = {"CUDALINK_BENCH_TILELANG": str(tilelang / "tilelang" / "lib")}
    session.run("python", "benchmarks/stubs.py", *session.posargs, env=env)


@nox.session
def pathfinder(session: nox.Session) -> None:
    """The guard rails on each release of cuda.pathfinder whose private parts they know."""
    install(session, *BASE.packages, "numpy", *group("test"))
    session.env["CUDALINK_REQUIRE_TOOLKIT"] = BASE.ctk
    for version in ("1.5.0", "1.5.6", "1.7.0", "1.9.0"):
        session.install(f"cuda-pathfinder=={version}")
        env = {"CUDALINK_PATHFINDER": version}
        tests = ("tests/guardrails/test_guard.py", "tests/toolkit/test_guardrails_wheels.py")
        session.run("pytest", "-q", *tests, *session.posargs, env=env)


@nox.session(name="bench-matrix")
def bench_matrix(session: nox.Session) -> None:
    """Measure sessions through uv against virtualenv, parallel cells, and a report of half a million results."""
    install(session, "nox[uv]", "virtualenv", "build", "rich", "jinja2")
    session.run("python", "benchmarks/matrix.py", *session.posargs)


@nox.session(name="old-nvjitlink")
def old_nvjitlink(session: nox.Session) -> None:
    """An nvJitLink older than 12.3 counts as none: the wheels of 12.0 and 12.2."""
    install(session, "cuda-bindings==12.9.*", *group("test"))
    for version in ("12.0.140", "12.2.140"):
        session.install(f"nvidia-nvjitlink-cu12=={version}")
        env = {"CUDALINK_OLD_NVJITLINK": version.rpartition(".")[0]}
        session.run("pytest", "tests/old", *session.posargs, env=env)


#: Published libraries that run on emulated drivers, each in an environment of its own: what to install, on which cell.
LIBRARIES = {
    "cuda-core 0.7.0": (["cuda-core==0.7.0"], "ctk-13.0"),
    "cuda-core 1.1.0": (["cuda-core==1.1.0"], "ctk-13.0"),
    "cuda-core 1.1.1": (["cuda-core==1.1.1"], "ctk-13.0"),
    "cuda-core 1.2.2": (["cuda-core==1.2.2"], "ctk-13.0"),
    "cuda-core 1.2.2, CUDA 12": (["cuda-core==1.2.2"], "ctk-12.9"),
    "numba-cuda 0.30.4": (["numba-cuda==0.30.4", "numpy<2.5"], "ctk-13.0"),
    "cuda-bindings 12.9": ([], "ctk-12.9"),
    "cuda-bindings 13.0": ([], "ctk-13.0"),
    "cuda-bindings 13.5": (["cuda-bindings==13.5.*"], "ctk-13.0"),
    "cupy-cuda13x": (["cupy-cuda13x"], "ctk-13.0"),
}

#: Those whose link options die too early, and the first ones after whose do not.
LIFETIMES = ("cuda-core 0.7.0", "cuda-core 1.1.0", "cuda-core 1.1.1", "cuda-core 1.2.2")


def library_environment(session: nox.Session, name: str) -> str:
    """Make the environment of one of `LIBRARIES`; gives its Python."""
    requirements, cell = LIBRARIES[name]
    packages = [one for one in CELLS[cell].packages if requirements == [] or not own_bindings(requirements, one)]
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
    """Run the tests of libraries, each in its environment."""
    for name in names:
        python = library_environment(session, name)
        env["CUDALINK_LIBRARY"] = name.split(" ")[0].rstrip(",")
        session.run(python, "-m", "pytest", "-q", "tests/libraries", *arguments, env=env, external=True)


@nox.session(venv_backend="none")
def libraries(session: nox.Session) -> None:
    """Published libraries on emulated drivers, an environment for each; names as arguments choose some of them."""
    run_libraries(session, session.posargs or LIBRARIES)


def own_bindings(requirements: list[str], package: str) -> bool:
    """Whether a cell's package gives way to the version of it that a library is tested with."""
    return package.startswith("cuda-bindings") and any(one.startswith("cuda-bindings") for one in requirements)


@nox.session(name="driver-versions")
def driver_versions(session: nox.Session) -> None:
    """Emulated drivers of every CUDA version, each with its own nvJitLink from the toolchain cache."""
    install(session, *BASE.packages, *group("test"))
    env = {"CUDALINK_ALL_DRIVERS": "1"}
    session.run("pytest", "tests/emulated/test_driver_api.py", "-k", "version", *session.posargs, env=env)


def check_native(session: nox.Session, mode: str, *arguments: str) -> None:
    """Run the C programs of tests/emulated/native in one mode; without the checker it is skipped, with a reason."""
    install(session, *BASE.packages)
    session.run("python", "-m", "tests.emulated.checkers", mode, *arguments, success_codes=[0, 77])


@nox.session
def valgrind(session: nox.Session) -> None:
    """The emulated driver under valgrind, which finds dead memory where the driver does; --short for less."""
    short = "--short" in session.posargs
    check_native(session, "valgrind-short" if short else "valgrind")
    if not short:  # and of the bundled linker's mutants in Python, and of cuda-core with the fault and without
        session.install(*group("test"))
        env = {"CUDALINK_VALGRIND": "1"}
        session.run("pytest", "tests/emulated/test_lifetimes.py", "-k", "valgrind", env=env)
        run_libraries(session, LIFETIMES, "-k", "valgrind", **env)


@nox.session
def sanitizers(session: nox.Session) -> None:
    """The emulated driver built with address and undefined-behaviour sanitizers, all of its API called."""
    check_native(session, "sanitizers", *session.posargs)


@nox.session
def leaks(session: nox.Session) -> None:
    """10,000 links through the emulated driver, against what libnvJitLink itself leaves; --rounds=N for less."""
    check_native(session, "leaks", *(session.posargs or ["--rounds=10000"]))


@nox.session(name="fuzz-driver")
def fuzz_driver(session: nox.Session) -> None:
    """Damaged images of every kind given to the emulated driver; a signal in its own code fails. --rounds=N of each."""
    check_native(session, "fuzz", *(session.posargs or ["--rounds=300"]))


@nox.session(name="matrix-report")
def matrix_report(session: nox.Session) -> None:
    """Merge the records of the cells that ran, and assert what is known of them; names of cells that must be there."""
    install(session, "rich", "jinja2")
    names = session.posargs
    session.run("cudalink", "report", ".cudalink", "--html", ".cudalink/report.html", "--junit", ".cudalink/report.xml")
    session.run("python", "tests/check_matrix.py", ".cudalink", *names)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Change the bytes of cubins and link them; counts what still kills nvJitLink. --step=N takes every N-th byte."""
    install(session, *BASE.packages)
    for sample in ("12.9/main.cubin", "13.0/main.cubin", "13.0/user.cubin", "13.0/user-sm_100.cubin"):
        session.run("python", "tests/fuzz_cubin.py", sample, *session.posargs)


#: The last release of each branch of cuda-core that the recipes are for. 1.0 does not import with cuda-bindings 13.0.
CUDA_CORE = ("0.3.2", "0.4.2", "0.5.1", "0.6.0", "0.7.0", "1.0.1", "1.1.1", "1.2.2")


@nox.session
@nox.parametrize("cuda_core", [nox.param(version, id=version) for version in CUDA_CORE])
def targets(session: nox.Session, cuda_core: str) -> None:
    """Steer cuda-core, as released: one environment for each branch."""
    cell = CELLS["ctk-13.2"] if cuda_core.startswith("1.0.") else BASE
    install(session, *cell.packages, f"cuda-core=={cuda_core}", "numpy<2.5", *group("test"))
    env = {"CUDALINK_REQUIRE_TOOLKIT": cell.ctk, "CUDALINK_REQUIRE_CUDA_CORE": cuda_core}
    session.run("pytest", "tests/targets", *session.posargs, env=env)


#: Releases of pytest, each with the plugins that people run beside this one. pytest 9 has subtests of its own.
PYTESTS = {
    "8.4": ["pytest==8.4.*", "pytest-subtests"],
    "9.0": ["pytest==9.0.*"],
    "9.1": ["pytest==9.1.*"],
    "9.2": ["pytest==9.2.*"],
}


@nox.session
@nox.parametrize("release", [nox.param(release, id=release) for release in PYTESTS])
def plugins(session: nox.Session, release: str) -> None:
    """The plugin's own suite on each pytest, beside pytest-randomly and pytest-rerunfailures."""
    beside = ("pytest-randomly", "pytest-rerunfailures")
    install(session, *BASE.packages, "numpy", *group("test"), *PYTESTS[release], *beside)
    session.run("pytest", "tests/plugin", *session.posargs)


@nox.session
def downstream(session: nox.Session) -> None:
    """Released cuda-core and numba-cuda, unmodified, on both backends and on emulated drivers 12.9, 13.0 and 13.2."""
    cell = CELLS["ctk-13.2"]
    install(
        session, *cell.packages, "cuda-toolkit[nvvm]==13.2.2", "cuda-core==1.2.2", "numba-cuda==0.30.4", "numpy<2.5"
    )
    drivers = ("12.9", "13.0", "13.2")
    session.run("cudalink", "toolchain", "add", *drivers)
    with session.chdir("downstream"):
        for driver in drivers:
            for backend in ("driver", "nvjitlink", "each"):
                options = (f"--cudalink-driver={driver}", f"--force-backend={backend}")
                session.run("pytest", *options, *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """The whole suite under coverage, with a report."""
    install(session, *BASE.packages, "numpy", *group("test"), *group("docs"), *group("coverage"), "build", "nox")
    session.env["CUDALINK_REQUIRE_TOOLKIT"] = BASE.ctk
    session.run("coverage", "run", "-m", "pytest", *session.posargs)
    session.run("coverage", "combine")
    session.run("coverage", "report")


#: The wheels that the stubs' tests need of each release: runtime, NVRTC, and the compiler's for crt/host_defines.h.
STUB_RELEASES = {
    "11.8": ("nvidia-cuda-runtime-cu11==11.8.*", "nvidia-cuda-nvrtc-cu11==11.8.*", "nvidia-cuda-nvcc-cu11==11.8.*"),
    "12.0": ("nvidia-cuda-runtime-cu12==12.0.*", "nvidia-cuda-nvrtc-cu12==12.0.*", "nvidia-cuda-nvcc-cu12==12.0.*"),
    "12.9": ("nvidia-cuda-runtime-cu12==12.9.*", "nvidia-cuda-nvrtc-cu12==12.9.*", "nvidia-cuda-nvcc-cu12==12.9.*"),
    "13.0": ("nvidia-cuda-runtime==13.0.*", "nvidia-cuda-nvrtc==13.0.*", "nvidia-cuda-crt==13.0.*"),
    "13.2": ("nvidia-cuda-runtime==13.2.*", "nvidia-cuda-nvrtc==13.2.*", "nvidia-cuda-crt==13.2.*"),
}


@nox.session
def stubs(session: nox.Session) -> None:
    """The stubs on the real libraries of CUDA 11.8, 12.0, 12.9, 13.0 and 13.2, which cannot share an environment."""
    install(session, *group("test"))
    folders = []
    for release, requirements in STUB_RELEASES.items():
        folder = Path(session.create_tmp()) / release
        session.run("uv", "pip", "install", "-q", "--no-deps", "--target", str(folder), *requirements, external=True)
        folders.append(str(folder))
    session.env["CUDALINK_STUBS_WHEELS"] = os.pathsep.join(folders)
    session.run("pytest", "tests/stubs/test_real.py", *session.posargs)


@nox.session(name="stubs-valgrind")
def stubs_valgrind(session: nox.Session) -> None:
    """The stubs under valgrind: first calls from many threads, missing libraries, every error path. Needs valgrind."""
    install(session, *group("test"))
    session.env["CUDALINK_STUBS_VALGRIND"] = "1"
    session.run("pytest", "tests/stubs/test_valgrind.py", *session.posargs)


@nox.session(name="stubs-examples")
def stubs_examples(session: nox.Session) -> None:
    """Build the wheels of the example projects, with CMake and with Meson, and use them with and without CUDA."""
    install(session, *BASE.packages, *group("test"), *group("stubs-examples"))
    session.env["CUDALINK_STUBS_EXAMPLES"] = "1"
    session.run("pytest", "tests/stubs/test_examples.py", *session.posargs)


#: Published wheels that are audited; what is known of them stands in the test.
AUDITED = (
    "cupy-cuda12x==14.2.0",
    "cupy-cuda13x==14.2.0",
    "tilelang==0.1.15",
    "torchaudio==2.11.0",
    "torchcodec==0.17.0",
)


@nox.session(name="audit", python="3.11")
def audit(session: nox.Session) -> None:
    """Audit published wheels: CuPy's, TileLang's and small ones of PyTorch's family. Downloads about 270 MB once."""
    install(session, *group("test"), "pip")
    folder = Path(session.cache_dir) / "audited"
    folder.mkdir(parents=True, exist_ok=True)
    for requirement in AUDITED:
        name, _, version = requirement.partition("==")
        if not list(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl")):
            session.run("pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder), requirement)
    session.env["CUDALINK_AUDITED_WHEELS"] = str(folder)
    session.run("pytest", "tests/audit/test_audit_published.py", *session.posargs)


@nox.session
def changelog(session: nox.Session) -> None:
    """Show the next section of the changelog."""
    session.install(*group("changelog"))
    version = os.environ.get("VERSION", "unreleased")
    session.run("towncrier", "build", "--draft", "--version", version)


if __name__ == "__main__":
    nox.main()
