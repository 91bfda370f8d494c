"""Fixtures of the suite that runs on the real wheels of one toolkit."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest

from pytest_cudalink import emulator
from pytest_cudalink.linker import ObjectCode, Program, ProgramOptions, sample

ARCH = "sm_90"
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def _with_toolkit(toolkit) -> None:
    """Every test here needs a toolkit."""


@pytest.fixture(scope="session")
def compiled(toolkit) -> dict[tuple[str, str], ObjectCode]:
    """The two units of the sample by unit and kind, made by this toolkit's NVRTC."""
    made = {}
    for unit, source in (("main", sample.MAIN_SOURCE), ("user", sample.USER_SOURCE)):
        for kind in ("ptx", "ltoir", "cubin"):
            options = ProgramOptions(name=f"{unit}.cu", arch=ARCH, relocatable_device_code=True)
            with Program(source, "c++", options) as program:
                made[unit, kind] = program.compile(kind)
    return made


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
        pathfinder = f"cuda-pathfinder=={metadata.version('cuda-pathfinder')}"
        command = [uv, "pip", "install", "-q", "--python", str(python), "packaging", pathfinder, *requirements]
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
        found = [str(root / "lib64") for root in roots]
        if driver is not None:
            planned = emulator.emulation_for(driver)
            environment |= planned.variables()
            found.append(str(emulator.library_folder()))
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(found)
        command = [str(python), "-c", program]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=python.parent)

    return run
