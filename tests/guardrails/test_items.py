"""How items and verdicts read, which items are related, and where they come from."""

import pickle
from dataclasses import replace

import pytest

from pytest_cudalink.base.install_command import Command
from pytest_cudalink.guardrails.items import (
    CompatibilityCheckError,
    CompatibilityInsufficientMetadataError,
    DriverCtkCompatibilityError,
    Fact,
    Item,
    Verdict,
    archive_and_linker,
    besides,
    compatible,
    error_of,
    libraries_by_name,
    packaged_with,
    shared_groups,
)
from pytest_cudalink.guardrails.rules import check_pair
from pytest_cudalink.versions import CudaVersion
from tests.guardrails.test_rules import item

RELEASE = CudaVersion(13, 0)


def part(kind: str, name: str, version: CudaVersion | None = RELEASE) -> Item:
    return Item(kind, name, f"/x/{name}", "site-packages", "ctk", version, "cuda.h")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        ("dynamic-libs", "nvrtc", "the nvrtc library is of CUDA 13.0"),
        ("headers", "cudart", "the cudart headers are of CUDA 13.0"),
        ("static-libs", "cudadevrt", "the cudadevrt static library is of CUDA 13.0"),
        ("bitcode-libs", "device", "the device bitcode library is of CUDA 13.0"),
        ("binaries", "nvcc", "the nvcc binary is of CUDA 13.0"),
        ("artifacts", "a.ltoir", "the a.ltoir artifact is of CUDA 13.0"),
    ],
)
def test_items_have_a_noun(kind: str, name: str, sentence: str) -> None:
    """Headers are many, everything else is one."""
    assert part(kind, name).is_of == sentence
    assert part(kind, name).label == sentence.removeprefix("the ").partition(" is ")[0].partition(" are ")[0]


def test_an_item_says_where_its_release_was_read() -> None:
    """With the path and the search that found it; a release that is not known is called so."""
    words = "nvrtc library at /x/nvrtc (found via site-packages)"
    assert str(part("dynamic-libs", "nvrtc")) == f"{words}; CUDA 13.0: cuda.h"
    assert str(part("dynamic-libs", "nvrtc", None)) == f"{words}; CUDA release unknown: cuda.h"
    assert part("dynamic-libs", "nvrtc").wheel == ""
    fact = Fact(RELEASE, "cuda.h")
    assert (fact.value, fact.stated, fact.absent) == (RELEASE, False, False)
    assert fact == Fact(RELEASE, "cuda.h", stated=True, absent=True)  # who says so is no part of what is said


def test_verdicts_without_a_command() -> None:
    """That of a rule that holds shows its items; another one names what else would help, if anything."""
    nvrtc, cudart = part("dynamic-libs", "nvrtc"), part("headers", "cudart")
    verdict = compatible("same-ctk", "both are of CUDA 13.0", nvrtc, cudart)
    assert verdict == Verdict("note", "both are of CUDA 13.0", evidence=(nvrtc, cudart), kind="same-ctk")
    assert verdict.message == "both are of CUDA 13.0"
    assert (verdict.status, verdict.rule, verdict.items) == ("compatible", "same-ctk", (str(nvrtc), str(cudart)))
    alone = Verdict("error", "it does not run", kind="driver")  # `test_error_of_a_verdict` has one with everything
    assert alone.text == "it does not run\n  rule:  driver"
    assert replace(alone, otherwise="buy a driver").text == f"{alone.text}\n  fix:   buy a driver"


@pytest.mark.parametrize(
    ("severity", "rule", "kind"),
    [
        ("unknown", "driver", CompatibilityInsufficientMetadataError),
        ("error", "driver", DriverCtkCompatibilityError),
        ("error", "same-ctk", CompatibilityCheckError),
    ],
)
def test_error_of_a_verdict(severity, rule, kind) -> None:
    """Its class says whose fault it is, its text is the verdict's, and another process gets all of it."""
    verdict = Verdict(severity, "why", Command(("x",)), "wait", evidence=("a", "b"), kind=rule)
    error = pickle.loads(pickle.dumps(error_of(verdict)))
    text = f"why\n  found: a\n  found: b\n  rule:  {rule}\n  fix:   pip install x\n  or:    wait"
    assert (type(error), error.verdict, str(error)) == (kind, verdict, text)


