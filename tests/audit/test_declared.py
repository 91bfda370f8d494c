"""What files need, compared with the requirements of the wheel: which faults are found, and what is suggested."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from pytest_cudalink.audit import audit
from pytest_cudalink.audit.install_targets import targets_of
from pytest_cudalink.audit.needs import Need
from pytest_cudalink.audit.wheel import declared
from pytest_cudalink.audit.wheel.declared import (
    Declared,
    find_lack,
    judge_needs,
    package_brought,
    read_requirements,
    requirements_for,
)
from pytest_cudalink.cli import main
from pytest_cudalink.compat import exports
from pytest_cudalink.versions import CudaVersion
from tools.make_toolkit_extras import table_of, written


def metadata(*requires: str, extras: tuple[str, ...] = (), name: str = "x-cu12") -> bytes:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1"]
    lines += [f"Provides-Extra: {extra}" for extra in extras] + [f"Requires-Dist: {line}" for line in requires]
    return "\n".join([*lines, "", ""]).encode()


def need(stem: str = "libnvJitLink", major: int = 12, floor: str | None = "12.9", how: str = "symbols", **more) -> Need:
    release = CudaVersion.parse(floor) if floor else None
    return Need("x.so", stem, major, release, how, f"wants something of CUDA {floor}", **more)


def kinds(
    needs: list[Need], *requires: str, extras: tuple[str, ...] = (), name: str = "x-cu12", **more
) -> list[tuple[str, str]]:
    """Kind and severity of each finding."""
    findings = judge_needs(needs, read_requirements(metadata(*requires, extras=extras, name=name)), **more)
    return [(finding.kind, finding.severity) for finding in findings]


@pytest.mark.parametrize(
    ("requires", "expected"),
    [
        ((), ["undeclared"]), (("numpy",), ["undeclared"]), (("nvidia-nvjitlink-cu12",), ["floor"]),
        (("nvidia-nvjitlink-cu12>=12.8",), ["floor"]), (("nvidia-nvjitlink-cu12>=12.9",), []),
        (("NVIDIA_nvjitlink.cu12>=12.9,<13",), []), (("nvidia-nvjitlink-cu12==12.8.93",), ["pin"]),
        (("nvidia-nvjitlink-cu12<12",), ["pin"]),
        (("nvidia-nvjitlink-cu12>=12.5", "nvidia-nvjitlink-cu12>=12.9"), []),
        (("nvidia-nvjitlink-cu12>=12.9; sys_platform == 'win32'",), ["undeclared"]),
        (("cuda-toolkit[nvjitlink]==12.9.*",), []),
        (("cuda-toolkit[nvjitlink]==12.6.*",), ["pin"]),
        (("cuda-toolkit[nvjitlink]==12.*",), ["floor"]),
        (("cuda-toolkit[nvjitlink]>=12.9",), ["ceiling"]),  # CUDA 13's brings another package
        (("cuda-toolkit[all]==12.9.*",), []), (("cuda-toolkit==12.9.*",), ["undeclared"]),
        (("cuda-toolkit[nvjitlink]>=12.9", "nvidia-nvjitlink-cu12>=12.9"), []),
        (("other[nvjitlink]==12.9.*",), ["undeclared"]),
        (("nvidia-nvjitlink-cu12!=12.9.*",), ["pin"]),
        (("nvidia-nvjitlink-cu12==12.8.1000",), ["pin"]),
        (("nvidia-nvjitlink-cu12>=12.99", "cuda-toolkit[nvjitlink]==12.9.*"), ["pin"]),
        # newer than the tables, which know nothing against it
        (("nvidia-nvjitlink-cu12>=12.99",), []),
        (("nvidia-nvjitlink-cu12>=12.99", "nvidia-nvjitlink-cu12<13"), []),
        (("cuda-toolkit[nvjitlink]==12.99.*",), []), (("cuda-toolkit[all]==12.99.*",), []),
        (("cuda-toolkit[nvrtc]==12.99.*",), ["undeclared"]),
        (("cuda-toolkit[nvjitlink]==12.7.*",), ["undeclared"]),  # never published
        (("cuda-toolkit[nvjitlink]==12.9.1.5",), ["undeclared"]),
        (("other[nvjitlink]==12.99.*",), ["undeclared"]),
        (("cuda-toolkit[nvjitlink]==11.*",), ["undeclared"]),
        (("cuda-toolkit[nvjitlink]==12.9.*,<12",), ["undeclared"]),
        (("cuda-toolkit[nvjitlink]!=12.*,!=13.*",), ["undeclared"]),
        (("cuda-toolkit[nvrtc]==12.99.*", "cuda-toolkit[nvjitlink]==12.99.*"), []),
    ],
)  # fmt: skip
def test_requirements(requires: tuple[str, ...], expected: list[str]) -> None:
    """Each fault has one finding; requirements that bring nothing but what does have none."""
    assert kinds([need()], *requires) == [(kind, "error") for kind in expected]


@pytest.mark.parametrize(
    ("requires", "expected"),
    [
        ("nvidia-nvjitlink>=13.1", ["ceiling"]), ("nvidia-nvjitlink>=13.1,<14", []),
        ("nvidia-nvjitlink>=13.1,!=13.2", ["ceiling"]), ("nvidia-nvjitlink>=13,<14", ["floor"]),
        ("cuda-toolkit[nvjitlink]>=13.1,<14", []),
        ("cuda-toolkit[cufft]==13.2.2", []),  # which requires nvJitLink, too
        ("cuda-toolkit[cufft]>=13.2,<14", ["floor"]),  # 13.2.0 does not
        ("cuda-toolkit[nvjitlink]==13.0.0", ["pin"]),
        ("nvidia-nvjitlink>=13.1; nvidia-nvjitlink<14", []),
        ("nvidia-nvjitlink>=13.1; nvidia-nvjitlink>=13.2", ["ceiling"]),
        ("nvidia-nvjitlink>=13.1; cuda-toolkit[nvjitlink]==13.*", []),
    ],
)  # fmt: skip
def test_requirements_of_cuda_13(requires: str, expected: list[str]) -> None:
    """A package without the major in its name needs a ceiling, be it that of another requirement."""
    needs = [need(major=13, floor="13.1")]
    assert kinds(needs, *requires.split("; "), name="x") == [(kind, "error") for kind in expected]


def test_versions_without_a_function() -> None:
    """Where the first wheel of a release lacks it, requirements that allow it are too low; so may later releases."""
    needs = [need("libcusolver", 13, "13.2", wheel="12.2.0.1")]
    first, second = exports.wheel_versions("libcusolver", CudaVersion(13, 2))[:2]
    assert second == "12.2.0.1"
    for version, expected in ((first, [("floor", "error")]), (second, [])):
        assert kinds(needs, f"nvidia-cusolver>={version},<13", name="x") == expected
    needs = [need("libcufft", 12, "12.0", below=CudaVersion(12, 3))]
    assert kinds(needs, "nvidia-cufft-cu12") == [("ceiling", "error")]
    for release, expected in ((CudaVersion(12, 0), []), (CudaVersion(12, 3), [("ceiling", "error")])):
        first = exports.wheel_versions("libcufft", release)[0]
        assert kinds(needs, f"nvidia-cufft-cu12=={first}") == expected


def test_a_version_between_known_ones() -> None:
    """Requirements on an unknown version are sound only if it is newer than all that are known."""
    versions = {"9.0": CudaVersion(12, 0), "10.0": CudaVersion(12, 1)}
    for specifier, sound in (("==9.5", False), ("==10.5", True), (">10.0", True), ("<9", False)):
        assert (find_lack([Requirement(f"x-cu12{specifier}")], "x-cu12", versions) is None) is sound


def test_extras() -> None:
    """A requirement of an extra counts: a wheel may let the user choose between the system's toolkit and wheels."""
    line = "nvidia-nvjitlink-cu12{}; extra == 'ctk'"
    assert kinds([need()], line.format(">=12.9"), extras=("ctk",)) == []
    assert kinds([need()], line.format(""), extras=("ctk",)) == [("floor", "error")]
    (finding,) = judge_needs([need()], read_requirements(metadata(line.format(""), extras=("ctk",))))
    assert "the requirements of extra ctk allow" in finding.what


