"""``cudalink can-link``."""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from .. import probes
from ..artifacts import ReaderError, inspect
from ..base.finding import exit_code_of
from ..base.regular_files import DATA, read_bounded
from ..base.safe_text import line as safe
from ..base.words import counted, did_you_mean
from ..compat.architectures import parse_architecture
from ..compat.atlas import KINDS, TILE, Atlas, load
from ..compat.link_rules import ARCH, found_words
from ..compat.releases import driver_named, not_a_branch
from ..guardrails.can_link import LIBRARIES, Consumer, Reply, questions
from ..guardrails.can_link import reply as reply_to
from ..versions import FIRST_BRANCH, NUMBERS, CudaVersion
from .arguments import CommandError, offer, wrong_file

DESCRIPTION: Final = (
    "Answer whether one CUDA release links code that another release made, from the atlas, which has measurements of "
    "every pair of releases. Show the library's answer, NVIDIA's documentation, the expectation of the linker, the "
    "guard rails and the policies, and what to do instead. "
    "Exit code 0: every consumer takes the code; 1: a consumer does not; 2: a consumer is not known."
)
_PREFIX: Final = "nvrtc-"
_THIS: Final = "this"
_VERDICTS: Final = {True: "works", False: "does not work"}
#: The fields of a documented statement that --json gives.
_OF_STATEMENT: Final = ("name", "says", "source", "url", "verified")


