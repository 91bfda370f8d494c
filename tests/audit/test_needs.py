"""What files need of CUDA's libraries: floors from symbols, LTO-IR, and names that are opened at run time."""

import sys
from importlib.metadata import distribution
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_cudalink.audit import audit
from pytest_cudalink.audit.loadable import LoadableLibrary
from pytest_cudalink.audit.needs import Need, has_runtime, needs_of, needs_of_scan
from pytest_cudalink.audit.opened import OpenedLibrary, SourceError, names_in_data, names_in_source, stem_of_name
from pytest_cudalink.audit.scan import Scan
from pytest_cudalink.cli import main
from pytest_cudalink.compat import exports
from pytest_cudalink.versions import CudaVersion, Needs
from tests.stubs.conftest import compile_c

BINDINGS = Path(distribution("cuda-bindings").locate_file("cuda/bindings"))


def summary(needs: tuple[Need, ...]) -> set[tuple[str, int, str, str]]:
    """Stem, major, kind of evidence and floor of each need."""
    return {(need.stem, need.major, need.how, str(need.floor or "")) for need in needs}


def test_the_cuda_runtime_inside() -> None:
    """Some modules of cuda-bindings contain the static runtime."""
    names = {file.name.partition(".")[0] for file in BINDINGS.rglob("*.so") if has_runtime(str(file))}
    assert {name for name in names if "runtime" in name} == names != set()


def test_the_cuda_runtime_that_is_linked(cuda_library, built, tmp_path) -> None:
    """A library that links libcudart calls it; a file that is no library does not."""
    assert has_runtime(str(built("a.so", {cuda_library("libcudart.so.13", "cudaFree", node=None): "cudaFree"})))
    assert not has_runtime(str(built("b.so", {cuda_library("libcuda.so.1", "cuInit", node=None): "cuInit"})))
    two = {
        cuda_library(name, symbol, node=None): symbol
        for name, symbol in (("libcudart.so.13", "cudaFree"), ("libcuda.so.1", "cuInit"))
    }
    assert has_runtime(str(built("c.so", two)))
    (tmp_path / "d.so").write_bytes(b"cuGetExportTable\0cudaErrorInvalidValue\0")
    assert not has_runtime(str(tmp_path / "d.so"))


def test_a_linker_inside(tmp_path) -> None:
    """LTO-IR in a file that contains nvJitLink, as Warp's does, needs no other; one that it opens may get it."""
    image = ",".join(map(str, (Path(__file__).parents[1] / "data/artifacts/12.9/main.ltoir").read_bytes()))

    def how(*words: str) -> list[str]:
        folder = tmp_path / str(len(words))
        folder.mkdir()
        names = "".join(f'const char word{number}[] = "{word}";' for number, word in enumerate(words))
        compile_c(folder / "x.so", f"const unsigned char image[] __attribute__((aligned(8))) = {{{image}}};{names}")
        return [need.how for need in needs_of(folder) if need.stem == "libnvJitLink"]

    assert how() == ["ltoir"]
    assert how("NVJITLINK_TRACE_MESSAGES") == []
    assert how("NVJITLINK_TRACE_MESSAGES", "libnvJitLink.so.12") == ["ltoir", "opened"]


def test_a_table_that_begins_is_no_floor(cuda_library, built, capsys) -> None:
    """What the first known release has may be older: a driver is not said to be of CUDA 12.0 at least."""
    driver = cuda_library("libcuda.so.1", "cuInit", node=None)
    assert main(["audit", str(built("a.so", {driver: "cuInit"}))]) == 0
    assert "at least" not in capsys.readouterr().out


