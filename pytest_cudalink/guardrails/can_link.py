"""The answer to "my cubin is from 12.4, my nvJitLink is 13.2": measured, documented, expected, and what to do.

What is expected is what the linker's check of its inputs, the guard rails and the policies predict; each is asked
through the function that applies it. ``tools/atlas_differences.py`` finds where the atlas contradicts them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from ..base.finding import Finding, Severity
from ..base.install_command import install_command
from ..compat.atlas import TILE, Atlas, AtlasAnswer, columns
from ..compat.link_rules import ARCH, Statement, contents_of, expected, statements
from ..compat.releases import DRIVER_RELEASES, PTX_ISA
from ..environment.wheels import NVJITLINK, TILEIRAS
from ..linker.dispatch import Decision, explain, policies
from ..probes import FIRST_USABLE_NVJITLINK
from ..versions import CudaVersion, ranges
from .items import Item
from .pipelines import ARTIFACT_KINDS, Pipeline, check_pipeline
from .rules import KnownDriver, check_driver


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
        yield Prediction("driver rule", verdict.severity == "note", verdict.what)
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
        yield Prediction("guard rails", verdict.severity == "note", pipeline.because)


def _decision(policy: str, producer: CudaVersion, consumer: CudaVersion, *, lto: bool) -> Decision:
    usable = producer if producer >= FIRST_USABLE_NVJITLINK else None  # as the linker finds an older one
    return explain(consumer, usable, lto, lto, policy)


#: The libraries that read code, with their names in sentences.
LIBRARIES: Final = {"nvjitlink": "nvJitLink", "driver": "the driver of CUDA", "tileiras": "tileiras"}
_NAMES: Final = {
    "ptx": "PTX",
    "ltoir": "LTO-IR",
    "cubin": "relocatable cubins",
    "linked-cubin": "linked cubins",
    "fatbin-ptx": "fatbins with PTX",
    "fatbin-cubin": "fatbins with relocatable cubins",
    "fatbin-ltoir": "fatbins with LTO-IR",
    "nvvm-ltoir": "LTO-IR of NVRTC and libNVVM",
    "merged-cubin": "incrementally linked cubins",
    "merged-lto-cubin": "cubins of an incremental LTO link",
    "merged-ltoir": "linked LTO-IR",
    TILE: "Tile IR",
}
_REAL: Final = {"nvjitlink": "real-run", "driver": "real-driver", "load": "real-load"}


@dataclass(frozen=True)
class Consumer:
    """A library of a release that reads device code."""

    library: str  # "nvjitlink", "driver" or "tileiras"
    release: CudaVersion

    def __str__(self) -> str:
        return f"{LIBRARIES[self.library]} {self.release}"


@dataclass(frozen=True)
class Question:
    """Whether a consumer reads the code of a producer."""

    step: str  # the step of the atlas: "nvjitlink" and "driver" link, "load" loads, "tileiras" compiles
    kind: str
    arch: str
    producer: CudaVersion
    consumer: Consumer

    def sentence(self, *, works: bool) -> str:
        """Return the answer as a sentence."""
        verb = {"load": "load", "tileiras": "compile"}.get(self.step, "link")
        verb = f"{verb}s" if works else f"does not {verb}"
        gpu = f" for {self.arch}" if self.kind == TILE else ""
        return f"{self.consumer} {verb} {_NAMES[self.kind]} of CUDA {self.producer}{gpu}"


@dataclass(frozen=True, kw_only=True)
class Reply(Finding):
    """What is known about a question.

    `severity`: "note" if it works, "error" if it does not, "unknown" if that was not measured.
    `what`: the answer in one sentence.
    `why`: why nothing was measured, and what the rule extrapolates; empty if it was.
    `suggestion`: what works, nearest first; empty if the question's own way works.
    """

    question: Question
    answer: AtlasAnswer | None  # what was measured; None if it was not
    # what a real driver of the release answered, or what ran of the image; with driver and device
    hardware: tuple[tuple[str, AtlasAnswer], ...]
    documented: tuple[tuple[Statement, bool], ...]  # what NVIDIA documents about it, and whether it works by that
    rules: tuple[Prediction, ...]  # what the linker, the guard rails and the policies expect


def _key(question: Question) -> tuple[str, str, CudaVersion, CudaVersion]:
    return question.step, question.kind, question.producer, question.consumer.release


def questions(producer: CudaVersion, consumers: tuple[Consumer, ...], kind: str, arch: str) -> tuple[Question, ...]:
    """Return one question for each consumer. A driver links code, except an executable cubin, which it loads."""
    several = []
    for consumer in consumers:
        step = "load" if consumer.library == "driver" and kind == "linked-cubin" else consumer.library
        several.append(Question(step, kind, arch, producer, consumer))
    return tuple(several)


def reply(atlas: Atlas, question: Question) -> Reply:
    """Return what is known about a question."""
    answer = _ask(atlas, question)
    if answer is not None and answer.status == "not-made":
        why = f"CUDA {question.producer} cannot make {_NAMES[question.kind]} for {question.arch}"
        answer = None
    else:
        why = "" if answer else _why_not(atlas, question)
    asked = {works: question.sentence(works=works) for works in (False, True)}
    severity: Severity
    if answer is not None:
        severity, what = ("note", f"yes: {asked[True]}") if answer.works else ("error", f"no: {asked[False]}")
    else:
        guess = "" if question.kind == TILE else f"; by the rule alone, {asked[expected(*_key(question))]}"
        severity, what = "unknown", f"not known: {why}{guess}"
    return Reply(
        severity,
        what,
        why=why,
        suggestion=tuple(_instead(atlas, question)) if severity == "error" else (),
        question=question,
        answer=answer,
        hardware=tuple(_hardware(atlas, question)),
        documented=tuple(_documented(question)),
        rules=() if question.kind == TILE else _rules(question),
    )


def _ask(
    atlas: Atlas, question: Question, *, producer: object = None, consumer: object = None, step: str = ""
) -> AtlasAnswer | None:
    """Return the atlas's answer to a question, or to the same one about another release."""
    kind, step = question.kind, step or question.step
    made, read = str(producer or question.producer), str(consumer or question.consumer.release)
    answer = atlas.ask(made, read, kind, step, question.arch)
    if answer is None and kind == "linked-cubin":
        # the image that the producer's own nvJitLink linked is the linked cubin
        answer = atlas.ask(made, read, "cubin", step, question.arch)
    return answer


