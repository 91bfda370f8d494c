"""The files that ``cudalink init`` writes to bring a matrix into a project."""

import ast
import fnmatch
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Final, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from .. import toolchains
from ..base.regular_files import TEXT, read_bounded
from ..base.safe_text import line as safe
from ..base.tables import read_table
from ..base.words import listed
from ..report.origin import Repository, repository
from .cells import Cell
from .ci import CELLS_VARIABLE, RUN, RUNNER_PACKAGES, default_python
from .keys import MAJOR, CellValues
from .project import CellRequirement, Project, major_of_extra, pytest_settings, requirements, syntax_of
from .reading import CellsError
from .runner import CELLS, RECORDS, newest

RUNNERS: Final = ("nox", "tox")
#: Name of the session that merges the records, where the project has a session report.
_OTHER_REPORT: Final = "cudalink-report"
_TEMPLATES = Path(__file__).parent / "templates"
#: The extra or the dependency group that tests need, the likeliest name first.
_TESTS: Final = ("test", "tests", "testing", "testsuite", "dev")
#: The same with a release of CUDA, as in ``test-cu13``: its name has one of these words before the release.
_TESTS_OF_CUDA: Final = re.compile(rf"({'|'.join(sorted(_TESTS, key=len, reverse=True))})-?(.+)")
#: Folders that can have the tests of a project, and those whose content is not the project's.
_TEST_FOLDER: Final = re.compile(r"(?:py|unit)?tests?|testing")
_FOREIGN_FOLDER: Final = re.compile(r"[._].*|build|dist|docs?|examples?|node_modules|third_?party|vendor|.*\.egg-info")
#: How deep below the project its tests and packages are looked for.
_DEPTH: Final = 5
#: How many folders or files one line names.
_NAMED: Final = 3
#: Modules of NVIDIA's packages and of the toolkit's, with the beginnings of the distributions that bring them;
#: cuda-core imports cuda.bindings, and does not require it.
_BROUGHT_BY: Final = {
    "cuda": ("cuda-bindings", "cuda-python"),
    "cupy": ("cupy",),
    "pynvjitlink": ("pynvjitlink",),
    "pynvml": ("nvidia-ml-py", "pynvml"),
}
#: The oldest pytest that this plugin requires.
OLDEST_PYTEST: Final = "8.4"
_INSTALL: Final = "pip install 'pytest-cudalink[nox]'"
#: The block of a script that names its requirements (packaging.python.org, "Inline script metadata").
_SCRIPT: Final = re.compile(r"^# /// script$\n(?P<lines>(?:^#(?: .*)?$\n)+?)^# ///$", re.MULTILINE)
#: A folder of a project that a workflow names without quotes.
_PLAIN_FOLDER: Final = re.compile(r"[\w.+@-]+(?:/[\w.+@-]+)*")
#: Distributions whose libraries call the CUDA runtime (measured 2026-11-28 on the wheels of CuPy, Warp and cuda-cccl by
#: `audit.needs.has_runtime`; for PyTorch and RMM see docs/limitations.md).
_ON_RUNTIME: Final = re.compile(r"cupy(-.*)?|torch|warp-lang|cuda-cccl|(lib)?(rmm|cudf)(-cu\d+)?")
#: What CMake has where a project compiles kernels, with the static runtime by default, or links the runtime.
_CMAKE: Final = re.compile(r"\bLANGUAGES\b[^)]*\bCUDA\b|\benable_language\s*\(\s*CUDA\b|\bCUDA::cudart")
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


def on_runtime(root: Path) -> tuple[list[str], list[str]]:
    """Return what of a project calls the CUDA runtime, which does not run on the emulated driver.

    First the distributions of that kind: the project and what its tests require, each with its place, such as ``"torch
    (dependencies)"``. Then its files that build for the runtime.
    Raises CellsError if ``pyproject.toml`` cannot be read.
    """
    project = Project.read(root)
    required = _required_by_tests(project)
    places = {project.name: "the project itself"} | {wanted.requirement.name: wanted.where for wanted in required}
    named = [f"{name} ({where})" for name, where in places.items() if _ON_RUNTIME.fullmatch(canonicalize_name(name))]
    return named, _builds(root)