@dataclass(frozen=True)
class _Code:
    """The code that is asked about: its release, kind and architecture."""

    release: CudaVersion
    kind: str
    arch: str
    heading: str = ""  # says where these were read; empty for words


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    producer = parser.add_argument(
        "producer",
        nargs="?",
        metavar="PRODUCER",
        help="name the CUDA release that made the code, such as 12.4 or nvrtc-12.4, or give a file of device code",
    )
    offer(producer, lambda _: _releases())
    consumer = parser.add_argument(
        "consumer",
        nargs="?",
        metavar="CONSUMER",
        help="name the library that reads the code: nvjitlink-13.2, driver-12.8, 13.2 for both, or this for both of "
        "this environment; tileiras-13.4 for Tile IR",
    )
    offer(consumer, lambda _: _consumers())
    kind = parser.add_argument(
        "kind",
        nargs="?",
        metavar="KIND",
        help="choose the kind of code, unless PRODUCER is a file: ptx, ltoir, cubin (relocatable), linked-cubin, "
        "fatbin-ptx, fatbin-cubin, fatbin-ltoir, nvvm-ltoir (of libNVVM), merged-cubin, merged-lto-cubin or "
        "merged-ltoir (linked by -r), or tileir",
    )
    offer(kind, lambda _: KINDS)
    arch = parser.add_argument("--arch", metavar="ARCH", help="link for this GPU (default: the file's, or sm_90)")
    offer(arch, lambda _: dict.fromkeys(grid.arch for grid in load().grids))
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Answer for every consumer; return the exit code."""
    code = _code(options)
    consumers = _read_consumers(options.consumer, code.kind)
    atlas = load()
    replies = [reply_to(atlas, question) for question in questions(code.release, consumers, code.kind, code.arch)]
    if options.json:
        sys.stdout.write(json.dumps(_data(atlas, code, replies), indent=1) + "\n")
    else:
        if code.heading:
            sys.stdout.write(f"{safe(code.heading)}\n\n")
        sys.stdout.write("\n".join("".join(f"{safe(line)}\n" for line in _lines(atlas, reply)) for reply in replies))
    return exit_code_of(reply.severity for reply in replies)


# --- arguments


def _check_words(options: argparse.Namespace) -> None:
    """Raise an error if words are missing, or KIND or --arch is not known."""
    if options.consumer is None:
        missing = "CONSUMER is" if options.producer else "PRODUCER and CONSUMER are"
        raise CommandError(f"{missing} missing; expected words such as 12.4 nvjitlink-13.2 ltoir")
    options.kind = options.kind and options.kind.lower()
    if options.kind is not None and options.kind not in KINDS:
        msg = f"KIND is {options.kind!r}; expected {', '.join(KINDS)}{did_you_mean(options.kind, KINDS, 3)}"
        raise CommandError(msg)
    if options.arch is not None:
        try:
            parse_architecture(options.arch)
        except ValueError as error:
            raise CommandError(f"--arch: {error}") from error


def _code(options: argparse.Namespace) -> _Code:
    _check_words(options)
    text: str = options.producer
    if _is_release(text.removeprefix(_PREFIX)):
        release = _release(text.removeprefix(_PREFIX), "PRODUCER")
        if options.kind is None:
            raise CommandError(f"KIND is missing; expected {', '.join(KINDS)}; a file of device code needs none")
        return _Code(release, options.kind, options.arch or ARCH)
    if not text or "\0" in text:
        raise CommandError(f"PRODUCER is {text!r}; expected a CUDA release such as 12.4, or a file of device code")
    return _of_file(Path(text), options.kind, options.arch)


def _is_release(text: str) -> bool:
    return NUMBERS.fullmatch(text) is not None


def _release(text: str, argument: str) -> CudaVersion:
    try:
        return not_a_branch(text)
    except ValueError as error:
        raise CommandError(f"{argument}: {error}") from error


def _of_file(path: Path, kind: str | None, arch: str | None) -> _Code:
    """Return what the headers in a file say."""
    expected = "a CUDA release such as 12.4, or a file of device code"
    if wrong := wrong_file(path, expected):
        raise CommandError(f"PRODUCER {wrong}{did_you_mean(str(path), _releases(), 3)}")
    try:
        artifact = inspect(read_bounded(path, DATA))
    except (OSError, ReaderError) as error:
        raise CommandError(f"{path} cannot be read: {safe(error)}; expected {expected}") from error
    leaves = list(artifact.leaves)
    if artifact.problems:
        why = f"{path} cannot be judged: {artifact.problems[0]}"
        raise CommandError(f"{why}; expected PTX, LTO-IR, a cubin, or a file that contains them")
    # a packed image does not say its release
    telling = [leaf for leaf in leaves if leaf.producer or leaf.needs] or leaves
    leaf = next((answer for answer in telling if answer.arch == arch), telling[0])
    inside = "linked-cubin" if leaf.kind == "cubin" and leaf.relocatable is False else str(leaf.kind)
    own = inside if leaf is artifact or inside in ("linked-cubin", TILE) else f"fatbin-{inside}"
    release = leaf.producer or (leaf.needs.version if leaf.needs and not leaf.needs.newer_than else None)
    if release is None:
        silent = f"{path} ({artifact.describe()}) does not say which release made it"
        raise CommandError(f"{silent}; expected one that does; name a release")
    if kind is not None and kind != own:
        raise CommandError(f"KIND is {kind!r}, but {path} is {own} ({leaf.describe()}); leave KIND out")
    named = (leaf.arch or ARCH).replace("compute_", "sm_")
    parts = "" if len(leaves) == 1 else f", one of {counted(len(leaves), 'image')} in it"
    return _Code(release, own, arch or named, f"{path}: {leaf.describe()}{parts}; asked as {own} of CUDA {release}")


def _read_consumers(text: str, kind: str) -> tuple[Consumer, ...]:
    if (kind == TILE) != text.startswith("tileiras-"):
        msg = f"CONSUMER is {text!r}; only tileiras-RELEASE, such as tileiras-13.4, reads Tile IR, and nothing else"
        raise CommandError(msg)
    if text == _THIS:
        return _installed()
    library, dash, release = text.rpartition("-")
    if dash and library not in LIBRARIES:
        msg = (
            f"CONSUMER is {text!r}; expected {' or '.join(f'{name}-RELEASE' for name in LIBRARIES)}, a release or this"
        )
        raise CommandError(f"{msg}{did_you_mean(text, _consumers(), 3)}")
    if not _is_release(release):
        msg = f"CONSUMER is {text!r}; expected a release such as 13.2, nvjitlink-13.2, driver-13.2 or this"
        raise CommandError(f"{msg}{did_you_mean(text, _consumers(), 3)}")
    version = _driver(release) if library == "driver" else _release(release, "CONSUMER")
    return tuple(Consumer(name, version) for name in ((library,) if dash else ("nvjitlink", "driver")))


def _driver(text: str) -> CudaVersion:
    """Return the CUDA version of a driver, by its number or by the driver's release; one that is not known, too."""
    version = CudaVersion.parse(text)
    if version.major < FIRST_BRANCH and text.count(".") < 2:
        return version
    try:
        return driver_named(text)
    except ValueError as error:
        raise CommandError(f"CONSUMER: {error}") from error


