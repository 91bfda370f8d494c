"""What a new major of CUDA would break: ``nox -s new-release -- 14.0 --dry-run``, with invented data; writes nothing.

A copy of the package gets rows of the invented release, as `tools.new_release` writes them, and each of `QUESTIONS` is
put to the copy: what a minor of the newest major answers and the new major does not is broken. Then the places follow
that name majors: no data reaches them.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pytest_cudalink.compat.releases import PTX_ISA

from .nvrtc_facts import Facts

ROOT: Final = Path(__file__).parent.parent
#: What is asked of a release, in the words of the answer that a person needs; each is an expression that raises, or is
#: false, where the release is not known. RELEASE is a CudaVersion, TEXT is its number.
QUESTIONS: Final = {
    "releases.toml, driver-branch-floor: the oldest driver of the major": "DRIVER_BRANCH_FLOOR[RELEASE.major]",
    "tools/make_toolchains.py, CTK: the packages of a toolkit": "make_toolchains.CTK[RELEASE.major]",
    "tools/make_exports.py, LIBRARIES: the package of a library": (
        "all(one.distributions[RELEASE.major] for one in make_exports.LIBRARIES.values())"
    ),
    "data/exports: the libraries of the major": "exports.distributions('libnvJitLink')[RELEASE.major]",
    "cuda_libraries.toml, majors: what an audit expects of each SONAME": "str(RELEASE.major) in libraries.MAJORS",
    "stubs/c_source.py: callers compiled with the headers of the major": (
        "c_source.generate(load_catalog(), ['cudart'], folder, headers=RELEASE.major)"
    ),
    "stubs_catalog.toml: the SONAMEs that the stubs of libcudart look for": (
        "f'.so.{RELEASE.major}' in (DATA / 'stubs_catalog.toml').read_text()"
    ),
    "pyproject.toml: an extra with the toolkit of the major": (
        "f'cu{RELEASE.major}' in tomllib.loads(PROJECT)['project']['optional-dependencies']"
    ),
    "pyproject.toml: the classifier of the major": "f'CUDA :: {RELEASE.major}\"' in PROJECT",
    "linker/dispatch.py, DRIVER_MAJORS: the drivers of the table": "RELEASE.major in dispatch.DRIVER_MAJORS",
    "matrix/init.py: the newest release in the files of `cudalink init`": (
        "RELEASE.major == max(one for one in toolchains.releases() if one.major == 13).major"
    ),
    "emulator: a driver of the release": "emulator.emulation_for(TEXT).environment()",
    "releases.toml: the needs of its PTX": "needs_for_ptx_isa(PTX_ISA[RELEASE]).met_by(RELEASE)",
    "matrix: a cell on its toolkit": "toolchains.packages(TEXT)",
    "toolkit_extras.toml: the release of its wheels": "exports.pin_of('nvidia-nvjitlink', f'{TEXT}.1')",
}
_ASKED: Final = """
import json, sys, tempfile, tomllib
from pathlib import Path
from pytest_cudalink import emulator, toolchains
from pytest_cudalink.compat.releases import DRIVER_BRANCH_FLOOR, PTX_ISA, needs_for_ptx_isa
from pytest_cudalink.linker import dispatch
from pytest_cudalink.stubs import c_source
from pytest_cudalink.stubs.catalog import load_catalog
from pytest_cudalink.compat import exports, libraries
from pytest_cudalink.versions import CudaVersion
from tools import make_exports, make_toolchains
TEXT, folder = sys.argv[1], Path(tempfile.mkdtemp(dir=sys.argv[2]))
RELEASE, DATA = CudaVersion.parse(TEXT), Path("pytest_cudalink/data")
PROJECT = Path("pyproject.toml").read_text()
answers = {}
for words, question in json.loads(sys.argv[3]).items():
    try:
        answers[words] = "" if eval(question) else "nothing is known"
    except Exception as error:
        answers[words] = f"{type(error).__name__}: {error}"
