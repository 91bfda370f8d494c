"""The answer to one question of the atlas, with what real drivers and GPUs add to it."""

import dataclasses

import pytest

from pytest_cudalink.base.install_command import install_command
from pytest_cudalink.compat import atlas
from pytest_cudalink.guardrails.can_link import Consumer, predictions, questions, reply
from pytest_cudalink.versions import CudaVersion
from tools import atlas_differences

V = CudaVersion
RELEASES = ("13.0", "13.1", "14.0")
MADE = V(13, 0)


def drawn() -> atlas.Atlas:
    """An atlas of three releases with a real driver of the first."""
    answers = {
        "a": atlas.AtlasAnswer("works"),
        "b": atlas.AtlasAnswer("refused", "cuLinkAddData", 222),
        "n": atlas.AtlasAnswer("not-made", text="no such device"),
        "w": atlas.AtlasAnswer("wrong", text="3 of 4 numbers differ"),
    }
    rows = {
        ("nvjitlink", RELEASES): {"13.0": "aaa", "13.1": "baa", "14.0": "nnn"},
        ("driver", RELEASES): {"13.0": "aaa", "13.1": "baa", "14.0": "bba"},
        ("load", RELEASES): {"13.0": "aaa", "13.1": "aaa", "14.0": "bba"},
        ("real-driver", RELEASES[:1]): {"13.0": "a", "13.1": "b", "14.0": "n"},
        ("real-run", RELEASES): {"13.0": "awa", "13.1": "aaa", "14.0": "nnn"},
    }
    grids = tuple(atlas.Grid(step, "ptx", "sm_90", row, read) for (step, read), row in rows.items())
    real = (atlas.RealDriver("580.1", "13.0", "H100", "2026-11-22", "a command"),)
    return atlas.Atlas(RELEASES, {}, {}, real, answers, grids)


def ask(producer: CudaVersion, library: str, consumer: CudaVersion, arch: str = "sm_90"):
    """Return the reply to one question about PTX."""
    (question,) = questions(producer, (Consumer(library, consumer),), "ptx", arch)
    return reply(drawn(), question)


@pytest.mark.parametrize(
    ("producer", "library", "consumer", "hardware"),
    [
        (V(13, 1), "driver", V(13, 0), [("driver 580.1, H100, 2026-11-22", "refused")]),
        (V(13, 1), "driver", V(13, 1), []),
        (V(14, 0), "driver", V(13, 0), []),
        (V(13, 0), "nvjitlink", V(13, 1), [("the image ran with driver 580.1, H100, 2026-11-22", "wrong")]),
    ],
)
def test_hardware(producer: CudaVersion, library: str, consumer: CudaVersion, hardware: list[tuple[str, str]]) -> None:
    """A real driver answers for its own release; a GPU runs what each nvJitLink linked."""
    assert [(device, answer.status) for device, answer in ask(producer, library, consumer).hardware] == hardware


def test_newer_consumers_that_do_not_all_work() -> None:
    """The advice names the release that works, and promises no newer one."""
    grid = atlas.Grid("nvjitlink", "ptx", "sm_90", {"13.0": "bab", "13.1": "aaa", "14.0": "nnn"}, RELEASES)
    gap = dataclasses.replace(drawn(), grids=(grid,))
    (question,) = questions(V(13, 0), (Consumer("nvjitlink", V(13, 0)),), "ptx", "sm_90")
    assert reply(gap, question).suggestion == (
        "take nvJitLink 13.1: " + install_command("nvidia-nvjitlink==13.1.*"),
        "compile with CUDA 13.1",
    )


def test_instead() -> None:
    """First nvJitLink in place of the driver's linker, then the nearest consumer, then the nearest producer."""
    assert ask(V(13, 1), "driver", V(13, 0)).suggestion == (
        "link it with nvJitLink 13.1: the driver of CUDA 13.0 loads the image",
        "take the driver of CUDA 13.1 or newer",
        "compile with CUDA 13.0",
    )
    further = "take the driver of CUDA 14.0 or newer", "compile with CUDA 13.1"
    assert ask(V(14, 0), "driver", V(13, 1)).suggestion == further
    assert ask(V(13, 0), "driver", V(13, 1)).suggestion == ()


# -- every rule against every cell of the atlas


@pytest.fixture(scope="module")
def contradictions() -> list[atlas_differences.Contradiction]:
    return list(atlas_differences.contradictions(atlas.load()))


def test_every_contradiction_has_a_reason(contradictions: list[atlas_differences.Contradiction]) -> None:
    """A rule that the measurement contradicts is changed, or a row of contradictions.toml says why it stays."""
    assert contradictions
    assert all(contradiction.prediction.because for contradiction in contradictions)
    assert sorted({str(contradiction) for contradiction in contradictions if contradiction.reason is None}) == []


