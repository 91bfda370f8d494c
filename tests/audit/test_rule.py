"""What a driver does with images: the cases at the edges of the rule; `test_device_code.py` has the recorded ones."""

from itertools import permutations
from typing import Any

import pytest

from pytest_cudalink.audit.device_code import (
    DeviceCode,
    DeviceImage,
    DriverOutcome,
    UnreadImage,
    code_of,
    plain,
    what_happens,
)
from pytest_cudalink.versions import CudaVersion, Needs

OLD, NEW = CudaVersion(12, 2), CudaVersion(13, 5)


def image(kind: str, arch: str, isa: tuple[int, int] | None = (8, 0)) -> DeviceImage:
    needs = None if isa is None else Needs(CudaVersion(13, 1) if kind == "tileir" else CudaVersion(12, 0))
    return DeviceImage(arch, kind, arch, ptx_isa=isa if kind == "ptx" else None, needs=needs)


def test_outcomes_that_fail() -> None:
    """From good to bad; what no driver drives is no fault of the code."""
    assert [str(outcome) for outcome in DriverOutcome if outcome.fails] == ["222", "218", "200", "209"]
    assert [outcome.severity for outcome in DriverOutcome] == [*range(8)]
    assert DriverOutcome.NATIVE.fails is False


@pytest.mark.parametrize(
    ("code", "arch", "driver", "outcome", "chosen"),
    [
        ("ltoir sm_80", "sm_90", OLD, "linked", "sm_80"),
        ("ltoir sm_80, ltoir sm_86, ltoir sm_90a", "sm_89", OLD, "linked", "sm_86"),
        ("ltoir sm_80, cubin sm_80", "sm_90", OLD, "209", None),  # nvJitLink gets it from a program that knows of it
        ("ltoir sm_80, cubin sm_80, ptx sm_80", "sm_90", OLD, "compiled", "sm_80"),
        ("ltoir sm_100f", "sm_103", NEW, "linked", "sm_100f"),
        ("ltoir sm_100f", "sm_120", NEW, "209", None),
        ("cubin sm_90, cubin sm_90a", "sm_90", OLD, "native", "sm_90a"),
        ("ptx sm_90, ptx sm_90a", "sm_90", OLD, "compiled", "sm_90a"),
        ("cubin sm_103", "sm_103", CudaVersion(12, 9), "native", "sm_103"),  # the first driver that knows the GPU
        ("cubin sm_103", "sm_103", CudaVersion(12, 8), "no driver", None),
        ("cubin sm_80", "sm_80", NEW, "native", "sm_80"),
    ],
)
def test_in_any_order(code: str, arch: str, driver: CudaVersion, outcome: str, chosen: str | None) -> None:
    """Images for different architectures may stand in any order."""
    for words in permutations(code.split(", ")):
        answer = what_happens([image(*word.split()) for word in words], arch, driver)
        assert str(answer.outcome) == outcome
        assert (answer.image and answer.image.arch) == chosen


def test_tile_ir_beside_ptx() -> None:
    """The driver compiles PTX where there is some, and Tile IR elsewhere."""
    both = [image("tileir", ""), image("ptx", "sm_90")]
    chosen = {arch: what_happens(both, arch, NEW).image for arch in ("sm_90", "sm_80")}
    assert {arch: image and image.kind for arch, image in chosen.items()} == {"sm_90": "ptx", "sm_80": "tileir"}


@pytest.mark.parametrize(
    ("needs", "driver", "outcome"),
    [
        (Needs(CudaVersion(13, 1)), NEW, "compiled"),
        (Needs(CudaVersion(13, 1)), CudaVersion(13, 0), "209"),
        (Needs(CudaVersion(13, 1)), CudaVersion(13, 2), "209"),  # tileiras knows sm_90 from 13.3 on
        (Needs(CudaVersion(13, 4)), CudaVersion(13, 3), "209"),
        (Needs(CudaVersion(13, 4)), CudaVersion(13, 4), "compiled"),
        (Needs(CudaVersion(13, 1), newer_than=True), NEW, "209"),
        (None, NEW, "209"),
    ],
)
def test_tile_ir(needs: Needs | None, driver: CudaVersion, outcome: str) -> None:
    """A driver compiles the Tile IR of releases that it knows, and none that names no release."""
    tile = DeviceImage("x", "tileir", "", needs=needs)
    assert str(what_happens([tile], "sm_90", driver).outcome) == outcome
    cubin = DeviceImage("x", "cubin", "sm_80", needs=needs)
    assert str(what_happens([cubin], "sm_90", driver).outcome) == "209"


def test_images_that_say_little() -> None:
    """PTX whose ISA cannot be read is too new for each driver; a cubin that names no release is of each."""
    assert str(what_happens([image("ptx", "sm_80", None)], "sm_80", NEW).outcome) == "222"
    assert str(what_happens([image("cubin", "sm_80", None)], "sm_80", OLD).outcome) == "native"


# -- groups


