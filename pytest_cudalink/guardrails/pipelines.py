"""Pipelines: which releases of a library may read what another one writes."""

from dataclasses import dataclass
from typing import Any, Final

from ..base.finding import Severity
from ..compat.link_rules import ARCH, RELATIONS, evidence
from ..versions import Needs, skew_remedy
from .items import ALREADY_LOADED, Item, Verdict, compatible, component_table
from .repair import remedies

#: The kinds of artifacts that a library may pass to another one.
ARTIFACT_KINDS: Final = ("ltoir", "ptx", "elf", "cubin")
#: The producer and consumer of which the atlas has every pair of releases.
_MEASURED: Final = ("nvrtc", "nvJitLink")


@dataclass(frozen=True)
class Pipeline:
    """A kind of artifact that one library writes and another one reads.

    Raises ValueError if the kind is unknown, or there is no rule for the pair.
    """

    producer: str  # names of dynamic libraries, such as "nvrtc" and "nvJitLink"
    consumer: str
    artifact_kind: str  # one of `ARTIFACT_KINDS`

    def __post_init__(self) -> None:
        """Refuse a pipeline that no rule covers."""
        if self.artifact_kind not in ARTIFACT_KINDS:
            msg = f"artifact kind {self.artifact_kind!r} has no pipeline rule; known: {', '.join(ARTIFACT_KINDS)}"
            raise ValueError(msg)
        self._row()

    def _row(self) -> dict[str, Any]:
        rows: list[dict[str, Any]] = component_table()["pipelines"]
        for row in rows:
            ends = ((row["producer"], self.producer), (row["consumer"], self.consumer))
            if all(wanted in ("*", name) for wanted, name in ends) and self.artifact_kind in row["kinds"]:
                return row
        known = ", ".join(f"{row['producer']} -> {row['consumer']}" for row in rows)
        msg = f"there is no rule for a pipeline {self.producer!r} -> {self.consumer!r}; known: {known} (* is any)"
        raise ValueError(msg)

    @property
    def relation(self) -> str:
        """``"exact"``, ``"same-major"`` or ``"any"``."""
        return str(self._row()["relation"])

    @property
    def because(self) -> str:
        """The reason of the rule."""
        return str(self._row()["because"])

    def __str__(self) -> str:
        return f"{self.artifact_kind} from {self.producer} to {self.consumer}"


def check_pipeline(pipeline: Pipeline, producer: Item, consumer: Item) -> Verdict:
    """Whether the consumer's release may read what the producer's release writes."""
    made, read = producer.version, consumer.version
    if made is None or read is None:
        return compatible("pipeline", f"{pipeline}: not judged, a release is not known", producer, consumer)
    if RELATIONS[pipeline.relation](made, read):
        text = f"{pipeline}: CUDA {made} into CUDA {read} ({pipeline.relation})"
        return compatible("pipeline", text, producer, consumer)
    if pipeline.relation == "same-major" and made.major == read.major:
        words = skew_remedy(Needs(made), read)
    else:
        words = f"linker is of CUDA {read}; {pipeline.because}"
    severity: Severity = "error"
    if (pipeline.producer, pipeline.consumer) == _MEASURED:
        from ..compat.atlas import load  # a pipeline that holds reads none

        words += f" ({evidence('nvjitlink', pipeline.artifact_kind, made, read)})"
        answer = load().ask(made, read, pipeline.artifact_kind, "nvjitlink", ARCH)
        severity = "warning" if answer is not None and answer.works else severity
    ends: tuple[Item, ...] = (producer, consumer)
    release = max(made, read)
    loaded = [end.version for end in ends if end.found_via == ALREADY_LOADED and end.version]
    if producer.kind == "artifacts":  # it exists already: only its reader can be replaced
        ends, release = (consumer,), made
    elif len(loaded) == 1:
        release = loaded[0]
    text = f"{pipeline}: made by CUDA {made}, {words}"
    return Verdict(severity, text, *remedies(ends, release), evidence=(producer, consumer), kind="pipeline")