def test_every_reason_has_a_contradiction(contradictions: list[atlas_differences.Contradiction]) -> None:
    """A row that nothing contradicts any more is removed, and each of its rules, steps and kinds is needed."""
    for row in atlas_differences.reasons():
        covered = [contradiction for contradiction in contradictions if contradiction.reason == row]
        assert {contradiction.prediction.rule for contradiction in covered} == set(row.rules), row
        assert {contradiction.step.removeprefix("real-") for contradiction in covered} == set(row.steps), row
        assert set(row.kinds) <= {kind for contradiction in covered for kind in row.kinds_of(contradiction)}, row


def test_only_released_allows_what_nvjitlink_and_drivers_refuse(
    contradictions: list[atlas_differences.Contradiction],
) -> None:
    """A rule of ours that allows what fails is one of the policy that copies cuda.core, or has a row of its own."""
    unsafe = {c.prediction.rule for c in contradictions if c.prediction.works and c.step in ("nvjitlink", "load")}
    assert "policy released" in unsafe
    assert not unsafe & {"policy newer-driver-ok", "policy strict-major", "guard rails"}


def test_a_contradiction_without_a_row_is_found() -> None:
    """An atlas with another answer contradicts a rule, and no row covers it."""
    releases = ("13.0", "13.1")
    answers = {
        "a": atlas.AtlasAnswer("works"),
        "b": atlas.AtlasAnswer("refused", "nvJitLinkAddData", 3),
        "c": atlas.AtlasAnswer("not-made"),
    }
    grid = atlas.Grid("nvjitlink", "ptx", "sm_90", {"13.0": "ab", "13.1": "cc"}, releases)
    drawn = atlas.Atlas(releases, {}, {}, (), answers, (grid,))
    (contradiction,) = atlas_differences.contradictions(drawn)
    assert contradiction.reason is None
    assert str(contradiction) == "linker allows what fails: nvjitlink, ptx, 13.0 -> 13.1, sm_90"


@pytest.mark.parametrize("machine", ["", "real-"])
@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("load", {"driver rule": False, "policy released": True}),
        ("driver", {"linker": False, "policy strict-major": False, "policy newer-driver-ok": False}),
    ],
)
def test_predictions(step: str, machine: str, expected: dict[str, bool]) -> None:
    """Each rule that applies to a driver predicts, also where no measurement contradicts it."""
    made = predictions(f"{machine}{step}", "ptx", V(13, 0), V(12, 9))
    assert {prediction.rule: prediction.works for prediction in made} == expected


def test_what_is_not_known() -> None:
    """An image that a release cannot make has no answer, and the reason; rules say nothing of Tile IR."""
    unmade = ask(V(14, 0), "nvjitlink", V(13, 0))
    assert (unmade.answer, unmade.severity, unmade.why) == (None, "unknown", "CUDA 14.0 cannot make PTX for sm_90")
    assert ask(V(13, 0), "nvjitlink", V(13, 0)).why == ""
    (tile,) = questions(V(13, 1), (Consumer("tileiras", V(13, 1)),), atlas.TILE, "sm_90")
    assert reply(atlas.load(), tile).rules == ()


def measured(*grids: tuple[str, str, str, str]) -> atlas.Atlas:
    """The atlas of `drawn` with other grids: step, kind, architecture, and the answers to images of 13.0."""
    rows = [atlas.Grid(step, kind, arch, {"13.0": row}, RELEASES) for step, kind, arch, row in grids]
    return dataclasses.replace(drawn(), grids=tuple(rows))


def asked_in(known: atlas.Atlas, library: str, kind: str, arch: str = "sm_90", release: CudaVersion = MADE):
    """Return the reply to one question about an image of a release and a library of 13.0."""
    (question,) = questions(release, (Consumer(library, V(13, 0)),), kind, arch)
    return reply(known, question)


def test_a_linked_cubin_is_what_the_producer_linked() -> None:
    """What was measured of relocatable cubins is its answer where it has none of its own, and that of no other kind."""
    known = measured(
        *(("load", "cubin", "sm_90", "aaa"), ("nvjitlink", "cubin", "sm_90", "aaa")),
        ("nvjitlink", "linked-cubin", "sm_90", "bbb"),
    )
    asked = (("driver", "linked-cubin"), ("nvjitlink", "linked-cubin"), ("nvjitlink", "fatbin-cubin"))
    assert [asked_in(known, *words).severity for words in asked] == ["note", "error", "unknown"]
    as_it_is = ("load it as it is, or compile it as relocatable device code",)
    assert asked_in(known, "nvjitlink", "linked-cubin").suggestion == as_it_is


@pytest.mark.parametrize(
    ("library", "grid", "read", "instead"),
    [
        ("driver", ("load", "linked-cubin", "baa"), RELEASES, ["take the driver of CUDA 13.1 or newer"]),
        ("driver", ("load", "linked-cubin", "ba"), RELEASES[:2], ["take the driver of CUDA 13.1"]),
        ("driver", ("driver", "ptx", "bbb"), RELEASES, []),
        ("tileiras", ("tileiras", atlas.TILE, "baa"), RELEASES, ["take tileiras 13.1 or newer"]),
    ],
)
def test_what_works_instead(
    library: str, grid: tuple[str, str, str], read: tuple[str, ...], instead: list[str]
) -> None:
    """The nearest release, and "or newer" where all later ones were measured and work; nothing where nothing works."""
    step, kind, row = grid
    known = dataclasses.replace(drawn(), grids=(atlas.Grid(step, kind, "sm_90", {"13.0": row}, read),))
    assert [way.partition(": ")[0] for way in asked_in(known, library, kind).suggestion] == instead


