"""Whether what a run says, and a clean run does not, names the error with which a call has failed."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ..base.tables import read_table

#: Words by which a line is about CUDA; names of functions are not, because they may be of another call.
_CUDA: Final = r"\w*(?:cuda|driver|gpu|nvrtc|nvjitlink|curesult)\w*"
#: Words that make an error code of the number behind them.
_ERROR: Final = r"(?:err|error|code|errorcode|status|result|returned|returns|answered|answers|answer|failed|failure|rc)"
#: What may stand between these and the number.
_BETWEEN: Final = (
    rf"(?:{_ERROR}|api|call|runtime|was|is|with|by|the|a|an|its|of|number|raised|reported|said|says|got|gave)"
)
_GAP: Final = r"\W{1,4}"
#: What may stand behind a number that is a code, and not an amount.
_ENDS: Final = (
    r"(?![\w.]?\w)(?=\s*(?:$|[^\w\s]|(?:from|of|by|in|at|for|when|while|on|after|and|but|instead|occurred|is|was)\b))"
)
#: Functions whose result is an amount.
_AMOUNT: Final = r"\S*(?:len|sum|min|max|abs|int|count)\("
#: Values in which runs of one program differ: addresses, identifiers, times, amounts.
_VALUE: Final = re.compile(
    r"0x[0-9a-f]+|\b[0-9a-f]{8,}(?:-[0-9a-f]{4,}){0,4}\b|\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE
)
#: Files whose functions call everything, so that to come through them means nothing.
_CALLERS: Final = ("/unittest/", "/asyncio/", "/concurrent/futures/", "/threading.py", "/doctest.py")


class Error(NamedTuple):
    """The error with which a call fails."""

    function: str  # symbol of the function
    code: int
    name: str  # "CUDA_ERROR_OUT_OF_MEMORY"
    words: str  # how cuGetErrorString says it
    lasts: bool = False  # whether every later call answers it, too

    @property
    def plain(self) -> str:
        """The function without the number and the stream of its form."""
        return re.sub(r"(?:_v\d+)?(?:_pt(?:ds|sz))?$", "", self.function)


class Raised(NamedTuple):
    """An exception of a run, of a chain or of a group."""

    text: str  # its type, its message and its notes
    by_call: bool = False  # whether it came out of the statement or the function that made the call, see `came_of`


class Said(NamedTuple):
    """What a run has written, logged, or warned of."""

    text: str
    alarm: bool = False  # whether it is a warning, or a log record of that level


class Frame(NamedTuple):
    """A frame of a traceback."""

    file: str
    first: int  # lines of the statement, or of the part of it, that raised
    last: int
    function: str


def came_of(stack: Sequence[str], traceback: Sequence[Frame]) -> bool:
    """Whether an exception came out of the statement that made a call, or of a function that had made it.

    `stack`: of the call, its lines "FILE:LINE in FUNCTION", innermost first.
    `traceback`: of the exception, innermost first.
    """
    calls = [_frame(line) for line in stack]
    calls = [frame for frame in calls if not any(part in frame.file for part in _CALLERS)]
    raised = [frame for frame in traceback if not any(part in frame.file for part in _CALLERS)]
    for at, call in enumerate(calls):
        for depth, frame in enumerate(raised):
            if (frame.file, frame.function) != (call.file, call.function):
                continue
            called = calls[at + 1 :]
            if called and raised[depth + 1 :] and not _holds(raised[depth + 1], called[0]):
                return False  # another run of the function
            return depth == 0 or _holds(frame, call) or (at == 0 and bool(called))
    return False


def _frame(line: str) -> Frame:
    place, _, function = line.rpartition(" in ")
    file, _, number = place.rpartition(":")
    return Frame(file, int(number), int(number), function) if number.isdigit() else Frame(line, 0, 0, "")


def _holds(frame: Frame, call: Frame) -> bool:
    """Whether a call was made in the lines of a frame."""
    same = (frame.file, frame.function) == (call.file, call.function)
    return same and frame.first <= call.first <= frame.last


# -- the difference to a clean run


def _shape(text: str) -> str:
    return _VALUE.sub("#", " ".join(text.split()))


def new(said: Iterable[Said], before: Iterable[Said]) -> list[Said]:
    """Return what was said, without the lines that a clean run says as often, but for their values."""
    known = Counter(_shape(line) for piece in before for line in piece.text.splitlines())
    fresh = []
    for piece in said:
        lines = []
        for line in piece.text.splitlines():
            shape = _shape(line)
            if known[shape] > 0:
                known[shape] -= 1
            else:
                lines.append(line)
        if lines:
            fresh.append(piece._replace(text="\n".join(lines)))
    return fresh


def _marked(text: str, number: int) -> Iterator[str]:
    """Yield the shape of a line once for each time that it has a number, with a mark there."""
    for match in re.finditer(rf"(?<![\w.]){number}(?![\w.])", text):
        yield f"{_shape(text[: match.start()])}!{_shape(text[match.end() :])}"


def _counted(said: Iterable[Said], before: Iterable[Said], error: Error) -> bool:
    """Whether a line about CUDA has the code where it has 0 in a clean run."""
    lines = [
        line
        for piece in said
        for line in piece.text.splitlines()
        if re.search(rf"{_CUDA}|{re.escape(error.plain)}", line, re.IGNORECASE)
    ]
    zero = {marked for piece in before for line in piece.text.splitlines() for marked in _marked(line, 0)}
    return any(marked in zero for line in lines for marked in _marked(line, error.code))


# -- what names an error


def tells(
    error: Error,
    raised: Iterable[Raised],
    said: Sequence[Said] = (),
    before: Sequence[Said] = (),
    others: Iterable[str] = (),
) -> bool:
    """Whether exceptions, or what a run says beyond a clean one, name an error.

    `before`: what the clean run said.
    `others`: functions whose own calls failed, too: what names one of them, and not that of the error, is about them.
    """
    elsewhere = {error._replace(function=function).plain for function in others}
    fresh = [
        line for piece in new(said, before) for line in piece.text.splitlines() if not _is_of(line, error, elsewhere)
    ]
    texts = [text for text in raised if not _is_of(text.text, error, elsewhere)]
    return any(_names(error, text) for text in (*texts, Raised("\n".join(fresh)))) or _counted(said, before, error)


def _is_of(text: str, error: Error, elsewhere: Iterable[str]) -> bool:
    """Whether a text is about calls of other functions."""
    return not _has_function(text, error.plain) and any(_has_function(text, other) for other in elsewhere)


def _has_function(text: str, plain: str) -> bool:
    return bool(re.search(rf"\b{re.escape(plain)}(?:_v\d+)?(?:_pt(?:ds|sz))?\b", text, re.IGNORECASE))


def _names(error: Error, raised: Raised) -> bool:
    # a line may end in the middle of the words, and may end what would go on as an amount
    texts = [" ".join(raised.text.split()), " ; ".join(raised.text.splitlines())]
    return _has_function(raised.text, error.plain) or any(
        re.search(pattern, text, re.IGNORECASE)
        for pattern in _patterns(error, by_call=raised.by_call)
        for text in texts
    )


def _patterns(error: Error, *, by_call: bool) -> Iterator[str]:
    """Yield what names a code: its name, or its words or its number where the text is about CUDA, or of the call."""
    plain = re.sub(r"^[A-Z]+_ERROR_", "", error.name)
    phrase = "|".join({re.escape(form).replace("_", "[ _]") for form in (error.words, plain) if form})
    phrase = rf"(?:{phrase})\b"
    number = rf"{error.code}{_ENDS}"
    code = rf"(?<!exit )\b{_ERROR}(?:{_GAP}{_BETWEEN})*{_GAP}{number}"
    # behind the name of a function a number is a code, too, but only that of the function's own call
    cuda = rf"(?:{_CUDA}|(?-i:cu[A-Z])\w*)" if error.lasts else _CUDA
    of_cuda = rf"{_GAP}(?:from|of|by|in)(?:{_GAP}the)?{_GAP}{cuda}"
    yield rf"\b{re.escape(error.name)}\b"
    names = read_table("emulator/cuda_runtime.toml")["error_names"]
    yield rf"\bcudaError{names.get(str(error.code)) or plain.replace('_', '')}\b"
    if "OUT_OF_MEMORY" in error.name:
        yield r"\bout[ _]of[ _]memory\b|\b(?:\w*OutOfMemory\w*|MemoryError)\b"
    if "_" in error.words or re.search(rf"\b(?:{_CUDA}|device|kernel)\b", error.words, re.IGNORECASE):
        yield re.escape(error.words)
    yield rf"\b{cuda}(?:{_GAP}{_BETWEEN})*{_GAP}{phrase}|\b{phrase}{of_cuda}"
    yield rf"\b{cuda}(?:{_GAP}{_BETWEEN})*{_GAP}{code}|{code}{of_cuda}"
    yield rf"\b(?:\w*(?:cuda|driver|gpu|nvrtc|nvjitlink)\w*|cu)(?:error|exception|result)(?:_t)?{_GAP}{number}"
    if by_call:
        yield rf": {phrase}\W?$|{code}|^\w+: \W?{number}\W?$"
        yield rf"(?:^\w+: |\bassert ){error.code} [!=]= 0\b(?!.* where {error.code} = {_AMOUNT})|^\w+: 0 != {number}"
