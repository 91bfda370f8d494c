"""The path of the session ``stranger`` is the documented one."""

from .__main__ import missed, table
from .path import FIRST, MATRIX, MUST_SAY, Step, steps


def test_the_path_is_documented() -> None:
    """It goes from the installation over demo and init to red, the fix and green, by commands of the pages."""
    path = steps()
    commands = [step.command for step in path]
    order = ["python -m venv venv", 'pip install "pytest-cudalink[cu13]"', *MUST_SAY]
    places = [commands.index(command) for command in order]
    assert places[:2] == sorted(places[:2])
    assert all(place > places[1] for place in places[2:])
    fix = commands.index("git apply fix.diff")
    assert commands.index("nox -s ctk-13.2-driver-13.0") < fix < commands.index("nox -R -s ctk-13.2-driver-13.0")
    assert {step.command for step in path if step.code} == {
        "pytest --cudalink-driver=12.9",
        "nox -s ctk-13.2-driver-13.0",
        "cudalink report .cudalink --html report.html --save before.json",
        "nox -s ctk-13.0-driver-12.9",
    }
    assert {step.page for step in path} == {"", "README.md", FIRST.name, MATRIX.name}


def test_downloads_are_apart() -> None:
    """The table has what the second walk saved as downloads, the sums, and what misses a limit is named."""
    path = [Step("p", "f", "one"), Step("p", "f", "two")]
    assert table(path, {"cold": [10, 1], "ours": [4, 2]}).splitlines() == [
        "      cold      ours downloads  step",
        "      10.0       4.0       6.0  one",
        "       1.0       2.0       0.0  two",
        "      11.0       6.0       6.0  seconds in all",
    ]
    assert table(path, {"ours": [4, 2]}).splitlines()[0] == "      ours  step"
    assert missed({"cold": [500, 99], "ours": [299, 0], "3.14": [599, 0]}) == []
    assert missed({"cold": [500, 100], "ours": [200, 100], "3.14": [600, 0]}) == [
        "the path without caches took 600 s; expected less than 600 s",
        "what is ours of it took 300 s; expected less than 300 s",
        "the path on Python 3.14 took 600 s; expected less than 600 s",
    ]
