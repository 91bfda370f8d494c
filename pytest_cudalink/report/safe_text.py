"""Makes any text safe to show: visible escapes for what a terminal, a browser or a parser would obey or hide. Pure.

Every form of the report and pytest's summary pass the texts of tests through here.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["block", "line", "markdown", "shortened"]

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
_UNSAFE: Final = re.compile(f"[{_HIDDEN}]")
_ENDS: Final = re.compile(r"\r\n|\n|\t")
_MARKUP: Final = re.compile(r"[\\|<>`*_\[\]&~$]")


def _escape(found: re.Match[str]) -> str:
    sign = found[0]
    return f"\\x{ord(sign):02x}" if sign.isascii() else sign.encode("ascii", "backslashreplace").decode("ascii")


def shortened(text: str, limit: int) -> str:
    """Return the text, cut after `limit` characters; the end then says how many were cut."""
    more = len(text) - limit
    return text if more <= 0 else f"{text[:limit]}… ({more:,} more {'character' if more == 1 else 'characters'})"


def line(value: object, limit: int = LINE_LIMIT) -> str:
    """Return a value as one line: ends of lines and tabs become spaces, what cannot be shown becomes an escape.

    `limit`: characters, before the escapes, after which the text is cut.
    """
    return _one_line(shortened(str(value), limit))


def _one_line(text: str) -> str:
    return _UNSAFE.sub(_escape, _ENDS.sub(" ", text))


def block(value: object, limit: int = BLOCK_LIMIT) -> str:
    r"""Return a value as several lines: ``"\n"`` and ``"\t"`` stay, what cannot be shown becomes an escape."""
    return _UNSAFE.sub(_escape, shortened(str(value), limit).replace("\r\n", "\n"))


def markdown(value: object) -> str:
    """Return a value as one line of GitHub's Markdown, in which no character is markup.

    Nothing is cut: a line that `line` has cut keeps its count of what is missing.
    """
    return _MARKUP.sub(r"\\\g<0>", " ".join(_one_line(str(value)).split()))
