"""Run the C programs of `native/` on the emulated driver: plainly, under valgrind, or with sanitizers built in.

    python -m tests.emulator.checkers {plain,valgrind,valgrind-short,sanitizers,threads,leaks,fuzz,orders} [--rounds N]

Exit code 0: nothing was found. Used by the tests and by the sessions ``valgrind``, ``sanitizers`` and ``leaks``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import chain
from pathlib import Path

from native_build import driver, sources
from pytest_cudalink import emulator, toolchains
from pytest_cudalink.base import compiler

HERE = Path(__file__).parent
ARTIFACTS = HERE.parent / "data" / "artifacts"
MAIN = ARTIFACTS / "13.0" / "main.ptx"
VERSION = "13.0"
#: What native/lifetimes.c can do, and whether the memory dies so early that the driver meets it.
SCENARIOS = {
    "kept": False,
    "values-after-create": True,
    "values-after-complete": True,
    "log-after-create": True,
    "log-after-complete": True,
    "log-unmapped": True,
    "overlap": True,
}
#: Bytes that malloc's and Python's caches make of the links, however many there are (up to 15 KiB were seen). malloc's
#: smallest block takes 32 bytes, so that one lost in every third link shows from 3,072 links on.
KEPT_BY_CACHES = 32 * 1024
#: Bytes by which the worker's own pages may grow, however many links there are (12 KiB were seen in 10,000).
WORKER_GROWS = 96 * 1024
#: Not optimized, as most of the time goes to the compiler; under TSan the programs would lose more than is saved.
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-O0")
SANITIZE_THREADS = ("-fsanitize=thread", "-fno-omit-frame-pointer")
#: Processes in which several threads ask for the device for the first time.
FIRST_CALLS = 8
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:exitcode=9:handle_segv=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


def compile_program(name: str, folder: Path, flags: Sequence[str] = (), libraries: Path | None = None) -> Path:
    """Build ``native/NAME.c`` against the cuda.h of a toolkit."""
    program = folder / name
    command = [
        *compiler.find_compiler(),
        *("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations"),
        f"-I{toolchains.add(VERSION).include}",
        str(HERE / "native" / f"{name}.c"),
        *("-o", str(program), f"-L{libraries or emulator.library_folder()}", "-l:libcuda.so.1", "-pthread", "-ldl"),
        *flags,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def run(
    command: Sequence[str | Path],
    *,
    libraries: Path | None = None,
    lifetime: str = "report",
    env: dict[str, str] | None = None,
    timeout: float = 1800,
) -> subprocess.CompletedProcess[str]:
    """Run a program on an emulated driver with two devices."""
    toolchains.add(VERSION)
    planned = emulator.emulation_for(VERSION, device="sm_90:2", lifetime=lifetime)
    environment = {**os.environ, **planned.environment(), **(env or {})}
    if libraries:
        environment["LD_LIBRARY_PATH"] = emulator.prepended(libraries)
    return subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, check=False, timeout=timeout
    )


@cache
def sanitizers_missing(flags: tuple[str, ...] = SANITIZE) -> str:
    """Why nothing can be built with sanitizers here, or not run; empty if it can."""
    if not shutil.which("gcc"):
        return "needs gcc, whose sanitizer runtimes are shared libraries"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "empty.c"
        source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
        program = source.with_suffix("")
        for command in (["gcc", *flags, str(source), "-o", str(program)], [str(program)]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                return f"{command[0]} with {flags[0]}: {done.stderr.strip()}"
    return ""


def build_sanitized(folder: Path, flags: tuple[str, ...] = SANITIZE) -> Path:
    """The emulator's libraries with sanitizers: those of addresses and undefined behaviour, or others."""
    for library in driver.libraries(compiler):
        compiler.build(replace(library, flags=(*library.flags, *flags)), folder, ["gcc"])
    return folder


