"""A run that is watched is the run that was written: what a test can tell stands in one table of the manual."""

from pathlib import Path

import pytest

from tests.plugin.transparency import runs

ROWS = runs.rows(runs.TABLE.read_text(encoding="utf-8"))


def test_every_option_is_in_a_set() -> None:
    """No option of the plugin that can change a process is left out."""
    every = {option for driver in ("emulated", "real") for options in runs.sets(driver) for option in options}
    assert every == {*runs.WAYS, *runs.OTHERS}


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.weekly)])
@pytest.mark.slow
def test_what_differs_stands_in_the_table(whole: bool, tmp_path: Path) -> None:
    """The programs answer the same under every set of options, but for the rows of the table, which still differ."""
    result = runs.results(tmp_path, "emulated", which=slice(None) if whole else slice(1, None, 6))
    new = [str(difference) for difference in result.differences if not any(row.holds(difference) for row in ROWS)]
    assert new == [], str(result)
    gone = [
        (program, option)
        for row in ROWS
        for program in row.programs
        for option in row.options
        if whole
        and option != "--cudalink-driver=real"
        and not any(difference.program == program and option in difference.options for difference in result.differences)
    ]
    assert gone == [], "the table has rows that no longer differ; remove them"
    assert result.programs >= 60
