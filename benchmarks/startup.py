"""Cost of the plugin at the start of pytest and in a run of one test, and that it loads no CUDA. ``nox -s bench``.

Like is compared with like: on the other side stands an empty plugin that pytest finds in the same way. Pytest searches
the metadata of all distributions for the name given to ``-p``, which takes longer than importing the plugin where many
are installed. ``pytest --version`` ends before plugins are loaded, so that the timed start collects an empty folder.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
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
    cases = {
        "with an empty plugin": (EMPTY, None),
        "with this plugin": (PLUGIN, None),
        driver: ((*PLUGIN, driver), 40.0),
        f"and {forced}": ((*PLUGIN, driver, forced), 60.0),
        f"and {rails}": ((*PLUGIN, driver, forced, rails), 60.0),
    }
    times = measure.rounds({name: pytest(*arguments) for name, (arguments, _) in cases.items()}, rounds)
    for name in cases:
        report.row(f"run of one test on {CORES} cores, processor time", name, times[name])
    for name, (_, limit) in cases.items():
        if limit is not None:
            report.limit_difference(f"one test, {name}", times[name], times["with an empty plugin"], limit)


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
    probe = "import sys, pytest_cudalink.plugin; print(*[n for n in sys.modules if n.split('.')[0] == 'cuda'])"
    loaded = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True).stdout.split()
    report.limit("CUDA modules loaded by importing the plugin", len(loaded), 0)
    return report.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())
