"""Why code was refused: every rule has its reason, and every change that it names leaves nothing to explain."""

import re
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_cudalink.artifacts import read_words
from pytest_cudalink.base.finding import Finding
from pytest_cudalink.base.install_command import install_command
from pytest_cudalink.compat.atlas import load
from pytest_cudalink.compat.releases import NVVM_IR, PTX_ISA
from pytest_cudalink.linker import causes
from pytest_cudalink.linker.causes import Refusal, explain
from pytest_cudalink.linker.errors import LinkError, VersionSkewError
from pytest_cudalink.probes import FIRST_USABLE_NVJITLINK
from pytest_cudalink.report.records import CauseRecord
from pytest_cudalink.report.wording import cause_of, cause_record
from pytest_cudalink.versions import CudaVersion

PIP = install_command("x").removesuffix(" x")
TILEIRAS_13_3 = f"compile it with tileiras, and load the cubin: {PIP} 'cuda-toolkit[nvcc,nvvm,tileiras]==13.3.*'"
FOR_90 = [
    "compile with -arch=sm_90 for this device",
    "compile with -arch=compute_90 or lower to PTX, which runs on this device and on newer ones",
]
V12_2, V12_9, V13_0, V13_5 = (CudaVersion.parse(text) for text in ("12.2", "12.9", "13.0", "13.5"))


def words(kind: str, made: CudaVersion, arch: str = "sm_90") -> str:
    """How an emulated driver describes code of a release."""
    table = {"ptx": PTX_ISA, "ltoir": NVVM_IR}.get(kind)
    if table is None:
        return f"cubin {arch} {made} {'linked' if kind == 'linked-cubin' else 'relocatable'}"
    number = ".".join(map(str, table[made]))
    return f"{kind} {arch} {made if kind == 'ptx' else '-'} {number}"


def refusal(*images: str, code: int = 209, call: str = "cuModuleLoadData", **changes: object) -> Refusal:
    """A refusal by a driver of CUDA 12.9 with a device of sm_90."""
    given = Refusal(call, code, read_words(images), "driver", V12_9, loads=not call.startswith("cuLink"), arch="sm_90")
    return replace(given, **changes)


NEWER_PTX = "a driver of CUDA 12.9 reads PTX up to ISA 8.8; CUDA 13.0 wrote 9.0"
NO_LTOIR = "no driver links LTO-IR: nvJitLink links it, and the driver loads the result"
LINK_12_9 = f"link it with nvJitLink 12.9, and load the result: {PIP} 'nvidia-nvjitlink-cu12==12.9.*'"
LIBRARY = ["library", "object", "fatbin", words("cubin", V12_2), words("cubin", V13_0)]


def of_nvjitlink(*images: str, code: int = 6, **changes: object) -> Refusal:
    """A refusal by nvJitLink 13.0."""
    return replace(Refusal("nvJitLinkAddData", code, read_words(images), "nvjitlink", V13_0), **changes)


def recorded(cause: Finding) -> CauseRecord:
    """What a record has of a cause, which is all of it."""
    record = cause_record(cause)
    assert cause_of(record) == cause
    return record


def needs(driver: str) -> str:
    return f"require a driver for CUDA {driver}"


def newer_nvjitlink(version: str) -> str:
    return f"take a newer nvJitLink: {PIP} 'nvidia-nvjitlink{version}'"


def nvrtc(release: str) -> str:
    return f"compile with CUDA {release}: {PIP} 'cuda-toolkit[nvrtc]=={release}.*'"


def can_link(words: str) -> str:
    return f"see what else works: cudalink can-link {words}"


