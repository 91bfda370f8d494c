"""The grade of a recorded driver: which samples it passes, and how its answers differ from those of another driver.

Answers of two drivers are compared without what no two machines share.
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ...base.regular_files import DATA, read_text
from ...base.tables import grouped, read_table
from ...base.words import counted
from ...versions import CudaVersion
from .execute import NOT_READY, Answer, Program
from .record import RECORDED, DriverQuestion, RecorderError, load, questions, versions

#: Functions whose differences are shown.
_SHOWN: Final = 12
_FUNCTIONS: Final = {name: words.split() for name, words in read_table("recorder/functions.toml").items()}
CONTEXT_CHANGING: Final = frozenset(_FUNCTIONS["changes_context"])
LAUNCHES: Final = frozenset(_FUNCTIONS["launches"])
#: Functions that end handles, with the position of the argument that has the handle.
ENDS: Final = dict.fromkeys(_FUNCTIONS["ends_first"], 0) | dict.fromkeys(_FUNCTIONS["ends_second"], 1)
#: Those that end a context, and with it the modules and functions that are in it.
_CONTEXT_ENDS: Final = ("cuCtxDestroy_v2", "cuCtxDetach", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset_v2")
#: Functions whose handles lie in the object that they are given: functions of a module, nodes of a graph.
_LOOKS_UP: Final = re.compile(
    r"Get(Function|Kernel|Module|Library|Global|Level|Plane)|Enumerate|GraphAdd|GetNodes|GetRoot"
)


@dataclass(frozen=True)
class Difference:
    """A call that the two drivers answer otherwise."""

    seed: int
    call: int  # its number in the program
    symbol: str
    real: str  # codes, or where these are equal the values
    ours: str


@dataclass
class Result:
    """The comparison of one program."""

    seed: int
    theme: str
    counted: int = 0
    equal: int = 0
    left_out: int = 0
    differences: list[Difference] = field(default_factory=list)


def references(argument: Any) -> Iterator[int]:
    """Yield the numbers of the calls whose values an argument uses."""
    if isinstance(argument, str):
        if argument[:1] == "$":
            yield int(argument[1:].partition("+")[0].partition(".")[0])
    elif isinstance(argument, list):
        for element in argument:
            yield from references(element)
    elif isinstance(argument, dict):
        for element in argument.values():
            yield from references(element)


def _dead(program: Program) -> list[tuple[set[int], set[int], set[int]]]:
    """For each call the earlier calls whose handles were destroyed by then, and those whose handles lay in them.

    The third are those whose handles may lie in a context that was destroyed, reset or released.
    """
    destroyed: set[int] = set()
    inside: set[int] = set()
    lost: set[int] = set()
    dead = []
    for number, call in enumerate(program):
        dead.append((set(destroyed), set(inside), set(lost)))
        if call[0] in _CONTEXT_ENDS:
            lost |= {earlier for earlier, before in enumerate(program[:number]) if _LOOKS_UP.search(before[0])}
        ended = set(references(call[ENDS[call[0]] + 1 : ENDS[call[0]] + 2])) if call[0] in ENDS else set()
        if ended - destroyed:
            destroyed |= ended
            for earlier, before in enumerate(program[:number]):
                if _LOOKS_UP.search(before[0]) and (destroyed | inside) & set(references(before[1:])):
                    inside.add(earlier)
            inside -= destroyed
    return dead


def _alike(real: Any, ours: Any, dead: set[int]) -> bool:
    """Whether values are equal; the name of a handle that is gone equals any: addresses come back by chance."""
    if isinstance(real, list) and isinstance(ours, list):
        return len(real) == len(ours) and all(_alike(*pair, dead) for pair in zip(real, ours, strict=True))
    named = [name for name in (real, ours) if isinstance(name, str) and name[:1] == "="]
    return real == ours or any(int(name[1:].partition(".")[0]) in dead for name in named)


def compare(  # noqa: C901 (the rules of what counts, in their order)
    seed: int, theme: str, program: Program, real: list[Answer], ours: list[Answer]
) -> Result:
    """Return the comparison of one program's answers."""
    result = Result(seed, theme)
    program = [[symbol.partition("@")[0], *arguments] for symbol, *arguments in program]  # in whichever thread
    dead = _dead(program)
    spoilt: set[int] = set()
    for number, call in enumerate(program):
        theirs = real[number] if number < len(real) else None
        own = ours[number] if number < len(ours) else None
        if theirs and theirs[0] == "signal":
            # the real driver died: whatever an emulated one answers is better
            break
        needed = {reference for argument in call[1:] for reference in references(argument)}
        if needed & (spoilt | dead[number][1]):
            # a handle that lay in a destroyed object may be alive again by chance, as an address that came back
            spoilt.add(number)
            result.left_out += 1
            if call[0] in CONTEXT_CHANGING:
                break
            continue
        if theirs is None or own is None:
            spoilt.add(number)
            result.left_out += 1
            if number >= len(real) or number >= len(ours):
                break
            continue
        launched = call[0] in LAUNCHES and theirs[0] == 0 and own[0] == 801
        slower = theirs[0] == NOT_READY and own[0] == 0 and theme != "order"
        faster = theirs[0] == 0 and own[0] == NOT_READY and theme == "programs"
        if launched or slower or faster:
            # how fast hardware is; work of an emulated driver without gates is done when a call returns
            result.left_out += 1
            continue
        result.counted += 1
        # values count only where the call succeeded
        if theirs[0] == own[0] and (theirs[0] != 0 or _alike(theirs, own, set().union(*dead[number]))):
            result.equal += 1
            continue
        codes = theirs[0] != own[0]
        shown = [json.dumps(answer[1:]) for answer in (theirs, own)]
        if codes:
            shown = [str(theirs[0]), str(own[0] if own[0] != "signal" else own[1])]
        result.differences.append(Difference(seed, number, call[0], *shown))
        spoilt.add(number)
        if codes:
            # one driver changed its handles and the other did not
            spoilt |= needed
            if call[0] in CONTEXT_CHANGING or own[0] == "signal":
                break
    return result