def test_gpus_that_a_release_of_tileiras_knows() -> None:
    """They are named where no other release helps, without those that were not measured."""
    rows: dict[str, dict[str, str]] = {"sm_90": {"13.0": "bbb"}, "sm_100": {}, "sm_120": {"13.0": "aaa"}}
    grids = tuple(atlas.Grid("tileiras", atlas.TILE, arch, made, RELEASES) for arch, made in rows.items())
    told = asked_in(dataclasses.replace(drawn(), grids=grids), "tileiras", atlas.TILE)
    assert told.suggestion == ("compile for a GPU that it knows: sm_120",)


def test_a_driver_of_another_release_answers_nothing() -> None:
    """What was measured with it is not known of the one that is asked about; rules of the load are policies'."""
    known = measured(("driver", "ptx", "sm_90", "aaa"), ("real-driver", "ptx", "sm_90", "aaa"))
    other = dataclasses.replace(known, real=(dataclasses.replace(known.real[0], cuda="13.1"),))
    assert (bool(asked_in(known, "driver", "ptx").hardware), asked_in(other, "driver", "ptx").hardware) == (True, ())
    rules = ask(V(13, 1), "driver", V(13, 0)).rules
    assert {rule.rule.partition(" ")[0] for rule in rules} == {"linker", "policy"}


def test_why_nothing_was_measured() -> None:
    """The architectures that were, with the answer of one of them; or that the step was not."""
    few, other = ("nvjitlink", "ptx", "sm_80", "bbb"), ("nvjitlink", "ptx", "sm_90", "aaa")
    only, step = "sm_120 was not measured, only ", "PTX were not measured at the step 'nvjitlink'"
    for grids, arch, release, why in (
        ((few, other), "sm_120", V(13, 0), f"{only}sm_80, sm_90; for sm_90 it works"),
        ((few,), "sm_120", V(13, 0), f"{only}sm_80; for sm_80 it does not work"),
        ((few,), "sm_120", V(13, 1), f"{only}sm_80"),
        ((few,), "sm_80", V(13, 1), step),
        ((), "sm_80", V(13, 0), step),
    ):
        assert asked_in(measured(*grids), "nvjitlink", "ptx", arch, release).why == why


def test_what_is_documented() -> None:
    """Statements about the kind and the step, which say something about these releases; none about an unknown one."""
    for library, kind in (("nvjitlink", "ptx"), ("driver", "ptx"), ("nvjitlink", "ltoir"), ("driver", "linked-cubin")):
        told = asked_in(drawn(), library, kind)
        assert told.documented
        for statement, works in told.documented:
            assert told.question.kind in statement.kinds
            assert told.question.step in statement.steps
            assert works in (True, False)
    assert ask(V(13, 0), "nvjitlink", V(14, 0)).documented == ask(V(14, 0), "nvjitlink", V(13, 0)).documented == ()


def test_what_each_library_is_asked() -> None:
    """A driver loads an executable cubin, which nvJitLink is asked to link."""
    consumers = (Consumer("nvjitlink", V(13, 0)), Consumer("driver", V(13, 0)))
    steps = {
        kind: [asked.step for asked in questions(V(13, 0), consumers, kind, "sm_90")]
        for kind in ("linked-cubin", "cubin")
    }
    assert steps == {"linked-cubin": ["nvjitlink", "load"], "cubin": ["nvjitlink", "driver"]}


MADE_BY_A_NEWER = "its header says that CUDA 13.1 made it"
ONE_MAJOR = "LTO-IR is promised to work within one major version, into a linker that is not older"


@pytest.mark.parametrize(
    ("step", "kind", "producer", "consumer", "reasons"),
    [
        ("nvjitlink", "linked-cubin", V(13, 0), V(13, 0), ["it is linked already; load it as it is"]),
        ("driver", "ltoir", V(12, 0), V(12, 0), ["the linker gives no LTO-IR to a driver; nvJitLink links it"]),
        ("nvjitlink", "ltoir", V(13, 1), V(13, 0), [MADE_BY_A_NEWER, ONE_MAJOR]),
        ("driver", "cubin", V(13, 1), V(13, 0), [MADE_BY_A_NEWER]),
        ("load", "ptx", V(13, 0), V(12, 9),
         ["the driver does not run CUDA 13.0 (nvrtc library)", "nvJitLink 13.0 links"]),
        ("driver", "ptx", V(13, 0), V(12, 9), ["its header says that CUDA 13.0 made it", *["the driver links"] * 2]),
    ],
)  # fmt: skip
def test_why(step: str, kind: str, producer: CudaVersion, consumer: CudaVersion, reasons: list[str]) -> None:
    """Each rule says what it goes by; what other rules say after a colon is theirs."""
    assert [made.because.partition(": ")[0] for made in predictions(step, kind, producer, consumer)] == reasons
