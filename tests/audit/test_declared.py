"""What files need, compared with the requirements of the wheel: which faults are found, and what is suggested."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from pytest_cudalink.audit import audit
from pytest_cudalink.audit.declared import find_lack, judge_needs, read_requirements, requirement_for
from pytest_cudalink.audit.needs import Need
from pytest_cudalink.cli import main
from pytest_cudalink.compat import exports
from pytest_cudalink.versions import CudaVersion
from tools.make_toolkit_extras import table_of, written


def metadata(*requires: str, extras: tuple[str, ...] = (), name: str = "x-cu12") -> bytes:
    """A METADATA file."""
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1"]
    lines += [f"Provides-Extra: {extra}" for extra in extras] + [f"Requires-Dist: {line}" for line in requires]
    return "\n".join([*lines, "", ""]).encode()


def need(stem: str = "libnvJitLink", major: int = 12, floor: str | None = "12.9", how: str = "symbols", **more) -> Need:
    """A need of one file."""
    release = CudaVersion.parse(floor) if floor else None
    return Need("x.so", stem, major, release, how, f"wants something of CUDA {floor}", **more)


def kinds(
    needs: list[Need], *requires: str, extras: tuple[str, ...] = (), name: str = "x-cu12", **more
) -> list[tuple[str, str]]:
    """Kind and severity of each finding."""
    findings = judge_needs(needs, read_requirements(metadata(*requires, extras=extras, name=name)), **more)
    return [(finding.kind, finding.severity) for finding in findings]


@pytest.mark.parametrize(
    ("requires", "found"),
    [
        ((), ["undeclared"]),
        (("numpy",), ["undeclared"]),
        (("nvidia-nvjitlink-cu12",), ["floor"]),
        (("nvidia-nvjitlink-cu12>=12.8",), ["floor"]),
        (("nvidia-nvjitlink-cu12>=12.9",), []),
        (("NVIDIA_nvjitlink.cu12>=12.9,<13",), []),
        (("nvidia-nvjitlink-cu12==12.8.93",), ["pin"]),
        (("nvidia-nvjitlink-cu12==12.9.86",), []),
        (("nvidia-nvjitlink-cu12<12",), ["pin"]),
        (("nvidia-nvjitlink-cu12>=12.99",), []),  # newer than what is known
        (("nvidia-nvjitlink-cu12>=12.5", "nvidia-nvjitlink-cu12>=12.9"), []),
        (("nvidia-nvjitlink-cu12>=12.9; sys_platform == 'win32'",), ["undeclared"]),
        (("nvidia-nvjitlink-cu12>=12.9; sys_platform == 'linux'",), []),
        (("cuda-toolkit[nvjitlink]==12.9.*",), []),
        (("cuda-toolkit[nvjitlink]==12.6.*",), ["pin"]),
        (("cuda-toolkit[nvjitlink]==12.*",), ["floor"]),
        (("cuda-toolkit[nvjitlink]>=12.9",), ["ceiling"]),  # CUDA 13's brings another package
        (("cuda-toolkit[nvrtc]==12.9.*",), ["undeclared"]),
        (("cuda-toolkit[all]==12.9.*",), []),
        (("cuda-toolkit==12.9.*",), ["undeclared"]),
        (("cuda-toolkit[nvjitlink]==12.*", "nvidia-nvjitlink-cu12>=12.9"), []),
    ],
)
def test_requirements(requires: tuple[str, ...], found: list[str]) -> None:
    """Each fault has one finding; requirements that bring nothing but what does have none."""
    assert kinds([need()], *requires) == [(kind, "error") for kind in found]


@pytest.mark.parametrize(
    ("requires", "found"),
    [
        ("nvidia-nvjitlink>=13.1", ["ceiling"]),
        ("nvidia-nvjitlink>=13.1,<14", []),
        ("nvidia-nvjitlink>=13.1,!=13.2", ["ceiling"]),
        ("nvidia-nvjitlink>=13,<14", ["floor"]),
        ("nvidia-nvjitlink~=13.1", []),
        ("cuda-toolkit[nvjitlink]>=13.1,<14", []),
        ("cuda-toolkit[cufft]==13.2.2", []),  # which requires nvJitLink, too
        ("cuda-toolkit[cufft]>=13.2,<14", ["floor"]),  # 13.2.0 does not
        ("cuda-toolkit[nvjitlink]==13.0.0", ["pin"]),
    ],
)
def test_requirements_of_cuda_13(requires: str, found: list[str]) -> None:
    """A package without the major in its name needs a ceiling."""
    needs = [need(major=13, floor="13.1")]
    assert kinds(needs, requires, name="x") == [(kind, "error") for kind in found]


def test_removed_symbol() -> None:
    """Requirements that allow a release without a function that the file wants."""
    needs = [need("libcufft", 12, "12.0", below=CudaVersion(12, 3))]
    assert kinds(needs, "nvidia-cufft-cu12") == [("ceiling", "error")]
    for release, found in ((CudaVersion(12, 0), []), (CudaVersion(12, 3), [("ceiling", "error")])):
        first = exports.wheel_versions("libcufft", release)[0]
        assert kinds(needs, f"nvidia-cufft-cu12=={first}") == found


def test_extras() -> None:
    """A requirement of an extra counts: a wheel may let the user choose between the system's toolkit and wheels."""
    line = "nvidia-nvjitlink-cu12{}; extra == 'ctk'"
    assert kinds([need()], line.format(">=12.9"), extras=("ctk",)) == []
    assert kinds([need()], line.format(""), extras=("ctk",)) == [("floor", "error")]
    (finding,) = judge_needs([need()], read_requirements(metadata(line.format(""), extras=("ctk",))))
    assert "the requirements of extra ctk allow" in finding.text