def _why_not(atlas: Atlas, question: Question) -> str:
    known = columns(question.step, atlas.releases, atlas.wheels, atlas.real)
    what = f" for {_NAMES[TILE]}" if question.kind == TILE else ""
    for release in (question.producer, question.consumer.release):
        if str(release) not in known:
            return f"CUDA {release} is not in the atlas, which has {ranges(map(CudaVersion.parse, known))}{what}"
    step = (question.step, question.kind)
    archs = tuple(dict.fromkeys(grid.arch for grid in atlas.grids if (grid.step, grid.kind) == step))
    if archs and question.arch not in archs:
        other = ARCH if ARCH in archs else archs[0]
        seen = atlas.ask(str(question.producer), str(question.consumer.release), question.kind, question.step, other)
        said = f"; for {other} it {'works' if seen.works else 'does not work'}" if seen else ""
        return f"{question.arch} was not measured, only {', '.join(archs)}{said}"
    return f"{_NAMES[question.kind]} were not measured at the step {question.step!r}"


def _documented(question: Question) -> Iterator[tuple[Statement, bool]]:
    """Yield the statements that say something about the pair; they know no release that has no PTX ISA here."""
    made, read = question.producer, question.consumer.release
    if made not in PTX_ISA or read not in PTX_ISA:
        return
    for statement in statements():
        if question.kind in statement.kinds and question.step in statement.steps:
            works = statement.predicts(made, read)
            if works is not None:
                yield statement, works


def _rules(question: Question) -> tuple[Prediction, ...]:
    """Return the predictions; of policies that take nvJitLink in place of the driver's linker, what the load gives."""
    rules = predictions(*_key(question))
    if question.step != "driver":
        return rules
    loads = predictions("load", question.kind, question.producer, question.consumer.release)
    return (*rules, *(rule for rule in loads if rule.rule.startswith("policy")))


def _hardware(atlas: Atlas, question: Question) -> list[tuple[str, AtlasAnswer]]:
    """Return what a real driver of the release answered, or what a GPU ran of what nvJitLink linked."""
    if question.step not in _REAL:
        return []
    linked = question.step == "nvjitlink"
    reals = [real for real in atlas.real if linked or real.cuda == str(question.consumer.release)]
    answer = _ask(atlas, question, step=_REAL[question.step]) if reals else None
    if answer is None or answer.status == "not-made":
        return []
    real = reals[0]
    how = "the image ran with " if linked else ""
    return [(f"{how}driver {real.driver}, {real.device}, {real.date}", answer)]


def _instead(atlas: Atlas, question: Question) -> list[str]:
    """Return what works: without the driver's linker, with the nearest consumer, with the nearest producer."""
    ways_out = []
    library = question.consumer.library
    if question.step == "nvjitlink" and question.kind == "linked-cubin":
        return ["load it as it is, or compile it as relocatable device code"]
    if question.step == "driver":
        loads = atlas.ask(str(question.producer), str(question.consumer.release), question.kind, "load", question.arch)
        if loads is not None and loads.works:
            ways_out.append(f"link it with nvJitLink {question.producer}: {question.consumer} loads the image")
    consumer = _nearest(atlas, question.consumer.release, lambda release: _ask(atlas, question, consumer=release))
    if consumer:
        later = [release for release in atlas.releases if CudaVersion.parse(str(release)) > consumer]
        answers = [_ask(atlas, question, consumer=release) for release in later]
        newer = all(answer is not None and answer.works for answer in answers)
        more = " or newer" if newer and consumer > question.consumer.release else ""
        packages = {"nvjitlink": NVJITLINK[consumer.major == 12], "tileiras": TILEIRAS}
        wanted = f"{packages[library]}=={consumer}.*" if library in packages else ""
        how = f": {install_command(wanted)}" if wanted else ""
        ways_out.append(f"take {Consumer(library, consumer)}{more}{how}")
    producer = _nearest(atlas, question.producer, lambda release: _ask(atlas, question, producer=release))
    if producer:
        ways_out.append(f"{'write bytecode of' if question.kind == TILE else 'compile with'} CUDA {producer}")
    if question.kind == TILE and not ways_out:
        own = str(question.consumer.release)
        archs = [grid.arch for grid in atlas.grids if grid.kind == TILE]
        answers = [atlas.ask(own, own, TILE, question.step, arch) for arch in archs]
        known = ", ".join(arch for arch, said in zip(archs, answers, strict=True) if said is not None and said.works)
        ways_out.append(f"compile for a GPU that it knows: {known}")
    return ways_out


def _nearest(atlas: Atlas, start: CudaVersion, ask: Callable[[CudaVersion], AtlasAnswer | None]) -> CudaVersion | None:
    """Return the nearest release for which the answer is that it works; of two, the newer one."""
    releases = [CudaVersion.parse(str(release)) for release in atlas.releases]
    here = releases.index(start)
    for other in sorted(releases, key=lambda release: (abs(releases.index(release) - here), -releases.index(release))):
        answer = ask(other)
        if answer is not None and answer.works:
            return other
    return None
