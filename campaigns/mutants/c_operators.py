"""Small faults put into a C file, one at a time, and marks that say which of its statements a test reaches.

Both work on tokens, and rely on the format of the sources: clang-format writes spaces around an operator with two
operands, and none behind one with a single operand.
"""

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from .operators import Change, both_ways, numbered

_TOKEN: Final = re.compile(
    r"""(?P<skip>\s+|/\*.*?\*/|//[^\n]*|^[ \t]*\#(?:[^\n\\]|\\.|\\\n)*)
    |(?P<text>"(?:[^"\\\n]|\\.)*")
    |(?P<char>'(?:[^'\\\n]|\\.)*')
    |(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign>\.\.\.|<<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_INTEGER: Final = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)")
#: What may stand in the place of an operator with two operands, and of other tokens, one for the other.
_PAIRS: Final = ("< <=", "> >=", "== !=", "&& ||", "+ -", "* /", "& |", "<< >>", "+= -=", "|= &=")
_OPERATORS: Final = {"%": "*"} | both_ways(*map(str.split, _PAIRS))
_NAMES: Final = both_ways(("++", "--"), ("true", "false")) | {"!": ""}
_NAMES.update({f"{api}_SUCCESS": f"{api}_ERROR_UNKNOWN" for api in ("CUDA", "NVML")})
_ERROR: Final = re.compile(r"(CUDA|NVML)_ERROR_\w+")
_CONSTANT: Final = re.compile(r"(CUDA|NVML)_(ERROR_\w+|SUCCESS)|NULL|true|false|\d\w*|;")
#: What takes a statement behind its parentheses; macros that are loops begin with EACH.
_CONTROL: Final = re.compile(r"if|for|while|switch|EACH_\w+")
_JUMPS: Final = ("return", "break", "continue", "goto")
#: Calls that stay, and whose size stays: what is not freed, a race, and room that is too small, no answer shows for
#: certain. The sessions `leaks`, `sanitizers` and `valgrind` find them. More room than is used is no fault at all.
_STAYS: Final = re.compile(r"free|\w+_(rd|wr)?lock|HOLD\w*")
_ALLOCATES: Final = ("malloc", "calloc", "realloc")
#: What begins a declaration for certain; a name before a name does, too.
_TYPES: Final = (
    *("const", "static", "struct", "enum", "union", "unsigned", "signed", "int", "char", "long", "short", "bool"),
    *("void", "float", "double", "extern", "typedef", "volatile", "_Thread_local", "_Static_assert", "__attribute__"),
)
#: Macros that define a function of the API: what follows the list of its parameters is its body.
_DEFINES: Final = re.compile(r"EXPORTED\w*")
#: Those behind which the body is a block, and what they define.
_BLOCKS: Final = re.compile(r"API\w*")
_ENTRY_POINT: Final = re.compile(r"cu[A-Z]\w*")
#: The array of a byte for each mark, which `reach.c` shares with the process that runs the tests.
REACHED: Final = "cudalink_reached"
_MARK: Final = re.compile(r"@(\d+)@")
_DEPTH: Final = {**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)}


@dataclass(frozen=True)
class CMutant(Change):
    """One change of one place in a C file: the line, with the change in brackets, "if (size [< => <=] LIMIT) {"."""

    start: int
    end: int
    replacement: str
    mark: int  # the number of its statement in this file

    def apply(self, source: str) -> str:
        """Return the source with the change in it; it has as many lines."""
        lines = "\n" * source.count("\n", self.start, self.end)
        return source[: self.start] + self.replacement + lines + source[self.end :]


class _Place(NamedTuple):
    """A token of the body of a function."""

    at: int
    function: str
    mark: int
    begins: bool  # whether a statement begins with it


@dataclass
class _Bracket:
    """A bracket that is open, or the last one that was closed."""

    compound: bool = False  # whether statements are in it
    control: bool = False  # whether it is behind `if`, `for`, `while` or `switch`
    mark: int = 0
    function: str = ""


class CSource:
    """A C file: its mutants, and its text with marks.

    The bodies of functions are changed and marked, those of entry points with the macros that define them. Tables are
    data, which other tests compare with what CUDA answers.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.marks = 0  # how many there are
        self._insertions: list[tuple[int, str]] = []
        # neither white space, nor a comment, nor a line of the preprocessor
        self._tokens = [match for match in _TOKEN.finditer(text) if match.lastgroup != "skip"]
        self._last, self._done = _Bracket(), -1  # the last bracket that was closed, and statement behind `do`
        self._places = list(self._walk())

    def mutants(self) -> list[CMutant]:
        """Return every mutant, in the order of the source."""
        return numbered(
            CMutant(
                place.function, self._shown(*change), self._tokens[place.at].lastgroup == "text", *change, place.mark
            )
            for place in self._places
            for change in self._changes(place)
        )

    def marked(self, first: int) -> str:
        """Return the text in which each statement says that it was reached; the marks count from a number on."""
        parts, last = [f"extern unsigned char *{REACHED};\n"], 0
        for at, text in sorted(self._insertions, key=lambda pair: pair[0]):
            parts += [self.text[last:at], _MARK.sub(lambda match: f"{REACHED}[{first + int(match[1])}] = 1", text)]
            last = at
        return "".join([*parts, self.text[last:]])

    def _text(self, at: int) -> str:
        return self._tokens[at][0] if 0 <= at < len(self._tokens) else ""

    def _insert(self, offset: int, text: str) -> int:
        """Put a new mark into the text, in the place of an at sign; gives its number."""
        self._insertions.append((offset, text.replace("@", f"@{self.marks}@")))
        self.marks += 1
        return self.marks - 1

    def _walk(self) -> Iterator[_Place]:
        """Find each token of a body, and mark the statements."""
        brackets: list[_Bracket] = []
        alone, alone_until, at = 0, -1, 0
        while at < len(self._tokens):
            text = self._text(at)
            if not brackets and _DEFINES.fullmatch(text) and self._text(at + 1) == "(":
                at = yield from self._entry_point(at)
                continue
            inside = next((bracket for bracket in reversed(brackets) if bracket.compound), None)
            begins = bool(brackets) and brackets[-1] is inside and self._begins(at)
            if begins and self._text(at - 1) in (";", "{", "}"):
                inside.mark = self._insert(self._tokens[at].start(), "@; ")
            elif begins and text != "do" and not _CONTROL.fullmatch(text) and not self._declares(at):
                alone_until = self._end(at)
                alone = self._insert(self._tokens[at].start(), "{ @; ")
                self._done = alone_until if self._text(at - 1) == "do" else -1
                self._insertions.append((self._tokens[alone_until].end(), " }"))
            if inside is not None:
                yield _Place(at, inside.function, alone if at <= alone_until else inside.mark, begins)
            if text in ("(", "[", "{"):
                brackets.append(self._opened(at, brackets, inside))
            elif text in (")", "]", "}") and brackets:
                self._last = brackets.pop()
            at += 1

    def _opened(self, at: int, brackets: list[_Bracket], inside: _Bracket | None) -> _Bracket:
        """What the bracket at a token opens."""
        before = self._text(at - 1)
        if self._text(at) == "(":
            return _Bracket(control=bool(_CONTROL.fullmatch(before)))
        if self._text(at) == "{" and not brackets and before == ")":
            return _Bracket(compound=True, function=self._name_before(at - 1))
        statement = before in (";", "{", "}", ":", "else", "do") or (before == ")" and self._last.control)
        if self._text(at) == "{" and inside is not None and brackets[-1] is inside and statement:
            return _Bracket(compound=True, mark=inside.mark, function=inside.function)
        return _Bracket()

    def _name_before(self, at: int) -> str:
        """The name before the parentheses that end at a token."""
        depth = 0
        while True:
            depth += {")": 1, "(": -1}.get(self._text(at), 0)
            at -= 1
            if not depth:
                pattern = _ENTRY_POINT if _BLOCKS.fullmatch(self._text(at)) else re.compile(".*")
                return next(token[0] for token in self._tokens[at:] if pattern.fullmatch(token[0]))

    def _begins(self, at: int) -> bool:
        """Whether a statement begins at a token of a compound statement."""
        before, this = self._text(at - 1), self._text(at)
        if this in (";", "{", "}", "else", "case", "default") or self._text(at + 1) == ":":
            return False
        if before == "}":
            return this != "while" and self._last.compound
        if this == "while" and at - 1 == self._done:
            return False
        if before == ":":
            return self._ends_label(at - 1)
        return before in (";", "{", "else", "do") or (before == ")" and self._last.control)

    def _ends_label(self, colon: int) -> bool:
        """Whether a colon ends a label, and is not that of a question mark."""
        back = colon - 1
        while self._text(back) not in ("?", ";", "case", "default"):
            back -= 1
        return self._text(back) != "?"

    def _end(self, at: int) -> int:
        """The semicolon of a simple statement."""
        depth, end = 0, at
        while self._text(end) != ";" or depth:
            depth += _DEPTH.get(self._text(end), 0)
            if depth < 0 or end == len(self._tokens):
                line = self.text[: self._tokens[at].start()].count("\n") + 1
                expected = "expected a statement that ends in a semicolon: begin a macro for a loop with EACH_"
                raise ValueError(f"line {line} is {self._text(at)!r}, {expected}")
            end += 1
        return end

    def _entry_point(self, at: int) -> Generator[_Place, None, int]:
        """Find the places of a macro that defines a function of the API, and mark them; gives the token behind it."""
        depth, name, first = 1, "", 0
        here = at + 2
        while depth:
            text = self._text(here)
            if depth == 1 and text in (",", ")") and first:
                mark = self._insert(self._tokens[first].start(), "(@, ")
                self._insertions.append((self._tokens[here].start(), ")"))
                yield from (_Place(number, name, mark, begins=False) for number in range(first, here))
            if depth == 1 and text == ",":
                first = here + 1 if name else 0
                if not name and self._text(here + 1) == "(":
                    name = self._text(here - 1)
            depth += _DEPTH.get(text, 0)
            here += 1
        return here

    def _declares(self, at: int) -> bool:
        """Whether a statement is a declaration."""
        first, second, third = self._tokens[at : at + 3]
        pointer = second[0] == "*" and third.start() == second.end() and second.start() > first.end()
        named = first.lastgroup == "name" and first[0] not in _JUMPS
        return first[0] in _TYPES or (named and (second.lastgroup == "name" or pointer))

    def _changes(self, place: _Place) -> Iterator[tuple[int, int, str]]:
        """What may stand in the place of what begins at a token: start, end and replacement."""
        at = place.at
        text, (start, end) = self._text(at), self._tokens[at].span()
        spaced = self.text[start - 1].isspace() and self.text[end : end + 1].isspace()
        if self._tokens[at].lastgroup == "text":
            yield start, end, f'"XX{text[1:]}'
        elif self._is_size(at):
            return
        elif number := _INTEGER.fullmatch(text):
            octal = number[1].startswith("0") and number[1].isdecimal()
            yield start, end, f"{int(number[1], 8 if octal else 0) + 1}{number[2]}"
        elif error := _ERROR.fullmatch(text):
            yield start, end, f"{error[1]}_{'ERROR_UNKNOWN' if self._text(at - 1) == 'return' else 'SUCCESS'}"
        elif text in _NAMES:
            yield start, end, _NAMES[text]
        elif text in _OPERATORS and spaced:
            yield start, end, _OPERATORS[text]
        elif text in ("if", "while"):
            condition = self._tokens[at + 1].end(), self._tokens[self._close(at + 1)].start()
            yield from ((*condition, value) for value in (("true", "false") if text == "if" else ("false",)))
        elif text == "return" and not (_CONSTANT.fullmatch(self._text(at + 1)) and self._end(at) <= at + 2):
            yield self._tokens[at + 1].start(), self._tokens[self._end(at)].start(), "0"
        if place.begins and self._removable(at):
            yield start, self._tokens[self._end(at)].end(), ";"

    def _close(self, at: int) -> int:
        """The parenthesis that closes the one at a token."""
        depth = 1
        while depth:
            at += 1
            depth += {"(": 1, ")": -1}.get(self._text(at), 0)
        return at

    def _removable(self, at: int) -> bool:
        """Whether the statement at a token is a call, an assignment, `break` or `continue`."""
        text = self._text(at)
        if text in ("break", "continue") or text in ("*", "++", "--", "("):
            return True
        named = self._tokens[at].lastgroup == "name" and text not in (*_JUMPS, "do", "_Static_assert")
        return named and not _CONTROL.fullmatch(text) and not self._declares(at) and not _STAYS.fullmatch(text)

    def _is_size(self, at: int) -> bool:
        """Whether a token is part of the size that is asked of malloc."""
        depth = 0
        while depth < 1:
            at -= 1
            depth += _DEPTH.get(self._text(at), 0)
            if depth == 1 and self._text(at) == "(" and self._tokens[at - 1].lastgroup != "name":
                depth = 0  # what is in parentheses is part of something else
        return self._text(at) == "(" and self._text(at - 1) in _ALLOCATES

    def _shown(self, start: int, end: int, replacement: str) -> str:
        """The line of a change, with the change in brackets."""
        head = self.text[self.text.rfind("\n", 0, start) + 1 : start]
        tail = self.text[end:].partition("\n")[0]
        return " ".join(f"{head}[{self.text[start:end]} => {replacement}]{tail}".split())