@pytest.mark.parametrize(
    ("requires", "found"),
    [
        ("nvidia-cudnn-cu13~=9.0", []),
        ("nvidia-cudnn-cu12", ["undeclared"]),
        ("nvidia-cusolver", []),
        ("nvidia-cusolvermp-cu13", []),  # by two packages
        ("cuda-toolkit[cusolver]>=13,<14", []),
        ("cuda-toolkit[cusolver]==12.*", ["undeclared"]),
        ("nvidia-nvjitlink", ["undeclared"]),
    ],
)
def test_requirements_of_requirements(requires: str, found: list[str]) -> None:
    """A library that an NVIDIA package requires is brought, of whatever version; in an extra, too."""
    needs = [need("libcublas", 13, None, "linked")]
    assert kinds(needs, requires, name="x") == [(kind, "error") for kind in found]
    inside = f"{requires}; extra == 'cuda'"
    assert kinds(needs, inside, extras=("cuda",), name="x") == [(kind, "error") for kind in found]
    through = (f"{requires}; extra == 'cuda'", "x[cuda]; extra == 'All-of_it'")
    assert kinds(needs, *through, extras=("all-of-it",), name="x") == [(kind, "error") for kind in found]


def test_a_floor_holds_for_requirements_of_requirements() -> None:
    """Another package that requires a library without a version allows one that is too old."""
    assert kinds([need()], "nvidia-cusparse-cu12") == [("floor", "error")]
    assert kinds([need()], "nvidia-cusparse-cu12", "nvidia-nvjitlink-cu12>=12.9") == []


def test_what_is_followed_is_said() -> None:
    """Where the requirements of a requirement are not known, the sentence is about the direct ones."""
    for line, said in (("nvidia-cufile-cu12", "cu12:"), ("numpy", "cu12 directly:")):
        (finding,) = judge_needs([need()], read_requirements(metadata(line)))
        assert f"no requirement brings nvidia-nvjitlink-{said} write" in finding.text


