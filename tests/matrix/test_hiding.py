"""Toolkits of the system are hidden by a mount namespace, or by the environment alone, and the run knows which.

Both ways are real: a namespace of users in which no other may be made refuses as a locked-down machine does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink.matrix import hiding
from pytest_cudalink.report import read
from tests.nested import NO_AUTOLOAD

_NOTHING_ALLOWED = (
    'echo 0 >/proc/sys/user/max_user_namespaces && echo 0 >/proc/sys/user/max_mnt_namespaces && exec "$@"'
)


def _allows_namespaces() -> str:
    """Why this machine allows no namespace of users with mounts; empty if it does."""
    program = shutil.which("unshare")
    if program is None:
        return "there is no program unshare"
    done = subprocess.run(
        [program, "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if done.returncode == 0 else f"the kernel refuses mount namespaces: {done.stderr.strip()}"


REFUSED = _allows_namespaces()
needs_namespaces = pytest.mark.skipif(bool(REFUSED), reason=REFUSED or "they are allowed")


def start(*program: str, hidden, refuse: bool = False, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a cell that hides something does; with `refuse` where the kernel allows no namespaces."""
    command = [sys.executable, "-m", "pytest_cudalink.matrix", *program]
    if refuse and not REFUSED:
        command = ["unshare", "--user", "--map-root-user", "sh", "-c", _NOTHING_ALLOWED, "sh", *command]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CUDALINK_")}
    environment = {**clean, **env, "CUDALINK_CELL_KEYS": json.dumps({"hidden": [str(one) for one in hidden]})}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def toolkit(tmp_path) -> Path:
    """A toolkit in an odd place, with a link to it as installers make."""
    folder = tmp_path / "odd" / "cuda-12.9"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib64").mkdir()
    (folder / "lib64" / "libnvrtc.so.12").write_text("")
    nvcc = folder / "bin" / "nvcc"
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    (folder.parent / "cuda").symlink_to(folder)
    return folder


def environment_of(toolkit: Path) -> dict[str, str]:
    """The variables that lead to a toolkit."""
    return {
        "CUDA_HOME": str(toolkit.parent / "cuda"),
        "LD_LIBRARY_PATH": f"{toolkit}/lib64:/nowhere",
        "PATH": f"{toolkit}/bin:{os.environ['PATH']}",
    }


_SEES = "import os, sys; print([os.path.exists(one) for one in sys.argv[1:]], os.environ.get('CUDA_HOME'), os.getuid())"


@needs_namespaces
def test_a_mount_namespace_hides_folders_and_files(toolkit, tmp_path) -> None:
    """Nothing of the toolkit is there, by whatever name; files nobody can open; this process sees all as before."""
    lone = tmp_path / "libcudart.so.12"
    lone.write_text("x")
    program = f"{_SEES}; print(open({str(lone)!r}).read())"
    paths = (str(toolkit / "bin" / "nvcc"), str(toolkit.parent / "cuda" / "lib64" / "libnvrtc.so.12"))
    patterns = (toolkit.parent / "cuda*", lone)
    done = start("python", "-c", program, *paths, hidden=patterns, cwd=tmp_path, **environment_of(toolkit))
    assert done.stdout.split("\n")[0] == f"[False, False] None {os.getuid()}"
    assert "PermissionError" in done.stderr
    assert done.stderr.startswith(f"cudalink: hidden by a mount namespace: {lone}, {toolkit}")
    assert lone.read_text() == "x"
    assert (toolkit / "bin" / "nvcc").exists()


def test_without_namespaces_the_environment_hides_what_it_can(toolkit, tmp_path) -> None:
    """The variables are gone, and one sentence says what is not: the run is not told that all is well."""
    show = "import os; print(os.environ.get('CUDA_HOME'), os.environ['LD_LIBRARY_PATH'], os.environ['CUDALINK_HIDDEN'])"
    done = start(
        "python", "-c", show, hidden=[toolkit.parent / "c*"], refuse=True, cwd=tmp_path, **environment_of(toolkit)
    )
    home, path, found = done.stdout.split(" ", 2)
    assert (home, path) == ("None", "/nowhere")
    hidden = hiding.Hidden.of(found)
    assert (hidden.how, hidden.places, hidden.axis) == ("environment", (str(toolkit),), "environment only")
    assert hidden.reason.startswith("no mount namespace: ")
    words = f"hidden by environment only ({hidden.reason}): {toolkit} still opens by its path"
    assert done.stderr.startswith(f"cudalink: {words}")
    assert not any(f"{toolkit}/bin" in one for one in hidden.reachable)


