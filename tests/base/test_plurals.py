"""Numbers with their nouns."""

from pytest_cudalink.base.words import and_more, counted, listed, plural


def test_plural() -> None:
    """Only one is singular; a plural ends in s where no other is given."""
    assert [counted(number, "entry", "entries") for number in (0, 1, 11)] == ["0 entries", "1 entry", "11 entries"]
    assert [counted(number, "cell") for number in (0, 1, 2)] == ["0 cells", "1 cell", "2 cells"]
    assert [plural(number, "was", "were") for number in (0, 1, 2)] == ["were", "was", "were"]


def test_what_is_left_out() -> None:
    """A text shows the first few, and counts the rest only if there is one."""
    assert [listed("abcd", most) for most in (1, 3, 4, 5)] == [
        "a and 3 more",
        "a, b, c and 1 more",
        *["a, b, c, d"] * 2,
    ]
    assert [and_more(number) for number in (-1, 0, 1)] == ["", "", " and 1 more"]