@pytest.mark.parametrize(
    ("requires", "expected"),
    [
        ("nvidia-cudnn-cu13~=9.0", []), ("nvidia-cudnn-cu12", ["undeclared"]), ("nvidia-cusolver", []),
        ("nvidia-cusolvermp-cu13", []),  # by two packages
        ("cuda-toolkit[cusolver]>=13,<14", []),
        ("cuda-toolkit[cusolver]==12.*", ["undeclared"]),
        ("nvidia-nvjitlink", ["undeclared"]),
    ],
)  # fmt: skip
def test_requirements_of_requirements(requires: str, expected: list[str]) -> None:
    """A library that an NVIDIA package requires is brought, of whatever version; in an extra, too."""
    needs = [need("libcublas", 13, None, "linked")]
    assert kinds(needs, requires, name="x") == [(kind, "error") for kind in expected]
    inside = f"{requires}; extra == 'cuda'"
    assert kinds(needs, inside, extras=("cuda",), name="x") == [(kind, "error") for kind in expected]
    through = (f"{requires}; extra == 'cuda'", "x[cuda]; extra == 'All-of_it'")
    assert kinds(needs, *through, extras=("all-of-it",), name="x") == [(kind, "error") for kind in expected]


def test_a_floor_holds_for_requirements_of_requirements() -> None:
    """Another package that requires a library without a version allows one that is too old."""
    assert kinds([need()], "nvidia-cusparse-cu12") == [("floor", "error")]
    assert kinds([need()], "nvidia-cusparse-cu12", "nvidia-nvjitlink-cu12>=12.9") == []