def made(kind: str, arch: str, path: str = "a.so", group: int = 1, **more: Any) -> DeviceImage:
    """An image of a fatbin, as it is found in a file."""
    isa = (8, 0) if kind == "ptx" else None
    return DeviceImage(path, kind, arch, **{"ptx_isa": isa, "section": ".nv_fatbin", "group": group, "at": 7, **more})


SM_80, SM_90, PTX_80 = made("cubin", "sm_80"), made("cubin", "sm_90"), made("ptx", "sm_80")
FAULT = UnreadImage("x.so", "damaged")


@pytest.mark.parametrize(
    ("images", "groups"),
    [
        ([], []),
        ([SM_80, FAULT, made("cubin", "sm_90", data=b"x")], [(("a.so",), 1, "cubin sm_80, cubin sm_90", False)]),
        ([SM_80, made("cubin", "sm_80", group=2)], [(("a.so",), 2, "cubin sm_80", False)]),
        ([SM_80, made("cubin", "sm_80", "b.so", at=9)], [(("a.so", "b.so"), 2, "cubin sm_80", False)]),
        ([made("cubin", f"sm_{n}", f"k_SM{n}.cubin", 0) for n in (80, 90)] + [made("cubin", "sm_80", "sma", 0)],
         [(("k_SM80.cubin",), 1, "cubin sm_80, cubin sm_90", False), (("sma",), 1, "cubin sm_80", False)]),
        ([made("cubin", "sm_80", group=n, section=".rodata") for n in (1, 2)],
         [(("a.so",), 1, "cubin sm_80", False)]),
        ([made("cubin", f"sm_{n}", group=1 + (n == 75), section=".rodata") for n in (80, 90, 75)],
         [(("a.so",), 1, "cubin sm_80, cubin sm_90", False), (("a.so",), 1, "cubin sm_75", False)]),
        ([made("cubin", f"sm_{n}", group=n, section="") for n in (80, 90)],
         [(("a.so",), 1, "cubin sm_80", False), (("a.so",), 1, "cubin sm_90", False)]),
        ([PTX_80], [(("a.so",), 1, "ptx sm_80", False)]),
        ([made("ptx", "sm_80", relocatable=True)], [(("a.so",), 1, "ptx sm_80", True)]),
        ([made("ltoir", "sm_80", relocatable=True), PTX_80], [(("a.so",), 1, "ltoir sm_80, ptx sm_80", True)]),
        ([made("cubin", "sm_80", relocatable=True), SM_90], [(("a.so",), 1, "cubin sm_80, cubin sm_90", False)]),
        ([made("cubin", "sm_80", relocatable=True), PTX_80], [(("a.so",), 1, "cubin sm_80, ptx sm_80", True)]),
    ],
)  # fmt: skip
def test_groups(images: list[DeviceImage | UnreadImage], groups: list[tuple[tuple[str, ...], int, str, bool]]) -> None:
    """Images of one fatbin, and files that a program chooses by their name; equal groups are one."""
    code = code_of("x.whl", images)
    assert code.path == "x.whl"
    assert code.faults == tuple(image for image in images if image is FAULT)
    assert [
        (group.paths, group.count, ", ".join(f"{image.kind} {image.arch}" for image in group.images), group.for_linker)
        for group in code.groups
    ] == groups
    assert all(
        (image.path, image.at, image.group, image.data) == ("", 0, 0, None)
        for group in code.groups
        for image in group.images
    )


DRIVERS = (CudaVersion(12, 2), CudaVersion(12, 9), CudaVersion(13, 0))
OF_13 = Needs(CudaVersion(13, 0))


ALL, OLDER = "535 to 580 (CUDA 12.2 to 13.0)", "535 to 575 (CUDA 12.2 to 12.9)"


@pytest.mark.parametrize(
    ("images", "code", "drivers", "why"),
    [
        ([made("cubin", "sm_80")], "209", ALL, "nothing fits among cubin for sm_80"),
        ([made("ptx", "sm_90", ptx_isa=(8, 8), needs=Needs(CudaVersion(12, 9)))],
         *("222", "535 (CUDA 12.2)", "PTX 8.8 for sm_90 needs a driver for CUDA 12.9")),
        ([made("ptx", "sm_90", ptx_isa=(9, 9), needs=Needs(OF_13.version, newer_than=True))],
         *("222", ALL, "PTX 9.9 for sm_90 needs a driver for a release newer than CUDA 13.0")),
        ([made("ptx", "sm_90", ptx_isa=None)], "222", ALL, "PTX ? for sm_90 cannot be read"),
        ([made("ptx", "sm_80a")], "218", ALL, "the PTX that is taken is for sm_80a alone"),
        ([made("cubin", "sm_90", needs=OF_13)], "200", OLDER, "the cubin for sm_90 is taken, and it is of CUDA 13.0"),
        ([made("cubin", f"sm_{n}") for n in range(10, 23)],
         *("209", ALL, f"nothing fits among {', '.join(f'cubin for sm_{n}' for n in range(10, 22))}, ...")),
    ],
)  # fmt: skip
def test_what_fails(images: list[DeviceImage], code: str, drivers: str, why: str) -> None:
    """A sentence says the code, the drivers that answer it, and why."""
    assert code_of("x", images).failures(["sm_90"], DRIVERS) == [f"a.so: {code} on sm_90 with driver {drivers}: {why}"]
    assert [failure.endswith("...") for failure in code_of("x", images[:12]).failures(["sm_90"], DRIVERS)] == [False]