def test_severity() -> None:
    """Errors are what makes the wheel fail: linked, demanded, or LTO-IR and an opened linker; the rest are notes."""
    opened = need(floor=None, how="opened")
    assert kinds([opened]) == [("undeclared", "note")]
    assert kinds([need(floor=None, how="opened", demanded=True)]) == [("undeclared", "error")]
    assert kinds([need(how="ltoir")]) == [("undeclared", "note")]
    assert kinds([need(how="ltoir"), opened]) == [("undeclared", "error")]
    assert kinds([need(floor=None, how="linked")]) == [("undeclared", "error")]
    assert kinds([need()], dependent={"x.so"}) == [("undeclared", "note")]
    assert kinds([need()], "nvidia-nvjitlink-cu12", dependent={"x.so"}) == [("floor", "error")]
    assert kinds([need(), need(major=13, floor="13.0")]) == [("undeclared", "note")] * 2
    assert kinds([need(), need(major=13, floor=None, how="opened")], "nvidia-nvjitlink-cu12>=12.9") == []
    assert kinds([need("libcuda", 13, "13.1"), need("libcudnn", 12, None, "linked")]) == []
    assert kinds([need()], name="nvidia-nvjitlink-cu12") == []


@pytest.mark.parametrize(
    ("stem", "major", "floor", "wheel", "requirements"),
    [
        ("libnvJitLink", 12, "12.9", None, ("nvidia-nvjitlink-cu12>=12.9,<13", "cuda-toolkit[nvjitlink]>=12.9,<13")),
        ("libnvJitLink", 13, None, None, ("nvidia-nvjitlink<14", "cuda-toolkit[nvjitlink]>=13.0,<14")),
        ("libcudart", 12, "12.5", "12.5.39", ("nvidia-cuda-runtime-cu12>=12.5,<13", "cuda-toolkit[cudart]>=12.5,<13")),
        ("libcusolver", 13, "13.2", "12.2.0.1", ("nvidia-cusolver>=12.2.0.1,<13", "cuda-toolkit[cusolver]>=13.2,<14")),
        ("libcusparse", 12, "12.1", None, ("nvidia-cusparse-cu12>=12.0.2.55,<13", "cuda-toolkit[cusparse]>=12.1,<13")),
        ("libcuda", 12, "12.4", None, ()),
        ("libcudnn", 12, None, None, ()),
    ],
)
def test_suggestions(
    stem: str, major: int, floor: str | None, wheel: str | None, requirements: tuple[str, ...]
) -> None:
    """The requirement to write, in the numbers of NVIDIA's package and of cuda-toolkit; the audit accepts it."""
    release = CudaVersion.parse(floor) if floor else None
    suggested = requirement_for(stem, major, release, wheel)
    assert suggested == requirements
    for line in suggested[:1]:
        assert kinds([need(stem, major, floor, "symbols", wheel=wheel)], line, name="x") == []


LIBRARIES = [(stem, major) for stem in exports.libraries() for major in exports.distributions(stem)]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_found_exactly_when_an_allowed_version_lacks_the_symbol(data) -> None:
    """For a random symbol and random requirements: a fault exactly if packaging allows a version without the symbol."""
    stem, major = data.draw(st.sampled_from(LIBRARIES))
    releases = exports.releases(stem, major)
    names = sorted({name for release in releases for name in exports.symbols(stem, release)})
    symbol = data.draw(st.sampled_from(names))
    wheels = sorted({v for release in releases for v in exports.wheel_versions(stem, release)}, key=Version)
    clauses = st.tuples(st.sampled_from([">=", "<", "<=", ">", "==", "!="]), st.sampled_from(wheels)).map("".join)
    specifier = ",".join(data.draw(st.lists(clauses, max_size=3)))
    distribution = exports.distributions(stem)[major]

    first: dict[str, CudaVersion] = {}
    for release in releases:
        for version in exports.wheel_versions(stem, release):
            first.setdefault(version, release)
    requirement = Requirement(distribution + specifier)
    lack = find_lack(
        [requirement],
        distribution,
        first,
        floor=exports.since(stem, major, symbol),
        below=exports.until(stem, major, symbol),
        wheel=exports.first_wheel(stem, major, symbol),
    )

    start, end = Version(exports.first_wheel(stem, major, symbol)), exports.until(stem, major, symbol)
    allowed = list(requirement.specifier.filter(wheels, prereleases=True))
    without = [v for v in allowed if Version(v) < start or (end is not None and first[v] >= end)]
    if allowed:
        assert (lack is not None and bool(lack.versions)) == bool(without)
        assert set(lack.versions if lack else ()) <= set(without)