def test_what_is_followed_is_said() -> None:
    """Where the requirements of a requirement are not known, the sentence is about the direct ones."""
    for line, said in (("nvidia-cufile-cu12", "cu12:"), ("nvidia-cufile-cu12 numpy", "cu12 directly:")):
        (finding,) = judge_needs([need()], read_requirements(metadata(*line.split())))
        assert f"no requirement brings nvidia-nvjitlink-{said} write" in finding.what


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
    assert kinds([need("libcuda", 13, "13.1"), need("libcudnn", 12, None, "linked")]) == [("undeclared", "error")]
    assert kinds([need("libcuda", 13, "13.1"), need()]) == [("undeclared", "error")]
    assert kinds([need(), need("libcudnn", 13, None, "opened")]) == [("undeclared", "error")]
    assert kinds([need()], name="nvidia-nvjitlink-cu12") == []
    elsewhere = replace(need(how="linked", floor=None), path="y.so")
    assert kinds([need(), elsewhere], dependent={"x.so"}) == [("undeclared", "error")]
    assert kinds([opened, replace(opened, demanded=True)]) == [("undeclared", "error")]
    assert kinds([need(how="opened")], "nvidia-nvjitlink-cu12==12.8.93") == [("pin", "note")]
    assert kinds([need(), need(major=13, floor=None, how="opened")]) == [("undeclared", "error")]
    assert kinds([need("libcudnn", 11, None, "linked")]) == []  # a package of CUDA 13 would bring another cuDNN
    packages = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")
    for majors, suggestion in (((12,), packages[:1]), ((13,), packages[1:]), ((12, 13), packages)):
        linked = [need("libcudnn", major, None, "linked") for major in majors]
        (finding,) = judge_needs(linked, read_requirements(metadata()))
        assert (finding.suggestion, finding.place) == (suggestion, "x.so")
    assert finding.what.endswith(f"brings {packages[0]}: write '{packages[0]}' or '{packages[1]}'")
    (finding,) = judge_needs(linked, read_requirements(metadata("numpy")))
    assert (finding.severity, "cu12 directly: write" in finding.what) == ("note", True)
    assert kinds(linked, dependent={"x.so"}) == [("undeclared", "note")]


