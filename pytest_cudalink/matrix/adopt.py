"""The files that ``cudalink init`` writes to bring a matrix into a project."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .. import toolchains
from ..regular_files import TEXT, read_bounded
from ..report.checkout import Repository, repository
from .ci import CELLS_VARIABLE, RUN, RUNNER_PACKAGES, default_python
from .keys import MAJOR
from .project import Project, major_of_extra
from .reading import CellsError
from .runner import CELLS, RECORDS, newest

RUNNERS: Final = ("nox", "tox")
#: Name of the session that merges the records, where the project has a session report.
_OTHER_REPORT: Final = "cudalink-report"
_TEMPLATES = Path(__file__).parent / "templates"
#: The extra or the dependency group that tests need, the likeliest name first.
_TESTS: Final = ("test", "tests", "dev")
#: Modules that cannot be imported without a part of a toolkit, with the beginnings of the distributions that bring it;
#: cuda-core imports cuda.bindings, and does not require it.
_BROUGHT_BY: Final = {
    "cuda": ("cuda-bindings", "cuda-python"),
    "cupy": ("cupy",),
    "pynvjitlink": ("pynvjitlink",),
}
_INSTALL: Final = "pip install 'pytest-cudalink[nox]'"
#: What is appended to a noxfile: without the plugin, its other sessions must still run, on any Python and system.
_GUARDED: Final = """
# The cells of matrices/cells.toml; where pytest-cudalink is not installed, nox has the sessions above alone.
try:
    from pytest_cudalink.matrix.nox import sessions as cudalink_sessions
except ModuleNotFoundError:
    pass
else:
    cudalink_sessions("matrices/cells.toml"{given})
