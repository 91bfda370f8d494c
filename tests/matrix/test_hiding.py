"""Toolkits of the system are hidden by a mount namespace, or by the environment alone, and the run knows which.

Both ways are real: a namespace of users in which no other may be made refuses as a locked-down machine does.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from unittest import mock

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
    command = [program, "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"the kernel refuses mount namespaces: {done.stderr.strip()}"


REFUSED = _allows_namespaces()
needs_namespaces = pytest.mark.skipif(bool(REFUSED), reason=REFUSED or "they are allowed")


def start(*program: str, hidden, refuse: bool = False, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program as a cell that hides something does; with `refuse` where the kernel allows no namespaces."""
    command = [sys.executable, "-m", "pytest_cudalink.matrix", *program]
    if refuse and not REFUSED:
        command = ["unshare", "--user", "--map-root-user", "sh", "-c", _NOTHING_ALLOWED, "sh", *command]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CUDALINK_")}
    environment = {**clean, **env, "CUDALINK_CELL_KEYS": json.dumps({"hidden": [str(path) for path in hidden]})}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def toolkit(tmp_path) -> Path:
    """A toolkit in an odd place, with a link to it as installers make."""
    folder = tmp_path / "odd" / "cuda-12.9"
    for name in ("lib64/libnvrtc.so.12", "bin/nvcc"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch(mode=0o755)
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
    """Nothing of the toolkit is there, by whatever name; and no file opens; this process sees all as before."""
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
    patterns, environment = [toolkit.parent / "c*"], environment_of(toolkit)
    done = start("python", "-c", show, hidden=patterns, refuse=True, cwd=tmp_path, **environment)
    home, path, text = done.stdout.split(" ", 2)
    hidden = hiding.Hidden.of(text)
    assert (home, path, hidden.how, hidden.places) == ("None", "/nowhere", "environment", (str(toolkit),))
    assert hidden.reason.startswith("no mount namespace: ")
    words = f"hidden by environment only ({hidden.reason}): {toolkit} still opens by its path"
    assert done.stderr.startswith(f"cudalink: {words}")
    assert not any(f"{toolkit}/bin" in path for path in hidden.reachable)


@pytest.mark.parametrize(
    "refuse", [pytest.param(False, marks=needs_namespaces), pytest.param(True, marks=pytest.mark.slow)]
)
def test_pytest_says_how_in_header_and_record(toolkit, tmp_path, refuse) -> None:
    """A cell of the ordinary kind starts pytest in the same way; header and record say which of the two happened."""
    (tmp_path / "test_it.py").write_text("def test(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "cudalink", "test_it.py", "--cudalink-report=one.jsonl"]
    done = start(*command, hidden=[toolkit], refuse=refuse, cwd=tmp_path, **NO_AUTOLOAD)
    assert done.returncode == 0, done.stdout + done.stderr
    how = "environment only" if refuse else "a mount namespace"
    run = read(tmp_path / "one.jsonl").run
    assert run.hidden.startswith(f"hidden by {how}")
    assert run.axes == {"hidden": how.removeprefix("a ")}
    assert f"cudalink: {run.hidden}\n" in done.stdout


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{t}/lib64:/usr/lib", "/usr/lib"),
        ("{t}", None),
        ("{t}/a:{t}/b", None),
        ("{t}-other", "{t}-other"),
        ("{t}:", None),
        *((kept, kept) for kept in ("", "word", "/usr/lib", "/usr/lib:")),
    ],
)
def test_variables_that_lead_to_a_place(before, after, tmp_path, monkeypatch) -> None:
    """Paths in it are removed, the others stay; a variable of which nothing is left is removed."""
    place = str(tmp_path.resolve() / "cuda")
    (tmp_path / "cuda").mkdir()
    monkeypatch.chdir(place)
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
        ("/opt/cuX/", "/opt/cuX/", True),
    ],
)
def test_patterns_match_whole_parts(path, pattern, hidden) -> None:
    """A pattern hides a folder and all that is in it; a star does not match a slash."""
    assert hiding.is_hidden_by(path, pattern) is hidden


HIDDEN = {
    "namespace": ("mount namespace", "hidden by a mount namespace: /a, /b; more, x"),
    "environment": ("environment only", "hidden by environment only (why): /a, /b still open by their paths; more, x"),
    "nothing": ("nothing to hide", "nothing to hide: no file has such a name; more, x"),
}


