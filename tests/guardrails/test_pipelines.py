"""What one library makes and another one reads."""

from __future__ import annotations

import pytest

from pytest_cudalink.guardrails.items import ALREADY_LOADED, Item
from pytest_cudalink.guardrails.pipelines import ARTIFACT_KINDS, Pipeline, check_pipeline
from pytest_cudalink.guardrails.relations import libraries_by_name
from pytest_cudalink.guardrails.rules import KnownDriver, judge
from pytest_cudalink.versions import CudaVersion

NEW = KnownDriver(CudaVersion(99, 0))


def item(name: str, version: str | None, kind: str = "dynamic-libs", *, of: str = "ctk", via: str = "site-packages"):
    release = CudaVersion.parse(version) if version else None
    return Item(kind, name, f"/{via}/{version}/{kind}/{name}", via, of, release, "as the test says")


@pytest.mark.parametrize(
    ("producer", "consumer", "kind", "made", "read", "fine"),
    [
        ("nvrtc", "nvJitLink", "ltoir", "13.0", "13.0", True),
        ("nvrtc", "nvJitLink", "ltoir", "13.0", "13.2", True),
        ("nvrtc", "nvJitLink", "ltoir", "13.2", "13.0", False),
        ("nvrtc", "nvJitLink", "ltoir", "12.9", "13.0", False),
        ("nvrtc", "nvJitLink", "ltoir", "13.0", "12.9", False),
        *[("nvrtc", "nvJitLink", kind, "13.2", "12.9", True) for kind in ("ptx", "elf", "cubin")],
        *[("nvvm", "nvJitLink", kind, "13.0", "13.2", False) for kind in ARTIFACT_KINDS],
        *[("nvrtc", "nvvm", kind, "13.0", "13.2", False) for kind in ARTIFACT_KINDS],
        *[("nvvm", "nvJitLink", kind, "13.2", "13.2", True) for kind in ARTIFACT_KINDS],
    ],
)
def test_pipelines(producer, consumer, kind, made, read, fine: bool) -> None:
    """NVVM wants the exact release; NVRTC into nvJitLink: LTO-IR the same major, not newer; the rest always."""
    pipeline = Pipeline(producer, consumer, kind)
    ends = item(producer, made), item(consumer, read)
    expected = "compatible" if fine else "incompatible"
    assert check_pipeline(pipeline, *ends).status == expected
    for first, second in (ends, ends[::-1]):
        assert judge(second, [first], driver=NEW, pipelines=[pipeline]).status == expected


def test_what_was_looked_up_is_what_a_pipeline_means() -> None:
    """A copy that somebody else loaded later does not take the place of the one that was looked up."""
    pipeline = Pipeline("nvrtc", "nvJitLink", "ltoir")
    nvjitlink = item("nvJitLink", "13.0")
    strange = item("nvJitLink", "12.5", via=ALREADY_LOADED)
    verdict = judge(item("nvrtc", "13.0"), [nvjitlink, strange], driver=NEW, pipelines=[pipeline])
    assert verdict.status == "compatible"
    assert libraries_by_name([nvjitlink, strange]) == {"nvJitLink": nvjitlink}


@pytest.mark.parametrize("loaded", [0, 1])
def test_a_pipeline_is_repaired_to_what_is_loaded(loaded: int) -> None:
    """An end that somebody else loaded cannot be exchanged: the other one has to be of its release."""
    ends = [item("nvrtc", "13.2"), item("nvJitLink", "13.0")]
    ends[loaded] = item(ends[loaded].name, str(ends[loaded].version), via=ALREADY_LOADED)
    verdict = check_pipeline(Pipeline("nvrtc", "nvJitLink", "ltoir"), *ends)
    assert f"=={ends[loaded].version}.*" in verdict.fix


@pytest.mark.parametrize("kind", ["fatbin", "LTOIR", ""])
def test_pipeline_kinds(kind: str) -> None:
    """A kind that has no rule is a ValueError that lists those that have."""
    with pytest.raises(ValueError, match="known: ltoir, ptx, elf, cubin"):
        Pipeline("nvrtc", "nvJitLink", kind)


def test_unknown_pipeline() -> None:
    """So is a pair."""
    with pytest.raises(ValueError, match="'nvrtc' -> 'cublas'; known: nvvm -> "):
        Pipeline("nvrtc", "cublas", "ptx")


def test_too_new_ltoir_speaks_as_the_linker_does() -> None:
    """The pipeline rule and the linker's own error share their words."""
    verdict = check_pipeline(Pipeline("nvrtc", "nvJitLink", "ltoir"), item("nvrtc", "13.2"), item("nvJitLink", "13.0"))
    assert verdict.message.endswith(
        "made by CUDA 13.2, linker understands up to 13.0: install 'nvidia-nvjitlink>=13.2', "
        "or compile with CUDA 13.0 or older"
    )
