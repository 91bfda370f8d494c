"""Files of cells that no runner could use: each is refused at once, with a line and what was needed."""

import json
import os
import time
import tracemalloc
from pathlib import Path

import pytest

from pytest_cudalink import cli
from pytest_cudalink.matrix import CellsError, load_cells


def faults(path: Path, text: str | bytes) -> list[str]:
    """What is wrong with a text, without the name of the file."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        load_cells(path)
    except CellsError as error:
        assert all(fault.startswith(f"{path}:") for fault in error.faults)
        return [fault.removeprefix(f"{path}:") for fault in error.faults]
    return []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\n" + ".".join("a" * 20_000) + " = 1\n", 2),
        ("[cells.x]\nenv = { " + " . ".join("a" * 20_000) + " = 1 }\n", 2),
        ("# '\n[" + ".".join(['"a"'] * 20_000) + "]\n", 2),
        ('x = """\n\\"""\n"""\n' + ".".join(["'a'"] * 20_000) + " = 1\n", 4),
    ],
    ids=("key", "inline", "header", "after a string"),
)
def test_a_key_of_very_many_parts(text: str, line: int, tmp_path) -> None:
    """It is refused before tomllib takes gigabytes for it; strings and comments may have as many dots as they like."""
    dots = ".".join("a" * 100)
    strings = (f'"{dots}"', f"'{dots}'", f'"""\n{dots}\n"""', f"'''\n{dots}\n'''")
    sound = "".join(f"[cells.c{number}]\ntests = [{string}] # {dots}\n" for number, string in enumerate(strings))
    assert faults(tmp_path / "c.toml", sound) == []
    tracemalloc.start()
    try:
        messages = faults(tmp_path / "c.toml", text)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert messages == [f"{line}: tables or lists are nested more than 32 deep"]
    assert peak < 20_000_000


@pytest.mark.parametrize("verb", ["check", "list", "github"])
def test_a_place_with_escapes(verb: str, tmp_path, capsys) -> None:
    """A key is shown, and not obeyed by the terminal or taken for another line of the log."""
    file = tmp_path / "c.toml"
    file.write_text('[cells."\\u001b[31m x\\n::error::y"]\n[cells.a.env]\n"\\u001b" = 1\n')
    assert cli.main(["matrix", verb, "--file", str(file)]) == 1
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert said.startswith(f'{file}:1: cells."\\x1b[31m x ::error::y": ')
    assert len(said.splitlines()) == 3


@pytest.mark.parametrize(("count", "more"), [(2, ()), (20, ()), (23, (": and 3 more of its values are wrong",))])
@pytest.mark.parametrize(("key", "shown"), [("env", "'{} A'"), ("packages", "'-{} A'")])
def test_all_values_of_a_key(key, shown, count, more, tmp_path) -> None:
    """Every wrong package or variable of a table is named, up to a number; the others are counted."""
    names = [shown.format(number).replace("'", '"') for number in range(count)]
    values = f"{{ {', '.join(f'{name} = {chr(34)}1{chr(34)}' for name in names)}, B = '1' }}"
    listed = f"[{', '.join(names)}, 'numpy']"
    messages = faults(tmp_path / "c.toml", f"[cells.a]\n{key} = {values if key == 'env' else listed}\n")
    ends = [*(f", found {shown.format(number)}" for number in range(min(count, 20))), *more]
    assert len(messages) == len(ends)
    assert all(fault.endswith(end) for fault, end in zip(messages, ends, strict=True)), messages


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('[cells."ctk-13.0"]', '[cells."CTK-13.0"]'),
        ('[cells."ctk-13.0"]', "[cells.ctk-13-0]"),
        ("[cells.a--b]", "[cells.a-b]"),
        ("[cells.a]", "[cells.a-]"),
        ('[cells.a]\npython = "3.12"', '[cells."a-3.12"]'),
    ],
)
def test_names_that_runners_cannot_tell_apart(first: str, second: str, tmp_path) -> None:
    """Cells whose folders would be the same in nox, or whose records on a disk that ignores case, are refused."""
    line = first.count("\n") + 2
    (fault,) = faults(tmp_path / "c.toml", f"{first}\n{second}\n")
    assert fault.startswith(f"{line}: cells.")
    assert "have the same folder" in fault
    assert "rename one of them" in fault


