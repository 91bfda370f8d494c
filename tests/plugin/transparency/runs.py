"""Runs of `programs.py` under options of the plugin, and what their answers differ in from those of runs without it.

``python -m tests.plugin.transparency.runs [--driver=real]`` prints the counts and each difference.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
TABLE = HERE.parents[2] / "docs" / "limitations.md"
#: What a run may have: the words on pytest's command line that are the plugin's.
WAYS = {
    "-p cudalink": ("-ppytest_cudalink.plugin",),
    "--cudalink-driver=VERSION": ("--cudalink-driver=13.0",),
    "--cudalink-driver=absent": ("--cudalink-driver=absent",),
    "--cudalink-driver=real": ("--cudalink-driver=real",),
    "--cudalink-processes=isolated": ("--cudalink-processes=isolated",),
    "--cudalink-processes=restarted": ("--cudalink-processes=restarted",),
    "--cudalink-processes=shared,sticky=off": ("--cudalink-processes=shared,sticky=off",),
    "--cudalink-report": ("--cudalink-report=records.jsonl",),
    "--cudalink-guard-rails": ("--cudalink-guard-rails=best_effort",),
    "--cudalink-provenance": ("--cudalink-provenance=wheels",),
    "--cudalink-nvjitlink": ("--cudalink-nvjitlink=absent",),
    "--cudalink-checks=off": ("--cudalink-checks=off",),
    "--cudalink-checks=strict": ("--cudalink-checks=strict,order=report",),
    "--cudalink-fault-sweep": ("--cudalink-fault-sweep=cuMemAlloc",),
    "--cudalink-schedules": ("--cudalink-schedules=2:1",),
    "--cudalink-faults": ("--cudalink-faults=cuMemAlloc:999=2",),
    "--cudalink-unsupported=skip": ("--cudalink-unsupported=skip",),
    "--force-backend=nvjitlink": ("--force-backend=nvjitlink", "--cudalink-unsteered=allow"),
    "--force-backend=driver": ("--force-backend=driver", "--cudalink-unsteered=warn"),
    "--cudalink-device": ("--cudalink-device=h100",),
    "cudalink_events": ("--override-ini=cudalink_events=events.jsonl",),
    "cudalink_contain": ("--override-ini=cudalink_contain=yes",),
}
#: What a run may have that is not the plugin's, so that the run it is compared with has it, too: words and variables.
OTHERS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "--junitxml": (("--junitxml=junit.xml",), {}),
    "-n1": (("-p", "xdist", "-n1"), {}),
    "LC_ALL=C": ((), {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "-s": (("-s",), {}),
}
_DRIVER = "--cudalink-driver=VERSION"
_ISOLATED, _RESTARTED, _REPORT = "--cudalink-processes=isolated", "--cudalink-processes=restarted", "--cudalink-report"
#: The sets of a machine without a driver, each with what it has.
_WITHOUT = (
    (),
    (_REPORT,),
    ("--cudalink-guard-rails", "--cudalink-driver=absent"),
    ("--force-backend=nvjitlink", "cudalink_contain", "--junitxml"),
    (_ISOLATED,),
    (_RESTARTED, "-s"),
    ("-n1", _ISOLATED, _REPORT),
)
#: The sets with a driver: with each, an emulated or a real one.
_WITH = (
    (),
    (_REPORT, "--junitxml"),
    ("--cudalink-guard-rails", "--cudalink-provenance"),
    ("--force-backend=driver",),
    ("--cudalink-nvjitlink", "--cudalink-unsupported=skip"),
    ("--cudalink-processes=shared,sticky=off",),
    (_ISOLATED,),
    (_RESTARTED,),
    (_ISOLATED, _REPORT, "--cudalink-guard-rails"),
    (_RESTARTED, _REPORT, "--junitxml"),
    ("LC_ALL=C", _ISOLATED, _REPORT),
    ("-n1", _RESTARTED, _REPORT),
)
#: The sets that need an emulated driver.
_EMULATED = (
    ("--cudalink-checks=off",),
    ("--cudalink-checks=strict", "cudalink_events"),
    ("--cudalink-fault-sweep", _REPORT),
    ("--cudalink-schedules",),
    ("--cudalink-schedules", _ISOLATED),
    ("--cudalink-faults", "--cudalink-device"),
)


#: Options with which each test runs several times: programs that start a Python are left out, or it takes a minute.
_REPEATING = {"--cudalink-fault-sweep", "--cudalink-schedules"}


class Difference(NamedTuple):
    """What a program, or a test, answers differently under a set of options."""

    program: str
    options: tuple[str, ...]
    expected: object
    answer: object

    def __str__(self) -> str:
        ours, theirs = _apart(self.answer, self.expected)
        return f"{self.program} with {' '.join(self.options)}: {ours}; without: {theirs}"


def _apart(first: object, other: object) -> tuple[object, object]:
    """Return what two answers do not have in common."""
    if isinstance(first, list) and isinstance(other, list) and len(first) == len(other):
        pairs = [_apart(*pair) for pair in zip(first, other, strict=True) if pair[0] != pair[1]]
        return tuple(map(list, zip(*pairs, strict=True))) if pairs else ([], [])  # type: ignore[return-value]
    if isinstance(first, list) and isinstance(other, list):
        return [value for value in first if value not in other], [value for value in other if value not in first]
    if isinstance(first, dict) and isinstance(other, dict):
        keys = [key for key in first.keys() | other.keys() if first.get(key) != other.get(key)]
        return {key: first.get(key) for key in keys}, {key: other.get(key) for key in keys}
    return first, other


class Row(NamedTuple):
    """A row of the table: programs that differ under one of some options, and why."""

    programs: tuple[str, ...]
    options: tuple[str, ...]
    why: str

    def holds(self, difference: Difference) -> bool:
        """Whether a difference is one of this row."""
        return difference.program in self.programs and bool({*self.options} & {*difference.options})


class Result(NamedTuple):
    """The answers of all runs, compared."""

    programs: int
    sets: int
    differences: list[Difference]

    def __str__(self) -> str:
        return f"{self.programs} programs and tests x {self.sets} sets of options, {len(self.differences)} differences"


def sets(driver: str) -> list[tuple[str, ...]]:
    """Return the sets of options, for a driver that is ``"emulated"`` or ``"real"``."""
    if driver == "real":
        own = [("--cudalink-driver=real", *options) for options in _WITH]
        return [("-p cudalink", *options) for options in (*_WITHOUT[:2], *_WITHOUT[4:], *own)]
    emulated = [(_DRIVER, *options) for options in (*_WITH, *_EMULATED)]
    return [("-p cudalink", *options) for options in (*_WITHOUT, *emulated)]


def rows(text: str) -> list[Row]:
    """Return the rows of the table of a page."""
    table = text.partition("| program |")[2].partition("\n\n")[0]
    rows = []
    for line in table.splitlines()[2:]:
        programs, options, why = (cell.strip() for cell in line.strip("| ").split(" | ", 2))
        rows.append(Row(tuple(re.findall("`([^`]+)`", programs)), tuple(re.findall("`([^`]+)`", options)), why))
    return rows


def results(folder: Path, driver: str, *, which: slice = slice(None), at_once: int = 2) -> Result:
    """Run the programs under each set of options, or under some, and return what differs."""
    every = sets(driver)[which]
    compared = {options: _compared_with(options) for options in every}
    runs = [*dict.fromkeys([*compared.values(), *every])]
    with ThreadPoolExecutor(at_once) as pool:
        answers = dict(zip(runs, pool.map(lambda options: _run(folder, options), runs), strict=True))
    differences = []
    for options in every:
        expected = answers[compared[options]]
        if _DRIVER in options:  # without the plugin there is none
            of_driver = answers["-p cudalink", _DRIVER]
            expected = expected | {key: of_driver[key] for key in of_driver if "driver_" in key[0]}
        if _REPEATING & {*options}:
            expected = {key: expected[key] for key in expected if key in answers[options]}
        differences += _differing(options, expected, answers[options])
    return Result(len({name for name, _ in answers[every[0]]}), len(every), differences)


def _compared_with(options: tuple[str, ...]) -> tuple[str, ...]:
    """Return what has the same options that are not the plugin's."""
    return tuple(option for option in options if option in OTHERS)


