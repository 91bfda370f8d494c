"""Turn the output of uv and pip during downloads into a short text for a line of progress."""

from __future__ import annotations

import re
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

_MIB: Final = 1 << 20
#: uv: ``Downloading nvidia-nvjitlink (38.8MiB)``, later `` Downloaded nvidia-nvjitlink``.
_UV_BEGINS: Final = r"\s*Downloading (?P<name>\S+) \((?P<size>[\d.]+)\s*(?P<unit>[KMG]i?B)\)"
_UV_ENDS: Final = r"\s*Downloaded (?P<name>\S+)"
#: pip: ``  Downloading nvidia_nvjitlink-13.0.88-py3-….whl (40.7 MB)``, then ``Progress 262144 of 40713933``.
_PIP_BEGINS: Final = r"\s*Downloading (?P<name>[^\s-]+)-\S+\.whl"
_PIP_BYTES: Final = r"Progress (?P<done>\d+) of (?P<total>\d+)"
_UNPACKS: Final = r"Installing collected"
#: The rest of what both write when nothing is wrong.
_NEWS: Final = (
    r"\s*(Resolved|Prepared|Installed|Using CPython|Looking in|Collecting|Using cached|"
    r"Successfully installed|Obtaining dependency|\+ )"
)
_UNITS: Final = {"K": 1 / 1024, "M": 1.0, "G": 1024.0}
#: Lines of an installer that an error shows.
_MOST_LINES: Final = 12


class Downloads:
    """The state of an installer's downloads, read from its lines.

    `text`: such as ``"nvidia_nvjitlink (2 of 3), 12 of 39 MiB"``; empty before the first download.
    """

    def __init__(self, wheels: int) -> None:
        self._wheels = wheels
        self._begun = 0
        self._name = ""
        self._open: dict[str, float] = {}
        self.text = ""

    def heed(self, line: str) -> bool:
        """Return whether a line is about a download and no other message; update `text` if it is."""
        if found := re.match(_PIP_BYTES, line):
            done, total = (int(found[one]) / _MIB for one in ("done", "total"))
            self._describe_one(f", {done:.0f} of {total:.0f} MiB")
        elif found := re.match(_PIP_BEGINS, line):
            self._begun, self._name = min(self._begun + 1, self._wheels), found["name"]
            self._describe_one()
        elif found := re.match(_UV_BEGINS, line):
            self._open[found["name"]] = float(found["size"]) * _UNITS[found["unit"][0]]
            self._describe_open()
        elif found := re.match(_UV_ENDS, line):
            self._open.pop(found["name"], None)
            self._describe_open()
        elif re.match(_UNPACKS, line):
            self.text = "unpacking"
        else:
            return re.match(_NEWS, line) is not None
        return True

    def _describe_one(self, bytes_of_it: str = "") -> None:
        """Set `text` to the wheel that pip downloads, with its number among the wheels."""
        self.text = f"{self._name} ({self._begun} of {self._wheels}){bytes_of_it}"

    def _describe_open(self) -> None:
        """Set `text` to the wheels that uv downloads at the same time; uv does not count their bytes."""
        self.text = ", ".join(f"{name} ({size:.1f} MiB)" for name, size in self._open.items()) or "unpacking"


def talkative(command: Sequence[str]) -> list[str]:
    """Return an installer's command without its quiet option, so that it writes the lines that `Downloads` reads."""
    from importlib.metadata import version

    loud = [word for word in command if word != "-q"]
    # older ones refuse the word; they tell no bytes
    if "--disable-pip-version-check" in loud and tuple(map(int, version("pip").split(".")[:2])) >= (24, 1):
        loud.append("--progress-bar=raw")
    return loud


def run_and_tell(command: Sequence[str], wheels: int, tell: Callable[[str], object]) -> tuple[int, str]:
    """Run an installer and report its downloads; return its exit code and the last of its other lines."""
    downloads, said = Downloads(wheels), deque[str](maxlen=_MOST_LINES)
    with subprocess.Popen(  # noqa: S603 (a command of ours)
        talkative(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                if downloads.heed(line):
                    tell(downloads.text)
                elif line.strip():
                    said.append(line.rstrip())
        except BaseException:  # Ctrl-C: the download of an interrupted command must not go on
            child.kill()
            raise
    return child.returncode, "\n".join(said)