SOURCES = [
    ('import ctypes\nctypes.CDLL("libnvrtc.so.12")', {("libnvrtc.so.12", True)}),
    ('import ctypes\nctypes.cdll.LoadLibrary("libcudart.so.12")', {("libcudart.so.12", True)}),
    ('try:\n    CDLL("libcufile.so.0")\nexcept OSError:\n    pass', {("libcufile.so.0", False)}),
    ('try:\n    CDLL("libcufile.so.0")\nexcept (ImportError, OSError):\n    pass', {("libcufile.so.0", False)}),
    ('try:\n    CDLL("libcufile.so.0")\nexcept:\n    pass', {("libcufile.so.0", False)}),
    ('try:\n    pass\nexcept OSError:\n    CDLL("libcufile.so.0")', {("libcufile.so.0", True)}),
    ('with contextlib.suppress(OSError):\n    CDLL("libcufile.so.0")', {("libcufile.so.0", False)}),
    ('try:\n    load_nvidia_dynamic_lib("nvJitLink")\nexcept ModuleNotFoundError:\n    pass',
     {("libnvJitLink.so", True)}),
    ('pathfinder.load_nvidia_dynamic_lib("nvvm")', {("libnvvm.so", True)}),
    ('CDLL(f"libnvrtc.so.{major}")', {("libnvrtc.so.{}", True)}),
    ('for name in ("libnvrtc.so.13", "libnvrtc.so.12", "see libcudart.so.12"):\n    CDLL(name)',
     {("libnvrtc.so.13", False), ("libnvrtc.so.12", False)}),
    ('WinDLL("nvrtc64_120_0.dll")', {("nvrtc64_120_0.dll", True)}),
    ('try:\n    CDLL("libcufile.so.0")\nexcept KeyError: 0\nexcept OSError: 0', {("libcufile.so.0", False)}),
    ('with lock, contextlib.suppress(KeyError, OSError):\n    CDLL("libcufile.so.0")', {("libcufile.so.0", False)}),
    ('with suppress(KeyError), closing(OSError):\n    CDLL("libcufile.so.0")', {("libcufile.so.0", True)}),
    ('with suppress(OSError):\n    pass\nCDLL("libcufile.so.0")', {("libcufile.so.0", True)}),
    ('f(CDLL("libnvrtc.so.12")), print("libnvrtc.so.13"), CDLL()', {("libnvrtc.so.12", True)}),
    ('CDLL("libnvrtc.so")', {("libnvrtc.so", False)}),
    ('if exists(f"{folder}/libcudart.so.12"):\n    CDLL(f"{folder}/libcudart.so.12")',
     {("{}/libcudart.so.12", False)}),
    (r'WinDLL(r"C:\CUDA\nvrtc64_120_0.dll")', {(r"C:\CUDA\nvrtc64_120_0.dll", False)}),
    ('"libnvrtc.so.12"', set()),
    ('CDLL("libc.so.6")', set()),
]  # fmt: skip


@pytest.mark.parametrize(("source", "names"), SOURCES, ids=range(len(SOURCES)))
def test_names_in_python(source: str, names: set[tuple[str, bool]], tmp_path) -> None:
    """Calls of ctypes and cuda.pathfinder count, and whether a handler expects an absence; sources never run."""
    (tmp_path / "x.py").write_text(f"raise SystemExit\n{source}\n", encoding="utf-8")
    demands = {(need.evidence.split()[1], need.demanded) for need in needs_of(tmp_path)}
    assert demands == names


NAMED = b'import ctypes\nctypes.CDLL("libnvrtc.so.12")\n'


