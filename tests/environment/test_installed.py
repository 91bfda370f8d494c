"""Where an environment keeps its packages, and what its metadata says: prefixes of empty files; nothing runs."""

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cudalink.audit import AuditError
from pytest_cudalink.compat import exports
from pytest_cudalink.environment import installed
from pytest_cudalink.environment.installed import (
    Installed,
    Place,
    Unreadable,
    asking_in_vain,
    find_place,
    is_gone,
    is_library,
    lost_files,
    read_distribution,
    read_distributions,
    recorded_hashes,
    wheels_in,
)

RUNNING = f"{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES, THREADED = "lib/python3.12/site-packages", "lib/python3.13t/site-packages"
LONG = "a" * 80
SYSTEM = ["Lib/site-packages", "lib/python3.12/site-packages", "lib/python3/dist-packages"]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file below the prefix."""

    def write(path: str, content: str | bytes = "") -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)
        return file

    return write


def read(site: Path, **options: bool) -> tuple[list[Installed], list[Unreadable]]:
    return read_distributions(Place(site, (site,), "3.12"), **options)


def files(site: Path) -> list[str]:
    """The libraries of the only distribution of a folder, below it."""
    ((distribution,), unreadable) = read(site)
    assert unreadable == []
    return [os.path.relpath(file, site) for file in distribution.files]


# -- places


def test_the_place_of_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders of `sys.path`, each once and in its order."""
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
    (tmp_path / "x.zip").touch()
    folders = [str(tmp_path / name) for name in ("b", "a", "b", "x.zip", "missing", LONG * 4)]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *folders])
    expected = Path(sys.prefix), (tmp_path / "b", tmp_path / "a"), RUNNING
    assert find_place() == Place(*expected, windows=False)
    with monkeypatch.context() as patch:
        patch.setattr(installed.sys, "platform", "win32")
        assert find_place() == Place(*expected, windows=True)


@pytest.mark.parametrize(
    ("made", "target", "prefix", "sites", "python"),
    [
        ([f"{PACKAGES}/"], "", "", [PACKAGES], "3.12"),
        ([f"{PACKAGES}/", "bin/python"], "bin/python", "", [PACKAGES], "3.12"),
        (["Lib/site-packages/", "Scripts/python.exe"], "Scripts/python.exe", "", ["Lib/site-packages"], RUNNING),
        (["Lib/site-packages/", "python.exe"], "python.exe", "", ["Lib/site-packages"], RUNNING),
        ([f"{PACKAGES}/"], PACKAGES, "", [PACKAGES], "3.12"),
        ([f"{THREADED}/"], THREADED, "", [THREADED], "3.13"),
        (["v/site-packages/"], "v/site-packages", "v/site-packages", ["v/site-packages"], RUNNING),
        (["v/dist-packages/"], "v/dist-packages", "v/dist-packages", ["v/dist-packages"], RUNNING),
        (["v/x-1.dist-info/"], "v", "v", ["v"], RUNNING),
        (["conda-meta/"], "", "", [], RUNNING),
        (["lib/python3/dist-packages/", "local/lib/python3.11/dist-packages/", f"lib64/{THREADED[4:]}/"], "", "",
         [f"lib64/{THREADED[4:]}", "local/lib/python3.11/dist-packages", "lib/python3/dist-packages"], "3.13"),
        ([f"lib/python{name}/site-packages/" for name in ("3.9", "3.13", "3.10", "3.11")], "", "",
         [f"lib/python{name}/site-packages" for name in ("3.10", "3.11", "3.13", "3.9")], "3.10"),
        (["lib/python3.12/site-packages/", "lib/pythonx/site-packages"], "", "", [PACKAGES], "3.12"),
        ([f"site-packages/{PACKAGES}/"], "site-packages", "site-packages", [f"site-packages/{PACKAGES}"], "3.12"),
    ],
)  # fmt: skip
def test_places(made: list[str], target: str, prefix: str, sites: list[str], python: str, write, tmp_path) -> None:
    """A prefix, its Python or a folder of packages; a name that ends in a slash is a folder."""
    for path in made:
        write(f"{path}.keep" if path.endswith("/") else path)
    windows = any(site.startswith("Lib") for site in sites)
    expected = Place(tmp_path / prefix, tuple(tmp_path / site for site in sites), python, windows=windows)
    assert find_place(tmp_path / target) == expected
    assert expected.conda_meta == (tmp_path / "conda-meta" if made == ["conda-meta/"] else None)


