"""The maker of the table of exports, on a small package index with made wheels."""

import hashlib
import json
import re
import subprocess
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from packaging.version import Version

from pytest_cudalink.base.compiler import find_compiler
from tools import make_exports, make_requires, package_index
from tools.dynamic_symbols import of_beginning, of_file

needs_gnu_ld = pytest.mark.skipif(
    "ziglang" in find_compiler(),
    reason="needs GNU ld, with which NVIDIA links: zig's linker writes hash tables behind the symbols",
)
SOURCE = "int {0}(void) {{ return 1; }}\n"
#: Put behind each library, so that one which was inflated whole is noticed.
REST = Random(0).randbytes(1 << 20)


class Index:
    """A package index that answers in JSON, with files; `answer` can be replaced by a worse one."""

    def __init__(self) -> None:
        self.projects: dict[str, list[dict]] = {}
        self.files: dict[str, bytes] = {}
        self.ranges = True
        self.failures = 0
        self.sent: dict[str, int] = {}
        index = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, headers, body = index.answer(self.path, self.headers.get("Range"))
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                """Be silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"

    @contextmanager
    def serving(self) -> Iterator["Index"]:
        """Answer until the end of the block."""
        thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield self
        self.server.shutdown()
        self.server.server_close()
        thread.join()

    def answer(self, path: str, wanted: str | None) -> tuple[int, dict[str, str], bytes]:
        if self.failures:
            self.failures -= 1
            return 503, {}, b"later"
        if path.startswith("/simple/"):
            files = self.projects.get(path.split("/")[2])
            if files is None:
                return 404, {}, b"not found"
            kind = "application/vnd.pypi.simple.v1+json"
            return 200, {"Content-Type": kind}, json.dumps({"files": files}).encode()
        name = path.rpartition("/")[2]
        part, headers, status = self.files[name], {}, 200
        if self.ranges and wanted:
            size, (first, _, last) = len(part), wanted.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, size - int(last))
            part, status = part[start : int(last) + 1 if first and last else size], 206
            headers = {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{size}"}
        self.sent[name] = self.sent.get(name, 0) + len(part)
        return status, headers, part

    def add(self, project: str, version: str, content: dict[str, bytes], machine: str = "x86_64") -> dict:
        """Add a wheel; returns its row in the index, which can be changed."""
        tag = "py3-none-any" if project == "cuda-toolkit" else f"py3-none-manylinux2014_{machine}"
        name = f"{project.replace('-', '_')}-{version}-{tag}.whl"
        written = BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            for path, data in content.items():
                archive.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED, compresslevel=1)
        self.files[name] = data = written.getvalue()
        row = {"filename": name, "url": f"../../files/{name}", "size": len(data), "yanked": False}
        row["hashes"] = {"sha256": hashlib.sha256(data).hexdigest()}
        self.projects.setdefault(project, []).append(row)
        return row

    def add_metadata(self, project: str, version: str, *requirements: str) -> dict:
        """Add a wheel that has nothing but requirements."""
        lines = [f"Requires-Dist: {requirement}" for requirement in requirements]
        metadata = "\n".join(["Metadata-Version: 2.1", f"Name: {project}", f"Version: {version}", *lines, ""])
        folder = f"{project.replace('-', '_')}-{version}.dist-info"
        return self.add(project, version, {f"{folder}/METADATA": metadata.encode()})

    def row_of(self, project: str, version: str) -> dict:
        return next(row for row in self.projects[project] if f"-{version}-" in row["filename"])


def library(folder: Path, soname: str, names: list[str], *flags: str, node: str | None = None) -> bytes:
    """A library that exports some functions, with a version node if one is given."""
    source = folder / f"{soname}.c"
    source.write_text("".join(SOURCE.format(name) for name in names), encoding="utf-8")
    out = folder / soname
    command = [*find_compiler(), "-shared", "-fPIC", "-nostdlib", str(source), f"-Wl,-soname,{soname}", "-o", str(out)]
    if node:
        (folder / "versions").write_text(f"{node} {{ global: *; }};\n", encoding="utf-8")
        command.append(f"-Wl,--version-script={folder / 'versions'}")
    subprocess.run([*command, *flags], check=True)
    return out.read_bytes()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> dict[str, bytes]:
    """The libraries of each made wheel of libfoo, by version."""
    folder = tmp_path_factory.mktemp("libraries")
    made = {
        "12.0.1": library(folder, "libfoo.so.12", ["fooOld", "fooPlain"], node="libfoo.so.12"),
        "12.1.5": library(folder, "libfoo.so.12", ["fooPlain", "_ZN3foo3barEv"], node="libfoo.so.12"),
        "13.0.1": library(folder, "libfoo.so.13", ["fooPlain"], "-Wl,--hash-style=sysv"),
        "13.1.2": library(folder, "libfoo.so.13", ["fooPlain", "fooLater"], "-Wl,--hash-style=both"),
        "13.1.7": library(folder, "libfoo.so.13", ["fooPlain", "fooLater", "fooUpdate"], "-Wl,--hash-style=gnu"),
    }
    return {version: data + REST for version, data in made.items()}


@pytest.fixture
def index(libraries, monkeypatch) -> Iterator[Index]:
    """An index with libfoo for 12.0, 12.1, 13.0 and 13.1, whose metapackage of 13.0 requires a range."""
    monkeypatch.setattr(package_index, "BACKOFF", 0.0)
    distributions = {12: "nvidia-foo-cu12", 13: "nvidia-foo"}
    monkeypatch.setattr(make_exports, "LIBRARIES", {"libfoo": make_exports.Library(distributions)})
    made = Index()
    for version, data in libraries.items():
        major = int(version[:2])
        made.add(distributions[major], version, {f"nvidia/foo/lib/libfoo.so.{major}": data, "nvidia/foo/readme": b"hi"})
    made.add("nvidia-foo", "13.2.1rc1", {})
    made.add("nvidia-foo", "13.1.7", {"nvidia/foo/lib/libfoo.so.13": libraries["13.1.2"]}, machine="aarch64")
    for version, requirement in {
        "11.8.0": "nvidia-foo-cu11==11.8.1.*",
        "12.0.0": "nvidia-foo-cu12==12.0.1.*",
        "12.1.0": "nvidia-foo-cu12==12.1.5.*",
        "12.2.0": "nvidia-other-cu12==12.2.1.*",
        "12.3.0": "nvidia-foo-cu12==12.3.1.*",
        "13.0.0": "nvidia-foo>=13.0.1,<14",
        "13.1.0": "nvidia-foo==13.1.2.*",
        "13.1.1": "nvidia-foo==13.1.7.*",
    }.items():
        made.add_metadata("cuda-toolkit", version, f"{requirement}; extra == 'all'")
    with made.serving():
        yield made


@needs_gnu_ld
def test_made_from_wheels(index) -> None:
    """Releases, wheels and changes are found; a range means the wheel of the release; what lacks has a reason."""
    majors = make_exports.make(index.url)["libfoo"]["majors"]
    twelve, thirteen = majors["12"], majors["13"]
    assert twelve["wheels"] == {"12.0": ["12.0.1"], "12.1": ["12.1.5"]}
    assert thirteen["wheels"] == {"13.0": ["13.0.1"], "13.1": ["13.1.2", "13.1.7"]}
    assert twelve["missing"]["12.2"] == "cuda-toolkit 12.2 requires no nvidia-foo-cu12"
    assert twelve["missing"]["12.3"] == "the index has no wheel nvidia-foo-cu12==12.3.1.*"
    assert twelve["missing"]["12.7"] == "the index has no cuda-toolkit 12.7"
    files = [{"file": f"nvidia/foo/lib/{soname}", "soname": soname} for soname in ("libfoo.so.12", "libfoo.so.13")]
    assert twelve["changes"] == [
        {"wheel": "12.0.1", **files[0], "nodes": ["libfoo.so.12"], "added": ["fooOld", "fooPlain"]},
        {"wheel": "12.1.5", "removed": ["fooOld"]},
    ]
    assert thirteen["changes"] == [
        {"wheel": "13.0.1", **files[1], "added": ["fooPlain"]},
        {"wheel": "13.1.2", "added": ["fooLater"]},
        {"wheel": "13.1.7", "added": ["fooUpdate"]},
    ]
    assert thirteen["aarch64"] == [{"wheel": "13.1.7", "removed": ["fooUpdate"]}]
    assert (twelve["unread"], thirteen["unread"], thirteen["unassigned"]) == ({}, {}, [])
    # a part of each wheel was fetched: the end with the directory, and the beginning of the library
    assert all(size < 400_000 for name, size in index.sent.items() if "foo" in name)


def test_wheels_without_toolkit(index, libraries) -> None:
    """A wheel that no toolkit requires belongs to the release before it; after the newest one none is known."""
    content = {"nvidia/foo/lib/libfoo.so.13": libraries["13.1.2"]}
    index.add("nvidia-foo", "13.0.9", content)
    index.add("nvidia-foo", "13.2.1", content)
    index.add("nvidia-foo-cu12", "12.1.9", {"nvidia/foo/lib/libfoo.so.12": libraries["12.1.5"]})
    majors = make_exports.make(index.url)["libfoo"]["majors"]
    assert majors["13"]["wheels"]["13.0"] == ["13.0.1", "13.0.9"]
    assert (majors["13"]["inferred"], majors["13"]["unassigned"]) == (["13.0.9"], ["13.2.1"])
    assert majors["12"]["wheels"]["12.1"] == ["12.1.5", "12.1.9"]


def test_only_new_wheels_are_read(index, libraries, tmp_path) -> None:
    """A second make into the same folder reads the wheels that came since, and writes what a first one would."""
    assert make_exports.main([f"--index={index.url}", f"--out={tmp_path / 'again'}", "--jobs=2"]) == 0
    for machine in ("x86_64", "aarch64"):
        content = {"nvidia/foo/lib/libfoo.so.13": libraries["13.1.2"]}
        index.add("nvidia-foo", "13.2.4", content, machine=machine)
    index.add_metadata("cuda-toolkit", "13.2.0", "nvidia-foo==13.2.4.*; extra == 'all'")
    index.sent.clear()
    assert make_exports.main([f"--index={index.url}", f"--out={tmp_path / 'again'}"]) == 0
    assert {name for name in index.sent if "foo" in name} == {
        f"nvidia_foo-13.2.4-py3-none-manylinux2014_{machine}.whl" for machine in ("x86_64", "aarch64")
    }
    assert make_exports.main([f"--index={index.url}", f"--out={tmp_path / 'first'}"]) == 0
    again, first = ((tmp_path / name / "libfoo.json").read_bytes() for name in ("again", "first"))
    assert again == first
    assert json.loads(first)["majors"]["13"]["changes"][-1] == {"wheel": "13.2.4", "removed": ["fooUpdate"]}


def test_server_without_ranges(index) -> None:
    """Whole files are fetched."""
    right = make_exports.make(index.url)
    index.ranges = False
    assert make_exports.make(index.url) == right


def test_server_that_fails_at_times(index, monkeypatch) -> None:
    """Errors of the server, and answers that break off, are tried again, four times in all; no other answer is."""
    right = make_exports.make(index.url)
    index.failures = 3
    assert make_exports.make(index.url) == right
    pauses: list[float] = []
    monkeypatch.setattr(package_index, "BACKOFF", 1.0)
    monkeypatch.setattr(package_index, "time", SimpleNamespace(sleep=pauses.append))
    index.failures = 4
    with pytest.raises(package_index.PackageIndexError, match=r"/simple/nvidia-foo/ answers 503 Service Unavailable$"):
        package_index.files_of(f"{index.url}/", "nvidia-foo")
    assert (pauses, index.failures) == ([1.0, 2.0, 4.0], 0)
    with pytest.raises(package_index.PackageIndexError, match=r"/simple/nvidia-bar/ answers 404 Not Found$"):
        package_index.files_of(index.url, "nvidia-bar")
    cut = iter([503, 500, 200, 200])
    monkeypatch.setattr(index, "answer", lambda path, wanted: (next(cut), {"Content-Length": "9"}, b"short"))
    with pytest.raises(package_index.PackageIndexError, match=r"cannot be read: IncompleteRead"):
        package_index.files_of(index.url, "nvidia-foo")
    assert pauses == [1.0, 2.0, 4.0] * 2


def test_files_of_an_index(index) -> None:
    """Oldest version first; what the index does not say is not known, and what is no wheel is left out."""
    index.projects["x"] = [
        {"filename": name, "url": f"https://files.example/{name}"}
        for name in ("x-10.0-py3-none-any.whl", "x-9.0.tar.gz", "x-9.0-py3-none-any.whl", "x-1-cp3-9-9-9-9.whl")
    ]
    new, old = ("x-10.0-py3-none-any.whl", "x-9.0-py3-none-any.whl")
    assert package_index.files_of(index.url, "x") == [
        package_index.IndexedFile(name, f"https://files.example/{name}", Version(version), None, None, yanked=False)
        for name, version in ((old, "9.0"), (new, "10.0"))
    ]
    row = index.row_of("nvidia-foo", "13.0.1")
    row["yanked"] = "broken"
    (file,) = (file for file in package_index.files_of(index.url, "nvidia-foo") if file.name == row["filename"])
    assert (file.size, file.sha256, file.yanked) == (row["size"], row["hashes"]["sha256"], True)
    assert file.url == index.url.replace("/simple", f"/files/{row['filename']}")
    assert [file.fits(machine) for machine in ("x86_64", "aarch64")] == [True, False]
    assert not replace(file, name=file.name.replace("manylinux", "win")).fits("x86_64")


NUMBERS = bytes(range(100))
FILE = package_index.IndexedFile(
    "x.whl", "https://x/x.whl", Version("1"), 100, hashlib.sha256(NUMBERS).hexdigest(), yanked=False
)


#: What a server that does not say where a part of a file is answers; ``-`` stands for nothing.
PLACELESS = ("-", "bytes 96-99/*", "bytes */100")


def range_file(
    monkeypatch, *, status: int = 206, place: str = "", file=FILE
) -> tuple[package_index.RangeFile, list[str]]:
    """The numbers up to 100 as a file of an index, and the parts of it that were asked for."""
    asked: list[str] = []
    monkeypatch.setattr(package_index, "_FIRST_CHUNK", 4)
    monkeypatch.setattr(package_index, "_LARGEST_CHUNK", 16)

    def read(url: str, headers: dict[str, str]) -> tuple[SimpleNamespace, bytes]:
        assert (url, headers.pop("Accept-Encoding")) == (FILE.url, "identity")
        asked.append(headers["Range"].removeprefix("bytes="))
        first, _, last = asked[-1].partition("-")
        start, end = (int(first), int(last)) if first else (100 - int(last), 99)
        part = NUMBERS[start : end + 1] if status == 206 else NUMBERS
        content_range = (place or "bytes {0}-{1}/100").format(start, end)
        return SimpleNamespace(status=status, headers={"Content-Range": content_range} if place != "-" else {}), part

    monkeypatch.setattr(package_index, "_read", read)
    return package_index.RangeFile(file), asked


def test_what_is_asked_for_of_a_file(monkeypatch) -> None:
    """The end first; then growing parts of what is read in sequence, and a small one elsewhere."""
    file, asked = range_file(monkeypatch)
    assert (file.readable(), file.seekable(), file.tell()) == (True, True, 0)
    assert (file.seek(-4, 2), file.read(9), asked) == (96, bytes(range(96, 100)), ["-4"])
    assert (file.read(1), file.tell(), file.seek(200), file.read(1)) == (b"", 100, 200, b"")
    file.seek(0)
    assert [b"".join(file.read(4) for _ in range(12))] == [bytes(range(48))]
    assert asked[1:] == ["0-3", "4-11", "12-27", "28-43", "44-59"]
    assert (file.seek(2, 1), file.read(2)) == (50, bytes([50, 51]))
    assert (file.seek(30), file.read(9), file.seek(34), file.read(1)) == (30, bytes(range(30, 34)), 34, b"\x22")
    assert asked[6:] == ["30-33", "34-41"]
    assert file.seek(29) == 29
    assert (file.read(1), asked[8:], file.fetched) == (b"\x1d", ["29-32"], 4 + 4 + 8 + 16 * 3 + 4 + 8 + 4)


def test_a_server_that_sends_the_whole_file(monkeypatch) -> None:
    """It is kept, if its hash is the one of the index; closing it closes what was kept."""
    for sha256 in (FILE.sha256, None):
        file, asked = range_file(monkeypatch, status=200, file=replace(FILE, sha256=sha256))
        file.seek(90)
        assert (file.read(5), file.read(50), asked) == (bytes(range(90, 95)), bytes(range(95, 100)), ["-4"])
        kept = file._whole
        file.close()
        assert (file.closed, kept.closed) == (True, True)
    range_file(monkeypatch)[0].close()
    with pytest.raises(package_index.PackageIndexError, match=r"^x.whl does not have the sha256 .* says, 0$"):
        range_file(monkeypatch, status=200, file=replace(FILE, sha256="0"))


@pytest.mark.parametrize(
    ("place", "size", "at", "said"),
    [
        *((place, 100, 8, "answers 206 without the place of the part; asked for bytes=-4") for place in PLACELESS),
        ("", 101, 8, "has 100 bytes; the index says 101"),
        ("bytes 0-3/100", 100, 8, "answers from byte 0 on; asked for bytes=8-11"),
        ("bytes 4-7/100", None, 0, "answers from byte 4 on; asked for bytes=0-3"),
    ],
)
def test_a_server_that_sends_something_else(place: str, size: int | None, at: int, said: str, monkeypatch) -> None:
    """A part without its place, of another size or from elsewhere is not taken."""

    def read() -> None:
        file, _ = range_file(monkeypatch, place=place, file=replace(FILE, size=size))
        file.seek(at)
        file.read(1)

    with pytest.raises(package_index.PackageIndexError, match=rf"^(https://x/)?x\.whl {re.escape(said)}$"):
        read()


def without_elf(data: bytes) -> bytes:
    """The same wheel with a library of zeros."""
    written = BytesIO()
    with zipfile.ZipFile(BytesIO(data)) as old, zipfile.ZipFile(written, "w") as new:
        for name in old.namelist():
            new.writestr(name, bytes(100_000))
    return written.getvalue()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[: len(data) // 2], "File is not a zip file"),
        (without_elf, "not an ELF library with dynamic symbols"),
        (lambda data: data[:200] + bytes(5000) + data[5200:], "Bad CRC-32 for file 'nvidia/foo/lib/libfoo.so.13'"),
        (lambda data: data.replace(b"libfoo.so.13", b"libbar.so.13"), "the wheel has 0 files libfoo.so"),
    ],
)
def test_damaged_wheel(index, tmp_path, capsys, damage, reason) -> None:
    """A damaged wheel is written down and reported; the others are read."""
    row = index.row_of("nvidia-foo", "13.1.2")
    index.files[row["filename"]] = damaged = damage(index.files[row["filename"]])
    row["size"] = len(damaged)
    assert make_exports.main([f"--index={index.url}", f"--out={tmp_path}"]) == 1
    major = json.loads((tmp_path / "libfoo.json").read_text(encoding="utf-8"))["majors"]["13"]
    assert reason in major["unread"]["13.1.2"]
    assert major["changes"][1] == {"wheel": "13.1.7", "added": ["fooLater", "fooUpdate"]}
    assert f"libfoo of CUDA 13, wheel 13.1.2: {major['unread']['13.1.2']}" in capsys.readouterr().err


def test_an_index_that_does_not_answer(index, monkeypatch) -> None:
    """One that answers HTML is named, and one that is not there: it is asked for JSON, and not without end."""
    monkeypatch.setattr(index, "answer", lambda path, wanted: (200, {"Content-Type": "text/html"}, b"<html>"))
    with pytest.raises(package_index.PackageIndexError, match=r"answers text/html; expected .*json: use an index with"):
        package_index.files_of(index.url, "nvidia-foo")
    with pytest.raises(package_index.PackageIndexError, match="is not an http or https address"):
        package_index.files_of("file:///etc", "x")
    asked = []

    def refuse(request, timeout: float) -> None:
        asked.append((request.full_url, dict(request.header_items()), timeout))
        raise OSError(8, "nothing there")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    words = r"^https://x/y/ cannot be read: \[Errno 8\] nothing there$"
    with pytest.raises(package_index.PackageIndexError, match=words):
        package_index.files_of("https://x", "y")
    assert asked == [("https://x/y/", {"Accept": "application/vnd.pypi.simple.v1+json"}, 60.0)] * 4


def test_default_index(monkeypatch) -> None:
    """The index is that of uv, then pip's, then PyPI."""
    names = ("PIP_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert package_index.default_index() == "https://pypi.org/simple"
    for name in names:
        monkeypatch.setenv(name, f"https://{name}/simple")
        assert package_index.default_index() == f"https://{name}/simple"


@needs_gnu_ld
@pytest.mark.parametrize("style", ["sysv", "gnu", "both"])
def test_hash_styles(tmp_path, style) -> None:
    """Symbols are found through each kind of hash table; a name that does not have its hash is not believed."""
    data = library(
        tmp_path, "liba.so.1", [f"name{n}" for n in range(200)], f"-Wl,--hash-style={style}", node="liba.so.1"
    )
    exported = of_beginning(data, "liba.so.1")
    assert exported == of_file(BytesIO(data))
    assert exported.symbols == {f"name{n}" for n in range(200)}
    assert exported.nodes == ("liba.so.1",)
    assert of_beginning(data.replace(b"name77\0", b"name7X\0"), "liba.so.1") is None
    assert of_beginning(data, "libb.so.1") is None


@pytest.fixture
def default_index(monkeypatch) -> Iterator[Index]:
    """An index on this machine, which is the default one."""
    monkeypatch.setattr(package_index, "BACKOFF", 0.0)
    with Index().serving() as made:
        monkeypatch.setenv("UV_DEFAULT_INDEX", made.url)
        yield made


def test_wheel_by_its_name(default_index) -> None:
    """A wheel of any machine is found by its file name, and an error names the one that the index lacks."""
    for machine in ("aarch64", "sparc"):
        default_index.add("x-cu12", "3.0", {"x_cu12-3.0.dist-info/METADATA": machine.encode()}, machine)
    name = "x_cu12-3.0-py3-none-manylinux2014_sparc.whl"
    assert package_index.metadata_of(package_index.wheel_named(name)) == b"sparc"
    with pytest.raises(
        package_index.PackageIndexError, match=f"^{default_index.url} has no x_cu12-4.0-py3-none-any.whl$"
    ):
        package_index.wheel_named("x_cu12-4.0-py3-none-any.whl")


def test_making_the_table_of_requirements(default_index, tmp_path, monkeypatch, capsys) -> None:
    """The command reads the newest wheel of each package that is not for Windows, yanked or a pre-release."""
    add = partial(default_index.add_metadata, "nvidia-cublas")
    add("13.0", "nvidia-old")
    add("13.1", "Nvidia_B", "nvidia-a>=1", "nvidia-cuda-nvrtc", "numpy", "nvidia-c; extra == 'all'")
    add("13.2rc1", "nvidia-early")
    add("13.2", "nvidia-yanked")["yanked"] = True
    add("13.3", "nvidia-windows")["filename"] = "nvidia_cublas-13.3-py3-none-win_amd64.whl"
    monkeypatch.setattr(make_requires, "packages", lambda: ["nvidia-cublas"])
    monkeypatch.setattr(make_requires, "_TARGET", tmp_path / "requires.toml")
    assert make_requires.main([]) == 0
    assert capsys.readouterr().out.endswith("requires.toml: 1 packages\n")
    assert tomllib.loads((tmp_path / "requires.toml").read_text(encoding="utf-8")) == {
        "nvidia-cublas": ["nvidia-a", "nvidia-b"]
    }
    assert make_requires.main(["--check"]) == 0
    add("13.4", "nvidia-new")
    assert make_requires.main(["--check"]) == 1
    assert "requires.toml: nvidia-cublas requires ['nvidia-new'] by the index" in capsys.readouterr().err


def test_the_table_of_requirements_is_a_made_one() -> None:
    """Its text is what the command writes; packages of every cuda-toolkit are looked at."""
    text = make_requires._TARGET.read_text(encoding="utf-8")
    assert make_requires.written(tomllib.loads(text)) == text
    assert {*tomllib.loads(text), "nvidia-nvjitlink-cu12"} <= set(make_requires.packages())