def older_pytest(root: Path) -> str:
    """Return a requirement of pytest that excludes those of this plugin, and its place; empty without one.

    Raises CellsError if ``pyproject.toml`` cannot be read.
    """
    oldest = Version(OLDEST_PYTEST)
    for wanted in _required_by_tests(Project.read(root)):
        if canonicalize_name(wanted.requirement.name) == "pytest":
            limits = wanted.requirement.specifier
            named = [each.version.removesuffix(".*") for each in limits if each.operator != "==="]
            newer = [each for each in (OLDEST_PYTEST, "8.9", "9", "99", *named) if Version(each) >= oldest]
            # asked for pre-releases, too, no packaging reads the "x" of "===x" as a version
            if not any(limits.contains(version, prereleases=True) for version in newer):
                return f"{wanted.requirement} ({wanted.where})"
    return ""


def _builds(root: Path) -> list[str]:
    """Return the files of a project that build for the CUDA runtime."""
    builds = []
    for folder, names in _folders(root):
        if "CMakeLists.txt" in names and not any(map(_TEST_FOLDER.fullmatch, folder.parts)):
            path = folder / "CMakeLists.txt"
            with suppress(OSError, CellsError):
                builds += [path.as_posix()] if _CMAKE.search(_read(root / path) or "") else []
    return builds


def projects_below(root: Path) -> list[str]:
    """Return the folders below one that is not a project which are projects; empty for one that is.

    Raises CellsError if ``pyproject.toml`` cannot be read.
    """
    if _is_installable(root, Project.read(root)):
        return []
    projects = []
    for folder, names in _folders(root):
        if "pyproject.toml" in names:
            with suppress(CellsError):
                projects += [folder.as_posix()] if Project.read(root / folder).name else []
    return projects


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
        "RUN": "".join(f"--with {shlex.quote(package)} " for package in more) + RUNNER_PACKAGES[runner] + RUN[runner],
        "PYTHON": default_python(root),
        "BRANCH": checkout.branch if checkout.branch in ("main", "master") else json.dumps(checkout.branch),
        "FILE": name,
        # builds need them, and a release does not
        "SUBMODULES": "\n          submodules: recursive" if ((checkout.top or root) / ".gitmodules").is_file() else "",
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
    text = _read(root / "noxfile.py") or ""
    if named := _script_requirements(text):
        return [requirement for requirement in named if requirement != "nox"], []
    others = [
        top
        for top in _imported(root / "noxfile.py")
        if top not in ("nox", "pytest_cudalink", "packaging")  # both require packaging
        and not (root / f"{top}.py").exists()
        and not (root / top).is_dir()
    ]
    known = {canonicalize_name(requirement.name): str(requirement) for requirement in Project.read(root).every}
    brought = [known[name] for module in others if (name := canonicalize_name(module)) in known]
    return brought, [module for module in others if canonicalize_name(module) not in known]


def _imported(file: Path) -> dict[str, None]:
    """Return the packages of others that a source file imports in any case; none of one that cannot be parsed."""
    tops = dict.fromkeys(module.partition(".")[0] for module in _modules(file))
    return {top: None for top in tops if top not in sys.stdlib_module_names}


def _modules(file: Path, package: Sequence[str] = ()) -> Iterator[str]:
    """Yield the modules that a source file imports in any case.

    `package`: the parts of the name of the package that it is in; without them, relative imports are left out.
    """
    for statement in syntax_of(file).body:
        if isinstance(statement, ast.Import):
            yield from (imported.name for imported in statement.names)
        elif isinstance(statement, ast.ImportFrom) and statement.level <= len(package):
            above = package[: len(package) - statement.level + 1] if statement.level else ()
            start = ".".join([*above, *filter(None, [statement.module])])
            yield from (start, *(f"{start}.{imported.name}" for imported in statement.names))