@pytest.mark.parametrize("how", HIDDEN)
def test_words_of_each_way(how) -> None:
    """The axis of the report, and the sentence with and without what is still there; others are refused."""
    axis, sentence = HIDDEN[how]
    hidden = hiding.Hidden(how, ("/a", "/b"), ("more", "x"), "why")
    assert (hidden.axis, str(hidden)) == (axis, sentence)
    assert str(hiding.Hidden(how, ("/a", "/b"), reason="why")) == sentence.removesuffix("; more, x")
    assert hiding.Hidden.of(hidden.as_json()) == hidden
    many = str(hiding.Hidden(how, tuple(f"/p/{number}" for number in range(5)), (), "why"))
    assert how == "nothing" or ": /p/0, /p/1, /p/2 and 2 more" in many
    assert how != "environment" or str(hiding.Hidden(how, ("/a",), (), "why")).endswith("/a still opens by its path")
    for text in ("{}", "[]", "x"):
        with pytest.raises(ValueError):  # noqa: PT011 (the text itself is the message)
            hiding.Hidden.of(text)


@pytest.fixture
def cached(monkeypatch, tmp_path) -> list[tuple[str, str]]:
    """The loader's cache, with a library in a toolkit and one elsewhere; there is no nvcc."""
    cache = [("libcudart.so.13", f"{tmp_path}/c/l.so"), ("libcufft.so.12", "/l/b.so"), ("libc.so.6", "/l/c.so")]
    monkeypatch.setattr(hiding, "loader_cache", lambda: cache)
    monkeypatch.setattr(hiding.shutil, "which", lambda name, path: None if path == "" else f"{path}/{name}")
    return cache


def test_ways_to_hide(cached, tmp_path, monkeypatch) -> None:
    """A namespace where a child could enter one, else the environment; what is still found is said of both."""
    place = tmp_path / "c"
    place.mkdir()
    entered: list[object] = []
    monkeypatch.setattr(hiding, "_enter", entered.append)
    monkeypatch.setattr(hiding, "_try", lambda places: "")
    lost = "still found by the loader: libcufft.so.12 (/l/b.so)"
    every = f"still found by the loader: libcudart.so.13 ({place}/l.so), libcufft.so.12 (/l/b.so)"
    places, variables = (str(place),), {"V": f"{place}/x", "PATH": f"{place}:/p"}
    assert hiding.hide([str(place)], variables) == hiding.Hidden(
        "namespace", places, (lost, "still found on the PATH: /p/nvcc")
    )
    assert (variables, entered) == ({"PATH": "/p"}, [places])
    monkeypatch.setattr(hiding, "_try", lambda places: "why")
    assert hiding.hide([str(place)], {"V": str(place)}) == hiding.Hidden("environment", places, (every,), "why")
    assert hiding.hide(["/nowhere/*"], {"PATH": ""}) == hiding.Hidden("nothing", (), (every,))
    cached.clear()
    assert hiding.hide(["/nowhere/*"], {}) == hiding.Hidden("nothing")
    assert entered == [places]


def test_places_that_patterns_match(tmp_path, monkeypatch) -> None:
    """Each once, without links and without what lies in another; what the process needs is refused by its name."""
    for name in ("b/in", "bb", "a"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("b")
    places = hiding._places([f"{tmp_path}/b/in", f"{tmp_path}/b*", f"{tmp_path}/link", f"{tmp_path}/a", "/nowhere/*"])
    assert places == tuple(f"{tmp_path}/{name}" for name in ("a", "b", "bb"))
    monkeypatch.chdir(tmp_path / "a")
    needed = {"the working folder": str(tmp_path / "a"), "pytest-cudalink": hiding.__file__}
    for module, name, what in ((sys, "executable", "Python"), (sys, "prefix", "the environment")):
        (tmp_path / name).mkdir()
        needed[what] = str(tmp_path / name / "x")
        monkeypatch.setattr(module, name, needed[what])
    needed["the standard library"] = os.__file__
    for what, path in needed.items():
        pattern = str(Path(path).parent if what != "the working folder" else tmp_path / "?")
        with pytest.raises(hiding.HidingError) as caught:
            hiding._places([pattern])
        assert str(caught.value) == f"hidden = {pattern!r} hides {what} ({path}); name the folder of the toolkit"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError(1, ""), "no mount namespace: Operation not permitted"),
        (OSError(""), "no mount namespace: the attempt ended with 255"),
        (ZeroDivisionError(), "no mount namespace: the attempt ended with 255"),
        (None, ""),
    ],
)
def test_an_attempt(monkeypatch, error, reason) -> None:
    """A child tries, so that this process stays where it is; the reason is the kernel's where it gave one."""

    def enter(places) -> None:
        assert places == ["/x"]
        if error:
            raise error

    monkeypatch.setattr(hiding, "_enter", enter)
    assert hiding._try(["/x"]) == reason
    monkeypatch.setattr(hiding.sys, "platform", "darwin")
    assert hiding._try(["/x"]) == "there are no mount namespaces on this system"