@pytest.mark.parametrize(
    ("source", "severity", "said"),
    [
        (b"type X = Y Z\n" + NAMED, "error", "cannot read it (invalid syntax, line 1)"),
        (b"print 'CDLL'\n", "note", "cannot read it"),
        (b"def f(:\n  load_nvidia_dynamic_lib(name)", "error", "cannot read it (invalid syntax, line 1)"),
        (b"print 'no library'\n", None, ""),
        (b"CDLL(" + b"(" * 100_000 + b")" * 100_000 + b")", "note", "cannot read it"),
        (NAMED + b"x = " + b"-" * 200_000 + b"1", "error", "cannot read it"),
        (NAMED + b"x = '\xff'", "error", "cannot read it (UnicodeDecodeError)"),
        (NAMED + b"#" * (4 << 20), "error", "has more than 4 MiB"),
        (b"#" * (8 << 20) + b"\n" + NAMED, "error", "has more than 4 MiB"),
        (b"#" * ((4 << 20) - 40) + b"\n" + NAMED, "error", "has more than 4 MiB"),
        (b"#" * (8 << 20) + b"\nCDLL(name)", "note", "has more than 4 MiB"),
        (b"#" * (8 << 20), None, ""),
        (b"# coding: punycode\n" + b"a" * 100, "error", "its encoding is 'punycode'; expected utf-8, latin-1 or ascii"),
        (b"\xef\xbb\xbf#!/bin/python\r# -*- coding=UTF_7 -*-\n", "error", "its encoding is 'utf-7'"),
        (b"\n \f# vim: fileencoding=rot13 :\n", "error", "its encoding is 'rot13'"),
        (b"# coding: " + b"a" * 900, "error", f"its encoding is '{'a' * 40}'"),
        (b"x = 1\n# coding: punycode\n", None, ""),
        (b"print load_nvidia_dynamic_lib('cudart'), 'libfoo.so'\n", "error", "cannot read it"),
        (b"print CDLL('cudart64_12.dll')\n", "error", "cannot read it"),
        (b"print CDLL('libcudart.so.12'), 'libfoo.so'\n", "error", "cannot read it"),
    ],
    ids=range(20),
)
def test_unreadable_sources(source: bytes, severity: str | None, said: str) -> None:
    """A source that may open a library, and that cannot be read, is an error if it can be one of CUDA's."""
    if severity is None:
        assert names_in_source(BytesIO(source)) == ()
        return
    with pytest.raises(SourceError) as caught:
        names_in_source(BytesIO(source))
    assert caught.value.certain is (severity == "error")
    assert said in str(caught.value)


def test_how_a_source_is_unreadable() -> None:
    """The message says which Python could not read it, and what helps."""
    with pytest.raises(SourceError) as caught:
        names_in_source(BytesIO(b"type X = Y Z\n" + NAMED))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert str(caught.value) == (
        f"Python {python} cannot read it (invalid syntax, line 1); it opens libraries, and which ones was not read: "
        "audit it with the Python that it is for"
    )
    longest = b"#" * ((4 << 20) - len(NAMED) - 1) + b"\n" + NAMED
    assert names_in_source(BytesIO(longest)) == (OpenedLibrary("libnvrtc.so.12", demanded=True),)


def test_names_in_a_source_that_opens_what_it_computes() -> None:
    """Each constant that is the file name of a library of CUDA counts, in order; names that are too long do not."""
    names = ["other", "libcurand.so.10 is missing", f"{'x' * 115}/libnvrtc.so.9", "libnvrtc.so.13", "libcufft.so.12"]
    source = f"CDLL(name)\nx = 5, b'libnvrtc.so.1', *{names}"
    assert names_in_source(BytesIO(source.encode())) == (
        OpenedLibrary("libcufft.so.12", demanded=False),
        OpenedLibrary("libnvrtc.so.13", demanded=False),
    )
    longest = f"{'x' * 114}/libnvrtc.so.9"
    assert names_in_source(BytesIO(f"CDLL(name)\nx = {longest!r}".encode())) == (OpenedLibrary(longest),)
    assert names_in_source(BytesIO(b"CDLL('libc.so.6')")) == ()
    source = "CDLL('libnvrtc.so.13')\nCDLL('libcufft.so.12')\ntry:\n    CDLL('libnvrtc.so.13')\nexcept OSError: pass"
    assert names_in_source(BytesIO(source.encode())) == (
        OpenedLibrary("libcufft.so.12", demanded=True),
        OpenedLibrary("libnvrtc.so.13", demanded=True),
    )


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("libnvrtc.so.12", "libnvrtc"), ("/opt/cuda/libnvrtc.so", "libnvrtc"), ("libnvrtc.so.%d", "libnvrtc"),
        ("libnvrtc.alt.so.12", "libnvrtc"), ("nvrtc64_120_0.dll", "libnvrtc"),
        ("C:\\cuda\\NVRTC64_120_0.DLL", "libnvrtc"), ("nvrtc64_%d_0.dll", "libnvrtc"),
        ("nvcuda.dll", "libcuda"), ("kernel32.dll", None), ("libnvrtc", None), ("libfoo.so.1", None),
    ],
)  # fmt: skip
def test_names_of_libraries(name: str, stem: str | None) -> None:
    """On Linux and on Windows, with a folder before them and a format in them."""
    assert stem_of_name(name) == stem


