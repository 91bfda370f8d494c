"""Environment variables: every name that the project reads is known, and a mistake is named with the nearest one."""

import re
import subprocess
from pathlib import Path

import pytest

from pytest_cudalink import cli
from pytest_cudalink.compat import settings_table
from pytest_cudalink.compat.settings_table import OPTIONS

ROOT = Path(__file__).parents[2]
#: A variable as programs read and set it; header guards and macros are names without quotes.
USE = re.compile(r"""["'$]\{?(CUDALINK_[A-Z0-9_]*[A-Z0-9])\b(?!_H\b)""")
_READ = (".py", ".c", ".h", ".sh", ".yml", ".yaml", ".toml", ".md", "")
#: Names that tests make up.
MADE_UP = {"CUDALINK_ODD", "CUDALINK_OTHER"}


def test_every_variable_is_known() -> None:
    """Whatever a part of the project, its tests and its sessions name as a variable is in the list."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not listed:
        pytest.skip("needs the files of the repository")
    used = set()
    for name in filter(None, listed.split("\0")):
        path = ROOT / name
        if path.suffix in _READ and path.is_file() and path != Path(__file__):
            used |= set(USE.findall(path.read_text(encoding="utf-8", errors="replace")))
    assert len(used) > 50
    assert settings_table.unread_variables(used - MADE_UP) == []
    assert {option.env for option in OPTIONS} - {""} <= settings_table.known_variables()


def test_mistakes_are_named() -> None:
    """In the order of their names, each with the nearest known name, if there is one."""
    hints = {
        "CUDALINK_EMULATOR_ARCHS": "; did you mean CUDALINK_EMULATOR_ARCH?",
        "CUDALINK_FORCE_BACKNED": "; did you mean CUDALINK_FORCE_BACKEND?",
        "CUDALINK_TOOLCHAIN": "; did you mean CUDALINK_TOOLCHAINS?",
        "CUDALINK_XYZZY": "",
    }
    assert settings_table.unread_variables(["HOME", "CUDALINK_DRIVER", "CUDALINK_STUBS_CUDNN", *reversed(hints)]) == [
        f"the environment variable {name} is ignored: no part of pytest-cudalink reads it{hint}"
        for name, hint in hints.items()
    ]


def test_commands_name_them(monkeypatch, capsys) -> None:
    """Each command warns on stderr, and goes on."""
    monkeypatch.setenv("CUDALINK_CACH", "/tmp")
    assert cli.main(["driver", "info", "--json"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("{")
    assert err == (
        "cudalink: the environment variable CUDALINK_CACH is ignored: no part of pytest-cudalink reads it; "
        "did you mean CUDALINK_CACHE?\n"
    )


@pytest.mark.parametrize(
    "more",
    [(), *(pytest.param((word,), marks=pytest.mark.slow) for word in ("-n2", "--cudalink-processes=isolated"))],
    ids=str,
)
def test_a_run_names_them_once(run_pytest, pytester, monkeypatch, more) -> None:
    """A run says it in its header and warns once, whatever the number of its processes."""
    monkeypatch.setenv("CUDALINK_FORCE_BACKNED", "driver")
    pytester.makepyfile("def test_one(): pass\ndef test_two(): pass")
    result = run_pytest(*more)
    result.assert_outcomes(passed=2, warnings=1)
    said = "*the environment variable CUDALINK_FORCE_BACKNED is ignored: *; did you mean CUDALINK_FORCE_BACKEND?"
    result.stdout.fnmatch_lines(["cudalink: the environment variable *", f"*PytestConfigWarning: cudalink: {said}"])


def test_warnings_as_errors(run_pytest, pytester, monkeypatch) -> None:
    """Where warnings are errors it is one usage error, not a traceback; a filter can ignore it."""
    monkeypatch.setenv("CUDALINK_FORCE_BACKNED", "driver")
    pytester.makepyfile("def test(): pass")
    pytester.makeini("[pytest]\nfilterwarnings = error\n")
    result = run_pytest()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (error,) = filter(None, result.errlines)
    assert error == (
        "ERROR: cudalink: the environment variable CUDALINK_FORCE_BACKNED is ignored: no part of pytest-cudalink "
        "reads it; did you mean CUDALINK_FORCE_BACKEND?"
    )
    run_pytest("-Wignore::pytest.PytestConfigWarning").assert_outcomes(passed=1)


def test_none_of_ours_is_named(run_pytest, pytester, monkeypatch) -> None:
    """Variables that other parts read are no mistake."""
    for name in settings_table.known_variables() - {option.env for option in OPTIONS} - {"CUDALINK_ISOLATED"}:
        if not name.startswith("CUDALINK_EMULATOR_"):
            monkeypatch.setenv(name, "1")
    pytester.makepyfile("def test(): pass")
    result = run_pytest("-Werror")
    result.assert_outcomes(passed=1)


def test_the_table_of_settings() -> None:
    """Words that several settings share have a name in it; names of options and variables follow."""
    known = {option.name: option for option in OPTIONS}
    assert [(s.flag, s.ini, s.env) for s in map(known.get, ("backend", "fault_sweep", "events"))] == [
        ("--force-backend", "cudalink_force_backend", "CUDALINK_FORCE_BACKEND"),
        ("--cudalink-fault-sweep", "cudalink_fault_sweep", "CUDALINK_FAULT_SWEEP"),
        ("", "cudalink_events", ""),
    ]
    assert [known[name].choices for name in ("backend", "unsupported")] == [
        ("auto", "driver", "nvjitlink", "each"),
        ("fail", "skip"),
    ]
    assert known["provenance"].words == ("any", "wheels", "system", "conda")
    devices = "v100, t4, rtx-2080-ti, a100, a10, rtx-3090, l4, rtx-4090, h200, h100, b200, rtx-5090"
    device, report, checks = known["device"], known["report"], known["checks"]
    assert device.help.endswith(f"known: {devices}")
    assert (device.cell.name, device.program.name) == ("arch", "--device")
    assert device.program.help.startswith("choose the devices, such as h100, sm_90, h100:2 (two of them), ")
    assert (report.parts, report.cell, report.program) == ({}, None, None)
    assert report.help == "write the records of the run to a file, one JSON object per line"
    assert (report.inherited, known["backend"].inherited) == (False, True)
    assert (report.bare, known["schedules"].bare) == ("", "200")
    assert checks.settings == {
        "lifetime": ("--cudalink-checks (lifetimes)", "fail"),
        "jitlink_contract": ("--cudalink-checks (nvjitlink)", "fail"),
        "order": ("--cudalink-checks (order)", "off"),
    }
    assert checks.parts["lifetime"].values == ("off", "report", "fail", "strict")
    assert known["processes"].settings["tests"] == ("--cudalink-processes", "shared")
    assert known["events"].settings == {"events": ("cudalink_events", "")}
    labels = ["--cudalink-processes (sticky)", "cudalink_events", "--cudalink-device"]
    assert [*map(settings_table.label, ("sticky", "events", "device"))] == labels
