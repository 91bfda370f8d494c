"""Makes any text safe to show: visible escapes for what a terminal, a browser or a CI runner would obey or hide.

Whatever the project has not written itself passes through here before it is shown: texts of tests, devices, recordings,
wheels and child processes. `quote` does the same for a word of a command that a user may paste into a shell; `say` and
`complain` write what a command says, and `warn` warns of a line of the user's code.
"""

import os
import re
import shlex
import sys
import warnings
from typing import Final

#: Characters of one value in a table, and of a failure's text.
LINE_LIMIT: Final = 2_000
BLOCK_LIMIT: Final = 20_000

# What is not shown as itself: control characters, lone surrogates, marks that change the direction of text, characters
# without width, other ends of lines, invisible fillers and tags, and code points that are not characters.
_HIDDEN: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    + "".join(rf"\U{plane:04x}fffe\U{plane:04x}ffff" for plane in range(1, 17))
)
# patterns as text: most processes that import this module use none, and to compile them takes a millisecond
_UNSAFE: Final = f"[{_HIDDEN}]"
# What a CI runner takes for a command in what a job prints: GitHub at the beginning of a line, after white space
# (ActionCommand.cs and ActionCommandManager.cs of actions/runner), GitHub, Azure and TeamCity anywhere.
_COMMAND: Final = (
    r"(?im)(?:^(?P<indent>[^\S\n]*):(?=:(?:add-mask|add-matcher|add-path|debug|echo|endgroup|error|group|notice|remove-matcher|"
    r"save-state|set-env|set-output|stop-commands|warning)(?:[ ].*)?::))|(?P<mark>#)(?=#(?:\[|vso\[|teamcity\[))"
)
# What no quotes can hold; after an end of a line with the next sign, because $(…) removes the last ends of lines.
_UNQUOTABLE: Final = rf"(?is)([{_HIDDEN}\t\n]+(?:(?<=\n).)?|#(?=#(?:\[|vso\[|teamcity\[)))"
_ENDS: Final = r"\r\n|\n|\t"
_MARKUP: Final = r"[\\|<>`*_\[\]&~$]"


def _escape(match: re.Match[str]) -> str:
    sign = match[0]
    return f"\\x{ord(sign):02x}" if sign.isascii() else sign.encode("ascii", "backslashreplace").decode("ascii")


def _disarmed(text: str) -> str:
    """Return a text without commands for a CI runner: the first sign of each becomes an escape."""
    if "::" not in text and "##" not in text:
        return text
    return re.sub(_COMMAND, lambda match: "\\x23" if match["mark"] else f"{match['indent']}\\x3a", text)


def shortened(text: str, limit: int) -> str:
    """Return the text, cut after `limit` characters; the end then says how many were cut."""
    more = len(text) - limit
    return text if more <= 0 else f"{text[:limit]}… ({more:,} more {'character' if more == 1 else 'characters'})"


def _text(value: object) -> str:
    """The text of a value; that of an error of the system is its file and reason, without a number."""
    if isinstance(value, OSError) and value.strerror and value.filename is not None:
        return f"{value.filename}: {value.strerror}"
    return str(value)


def text_of(value: object) -> str:
    """Return the text of what a program has made, such as an error; empty where its own code fails."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 (any code may run)
        return ""


def line(value: object, limit: int = LINE_LIMIT) -> str:
    """Return a value as one line: ends of lines and tabs become spaces, what cannot be shown becomes an escape.

    `limit`: characters, before the escapes, after which the text is cut.
    """
    return _one_line(shortened(_text(value), limit))


def _one_line(text: str) -> str:
    return _disarmed(re.sub(_UNSAFE, _escape, re.sub(_ENDS, " ", text)))


def block(value: object, limit: int = BLOCK_LIMIT) -> str:
    r"""Return a value as several lines: ``"\n"`` and ``"\t"`` stay, what cannot be shown becomes an escape."""
    return _disarmed(re.sub(_UNSAFE, _escape, shortened(_text(value), limit).replace("\r\n", "\n")))


def quote(word: str) -> str:
    """Return a word as a POSIX shell reads it, in one line that `line` and `block` leave as it is.

    What cannot be shown is written by the shell's ``printf``.
    Raises ValueError if no command line can carry the word: NUL, or half a character.
    """
    if "\0" in word or word.endswith("\n"):
        raise ValueError(f"{word!r} has a character that no command line can carry")
    pieces = []
    for number, piece in enumerate(re.split(_UNQUOTABLE, word)):
        if number % 2:
            signs = "".join(f"\\{byte:03o}" for byte in piece.encode("utf-8", "surrogateescape"))
            pieces.append(f"\"$(printf '{signs}')\"")
        elif piece:
            pieces.append(shlex.quote(piece))
    return "".join(pieces) or "''"


def markdown(value: object) -> str:
    """Return a value as one line of GitHub's Markdown, in which no character is markup.

    Nothing is cut: a line that `line` has cut keeps its count of what is missing.
    """
    return re.sub(_MARKUP, r"\\\g<0>", " ".join(_one_line(str(value)).split()))


#: Characters that no text has: nothing is cut.
_ALL: Final = sys.maxsize


def say(text: str, end: str = "\n") -> None:
    """Write lines to stdout."""
    sys.stdout.write(f"{block(text, _ALL)}{end}")


def complain(text: str) -> None:
    """Write lines to stderr."""
    sys.stderr.write(f"{block(text, _ALL)}\n")


_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")  # noqa: PTH118, PTH120 (compared with names of files)


def warn(message: str, category: type[Warning]) -> None:
    """Warn of the line outside of this package that led here.

    Python shows a DeprecationWarning by default only where it points into the user's own program, and counts "once per
    place" by that line. (``skip_file_prefixes`` of `warnings.warn` does this from Python 3.12 on.)
    """
    level, frame = 2, sys._getframe(1)  # noqa: SLF001 (what inspect itself uses, without its import)
    while frame.f_code.co_filename.startswith(_PACKAGE) and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