def test_planted_floor(cuda_library, built, make_wheel, capsys) -> None:
    """A wheel whose requirement is one minor too low is found, with the line to write, and the mended one passes."""
    linker = cuda_library("libnvJitLink.so.13", "__nvJitLinkGetErrorLog_13_1")
    library = built("libx.so", {linker: "__nvJitLinkGetErrorLog_13_1"})
    wrong = make_wheel("x_cu13-1-py3-none-any.whl", {"x/libx.so": library}, "nvidia-nvjitlink>=13.0,<14")

    assert main(["audit", str(wrong)]) == 1

    printed = capsys.readouterr().out
    assert (
        "x/libx.so  needs at least libnvJitLink of CUDA 13.1  (wants __nvJitLinkGetErrorLog_13_1 of CUDA 13.1)"
        in printed
    )
    assert "floor: x/libx.so: wants __nvJitLinkGetErrorLog_13_1 of CUDA 13.1, and the requirements allow " in printed
    assert "write 'nvidia-nvjitlink>=13.1,<14' or 'cuda-toolkit[nvjitlink]>=13.1,<14'" in printed
    assert "inlined (note): x/libx.so: wants __nvJitLinkGetErrorLog_13_1" in printed
    assert "define NVJITLINK_NO_INLINE when compiling" in printed
    (floor,) = audit(wrong).errors
    with pytest.raises(AssertionError, match=r"allow nvidia-nvjitlink 13\.0"):
        audit(wrong).check("13")

    right = make_wheel("x_cu13-2-py3-none-any.whl", {"x/libx.so": library}, floor.suggestion[0])
    audit(right).check("13")
    assert main(["audit", str(right)]) == 0
    toolkit = make_wheel("x_cu13-3-py3-none-any.whl", {"x/libx.so": library}, floor.suggestion[1])
    audit(toolkit).check("13")


def test_json(cuda_library, built, make_wheel, capsys) -> None:
    """``--format=json`` has every need with its evidence, and the requirement to write."""
    cudart = cuda_library("libcudart.so.12", "cudaGetDriverEntryPointByVersion")
    library = built("libx.so", {cudart: "cudaGetDriverEntryPointByVersion"})
    assert main(["audit", "--format=json", str(make_wheel("x_cu12-1-py3-none-any.whl", {"libx.so": library}))]) == 1
    (answer,) = json.loads(capsys.readouterr().out)
    (symbols,) = (one for one in answer["needs"] if one["how"] == "symbols")
    assert (symbols["stem"], symbols["major"], symbols["floor"]) == ("libcudart", 12, [12, 5])
    assert answer["suggestions"]["libcudart (CUDA 12)"][0] == "nvidia-cuda-runtime-cu12>=12.5,<13"
    (finding,) = answer["findings"]
    assert (finding["kind"], finding["severity"]) == ("undeclared", "error")
    assert finding["suggestion"] == answer["suggestions"]["libcudart (CUDA 12)"]


def test_no_metadata_no_comparison(cuda_library, built, tmp_path) -> None:
    """Without METADATA there are no requirements to compare with."""
    cudart = cuda_library("libcudart.so.12", "cudaMalloc")
    built("libx.so", {cudart: "cudaMalloc"})
    assert audit(tmp_path / "tree").findings == ()


def test_unknown_symbol(cuda_library, built) -> None:
    """A function that no known release exports is a finding."""
    cufft = cuda_library("libcufft.so.11", "cufftOfTomorrow")
    (finding,) = audit(built("libx.so", {cufft: "cufftOfTomorrow"})).findings
    assert (finding.kind, finding.severity) == ("symbols", "error")
    assert finding.text == "wants cufftOfTomorrow of libcufft, which no known release exports"