@pytest.mark.parametrize(
    ("archs", "files", "said"),
    [
        (("sm_90",), "*", ["a.so and 2 more files: 209 on sm_90", "d.so: 209 on sm_90"]),
        (("sm_90",), "b*", ["a.so and 2 more files: 209 on sm_90"]),
        (("sm_90",), "d*", ["d.so: 209 on sm_90"]),
        (("sm_90",), "e*", ["files is 'e*'; no file with device code matches; expected a pattern that matches one"]),
        ((), "e*", []),
        (("sm_80", "sm_75"), "a*", ["a.so and 2 more files: 209 on sm_75"]),
    ],
)
def test_patterns_of_files(archs: tuple[str, ...], files: str, said: list[str]) -> None:
    """A group counts if one of its files matches; a pattern that matches none is a failure, if GPUs are asked for."""
    code = code_of("x", [*(made("cubin", "sm_80", f"{name}.so") for name in "abc"), made("cubin", "sm_86", "d.so")])
    assert [failure.partition(" with driver")[0] for failure in code.failures(archs, DRIVERS, files)] == said
    assert DeviceCode("x", (), ()).failures(["sm_80"], DRIVERS) == []


def test_answers_of_groups() -> None:
    """The worst first; a file is served whose groups are all taken, by each driver that knows the GPU."""
    listed = [SM_80, made("cubin", "sm_90", group=2), made("cubin", "sm_80", "b.so", relocatable=False)]
    code = code_of("x", listed)
    assert [(group.count, str(answer.outcome)) for group, answer in code.answers("sm_80", DRIVERS[0])] == [
        (1, "209"), (1, "native"), (1, "native"),
    ]  # fmt: skip
    assert code.served("sm_80", DRIVERS) == dict.fromkeys(DRIVERS, 1)
    assert code.served("sm_103", DRIVERS) == dict.fromkeys(DRIVERS[1:], 0)
    assert code_of("x", [SM_90, made("cubin", "sm_80", group=2)]).served("sm_80", DRIVERS[:1]) == {DRIVERS[0]: 0}
    for others, taken in ((["cubin sm_90a"], 1), (["cubin sm_90a", "cubin sm_90"], 0), (["ptx sm_75a"], 0)):
        beside = [made(*other.split(), group=2) for other in others]
        assert code_of("x", [SM_80, *beside]).served("sm_80", DRIVERS[:1]) == {DRIVERS[0]: taken}
    lto = made("ltoir", "sm_90", "c.so", relocatable=True)
    host = made("cubin", "sm_90", "e.so", empty=True)
    for listed, judged in (([SM_80, lto, host], ["a.so"]), ([lto, made("tileir", "", "d.so")], ["c.so", "d.so"])):
        assert [group.paths[0] for group in code_of("x", listed).judged] == judged
    code_of("x", [SM_80]).check(["A100"], ["535", "13.0"])
    code_of("x", [SM_80, made("cubin", "sm_90", "b.so")]).check(["H100"], files="b*")


def test_check_names_each_reason() -> None:
    """What cannot be read, and what is missing, fail as well; without a GPU nothing is missing."""
    for archs, code, said in (
        ([], code_of("x", [FAULT]), "x\n  x.so: damaged"),
        (["H100", "8.0"], code_of("x", []), "x\n  no device code; expected code for sm_90, sm_80"),
    ):
        with pytest.raises(AssertionError) as caught:
            code.check(archs)
        assert str(caught.value) == said
    code_of("x", []).check([])
    assert code_of("x", []).absence(["sm_80"]) == "no device code; expected code for sm_80"


def test_groups_as_data() -> None:
    """Every fact has a name; what an image does not say is null."""
    more = {"producer": CudaVersion(12, 9), "needs": OF_13, "packed": True, "relocatable": False}
    image = made("ptx", "sm_80", virtual_arch="sm_75", note="cut", **more)
    facts = {
        "kind": "ptx", "arch": "sm_80", "ptx_isa": "8.0", "producer": "12.9", "needs": "CUDA 13.0", "packed": True,
        "relocatable": False, "virtual_arch": "sm_75", "section": ".nv_fatbin", "note": "cut",
    }  # fmt: skip
    assert plain(image) == facts
    without = plain(DeviceImage("x", "cubin", "sm_80"))
    assert [without[name] for name in ("ptx_isa", "producer", "needs", "relocatable", "virtual_arch")] == [None] * 5
    group = {"paths": ["a.so"], "count": 1, "for_linker": False, "images": [facts]}
    faults = [{"path": "x.so", "text": "damaged"}]
    assert code_of("x", [image, FAULT]).to_json(["sm_90"], DRIVERS[:1]) == {
        "path": "x", "groups": [{**group, "answers": {"sm_90": {"12.2": "compiled"}}}], "faults": faults,
    }  # fmt: skip
    assert code_of("x", [image]).to_json()["groups"] == [{**group, "answers": {}}]
