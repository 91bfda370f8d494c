"""Cost of the plugin at the start of pytest and in a run of one test, and that it loads no CUDA. ``nox -s bench``.

Like is compared with like: on the other side stands an empty plugin that pytest finds in the same way. Pytest searches
the metadata of all distributions for the name given to ``-p``, which takes longer than importing the plugin where many
are installed. ``pytest --version`` ends before plugins are loaded, so that the timed start collects an empty folder.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from pytest_runs import EMPTY, Pytest, add_distributions, add_empty_plugin

ROUNDS = 31
PLUGIN = ("-p", "cudalink")
#: Milliseconds that a start with the plugin may take longer, however many distributions are installed.
START_LIMIT = 5.0
MANY = 220
#: Other plugins that many suites have, by distribution: the name of their entry point.
NEIGHBOURS = {
    "pytest-xdist": "xdist",
    "pytest-cov": "pytest_cov",
    "hypothesis": "hypothesispytest",
    "pytest-timeout": "timeout",
    "pytest-html": "html",
}
CORES = 2
#: What both environments of `as_users_run` have.
WITH = ("packaging", "cuda-pathfinder", "msgspec", "platformdirs")
ROOT = Path(__file__).parents[1]
#: Instructions of one empty test as users run it, divided by those without the plugin; the mean of some hash seeds,
#: because a collection of garbage more or less is a thousandth.
SEEDS = 3
UNUSED_LIMIT = 1.045
DRIVER_LIMIT = 1.25
REPORT_LIMIT = 1.34
#: Processor time of ``cudalink can-link`` divided by that of ``cudalink --help``.
CAN_LINK_LIMIT = 3.0
#: Bytes in the wheel that is audited; the megabytes that this may need, and its time in that of reading them.
WHEEL_SIZE, AUDIT_LIMIT, AUDIT_RATIO = 900e6, 150.0, 3.0


def starts(report: measure.Report, rounds: int, folder: Path) -> None:
    """Compare the start among the distributions of this environment, and among many more."""
    tests, empty = folder / "none", folder / "plugin"
    tests.mkdir()
    lean = Pytest(tests, empty, expected=5)  # nothing collected
    crowded = Pytest(tests, empty, add_distributions(folder / "many", MANY), expected=5)
    quiet = ("-q", "--collect-only")
    there = report.environment["distributions"]
    for number, pytest in ((there, lean), (there + MANY, crowded)):
        table = f"start of pytest among {number} distributions, processor time"
        times = measure.rounds(
            {"no plugin": pytest(*quiet), "empty": pytest(*quiet, *EMPTY), "ours": pytest(*quiet, *PLUGIN)}, rounds
        )
        report.row(table, "without a plugin", times["no plugin"])
        report.row(table, "with an empty plugin", times["empty"])
        report.row(table, "with this plugin", times["ours"])
        report.limit_difference(f"start among {number}", times["ours"], times["empty"], START_LIMIT)


def neighbours(report: measure.Report, rounds: int, folder: Path) -> None:
    """Report the start with other plugins that are installed here, each alone and found by its name."""
    tests = folder / "neighbours"
    tests.mkdir()
    pytest = Pytest(tests, folder / "plugin", expected=5)
    installed = {point.name for point in metadata.entry_points(group="pytest11")}
    others = {name: ("-p", plugin) for name, plugin in NEIGHBOURS.items() if plugin in installed}
    cases = {"an empty plugin": EMPTY, "this plugin": PLUGIN, **others}
    times = measure.rounds({name: pytest("-q", "--collect-only", *words) for name, words in cases.items()}, rounds)
    for name, seconds in times.items():
        report.row("start of pytest with one plugin, processor time", name, seconds, times["an empty plugin"])


def one_test(report: measure.Report, rounds: int, folder: Path) -> None:
    """Compare runs of one test that touches no CUDA, under more and more options."""
    from pytest_cudalink import probes

    tests = folder / "one"
    tests.mkdir()
    (tests / "test_one.py").write_text("def test_one(): pass\n", encoding="utf-8")
    pytest = Pytest(tests, folder / "plugin", cores=CORES)
    release = ".".join((probes.nvjitlink_wheel() or "13.0").split(".")[:2])
    driver = f"--cudalink-driver={release}"
    forced, rails = "--force-backend=driver", "--cudalink-guard-rails=best_effort"
    record = f"--cudalink-report={folder / 'record'}"
    cases = {
        "with an empty plugin": (EMPTY, None),
        "with this plugin": (PLUGIN, None),
        driver: ((*PLUGIN, driver), 40.0),
        f"and {forced}": ((*PLUGIN, driver, forced), 60.0),
        f"and {rails}": ((*PLUGIN, driver, forced, rails), 60.0),
        "--cudalink-report": ((*PLUGIN, record), 100.0),
    }
    times = measure.rounds({name: pytest(*arguments) for name, (arguments, _) in cases.items()}, rounds)
    for name in cases:
        report.row(f"run of one test on {CORES} cores, processor time", name, times[name])
    for name, (_, limit) in cases.items():
        if limit is not None:
            report.limit_difference(f"one test, {name}", times[name], times["with an empty plugin"], limit)


def as_users_run(report: measure.Report, folder: Path) -> None:
    """Count the instructions of one empty test: from a wheel, found by its entry point, with warm bytecode."""
    if shutil.which("valgrind") is None:
        print("without valgrind, the instructions of a run from a wheel are not counted")
        return
    tests, wheels = folder / "users", folder / "wheels"
    tests.mkdir()
    (tests / "test_one.py").write_text("def test_one(): pass\n", encoding="utf-8")
    subprocess.run(["uv", "build", "-q", "--wheel", "-o", wheels, ROOT], check=True)
    (wheel,) = wheels.glob("*.whl")
    same = [f"pytest=={metadata.version('pytest')}", *WITH]
    ours = f"pytest-cudalink=={wheel.name.split('-')[1]}"  # by name, as from the index
    pythons = [str(folder / f"users{number}" / "bin" / "python") for number in range(2)]  # paths of one length
    for python, packages in zip(pythons, (same, [*same, ours]), strict=True):
        subprocess.run(["uv", "venv", "-q", "--python", sys.executable, Path(python).parents[1]], check=True)
        install = ["uv", "pip", "install", "-q", "--python", python, "--find-links", wheels, *packages]
        subprocess.run(install, check=True)
    passed = {name: value for name, value in os.environ.items() if not name.startswith(("CUDALINK_", "PYTEST_"))}
    passed.pop("PYTHONDONTWRITEBYTECODE", None)
    counted: dict[str, float] = {}
    for name, python, *more in (
        ("without", pythons[0]),
        ("unused", pythons[1]),
        ("driver", pythons[1], "--cudalink-driver=13.0"),
        ("report", pythons[1], f"--cudalink-report={folder / 'users.jsonl'}"),
    ):
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *more, "."]
        callgrind = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
        for tool, seed in (((), 0), ((), 0), *((callgrind, seed) for seed in range(SEEDS))):
            environment = {**passed, "PYTHONHASHSEED": str(seed), "TMPDIR": str(tests)}
            words = [*tool, *command]
            done = subprocess.run(words, cwd=tests, env=environment, capture_output=True, text=True, check=True)
            if tool:
                count = int(re.findall(r"Collected : (\d+)", done.stderr)[0])
                counted[name] = counted.get(name, 0) + count / SEEDS
        report.fact(
            f"instructions {name}", counted[name], f"  {name:10}{counted[name] / 1e6:10.0f} million instructions"
        )
    for name, limit in (("unused", UNUSED_LIMIT), ("driver", DRIVER_LIMIT), ("report", REPORT_LIMIT)):
        report.limit(f"one empty test as users run it, {name}, instructions", counted[name] / counted["without"], limit)


def _run(*words: str) -> tuple[float, int]:
    """Run Python with these arguments; return the processor time, and the most memory that it had, in bytes."""
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def commands(report: measure.Report, rounds: int) -> None:
    """Compare a command that answers from tables with the shortest one."""
    cases = {"--help": ("--help",), "can-link": ("can-link", "12.4", "nvjitlink-13.2", "ltoir")}

    def prepare(words: tuple[str, ...]) -> measure.Prepare:
        return lambda: lambda: measure.Seconds(_run("-m", "pytest_cudalink.cli", *words)[0])

    times = measure.rounds({name: prepare(words) for name, words in cases.items()}, rounds)
    for name, seconds in times.items():
        report.row("cudalink, processor time", name, seconds)
    report.limit_ratio("cudalink can-link to --help", times["can-link"], times["--help"], CAN_LINK_LIMIT)


def large_wheel(report: measure.Report, folder: Path) -> None:
    """Audit a wheel of 900 MB, of the toolkit's own libraries; compare it with reading its members once."""
    libraries = [
        path
        for distribution in metadata.distributions()
        for path in (Path(str(file.locate())) for file in distribution.files or ())
        if distribution.name.startswith("nvidia-") and ".so" in path.name and path.stat().st_size > 1 << 20
    ]
    wheel, size = folder / "large-1.0-py3-none-manylinux_2_28_x86_64.whl", 0
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("large-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: large\nVersion: 1.0\n")
        for number, library in enumerate(itertools.cycle(libraries)):
            if size > WHEEL_SIZE:
                break
            archive.write(library, f"large/part{number}/{library.name}")
            size += library.stat().st_size
    read, _ = _run("-c", f"import zipfile; print(zipfile.ZipFile({str(wheel)!r}).testzip())")
    audited, memory = _run("-m", "pytest_cudalink.cli", "audit", str(wheel))
    report.limit(f"audit of {size / 1e6:.0f} MB in a wheel, memory", memory / 1e6, AUDIT_LIMIT, "MB")
    report.limit("the same, processor time to that of reading its members", audited / read, AUDIT_RATIO, "x")


def main() -> int:
    """Measure starts and runs of one test; return exit code 1 beyond a limit."""
    options = measure.arguments("startup", ROUNDS, __doc__)
    report = measure.Report("startup", "Start of pytest with and without the plugin")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        add_empty_plugin(folder / "plugin")
        starts(report, options.rounds, folder)
        neighbours(report, options.rounds, folder)
        one_test(report, options.rounds, folder)
        as_users_run(report, folder)
        large_wheel(report, folder)
    commands(report, options.rounds)
    probe = "import sys, pytest_cudalink.plugin; print(*[n for n in sys.modules if n.split('.')[0] == 'cuda'])"
    loaded = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True).stdout.split()
    report.limit("CUDA modules loaded by importing the plugin", len(loaded), 0)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