@pytest.mark.parametrize(
    "refuse", [pytest.param(False, marks=needs_namespaces), pytest.param(True, marks=pytest.mark.slow)]
)
def test_pytest_says_how_in_header_and_record(toolkit, tmp_path, refuse) -> None:
    """A cell of the ordinary kind starts pytest in the same way; header and record say which of the two happened."""
    (tmp_path / "test_it.py").write_text("def test(): pass\n")
    done = start(
        *(sys.executable, "-m", "pytest", "-p", "cudalink", "test_it.py", "--cudalink-report=one.jsonl"),
        hidden=[toolkit],
        refuse=refuse,
        cwd=tmp_path,
        **NO_AUTOLOAD,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    how = "environment only" if refuse else "a mount namespace"
    run = read(tmp_path / "one.jsonl").run
    assert run.hidden.startswith(f"hidden by {how}")
    assert run.axes == {"hidden": how.removeprefix("a ")}
    assert f"cudalink: {run.hidden}\n" in done.stdout


def test_nothing_is_hidden_in_silence(tmp_path) -> None:
    """A pattern that matches nothing is said, too."""
    done = start("python", "-c", "", hidden=["/nowhere/cuda*"], cwd=tmp_path)
    assert done.stderr.startswith("cudalink: nothing to hide: no file has such a name")


def test_what_the_run_needs_is_not_hidden(tmp_path) -> None:
    """A pattern that is too wide is refused before anything is hidden, with what it would hide."""
    done = start("python", "-c", "", hidden=[f"{Path(sys.prefix).parent}/*"], cwd=tmp_path)
    assert done.returncode == 2
    assert "; name the folder of the toolkit" in done.stderr
    missing = start("there-is-no-such-program", hidden=["/nowhere/cuda*"], cwd=tmp_path)
    assert missing.returncode == 127
    assert "there-is-no-such-program cannot be run: No such file or directory" in missing.stderr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{t}/lib64:/usr/lib", "/usr/lib"),
        ("/usr/lib", "/usr/lib"),
        ("{t}", None),
        ("{t}/a:{t}/b", None),
        ("{t}-other", "{t}-other"),
        ("", ""),
        ("word", "word"),
        ("/usr/lib:", "/usr/lib:"),
    ],
)
def test_variables_that_lead_to_a_place(before, after, tmp_path) -> None:
    """Paths in it are removed, the others stay; a variable of which nothing is left is removed."""
    place = str(tmp_path.resolve() / "cuda")
    environment = {"V": before.format(t=place), "CUDALINK_CELL": place}
    hiding.without_places(environment, [place])
    left = {} if after is None else {"V": after.format(t=place)}
    assert environment == {**left, "CUDALINK_CELL": place}


@pytest.mark.parametrize(
    ("path", "pattern", "hidden"),
    [
        ("/usr/local/cuda-13.0/bin", "/usr/local/cuda*", True),
        ("/usr/local/cuda", "/usr/local/cuda*/", True),
        ("/usr/local", "/usr/local/cuda*", False),
        ("/usr/local/other/cuda", "/usr/local/cuda*", False),
        ("/usr/local/x/cuda", "/usr/local/*/cuda", True),
    ],
)
def test_patterns_match_whole_parts(path, pattern, hidden) -> None:
    """A pattern hides a folder and all that is in it; a star does not match a slash."""
    assert hiding.is_hidden_by(path, pattern) is hidden


def test_what_is_said() -> None:
    """The sentence names up to three places; what it was written from can be read again."""
    one = hiding.Hidden("environment", tuple(f"/p/{number}" for number in range(5)), ("still found: x",), "why")
    assert str(one) == (
        "hidden by environment only (why): /p/0, /p/1, /p/2 and 2 more still open by their paths; still found: x"
    )
    assert hiding.Hidden.of(one.as_json()) == one
    for text in ("{}", "[]", "x"):
        with pytest.raises(ValueError):  # noqa: PT011 (the text itself is the message)
            hiding.Hidden.of(text)
