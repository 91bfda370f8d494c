"""Install the wheels in bare places and use them: Pythons of this machine, an old glibc, aarch64 under qemu-user."""

import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from .build import MACHINES, target

HERE = Path(__file__).parent
SMOKE = HERE / "smoke.py"
PTX = HERE.parents[1] / "tests" / "data" / "artifacts" / "13.0" / "main.ptx"
THREADS = HERE.parents[1] / "tests" / "emulator" / "native" / "threads.c"
#: What the smoke test needs besides the wheel.
NEEDS = ("cuda-bindings==13.0.*", "nvidia-nvjitlink==13.0.*")
#: Programs that run the code of a machine on another one.
QEMU = {machine: (f"qemu-{machine}-static", f"qemu-{machine}") for machine in MACHINES}


class Failure(Exception):  # noqa: N818 (a finding, not an error of this program)
    """A check of the release failed; the message has the command and its output."""


def run(
    *command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None, codes: tuple[int, ...] = (0,)
) -> str:
    """Run a command, and return what it printed. Raises Failure if its exit code is not among the expected ones."""
    words = list(map(str, command))
    # nothing of the session's own environment reaches what is tested
    own = ("CUDALINK_", "PYTHON", "VIRTUAL_ENV")
    given = {name: value for name, value in os.environ.items() if not name.startswith(own)} | (env or {})
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=given, cwd=cwd, timeout=540)
    if done.returncode not in codes:
        raise Failure(f"{shlex.join(words)}\nfailed with exit code {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def find_python(version: str) -> str | None:
    """The path of a Python of this machine, also of one that uv or pyenv has and does not show."""
    command = ["uv", "python", "find", "--no-project", "--no-python-downloads", version]
    ours = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for path in (shutil.which(f"python{version}"), ours, *pyenv):
        if path and not subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode:
            return str(path)
    return None


def _uv(*words: str | Path) -> None:
    run("uv", "pip", "install", "-q", *words)


def _smoke(python: Path, folder: Path) -> str:
    """Run the smoke test from a folder that is no checkout, and return its last line."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(SMOKE, folder)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--cudalink-driver=13.0", "--rootdir", folder)
    # no toolchain of this machine's cache helps out
    env = {"CUDALINK_CACHE": str(folder / "cache")}
    return run(python, *words, folder / SMOKE.name, cwd=folder, env=env).strip().splitlines()[-1]


def _by_name(wheel: Path, extra: str = "") -> tuple[str | Path, ...]:
    """Words of uv by which it finds the wheel among the published files, as on an index: by name, version and tags."""
    version = wheel.name.split("-")[1]
    return "--find-links", wheel.parent, "--only-binary=pytest-cudalink", f"pytest-cudalink{extra}=={version}"


def bare_environment(python: str, wheel: Path, folder: Path) -> str:
    """Install as the README says, ask the doctor and run the smoke test; its last line is returned."""
    run("uv", "venv", "-q", "--clear", "--python", python, folder)
    installed = folder / "bin" / "python"
    _uv("--python", installed, *_by_name(wheel, "[cu13]"), *NEEDS)
    # 1: other CUDA of this machine does not fit, which is not the wheel's fault
    verdict = run(folder / "bin" / "cudalink", "doctor", cwd=folder, codes=(0, 1))
    if "erdict" not in verdict:
        raise Failure(f"cudalink doctor gave no verdict:\n{verdict}")
    return _smoke(installed, folder / "smoke")


def _script(path: Path, *command: str | Path) -> None:
    """Write a program that runs another one under a loader or under qemu."""
    path.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def _steer_worker(package: Path, *prefix: str | Path) -> None:
    """Start the link worker of an unpacked wheel by a prefix, as the kernel here would take this machine's loader."""
    worker = package / "emulator" / "worker" / "lib" / "cudalink-link-worker"
    program = worker.rename(worker.with_suffix(".program"))
    program.chmod(0o755)
    _script(worker, *prefix, program)


def _unpack(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder / "pytest_cudalink"


def _nvjitlink(machine: str, folder: Path) -> Path:
    _uv("--no-deps", "--target", folder, *_for(machine), NEEDS[1])
    (library,) = folder.glob("nvidia/*/lib/libnvJitLink.so.*")
    return library


def _for(machine: str) -> tuple[str, ...]:
    """Options of uv by which it installs for a machine."""
    return ("--python-platform", f"{machine}-manylinux_2_28", "--python-version", "3.11", "--python", sys.executable)


def c_programs(machine: str, wheel: Path, system: Path, include: Path, work: Path, qemu: str = "") -> str:
    """Run C programs on the libraries of a wheel with the glibc of an unpacked system; returns what glibc that is.

    The first loads every library and binds every symbol. The second calls the whole API of the driver from six
    threads, which also links; tests/emulator runs it, too.

    `system`: what `debian.unpack` made.
    `include`: folder of cuda.h.
    `work`: folder for what is built.
    `qemu`: program that runs the machine's code; empty for this machine's own.
    """
    package = _unpack(wheel, work / "wheel")
    loader = next(iter(sorted(system.glob("lib/*-linux-gnu/ld-*.so*"))))
    libraries = package / "emulator" / "lib"
    prefix = (*((qemu, "-L", system) if qemu else ()), loader, "--library-path")
    _steer_worker(package, *prefix, loader.parent)
    cc = (sys.executable, "-m", "ziglang", "cc", "-target", target(machine), "-std=gnu11", "-O1", f"-I{include}")
    programs = {}
    for source in (HERE / "native" / "load_all.c", THREADS):
        programs[source.stem] = work / source.stem
        after = ("-Wno-deprecated-declarations", f"-L{libraries}", "-l:libcuda.so.1") if source == THREADS else ()
        run(*cc, source, *after, "-pthread", "-ldl", "-o", work / source.stem)
    env = {
        "CUDALINK_EMULATOR_VERSION": "13.0",
        "CUDALINK_EMULATOR_RELEASE": "580.65.06",
        "CUDALINK_EMULATOR_ARCH": "sm_90",
        "CUDALINK_EMULATOR_DEVICES": "2",
        "CUDALINK_EMULATOR_NVJITLINK": str(_nvjitlink(machine, work / "nvjitlink")),
        "CUDALINK_EMULATOR_WORKER": str(package / "emulator" / "worker" / "lib" / "cudalink-link-worker"),
        "CUDALINK_EMULATOR_LIFETIME": "report",
    }
    driver = libraries / "libcuda.so.1"
    others = sorted(path for path in package.rglob("lib*.so*") if path != driver and path.suffix != ".py")
    path = f"{libraries}:{loader.parent}"
    printed = run(*prefix, path, programs["load_all"], driver, *others, env=env).strip()
    done = run(*prefix, path, programs["threads"], "all", "1", PTX, env=env).strip()
    if done != "done":
        raise Failure(f"threads.c printed {done!r}; expected 'done'")
    return printed


def other_machine(wheel: Path, system: Path, work: Path, qemu: str) -> str:
    """Run the smoke test on a Python for aarch64 under qemu-user, and return its last line.

    Scripts start Python and the link worker: the kernel may not know how to start programs for aarch64.
    """
    venv = work / "venv"
    site = venv / "lib" / "python3.11" / "site-packages"
    (venv / "bin").mkdir(parents=True)
    home = system / "usr" / "bin"
    (venv / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n", encoding="utf-8")
    python = venv / "bin" / "python"
    _script(python, qemu, "-0", python, "-L", system, home / "python3.11")
    _uv("--target", site, *_for("aarch64"), *_by_name(wheel), *NEEDS)
    _steer_worker(site / "pytest_cudalink", qemu, "-L", system)
    machine = run(python, "-c", "import platform; print(platform.machine(), *platform.libc_ver())").strip()
    return f"{machine}: {_smoke(python, work / 'smoke')}"
