"""The recorded answers to the questions of `campaigns/conformance/edges`, against those of the emulated driver."""

from pathlib import Path

import pytest

from campaigns.conformance.edges import compare
from tests.compiled import compile_c

pytestmark = pytest.mark.slow


#: The others on two devices are asked every week.
TWO = ("two_arrays", "two_libraries", "two_peer_access", "two_peer_effects", "two_pointers", "two_wait_values")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(program, marks=pytest.mark.weekly)
        if program.startswith(compare.TWO) and program not in TWO
        else program
        for program in compare.PROGRAMS
    ],
)
def test_each_answer_is_the_recorded_one(name: str) -> None:
    """What differs is listed, and what is listed differs."""

    def build(name: str, folder: Path) -> Path:  # once in a run, also where each run has another driver
        return compile_c(folder / name, compare.PROGRAMS[name].read_text(encoding="utf-8"), *compare.flags())

    different = compare.differences(name, compare.recorded(name), compare.ours(name, build))
    assert sorted(different) == sorted(compare.known().get(name, []))


def test_list_of_differences() -> None:
    """Each listed line is of a program."""
    assert compare.known().keys() <= compare.PROGRAMS.keys()


def test_a_death_is_met_by_an_error() -> None:
    """Where the recorded driver died, an emulated one that says nothing is a difference."""
    assert compare.same("dies of SIGSEGV", "1 0")
    assert not any(
        compare.same("dies of SIGSEGV", answer) for answer in ("0", "nothing", "hangs", "dies of SIGSEGV (2)")
    )
    assert not compare.same("400", "1")


def test_a_case_may_end_more_than_once() -> None:
    """Ends are not compared, nor what is asked behind them alone; a question that is called so is."""
    theirs = {"a/end": "0", "a/end (2)": "dies of SIGSEGV", "b/end": "1 0"}
    assert compare.compared(theirs, {"a/end": "0", "a/later": "0", "b/later": "0"}) == ["a/end", "b/end", "b/later"]
