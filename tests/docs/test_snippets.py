"""Every block of code on every page is covered by a check: by its language, or by name."""

import argparse
import configparser
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from pytest_cudalink.cli import COMMANDS, module_of
from pytest_cudalink.compat.settings_table import OPTIONS
from pytest_cudalink.matrix import load_cells
from tests import sessions

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {
    str(path.relative_to(ROOT).with_suffix("")): path
    for path in sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
    if "_build" not in path.parts
}

#: Blocks that other tests run or compare, by page and language: the file with the test.
ELSEWHERE = {
    ("README", "python"): "tests/docs/test_readme.py",
    ("README", "console"): "tests/docs/test_readme.py",
    ("docs/explanation/field", "console"): "campaigns/findings/test_findings.py",
    ("docs/reference/audit", "console"): "tests/audit/test_audit_published.py",
    ("docs/reference/matrix", "console"): "tests/report/test_explain.py",
    ("docs/tutorials/matrix", "console"): "campaigns/stranger/path.py",
    ("docs/how-to/recipes", "console"): "tests/docs/test_recipes.py",
}
#: First words of a line of a shell that is not ours; what it names of ours is checked all the same.
FOREIGN = {
    *(".", "cat", "cd", "cmake", "conda", "cp", "curl", "docker", "export", "gdb", "gh", "git", "mkdir", "meson"),
    *("micromamba", "pip", "pixi", "pre-commit", "python", "rm", "tar", "tox", "uv", "uvx", "source", "rsync", "ssh"),
}
#: A block: page, language, first line on the page, text.
Block = tuple[str, str, int, str]


def blocks() -> list[Block]:
    """Every fenced block of every page; the directives of Sphinx, which are no code, are left out."""
    return [
        (name, match[3].strip(), text[: match.start()].count("\n") + 1, match[4])
        for name, path in PAGES.items()
        for text in [path.read_text(encoding="utf-8")]
        for match in re.finditer(r"^( *)(```+|~~~+)([^\n]*)\n(.*?)^\1\2 *$", text, re.MULTILINE | re.DOTALL)
        if not match[3].startswith("{")
    ]


def identifier(block: Block) -> str:
    """A block as the tests name it."""
    return f"{block[0]}:{block[2]}"


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of a subcommand."""
    module = import_module(module_of(name))
    parser = argparse.ArgumentParser(prog=f"cudalink {name}")
    module.configure(parser)
    return parser


def check_ours(line: str, words: list[str]) -> None:
    """A line that starts ``cudalink`` has a form that the command takes."""
    if words[1] in ("--help", "--version") or "--help" in words:
        return
    assert words[1] in COMMANDS, line
    try:
        parser_of(words[1]).parse_args(words[2:])
    except SystemExit:
        pytest.fail(f"the command has no such form: {line}")


def check_command(line: str) -> None:
    """A line of a script starts a program that is known; options of ours exist."""
    words = shlex.split(line.partition(" > ")[0], comments=True)
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    if words[:3] == ["python", "-m", "pytest"]:
        words = words[2:]
    if not words:
        return
    if words[0] == "cudalink":
        check_ours(line, words)
    elif words[0] == "pytest":
        given = {word.partition("=")[0] for word in words if word.startswith(("--cudalink", "--force-backend"))}
        assert given <= {option.flag for option in OPTIONS}, line
    else:  # the sessions of nox: test_docs.test_sessions_named_in_the_pages_exist
        known = words[0] in FOREIGN or words[0] == "nox"
        assert known, f"{words[0]}: a program that no test knows; add it to FOREIGN, or run it in a session"


def lines_of_shell(text: str) -> list[str]:
    """The commands of a script, with continued lines joined."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def check_sh(_page: str, text: str) -> None:
    """A script is one of the shell, and its lines call what exists."""
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    for line in lines_of_shell(text):
        for part in re.split(r" && | \|\| | \| ", line):
            check_command(part)


def check_console(page: str, text: str) -> None:
    """A session is run with its page; without prompts, a block has commands alone, which test_docs runs."""
    if text.startswith("$ "):
        folder, _, stem = page.removeprefix("docs/").partition("/")
        assert folder in ("tutorials", "how-to"), (
            "only pages of these folders have their sessions run: test_sessions.py"
        )
        assert stem
        assert sessions.steps(text)
        return
    for line in lines_of_shell(text):
        check_command(line)