@pytest.mark.parametrize(
    ("stems", "requires", "extras", "expected"),
    [
        ("libnccl", (), (), [("undeclared", "error")]),
        ("libcudnn libcudnn_ops", ("numpy",), (), [("undeclared", "note")]),
        ("libcudnn", ("nvidia-cudnn-cu12",), (), []),
        ("libcutensorMg", ("cutensor-cu12; extra == 'tensor'",), ("tensor",), []),
        ("libcupti", ("cuda-toolkit[cupti]==13.0.3",), (), []),
        ("libcupti", ("cuda-toolkit[nvtx]==13.0.3",), (), [("undeclared", "error")]),
        ("libcupti", ("other[cupti]==13.0.3",), (), [("undeclared", "note")]),
        ("libnvshmem_host libcudss", ("nvidia-nvshmem-cu13",), (), [("undeclared", "note")]),
        ("libcudart libnccl", ("nvidia-cuda-runtime-cu12<13",), (), [("undeclared", "note")]),
        ("libcuda libnccl", (), (), [("undeclared", "error")]),
        ("libcustatevec", (), (), []),
    ],
)
def test_libraries_without_a_table_of_functions(stems, requires, extras, expected) -> None:
    """NCCL, cuDNN and others have a package, too; one that some of the files do without may be an optional plugin."""
    needs = [
        replace(need(stem, major, None, "linked", library=f"{stem}.so.2"), path=f"{stem}.so")
        for stem in stems.split()
        for major in ((12,) if stem in ("libcudart", "libcuda") else (12, 13))
    ]
    assert kinds(needs, *requires, extras=extras) == expected


@pytest.mark.parametrize(
    ("others", "requires", "expected"),
    [
        ([], (), ["note"]),
        ([need(floor=None, how="linked")], ("nvidia-nvjitlink-cu12",), []),
        ([need(floor=None, how=how, major=major) for how in ("linked", "opened") for major in (12, 13)],
         ("nvidia-nvjitlink-cu12",), ["note"]),
        ([need(floor=None, how="opened")], ("nvidia-nvjitlink-cu12",), []),
        ([need(floor=None, how="opened")], ("nvidia-nvjitlink-cu12==12.8.93",), []),
        ([need(floor=None, how="opened")], (), ["note", "note"]),
        ([need("libcudart", floor=None, how="linked")], ("nvidia-cuda-runtime-cu12",), ["note"]),
    ],
)  # fmt: skip
def test_a_library_of_either_major(others: list[Need], requires: tuple[str, ...], expected: list[str]) -> None:
    """A library that is only opened is not missed where the same one of another major is linked or required."""
    needs = [*others, need(major=13, floor=None, how="opened")]
    assert kinds(needs, *requires) == [("undeclared", severity) for severity in expected]


NVJITLINK = "'nvidia-nvjitlink-cu12>=12.9,<13' or 'cuda-toolkit[nvjitlink]>=12.9,<13'"


@pytest.mark.parametrize(
    ("requires", "said"),
    [
        ("", "no requirement brings nvidia-nvjitlink-cu12"),
        ("nvidia-nvjitlink-cu12", "the requirements allow nvidia-nvjitlink-cu12 12.0.76, 12.0.140, 12.1.55 and more"),
        ("nvidia-nvjitlink-cu12>=12.6.85", "the requirements allow nvidia-nvjitlink-cu12 12.6.85, 12.8.61, 12.8.93"),
        ("nvidia-nvjitlink-cu12==12.8.*", "the requirements allow only nvidia-nvjitlink-cu12 12.8.61, 12.8.93"),
        ("nvidia-nvjitlink-cu12<12", "no version of nvidia-nvjitlink-cu12 that the requirements allow is new enough"),
        ("cuda-toolkit[nvjitlink]>=12.9.2,<13.0.1",
         "the requirements allow cuda-toolkit 13.0.0, which does not bring nvidia-nvjitlink-cu12"),
        ("nvidia-nvjitlink-cu12>=12.8.93; extra == 'b'",
         "the requirements of extras a, b allow nvidia-nvjitlink-cu12 12.8.93"),
    ],
)  # fmt: skip
def test_words(requires: str, said: str) -> None:
    """A finding says which versions the requirements allow, three at most, and the requirements to write."""
    lines = [requires, requires.replace("'b'", "'a'"), "numpy; extra == 'c'"] if "extra" in requires else [requires]
    declared = read_requirements(metadata(*filter(None, lines), extras=("a", "b", "c")))
    (finding,) = judge_needs([need()], declared)
    assert finding.what == f"wants something of CUDA 12.9, and {said}: write {NVJITLINK}"
    assert finding.place == "x.so"