def _run(folder: Path, options: tuple[str, ...]) -> dict[tuple[str, str], list[str]]:
    """Return what each program and test answered in a run: every answer once."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        where = Path(scratch, "suite")  # the same name in each run
        where.mkdir()
        shutil.copy(HERE / "programs.py", where / "test_programs.py")
        shutil.copy(HERE / "started.py", where / "conftest.py")
        (where.parent / "tmp").mkdir()
        (where / "this_is_new.py").write_text("def function():\n    pass\n", encoding="utf-8")
        (where / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n", encoding="utf-8")
        ours = [word for option in options for word in WAYS.get(option, ())]
        words, variables = [], {}
        for option in options:
            more, environment = OTHERS.get(option, ((), {}))
            words += more
            variables |= environment
        variables |= _variables(where, ours) | ({"TRANSPARENCY_FEW": "1"} if _REPEATING & {*options} else {})
        command = [
            sys.executable,
            "-m",
            "pytest",
            *words,
            *ours,
            "--basetemp",
            str(where.parent / "base"),
            "test_programs.py",
        ]
        done = subprocess.run(
            command, cwd=where, env=variables, capture_output=True, text=True, errors="replace", check=False
        )
        notes = where.parent / "notes"
        if not notes.exists() or done.returncode != 1:  # (tests that fail are among those that are compared)
            msg = f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
            raise RuntimeError(msg)
        text = notes.read_text(encoding="utf-8").replace(str(where.parent), "FOLDER")
        left = sorted(re.sub(r"\d+|(?<=[-_])\w{8}$", "N", path.name) for path in (where.parent / "tmp").iterdir())
        text = re.sub(r"cudalink-(\w+-)?\w{8}\b", "cudalink-NAME", text)
        text += json.dumps(["files_left_behind", "seen", left]) + "\n"
    by_program: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, kind, answer in map(json.loads, text.splitlines()):
        if answer not in by_program[name, kind]:
            by_program[name, kind].append(answer)
    return {key: sorted(answers, key=repr) for key, answers in by_program.items()}


def _variables(where: Path, ours: Sequence[str]) -> dict[str, str]:
    left = ("CUDALINK_", "TRANSPARENCY_", "PYTEST_", "COV", "LD_", "MALLOC_", "CUDA_")
    given = {name: value for name, value in os.environ.items() if not name.startswith(left)}
    return {
        **given,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "1",
        "TMPDIR": str(where.parent / "tmp"),
        "TRANSPARENCY_OURS": json.dumps([*ours, str(where.parent / "base")]),
        "TRANSPARENCY_RUNNER": str(os.getpid()),
        "TRANSPARENCY_NOTES": str(where.parent / "notes"),
    }


def _differing(
    options: tuple[str, ...], expected: dict[tuple[str, str], list[str]], observed: dict[tuple[str, str], list[str]]
) -> Iterator[Difference]:
    for key in dict.fromkeys([*expected, *observed]):
        if expected.get(key) != observed.get(key):
            yield Difference(_name(*key), options, expected.get(key), observed.get(key))


def _name(program: str, kind: str) -> str:
    return program if kind == "seen" else f"{program.partition('::')[2]} ({kind})"


def main(words: Sequence[str]) -> int:
    """Print the counts, and each difference that no row of the table allows; return 1 if there is one."""
    driver = "real" if "--driver=real" in words else "emulated"
    with tempfile.TemporaryDirectory() as folder:
        result = results(Path(folder), driver, at_once=int(os.environ.get("RUNS_AT_ONCE", "2")))
    allowed = rows(TABLE.read_text(encoding="utf-8"))
    new = [difference for difference in result.differences if not any(row.holds(difference) for row in allowed)]
    for difference in new:
        print(difference)
    print(f"{result}, {len(new)} that the table of docs/limitations.md does not have")
    return int(bool(new))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