def test_one_folder_of_two_names(write, tmp_path: Path) -> None:
    """Where lib64 is a link to lib, its packages are read once."""
    write("lib/python3.12/site-packages/x")
    (tmp_path / "lib64").symlink_to("lib")
    assert find_place(tmp_path).sites == (tmp_path / "lib/python3.12/site-packages",)


def test_no_place(tmp_path: Path) -> None:
    """The message names what was given, and what is expected."""
    expected = "expected lib/pythonX.Y/site-packages, Lib/site-packages or conda-meta in it"
    give = "give a prefix, its Python or a site-packages folder"
    for path, said in (
        (tmp_path / "x", f": there is no such environment; {give}"),
        (tmp_path, f" is not an environment; {expected}: {give}"),
    ):
        with pytest.raises(AuditError, match=f"^{re.escape(f'{path}{said}')}$"):
            find_place(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("home = {}/bin\ninclude-system-site-packages = true\n", SYSTEM),
        ("# \udcff\n HOME={}/bin \nInclude-System-Site-Packages=TRUE", SYSTEM),
        ("home = {}/bin\ninclude-system-site-packages = false\n", []),
        ("home = {}/bin\n", []), ("include-system-site-packages = true\n", []),
        ("home = {}/bin\nhome =\ninclude-system-site-packages = true\n", []),
    ],
)  # fmt: skip
def test_packages_of_the_system(
    text: str, expected: list[str], write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment may use the packages of its Python, of the same version; never those where we run."""
    for path in ("lib/python3.12/site-packages", "lib/python3.11/site-packages", "lib/python3/dist-packages"):
        write(f"system/{path}/x")
    write("system/Lib/site-packages/x")
    monkeypatch.chdir(tmp_path / "system")
    write("venv/lib/python3.12/site-packages/x")
    write("venv/pyvenv.cfg", text.format(tmp_path / "system"))
    own, *others = find_place(tmp_path / "venv").sites
    assert own == tmp_path / "venv/lib/python3.12/site-packages"
    assert sorted(str(other.relative_to(tmp_path / "system")) for other in others) == expected


# -- metadata


def test_metadata(write, tmp_path: Path) -> None:
    """Name, version, installer, requirements and whether it is editable; of two of a name the first counts."""
    text = "Name: My_Package\nVersion:  1.0 \nRequires-Dist: a\nRequires-Dist: b; extra == 'c'\n\nName: no\n"
    write("one/My_Package-1.0.dist-info/METADATA", text)
    write("one/My_Package-1.0.dist-info/INSTALLER", f" UV{'v' * 50}\n")
    write("one/My_Package-1.0.dist-info/direct_url.json", '{"dir_info": {"editable": true}}')
    write("one/~y_package-1.0.dist-info/METADATA", "Name: left-behind\nVersion: 1\n")
    write("one/notes.txt")
    write("one/x.dist-info.bak/METADATA")
    write("two/my.package-2.dist-info/METADATA", "Name: my.package\nVersion: 2\n")
    write("two/other.dist-info/METADATA", f"Name: o{'x' * 201}\nVersion: {'1' * 300}\n")
    folders = tmp_path / "one", tmp_path / "two"
    distributions, unreadable = read_distributions(Place(tmp_path, folders, "3.12"))
    path = str(tmp_path / "one/My_Package-1.0.dist-info")
    first = Installed("my-package", "1.0", f"uv{'v' * 38}", path, ("a", "b; extra == 'c'"), (), editable=True)
    other = Installed(f"o{'x' * 201}", "1" * 200, "", str(tmp_path / "two/other.dist-info"))
    assert (distributions, unreadable) == ([first, other], [])
    assert str(first) == "my-package 1.0"


@pytest.mark.parametrize(
    ("content", "editable"),
    [
        ('{"dir_info": {"editable": true}}', True),
        *((text, False) for text in ('{"dir_info": {"editable": false}}', '{"dir_info": {}}', '{"dir_info": [1]}')),
        *((text, False) for text in ('{"url": "x"}', '["dir_info"]', "{", "[" * 100_000, '"\udcff"', "", None)),
    ],
)
def test_editable(content: str | None, editable: bool, write, tmp_path: Path) -> None:
    write("x-1.dist-info/METADATA", "Name: x\nVersion: 1\n")
    if content is not None:
        write("x-1.dist-info/direct_url.json", content)
    ((distribution,), _) = read(tmp_path)
    assert distribution.editable is editable


def test_egg_info(write, tmp_path: Path) -> None:
    """Setuptools writes a folder with requires.txt, and distutils wrote a file."""
    write("one-1.egg-info/PKG-INFO", "Name: one\nVersion: 1\n")
    write("one-1.egg-info/requires.txt", "a>=1\n\n[more]\nb\n")
    write("two-2.egg-info", "Name: two\nVersion: 2\nRequires-Dist: c\n")
    write("three-3.egg-info/PKG-INFO", "Name: three\nVersion: 3\nRequires-Dist: d\n")
    write("three-3.egg-info/requires.txt", "e\n")
    write("four-4.egg-info/PKG-INFO", "Name: four\nVersion: 4\n")
    write("five-5.dist-info/METADATA", "Name: five\nVersion: 5\n")
    write("five-5.dist-info/requires.txt", "f\n")
    distributions, unreadable = read(tmp_path)
    assert unreadable == []
    assert [(str(distribution), distribution.requires) for distribution in distributions] == [
        ("five 5", ()), ("four 4", ()), ("one 1", ("a>=1", 'b; extra == "more"')), ("three 3", ("d",)),
        ("two 2", ("c",)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "METADATA is missing; expected a file"),
        ("Version: 1\n", "Name in METADATA is ''; expected letters, digits, '.', '_' and '-'"),
        ("Name: a b\nVersion: 1\n", "Name in METADATA is 'a b'; expected letters, digits, '.', '_' and '-'"),
        (f"Name: {LONG}a!\nVersion: 1\n", f"Name in METADATA is '{LONG}'; expected letters, digits, '.', '_' and '-'"),
        *((f"Name: x\n{v}", "Version in METADATA is missing; expected one such as 1.2.3") for v in ("", "Version:\n")),
    ],
)  # fmt: skip
def test_damaged_metadata(content: str | None, said: str, write, tmp_path: Path) -> None:
    """The folder, the fault and what to do; the other distributions are read."""
    write("x-1.dist-info/RECORD")
    if content is not None:
        write("x-1.dist-info/METADATA", content)
    write("y-1.dist-info/METADATA", "Name: y\nVersion: 1\n")
    distributions, unreadable = read(tmp_path)
    assert [distribution.name for distribution in distributions] == ["y"]
    assert unreadable == [Unreadable(str(tmp_path / "x-1.dist-info"), f"{said}: install the distribution again")]


def test_metadata_that_cannot_be_opened(write, tmp_path: Path) -> None:
    """The system's reason is given; so is that of a folder that cannot be listed."""
    write("x-1.dist-info/METADATA/x")
    write("y-1.dist-info", "Name: y\nVersion: 1\n")
    place = Place(tmp_path, (tmp_path / "missing", tmp_path), "3.12")
    distributions, unreadable = read_distributions(place, files=False)
    assert [(os.path.relpath(unread.path, tmp_path), unread.text) for unread in unreadable] == [
        ("missing", "cannot be listed: No such file or directory"),
        ("x-1.dist-info", "Is a directory: install the distribution again"),
        ("y-1.dist-info", "Not a directory: install the distribution again"),
    ]
    assert distributions == []


def test_metadata_that_is_not_utf_8(write, tmp_path: Path) -> None:
    """The ASCII of it is read, and the first other byte is named."""
    file = write("x-1.dist-info/METADATA", b"Name: x\nVersion: 1\nAuthor: \xe9\n")
    distributions, unreadable = read(tmp_path)
    assert [*map(str, distributions), str(read_distribution(file.parent))] == ["x 1", "x 1"]
    assert unreadable == [Unreadable(str(file), "not UTF-8 (byte 0xe9 at 27): install the distribution again")]


def test_wheels_by_their_names(write, tmp_path: Path) -> None:
    """The names of the folders say name and version; no file is read."""
    for name in ("Nvidia_cuFFT-11.0.dist-info", "~vidia-1.dist-info", "a-1.egg-info", "nodash.dist-info"):
        write(f"{name}/METADATA")
    expected = [("nvidia-cufft", "11.0", "Nvidia_cuFFT-11.0.dist-info"), ("nodash", "", "nodash.dist-info")]
    assert wheels_in(str(tmp_path)) == [Installed(*pair, "", str(tmp_path / folder)) for *pair, folder in expected]
    assert {wheel.site for wheel in wheels_in(str(tmp_path))} == {str(tmp_path)}
    assert wheels_in(str(tmp_path / "missing")) == []


# -- libraries


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("x.so", True), ("x.so.1", True), ("x.so.1.2.3.44", True), ("X.DLL", True), ("x.pyd", True),
        ("a/b.abi3.so", True),
        ("x.so.1.2.3.4.5", False), ("x.so.a", False), ("x.sol", False), ("x.dll.txt", False), ("xso", False),
    ],
)  # fmt: skip
def test_names_of_libraries(name: str, library: bool) -> None:
    assert is_library(name) is library