@pytest.mark.parametrize(
    ("needed", "requires", "kind", "said"),
    [
        (need("libcufile", floor=None), "cuda-toolkit[cufile]>=12.6.2,<12.8", "floor",
         "allow cuda-toolkit 12.6.2, which does not bring nvidia-cufile-cu12: "),
        (need(major=13, floor="13.1"), "nvidia-nvjitlink>=13.1", "ceiling", "allow later majors of nvidia-nvjitlink: "),
        (need("libcufft", floor="12.0", below=CudaVersion(12, 3)), "nvidia-cufft-cu12<11.0.13", "ceiling",
         "allow nvidia-cufft-cu12 11.0.11.19, 11.0.12.1, which no longer has it: "),
    ],
)  # fmt: skip
def test_words_of_bounds(needed: Need, requires: str, kind: str, said: str) -> None:
    """The first release is too old, or a later one has another library, or no longer has the function."""
    (finding,) = judge_needs([needed], read_requirements(metadata(requires, name="x")))
    assert finding.kind == kind
    assert f", and the requirements {said}" in finding.what


def test_the_decisive_need() -> None:
    """The finding names the highest floor, of equal ones the symbol, and the first release without some function."""
    low, high = need(floor="12.8"), replace(need(), evidence="wants the newest")
    jitify = replace(need(how="opened"), evidence="opens it", demanded=True)
    for needs in ([low, high, jitify], [jitify, high, low], [high, replace(low, floor=None)]):
        (finding,) = judge_needs(needs, read_requirements(metadata()))
        assert finding.what.startswith("wants the newest, ")
    needs = [need("libcufft", floor="12.0", below=CudaVersion(12, minor)) for minor in (4, 3)]
    (finding,) = judge_needs(needs, read_requirements(metadata()))
    assert finding.suggestion == ("nvidia-cufft-cu12<11.0.11.19", "cuda-toolkit[cufft]>=12.0,<12.3")


# -- reading


def test_read_requirements() -> None:
    """Each requirement counts once, an extra adds those of the extras that it requires, and invalid lines are apart."""
    lines = {
        "b": "b; extra == 'one' or os_name == 'posix'",
        "one": "one; extra == 'one'",
        "two": "two; extra == 'two'",
        "both": "both; extra == 'one' or extra == 'two'",
        "other": "other[two]",
        "all": "x[one, Two, a, q, z, all]; extra == 'all'",
        "undefined": "d; os_name ~= 'x'",
        "invalid": "???",
    }
    declared = read_requirements(metadata(*lines.values(), extras=("all", "one"), name="X"))
    b, single, two, both, other, everything = map(Requirement, [*lines.values()][:-2])
    assert declared == Declared(
        "x", (b, other), {"all": (everything, two, both, single), "one": (single, both)}, ("???",), followed=False
    )
    assert read_requirements(b"") == Declared("", (), {})


def test_requirements_hold_on_a_target() -> None:
    """The markers are those of the target; the default is the newest Python on Linux of x86_64."""
    (aarch64,) = targets_of("x-1-cp312-cp312-manylinux_2_28_aarch64.whl")
    newest = targets_of("")[-1]
    assert (newest.minor, newest.machine) == (max(target.minor for target in targets_of("")), "x86_64")
    text = metadata(
        "old; python_version == '3.12' and platform_machine == 'aarch64'",
        f"new; python_version == '3.{newest.minor}' and platform_machine == 'x86_64' and sys_platform == 'linux'",
    )
    assert [requirement.name for requirement in read_requirements(text).always] == ["new"]
    assert [requirement.name for requirement in read_requirements(text, aarch64).always] == ["old"]


LIBRARIES = [(stem, major) for stem in exports.libraries() for major in exports.distributions(stem)]