def in_data(data: bytes, *ranges: tuple[int, int], **more: bool) -> list[str]:
    """The names that ranges of a file hold; without ranges, all of it."""
    opened = names_in_data(BytesIO(data), ranges or [(0, len(data))], **more)
    assert not any(opening.demanded for opening in opened)
    return [opening.name for opening in opened]


def test_names_that_end_a_string() -> None:
    """They are found in the ranges alone, sorted, where nothing but a folder is before them."""
    data = b"libnvrtc.so.12\0/a/libcufft.so.11\0libfoo.so.1\0mylibcublas.so.12\0libcurand.so.10 \0"
    assert in_data(data) == ["libcufft.so.11", "libnvrtc.so.12"]
    assert in_data(data, (0, 15)) == ["libnvrtc.so.12"]
    assert in_data(data, (15, 19), (5, 0)) == ["libcufft.so.11"]
    assert in_data(b"nvrtc64_120_0.dll\0") == []


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le"])
def test_names_of_dlls(encoding: str) -> None:
    """In strings of one byte or two for each character, wherever they begin."""

    def strings(*texts: str, before: bytes = b"") -> list[str]:
        return in_data(before + "".join(f"{text}\0" for text in texts).encode(encoding), dlls=True)

    names = ["cublas64_13.dll", "nvrtc64_120_0.dll"]
    for padding in (b"", b"x", b"y" * 300, b"z" * 301, b"\0", b"\0\0\0", b"\x00\xd8\x00\xd8"):
        assert strings("\0" + names[1], names[0], "foo.dll", "x nvrtc64_112_0.dll", before=padding) == names
    assert strings(f"C:\\cuda\\{names[1]}", f"./{names[0]}") == names
    assert strings(".dll", f"/{'x' * 30}{names[0]}") == []
    long = "nvJitLink" + "_%d" * 8 + ".dll"
    assert strings(f"\0{long}") == [long]


@pytest.mark.parametrize("coding", ["utf-8", "UTF8", "latin_1", "ISO-8859-1", "us-ascii"])
def test_encodings_of_sources(coding: str, tmp_path) -> None:
    """A source in the encodings that are everywhere is read, and one that begins with a byte order mark."""
    text = f'# coding: {coding}\nCDLL("libnvrtc.so.12")  # é'
    latin = coding not in ("utf-8", "UTF8", "us-ascii")
    (tmp_path / "x.py").write_bytes(text.encode("latin-1" if latin else "utf-8-sig"))
    assert [need.evidence for need in needs_of(tmp_path)] == ["loads libnvrtc.so.12"]


def test_no_codec_of_a_file_is_run(make_wheel, monkeypatch) -> None:
    import codecs

    asked: list[str] = []
    codecs.register(search := asked.append)
    try:
        audited = audit(make_wheel("x-1-py3-none-any.whl", {"x/a.py": b"# coding: hostile\n" + NAMED}))
        audit(make_wheel("y-1-py3-none-any.whl", {"x/a.py": b"\r# coding: hostile\n" + NAMED}))
    finally:
        codecs.unregister(search)
    assert [error.kind for error in audited.errors] == ["unreadable"]
    assert asked == []


# -- what was read is judged, without files


def elf(*needed: str, wants: str = "", library: str = "", weak: str = "", soname: str | None = None) -> LoadableLibrary:
    """A library that needs others, and wants symbols; without `library`, it has no symbol versions."""
    undefined = tuple((symbol, library, "") for symbol in f"{wants} {weak}".split())
    return LoadableLibrary(soname, needed, (), (), undefined, frozenset(), frozenset(), frozenset(weak.split()))


def told(scan: Scan) -> list[tuple[str, int, str, str]]:
    """Kind of evidence, major, floor and evidence of each need."""
    return [(need.how, need.major, str(need.floor or ""), need.evidence) for need in needs_of_scan(scan)]