@pytest.mark.parametrize(
    ("first", "second", "version"),
    [
        ("x/a.py,,9", "x/a.py,,3", "2"), ("x/a.py,,3", "x/a.py,,3", "1"), ("x/gone.py,,3", "x/a.py,,3", "2"),
        ("x/folder.py,,3", "x/a.py,,9", "1"),
        ("x/a.py,,9\nx/b.py,,9", "x/a.py,,9\nx/b.py,,3", "2"),
        ("x/a.py,,3\nx/a.py,9", "x/a.py,,9", "1"),  # these say nothing: rows that are cut, without a size,
        ("x/a.py,,\nx/b.py,,x\n../x/gone.py,,3", "x/a.py,,9", "1"),
        ("x/gone.txt,,3", "x/a.py,,9", "1"),  # of what no program uses,
        ('x/a.py,,3\n"x/b.py,,\0', "x/a.py,,9", "1"),  # and what is not CSV
        ("x/a.py,,9", None, "1"),
    ],
)  # fmt: skip
def test_two_releases_in_one_folder(first: str, second: str | None, version: str, write, tmp_path: Path) -> None:
    """That counts whose RECORD describes more of the files; in another folder, the first does."""
    for name, record in (("s/x-1", first), ("s/x-2" if second else "t/x-2", second or "x/a.py,,3")):
        write(f"{name}.dist-info/METADATA", f"Name: x\nVersion: {name[-1]}\n")
        write(f"{name}.dist-info/RECORD", record)
    for path in ("s/x/a.py", "s/x/b.py", "t/x/a.py", "s/x/folder.py/c"):
        write(path, "abc")
    ((distribution,), _) = read_distributions(Place(tmp_path, (tmp_path / "s", tmp_path / "t"), "3.12"))
    assert distribution.version == version