NVRTC, NVJITLINK = ("dynamic-libs", "nvrtc"), ("dynamic-libs", "nvJitLink")


@pytest.mark.parametrize(
    ("a", "b", "related"),
    [
        (NVRTC, ("headers", "nvrtc"), True), (NVRTC, ("headers", "cudart"), False),
        (NVRTC, ("headers", "cccl"), False), (NVRTC, NVJITLINK, False),
        (NVRTC, ("headers", "nvjitlink"), False), (NVRTC, ("dynamic-libs", "cudart"), False),
        (NVRTC, ("binaries", "nvcc"), False), (NVJITLINK, ("headers", "nvjitlink"), True),
        (NVJITLINK, ("dynamic-libs", "cublas"), False),
        (("dynamic-libs", "cudart"), ("headers", "cudart"), True),
        (("dynamic-libs", "cublas"), ("dynamic-libs", "cusolver"), True),
        (("dynamic-libs", "cublasLt"), ("headers", "cublas"), True),
        (("dynamic-libs", "cusolver"), ("headers", "cublas"), False),
        (("dynamic-libs", "npps"), ("headers", "npp"), True),
        (("dynamic-libs", "npps"), ("dynamic-libs", "nppc"), True),
        (("dynamic-libs", "cufftw"), ("headers", "cufft"), True),
        (("dynamic-libs", "nvvm"), ("headers", "nvvm"), True),
        (("dynamic-libs", "curand"), ("dynamic-libs", "cufft"), False),
        (("dynamic-libs", "cupti"), ("headers", "profiler"), True),
        (("dynamic-libs", "cupti"), ("headers", "cupti"), False),
        (("static-libs", "cudart"), ("headers", "cudart"), False),
        (("headers", "cudart"), ("binaries", "nvcc"), False),
        (("headers", "cudart"), ("headers", "nvcc"), False),
        (("static-libs", "cudadevrt"), ("binaries", "nvcc"), False),
        (("binaries", "ptxas"), ("binaries", "nvcc"), False),
        (("headers", "nvvm"), ("binaries", "nvcc"), False),
        (("headers", "cccl"), ("binaries", "nvcc"), False),
        (("headers", "cccl"), ("headers", "cudart"), False),
    ],
)  # fmt: skip
def test_relations(a, b, related: bool) -> None:
    """Who must be of one release with whom; both ways round, and the minor version counts."""
    for first, second in ((a, b), (b, a)):
        older, newer = item(first[1], "13.0", first[0]), item(second[1], "13.2", second[0])
        same = item(second[1], "13.0", second[0])
        assert bool(shared_groups(older, newer)) is related
        assert check_pair(older, newer).status == ("incompatible" if related else "compatible")
        assert check_pair(older, same).status == "compatible"


def test_a_relation_has_a_name_and_a_reason() -> None:
    """That of the table, of a header and its library, or of two items that are the same."""
    nvrtc, header = item("nvrtc", "13.0"), item("nvrtc", "13.2", "headers")
    reason = "a header declares what its own release of the library has"
    assert shared_groups(nvrtc, header) == {"nvrtc headers with their library": reason}
    assert shared_groups(nvrtc, item("cudart", "12.9", "headers")) == {}
    cublas, cusolver = item("cublas", "13.0"), item("cusolver", "13.2")
    reason = "cuSOLVER is linked against the cuBLAS of its own release"
    assert shared_groups(cublas, cusolver) == {"dynamic-link component cublas": reason}
    reason = "with two, it is not known which one is used"
    assert shared_groups(nvrtc, item("nvrtc", "13.2")) == {"one nvrtc library only": reason}
    assert shared_groups(*(item("ptxas", version, "binaries") for version in ("13.0", "13.2"))) == {}