CUDART, CUDA = ("libcudart.so.12",), ("libcuda.so.1",)
LINKS_12, LINKS_CUDA = ("linked", 12, "", "needs libcudart.so.12"), ("linked", 12, "", "needs libcuda.so.1")


@pytest.mark.parametrize(
    ("name", "library", "expected"),
    [
        ("a.so", elf("libc.so.6", "libfoo.so.1"), []), ("a.so", elf(*CUDART), [LINKS_12]),
        ("x_cu12/a.so", elf("libcudart.so.13"), [("linked", 13, "", "needs libcudart.so.13")]),
        ("x_cu12/a.so", elf("libcurand.so.10"), [("linked", 12, "", "needs libcurand.so.10")]),
        ("a.so", elf("libcupti.so.12", wants="cuptiSubscribe", library="libcupti.so.12"),
         [("linked", 12, "", "needs libcupti.so.12")]),
        ("a.so", elf("libcudart.so.11.0", wants="cudaMalloc", library="libcudart.so.11.0"),
         [("linked", 11, "", "needs libcudart.so.11.0")]),
        ("a.so", elf(*CUDART, wants="cudaMalloc cudaFree", library="libcudart.so.12"),
         [LINKS_12, ("symbols", 12, "12.0", "wants cudaFree, cudaMalloc of CUDA 12.0")]),
        ("a.so", elf(*CUDART, wants="cudaMalloc", library="libcublas.so.12"), [LINKS_12]),
        ("a.so", elf(*CUDART, weak="cudaMalloc", library="libcudart.so.12"), [LINKS_12]),
        ("a.so", elf(*CUDART, wants="cudaMalloc printf", weak="cudaGetDriverEntryPointByVersion"),
         [LINKS_12, ("symbols", 12, "12.0", "wants cudaMalloc of CUDA 12.0")]),
        ("a.so", elf("libcufft.so.11", wants="cufftA cufftB", library="libcufft.so.11"),
         [("linked", 12, "", "needs libcufft.so.11"), ("symbols", 12, "", "wants cufftA, cufftB")]),
        ("a.so", elf("libnvJitLink.so.13", wants="__nvJitLinkComplete_12_0", library="libnvJitLink.so.13"),
         [("linked", 13, "", "needs libnvJitLink.so.13"), ("symbols", 13, "", "wants __nvJitLinkComplete_12_0")]),
        ("a.so", elf(*CUDART, wants="cudaMalloc cudaGetDriverEntryPointByVersion", library="libcudart.so.12"),
         [LINKS_12, ("symbols", 12, "12.5", "wants cudaGetDriverEntryPointByVersion of CUDA 12.5")]),
        (
            "a.so",
            elf("libnvJitLink.so.13", wants="__nvJitLinkComplete_13_88", library="libnvJitLink.so.13"),
            [
                ("linked", 13, "", "needs libnvJitLink.so.13"),
                ("symbols", 13, "13.88", "wants __nvJitLinkComplete_13_88 of CUDA 13.88"),
            ],
        ),
        ("a.so", elf(*CUDA), [LINKS_CUDA]),
        ("a.so", elf(*CUDA, wants="cuCoredumpGetAttribute"),
         [LINKS_CUDA, ("symbols", 12, "12.1", "wants cuCoredumpGetAttribute of CUDA 12.1")]),
        ("a.so", elf(*CUDA, wants="cuInit"), [LINKS_CUDA, ("symbols", 12, "", "wants cuInit of CUDA 12.0 or older")]),
        ("a.so", elf(*CUDA, wants="cuOfTomorrow"), [LINKS_CUDA, ("symbols", 12, "", "wants cuOfTomorrow")]),
        (
            "a.so",
            elf(*CUDA, wants="cuInit cuDevSmResourceSplit cuOfTomorrow cuCoredumpGetAttribute"),
            [
                ("linked", 13, "", "needs libcuda.so.1"),
                ("symbols", 13, "13.1", "wants cuDevSmResourceSplit of CUDA 13.1"),
            ],
        ),
    ],
)  # fmt: skip
def test_what_a_library_links(name: str, library: LoadableLibrary, expected: list) -> None:
    """A need for each library of CUDA, of the majors that fit, and one of a release where the symbols say so."""
    scan = Scan("", elves={name: library})
    assert told(scan) == expected
    linked = [need for need in needs_of_scan(scan) if need.how == "linked"]
    assert {need.library for need in linked} <= {*library.needed}
    assert all(need == Need(*map(need.__getattribute__, need.__match_args__[:-1])) for need in linked)
    assert {need.stem for need in needs_of_scan(scan)} <= {library.needed[-1].partition(".so")[0]}


