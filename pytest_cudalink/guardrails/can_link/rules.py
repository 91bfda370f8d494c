"""What each rule predicts for a pair of releases.

The rules are the linker's check of its inputs, the guard rails and the policies; each is asked through the function
that applies it. ``tools/atlas_differences.py`` finds where the atlas contradicts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ...compat.link_rules import contents_of, expected
from ...compat.releases import DRIVER_RELEASES
from ...linker.dispatch import Decision, explain, policies
from ...probes import FIRST_USABLE_NVJITLINK
from ...versions import CudaVersion
from ..items import Item
from ..pipelines import ARTIFACT_KINDS, Pipeline, check_pipeline
from ..rules import KnownDriver, check_driver


@dataclass(frozen=True)
class Prediction:
    """What a rule expects of a link or a load."""

    rule: str  # "linker", "guard rails", "driver rule" or "policy NAME"
    works: bool
    because: str  # the rule's reason


@cache
def predictions(step: str, kind: str, producer: CudaVersion, consumer: CudaVersion) -> tuple[Prediction, ...]:
    """Return the prediction of each rule that applies to a step.

    `step`, `kind`: as in the atlas. At ``"load"``, nvJitLink of the producer's release made the image.
    """
    return tuple(_predictions(step, kind, producer, consumer))


def _predictions(step: str, kind: str, producer: CudaVersion, consumer: CudaVersion) -> Iterator[Prediction]:
    works = expected(step, kind, producer, consumer)
    if step == "nvjitlink" and consumer < FIRST_USABLE_NVJITLINK:
        because = f"nvJitLink before {FIRST_USABLE_NVJITLINK} counts as absent, as cuda-bindings cannot call it"
        yield Prediction("linker", works=False, because=because)
    elif step in ("nvjitlink", "driver", "real-driver"):
        yield Prediction("linker", works, _linker_reason(step, kind, producer, works=works))
    if step == "nvjitlink":
        yield from _guard_rails(contents_of(kind), producer, consumer)
        return
    if step in ("load", "real-load"):
        item = _item("nvrtc", producer)
        verdict = check_driver(item, KnownDriver(consumer, DRIVER_RELEASES.get(consumer)))
        yield Prediction("driver rule", verdict.status == "compatible", verdict.message)
    lto = contents_of(kind) == "ltoir"
    for name in policies():
        decision = _decision(name, producer, consumer, lto=lto)
        if decision.backend is None:
            # the policy rejects the job: it predicts that neither way works, which the load can contradict
            if step in ("load", "real-load"):
                yield Prediction(f"policy {name}", works=False, because=f"an error: {decision.because}")
        elif (decision.backend == "driver") == (step in ("driver", "real-driver")):
            driver = decision.backend == "driver"
            linker = "the driver" if driver else f"nvJitLink {producer}"
            because = f"{linker} links: {decision.because}"
            yield Prediction(f"policy {name}", works=works if driver else True, because=because)


def _linker_reason(step: str, kind: str, producer: CudaVersion, *, works: bool) -> str:
    if works:
        return "its header asks for no newer release"
    inside = contents_of(kind)
    if inside == "linked-cubin":
        return "it is linked already; load it as it is"
    if inside == "ltoir" and step != "nvjitlink":
        return "the linker gives no LTO-IR to a driver; nvJitLink links it"
    return f"its header says that CUDA {producer} made it"


def _item(name: str, version: CudaVersion) -> Item:
    return Item("dynamic-libs", name, "", "toolchain", "ctk", version, "the question")


def _guard_rails(kind: str, producer: CudaVersion, consumer: CudaVersion) -> Iterator[Prediction]:
    if kind not in ARTIFACT_KINDS:
        return
    pipeline = Pipeline("nvrtc", "nvJitLink", kind)
    if pipeline.relation != "any":  # else the header decides, as the linker's check has it
        verdict = check_pipeline(pipeline, _item("nvrtc", producer), _item("nvJitLink", consumer))
        yield Prediction("guard rails", verdict.status == "compatible", pipeline.because)


def _decision(policy: str, producer: CudaVersion, consumer: CudaVersion, *, lto: bool) -> Decision:
    usable = producer if producer >= FIRST_USABLE_NVJITLINK else None  # as the linker finds an older one
    return explain(consumer, usable, lto, lto, policy)