def test_a_relation_that_other_headers_make() -> None:
    """Nvcc and the runtime's headers are independent until CCCL's are there, which compares them."""
    nvcc, headers = item("nvcc", "13.0", "binaries"), item("cudart", "13.2", "headers")
    cccl, other = item("cccl", "13.1", "headers"), item("cccl", "12.9", "headers")
    assert shared_groups(nvcc, headers, [headers, other]) == {}
    unknown = [item(name, None, "headers") for name in ("cccl", "cudart")]
    for pair, there in ((headers, cccl), (headers, unknown[0]), (unknown[1], cccl)):
        assert [*shared_groups(nvcc, pair, [pair, there])] == ["nvcc with CCCL"]
    assert shared_groups(nvcc, cccl, [cccl]) == {}
    assert besides() == {"cccl"}


def test_an_archive_and_its_linker() -> None:
    """In this order whichever comes first, with a reason; kind and name of both count."""
    archive, linker = item("cudadevrt", "13.1", "static-libs"), item("nvJitLink", "13.0")
    for pair in ((archive, linker), (linker, archive)):
        assert archive_and_linker(*pair)[:2] == (archive, linker)
        assert archive_and_linker(*pair)[2].startswith("an older nvJitLink refuses the archive")
    others = (item("cudart", "13.1", "static-libs"), item("cudadevrt", "13.1"), item("nvJitLink", "13.0", "headers"))
    assert [archive_and_linker(other, linker) for other in others] == [None] * 3
    assert [archive_and_linker(archive, other) for other in (archive, item("nvrtc", "13.0"), others[2])] == [None] * 3


@pytest.mark.parametrize(
    ("headers", "nvrtc", "related"),
    [
        ("13.0", "12.9", True), ("13.5", "13.0", False), ("12.9", "13.0", False), (None, "12.9", False),
        ("13.0", None, False),
    ],
)  # fmt: skip
def test_headers_of_a_newer_major(headers, nvrtc, related: bool) -> None:
    """NVRTC compiles the headers of every release of its major, and of older majors."""
    pair = item("cudart", headers, "headers"), item("nvrtc", nvrtc)
    assert bool(archive_and_linker(*pair)) is bool(archive_and_linker(*reversed(pair))) is related


@pytest.mark.parametrize(
    ("kind", "name", "whose"),
    [
        ("dynamic-libs", "cuda", "driver"), ("dynamic-libs", "nvml", "driver"),
        ("dynamic-libs", "nvrtc", "ctk"), ("dynamic-libs", "nccl", "other"), ("headers", "nvrtc", "ctk"),
        ("headers", "nccl", "other"), ("headers", "cuda", "other"), ("binaries", "nvcc", "ctk"),
        *(("binaries", name, "other") for name in ("nsys", "nsight-sys", "ncu", "nsight-compute")),
        ("bitcode-libs", "nvshmem_device", "other"), ("bitcode-libs", "device", "ctk"),
        ("static-libs", "cudadevrt", "ctk"),
    ],
)  # fmt: skip
def test_what_an_item_comes_with(kind: str, name: str, whose: str) -> None:
    """The table knows the driver's and what is outside; of libraries and headers, pathfinder knows the toolkit's."""
    assert packaged_with(kind, name, ["nvrtc"]) == whose


def test_only_the_toolkits_libraries_count_by_name() -> None:
    """Headers of the same name, and libraries that are not the toolkit's, are left out."""
    nvrtc = item("nvrtc", "13.0")
    others = [item("nvrtc", "13.2", "headers"), item("nccl", None, by="other"), item("cuda", None, by="driver")]
    assert libraries_by_name([*others, nvrtc]) == {"nvrtc": nvrtc}
