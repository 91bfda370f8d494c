"""The guard rails on real wheels and toolkits: the situations that they are for."""

import json
import os
import shlex
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from pytest_cudalink import emulator, toolchains
from pytest_cudalink.guardrails.items import Item, ItemKind
from pytest_cudalink.guardrails.repair import repair
from pytest_cudalink.versions import CudaVersion

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
#: A process that loads NVRTC and then locates the headers to compile.
REPRODUCER = """
import cuda.pathfinder as pf
from pytest_cudalink import guardrails
guardrails.install()
try:
    print(pf.load_nvidia_dynamic_lib("nvrtc").abs_path)
    print(pf.locate_nvidia_header_directory("cudart").abs_path)
finally:
    guardrails.uninstall()
"""

STRICT = {"CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS": "strict"}


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> Callable[..., Path]:
    """Make an environment with some wheels, and give its Python: ``wheels("nvidia-nvjitlink==13.0.88")``."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    assert uv, "uv is among the dependencies of the tests"

    @cache
    def make(*requirements: str) -> Path:
        folder = tmp_path_factory.mktemp("wheels")
        venv.create(folder, symlinks=True)
        python = folder / "bin" / "python"
        needed = ["packaging", "msgspec", f"cuda-pathfinder=={metadata.version('cuda-pathfinder')}"]
        command = [uv, "pip", "install", "-q", "--python", str(python), *needed, *requirements]
        for attempt in (1, 2):  # an index may fail once
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return python
            print(f"attempt {attempt}: {' '.join(command)}\n{done.stderr}", file=sys.stderr)
        pytest.fail(f"no environment with {', '.join(requirements)}: {done.stderr}")

    return make


@pytest.fixture
def child() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program with another environment's Python: on an emulated driver, with toolkits for the loader to find."""

    def run(
        python: Path, program: str, *, driver: str | None = "13.5", roots: Sequence[Path] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        names = ("PATH", "HOME", "CUDALINK_CACHE", "XDG_CACHE_HOME")
        environment = {name: os.environ[name] for name in names if name in os.environ}
        environment |= {"PYTHONPATH": str(ROOT), **variables}
        folders = [str(root / "lib64") for root in roots]
        if driver is not None:
            planned = emulator.emulation_for(driver)
            environment |= planned.variables()
            folders.append(str(emulator.library_folder()))
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(folders)
        command = [str(python), "-c", program]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=python.parent)

    return run


@pytest.fixture(scope="module")
def root() -> Path:
    """A toolkit 13.0 as it would be installed, with include/, lib64/ and bin/, assembled from wheels."""
    return toolchains.add("13.0", "ctk").path


@pytest.fixture(scope="module")
def nvrtc_13_2(wheels) -> Path:
    """An environment with NVRTC 13.2 and no headers of the runtime."""
    return wheels("cuda-toolkit[nvrtc]==13.2.2")


@pytest.fixture(scope="module")
def nvrtc_12_9(wheels) -> Path:
    """An environment with NVRTC 12.9 and no headers of the runtime."""
    return wheels("cuda-toolkit[nvrtc]==12.9.1")


def run_fix(python: Path, message: str) -> None:
    """Run the command that a message gives, in an environment."""
    (command,) = [line.partition("fix:")[2].strip() for line in message.splitlines() if "fix:" in line]
    assert command.startswith("pip ")
    here = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", "PIP_NO_INPUT": "1"}
    script = command.replace("pip ", f"{shlex.quote(str(python))} -m pip -q ", 1)
    script = script.replace("&& pip ", f"&& {shlex.quote(str(python))} -m pip -q ")
    subprocess.run(["/bin/sh", "-c", script], check=True, capture_output=True, env=here)


