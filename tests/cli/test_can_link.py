"""``cudalink can-link``: the answer, its sources, and what to do instead."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudalink import cli, probes
from pytest_cudalink.base.install_command import install_command
from pytest_cudalink.compat import atlas

A_BRANCH = "'575' is a branch of drivers, which came with CUDA 12.9; write a version of CUDA, such as 12.9"
DATA = Path(__file__).parents[1] / "data" / "artifacts"


@pytest.fixture
def said(capsys) -> Callable[..., tuple[int, str, str]]:
    """Return the exit code, stdout and stderr of one question."""
    return lambda *words: (cli.main(["can-link", *words]), *capsys.readouterr())


def test_yes(said) -> None:
    """The first word is the answer; then what was measured with which wheels, and what the rules expect."""
    code, out, _ = said("12.9", "nvjitlink-13.0", "ltoir")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "yes: nvJitLink 13.0 links LTO-IR of CUDA 12.9"
    wheels = atlas.load().wheels
    by = f"nvJitLink {wheels['13.0']['nvjitlink']}, NVRTC {wheels['12.9']['nvrtc']}, sm_90"
    assert lines[1].startswith(f"  measured    works ({by}, ")
    assert lines[3].startswith("  documented  does not work: LTO-IR links only with nvJitLink of the same major")
    assert "  expected    linker: works; its header asks for no newer release" in lines
    assert any(line.startswith("              guard rails: does not work; LTO-IR is promised") for line in lines)
    assert "instead" not in out


def test_no(said) -> None:
    """A refusal has call, code, name and text, and the nearest ways that work."""
    code, out, _ = said("nvrtc-13.2", "nvjitlink-13.0", "ptx")
    assert code == 1
    assert out.startswith("no: nvJitLink 13.0 does not link PTX of CUDA 13.2\n")
    assert "  measured    nvJitLinkAddData answers 4 NVJITLINK_ERROR_PTX_COMPILE: " in out
    install = install_command("nvidia-nvjitlink==13.2.*")
    assert f"  instead     take nvJitLink 13.2 or newer: {install}\n" in out
    assert "              compile with CUDA 13.0\n" in out


def test_driver(said) -> None:
    """A driver is asked to link, and to load what nvJitLink linked; each policy says which it takes."""
    code, out, _ = said("12.9", "driver-13.0", "ltoir")
    assert code == 1
    assert "cuLinkAddData answers 221 CUDA_ERROR_JIT_COMPILER_NOT_FOUND (emulated driver of CUDA 13.0, " in out
    assert "  instead     link it with nvJitLink 12.9: the driver of CUDA 13.0 loads the image\n" in out
    assert "policy strict-major: does not work; an error: " in out
    assert "policy newer-driver-ok: works; nvJitLink 12.9 links: " in out


def test_tile_ir_of_a_file(said) -> None:
    """A file says its version; what to do names the packages that tileiras needs, or the GPUs that it knows."""
    file = DATA / "tile" / "add.fatbin"
    code, out, _ = said(str(file), "tileiras-13.2", "--arch", "sm_100")
    assert code == 1
    assert "\nno: tileiras 13.2 does not compile Tile IR of CUDA 13.3 for sm_100\n  measured    tileiras answers" in out
    by = f" (tileiras {atlas.load().wheels['13.2']['tileiras']}, sm_100, {atlas.load().measured['date']}, nox -s atlas)"
    assert f"{by}\n  documented  nothing\n" in out
    install = install_command("cuda-toolkit[nvcc,nvvm,tileiras]==13.3.*")
    assert f"  instead     take tileiras 13.3 or newer: {install}\n              write bytecode of CUDA 13.2\n" in out
    _, out, _ = said("13.1", "tileiras-13.3", "tileir", "--arch", "sm_90a")
    assert "  instead     compile for a GPU that it knows: sm_80, sm_86, " in out
    code, out, _ = said("13.3", "tileiras-13.4", "tileir", "--json")
    assert (code, json.loads(out)["measured"]["command"]) == (0, "nox -s atlas")


def test_tile_ir_that_was_not_measured(said) -> None:
    """An unknown release, and a library that does not read Tile IR, are exit code 2."""
    for release, words in (("13.9", ("13.9", "tileiras-13.2")), ("13.0", ("13.1", "tileiras-13.0"))):
        code, out, _ = said(*words, "tileir")
        why = f"not known: CUDA {release} is not in the atlas, which has 13.1 to 13.5 for Tile IR"
        assert (code, out.splitlines()[0]) == (2, why)
    for words in (("13.3", "nvjitlink-13.2", "tileir"), ("13.3", "this", "tileir"), ("13.3", "tileiras-13.3", "ptx")):
        code, _, err = said(*words)
        assert code == 2
        assert "only tileiras-RELEASE, such as tileiras-13.4, reads Tile IR, and nothing else" in err


def test_linked_cubins_are_loaded(said) -> None:
    """An executable cubin is loaded by a driver, and linked by nothing."""
    assert said("12.9", "driver-13.0", "linked-cubin")[:2][0] == 0
    code, out, _ = said("13.0", "driver-12.9", "linked-cubin")
    assert (code, out.partition("\n")[0]) == (1, "no: the driver of CUDA 12.9 does not load linked cubins of CUDA 13.0")


def test_a_release_is_both_of_its_libraries(said) -> None:
    """Each library has its answer; one that does not take the code makes the exit code 1."""
    code, out, _ = said("13.0", "13.2", "ltoir")
    assert code == 1
    assert "yes: nvJitLink 13.2 links LTO-IR of CUDA 13.0\n" in out
    assert "\n\nno: the driver of CUDA 13.2 does not link LTO-IR of CUDA 13.0\n" in out
    assert said("13.0", "13.2", "ptx")[0] == 0


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("12.7", "nvjitlink-13.0", "ptx"), "CUDA 12.7 is not in the atlas, which has "),
        (("12.10", "nvjitlink-13.0", "ptx"), "CUDA 12.10 is not in the atlas, which has 12.0 to 12.9, 13.0 to 13.5; "),
        (("13.0", "nvjitlink-14.0", "ptx"), "CUDA 14.0 is not in the atlas, which has "),
        (("13.0", "nvjitlink-13.2", "ptx", "--arch", "sm_89"), "sm_89 was not measured, only "),
    ],
)
def test_what_was_not_measured_is_not_known(words: tuple[str, ...], why: str, said) -> None:
    """The exit code is 2; the sentence says why, and that what follows is the rule alone."""
    code, out, _ = said(*words)
    assert code == 2
    assert out.startswith(f"not known: {why}")
    assert "; by the rule alone, nvJitLink " in out
    assert "  measured" not in out


def test_files(said, tmp_path: Path) -> None:
    """Release, kind and architecture of a file are read from its headers."""
    code, out, _ = said(str(DATA / "13.2" / "user.ptx"), "nvjitlink-13.0")
    assert code == 1
    assert out.startswith(
        f"{DATA}/13.2/user.ptx: ptx for sm_90, made by CUDA 13.2; asked as ptx of CUDA 13.2\n\n"
        "no: nvJitLink 13.0 does not link PTX of CUDA 13.2\n"
    )
    for file, heading in (
        ("nvcc/user-plain.fatbin", "cubin for sm_90, made by CUDA 13.0, one of 2 images in it; asked as fatbin-cubin"),
        ("13.0/linked.cubin", "cubin for sm_90, made by CUDA 13.0; asked as linked-cubin"),
        ("../device_code/speed.fatbin", "cubin for sm_80, made by CUDA 13.0, one of 5 images in it; asked as linked-c"),
    ):
        assert f"{file}: {heading}" in said(str(DATA / file), "13.2")[1]
    code, out, _ = said(str(DATA / "12.9" / "user.ltoir"), "nvjitlink-13.0", "--json")
    assert (code, json.loads(out)["kind"]) == (0, "ltoir")
    code, _, err = said(str(DATA / "12.9" / "user.ltoir"), "nvjitlink-13.0", "ptx")
    assert code == 2
    assert "KIND is 'ptx', but " in err
    for content, why in ((b"nothing", "not an image that a CUDA linker"), (b"\x7fELF", "damaged cubin: ELF header")):
        (tmp_path / "no").write_bytes(content)
        code, _, err = said(str(tmp_path / "no"), "13.0")
        assert (code, f"no cannot be judged: {why}" in err) == (2, True)


def test_this_machine(said) -> None:
    """The word `this` asks the nvJitLink and the driver that are here; without any, the error says what to name."""
    with probes.fake(driver="13.0", nvjitlink=None):
        code, out, _ = said("12.9", "this", "ptx")
    assert code == 0
    assert out.startswith("yes: the driver of CUDA 13.0 links PTX of CUDA 12.9\n")
    with probes.fake(driver=None, nvjitlink=None):
        code, out, err = said("12.9", "this", "ptx")
    assert (code, out) == (2, "")
    assert err.endswith("there is neither an nvJitLink nor a driver here; name a release, such as 13.2\n")


def test_a_branch_of_drivers_and_a_kind_in_capitals(said) -> None:
    """A driver may have the name under which it is installed."""
    assert said("13.0", "driver-575.57.08", "PTX") == said("13.0", "driver-12.9", "ptx")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("12.9", "nvjtlink-13.0", "ptx"), "CONSUMER is 'nvjtlink-13.0'; expected nvjitlink-RELEASE or driver-RELEASE"),
        (("12.9", "newest", "ptx"), "CONSUMER is 'newest'; expected a release such as 13.2, nvjitlink-13.2, driv"),
        *(
            (("12.9", "13.0", "pxt"), words)
            for words in ("KIND is 'pxt'; expected ptx, ltoir, c", "; did you mean ptx?")
        ),
        ((), "PRODUCER and CONSUMER are missing; expected words such as 12.4 nvjitlink-13.2 ltoir"),
        (("12.9",), "CONSUMER is missing; expected words such as 12.4 nvjitlink-13.2 ltoir"),
        (("12.9", "13.0"), "KIND is missing; expected ptx, "),
        (("12.9", "13.0", "ptx", "--arch", "L4"), "--arch: unknown architecture 'L4'; known: "),
        (("nope.cubin", "13.0"), "PRODUCER is nope.cubin: No such file or directory; expected a CUDA release such as"),
        (("", "13.0"), "PRODUCER is ''; expected a CUDA release such as 12.4, or a file of device code"),
        ((".", "13.0"), "PRODUCER is ., a folder; expected a CUDA release such as"),
        (("13.0", "driver-12.9.1", "ptx"), "drivers of one CUDA release answer alike; write 12.9"),
        (("13.0", "575", "ptx"), f"CONSUMER: {A_BRANCH}"),
        (("575", "13.0", "ptx"), f"PRODUCER: {A_BRANCH}"),
        (("123456.1", "13.0", "ptx"), "PRODUCER: '123456.1' is not a CUDA version"),
    ],
)
def test_wrong_words(words: tuple[str, ...], expected: str, said) -> None:
    """A word that names nothing is an error in one line, with what is expected."""
    code, out, err = said(*words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert expected in err


def test_json(said) -> None:
    """Programs get every part; what is not known is null."""
    code, out, _ = said("13.2", "13.0", "cubin", "--json")
    answer = json.loads(out)
    assert code == 1
    assert [answer[name] for name in ("producer", "kind", "arch")] == ["13.2", "cubin", "sm_90"]
    assert answer["measured"]["command"] == "nox -s atlas"
    linker, driver = answer["answers"]
    assert (linker["step"], linker["works"], linker["answer"]["status"]) == ("nvjitlink", False, "refused")
    assert (driver["step"], driver["answer"]["code"]) == ("driver", 209)
    assert {"rule": "linker", "works": False, "because": "its header says that CUDA 13.2 made it"} in linker["expected"]
    assert driver["suggestion"][0] == "link it with nvJitLink 13.2: the driver of CUDA 13.0 loads the image"
    code, out, _ = said("14.0", "nvjitlink-13.0", "cubin", "--json")
    assert (code, json.loads(out)["answers"][0]["works"], json.loads(out)["answers"][0]["answer"]) == (2, None, None)