def test_libraries_of_a_record(write, tmp_path: Path) -> None:
    """Those that are there, each once, by their paths relative to the folder; quotes as in any CSV."""
    rows = [
        "x/a.so,sha256=x,1", '"x/b,c.so.1",,', "x/a.so,,", "../../lib/d.dll,,", "x/missing.so,,", "x/e.py,,",
        "x/f.pyd,,",         "x/nul\0.so,,", "x/\udcff.so,,", "", "x/g.txt,so,",
    ]  # fmt: skip
    write("v/site/x-1.dist-info/METADATA", "Name: x\nVersion: 1\n")
    write("v/site/x-1.dist-info/RECORD", "\n".join(rows))
    for path in ("site/x/a.so", "site/x/b,c.so.1", "../lib/d.dll", "site/x/e.py", "site/x/f.pyd", "site/x/folder.so/x"):
        write(f"v/{path}")
    assert files(tmp_path / "v/site") == ["x/a.so", "x/b,c.so.1", "../../lib/d.dll", "x/f.pyd"]
    ((distribution,), _) = read(tmp_path / "v/site", files=False)
    assert distribution.files == ()


def test_damaged_record(write, tmp_path: Path) -> None:
    """A RECORD that is no CSV is a fault of the distribution; one that is missing is not."""
    write("x-1.dist-info/METADATA", "Name: x\nVersion: 1\n")
    assert files(tmp_path) == []
    write("x-1.dist-info/RECORD", '"' + "x.so" * 50_000)
    _, (fault,) = read(tmp_path)
    assert re.fullmatch(
        r"RECORD is invalid \(.+\); expected lines of PATH,HASH,SIZE: install the distribution again", fault.text
    )