def test_nox_makes_the_folders_that_the_check_expects() -> None:
    sessions = pytest.importorskip("nox.sessions")
    from pytest_cudalink.matrix import reading

    for name in ("ctk-13.0", "a_b", "a--b", "A.b"):
        made = Path(sessions._normalize_path("r", name)).name.lower()
        assert reading._folders(name, "") == {made.strip("-")}


@pytest.mark.parametrize(
    "text",
    [
        f"a = {'[' * 10_000}{']' * 10_000}",
        f"a = {'{a=' * 5_000}1{'}' * 5_000}",
        f"[{'.'.join('a' * 3_000)}]",
        f"{'.'.join('a' * 2_000)} = 1",
        f"[defaults]\nenv.{'.'.join('a' * 2_000)} = 1",
        f"[defaults]\nenv = {('{' + '.'.join('a' * 30) + '=') * 40}1{'}' * 40}",
    ],
)
def test_deep_nesting(text: str, tmp_path) -> None:
    """Nested lists, tables and dotted keys are one fault, not a RecursionError; fewer are the fault of their key."""
    (fault,) = faults(tmp_path / "c.toml", f"[defaults]\nenv = {'[' * 100}{']' * 100}")
    assert fault.startswith("2: defaults.env: expected a table of strings")
    before = time.monotonic()
    line = 2 if "\nenv." in text else 1  # of a key that is refused by its own length
    assert faults(tmp_path / "c.toml", text) == [f"{line}: tables or lists are nested more than 32 deep"]
    assert time.monotonic() - before < 60


def test_values_of_many_lines(tmp_path) -> None:
    """A list of 20,000 lines takes seconds, not hours, whatever the lines end with."""
    before = time.monotonic()
    for line in ('"x",', '"x]",', '"]", # }'):
        text = "[cells.a]\ntests = [\n" + f"{line}\n" * 20_000 + ']\nenv = { "A B" = "1" }\n'
        assert len(faults(tmp_path / "c.toml", text)) == 1
    assert time.monotonic() - before < 60


def test_axes_that_multiply(tmp_path) -> None:
    """Axes with more combinations than anything could run are one fault, and are not expanded."""
    pythons = [f"3.{number}" for number in range(100)]
    text = f'[axes.a]\nname = "{{python}}-{{arch}}-{{driver}}"\npython = {json.dumps(pythons)}\n'
    text += f"driver = {json.dumps([f'12.{number}' for number in range(10)] + ['13.0', '13.1', '13.2'])}\n"
    text += f"arch = {json.dumps([f'sm_{number}' for number in (70, 75, 80, 86, 89, 90, 100, 120)])}\n"
    assert "1: axes.a: makes 10400 cells; expected at most 10000" in faults(tmp_path / "c.toml", text)


def test_how_large_a_file_may_be(tmp_path) -> None:
    """The last byte counts; other bytes than those of UTF-8 are a fault, whatever the locale."""
    most = 1 << 18
    assert faults(tmp_path / "c.toml", "#" * most) == []
    assert faults(tmp_path / "c.toml", "#" * (most + 1)) == [f"1: is {most + 1:,} bytes; expected at most {most:,}"]
    assert faults(tmp_path / "c.toml", 'x = "\ufffd"') == ["1: x: unknown key; known: defaults, cells, axes, toolkits"]
    (fault,) = faults(tmp_path / "c.toml", b"\xff\x00")
    assert fault.startswith("1: not UTF-8: ")
    (tmp_path / "c.toml").unlink()
    os.mkfifo(tmp_path / "c.toml")
    with pytest.raises(CellsError) as raised:
        load_cells(tmp_path / "c.toml")
    assert str(raised.value) == f"{tmp_path}/c.toml:1: is a folder, a pipe or a device; expected a regular file"
    assert str(CellsError(["a", "b"])) == "a\nb"