NEEDS_13_0, NEEDS_13_3 = needs("13.0 (580.65.06) or newer"), needs("13.3 (610.43.02) or newer")
CASES = {
    "newer PTX": (
        refusal("ptx sm_90 13.0 9.0", code=222),
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuModuleLoadData of PTX ISA 9.0 for sm_90, made by CUDA 13.0",
        NEWER_PTX,
        [nvrtc("12.9"), NEEDS_13_0, can_link("13.0 driver-12.9 ptx")],
    ),
    "newer PTX of the driver's major": (
        refusal("ptx sm_90 12.9 8.7", code=222, version=V12_2),
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuModuleLoadData of PTX ISA 8.7 for sm_90, made by CUDA 12.9",
        "a driver of CUDA 12.2 reads PTX up to ISA 8.2; CUDA 12.9 wrote 8.7",
        [
            "compile to a cubin, with -arch=sm_90: a driver of CUDA 12.2 loads those of every CUDA 12",
            LINK_12_9,
            nvrtc("12.2"),
            needs("12.8 (570.26) or newer"),
            can_link("12.9 driver-12.2 ptx"),
        ],
    ),
    "PTX of a toolkit that no table has": (
        refusal("ptx sm_90 - 42.0", code=222),
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuModuleLoadData of PTX ISA 42.0 for sm_90",
        f"a driver of CUDA 12.9 reads PTX up to ISA 8.8; a toolkit newer than CUDA {max(PTX_ISA)} wrote 42.0",
        [nvrtc("12.9"), f"require a driver for a CUDA newer than {max(PTX_ISA)}"],
    ),
    "PTX without a producer": (
        refusal("ptx sm_90 - 9.0", code=222),
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuModuleLoadData of PTX ISA 9.0 for sm_90",
        NEWER_PTX,
        [nvrtc("12.9"), NEEDS_13_0, can_link("13.0 driver-12.9 ptx")],
    ),
    "PTX from before everything": (
        refusal("ptx sm_10 - 1.4", code=218),
        "CUDA_ERROR_INVALID_PTX (218): cuModuleLoadData of PTX ISA 1.4 for sm_10",
        "a driver of CUDA 12.9 reads PTX from ISA 2.0 on",
        ["compile the code again, with CUDA 12 or newer"],
    ),
    "PTX for a family of devices": (
        refusal("ptx sm_100f 12.9 8.8", code=218, arch="sm_120"),
        "CUDA_ERROR_INVALID_PTX (218): cuModuleLoadData of PTX ISA 8.8 for sm_100f, made by CUDA 12.9",
        "PTX for sm_100f runs on devices of compute capability 10.0 to 10.9 only; this device is sm_120",
        [line.replace("90", "120") for line in FOR_90],
    ),
    "PTX for one architecture": (
        refusal("ptx sm_80a - 8.6", code=218),
        "CUDA_ERROR_INVALID_PTX (218): cuModuleLoadData of PTX ISA 8.6 for sm_80a",
        "PTX for sm_80a runs on sm_80 only; this device is sm_90",
        FOR_90,
    ),
    "cubin of the next major": (
        refusal("cubin sm_90 13.0 linked"),
        "CUDA_ERROR_NO_BINARY_FOR_GPU (209): cuModuleLoadData of a cubin for sm_90, made by CUDA 13.0",
        "a driver of CUDA 12.9 loads cubins of toolkits up to CUDA 12; CUDA 13.0 made this one",
        [nvrtc("12"), NEEDS_13_0, can_link("13.0 driver-12.9 linked-cubin")],
    ),
    "cubin in a fatbin, of a major that no table has": (
        refusal("fatbin", "cubin sm_90 99.2 linked", code=200),
        "CUDA_ERROR_INVALID_IMAGE (200): cuModuleLoadData of a fatbin with a cubin for sm_90, made by CUDA 99.2",
        "a driver of CUDA 12.9 loads cubins of toolkits up to CUDA 12; CUDA 99.2 made this one",
        [nvrtc("12"), needs("99.0 or newer"), can_link("99.2 driver-12.9 linked-cubin")],
    ),
    "fatbin without code for the device": (
        refusal("fatbin", "cubin sm_80 12.9 linked", "ptx sm_100 12.9 8.8"),
        (
            "CUDA_ERROR_NO_BINARY_FOR_GPU (209): cuModuleLoadData of a fatbin with "
            "a cubin for sm_80, made by CUDA 12.9 or PTX ISA 8.8 for sm_100, made by CUDA 12.9"
        ),
        (
            "a cubin for sm_80 runs on devices of compute capability 8.0 to 8.9 only; this device is sm_90; "
            "PTX for sm_100 runs on sm_100 and newer devices only; this device is sm_90"
        ),
        FOR_90,
    ),
    # the H100's driver of CUDA 13.0 answered 200 to bytecode, and 209 to a fatbin of it (tests/emulator/test_tile.py)
    "Tile IR on a driver that is older than all of it": (
        refusal("tileir - - 13.3", code=200, version=V13_0, arch="sm_100"),
        "CUDA_ERROR_INVALID_IMAGE (200): cuModuleLoadData of Tile IR",
        "a driver of CUDA 13.0 does not know Tile IR; those from CUDA 13.1 on do",
        [TILEIRAS_13_3, NEEDS_13_3],
    ),
    "a fatbin of Tile IR on a driver of an older major release": (
        refusal("fatbin", "tileir - - 13.3"),
        "CUDA_ERROR_NO_BINARY_FOR_GPU (209): cuModuleLoadData of a fatbin with Tile IR",
        "a driver of CUDA 12.9 does not know Tile IR; those from CUDA 13.1 on do",
        [NEEDS_13_3],
    ),
    "Tile IR that is too new": (
        refusal("tileir - - 13.3", code=200, version=CudaVersion(13, 1)),
        "CUDA_ERROR_INVALID_IMAGE (200): cuModuleLoadData of Tile IR",
        "a driver of CUDA 13.1 compiles bytecode of CUDA 13.1 or older; this has CUDA 13.3",
        ["write bytecode of CUDA 13.1", TILEIRAS_13_3, NEEDS_13_3],
    ),
    "Tile IR on a driver without its compiler": (
        refusal("tileir - - 13.1", code=221, version=V13_5),
        "CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221): cuModuleLoadData of Tile IR",
        "the driver compiles Tile IR with its own version of libnvidia-tileiras, which is missing",
        [
            "install all of the driver, or let the container mount libnvidia-tileiras.so next to libcuda.so.1",
            TILEIRAS_13_3,
        ],
    ),
    "Tile IR that is linked, for a GPU that no tileiras knows": (
        refusal("tileir - - 13.1", code=200, call="cuLinkAddData", version=V13_5, arch="sm_75"),
        "CUDA_ERROR_INVALID_IMAGE (200): cuLinkAddData of Tile IR",
        "nothing links Tile IR: tileiras or the driver compiles it to a cubin",
        ["load it, on a driver of CUDA 13.1 or newer"],
    ),
    "LTO-IR that is loaded": (
        refusal("ltoir damaged", code=200),
        "CUDA_ERROR_INVALID_IMAGE (200): cuModuleLoadData of LTO-IR",
        "no driver loads LTO-IR: nvJitLink links it, and the driver loads the result",
        ["link it with nvJitLink, and load the result"],
    ),
    "LTO-IR that the driver links": (
        refusal(words("ltoir", V12_9, "sm_80"), code=221, call="cuLinkAddData"),
        "CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221): cuLinkAddData of LTO-IR for sm_80, made by CUDA 12.9",
        NO_LTOIR,
        [LINK_12_9, can_link("12.9 driver-12.9 ltoir")],
    ),
    "LTO-IR of the next major": (
        refusal(words("ltoir", V13_5), code=221, call="cuLinkAddData"),
        "CUDA_ERROR_JIT_COMPILER_NOT_FOUND (221): cuLinkAddData of LTO-IR for sm_90, made by CUDA 13.5",
        NO_LTOIR,
        [
            f"compile with CUDA 12.9, and link with nvJitLink 12.9: {PIP} 'cuda-toolkit[nvrtc]==12.9.*'",
            needs("13.0 (580.65.06) or newer, and link with nvJitLink 13.5"),
            can_link("13.5 driver-12.9 ltoir"),
        ],
    ),
    "newer cubin for another architecture that is linked": (
        refusal("cubin sm_100 13.3 relocatable", call="cuLinkAddData"),
        "CUDA_ERROR_NO_BINARY_FOR_GPU (209): cuLinkAddData of a cubin for sm_100, made by CUDA 13.3",
        (
            "a driver of CUDA 12.9 links code of CUDA 12.9 or older; CUDA 13.3 made this; "
            "a link for sm_90 takes cubins for sm_90 only; this one is for sm_100"
        ),
        ["compile with -arch=sm_90", nvrtc("12.9"), NEEDS_13_3, can_link("13.3 driver-12.9 cubin")],
    ),
    "LTO-IR of a toolkit that no table has": (
        of_nvjitlink("ltoir sm_90 - 9.99"),
        "NVJITLINK_ERROR_INTERNAL (6): nvJitLinkAddData of LTO-IR for sm_90",
        f"nvJitLink 13.0 links code of CUDA 13.0 or older; a toolkit newer than CUDA {max(NVVM_IR)} made this",
        [nvrtc("13.0"), newer_nvjitlink(f">{max(NVVM_IR)}")],
    ),
    "LTO-IR that is newer than nvJitLink": (
        of_nvjitlink(words("ltoir", V13_5)),
        "NVJITLINK_ERROR_INTERNAL (6): nvJitLinkAddData of LTO-IR for sm_90, made by CUDA 13.5",
        "nvJitLink 13.0 links code of CUDA 13.0 or older; CUDA 13.5 made this",
        [nvrtc("13.0"), newer_nvjitlink(">=13.5"), can_link("13.5 nvjitlink-13.0 ltoir")],
    ),
    "library with a newer object": (
        of_nvjitlink(*LIBRARY, code=42, call="nvJitLinkAddFile", version=V12_9),
        "NVJITLINK_ERROR_UNKNOWN (42): nvJitLinkAddFile of a library with a cubin for sm_90, made by CUDA 13.0",
        "nvJitLink 12.9 links code of CUDA 12.9 or older; CUDA 13.0 made this",
        [nvrtc("12.9"), newer_nvjitlink(">=13.0"), can_link("13.0 nvjitlink-12.9 cubin")],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_reasons(name: str) -> None:
    """The error, the rule with both versions, and the changes, the smallest first."""
    given, what, why, fix = CASES[name]
    assert recorded(explain(given)) == {"kind": "skew", "what": what, "why": why, "suggestion": fix}


def test_what_is_listed() -> None:
    """Of a fatbin that is loaded, six images are described; of the inputs in a library, the first that is too new."""
    images = (f"cubin sm_{number} 12.9 linked" for number in (50, 52, 53, 60, 61, 62, 70, 72))
    many = explain(refusal("fatbin", *images))
    assert (many.what.count(" or a cubin for "), many.why.count("this device is sm_90")) == (5, 6)
    assert (many.why.startswith("a cubin for sm_50 runs"), [*many.suggestion]) == (True, FOR_90)
    two = [words("cubin", made) for made in (V13_0, V13_5)]
    assert "13.5" not in str(explain(refusal("library", *two, call="cuLinkAddData")))
    newer = explain(refusal(words("cubin", V12_9, "sm_89"), arch="sm_86"))
    assert "8.9 to 8.9 only" in newer.why


NOT_SKEW = {
    "a damaged cubin": refusal("cubin damaged", code=200),
    "a mistake in PTX": refusal("ptx sm_70 - 8.0", code=218),
    "a cubin that fits": refusal("cubin sm_90 12.2 linked", code=200),
    "a newer cubin of the driver's major": refusal("cubin sm_90 12.9 linked", version=V12_2),
    "a fatbin of which one image fits": refusal("fatbin", "cubin sm_100 12.9 linked", "ptx sm_80 12.9 8.8"),
    "no code at all": refusal("unknown damaged", code=200),
    "Tile IR that the driver should compile": refusal("tileir - - 13.1", code=200, version=V13_5),
    "damaged Tile IR": refusal("tileir damaged", code=200, version=V13_0),
    "an unknown word": refusal("sorcery sm_90 13.0 9.0"),
    "a cubin of an unknown release": refusal("cubin sm_90 - -"),
    "PTX for an older architecture than that of the link": refusal("ptx sm_80 12.2 8.2", call="cuLinkAddData"),
    "PTX of which nvJitLink chooses the architecture": of_nvjitlink("ptx sm_100 12.9 8.8", code=4, arch="sm_90"),
    "old PTX that nvJitLink was given": of_nvjitlink("ptx sm_10 - 1.4", code=4),
    "PTX that is just new enough": refusal("ptx sm_20 - 2.0", code=218),
    "an input for which -lto is missing": of_nvjitlink(words("ltoir", V13_5), code=18),
    "a cubin for another architecture, of which nvJitLink's link is not known": of_nvjitlink(
        words("cubin", V13_0, "sm_100"), code=13
    ),
}


@pytest.mark.parametrize("name", NOT_SKEW)
def test_no_reason(name: str) -> None:
    """What versions and architectures do not explain gets no reason."""
    assert explain(NOT_SKEW[name]) is None


def test_a_number_of_the_other_library() -> None:
    """What says nothing of an input to nvJitLink is another error of a driver."""
    assert explain(refusal(words("cubin", V13_0), code=18)) is not None


RELEASES, WRITERS = st.sampled_from(sorted(PTX_ISA)), st.sampled_from(sorted(NVVM_IR))
KINDS = st.sampled_from(["ptx", "ltoir", "cubin", "linked-cubin"])


def _helped(refusal: Refusal, kind: str, fix: str) -> Refusal | None:
    """The refusal after a change; None for a line that changes no version."""
    if match := re.search(r"cuda-toolkit\[nvrtc\]==(\d+)\.(\d+|\*)", fix):
        release = CudaVersion(int(match[1]), 0 if match[2] == "*" else int(match[2]))
        if kind == "ltoir" and refusal.backend == "driver":  # it is nvJitLink that links
            refusal = replace(refusal, backend="nvjitlink", call="nvJitLinkAddData")
        return replace(refusal, image=read_words([words(kind, release)])) if release in NVVM_IR else None
    if match := re.search(r"require a driver for CUDA (\d+\.\d+)", fix):
        version = CudaVersion.parse(match[1])
        refusal = replace(refusal, version=version)
        return replace(refusal, backend="nvjitlink", version=max(version, V13_5)) if kind == "ltoir" else refusal
    if match := re.search(r"'nvidia-nvjitlink\S*[>=]=(\d+\.\d+)", fix):
        return replace(refusal, backend="nvjitlink", call="nvJitLinkAddData", version=CudaVersion.parse(match[1]))
    return None


@given(
    made=WRITERS, version=RELEASES, kind=KINDS, backend=st.sampled_from(["driver", "nvjitlink"]), loads=st.booleans()
)
def test_each_change_helps(made: CudaVersion, version: CudaVersion, kind: str, backend: str, loads: bool) -> None:
    """After a change that names a version, nothing is left to explain; every line is one line."""
    assume(backend == "driver" or not loads)
    given = Refusal(
        "cuModuleLoadData" if loads else "cuLinkAddData", 209, read_words([words(kind, made)]), backend, version, loads
    )
    cause = explain(given)
    if cause is None:
        return
    assert cause.kind == "skew"
    assert cause.suggestion
    assert len(set(cause.suggestion)) == len(cause.suggestion)
    assert all(line and "\n" not in line for line in (cause.what, cause.why, *cause.suggestion))
    for fix in cause.suggestion:
        helped = _helped(given, kind, fix)
        assert helped is None or explain(helped) is None, fix


@pytest.mark.parametrize(
    ("step", "kind", "read_as"),
    [
        *((step, kind, kind) for step, kind in (("nvjitlink", "ptx"), ("nvjitlink", "ltoir"))),
        *(("driver", kind, kind) for kind in ("ptx", "ltoir", "cubin")),
        ("load", "cubin", "linked-cubin"),  # nvJitLink has linked it
    ],
)
def test_whatever_the_atlas_refuses_is_explained(step: str, kind: str, read_as: str) -> None:
    """The rules give a reason for each cell of the atlas where the library refused the code, and for no other."""
    atlas = load()
    backend = "nvjitlink" if step == "nvjitlink" else "driver"
    wrong, asked = {}, 0
    for made in sorted(NVVM_IR):
        for read in sorted(PTX_ISA):
            answer = atlas.ask(str(made), str(read), kind, step, "sm_90")
            # nvJitLink before 12.3 counts as absent
            if answer is None or answer.status not in ("works", "refused") or read < CudaVersion(12, 3):
                continue
            asked += 1
            image = read_words([words(read_as, made)])
            given = Refusal("link", answer.code or 209, image, backend, read, loads=step == "load", arch="sm_90")
            if (explain(given) is None) != answer.works:
                wrong[str(made), str(read)] = answer
    assert wrong == {}
    assert asked > 100


def test_errors_of_the_bundled_linker() -> None:
    """An error that knows its input and the linker's version is explained, also one from before any call."""
    image, ptx = read_words([words("ltoir", V13_5)]), read_words(["ptx sm_90 13.0 9.0"])
    early = VersionSkewError("no", backend="nvjitlink", artifact=image, version=V13_0)
    late = LinkError("no", backend="nvjitlink", call="nvJitLinkAddData", code=6, artifact=image)
    late = late.with_context(version=V13_0)
    of_early, of_late = map(causes.of_link_error, (early, late))
    assert of_early.what == "VersionSkewError: a link of LTO-IR for sm_90, made by CUDA 13.5"
    assert (of_early.why, of_late) == (of_late.why, explain(of_nvjitlink(words("ltoir", V13_5))))
    uncoded = LinkError("no", backend="nvjitlink", call="nvJitLinkAddData", artifact=image, version=V13_0)
    assert causes.of_link_error(uncoded) == explain(Refusal("nvJitLinkAddData", 0, image, "nvjitlink", V13_0))
    for known in ({}, {"artifact": image}, {"version": V13_0}):
        assert causes.of_link_error(LinkError("no", backend="driver", **known)) is None
    by_driver = LinkError("no", backend="driver", call="cuLinkAddData", code=222, artifact=ptx, version=V12_9)
    assert causes.of_link_error(by_driver) == explain(Refusal("cuLinkAddData", 222, ptx, "driver", V12_9))
    assert causes.of_link_error(by_driver).why == NEWER_PTX


def test_a_device_that_is_not_known() -> None:
    """Without an architecture no cubin is offered; nvJitLink is, from the first release that is usable."""
    for made, offered in ((FIRST_USABLE_NVJITLINK, True), (V12_2, False)):
        ptx = refusal(words("ptx", made), code=222, version=CudaVersion(12, 0), arch="")
        fixes = str(explain(ptx).suggestion)
        assert "compile to a cubin" not in fixes
        assert (f"link it with nvJitLink {made}" in fixes) is offered
    linked = refusal(words("ptx", V12_9), call="cuLinkAddData", version=V12_2)
    for asked in (linked, refusal(words("ltoir", V12_9))):  # only PTX that is loaded could be a cubin
        assert "compile to a cubin" not in str(explain(asked).suggestion)


@pytest.mark.parametrize(("driver", "needs"), [(V12_9, "13.0 (580.65.06)"), (V13_5, "14.0")])
def test_a_runtime_of_a_newer_major(driver: CudaVersion, needs: str) -> None:
    """CudaErrorInsufficientDriver comes from a runtime of a newer major release than the driver's."""
    cause = causes.insufficient_driver("cudaErrorInsufficientDriver", driver)
    assert (cause.kind, cause.what) == ("skew", "cudaErrorInsufficientDriver")
    why = f"a driver of CUDA {driver} serves CUDA runtimes up to CUDA {driver.major}; this code has a newer one"
    assert cause.why == why
    assert cause.suggestion == (
        f"use the build for CUDA {driver.major} of the library that has the runtime",
        f"require a driver for CUDA {needs} or newer",
    )


def test_a_linker_that_failed() -> None:
    """The code need not be wrong where the process that links it was killed."""
    assert recorded(causes.linker_failed("cuLinkAddData_v2", "the linker's process ended")) == {
        "kind": "linker",
        "what": "CUDA_ERROR_UNKNOWN (999): cuLinkAddData_v2",
        "why": "the linker's process ended",
        "suggestion": [
            "run the test again; the code that it links need not be wrong",
            "if it happens again, let the machine or the container have more memory and more processes",
        ],
    }


def test_an_open_capture() -> None:
    """The test that left the capture open is named, and where to end it; if it is the same, what to do instead."""
    own = recorded(causes.open_capture("900", ""))
    first = "do this before the capture begins or after it ends"
    assert (own["kind"], own["what"], own["suggestion"][0]) == ("open_capture", "900", first)
    assert own["why"].startswith("the test captures a stream; until it ends that capture other calls fail")
    fix = ["end it there with cuStreamEndCapture, also where the test fails", "--cudalink-processes=isolated"]
    assert recorded(causes.open_capture("x", "a.py::test_b")) == {
        "kind": "open_capture",
        "what": "x",
        "why": "a.py::test_b began to capture a stream and did not end it; until then other calls of the process fail",
        "suggestion": fix,
    }


@pytest.mark.parametrize(("nodeid", "where"), [("a.py::test_b", "in a.py::test_b "), ("", "")])
@pytest.mark.parametrize("by_mode", [True, False])
def test_an_invalid_capture(nodeid: str, where: str, by_mode: bool) -> None:
    """The call is named, its test if that was another, and another mode if that allows the call."""
    assert recorded(causes.invalid_capture("901", "cuMemAlloc", nodeid, by_mode=by_mode)) == {
        "kind": "open_capture",
        "what": "901",
        "why": f"cuMemAlloc {where}is a call that a capture forbids, and it invalidated the capture of a stream",
        "suggestion": [
            "call cuMemAlloc before the capture begins or after it ends",
            *["capture with CU_STREAM_CAPTURE_MODE_RELAXED"][:by_mode],
        ],
    }


def test_a_call_that_is_not_emulated() -> None:
    """A launch is no skew: only a real driver helps, or the option that skips it."""
    assert recorded(causes.not_emulated("cuLaunchKernel", "it does not execute kernels")) == {
        "kind": "not_emulated",
        "what": "CUDA_ERROR_NOT_SUPPORTED (801): cuLaunchKernel",
        "why": "it does not execute kernels",
        "suggestion": ["run this test on a real driver", "--cudalink-unsupported=skip skips such tests here"],
    }