@pytest.mark.parametrize(
    ("stem", "major", "floor", "wheel", "suggested"),
    [
        ("libnvJitLink", 12, "12.9", None, "nvidia-nvjitlink-cu12>=12.9,<13 or cuda-toolkit[nvjitlink]>=12.9,<13"),
        ("libnvJitLink", 12, "12.0", None, "nvidia-nvjitlink-cu12<13 or cuda-toolkit[nvjitlink]>=12.0,<13"),
        ("libnvJitLink", 13, None, None, "nvidia-nvjitlink>=13.0,<14 or cuda-toolkit[nvjitlink]>=13.0,<14"),
        ("libnvJitLink", 13, "13.99", None, "nvidia-nvjitlink>=13.99,<14 or cuda-toolkit[nvjitlink]>=13.99,<14"),
        ("libcudart", 12, "12.5", "12.5.39", "nvidia-cuda-runtime-cu12>=12.5,<13 or cuda-toolkit[cudart]>=12.5,<13"),
        ("libcusolver", 13, "13.2", "12.2.0.1", "nvidia-cusolver>=12.2.0.1,<13 or cuda-toolkit[cusolver]>=13.2.1,<14"),
        ("libcusparse", 12, "12.1", None, "nvidia-cusparse-cu12>=12.0.2.55,<13 or cuda-toolkit[cusparse]>=12.1,<13"),
        ("libnvfatbin", 12, None, None, "nvidia-nvfatbin-cu12<13 or cuda-toolkit[nvfatbin]>=12.4,<13"),
        ("libcufile", 12, None, None, "nvidia-cufile-cu12<2 or cuda-toolkit[cufile]>=12.6.3,<13"),
        ("libcuda", 12, "12.4", None, ""),
        ("libcudnn", 12, None, None, ""),
    ],
)
def test_suggestions(stem: str, major: int, floor: str | None, wheel: str | None, suggested: str) -> None:
    """The requirement to write, in the numbers of NVIDIA's package and of cuda-toolkit."""
    answer = requirements_for([need(stem, major, floor, "symbols", wheel=wheel)])
    assert {library: " or ".join(lines) for library, lines in answer.items()} == (
        {f"{stem} (CUDA {major})": suggested} if suggested else {}
    )


def test_the_audit_accepts_its_suggestions() -> None:
    """Whatever function of whatever library a file calls, each suggested requirement has no fault."""
    for stem, major in LIBRARIES:
        names = {name for release in exports.releases(stem, major) for name in exports.symbols(stem, release)}
        spans = {
            (exports.since(stem, major, name), exports.until(stem, major, name), exports.first_wheel(stem, major, name))
            for name in names
        }
        for floor, below, wheel in [(None, None, None), *spans]:
            needs = [need(stem, major, floor and str(floor), "symbols", below=below, wheel=wheel)]
            (finding,) = judge_needs(needs, read_requirements(metadata(name="x")))
            assert len(finding.suggestion) == 2
            for line in finding.suggestion:
                assert kinds(needs, line, name="x") == [], (stem, floor, below, line)


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


@pytest.mark.parametrize(
    ("stem", "major", "brought"),
    [
        ("libcudart", 13, "nvidia-cuda-runtime"),
        ("libnvJitLink", 13, "nvidia-nvjitlink"),  # too old a one is one, too
        ("libcublas", 13, None),
        ("libnvrtc", 13, None),  # of an extra
        ("libnothing", 13, None),
    ],
)
def test_package_brought(stem: str, major: int, brought: str | None) -> None:
    """A package of NVIDIA's that is required whatever is chosen, and is not the audited one."""
    lines = ("nvidia-cuda-runtime>=13.0,<14", "nvidia-nvjitlink==13.0.*", "nvidia-cuda-nvrtc==13.*; extra == 'a'")
    declared = read_requirements(metadata(*lines, extras=("a",)))
    assert package_brought(declared, stem, major) == brought
    own = read_requirements(metadata(*lines, extras=("a",), name=brought or "x"))
    assert package_brought(own, stem, major) is None