def test_which_symbols_count() -> None:
    """Those that no release has are named, and inlined names; the first removal counts, and the newest wheel."""
    needs = needs_of_scan(Scan("", elves={"a.so": elf(*CUDA, wants="cuInit cuOfTomorrow printf cudaMalloc")}))
    assert [need.unknown for need in needs] == [(), ("cuOfTomorrow",)]
    names = "cufftOfTomorrow _ZN5cufft1fEv ?cufft cufftExecC2C"  # the table leaves names of C++ out
    unknown = elf("libcufft.so.11", wants=names, library="libcufft.so.11")
    needs = needs_of_scan(Scan("", elves={"a.so": unknown}))
    assert [need.unknown for need in needs] == [(), ("cufftOfTomorrow",)]
    names = "__nvJitLinkComplete_13_88 __nvJitLinkGetErrorLog_13_1 __nvJitLinkComplete_13_0 nvJitLinkVersion"
    inlined = elf("libnvJitLink.so.13", wants=names, library="libnvJitLink.so.13")
    needs = needs_of_scan(Scan("", elves={"a.so": inlined}))
    assert [need.inlined for need in needs] == [(), ("__nvJitLinkComplete_13_88", "__nvJitLinkGetErrorLog_13_1")]
    gone = elf("libcufft.so.11", wants="cufftEnterCS cufftXtSetDistribution", library="libcufft.so.11")
    assert [need.below for need in needs_of_scan(Scan("", elves={"a.so": gone}))] == [None, (12, 3)]
    newest = elf(
        "libcusolver.so.12",
        wants="cusolverDnXsygvd cusolverDnXpolar_bufferSize cusolverDnCreate",
        library="libcusolver.so.12",
    )
    linked, symbols = needs_of_scan(Scan("", elves={"a.so": newest}))
    assert (symbols.floor, symbols.wheel, linked.demanded, symbols.demanded) == ((13, 2), "12.2.0.1", False, False)


def test_the_newest_of_several_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = {"cusolverDnXpolar_bufferSize": "12.10.0", "cusolverDnXpolar": "12.9.0"}
    monkeypatch.setattr(exports, "first_wheel", lambda _stem, _major, symbol: wheels[symbol])
    library = elf("libcusolver.so.12", wants=" ".join(wheels), library="libcusolver.so.12")
    _, symbols = needs_of_scan(Scan("", elves={"a.so": library}))
    assert symbols.wheel == "12.10.0"


def test_several_libraries() -> None:
    """Each is needed of its own major, whatever the folder says; not one of the wheel, by its file name or SONAME."""
    thirteen = ("linked", 13, "", "needs libcublas.so.13")
    assert told(Scan("", elves={"cu12/a.so": elf(*CUDART, "libcublas.so.13")})) == [LINKS_12, thirteen]
    inside = {"lib/libcudart.so.12": elf(), "lib/nvrtc": elf(soname="libnvrtc.so.12")}
    assert told(Scan("", elves={"a.so": elf(*CUDART, "libnvrtc.so.12", *CUDA), **inside})) == [LINKS_CUDA]


