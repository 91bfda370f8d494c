"""Every rule against every cell of the atlas: no contradiction without a reason, and no reason without one."""

from __future__ import annotations

import pytest

from pytest_cudalink.compat import atlas
from pytest_cudalink.guardrails import can_link
from pytest_cudalink.linker.dispatch import policies
from pytest_cudalink.versions import CudaVersion
from tools import atlas_differences


@pytest.fixture(scope="module")
def found() -> list[atlas_differences.Contradiction]:
    return list(atlas_differences.contradictions(atlas.load()))


def test_every_contradiction_has_a_reason(found: list[atlas_differences.Contradiction]) -> None:
    """A rule that the measurement contradicts is changed, or a row of contradictions.toml says why it stays."""
    assert found
    assert sorted({str(one) for one in found if one.reason is None}) == []


def test_every_reason_has_a_contradiction(found: list[atlas_differences.Contradiction]) -> None:
    """A row that nothing contradicts any more is removed, and each of its rules, steps and kinds is needed."""
    for row in atlas_differences.reasons():
        covered = [one for one in found if one.reason == row]
        assert {one.prediction.rule for one in covered} == set(row.rules), row
        assert {one.step.removeprefix("real-") for one in covered} == set(row.steps), row
        assert set(row.kinds) <= {kind for one in covered for kind in row.kinds_of(one)}, row


def test_only_released_allows_what_nvjitlink_and_drivers_refuse(found: list[atlas_differences.Contradiction]) -> None:
    """A rule of ours that allows what fails is one of the policy that copies cuda.core, or has a row of its own."""
    unsafe = {one.prediction.rule for one in found if one.prediction.works and one.step in ("nvjitlink", "load")}
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

    (one,) = atlas_differences.contradictions(drawn)

    assert one.reason is None
    assert str(one) == "linker allows what fails: nvjitlink, ptx, 13.0 -> 13.1, sm_90"


@pytest.mark.parametrize(
    ("step", "kind", "producer", "consumer", "expected"),
    [
        ("nvjitlink", "ltoir", "12.9", "13.0", {"linker": True, "guard rails": False}),
        ("nvjitlink", "ptx", "13.2", "13.0", {"linker": False}),
        ("nvjitlink", "ptx", "12.0", "12.2", {"linker": False}),
        ("nvjitlink", "linked-cubin", "13.0", "13.0", {"linker": False}),
        (
            "load",
            "ltoir",
            "12.9",
            "13.0",
            {
                "driver rule": True,
                "policy strict-major": False,
                "policy newer-driver-ok": True,
                "policy released": True,
            },
        ),
        (
            "load",
            "ltoir",
            "12.2",
            "12.2",
            {"driver rule": True} | dict.fromkeys((f"policy {name}" for name in policies()), False),
        ),
        ("load", "ptx", "13.0", "12.9", {"driver rule": False, "policy released": True}),
        (
            "driver",
            "ptx",
            "13.0",
            "12.9",
            {"linker": False, "policy strict-major": False, "policy newer-driver-ok": False},
        ),
    ],
)
def test_predictions(step: str, kind: str, producer: str, consumer: str, expected: dict[str, bool]) -> None:
    """Each rule that applies to a step has its prediction, with its reason."""
    made = can_link.predictions(step, kind, CudaVersion.parse(producer), CudaVersion.parse(consumer))
    assert {one.rule: one.works for one in made} == expected
    assert all(one.because for one in made)