@dataclass
class Grade:
    """How a driver answered."""

    # the must-pass questions that it does not pass, each with its first wrong answer
    failed: dict[str, str] = field(default_factory=dict)
    passed: int = 0
    # the comparison with the other driver, a result for each program
    results: list[Result] = field(default_factory=list)
    lost: int = 0  # questions without an answer: the time was over, or the process ended
    # answers of the other driver that were not compared: they depend on an answer that differs, or on time
    left_out: int = 0

    @property
    def differences(self) -> list[Difference]:
        """Every call that the two drivers answer otherwise."""
        return [difference for result in self.results for difference in result.differences]

    @property
    def counted(self) -> int:
        """Answers that were compared."""
        return sum(result.counted for result in self.results)

    @property
    def share(self) -> float:
        """Percentage of equal answers."""
        return 100 * sum(result.equal for result in self.results) / max(self.counted, 1)

    def functions(self) -> list[tuple[str, int, str]]:
        """Return the functions that differ, those first that differ most: name, count, and the most frequent way."""
        by_symbol = grouped((each.symbol, f"{each.ours} for {each.real}") for each in self.differences)
        several = [(symbol, len(ways), Counter(ways).most_common(1)[0][0]) for symbol, ways in by_symbol.items()]
        return sorted(several, key=lambda entry: (-entry[1], entry[0]))


def carried(recording: dict[str, Any]) -> dict[str, Any]:
    """Return the recording of the package that is nearest to another: of its device or architecture, else the first."""
    several = [_current(load(path)) for path in RECORDED]
    own = (recording["devices"] or [{}])[0]
    alike = (each for key in ("name", "arch") for each in several if each["devices"][0][key] == own.get(key))
    return next(alike, several[0])


def read(path: Path) -> dict[str, Any]:
    """Return the content of a file that `record` wrote, without answers to samples that have other calls by now.

    Raises RecorderError if it is not such a file.
    Raises OSError if it cannot be read.
    """
    try:
        return _current(load(path) if path.suffix == ".xz" else json.loads(read_text(path, DATA)))
    except KeyError as error:
        reason = f"it has no {error}"
    except (ValueError, TypeError, AttributeError) as error:
        reason = str(error)
    msg = f"{path} is not a recording of a driver ({reason}); make one with cudalink driver record -o FILE"
    raise RecorderError(msg)