"""
#: The block of a script that names its requirements (packaging.python.org, "Inline script metadata").
_SCRIPT: Final = re.compile(r"^# /// script$\n(?P<lines>(?:^#(?: .*)?$\n)+?)^# ///$", re.MULTILINE)
#: A folder of a project that a workflow names without quotes.
_PLAIN_FOLDER: Final = re.compile(r"[\w.+@-]+(?:/[\w.+@-]+)*")
#: Operators of a requirement that limit a version from below.
_FROM_BELOW: Final = (">=", ">", "==", "~=", "===")


@dataclass(frozen=True)
class Change:
    """A change of one file."""

    path: Path  # relative to the project
    content: str  # the whole file after the change
    # "write" a new file, "append" to one, "replace" one with other content, or "keep" one that has the content already
    action: Literal["write", "append", "replace", "keep"]
    advice: str = ""  # for a file that is not replaced: lines that the user must add


def plan_changes(root: Path, runner: str | None = None, ci: str = "github") -> list[Change]:
    """Return the changes by which a project adopts the matrix; writes nothing.

    `root`: the project.
    `runner`: ``"nox"`` or ``"tox"``; default tox if the project has it and no noxfile.
    `ci`: ``"github"`` or ``"none"``.
    Raises CellsError if a file of the project cannot be read.
    """
    has_tox = _tox_file(root) is not None
    runner = runner or ("tox" if has_tox and not (root / "noxfile.py").exists() else "nox")
    changes = [_file(root, CELLS, _cells(root)), _runner(root, runner)]
    if ci == "github":
        changes.append(_workflow(root, runner, repository(root)))
    # what each runner makes, whichever of the two this project has
    changes.append(_lines(root, Path(".gitignore"), [".nox/", ".tox/", f"{RECORDS}/"]))
    return changes


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _workflow(root: Path, runner: str, checkout: Repository) -> Change:
    """Return the workflow with the runner and the Python of the project, where GitHub reads it: at the top.

    A project in a folder of the repository has its own workflow there, which runs in that folder.
    """
    inside = root.resolve().relative_to(checkout.top).as_posix() if checkout.top else "."
    folder = "" if inside == "." else inside
    if folder and not _PLAIN_FOLDER.fullmatch(folder):
        msg = f"the folder of the project in its repository is {folder!r}; expected letters, digits and '._+@-'"
        raise CellsError([f"{msg}; rename it, or leave the workflow out with --ci none"])
    name = f"cudalink-{folder.replace('/', '-')}.yml" if folder else "cudalink.yml"
    more, unknown = _noxfile_requirements(root) if runner == "nox" else ([], [])
    words = {
        "RUNNER": runner,
        "RUN": "".join(f"--with {shlex.quote(one)} " for one in more) + RUNNER_PACKAGES[runner] + RUN[runner],
        "PYTHON": default_python(root),
        "BRANCH": checkout.branch if checkout.branch in ("main", "master") else json.dumps(checkout.branch),
        "FILE": name,
        "NAME": f"cudalink {folder}".rstrip(),
        "DIRECTORY": folder,
        "FOLDER": f"{folder}/" if folder else "",
    }
    # only in quotes can a key of YAML begin with @
    text = _template("github.yml").replace('"@VARIABLE@"', CELLS_VARIABLE[runner])
    # one of the template's lines counts in a folder alone
    text = re.sub(r"^#IN# ?", "", text, flags=re.MULTILINE) if folder else re.sub(r"(?m)^#IN#.*\n", "", text)
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    path = Path(os.path.relpath(checkout.top or root, root), ".github", "workflows", name)
    change = _file(root, path, text)
    if unknown:
        names = ", ".join(unknown)
        advice = f"noxfile.py imports {names}: put --with and the package that has it before `nox` in the job test"
        return replace(change, advice=advice)
    return change


def _noxfile_requirements(root: Path) -> tuple[list[str], list[str]]:
    """Return the requirements of a noxfile besides nox and the plugin, and the modules whose package is not known.

    The block of a script names them; else the project's own requirement for the package of a module's name counts.
    """
    try:
        text = _read(root / "noxfile.py") or ""
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return [], []
    if named := _script_requirements(text):
        return [one for one in named if one != "nox"], []
    modules = [one.name for statement in body if isinstance(statement, ast.Import) for one in statement.names]
    modules += [one.module for one in body if isinstance(one, ast.ImportFrom) and one.module and not one.level]
    tops = dict.fromkeys(module.partition(".")[0] for module in modules)
    others = [
        top
        for top in tops
        if top not in sys.stdlib_module_names
        and top not in ("nox", "pytest_cudalink", "packaging")  # both require packaging
        and not (root / f"{top}.py").exists()
        and not (root / top).is_dir()
    ]
    known = {canonicalize_name(one.name): str(one) for one in Project.read(root).every}
    found = [known[name] for one in others if (name := canonicalize_name(one)) in known]
    return found, [one for one in others if canonicalize_name(one) not in known]


def _script_requirements(text: str) -> list[str]:
    """Return the requirements that the block of a script names; none without a block."""
    block = _SCRIPT.search(text.replace("\r\n", "\n"))
    if block is None:
        return []
    try:
        content = tomllib.loads("".join(f"{line[2:]}\n" for line in block["lines"].splitlines()))
    except tomllib.TOMLDecodeError:
        return []
    found = content.get("dependencies", [])
    return [str(one) for one in found] if isinstance(found, list) else []


def _file(root: Path, path: Path, content: str) -> Change:
    present = _read(root / path)
    if present is None:
        return Change(path, content, "write")
    return Change(path, content, "keep" if present == content else "replace")


def _lines(root: Path, path: Path, lines: Iterable[str]) -> Change:
    """Return the change that adds lines to a file; present lines stay."""
    present = _read(root / path)
    if present is None:
        return Change(path, "".join(f"{line}\n" for line in lines), "write")
    missing = [line for line in lines if line not in present.splitlines()]
    if not missing:
        return Change(path, present, "keep")
    separator = "" if not present or present.endswith("\n") else "\n"
    return Change(path, _added(present, separator + "".join(f"{line}\n" for line in missing)), "append")


def _runner(root: Path, runner: str) -> Change:
    if runner == "nox":
        path = Path("noxfile.py")
        present = _read(root / path)
        if present is None:
            return Change(path, _template("noxfile.py"), "write")
        if "pytest_cudalink.matrix.nox" in present:
            return Change(path, present, "keep")
        # at the end: the sessions of the project come first in its lists
        taken = "report" in _nox_sessions(present)
        given = f', report="{_OTHER_REPORT}"' if taken else ""
        advice = [f"`nox -l` lists the cells where the plugin is installed together with nox: {_INSTALL}"]
        if taken:
            advice.append(
                f"this noxfile has a session report; `nox -s {_OTHER_REPORT}` runs the cells and merges their records"
            )
        if _script_requirements(present):
            advice.append(
                'its script block names what `uv run noxfile.py` installs: add "pytest-cudalink[nox]" to that'
            )
        more = f"\n{_GUARDED.format(given=given)}"
        return Change(path, _added(present.rstrip(), more), "append", "\n".join(advice))
    file = _tox_file(root) or Path("tox.toml")
    present = _read(root / file)
    if present is None:
        return Change(file, _template("tox.toml"), "write")
    where = {
        "tox.ini": "[tox]\nrequires = pytest-cudalink[tox]",
        "tox.toml": 'requires = ["pytest-cudalink[tox]"]',
        "pyproject.toml": '[tool.tox]\nrequires = ["pytest-cudalink[tox]"]',
    }[file.name]
    asked = re.search(r"requires\s*=[^=]*pytest[-_]cudalink", present)
    return Change(file, present, "keep", "" if asked else f"put this into {file}, or add to what is there:\n{where}")


def _nox_sessions(text: str) -> set[str]:
    """Return the names of the sessions that a noxfile defines by decorators; none of one that cannot be parsed."""
    try:
        functions = [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef)]
    except (SyntaxError, ValueError):
        return set()
    found = set()
    for function in functions:
        for decorator in function.decorator_list:
            if "session" in ast.unparse(decorator):
                given = decorator.keywords if isinstance(decorator, ast.Call) else []
                named = [one.value.value for one in given if one.arg == "name" and isinstance(one.value, ast.Constant)]
                found.add(str(next(iter(named), function.name)))
    return found


def _tox_file(root: Path) -> Path | None:
    """Return the file that configures tox, if there is one."""
    for name in ("tox.ini", "tox.toml"):
        if (root / name).exists():
            return Path(name)
    return Path("pyproject.toml") if "tox" in Project.read(root).tools else None


def _read(path: Path) -> str | None:
    """Return a file's text with its line ends unchanged; None without the file."""
    try:
        return read_bounded(path, TEXT).decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CellsError([f"{path}: not UTF-8: {error}"]) from error