def test_the_problem_is_real(nvrtc_12_9, root, child) -> None:
    """Released pathfinder returns both without a warning."""
    done = child(nvrtc_12_9, REPRODUCER, roots=[root], CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS="off")
    assert done.returncode == 0, done.stderr
    nvrtc, headers = done.stdout.split()
    assert nvrtc.endswith("nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
    assert headers == str(root / "include")


@pytest.mark.parametrize("mode", ["strict", "best_effort"])
@pytest.mark.parametrize("by", ["loader", "CUDA_PATH"])
def test_older_nvrtc_beside_newer_headers(nvrtc_12_9, root, child, mode: str, by: str) -> None:
    """Refused, with both items, how they were found, both versions and their witnesses, the rule and the command."""
    roots, variables = ([root], {}) if by == "loader" else ([], {"CUDA_PATH": str(root)})
    done = child(nvrtc_12_9, REPRODUCER, roots=roots, CUDA_PATHFINDER_COMPATIBILITY_GUARD_RAILS=mode, **variables)
    assert done.returncode == 1
    assert len(done.stdout.split()) == 1  # NVRTC was fine
    via = "system-ctk-root" if by == "loader" else "CUDA_PATH"
    for words in (
        "CompatibilityCheckError: the cudart headers are of CUDA 13.0, the nvrtc library of CUDA 12.9",
        f"found: cudart headers at {root}/include (found via {via}); CUDA 13.0: CUDA_VERSION 13000 in {root}/include/",
        "libnvrtc.so.12 (found via site-packages); CUDA 12.9: nvidia-cuda-nvrtc-cu12 12.9.86 is of cuda-toolkit 12.9.",
        "rule:  linked",
        # the environment has no pip, and no variable says that it is active
        f"fix:   uv pip install --python {nvrtc_12_9.parents[1]} 'cuda-toolkit[cudart]==12.9.*'",
    ):
        assert words in done.stderr


def test_the_command_repairs_it(wheels, root, child) -> None:
    """What the message says to run makes the same program pass."""
    python = wheels("cuda-toolkit[nvrtc]==12.9.1", "pip")  # not the one of the other tests: it changes
    refused = child(python, REPRODUCER, roots=[root], **STRICT)
    run_fix(python, refused.stderr)
    done = child(python, REPRODUCER, roots=[root], **STRICT)
    assert done.returncode == 0, done.stderr
    assert "site-packages/nvidia/cuda_runtime/include" in done.stdout


def test_the_command_for_an_old_driver(wheels, child) -> None:
    """NVRTC 13 on a driver of CUDA 12.8: the command takes the newer wheels away, which would be found first."""
    python = wheels("cuda-toolkit[nvrtc,cudart]==13.0.2", "pip")
    refused = child(python, REPRODUCER, driver="12.8", **STRICT)
    assert "DriverCtkCompatibilityError: the driver does not run CUDA 13.0 (nvrtc library)" in refused.stderr
    assert "CUDA_PATHFINDER_DRIVER_COMPATIBILITY=assume_forward_compatibility" in refused.stderr
    assume = {"CUDA_PATHFINDER_DRIVER_COMPATIBILITY": "assume_forward_compatibility"}
    assert child(python, REPRODUCER, driver="12.8", **STRICT, **assume).returncode == 0
    for _ in range(2):  # NVRTC first, then the headers that do not fit it any more
        refused = child(python, REPRODUCER, driver="12.8", **STRICT)
        run_fix(python, refused.stderr)
    done = child(python, REPRODUCER, driver="12.8", **STRICT)
    assert done.returncode == 0, done.stderr
    assert all("site-packages/nvidia/cuda_" in path for path in done.stdout.split())


def test_two_whole_toolkits_in_one_environment(wheels, child) -> None:
    """With 12.9 and 13.0 complete, the search takes 13.0 for everything, and that is coherent."""
    python = wheels(
        "cuda-toolkit[cudart,nvjitlink,nvrtc]==13.0.2",
        "nvidia-nvjitlink==13.0.88",
        *("nvidia-cuda-nvrtc-cu12==12.9.86", "nvidia-cuda-runtime-cu12==12.9.79", "nvidia-nvjitlink-cu12==12.9.86"),
    )
    done = child(python, REPRODUCER, **STRICT)
    assert done.returncode == 0, done.stderr
    assert all("nvidia/cu13" in path for path in done.stdout.split())


VERSIONS = """
import json
from pytest_cudalink.guardrails import CompatibilityCheckError, CompatibilityGuardRails
guard = CompatibilityGuardRails(ctk_version={constraint!r})
try:
    for name in {names!r}:
        guard.load_nvidia_dynamic_lib(name)
except CompatibilityCheckError as error:
    print(error)
else:
    print(json.dumps({{item.name: [str(item.version), item.witness] for item in guard.remembered}}))
"""


def test_a_range_that_misattributes(wheels, child) -> None:
    """What cuda-toolkit 13.2 lets in as nvJitLink is 13.5, although its cuda.h and its requirement say 13.2."""
    python = wheels("cuda-toolkit[cudart,nvjitlink,nvrtc]==13.2.2", "nvidia-nvjitlink==13.5.*", "pip")
    done = child(python, VERSIONS.format(constraint=None, names=["nvJitLink", "nvrtc", "cudart"]))
    versions = json.loads(done.stdout)
    assert versions["nvJitLink"] == ["13.5", "its newest symbol, __nvJitLinkCreate_13_5"]
    assert [versions[name][0] for name in ("nvrtc", "cudart")] == ["13.2", "13.2"]
    refused = child(python, VERSIONS.format(constraint="==13.2.*", names=["nvrtc", "nvJitLink"]))
    assert "the nvJitLink library is of CUDA 13.5, but ctk_version asks for '==13.2.*'" in refused.stdout
    run_fix(python, refused.stdout)
    done = child(python, VERSIONS.format(constraint="==13.2.*", names=["nvrtc", "nvJitLink"]))
    assert json.loads(done.stdout)["nvJitLink"][0] == "13.2"


ELSEWHERE = """
import ctypes, sys
ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else {library!r}, mode=ctypes.RTLD_GLOBAL)
from pytest_cudalink.guardrails import CompatibilityGuardRails, CompatibilityCheckError
guard = CompatibilityGuardRails()
{first}
try:
    guard.{then}
except CompatibilityCheckError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("", "locate_nvidia_header_directory('cudart')"),
        ("guard.load_nvidia_dynamic_lib('nvrtc')", "locate_nvidia_header_directory('cudart')"),
    ],
)
def test_a_library_that_other_code_loaded(wheels, child, first: str, then: str) -> None:
    """A framework's own NVRTC 12.9 in the process is judged like one that was looked up, before its look-up too."""
    library = str(toolchains.add("12.9").library("nvrtc"))
    python = wheels("cuda-toolkit[cudart,nvrtc]==13.0.2")
    done = child(python, ELSEWHERE.format(library=library, first=first, then=then))
    assert "the cudart headers are of CUDA 13.0, the nvrtc library of CUDA 12.9" in done.stdout, done.stderr
    assert f"nvrtc library at {library}" in done.stdout
    assert "libnvrtc-builtins.so.12.9" in done.stdout


REFUSED = """
from pytest_cudalink.guardrails import *
guard = CompatibilityGuardRails(ctk_version={constraint!r})
try:
    guard.load_nvidia_dynamic_lib({name!r})
except CompatibilityCheckError as error:
    print(type(error).__name__, error)
print([line.split()[-1] for line in open("/proc/self/maps") if "lib{name}" in line or "libcublas" in line])
"""


@pytest.mark.parametrize("by", ["wheel", "loader"])
def test_refused_before_it_is_loaded(wheels, nvrtc_13_2, root, child, by: str) -> None:
    """What is refused is not in the process, whether the search or the dynamic loader would have found it."""
    python, roots = (nvrtc_13_2, []) if by == "wheel" else (wheels("nvidia-cuda-runtime==13.0.96"), [root])
    done = child(python, REFUSED.format(constraint="<13", name="nvrtc"), roots=roots)
    assert "CompatibilityCheckError the nvrtc library is of CUDA 13." in done.stdout, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    via = "site-packages" if by == "wheel" else "system-search"
    assert f"(found via {via})" in done.stdout


def test_a_toolkit_in_a_folder(wheels, child, root) -> None:
    """Every kind of item of an installed toolkit is found there, and its cuda.h names the release."""
    python = wheels("pip")
    program = """
import json
from pytest_cudalink.guardrails import CompatibilityGuardRails
guard = CompatibilityGuardRails(ctk_version="==13.0.*")
guard.load_nvidia_dynamic_lib("cudart")
guard.find_nvidia_header_directory("cudart")
guard.find_nvidia_header_directory("nvcc")
guard.find_static_lib("cudadevrt")
guard.find_bitcode_lib("device")
guard.find_nvidia_binary_utility("nvcc")
print(json.dumps([[item.kind, str(item.version), item.witness] for item in guard.remembered]))
"""
    done = child(python, program, roots=[root], CUDA_PATH=str(root))
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {kind for kind, _, _ in rows} == set(ItemKind.__args__) - {"artifacts"}
    assert {(version, witness) for _, version, witness in rows} == {
        ("13.0", f"CUDA_VERSION 13000 in {root}/include/cuda.h")
    }


EVERY = [
    Item(kind, name, "/x", "site-packages", "ctk", None, "", "")
    for kind, name in [
        *(("dynamic-libs", name) for name in ("nvrtc", "nvJitLink", "cudart", "nvvm", "cublas", "cudla")),
        *(("headers", name) for name in ("cudart", "cccl", "nvcc", "profiler")),
        ("static-libs", "cudadevrt"),
        ("bitcode-libs", "device"),
    ]
]


@pytest.mark.parametrize("at_most", [False, True])
@pytest.mark.parametrize("version", ["11.4", "11.8", "12.0", "12.7", "12.9", "13.0", "13.2", "13.5"])
def test_every_command_resolves(version: str, at_most: bool, tmp_path) -> None:
    """A repair installs packages that the index has, of the intended release, or there is no command."""
    release = CudaVersion.parse(version)
    command = str(repair(EVERY, release, at_most=at_most))
    if not command:
        assert version == "11.4" or (version == "12.7" and not at_most)
        return
    needs = tmp_path / "requirements.in"
    needs.write_text("\n".join(shlex.split(command)[2:]), encoding="utf-8")
    uv = [sys.executable, "-m", "uv", "pip", "compile", "-q", "--no-header", "--no-annotate", str(needs)]
    done = subprocess.run(uv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    installed = dict(line.split("==") for line in done.stdout.splitlines() if "==" in line)
    expected = "12.6" if version == "12.7" else version
    names = [f"nvidia-cuda-nvrtc{'' if release.major >= 13 else f'-cu{release.major}'}"]
    names += ["nvidia-nvjitlink"] if release.major >= 13 else []
    for name in ("cuda-toolkit", *names):
        assert installed[name].startswith(f"{expected}."), installed


@pytest.mark.parametrize("version", ["11.7", "12.7"])
def test_releases_without_wheels(version: str) -> None:
    """The list of them holds: the index has no cuda-toolkit of these."""
    uv = [sys.executable, "-m", "uv", "pip", "compile", "-"]
    done = subprocess.run(uv, input=f"cuda-toolkit=={version}.*", check=False, capture_output=True, text=True)
    assert "unsatisfiable" in done.stderr