def _script_requirements(text: str) -> list[str]:
    """Return the requirements that the block of a script names; none without a block."""
    block = _SCRIPT.search(text.replace("\r\n", "\n"))
    if block is None:
        return []
    try:
        content = tomllib.loads("".join(f"{line[2:]}\n" for line in block["lines"].splitlines()))
    except tomllib.TOMLDecodeError:
        return []
    named = content.get("dependencies", [])
    return [str(requirement) for requirement in named] if isinstance(named, list) else []


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
            return Change(path, _template("noxfile.txt"), "write")
        if "pytest_cudalink.matrix.nox" in present:
            return Change(path, present, "keep")
        # at the end: the sessions of the project come first in its lists
        taken = "report" in _nox_sessions(root / path)
        given = f', report="{_OTHER_REPORT}"' if taken else ""
        advice = [f"`nox -l` lists the cells where the plugin is installed together with nox: {_INSTALL}"]
        if taken:
            runs = f"`nox -s {_OTHER_REPORT}` runs the cells and merges their records"
            advice.append(f"this noxfile has a session report; {runs}")
        if _script_requirements(present):
            names = "its script block names what `uv run noxfile.py` installs"
            advice.append(f'{names}: add "pytest-cudalink[nox]" to that')
        more = f"\n{_template('guarded.txt').format(given=given)}"
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


def _functions(file: Path) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(syntax_of(file)) if isinstance(node, ast.FunctionDef))


def _nox_sessions(noxfile: Path) -> set[str]:
    """Return the names of the sessions that a noxfile defines by decorators; none of one that cannot be parsed."""
    names = set()
    for function in _functions(noxfile):
        for decorator in function.decorator_list:
            if "session" in ast.unparse(decorator):
                given = decorator.keywords if isinstance(decorator, ast.Call) else []
                values = (keyword.value for keyword in given if keyword.arg == "name")
                named = [value.value for value in values if isinstance(value, ast.Constant)]
                names.add(str(next(iter(named), function.name)))
    return names


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
    """Return the first cells, with the extras, groups and tests of the project; what is guessed is a comment."""
    project, settings, tests, perhaps = Project.read(root), pytest_settings(root), *_tests(root)
    if tests[:1] == ["-c"]:
        settings = pytest_settings(root / Path(tests[1]).parent)
    groups, extras = _of_tests(project, "groups"), _of_tests(project, "extras")
    packages, why, brought = _packages(project, settings, extras, groups)
    perhaps += _undeclared(root, brought, project)
    words = {"TESTS": tests, "GROUPS": groups, "EXTRAS": extras, "PACKAGES": packages}
    newest_of_13 = max(release for release in toolchains.releases() if release.major == 13)
    text = _template("cells.toml").replace("@NEWEST@", str(newest_of_13))
    renamed = "rapids-build-backend" in project.tools  # a release has the major of CUDA in its name
    if project.name and (renamed or _builds(root)):
        release = f"{project.name}-cu{MAJOR}" if renamed else project.name
        perhaps += [f'to test a release, without a build: install = "none" and packages = [{json.dumps(release)}]']
    text = text.replace("@PERHAPS@", "".join(f"\n# {line}" for line in perhaps))
    text = text.replace("@WHY@", "".join(f"\n# {line}" for line in why))
    covered = any(word.startswith("--cov") for word in settings.get("addopts", []))
    text = re.sub(r"(?m)^#COVERED#(.*\n)", r"#\1" if covered else "", text)
    text = text.replace("@ENV@", ', PYTEST_ADDOPTS = "--no-cov"' if covered else "")
    required = [each for each in project.dependencies if each.marker is None or each.marker.evaluate({"extra": ""})]
    unlimited = [each.name for each in required if not any(bound.operator in _FROM_BELOW for bound in each.specifier)]
    text = _proposed(text, "OLDEST", not required or unlimited)
    text = text.replace("@UNLIMITED@", f"; without one: {', '.join(unlimited)}" if unlimited else "")
    asks_for_core = any(canonicalize_name(requirement.name) == "cuda-core" for requirement in required)
    previous = _previous_release("cuda-core") if asks_for_core else ""
    module, guessed = _module(root, project.name)
    forgotten = _forgotten(root, module, required) or guessed
    reason = f".\n# Not yet for this project: {forgotten}" if forgotten else ""
    text = _proposed(text, "BARE", not project.name or forgotten)
    text = text.replace("@MODULE@", module).replace("@FORGOTTEN@", reason)
    text = _proposed(text, "CORE", not previous).replace("@PREVIOUS@", previous or "1.0.0")
    if not _is_installable(root, project):
        without = '# this folder has no pyproject.toml that could be installed\ninstall = "none"\n'
        text = text.replace("[defaults]\n", f"[defaults]\n{without}")
    for name, values in words.items():
        text = text.replace(f"@{name}@", ", ".join(json.dumps(value) for value in values))
    return text