def _added(present: str, text: str) -> str:
    """Return a text with more appended, in the line ends that it has."""
    return present + (text.replace("\n", "\r\n") if "\r\n" in present else text)


def _cells(root: Path) -> str:
    """Return the first cells, with the extras, groups and test folder of the project."""
    project = Project.read(root)
    tests = next((name for name in ("tests", "test") if (root / name).is_dir()), "")
    words = {
        "TESTS": [tests] if tests else [],
        "GROUPS": _of_tests(project.groups),
        "EXTRAS": _of_tests(project.extras),
    }
    text = _template("cells.toml").replace(
        "@NEWEST@", str(max(one for one in toolchains.releases() if one.major == 13))
    )
    required = project.dependencies
    unlimited = [one.name for one in required if not any(each.operator in _FROM_BELOW for each in one.specifier)]
    text = _proposed(text, "OLDEST", not required or unlimited)
    text = text.replace("@UNLIMITED@", f"; without one: {', '.join(unlimited)}" if unlimited else "")
    asks_for_core = any(canonicalize_name(one.name) == "cuda-core" for one in required)
    previous = _previous_release("cuda-core") if asks_for_core else ""
    module = re.sub(r"[-.]+", "_", project.name) or "mylib"
    forgotten = _forgotten(root, module, required)
    why = f".\n# Not yet for this project: {forgotten}" if forgotten else ""
    text = _proposed(text, "BARE", not project.name or forgotten)
    text = text.replace("@MODULE@", module).replace("@FORGOTTEN@", why)
    text = _proposed(text, "CORE", not previous).replace("@PREVIOUS@", previous or "1.0.0")
    if not {"project", "build-system"}.intersection(project.tables):
        text = text.replace(
            "[defaults]\n",
            '[defaults]\n# this folder has no pyproject.toml that could be installed\ninstall = "none"\n',
        )
    for name, values in words.items():
        text = text.replace(f"@{name}@", ", ".join(json.dumps(value) for value in values))
    return text


def _of_tests(names: Iterable[str]) -> list[str]:
    """Return the extra or the group of a project's tests, and that of a release of CUDA as each cell fills it in."""
    tests = [name for wanted in _TESTS for name in names if canonicalize_name(name) == wanted]
    of_cuda = [re.sub(r"\d\d", MAJOR, name) for name in names if major_of_extra(name) is not None]
    return [*tests[:1], *of_cuda[:1]]


def _forgotten(root: Path, module: str, required: list[Requirement]) -> str:
    """Return why the wheel alone cannot be imported: a CUDA module that no requirement brings; empty if it can."""
    brought = {canonicalize_name(one.name) for one in required}
    if any(major_of_extra(extra) is not None for one in required for extra in one.extras):
        return ""
    for name in _imports(root, module):
        for prefix, packages in _BROUGHT_BY.items():
            if f"{name}.".startswith(f"{prefix}.") and not any(one.startswith(packages) for one in brought):
                return f"its import needs {'.'.join(name.split('.')[:2])}, and no requirement brings {packages[0]}"
    return ""


def _imports(root: Path, module: str) -> Iterator[str]:
    """Yield the modules of others that the import of a module imports in any case; its own are followed."""
    seen = [module]
    for name in seen:
        parts = name.split(".")
        places = [base.joinpath(*parts) for base in (root, root / "src")]
        files = (file for place in places for file in (place / "__init__.py", place.with_suffix(".py")))
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            continue
        try:
            body = ast.parse(read_bounded(file, TEXT)).body
        except (SyntaxError, ValueError):
            continue
        package = parts if file.name == "__init__.py" else parts[:-1]
        for statement in body:
            found = [one.name for one in statement.names] if isinstance(statement, ast.Import) else []
            if isinstance(statement, ast.ImportFrom):
                above = package[: len(package) - statement.level + 1] if statement.level else []
                start = ".".join([*above, *filter(None, [statement.module])])
                found = [start, *(f"{start}.{one.name}" for one in statement.names)]
            yield from (one for one in found if one.partition(".")[0] != parts[0])
            seen += [one for one in found if one.partition(".")[0] == parts[0] and one not in seen]


def _proposed(text: str, name: str, unfit: object) -> str:
    """Return a template whose block ``#NAME#`` counts, or is a comment where it does not fit the project."""
    return re.sub(rf"^#{name}# ?", "# " if unfit else "", text, flags=re.MULTILINE)


def _previous_release(package: str) -> str:
    """Return the release before the newest that uv finds on the package index; empty without uv or an index."""
    latest = newest(package)
    previous = newest(f"{package}<{latest.partition('==')[2]}") if latest else None
    return previous.partition("==")[2] if previous else ""