def trouble(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What a program that prints only "done" had to say instead, or a sentence of the driver with a hole."""
    if (done.returncode, done.stdout) == (0, "done\n") and "(null)" not in done.stderr:
        return []
    return [f"{Path(done.args[0]).name}: exit code {done.returncode}\n{done.stdout}{done.stderr}"]


def many_threads(program: Path, rounds: int, env: dict[str, str], libraries: Path | None = None) -> list[str]:
    """What goes wrong where several threads use the whole of the API at once, and where they destroy one state."""
    done = [
        run([program, "all", str(rounds), MAIN], libraries=libraries, env=env),
        run([program, "one-state", str(50 * rounds)], libraries=libraries, env=env),
    ]
    return [problem for finished in done for problem in trouble(finished)]


#: Programs in which several threads use one part of the API each.
EXERCISES = ("graphs", "memory", "objects", "queues")


def exercise(
    name: str,
    folder: Path,
    rounds: int,
    flags: Sequence[str] = (),
    env: dict[str, str] | None = None,
    libraries: Path | None = None,
) -> list[str]:
    """What goes wrong where several threads use one part of the API: ``exercise_NAME.c``."""
    program = compile_program(f"exercise_{name}", folder, flags, libraries)
    return trouble(run([program, str(rounds)], libraries=libraries, env=env))


def under_thread_sanitizer(rounds: int) -> list[str]:
    """Data races that TSan finds between threads that use the whole of the API at once."""
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        libraries = build_sanitized(folder / "lib", SANITIZE_THREADS)
        env = {"TSAN_OPTIONS": "exitcode=9:history_size=7"}
        program = compile_program("threads", folder, SANITIZE_THREADS, libraries)
        for _ in range(FIRST_CALLS):
            done = run([program, "all", "0", MAIN], libraries=libraries, env={**env, "CUDALINK_EMULATOR_ARCH": "sm_75"})
            problems += trouble(done)
        problems += many_threads(program, 3 * rounds, env, libraries)
        for part in EXERCISES:
            problems += exercise(part, folder, 3 * rounds, SANITIZE_THREADS, env, libraries)
    return problems


def every_nvml_function(folder: Path, flags: Sequence[str] = (), libraries: Path | None = None) -> list[str]:
    """What goes wrong where every function of NVML is called, those that take a device or structure with several."""
    functions = tomllib.loads((sources.PACKAGE / "data" / "emulator" / "nvml_names.toml").read_text(encoding="utf-8"))
    # these wait, need no init, or read a text
    others = {"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown", "nvmlSystemGetNVMLVersion"}
    latest = VERSION.split(".")
    rows = [
        f"{name} {parameters}"
        for name, (since, parameters, *until) in functions["functions"].items()
        if name not in others and not until and list(map(int, since.split("."))) <= list(map(int, latest))
    ]
    names = folder / "names.txt"
    names.write_text("\n".join(rows), encoding="utf-8")
    program = compile_program("exercise_nvml", folder, flags, libraries)
    return trouble(run([program, names], libraries=libraries, env=SANITIZER_OPTIONS))


def under_sanitizers(rounds: int) -> list[str]:
    """Problems that ASan and UBSan find in the whole of the API."""
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        libraries = build_sanitized(folder / "lib")
        env = SANITIZER_OPTIONS
        program = compile_program("exercise", folder, SANITIZE, libraries)
        done = run([program, ARTIFACTS, str(rounds)], libraries=libraries, env=env)
        if done.returncode or not done.stdout.endswith("done\n"):
            problems.append(f"exercise: exit code {done.returncode}\n{done.stderr}")
        problems += every_nvml_function(folder, SANITIZE, libraries)
        program = compile_program("threads", folder, SANITIZE, libraries)
        problems += many_threads(program, 5 * rounds, env, libraries)
        for part in EXERCISES:
            problems += exercise(part, folder, 5 * rounds, SANITIZE, env, libraries)
        program = compile_program("lifetimes", folder, SANITIZE, libraries)
        for scenario, dies in SCENARIOS.items():
            command = [program, scenario, MAIN]
            done = run(command, libraries=libraries, env=env, lifetime="strict")
            if bool(done.returncode) != dies:
                problems.append(f"lifetimes {scenario}: exit code {done.returncode}\n{done.stderr}")
    return problems


def under_valgrind(rounds: int, *, short: bool = False) -> list[str]:
    """Problems that valgrind finds in the whole of the API, and lifetime scenarios on which it does not agree."""
    problems = []
    valgrind = ["valgrind", "-q", "--error-exitcode=9", "--num-callers=20"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compile_program("exercise", folder)
        full = [*valgrind, "--leak-check=full", "--errors-for-leak-kinds=definite"]
        done = run([*full, program, ARTIFACTS, str(rounds)])
        if done.returncode or not done.stdout.endswith("done\n"):
            problems.append(f"exercise: exit code {done.returncode}\n{done.stderr}")
        program = compile_program("lifetimes", folder)
        for scenario, dies in SCENARIOS.items():
            if short and scenario not in ("kept", "values-after-create"):
                continue
            command = [program, scenario, MAIN]
            # found by the emulated driver on its own, with glibc's marks on dead memory as the plugin sets them …
            alone = run(command, env={"MALLOC_PERTURB_": "165"})
            # … and by valgrind, when the driver writes as a real one does
            done = run([*valgrind, *command], lifetime="strict")
            lives = alone.returncode == 0 and int(alone.stdout or 0) > 0
            agrees = "Invalid write" in done.stderr if dies else not done.returncode
            if lives != dies or not agrees:
                problems.append(f"lifetimes {scenario}: alone {alone.stdout!r}, valgrind says\n{done.stderr}")
            # unless it is strict, it writes to nothing dead
            if scenario in ("kept", "log-unmapped"):
                quiet = run([*valgrind, *command])
                if quiet.returncode:
                    problems.append(f"lifetimes {scenario}: writes without leave\n{quiet.stderr}")
    return problems


def python_under_valgrind(log: Path, program: Path, *arguments: str) -> int:
    """Run a Python program on a driver that writes to dead memory as a real one would; gives its exit code.

    What valgrind found goes to `log`.
    """
    command = [
        *("valgrind", f"--log-file={log}", "--undef-value-errors=no"),
        "--free-fill=0xa5",  # what glibc does for the checker elsewhere
        *(sys.executable, program, *arguments),
    ]
    return run(command, lifetime="strict", env={"PYTHONMALLOC": "malloc"}).returncode


def valgrind_missing() -> str:
    """Why nothing in Python is run under valgrind here; empty if it is."""
    if os.environ.get("CUDALINK_VALGRIND") != "1":
        return "minutes under valgrind: nox -s valgrind"
    return "" if shutil.which("valgrind") else "valgrind is not installed"


def plainly(rounds: int) -> list[str]:
    """Answers that are not the expected ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [
            *trouble(run([compile_program("exercise", folder), ARTIFACTS, str(rounds)])),
            *many_threads(compile_program("threads", folder), rounds, {}),
            *every_nvml_function(folder),
            *chain.from_iterable(exercise(name, folder, rounds) for name in EXERCISES),
        ]


def fuzz(rounds: int) -> list[str]:
    """Damaged images whose reading ends in our code by a signal."""
    with tempfile.TemporaryDirectory() as name:
        done = run([compile_program("fuzz", Path(name)), ARTIFACTS, str(rounds)])
    sys.stdout.write(done.stdout)
    return [] if done.returncode == 0 else [done.stdout + done.stderr]


def leaks(rounds: int, mode: str = "driver") -> list[str]:
    """Memory that the emulated driver and its link worker keep beyond what nvJitLink itself keeps, over many links."""
    kept, grown = {}, 0
    library = toolchains.add(VERSION).library("nvJitLink")
    for name in ("direct", mode):
        done = run([sys.executable, HERE / "programs" / "leaks.py", name, str(rounds), library])
        if done.returncode:
            return [done.stderr]
        kept[name], grown = map(int, done.stdout.split())
        print(f"{rounds} links, {name}: {kept[name] / 1024:.0f} KiB were not freed")
    print(f"the link worker grew by {grown / 1024:.0f} KiB")
    allowed = kept["direct"] + KEPT_BY_CACHES
    return [
        *([f"the driver kept {kept[mode]} bytes, {allowed} are allowed"] if kept[mode] > allowed else []),
        *([f"the link worker grew by {grown} bytes, {WORKER_GROWS} are allowed"] if grown > WORKER_GROWS else []),
    ]


def object_leaks(rounds: int, mode: str = "objects") -> list[str]:
    """What pools, virtual memory, IPC handles, arrays and graphs keep when they are gone."""
    done = run([sys.executable, HERE / "programs" / "leaks.py", mode, str(rounds)])
    if done.returncode:
        return [done.stderr]
    problems = []
    for line, process in zip(done.stdout.splitlines(), ("this process", "one that opens its handles"), strict=True):
        held = ("bytes", "mappings", "files", "bytes of files", "bytes of the device")
        grown = dict(zip(held, line.split(), strict=True))
        print(f"{rounds} rounds over objects, {process}: {', '.join(f'{size} {what}' for what, size in grown.items())}")
        allowed = {"bytes": KEPT_BY_CACHES}
        problems += [
            f"{process} kept {size} {what}, {allowed.get(what, 0)} are allowed"
            for what, size in grown.items()
            if int(size) > allowed.get(what, 0)
        ]
    return problems


def all_leaks(rounds: int) -> list[str]:
    """Those of links and those of objects."""
    return [*leaks(rounds), *object_leaks(rounds)]


def orders(rounds: int) -> list[str]:
    """Orders that schedules make and CUDA's rules forbid, of so many thousands; says how many there were."""
    with tempfile.TemporaryDirectory() as name:
        done = run([compile_program("schedule_orders", Path(name)), str(1000 * rounds)])
    print(done.stdout, end="")
    return [f"schedule_orders: exit code {done.returncode}\n{done.stderr}"] if done.returncode else []


MODES = {
    "leaks": all_leaks,
    "plain": plainly,
    "valgrind": under_valgrind,
    "valgrind-short": partial(under_valgrind, short=True),
    "sanitizers": under_sanitizers,
    "threads": under_thread_sanitizer,
    "fuzz": fuzz,
    "orders": orders,
}


def main() -> int:
    """Run one mode; 77 when what it needs is not there, as test programs answer for "skipped"."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=MODES)
    parser.add_argument(
        "--rounds", type=int, default=1, help="how many links, changes of each image, or thousands of orders"
    )
    options = parser.parse_args()
    missing = ""
    if options.mode.startswith("valgrind") and not shutil.which("valgrind"):
        missing = "valgrind is not installed"
    elif options.mode == "sanitizers":
        missing = sanitizers_missing()
    elif options.mode == "threads":
        missing = sanitizers_missing(SANITIZE_THREADS)
    if missing:
        print(f"{options.mode}: skipped: {missing}")
        return 77
    problems = MODES[options.mode](options.rounds)
    print("\n".join(problems) or f"{options.mode}: nothing found")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