def test_planted_floor(cuda_library, built, make_wheel, capsys) -> None:
    """A wheel whose requirement is one minor too low is found, with the line to write, and the mended one passes."""
    linker = cuda_library("libnvJitLink.so.13", "__nvJitLinkGetErrorLog_13_1")
    library = built("libx.so", {linker: "__nvJitLinkGetErrorLog_13_1"})
    wrong = make_wheel("x_cu13-1-py3-none-any.whl", {"x/libx.so": library}, "nvidia-nvjitlink>=13.0,<14")
    assert main(["audit", str(wrong)]) == 1
    printed, wants = capsys.readouterr().out, "wants __nvJitLinkGetErrorLog_13_1 of CUDA 13.1"
    assert f"x/libx.so  needs at least libnvJitLink of CUDA 13.1  ({wants})" in printed
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


@pytest.mark.parametrize(
    "lines",
    [
        ["Requires-Dist: ???"],
        ["Requires-Dist: a; python_version >= 'x.y.z.'"],
        ["Requires-Dist: a; nonsense == 'b'"],
        [f"Requires-Dist: nvidia-nvjitlink-cu12<1; python_version >= '{'9' * 6000}'"],
        [f"Provides-Extra: e{n}" for n in range(2_000)]
        + [f"Requires-Dist: p{n}; extra == 'e{n}'" for n in range(2_000)],
    ],
    ids=["syntax", "version", "variable", "huge", "many"],
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


@pytest.fixture
def toolkits(monkeypatch):
    """A function that replaces the tables of cuda-toolkit's extras and of what packages require."""

    def clear() -> None:
        declared._toolkit_extras.cache_clear()
        declared._extra_of.cache_clear()

    def replaced(versions: dict[str, dict[str, list[str]]], requires: dict[str, list[str]]) -> None:
        tables = {"toolkit_extras.toml": {"versions": versions}, "requires.toml": requires}
        monkeypatch.setattr(declared, "read_table", tables.__getitem__)
        clear()

    yield replaced
    clear()


WHEEL, OTHER = "nvidia-nvjitlink-cu12", "nvidia-nvvm-cu12"


def test_an_extra_that_brings_another_package_too(toolkits) -> None:
    """It is still the one to write, and only the package's bounds say whether it brings an old version."""
    extra = {"linker": [f"{WHEEL}==12.9.86", f"{OTHER}==12.8.93"]}
    toolkits({"12.9.0": extra, "12.9.1": extra}, {})
    answer = requirements_for([need(wheel="12.9.86")])
    assert [lines[1] for lines in answer.values()] == ["cuda-toolkit[linker]>=12.9,<13"]


@pytest.mark.parametrize(
    ("versions", "requires", "expected"),
    [
        ({"12.9.0": {}, "12.9.1": {"nvjitlink": [WHEEL]}}, {}, []),
        ({"12.9.0": {"nvjitlink": [WHEEL]}, "12.9.1": {"nvjitlink": []}}, {}, ["undeclared"]),
        ({"12.9.1": {"nvjitlink": [OTHER]}}, {OTHER: ["a"], "a": [OTHER, WHEEL]}, []),
    ],
)
def test_a_toolkit_later_than_the_table(toolkits, versions, requires, expected) -> None:
    """It brings what the newest known one of its major brings, also by packages that require each other."""
    toolkits(versions, requires)
    assert [kind for kind, _ in kinds([need()], "cuda-toolkit[nvjitlink]==12.99.*")] == expected


@pytest.mark.parametrize(
    ("wheels", "below", "end"),
    [({"12.8": "1.0", "12.9": "2.0"}, None, "3"), ({"12.8": "9.0", "12.9": "10.0"}, "12.8", "9.0")],
)
def test_the_end_of_a_suggestion(monkeypatch, wheels, below, end) -> None:
    """After the newest major of the package, or at its first version without a function, as numbers compare."""
    monkeypatch.setattr(
        exports, "wheel_versions", lambda _, release: (wheels[str(release)],) if str(release) in wheels else ()
    )
    asked = need(floor=None, below=CudaVersion.parse(below) if below else None)
    ((suggestion, _),) = requirements_for([asked]).values()
    assert suggestion.partition("<")[2] == end