class Libc:
    """Stands in for the C library: keeps its calls; those that are named fail."""

    def __init__(self, monkeypatch, *fail: tuple[object, ...]) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.mount = self._function("mount")
        self.unshare, self.umount2 = self._function("unshare"), self._function("umount2")
        self.fail = fail
        patched = {"geteuid": 7, "getegid": 8}
        for name, value in patched.items():
            monkeypatch.setattr(hiding.os, name, lambda value=value: value)
        monkeypatch.setattr(hiding.os, "mknod", lambda *words: self.calls.append(("mknod", *words)))
        monkeypatch.setattr(hiding.Path, "write_text", lambda *words, **more: self.calls.append((*words, more)))
        monkeypatch.setattr(hiding.ctypes, "CDLL", lambda name, use_errno: self if use_errno and not name else None)
        monkeypatch.setattr(hiding.ctypes, "get_errno", lambda: 1)

    def _function(self, name: str):
        def call(*words: object) -> int:
            self.calls.append((name, *words))
            return -1 if (name, *words[:1]) in self.fail else 0

        return call


#: MS_REC | MS_PRIVATE; MS_RDONLY, MS_NOSUID and MS_NODEV.
PRIVATE, BIND, READ_ONLY, WRITABLE = 0x44000, 0x1000, 7, 6
SIZE = b"mode=755,size=4k"


def test_the_calls_of_a_namespace(tmp_path, monkeypatch) -> None:
    """Folders are covered; over files lies a device that cannot be opened, made where no file is hidden."""
    folder, file, work = tmp_path / "folder", tmp_path / "above" / "file", tmp_path / "work"
    for hidden in (folder, file.parent, work):
        hidden.mkdir()
    file.touch()
    (tmp_path / "link").symlink_to(file.parent)
    monkeypatch.setattr(hiding, "_WORKPLACES", [str(tmp_path / name) for name in ("missing", "link", "work", "folder")])
    own, ascii_ = Path("/proc/self"), {"encoding": "ascii"}
    private = ("mount", b"none", b"/", None, PRIVATE, None)
    covered = ("mount", b"none", bytes(folder), b"tmpfs", READ_ONLY, SIZE)
    root = Libc(monkeypatch)
    hiding._enter([str(folder)])
    assert root.calls == [("unshare", 0x2_0000), private, covered]
    assert len(root.mount.argtypes) == 5
    user = Libc(monkeypatch, ("unshare", 0x2_0000))
    hiding._enter([str(folder), str(file)])
    assert user.calls == [
        *(("unshare", 0x2_0000), ("unshare", 0x1002_0000), (own / "setgroups", "deny", ascii_)),
        *((own / "uid_map", "7 7 1", ascii_), (own / "gid_map", "8 8 1", ascii_), private, covered),
        ("mount", b"none", bytes(work), b"tmpfs", WRITABLE, SIZE),
        ("mknod", f"{work}/nothing", stat.S_IFCHR | 0o600, 0),
        ("mount", bytes(work / "nothing"), bytes(file), None, BIND, None),
        ("umount2", bytes(work), 2),
    ]
    for fail in ([("unshare", 0x2_0000), ("unshare", 0x1002_0000)], [("mount", b"none")], [("umount2", bytes(work))]):
        Libc(monkeypatch, *fail)
        with pytest.raises(PermissionError) as caught:
            hiding._enter([str(file)])
        assert (caught.value.errno, caught.value.strerror) == (1, os.strerror(1))


def test_a_program_that_starts(monkeypatch, capsys) -> None:
    """It finds what was hidden; a pattern that is too wide, or a program that is missing, is said."""
    exec_ = mock.Mock(side_effect=FileNotFoundError(2, "No such file"))
    monkeypatch.setattr(hiding.os, "execvpe", exec_)
    monkeypatch.setattr(hiding, "hide", lambda patterns, environment: hiding.Hidden("nothing"))
    environment = {"A": "1"}
    assert hiding.start(("p", "x"), [], environment) == 127
    expected = {"A": "1", "CUDALINK_HIDDEN": hiding.Hidden("nothing").as_json()}
    assert (environment, exec_.mock_calls) == (expected, [mock.call("p", ["p", "x"], expected)])
    said = "cudalink: nothing to hide: no file has such a name\ncudalink: p cannot be run: No such file\n"
    assert capsys.readouterr().err == said

    monkeypatch.setattr(hiding, "hide", mock.Mock(side_effect=hiding.HidingError("too wide")))
    assert (hiding.start(("p",), [], {}), capsys.readouterr().err) == (2, "cudalink: too wide\n")
