"""The steps of a newcomer, read from the README and the tutorials, and a home folder in which nothing else exists."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests import sessions

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
FIRST, MATRIX = DOCS / "tutorials" / "first-red-test.md", DOCS / "tutorials" / "matrix.md"

#: The files of each tutorial, which the reader puts into an empty folder.
FILES = {FIRST: DOCS / "examples" / "first-red-test", MATRIX: DOCS / "tutorials" / "project"}
#: Where a home folder has downloads, with the variable that names another place.
CACHES = {"PIP_CACHE_DIR": ".cache/pip", "UV_CACHE_DIR": ".cache/uv", "CUDALINK_CACHE": ".cache/pytest-cudalink"}
#: What the network of a machine needs; nothing else of this environment reaches the steps.
NETWORK = re.compile(
    r"(?i)(https?|all|no)_proxy|PIP_(CERT|INDEX_URL|DEFAULT_TIMEOUT)|UV_(DEFAULT_INDEX|INDEX_URL|NATIVE_TLS)"
    r"|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE"
)
#: Toolkits outside of environments: the doctor finds them, too.
OTHER_TOOLKITS = [*Path("/usr/local").glob("cuda*")]
#: What a command must say, whatever "..." a page has in that place.
MUST_SAY = {
    "cudalink --version": r"pytest-cudalink \d",
    "cudalink doctor": r"^Verdict: ",
    "cudalink demo": r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    "pytest --cudalink-driver=13.0": r"driver CUDA 13\.0 \(emulated.*\n[\s\S]* 1 passed",
    "pytest --cudalink-driver=12.9": r"RuntimeError: CUDA_ERROR_UNSUPPORTED_PTX_VERSION[\s\S]* 1 failed",
    "nox -s ctk-13.0": r" 1 passed",
    "nox -s ctk-13.2-driver-13.0": r"CUDAError: CUDA_ERROR_UNSUPPORTED_PTX_VERSION[\s\S]* 1 failed",
    "cudalink report .cudalink --html report.html --save before.json": (
        r"Why tests fail\s+1 test in 1 of 2 cells[\s\S]*::test_kernel_loads\s+cells +ctk-13\.2-driver-13\.0\b"
    ),
    "nox -R -s ctk-13.2-driver-13.0": r" 1 passed",
    "cudalink report .cudalink --against before.json": r"\b2 passed\b[\s\S]*\b1 fixed\b",
    "nox -R -s report": r"no test fails: 1 test in 9 cells",
}


#: What the first use of a driver says in addition, where the environment has another release than the site's tests.
FETCHING = re.compile(r"^cudalink: (fetching the )?toolchain .*\n", re.MULTILINE)


class Failure(Exception):  # noqa: N818 (a finding, not an error of this program)
    """A step did not do what its page says; the message has the command and its output."""


@dataclass(frozen=True)
class Step:
    """A command of a page, in the folder of that page's example."""

    page: str
    folder: str
    command: str
    #: The output that the page has under the command, if any.
    shown: str | None = None
    code: int = 0


def _section(text: str, heading: str) -> str:
    """The part of a page from a heading of the second level to the next."""
    return re.split(r"^## ", text.split(f"\n## {heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def _scripts(text: str) -> list[str]:
    """Every line of the ``sh`` blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def _sessions(page: Path) -> list[Step]:
    """The commands of a page that have their output under them."""
    made = []
    for line, shown in sessions.steps(sessions.blocks(page.read_text(encoding="utf-8"))):
        command, _, remark = line.partition("  # ")
        fails = remark == "fails" or bool(re.search(r"^=+ \d+ failed in", shown, re.MULTILINE))
        made.append(Step(page.name, page.stem, command, shown, int(fails)))
    return made


def steps() -> list[Step]:
    """The commands in the order of a newcomer: install, the README's first commands, both tutorials."""
    first = FIRST.read_text(encoding="utf-8")
    install = [Step(FIRST.name, FIRST.stem, line) for line in _scripts(_section(first, "Install"))]
    look = [Step("", FIRST.stem, "cudalink --version")]
    red = _sessions(FIRST)
    known = {step.command for step in install + red}
    readme = _scripts(_section((ROOT / "README.md").read_text(encoding="utf-8"), "Install"))
    look += [Step("README.md", FIRST.stem, line) for line in readme if line not in known]
    (more,) = re.findall(r"`(pip install [^`]+)`", MATRIX.read_text(encoding="utf-8"))
    # a project has a history, and the report names its commit
    project = [Step("", MATRIX.stem, "git init -q"), Step("", MATRIX.stem, "git add .")]
    project.append(Step("", MATRIX.stem, "git -c user.name=me -c user.email=me@localhost commit -q -m start"))
    return [*install, *look, *red, Step(MATRIX.name, MATRIX.stem, more), *project, *_sessions(MATRIX)]


class HomeFolder:
    """A home folder without caches and settings; its PATH has a Python and the system's programs.

    `folder`: an empty folder.
    `wheel`: the wheel under test, which stands in for the name of the project in ``pip install``.
    `caches`: variables of `CACHES` that name folders outside this home.
    `python`: the Python of the walk; default the one that runs this program.
    """

    def __init__(
        self, folder: Path, wheel: Path, caches: dict[str, str] | None = None, python: Path | None = None
    ) -> None:
        self.folder, self.wheel = folder, wheel
        self.activated = ""
        programs = folder / "bin"
        programs.mkdir(parents=True)
        # Debian has no program "python" outside of environments
        own = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
        (programs / "python").symlink_to(python or own)
        self.environment = {
            **{name: value for name, value in os.environ.items() if NETWORK.fullmatch(name)},
            **(caches or {}),
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "PATH": f"{programs}:/usr/bin:/bin",
            # the cells install the plugin by its name, which an index does not have yet
            "CUDALINK_REQUIREMENT": str(wheel),
        }
        for page, source in FILES.items():
            shutil.copytree(source, folder / page.stem, ignore=shutil.ignore_patterns("__pycache__", ".*"))

    def walk(self, step: Step) -> float:
        """Do one step, and return the seconds that it took.

        Raises Failure if its exit code or its output is not what the page says.
        """
        command = step.command.replace('"pytest-cudalink[', f'"{self.wheel}[')
        if command.startswith(". "):  # each step is a shell: it begins with what the steps before have activated
            self.activated = f". {shlex.quote(str(self.folder / step.folder / command[2:]))}\n"
        began = time.monotonic()
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        where = {"cwd": self.folder / step.folder, "env": self.environment}
        shell = ["bash", "-c", self.activated + command]
        done = subprocess.run(shell, **streams, **where, text=True, check=False, timeout=600)
        took = time.monotonic() - began
        said = f"$ {command}\n{done.stdout}"
        # another toolkit of this machine may not fit, which is not the wheel's fault
        codes = {step.code, 1} if step.command == "cudalink doctor" and OTHER_TOOLKITS else {step.code}
        if done.returncode not in codes:
            raise Failure(f"{said}exit code {done.returncode}; expected {step.code}")
        if step.shown is not None and not sessions.matches(step.shown, FETCHING.sub("", done.stdout)):
            raise Failure(f"{said}is not what {step.page} shows:\n{step.shown}")
        if not re.search(MUST_SAY.get(step.command, ""), done.stdout):
            raise Failure(f"{said}does not say {MUST_SAY[step.command]}")
        return took
