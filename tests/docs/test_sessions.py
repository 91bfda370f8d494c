"""The tutorials and how-to pages whose sessions need nothing but one toolkit run as they are shown."""

import re
import shutil
from importlib import metadata
from pathlib import Path

import pytest

from pytest_cudalink import emulator
from pytest_cudalink.versions import CudaVersion
from tests import sessions

DOCS = Path(__file__).parents[2] / "docs"

#: Pages whose sessions have tests with more preparation: campaigns/stranger/path.py, tests/docs/test_recipes.py.
ELSEWHERE = ("tutorials/matrix", "how-to/recipes")


def parts(name: str, text: str) -> dict[str, str]:
    """The text of a page, by the page's name; sections with another example than the page's, by page and example."""
    parts: dict[str, str] = {}
    part = name
    for section in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        examples = [name for name in re.findall(r"/examples/([\w-]+)/", section) if name != "written"]
        if examples:
            part = name if examples[0] == name.rpartition("/")[2] else f"{name}/{examples[0]}"
        parts[part] = parts.get(part, "") + section
    return parts


#: The session of each page or section, by its name, the end of which is the folder of its example.
PAGES = {
    name: session
    for folder in ("tutorials", "how-to")
    for page in sorted((DOCS / folder).glob("*.md"))
    if f"{folder}/{page.stem}" not in ELSEWHERE
    for name, text in parts(f"{folder}/{page.stem}", page.read_text(encoding="utf-8")).items()
    if (session := sessions.blocks(text))
}

#: Plugins of pytest that change the order or the output of a run, by distribution: the name by which each is left out.
PLUGINS = {
    "pytest-cov": "pytest_cov",
    "pytest-forked": "pytest_forked",
    "pytest-randomly": "randomly",
    "pytest-rerunfailures": "rerunfailures",
    "pytest-timeout": "timeout",
}

#: Sections that need some of these plugins: ``nox -s plugins`` runs their sessions. All other pages run without any.
NEEDS = {
    "how-to/other-plugins/coverage": ("pytest-cov",),
    "how-to/other-plugins/randomly": ("pytest-randomly",),
    "how-to/other-plugins/rerunfailures": ("pytest-rerunfailures",),
    "how-to/other-plugins/timeout": ("pytest-timeout",),
}


def prepare(name: str, folder: Path) -> None:
    """Copy ``docs/examples/PAGE``, and leave out the plugins that the page does not need."""
    files = DOCS / "examples" / name.rpartition("/")[2]
    if files.is_dir():
        shutil.copytree(files, folder, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        folder.mkdir()
    others = [f"-p no:{plugin}" for distribution, plugin in PLUGINS.items() if distribution not in NEEDS.get(name, ())]
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = {' '.join(others)}\n", encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in PAGES if name not in NEEDS])
def test_session(name: str, tmp_path: Path, toolkit: CudaVersion) -> None:
    """Every command of a page prints what the page shows under it, in a copy of ``docs/examples/PAGE``."""
    prepare(name, tmp_path / "project")
    sessions.check(PAGES[name], tmp_path / "project", toolkit)


@pytest.mark.parametrize("name", NEEDS)
def test_session_with_plugins(name: str, tmp_path: Path, toolkit: CudaVersion) -> None:
    """The same for the pages on other plugins, in an environment that has them."""
    for distribution in NEEDS[name]:
        try:
            metadata.distribution(distribution)
        except metadata.PackageNotFoundError:
            pytest.skip(f"needs {distribution}: nox -s plugins")
    test_session(name, tmp_path, toolkit)


def test_a_slow_run_is_the_same_session() -> None:
    """The rule under pytest's output is shorter where the seconds have two digits; another count is another output."""
    shown = "...\n============================== 1 passed in ... ===============================\n"
    for seconds in ("0.50s", "12.06s", "100.00s (0:01:40)"):
        assert sessions.matches(shown, f"test_a.py .\n{f' 1 passed in {seconds} ':=^80}\n")
    assert not sessions.matches(shown, f"test_a.py F\n{' 1 failed in 0.50s ':=^80}\n")


def test_another_toolkit_is_the_same_session() -> None:
    """A page shows the versions of CUDA 13.0; with another toolkit its versions stand there, and those alone."""
    toolkit = CudaVersion(13, 5)
    header = f"driver CUDA 13.5 (emulated, sm_90, release {emulator.release_of(toolkit)}), nvJitLink 13.5.37"
    assert sessions.as_written(header, toolkit) == (
        "driver CUDA 13.0 (emulated, sm_90, release 580.65.06), nvJitLink 13.0.37"
    )
    assert sessions.as_written("113.5 MB in 3.13.5 and 13.50", toolkit) == "113.5 MB in 3.13.5 and 13.50"
    assert sessions.as_written(header, sessions.WRITTEN_FOR) == header