def test_name_against_content(cuda_library, built, make_wheel) -> None:
    """A wheel or a folder that is named for one major and links another is a finding."""
    cudart = cuda_library("libcudart.so.13", "cudaMalloc")
    library = built("libx.so", {cudart: "cudaMalloc"})
    for name, inside in (("x_cu12-1", "x.so"), ("x-1+cu121", "x.so"), ("x-1", "cu12/x.so")):
        found = audit(make_wheel(f"{name}-py3-none-any.whl", {inside: library}, "nvidia-cuda-runtime<14"))
        assert [finding.kind for finding in found.errors] == ["majors"]
        assert "says CUDA 12, and it loads with CUDA 13 only" in found.errors[0].text
    assert (
        audit(make_wheel("numba_cuda-12.0-py3-none-any.whl", {"x.so": library}, "nvidia-cuda-runtime<14")).errors == ()
    )


def test_one_library_for_each_major(cuda_library, built, make_wheel) -> None:
    """A wheel with a folder for each major loads with both, and needs the libraries of one of them."""
    twelve = built("a.so", {cuda_library("libcudart.so.12", "cudaMalloc"): "cudaMalloc"})
    thirteen = built("b.so", {cuda_library("libcudart.so.13", "cudaMalloc"): "cudaMalloc"})
    found = audit(make_wheel("x-1-py3-none-any.whl", {"x/cu12/a.so": twelve, "x/cu13/b.so": thirteen}))
    found.check("12", "13")
    assert found.majors == ("12", "13")
    assert [(one.kind, one.severity) for one in found.findings] == [("undeclared", "note")] * 2


def test_bundles(cuda_library, built, make_wheel) -> None:
    """``check(bundles=False)`` fails for a wheel that contains CUDA libraries, and True for one that does not."""
    cudart = cuda_library("libcudart.so.12", "cudaMalloc")
    library = built("libx.so", {cudart: "cudaMalloc"}, "", "-Wl,-rpath,$ORIGIN")
    repaired = audit(make_wheel("x-1-py3-none-any.whl", {"x/libx.so": library, "x/libcudart.so.12": cudart}))
    repaired.check("12", "none")
    repaired.check(bundles=True)
    with pytest.raises(AssertionError, match=r"contains CUDA libraries: x/libcudart\.so\.12"):
        repaired.check(bundles=False)
    plain = audit(make_wheel("y-1-py3-none-any.whl", {"x/libx.so": library}, "nvidia-cuda-runtime-cu12"))
    plain.check(bundles=False)
    with pytest.raises(AssertionError, match="contains no CUDA library"):
        plain.check(bundles=True)


@pytest.mark.parametrize(
    "lines",
    [
        ["Requires-Dist: ???"],
        ["Requires-Dist: a; python_version >= 'x.y.z.'"],
        ["Requires-Dist: a; nonsense == 'b'"],
        [f"Provides-Extra: e{n}" for n in range(5_000)]
        + [f"Requires-Dist: p{n}; extra == 'e{n}'" for n in range(5_000)],
    ],
    ids=["syntax", "version", "variable", "many"],
)
def test_damaged_metadata(lines: list[str]) -> None:
    """Lines that mean nothing do not count, and very many take no time."""
    text = "\n".join(["Name: x-cu12", "Requires-Dist: nvidia-nvjitlink-cu12>=12.9", *lines, "", ""])
    assert judge_needs([need()], read_requirements(text.encode())) == []


def test_table_of_extras() -> None:
    """The maker keeps the requirements on NVIDIA's packages by extra, without markers and without ``all``."""
    text = metadata(
        "nvidia-nvjitlink<14,>=13.2.86; (sys_platform == 'linux') and extra == 'nvjitlink'",
        "nvidia-nvjitlink<14,>=13.2.86; extra == 'all'",
        "numpy; extra == 'nvjitlink'",
        "nvidia-nvjitlink",
    )
    table = table_of(text)
    assert table == {"nvjitlink": ["nvidia-nvjitlink<14,>=13.2.86"]}
    assert written({"13.2.2": table}).splitlines()[-2:] == [
        '[versions."13.2.2"]',
        'nvjitlink = ["nvidia-nvjitlink<14,>=13.2.86"]',
    ]