print(json.dumps(answers))
"""


def _invented(folder: Path, release: str) -> None:
    """Write rows of a release that does not exist into a copy, as if its wheels had been read."""
    data = folder / "pytest_cudalink" / "data"
    known = (data / "toolkit_extras.toml").read_text(encoding="utf-8").rpartition("\n[versions.")[2]
    lines = [re.sub(r"==[\d.]+\*", f"=={release}.1.*", line) for line in known.splitlines()[1:]]
    with (data / "toolkit_extras.toml").open("a", encoding="utf-8") as file:
        file.write("\n".join(["", f'[versions."{release}.0"]', *lines, ""]))
    toolchain = (data / "toolchains.toml").read_text(encoding="utf-8").rpartition("\n[releases.")[2]
    before = toolchain.split('"')[1]
    with (data / "toolchains.toml").open("a", encoding="utf-8") as file:
        file.write(f"\n[releases.{toolchain}".replace(f'"{before}"', f'"{release}"'))
    wanted = Facts((90, 0), (9, 0), 99, {90: "a", 140: "af"}, {90: 65, 140: 66})
    program = (
        "import sys, json; from pathlib import Path; from unittest import mock; from tools import new_release;"
        "from tools.nvrtc_facts import Facts; import tools.nvrtc_facts as facts;"
        f"facts.facts_of = lambda _: {wanted!r};"
        "new_release.toolchains.add = mock.Mock();"
        "print(json.dumps(new_release.facts(sys.argv[1])))"
    )
    subprocess.run([sys.executable, "-c", program, release], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def broken(release: str) -> dict[str, str]:
    """Return what a minor of the newest major answers and a new major does not, each with what it says instead."""
    newest = max(PTX_ISA)
    minor = f"{newest.major}.{newest.minor + 1}"
    answers = {}
    for version in (minor, release):
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            for name in ("pytest_cudalink", "tools", "matrices"):
                shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "pyproject.toml", folder)
            _invented(folder, version)
            command = [sys.executable, "-c", _ASKED, version, temporary, json.dumps(QUESTIONS)]
            done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
            answers[version] = json.loads(done.stdout)
    return {words: said for words, said in answers[release].items() if said and not answers[minor][words]}


#: In files that are not Python: packages and extras by major, SONAMEs, lists and bounds of majors.
_NAMES_MAJOR: Final = re.compile(r"\bcu1[23]\b|\.so\.1[23]\b|\b12\D{1,6}13\b(?!\.)|<1[34]\b|\bmajor = 13\b")
_MAJORS: Final = {11, 12, 13, 14, "11", "12", "13", "14"}
#: Read off wheels, or about chosen releases: nothing to change.
_NOT_READ: Final = (
    *("exports/", "toolchains.toml", "toolkit_extras.toml", "requires.toml", "known_bad.toml", "sessions.toml"),
    *("generated/", "compat/names.py"),
)


def places() -> Iterator[str]:
    """Yield each line of the package, the tools and the settings that names a major, as ``FILE:LINE: TEXT``."""
    files = [ROOT / "pyproject.toml", ROOT / "noxfile.py", *(ROOT / "matrices").glob("*.toml")]
    for folder in ("pytest_cudalink", "tools"):
        files += [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.toml"), *(ROOT / folder).rglob("*.[ch]")]
    for file in sorted(files):
        name = str(file.relative_to(ROOT))
        if not any(part in name for part in _NOT_READ) and file != Path(__file__):
            lines = file.read_text(encoding="utf-8").splitlines()
            numbers = _of_python(lines) if file.suffix == ".py" else _of_text(lines)
            yield from (f"{name}:{number}: {lines[number - 1].strip()[:90]}" for number in sorted(set(numbers)))


def _of_text(lines: list[str]) -> Iterator[int]:
    for number, line in enumerate(lines, 1):
        code = line.partition("#")[0] if not line.startswith("#include") else ""
        if _NAMES_MAJOR.search(re.sub(r"/\*.*", "", code)):
            yield number


def _of_python(lines: list[str]) -> Iterator[int]:
    """Lines with a comparison of a major, a collection of majors, or a word of a package or SONAME; no docstrings."""
    tree = ast.parse("\n".join(lines))
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
            constant = any(isinstance(operand, ast.Constant) and operand.value in _MAJORS for operand in compared)
            if constant and any("major" in ast.unparse(operand) for operand in compared):
                yield node.lineno
        elif isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
            parts = [*node.keys] if isinstance(node, ast.Dict) else [*node.elts]
            values = {part.value if isinstance(part, ast.Constant) else ... for part in parts}
            if len(values & _MAJORS) > 1 and values <= _MAJORS | {None, "none"}:
                yield node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield from [node.lineno] * bool(re.search(r"\bcu1[23]\b|\.so\.1[23]\b", node.value))


def main(release: str) -> int:
    """Print what would break."""
    write = sys.stdout.write
    write(f"CUDA {release}, with invented data. Known for a new minor, and not for it:\n")
    for words, said in broken(release).items():
        write(f"- {words} ({said})\n")
    write("\nThese lines name majors; do they hold for the new one?\n")
    for line in places():
        write(f"- {line}\n")
    return 0