def _is_installable(root: Path, project: Project) -> bool:
    """Return whether an installer takes a folder for a project."""
    named = {"project", "build-system"}.intersection(project.tables)
    return bool(named) or any((root / name).is_file() for name in ("setup.py", "setup.cfg"))


def _of_tests(project: Project, key: Literal["groups", "extras"]) -> list[str]:
    """Return the extras or groups of a project's tests, and those of a release of CUDA as each cell fills them in.

    Without one of the usual names it is the first that requires pytest. What another of them brings is left out. A
    group that one major release lacks is, too: nothing is installed then.
    """
    names = list(project.groups if key == "groups" else project.extras)
    plain = [name for wanted in _TESTS for name in names if canonicalize_name(name) == wanted]
    of_tests: list[str] = []
    of_cuda: list[str] = []
    by_pytest: list[str] = []
    for name in names:
        match = _TESTS_OF_CUDA.fullmatch(canonicalize_name(name))
        if major_of_extra(match[2] if match else name) is None:
            own = (wanted for wanted in _required(project, **{key: (name,)}) if wanted.name)
            by_pytest += [name] * any(canonicalize_name(wanted.requirement.name) == "pytest" for wanted in own)
            continue
        both = {re.sub(r"\d\d", str(major), canonicalize_name(name)) for major in (12, 13)}
        if key == "extras" or both.issubset(map(canonicalize_name, names)):
            (of_tests if match else of_cuda).append(name)
    plain = plain or by_pytest
    brought: set[str] = set()
    chosen = []
    for candidate in (*of_tests[:1], *plain[:1], *of_cuda[:1]):
        name = candidate if candidate in plain else re.sub(r"\d\d", MAJOR, candidate)
        if canonicalize_name(name.replace(MAJOR, "13")) in brought:
            continue
        found_there = _required(project, **{key: (name,)})
        brought |= {canonicalize_name(each.name) for each in found_there}
        chosen.append(name)
    # the plain ones first, as in the file of a person
    return sorted(chosen, key=lambda name: MAJOR in name)


def _required(project: Project, *, extras: Iterable[str] = (), groups: Iterable[str] = ()) -> Iterator[CellRequirement]:
    """Yield the requirements of a project with some extras and groups, of CUDA 13 where a cell fills in the release."""
    given = {"extras": extras, "groups": groups}
    filled = {key: tuple(name.replace(MAJOR, "13") for name in names) for key, names in given.items()}
    yield from requirements(Cell("", CellValues().changed(filled), ()), project)


def _required_by_tests(project: Project) -> Iterator[CellRequirement]:
    """Yield the requirements of a project with the extras and groups of its tests."""
    return _required(project, extras=_of_tests(project, "extras"), groups=_of_tests(project, "groups"))