def _current(recording: dict[str, Any]) -> dict[str, Any]:
    """Return a recording without answers to other questions; an error says what is wrong with it."""
    several = recording["answers"]
    for group in {question.group for question in questions() if question.source}.intersection(several):
        recorded = several[group].items()
        several[group] = {
            name: answers for name, answers in recorded if recording["samples"][name] == versions().get(name)
        }
    for name in ("cuda", "driver", "devices", "seconds", "ended"):
        recording[name]
    if recording["cuda"]:
        CudaVersion.parse(recording["cuda"])
    return recording


def failure(question: DriverQuestion, answers: list[Answer]) -> str:
    """Return the first answer that a must-pass question does not allow, in words; empty if it passes."""
    for number, call in enumerate(question.calls):
        wanted = question.values.get(str(number), [0])
        answer = answers[number] if number < len(answers) else None
        if answer is None:
            return f"{call[0]} was not reached"
        if answer[0] in ("signal", "error"):
            return f"{call[0]} ends the process with {answer[1]}"
        if answer[0] == "missing":
            return f"{call[0]} is missing"
        if wanted and answer[0] != wanted[0]:
            return f"{call[0]} answers {answer[0]}; expected {wanted[0]}"
        if wanted[1:] and answer[: len(wanted)] != wanted:
            return f"{call[0]} gives {json.dumps(answer[1:])}; expected {json.dumps(wanted[1:])}"
    return ""


def grade(recording: dict[str, Any], other: dict[str, Any]) -> Grade:
    """Return how a recorded driver answered, compared with another one."""
    result = Grade()
    version = None  # of a driver whose number is not a version, too
    with contextlib.suppress(ValueError):
        version = CudaVersion.parse(recording["cuda"])
    for question in questions():
        answered = recording["answers"].get(question.group)
        if answered is None:
            continue
        answers = answered.get(question.name)
        if answers is None:
            result.lost += 1
            continue
        known = other["answers"].get(question.group, {}).get(question.name)
        if known is not None:
            compared = compare(0, question.group, question.calls, known, answers)
            result.results.append(compared)
            result.left_out += len(known) - compared.counted
        if not question.source or (
            question.least_cuda and version and version < CudaVersion.parse(question.least_cuda)
        ):
            continue
        wrong = failure(question, answers)
        if wrong:
            result.failed[question.name] = wrong
        else:
            result.passed += 1
    return result


def lines(recording: dict[str, Any], other: dict[str, Any], grade: Grade) -> list[str]:
    """Return a grade in words."""
    sources = {question.name: question.source for question in questions()}
    asked = sum(len(answers) for answers in recording["answers"].values())
    text = [_name(recording), f"asked: {counted(asked, 'question')} in {recording['seconds']} s"]
    text += [f"the driver {how}, asked for {group}" for group, how in recording["ended"].items()]
    if grade.lost:
        text.append(f"not answered: {counted(grade.lost, 'question')}")
    text.append(f"must pass: {grade.passed} of {counted(grade.passed + len(grade.failed), 'sample')}")
    text += [f"  {name}: {why} ({sources[name]})" for name, why in grade.failed.items()]
    if not grade.counted:
        return text
    left = f", and {grade.left_out:,} not compared" if grade.left_out else ""
    share = "100" if grade.share == 100 else f"{min(grade.share, 99.99):.2f}"  # 100 only where all is equal
    text.append(f"equal to {_name(other)} in {share} % of {grade.counted:,} answers{left}")
    functions = grade.functions()
    text += [f"  {symbol}: {number}, such as {way}" for symbol, number, way in functions[:_SHOWN]]
    if len(functions) > _SHOWN:
        text.append(f"  and {counted(len(functions) - _SHOWN, 'more function')}")
    return text


def _name(recording: dict[str, Any]) -> str:
    device = recording["devices"][0] if recording["devices"] else {"name": "no device", "arch": ""}
    number = f"{len(recording['devices'])} times " if len(recording["devices"]) > 1 else ""
    cuda = f"(CUDA {recording['cuda']}) " if recording["cuda"] else ""
    arch = f", {device['arch']}" if device["arch"] else ""
    return f"driver {recording['driver'] or 'without a release'} {cuda}with {number}{device['name']}{arch}"