def _installed() -> tuple[Consumer, ...]:
    """Return the nvJitLink and the driver of this environment."""
    try:
        faked = probes.fakes().fakes_nvjitlink
        nvjitlink = probes.nvjitlink_version() if faked else probes.nvjitlink().found
        versions = {"nvjitlink": nvjitlink, "driver": probes.driver_version()}
    except (RuntimeError, OSError) as error:
        msg = f"CONSUMER is this, but its libraries cannot be asked: {safe(error)}; run: cudalink doctor"
        raise CommandError(msg) from error
    there = tuple(Consumer(name, release) for name, release in versions.items() if release is not None)
    if not there:
        msg = "CONSUMER is this, but there is neither an nvJitLink nor a driver here; name a release, such as 13.2"
        raise CommandError(msg)
    return there


def _releases() -> list[str]:
    return list(map(str, load().releases))


def _consumers() -> list[str]:
    releases = _releases()
    return [_THIS, *releases, *(f"{name}-{release}" for name in LIBRARIES for release in releases)]


# --- output


def _lines(atlas: Atlas, reply: Reply) -> Iterable[str]:
    """Yield the answer, then a line for each source."""
    yield reply.what
    rows: list[tuple[str, str]] = []
    if reply.answer is not None:
        rows.append(("measured", f"{found_words(reply.answer)} ({_measured_by(atlas, reply)})"))
    rows += [("hardware", f"{found_words(answer)} ({device})") for device, answer in reply.hardware]
    rows += [
        ("documented", f"{_VERDICTS[works]}: {said.says} ({said.cited}, {said.url})")
        for said, works in reply.documented
    ] or [("documented", "nothing")]
    rows += [("expected", f"{rule.rule}: {_VERDICTS[rule.works]}; {rule.because}") for rule in reply.rules]
    rows += [("instead", text) for text in reply.suggestion]
    shown = ""
    for label, text in rows:
        yield f"  {label if label != shown else '':<10}  {text}"
        shown = label


def _measured_by(atlas: Atlas, reply: Reply) -> str:
    question = reply.question
    wheels = atlas.wheels
    made, read = str(question.producer), str(question.consumer.release)
    when = f"{atlas.measured['date']}, {atlas.measured['command']}"
    if question.step == "tileiras":
        return f"tileiras {wheels[read]['tileiras']}, {question.arch}, {when}"
    library = (
        f"nvJitLink {wheels[read]['nvjitlink']}" if question.step == "nvjitlink" else f"emulated driver of CUDA {read}"
    )
    return f"{library}, NVRTC {wheels[made]['nvrtc']}, {question.arch}, {when}"


def _data(atlas: Atlas, code: _Code, replies: list[Reply]) -> dict[str, Any]:
    return {
        "producer": str(code.release),
        "kind": code.kind,
        "arch": code.arch,
        "measured": dict(atlas.measured),
        "answers": [
            {
                "consumer": reply.question.consumer.library,
                "release": str(reply.question.consumer.release),
                "step": reply.question.step,
                "severity": reply.severity,
                "what": reply.what,
                "why": reply.why,
                "suggestion": list(reply.suggestion),
                "works": None if reply.answer is None else reply.answer.works,
                "answer": None if reply.answer is None else asdict(reply.answer),
                "hardware": [{"device": device, **asdict(answer)} for device, answer in reply.hardware],
                "documented": [
                    {"works": works, **{name: getattr(said, name) for name in _OF_STATEMENT}}
                    for said, works in reply.documented
                ],
                "expected": [asdict(rule) for rule in reply.rules],
            }
            for reply in replies
        ],
    }