def _packages(
    project: Project, settings: Mapping[str, list[str]], extras: list[str], groups: list[str]
) -> tuple[list[str], list[str], Collection[str]]:
    """Return the requirements of the tests that no extra and no group has, and a line for each about its reason.

    Also the names of all that the tests require.
    """
    why = []
    added: list[str] = []
    if not (extras or groups):
        group = next((name for name in _TESTS if name in project.poetry_groups), "")
        added = [str(requirement) for requirement in project.poetry_groups.get(group, [])]
        why += [f"packages: what poetry's group {group!r} requires, which other installers do not read"] * bool(added)
    wanted = _required(project, extras=extras, groups=groups)
    brought = {canonicalize_name(each.requirement.name) for each in wanted}
    brought |= {canonicalize_name(Requirement(requirement).name) for requirement in added}
    for named in settings.get("required_plugins", []):
        with suppress(InvalidRequirement):
            if (name := canonicalize_name(Requirement(named).name)) not in brought:
                added.append(named)
                brought.add(name)
                why.append(f"{named}: pytest's required_plugins names it")
    plugins = {begin: name for name, begins in read_table("pytest_plugins.toml").items() for begin in begins}
    for option in settings.get("addopts", []):
        plugin = next((name for begin, name in plugins.items() if option.startswith(begin)), "")
        if plugin and canonicalize_name(plugin) not in brought:
            added.append(plugin)
            brought.add(canonicalize_name(plugin))
            why.append(f"{plugin}: pytest's addopts has {option.partition('=')[0]}")
    return added, why, brought


