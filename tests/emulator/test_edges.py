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


def test_what_is_a_difference() -> None:
    """Where the recorded driver died, an emulated one that says nothing is one. Each listed line is of a program.

    Ends are not compared, nor what is asked behind them alone; a question that is called so is.
    """
    assert compare.known().keys() <= compare.PROGRAMS.keys()
    answers = ("1 0", "0", "nothing", "hangs", "dies of SIGSEGV (2)")
    assert [compare.same("dies of SIGSEGV", answer) for answer in answers] == [True, *[False] * 4]
    assert not compare.same("400", "1")
    theirs = {"a/end": "0", "a/end (2)": "dies of SIGSEGV", "b/end": "1 0"}
    assert compare.compared(theirs, {"a/end": "0", "a/later": "0", "b/later": "0"}) == ["a/end", "b/end", "b/later"]
