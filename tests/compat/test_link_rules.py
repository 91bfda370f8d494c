"""The rules of what reads what, and the evidence that goes with them."""

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink.artifacts import inspect
from pytest_cudalink.compat import atlas, releases
from pytest_cudalink.compat.link_rules import RELATIONS, contents_of, evidence, expected, found_words, header_needs
from pytest_cudalink.versions import CudaVersion, Needs

DATA = Path(__file__).parents[1] / "data" / "artifacts"

V = CudaVersion


@pytest.mark.parametrize(
    ("rule", "pairs"),
    [
        ("any", {(13, 0, 12, 0): True, (12, 0, 13, 0): True}),
        ("exact", {(13, 0, 13, 0): True, (13, 0, 13, 1): False}),
        ("not-newer", {(12, 9, 13, 0): True, (13, 0, 13, 0): True, (13, 1, 13, 0): False}),
        ("not-newer-major", {(13, 5, 13, 0): True, (12, 9, 13, 0): True, (13, 0, 12, 9): False}),
        ("same-major", {(13, 0, 13, 2): True, (13, 2, 13, 0): False, (12, 9, 13, 0): False, (13, 0, 12, 9): False}),
    ],
)
def test_relations(rule: str, pairs: dict[tuple[int, int, int, int], bool]) -> None:
    """Each relation is one of the release that made the code to the release that reads it."""
    assert {key: RELATIONS[rule](V(*key[:2]), V(*key[2:])) for key in pairs} == pairs


@pytest.mark.parametrize("release", ["12.9", "13.0", "13.2"])
@pytest.mark.parametrize("kind", ["ptx", "ltoir", "cubin"])
def test_needs_are_those_of_the_header(release: str, kind: str) -> None:
    """The rule asks for the release that `inspect` reads from real code of a release."""
    code = (DATA / release / f"user.{kind}").read_bytes()
    assert header_needs(CudaVersion.parse(release), kind) == inspect(code).needs


def test_needs_of_releases_without_wheels_or_number(monkeypatch) -> None:
    """A release that no table has asks for itself; two with one PTX ISA or NVVM IR ask for the older one."""
    assert header_needs(V(14, 0), "ptx") == Needs(V(14, 0))
    assert header_needs(V(12, 7), "ltoir") == Needs(V(12, 7))
    assert header_needs(V(12, 6), "ptx") == Needs(V(12, 5))
    assert header_needs(V(12, 6), "cubin") == Needs(V(12, 6))
    for release in ((13, 7), (13, 8)):
        monkeypatch.setitem(releases.NVVM_IR, V(*release), (99, 1))
    for kind, first in (("ltoir", (13, 7)), ("cubin", (13, 8))):
        assert header_needs(V(13, 8), kind).version == first
    assert header_needs(V(13, 8), "ltoir") == header_needs(V(13, 7), "ltoir")


@pytest.mark.parametrize(
    ("step", "kind", "producer", "consumer", "works"),
    [
        ("nvjitlink", "ptx", V(13, 2), V(13, 0), False),
        ("nvjitlink", "fatbin-ptx", V(13, 2), V(13, 2), True),
        ("nvjitlink", "ltoir", V(12, 9), V(13, 0), True),
        ("nvjitlink", "linked-cubin", V(12, 9), V(13, 0), False),
        ("driver", "fatbin-ltoir", V(12, 9), V(13, 0), False),
        ("driver", "cubin", V(12, 9), V(13, 0), True),
        ("real-load", "ltoir", V(13, 2), V(13, 0), True),
        ("load", "linked-cubin", V(13, 0), V(12, 9), False),
    ],
)
def test_expected(step: str, kind: str, producer: CudaVersion, consumer: CudaVersion, works: bool) -> None:
    """What the bundled linker lets through, and which images a driver is expected to load."""
    assert expected(step, kind, producer, consumer) is works


def test_contents() -> None:
    """A rule is of what a fatbin has in it, or what a linker made of its inputs; a linked cubin has its own rule."""
    contents = {kind: kind for kind in ("ptx", "ltoir", "cubin", "linked-cubin")}
    contents |= {f"fatbin-{kind}": kind for kind in ("ptx", "ltoir", "cubin")}
    contents |= {"nvvm-ltoir": "ltoir", "merged-ltoir": "ltoir", "merged-cubin": "cubin", "merged-lto-cubin": "cubin"}
    assert {kind: contents_of(kind) for kind in contents} == contents


def test_evidence_is_measured_or_extrapolated() -> None:
    """A pair of the atlas has its answer; beyond it, the text says that the rule is extrapolated."""
    assert evidence("nvjitlink", "ltoir", V(12, 9), V(13, 0)) == "measured for sm_90: works"
    refused = evidence("nvjitlink", "ptx", V(13, 2), V(13, 0))
    assert refused.startswith("measured for sm_90: nvJitLinkAddData answers 4 NVJITLINK_ERROR_PTX_COMPILE: ")
    releases = atlas.load().releases
    assert evidence("nvjitlink", "ptx", V(14, 0), V(13, 0)) == (
        f"not measured: CUDA 14.0 is not in the atlas of {releases[0]} to {releases[-1]}, the rule is extrapolated"
    )
    assert evidence("nvjitlink", "elf", V(13, 0), V(13, 0)) == "not measured for elf"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (atlas.AtlasAnswer("works"), "works"),
        (atlas.AtlasAnswer("not-made"), "cannot be asked"),
        (atlas.AtlasAnswer("refused", "cuModuleLoadData", 209, "NO_BINARY"), "cuModuleLoadData answers 209 NO_BINARY"),
        (atlas.AtlasAnswer("wrong", text="no kernel"), "reports success, and is wrong: no kernel"),
        (atlas.AtlasAnswer("crashed", "", -11, "SIGSEGV"), "crashes: -11 SIGSEGV"),
        (atlas.AtlasAnswer("crashed", "", 0, "SIGSEGV"), "crashes: 0 SIGSEGV"),
        (atlas.AtlasAnswer("refused", "cuModuleLoadData", 999), "cuModuleLoadData answers 999"),
    ],
)
def test_words_of_an_answer(answer: atlas.AtlasAnswer, words: str) -> None:
    """Each status has its words; an empty part leaves none."""
    assert found_words(answer) == words


def test_a_link_opens_no_atlas() -> None:
    """Importing the linker and the guard rails reads no atlas, and a pipeline that holds does not either."""
    program = (
        "import sys, pytest_cudalink.linker;"
        "from pytest_cudalink.guardrails import items as i, pipelines as p;"
        "from pytest_cudalink.versions import CudaVersion as V;"
        "item = lambda name, version: i.Item('dynamic-libs', name, '', '', 'ctk', version, '');"
        "check = lambda made: p.check_pipeline(p.Pipeline('nvrtc', 'nvJitLink', 'ltoir'), item('nvrtc', made), "
        "item('nvJitLink', V(13, 0))).status;"
        "print(check(V(13, 0)), 'pytest_cudalink.compat.atlas' in sys.modules);"
        "print(check(V(13, 2)), 'pytest_cudalink.compat.atlas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["compatible False", "incompatible True"]