def _folders(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Yield the project's own folders with the names of their files, from above; symbolic links are not followed."""
    for folder, below, files in os.walk(root):
        inside = Path(folder).relative_to(root)
        below[:] = sorted(name for name in below if not _FOREIGN_FOLDER.fullmatch(name))
        if len(inside.parts) >= _DEPTH:
            below.clear()
        yield inside, files


def _tests(root: Path) -> tuple[list[str], list[str]]:
    """Return pytest's arguments for the tests of a project, and lines about what else it perhaps needs for them.

    These are a folder at the top by its usual names, or the only file of pytest's settings below; nothing where
    pytest's own settings name the tests. Without any pytest looks everywhere.
    """
    settings = pytest_settings(root)
    usual = [name for name in ("tests", "test") if (root / name).is_dir()]
    inis: list[str] = []
    tops: list[Path] = []
    for folder, files in _folders(root):
        inis += [(folder / "pytest.ini").as_posix()] * ("pytest.ini" in files)
        named = [at for at, part in enumerate(folder.parts, 1) if _TEST_FOLDER.fullmatch(part)]
        if named and any(fnmatch.fnmatch(name, "test_*.py") or fnmatch.fnmatch(name, "*_test.py") for name in files):
            top = Path(*folder.parts[: named[0]])
            tops += [top] if top not in tops else []
    perhaps = [*_installed_by_the_noxfile(root), *_requirements_files(root)]
    if settings.get("testpaths"):
        return [], perhaps
    if not settings and len(inis) == 1:
        return ["-c", inis[0]], perhaps
    at_the_top = usual[:1] or ([tops[0].as_posix()] if len(tops) == 1 and len(tops[0].parts) == 1 else [])
    if not at_the_top and tops:
        perhaps.insert(0, f"perhaps the tests: {listed([top.as_posix() for top in tops], _NAMED)}")
    return at_the_top, perhaps


def _installed_by_the_noxfile(root: Path) -> Iterator[str]:
    """Yield a line about what the noxfile's own session of the tests installs."""
    for function in _functions(root / "noxfile.py"):
        if function.name in _TESTS:
            calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
            words = [
                argument.value
                for call in sorted(calls, key=attrgetter("lineno"))
                if isinstance(call.func, ast.Attribute) and call.func.attr == "install"
                for argument in call.args
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            ]
            if words:
                yield f"the session {function.name} of noxfile.py installs: {safe(' '.join(words))}"


def _requirements_files(root: Path) -> list[str]:
    """Return a line about the files of requirements that are there for tests."""
    files = [*root.glob("*requirements*.txt"), *root.glob("requirements/*.txt")]
    names = sorted(file.relative_to(root).as_posix() for file in files if re.search(r"test|dev", file.name))
    return [f"perhaps needed by the tests, from files of requirements: {listed(names, _NAMED)}"] if names else []


def _undeclared(root: Path, brought: Collection[str], project: Project) -> list[str]:
    """Return a line about the packages that tests import in any case, and that no requirement's name contains."""
    offered = _required(project, extras=project.extras, groups=project.groups)
    places = {canonicalize_name(wanted.requirement.name): f" ({wanted.where})" for wanted in offered}
    imported: set[str] = set()
    known = {"pytest", "pytest_cudalink", "cuda"}
    for folder, files in _folders(root):
        sources = fnmatch.filter(files, "*.py")
        known |= {*folder.parts[-1:], *(Path(source).stem for source in sources)}
        if any(map(_TEST_FOLDER.fullmatch, folder.parts)):
            imported.update(*(_imported(root / folder / source) for source in sources))
    names = [
        f"{name}{places.get(canonicalize_name(name), '')}"
        for name in sorted(imported - known)
        if not any(canonicalize_name(name) in each or each.startswith(_BROUGHT_BY.get(name, ())) for each in brought)
    ]
    return [f"the tests import {listed(names, 2 * _NAMED)}, which the project and these do not name"] if names else []


def _module(root: Path, name: str) -> tuple[str, str]:
    """Return the module of a project to import, and why that is a guess; empty if a folder or file has its name.

    `name`: the project's. Its module has that name, or is in a namespace that begins it: ``cuda-cccl`` is
    ``cuda.cccl``.
    """
    parts = re.split(r"[-.]+", name)
    whole = "_".join(parts)
    if not whole:
        return "mylib", ""
    spaces = [".".join(["_".join(parts[:at]), "_".join(parts[at:])]) for at in range(1, len(parts))]
    for module in (whole, whole.lower(), *spaces):
        if _file_of(root, module) is not None:
            return module, ""
    tops = {
        folder.parts[-1]
        for folder, files in _folders(root)
        if "__init__.py" in files and not _TEST_FOLDER.fullmatch(folder.parts[-1] if folder.parts else "tests")
        if len(folder.parts) == 1 or (len(folder.parts) == 2 and folder.parts[0] == "src")
    }
    likely = {top for top in tops if whole.startswith(top)} or tops
    module = likely.pop() if len(likely) == 1 else whole
    return module, f"nothing here is named {whole}; {module!r} is a guess"


def _file_of(root: Path, module: str) -> Path | None:
    """Return the file of a module of the project, at the top or below src; None if there is none."""
    places = [base.joinpath(*module.split(".")) for base in (root, root / "src")]
    files = (file for place in places for file in (place / "__init__.py", place.with_suffix(".py")))
    return next((file for file in files if file.is_file()), None)


def _forgotten(root: Path, module: str, required: list[Requirement]) -> str:
    """Return why the wheel alone cannot be imported: a CUDA module that no requirement brings; empty if it can."""
    brought = {canonicalize_name(requirement.name) for requirement in required}
    if any(major_of_extra(extra) is not None for requirement in required for extra in requirement.extras):
        return ""
    for name in _imports(root, module):
        for prefix, packages in _BROUGHT_BY.items():
            if f"{name}.".startswith(f"{prefix}.") and not any(package.startswith(packages) for package in brought):
                return f"its import needs {'.'.join(name.split('.')[:2])}, and no requirement brings {packages[0]}"
    return ""


def _imports(root: Path, module: str) -> Iterator[str]:
    """Yield the modules of others that the import of a module imports in any case; its own are followed."""
    seen = [module]
    for name in seen:
        parts = name.split(".")
        file = _file_of(root, name)
        if file is None:
            continue
        package = parts if file.name == "__init__.py" else parts[:-1]
        modules = dict.fromkeys(_modules(file, package))
        yield from (module for module in modules if module.partition(".")[0] != parts[0])
        seen += [module for module in modules if module.partition(".")[0] == parts[0] and module not in seen]


def _proposed(text: str, name: str, unfit: object) -> str:
    """Return a template whose block ``#NAME#`` counts, or is a comment where it does not fit the project."""
    return re.sub(rf"^#{name}# ?", "# " if unfit else "", text, flags=re.MULTILINE)


def _previous_release(package: str) -> str:
    """Return the release before the newest that uv finds on the package index; empty without uv or an index."""
    latest = newest(package)
    previous = newest(f"{package}<{latest.partition('==')[2]}") if latest else None
    return previous.partition("==")[2] if previous else ""