def check_toml(_page: str, text: str, folder: Path) -> None:
    """A file of cells is a good one; another has the tables of pyproject.toml that exist."""
    content = tomllib.loads(text)
    if {"cells", "axes", "defaults"} & content.keys():
        file = folder / "cells.toml"
        file.write_text(text, encoding="utf-8")
        assert load_cells(file)
        return
    known = {"build-system", "dependency-groups", "project", "tool", "requires", "env_run_base", "env", "env_list"}
    assert content.keys() <= known, f"not a file of cells and not pyproject.toml: {sorted(content)}"
    given = content.get("tool", {}).get("pytest", {}).get("ini_options", content.get("tool", {}).get("pytest", {}))
    check_ini_keys(given)


def check_ini_keys(keys: object) -> None:
    """Each key of ours in pytest's configuration is one of a setting."""
    known = {option.ini for option in OPTIONS}
    assert [key for key in keys if key.startswith("cudalink") and key not in known] == []  # type: ignore[attr-defined]


def check_ini(_page: str, text: str) -> None:
    """Keys of ours exist."""
    content = configparser.ConfigParser(interpolation=None)
    content.read_string(text)
    for part in content.sections():
        check_ini_keys(content[part])


def check_yaml(_page: str, text: str) -> None:
    """YAML that can be read, whose commands of ours exist; actions are pinned."""
    content = yaml.safe_load(text)

    def scripts(value: object) -> list[str]:
        if isinstance(value, dict):
            own = [value[key] for key in ("run", "script") if key in value]
            lines = [line for text in own for line in (text if isinstance(text, list) else [text])]
            return lines + [line for script in value.values() for line in scripts(script)]
        return [line for script in value for line in scripts(script)] if isinstance(value, list) else []

    for script in scripts(content):
        for line in lines_of_shell(script):
            if line.startswith(("cudalink ", "pytest ", "nox ")) and "$" not in line:
                check_command(line)
    own = "pytest-cudalink/pytest-cudalink@COMMIT"  # the reader chooses the commit
    actions = [action for action in re.findall(r"uses: (\S+)", text) if action != own]
    assert [action for action in actions if not re.search(r"@[0-9a-f]{40}$", action)] == []


CHECKS: dict[str, Callable[..., None]] = {
    "console": check_console,
    "ini": check_ini,
    "sh": check_sh,
    "text": lambda page, text: None,  # output, which is shown
    "toml": check_toml,
    "yaml": check_yaml,
}


@pytest.mark.parametrize("block", blocks(), ids=identifier)
def test_every_block_is_covered(block: Block, tmp_path: Path) -> None:
    """A block of code is run, compared or checked; one of a language without a check fails."""
    page, language, _, text = block
    if (page, language) in ELSEWHERE:
        assert (ROOT / ELSEWHERE[page, language]).is_file()
        return
    assert language in CHECKS, f"blocks of {language or 'no language'} are checked by nothing"
    if language == "toml":
        check_toml(page, text, tmp_path)
    else:
        CHECKS[language](page, text)


def test_exceptions_are_used() -> None:
    """No page stands in a list of exceptions without such a block."""
    pairs = {(page, language) for page, language, _, _ in blocks()}
    assert ELSEWHERE.keys() <= pairs


def test_own_addresses_lead_somewhere() -> None:
    """An address of this project's site or repository, which need not exist yet, names a page or file that does."""
    for path in PAGES.values():
        text = path.read_text(encoding="utf-8")
        for page in re.findall(r"https://pytest-cudalink\.readthedocs\.io/en/(?:latest|stable)/([\w/-]+)\.html", text):
            assert page == "index" or (DOCS / f"{page}.md").is_file(), (path, page)
        for file in re.findall(r"https://github\.com/pytest-cudalink/pytest-cudalink/blob/main/([\w./-]+\w)", text):
            assert (ROOT / file).exists(), (path, file)
        raw = r"https://raw\.githubusercontent\.com/pytest-cudalink/pytest-cudalink/main/([\w./-]+\w)"
        assert [file for file in re.findall(raw, text) if not (ROOT / file).exists()] == []
