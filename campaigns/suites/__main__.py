"""Run published suites on emulated drivers, each file in its own process: ``python -m campaigns.suites --help``."""

import argparse
import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_path

from pytest_cudalink.report import records
from pytest_cudalink.report.origin import commit_and_branch

from .definitions import Suite, suites
from .expectations import EXPECTED, read_expected, write_expected
from .hardware import REAL, wrong
from .results import FileResult, grouped, results_of, table

_END_OF_OUTPUT = 2_000
#: Where the files of checkouts at the commits of their suites are: in no folder that has a configuration of pytest.
COPIES = user_cache_path("pytest-cudalink") / "suites"
#: Bytes that the process of a file may have: half of the machine.
MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


class Job(NamedTuple):
    """One file of a suite on one driver and backend."""

    suite: Suite
    checkout: Path
    file: str
    driver: str
    backend: str


def run_file(job: Job, options: Sequence[str], records_in: Path | None = None) -> FileResult:
    """Run one file of a suite in its own process, and return its results as the plugin recorded them.

    `records_in`: the folder that keeps the record.
    """
    suite, checkout, file, driver, backend = job
    result = FileResult(suite.name, driver, backend, file)
    with tempfile.TemporaryDirectory() as folder:
        report, output = (records_in or Path(folder)) / f"{suite.record_name(file)}.jsonl", Path(folder) / "output"
        report.parent.mkdir(parents=True, exist_ok=True)
        report.unlink(missing_ok=True)
        # a suite of the bindings links through them on either backend, whichever one its targets are forced to
        driver_options = (f"--cudalink-driver={driver}", "--cudalink-unsupported=skip", "--cudalink-unsteered=allow")
        given = [*driver_options, f"--force-backend={backend}", f"--cudalink-report={report}"]
        if suite.device and driver != REAL:
            given.append(f"--cudalink-device={suite.device}")
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [*suite.command(file), "-p", "cudalink", *given, *options]
        started = time.monotonic()
        with output.open("wb") as out:
            # its own session: what a test leaves running ends with it
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
            where = {"cwd": checkout / suite.folder, "env": {**environment, **suite.environment(checkout)}}
            process = subprocess.Popen(command, **streams, **where, start_new_session=True)
            if driver != REAL:  # a test that fills the emulated device must not exhaust the machine
                resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY, MEMORY))
            try:
                process.wait(suite.timeout)
            except subprocess.TimeoutExpired:
                result.status = f"timeout after {suite.timeout:.0f} s"
            finally:
                end_session(process)
        result.seconds = time.monotonic() - started
        recording = records.read(report) if report.exists() else records.Recording()
        result.tests = results_of(recording)
        if result.status == "finished" and recording.end is None:
            result.status = f"died of signal {-process.returncode}" if process.returncode < 0 else "not run"
        if result.status != "finished" or (not result.tests and process.returncode not in (0, 5)):
            result.output = output.read_text(encoding="utf-8", errors="replace")[-_END_OF_OUTPUT:]
    return result


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and everything in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line."""
    known = suites()
    parser = argparse.ArgumentParser(prog="python -m campaigns.suites", description=__doc__)
    parser.add_argument(
        "checkouts", nargs="+", type=Path, metavar="CHECKOUT", help="a checkout of cuda-python or numba-cuda"
    )
    parser.add_argument("--suite", action="append", choices=known, help="only this suite; may be repeated")
    parser.add_argument("--file", default="*", metavar="PATTERN", help="only files whose path matches, or contains it")
    parser.add_argument("--driver", action="append", metavar="VERSION", help="emulated driver; may be repeated")
    parser.add_argument("--backend", action="append", choices=("auto", "driver", "nvjitlink"), help="may be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="files at a time (default: 2)")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="limit for one file")
    parser.add_argument("--records", type=Path, metavar="DIR", help="keep the records, in DIR/DRIVER/SUITE")
    parser.add_argument("--failures", action="store_true", help="list the failing tests, grouped by what they lack")
    parser.add_argument("--files", action="store_true", help="a row of the table for each file")
    parser.add_argument("--write-expected", action="store_true", help=f"write {EXPECTED.name} from this run")
    parser.add_argument("--because", default="", metavar="REASON", help="why fewer tests pass than expected.toml says")
    parser.add_argument("--pytest", action="append", default=[], metavar="OPTION", help="option of pytest: --pytest=-x")
    return parser.parse_args(arguments)


def jobs_of(options: argparse.Namespace) -> list[Job]:
    """Return what the command line asks for."""
    jobs = []
    for where in (path.resolve() for path in options.checkouts):
        for name, suite in suites().items():
            if not suite.is_in(where) or (options.suite and name not in options.suite):
                continue
            checkout = suite.at_commit(where, COPIES)
            axes = product(options.driver or suite.drivers, options.backend or suite.backends)
            files = suite.test_files(checkout, options.file)
            limited = replace(suite, timeout=options.timeout or suite.timeout)
            jobs += [Job(limited, checkout, file, driver, backend) for (driver, backend), file in product(axes, files)]
    return jobs


def run_all(
    jobs: Sequence[Job], *, at_a_time: int, options: Sequence[str], records_in: Path | None
) -> list[FileResult]:
    """Run every job, and print a line to stderr for each that has finished.

    `records_in`: the folder that keeps the records, in DRIVER/SUITE, and those of another backend in DRIVER-BACKEND.
    """
    results = []
    with ThreadPoolExecutor(at_a_time) as pool:
        places = [job.driver if job.backend == "auto" else f"{job.driver}-{job.backend}" for job in jobs]
        folders = [records_in and records_in / place / job.suite.name for job, place in zip(jobs, places, strict=True)]
        runs = [pool.submit(run_file, job, options, folder) for job, folder in zip(jobs, folders, strict=True)]
        for number, run in enumerate(runs, 1):
            result = run.result()
            results.append(result)
            counts = ", ".join(f"{count} {name}" for name, count in sorted(result.counts.items()))
            where = f"[{number}/{len(runs)}] {result.file} ({result.driver}, {result.backend})"
            print(f"{where}: {counts} {result.status}, {result.seconds:.1f} s", file=sys.stderr, flush=True)
    return results


def fewer_than_expected(results: Sequence[FileResult]) -> list[str]:
    """Return a line for each suite, driver and backend of which fewer tests pass than expected."""
    expected = read_expected()
    passed: Counter[tuple[str, str, str]] = Counter()
    for result in results:
        passed[result.suite, result.driver, result.backend] += result.counts["passed"]
    return [
        f"{' '.join(key)}: {count} passed, expected {expected[key]}"
        for key, count in passed.items()
        if count < expected.get(key, 0)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line names; 1 if fewer tests pass than `expected.toml` says, or a verdict is not a GPU's."""
    given = parse(arguments)
    jobs = jobs_of(given)
    if not jobs:
        folders = ", ".join(suite.folder for suite in suites().values())
        print(f"no file of a suite matches; expected a checkout with one of these folders: {folders}")
        return 2
    results = run_all(jobs, at_a_time=given.jobs, options=given.pytest, records_in=given.records)
    if given.failures:
        for cause, tests in grouped(results):
            print(f"{len(tests):>5}  {cause}")
            print("".join(f"         {test}\n" for test in tests), end="")
    print("\n".join(table(results, read_expected(), by_file=given.files)))
    fewer = fewer_than_expected(results) if given.file == "*" else []
    verdicts = wrong(results)
    if given.write_expected and (given.because or not fewer):
        commits = {job.suite.name: job.suite.commit or commit_and_branch(job.checkout)[0] for job in jobs}
        write_expected(results, {name: commit for name, commit in commits.items() if commit}, given.because)
        fewer = []
    elif given.write_expected:
        print(f"{EXPECTED.name} was not written: fewer tests pass; say why with --because REASON")
    print("\n".join([*fewer, *verdicts]))
    return 1 if fewer or verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