def test_a_library_without_symbol_versions() -> None:
    """A symbol of no library belongs to the library whose functions have its form, or that is known to export it."""
    rows = told(Scan("", elves={"a.so": elf("libnvrtc.so.12", wants="nvrtcOfTomorrow nvrtcVersion cudaMalloc printf")}))
    assert rows[1:] == [("symbols", 12, "12.0", "wants nvrtcVersion of CUDA 12.0")]
    assert told(Scan("", elves={"a.so": elf("libcupti.so.12", wants="cuptiSubscribe")})) == [
        ("linked", 12, "", "needs libcupti.so.12")
    ]
    newer = elf("libcusolver.so.12", wants="cusolverDnXpolar_bufferSize")  # in CUDA 13 alone
    assert told(Scan("", elves={"a.so": newer}))[1][1:3] == (13, "13.2")
    fatbin = elf("libnvfatbin.so.12", wants="nvFatbinCreate cudaMalloc")
    assert told(Scan("", elves={"a.so": fatbin}))[1][3].startswith("wants nvFatbinCreate of CUDA 12.")


def test_each_file_costs_something() -> None:
    spent: list[int] = []
    opened = dict.fromkeys("abc", (OpenedLibrary("libnvrtc.so.12", demanded=True),))
    needs_of_scan(Scan("", opened=opened, budget=SimpleNamespace(spend=lambda: spent.append(1))))
    assert len(spent) == 3


@pytest.mark.parametrize(
    ("name", "opened", "expected"),
    [
        ("a.py", OpenedLibrary("libnvrtc.so.12", False), [("opened", 12, "", "names libnvrtc.so.12")]),
        ("a.py", OpenedLibrary("libnvrtc.so.12", True), [("opened", 12, "", "loads libnvrtc.so.12")]),
        ("x_cu13/a.py", OpenedLibrary("libnvrtc.so.12", True), [("opened", 12, "", "loads libnvrtc.so.12")]),
        ("x_cu13/a.py", OpenedLibrary("libcurand.so.10", True), [("opened", 13, "", "loads libcurand.so.10")]),
        ("x_cu13/a.py", OpenedLibrary("libnvrtc.so.{}", True), [("opened", 13, "", "loads libnvrtc.so.{}")]),
        ("a.py", OpenedLibrary("libcuda.so.1", False), [("opened", 12, "", "names libcuda.so.1")]),
        ("a.py", OpenedLibrary("libfoo.so.1", True), []),
        ("x_cu13/a.py", OpenedLibrary("lib/libnvrtc.so.12", True), [("opened", 12, "", "loads lib/libnvrtc.so.12")]),
        ("a.py", OpenedLibrary(r"C:\CUDA\nvrtc64_120_0.dll", True),
         [("opened", 12, "", r"loads C:\CUDA\nvrtc64_120_0.dll")]),
        ("a.so", OpenedLibrary("libcudart.so.12", True), [LINKS_12]),
        ("a.so", OpenedLibrary("libcublas.so.12", True), [LINKS_12]),
    ],
)  # fmt: skip
def test_what_a_file_opens(name: str, opened: OpenedLibrary, expected: list) -> None:
    """A need for each major that fits; what a file links, or the wheel has, it need not open."""
    elves = {"a.so": elf(*CUDART), "libcublas.so.12": elf()} if name == "a.so" else {}
    scan = Scan("", elves=elves, opened={name: (opened,)})
    assert told(scan) == expected
    assert all(need.demanded == (need.how == "opened" and opened.demanded) for need in needs_of_scan(scan))
    assert all(need.library == opened.name for need in needs_of_scan(scan) if need.how == "opened")


def test_what_device_code_needs() -> None:
    """LTO-IR needs the nvJitLink of its compiler unless the wheel has one, and jitify that of its build."""
    first, later = (Needs(CudaVersion(12, minor)) for minor in (0, 9))
    scan = Scan("", ltoir={"a": first, "b": later}, elves={"c": elf()}, jitify={"c": CudaVersion(13, 0)})
    jitify = "opens libnvJitLink through jitify, which refuses one older than its build; built with CUDA 13.0"
    assert told(scan) == [
        ("opened", 13, "13.0", jitify),
        ("ltoir", 12, "12.0", "has LTO-IR of CUDA 12.0 or older"),
        ("ltoir", 12, "12.9", "has LTO-IR of CUDA 12.9"),
    ]
    assert {need.stem for need in needs_of_scan(scan)} == {"libnvJitLink"}
    scan.elves["libnvJitLink.so.12"] = elf()
    assert [how for how, *_ in told(scan)] == ["opened"]