def test_installed_files_of_an_egg(write, tmp_path: Path) -> None:
    """Their paths are relative to the folder of the metadata."""
    for folder in ("site-packages", "plain"):
        write(f"{folder}/x-1.egg-info/PKG-INFO", "Name: x\nVersion: 1\n")
        write(f"{folder}/x-1.egg-info/installed-files.txt", "../x/a.so\n../x/a.py\n")
        write(f"{folder}/x/a.so")
        write(f"{folder}/x/other.so")
        assert files(tmp_path / folder) == ["x/a.so"]


def test_eggs_in_a_source_tree(write, tmp_path: Path) -> None:
    """Metadata that lists nothing is that of ``setup.py develop``, unless it lies where packages are installed."""
    for name in ("source", "site-packages", "dist-packages"):
        write(f"{name}/x.egg-info/PKG-INFO", "Name: x\nVersion: 1\n")
        write(f"{name}/x/a.so")
        assert files(tmp_path / name) == (["x/a.so"] if name == "source" else [])
    write("file/x.egg-info", "Name: x\nVersion: 1\n")
    write("file/x/a.so")
    assert files(tmp_path / "file") == []


def test_linked_folders(write, tmp_path: Path) -> None:
    """The folders that path files name are searched for metadata; comments and code in them do not count."""
    for name in ("one", "two", "three", "four", "five", "six"):
        write(f"{name}/{name}.egg-info/PKG-INFO", f"Name: {name}\nVersion: 1\n")
    lines = ["../one", f"  {tmp_path / 'two'}  ", "", "#../three", "import ../four", "import\t../five", "../s\0ix"]
    lines += ["../missing", "../one", "../important", "../\udcff", LONG * 4]
    write("one/broken.dist-info/RECORD")
    write("important/x.egg-info/PKG-INFO", "Name: important\nVersion: 1\n")
    write("site/x.pth", "\n".join(lines))
    write("site/folder.pth/x")
    for name in ("#../three", "import ../four", "import\t../five"):
        write(f"site/{name}/wrong.egg-info/PKG-INFO", "Name: wrong\nVersion: 1\n")
    distributions, unreadable = read(tmp_path / "site")
    assert [distribution.name for distribution in distributions] == ["one", "two", "important"]
    assert [os.path.relpath(broken.path, tmp_path) for broken in unreadable] == ["one/broken.dist-info"]
    write("site/a.pth", "../important")
    assert [distribution.name for distribution in read(tmp_path / "site")[0]] == ["important", "one", "two"]


def test_source_tree_of_a_path_file(write, tmp_path: Path) -> None:
    """A path file of the RECORD names the tree, or one library; those of others do not count."""
    write("site/x-1.dist-info/METADATA", "Name: x\nVersion: 1\n")
    write("site/x-1.dist-info/RECORD", "_x.pth,,\nx/no.pth,,\n_editable_impl_x.py,,\n")
    write("site/_x.pth", "../tree\n\n../one.so\n../one.txt\n../site-packages\n../tree\n../folder.so\n" + LONG * 4)
    write("site/x/no.pth", "../../other\n")
    write("site/_editable_impl_x.py", f"PATH = '{tmp_path}/other'")
    tree = [f"tree/{folder}{name}.so" for folder in ("", "a/", "b/", "c/", "d/") for name in "abcd"]
    others = ["tree/a.py", "one.txt", "site-packages/a.so", "other/a.so", "site/y/no.so"]
    for path in (*others, *tree[::-1], "one.so", "folder.so/a.so"):
        write(path)
    assert files(tmp_path / "site") == [f"../{path}" for path in (*tree, "one.so", "folder.so/a.so")]


def test_source_tree_of_a_finder(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The finder of an editable install is parsed for absolute paths; a package is its folder."""
    write("site/x-1.dist-info/METADATA", "Name: x\nVersion: 1\n")
    write("site/x-1.dist-info/direct_url.json", json.dumps({"dir_info": {"editable": True}}))
    write(
        "site/x-1.dist-info/RECORD", "__editable___x_finder.py,,\nx/editable.py,,\nother.py,editable,\neditable.txt,,\n"
    )
    folder = str(tmp_path)
    finder = [f"{folder}/a/__init__.py", f"{folder}/b", f"{folder}/c/\\0", "b/c/rel", "/", "/usr", 7, f"{folder}/d.so"]
    write("site/__editable___x_finder.py", "\n".join(f"A = {line!r}" for line in finder).replace("\\\\0", "\\0"))
    for name in ("x/editable.py", "other.py", "editable.txt"):
        write(f"site/{name}", f"A = '{tmp_path}/no'")
    for path in ("a/x.so", "b/x.so", "c/x.so", "no/x.so", "d.so", "cwd/b/c/rel/x.so"):
        write(path)
    monkeypatch.chdir(tmp_path / "cwd")
    assert files(tmp_path / "site") == ["../a/x.so", "../b/x.so", "../d.so"]
    short = write("short.py", "A = '/', '/usr', '/srv/x', '/srv/x/__init__.py', '/__init__.py'")
    assert [*map(str, installed._named_by_finder(short))] == ["/srv/x", "/srv/x"]
    write("site/__editable___x_finder.py", "def (")
    assert files(tmp_path / "site") == []


def test_folders_of_a_source_tree(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hidden ones, environments and caches are no part of the package; a huge tree is read to a bound."""
    write("site/x-1.dist-info/METADATA", "Name: x\nVersion: 1\n")
    write("site/x-1.dist-info/RECORD", "x.pth,,")
    write("site/x.pth", "../tree")
    for name in (".git", "__pycache__", "node_modules", "site-packages", "dist-packages", "venv", "conda", "pkg"):
        write(f"tree/{name}/a.so")
    write("tree/venv/pyvenv.cfg")
    write("tree/conda/conda-meta/x")
    write("tree/pkg/sub/b.so")
    write("tree/a.so")
    assert files(tmp_path / "site") == ["../tree/a.so", "../tree/pkg/a.so", "../tree/pkg/sub/b.so"]
    for most, number in ((12, 3), (11, 2), (10, 1), (9, 1), (8, 0)):
        monkeypatch.setattr(installed, "_MOST_ENTRIES", most)
        assert len(files(tmp_path / "site")) == number, most


def test_hashes_of_a_record(write, tmp_path: Path) -> None:
    """Those of files, not of the metadata, nor of lines without a hash or that are cut; an egg has none."""
    own = "p-1.dist-info/METADATA,sha256=m,1"
    lines = ("p/a.py,sha256=a,1", "p/b.py,,", own, "../bin/t,sha256=t,1", "", "p/d.py,,7", "p/c.py,sha256=c")
    rows = "\n".join(lines)
    folder = write("s/p-1.dist-info/RECORD", rows).parent
    hashes = [*recorded_hashes(Installed("p", "1", "pip", str(folder)))]
    assert hashes == [(f"{tmp_path}/s/p/a.py", "sha256=a"), (f"{tmp_path}/bin/t", "sha256=t")]
    egg = write("s/q-1.egg-info/RECORD", rows).parent
    assert [*recorded_hashes(Installed("q", "1", "pip", str(egg)))] == []


def test_packages_that_ask_for_a_version_in_vain(write, tmp_path: Path) -> None:
    """Those of a site, and of the name space of CUDA; only what asks importlib.metadata, outside of all blocks."""
    ask = "import importlib.metadata\n__version__ = importlib.metadata.version('A_b')\n"
    for path in ("a", "cuda/b", "other/c"):
        write(f"s/{path}/__init__.py", ask)
    write("s/d/__init__.py", "__version__ = other.version('A_b')\n")
    write("s/e/__init__.py", ask.replace("__version__", "    __version__"))
    write("s/f.py", ask)
    place = Place(tmp_path, (tmp_path / "s", tmp_path / "none"), "3.12")
    files = [f"{tmp_path}/s/{path}/__init__.py" for path in ("a", "cuda/b")]
    assert [*asking_in_vain(place, ["x"])] == [(path, "A_b") for path in files]
    assert [*asking_in_vain(place, ["a-b"])] == []


@pytest.mark.parametrize(
    ("mark", "name"), [("__nvJitLinkCreate_13_", "nvJitLink"), ("libnvrtc-builtins.so.13.", "nvrtc")]
)
def test_metadata_of_another_release(write, tmp_path: Path, mark: str, name: str) -> None:
    """Nothing is lost by the RECORD of another release than a library says that it is of."""
    libraries = f"n/lib{name}.so.13", f"old/lib{name}.so.13", "n/libother.so.13"  # an empty one, and another library
    rows = "".join(f"{library},sha256=x,0\n" for library in libraries)
    record = write("s/nvidia_nvjitlink-13.2.51.dist-info/RECORD", f"n/include/x.h,sha256=x,9\n{rows}")
    write(f"s/{libraries[1]}")
    write(f"s/{libraries[2]}", f"\0{mark}0\0")
    package = Installed("nvidia-nvjitlink", "13.2.51", "pip", str(record.parent))
    for release, lost in ((2, [(package, [f"{tmp_path}/s/n/include/x.h"])]), (0, [])):
        path = write(f"s/n/lib{name}.so.13", f"\0{mark}{release}\0")
        exports.release_in.cache_clear()
        assert [*lost_files([package])] == lost, path
    unknown = replace(package, name="x")  # of which no release is known
    assert [package for package, _ in lost_files([unknown])] == [unknown]


def test_files_that_are_lost(write, tmp_path: Path) -> None:
    """The RECORD with the fewest counts; lines without a size or that are cut ask for nothing, nor does an egg."""
    gone = [f"n/include/{letter}.h" for letter in "fbd\0ce"]
    rows = ["n/include/nosize.h,,", "n/include/cut.h", "../x/include/y.h,sha256=x,1", "n/libc.so.1,sha256=x,9000"]
    write("s/n/libc.so.1", Path(sys.executable).read_bytes()[:5000])
    record = write("s/n-1.dist-info/RECORD", "\n".join([*rows, *(f"{path},sha256=x,1" for path in gone)]))
    write("s/n-0.dist-info/RECORD", "\n".join(f"n/bin/a{number},sha256=x,1" for number in range(9)))
    package = Installed("n", "1", "pip", str(record.parent))
    lost = sorted([*gone, "n/libc.so.1"])
    assert [*lost_files([package])] == [(package, [f"{tmp_path}/s/{path}" for path in lost])]
    there = {"whole.h": 4, "cut.h": 3, "other.h": 2, "libstripped.so.1": 1}
    for name, size in there.items():
        write(f"s/t/include/{name}", b"x" * size)
    record = write("s/t-1.dist-info/RECORD", "\n".join(f"t/include/{name},sha256=x,4" for name in there))
    two = Installed("t", "1", "pip", str(record.parent))
    three = Installed("u", "1", "pip", str(write("s/u-1.dist-info/RECORD", "t/include/other.h,sha256=x,2").parent))
    assert [*lost_files([two, three])] == [(two, [f"{tmp_path}/s/t/include/cut.h"])]
    egg = write("s/n-1.egg-info/PKG-INFO").parent
    every = [f"{tmp_path}/s/n-{name}" for name in ("0.dist-info", "1.dist-info", "1.egg-info")]
    assert [is_gone(Installed("n", "1", "pip", path)) for path in every] == [True, False, False]
    assert [*lost_files([Installed("n", "1", "pip", str(egg))])] == []
