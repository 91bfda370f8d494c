"""Links that no target steers, as a run counts them, shows them, and fails tests for them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...base.words import counted
from ...report.wording import unsteered_on

if TYPE_CHECKING:
    from ...targets import Choice, UnsteeredLink

#: By value of ``--cudalink-unsteered``: what the header says about links that no target steers.
CONSEQUENCES: Final = {
    "fail": "a test in which it links on another backend fails",
    "warn": "a test in which it links on another backend gets a warning",
    "allow": "what it links is counted",
}
_HOW: Final = {"free": "", "as-forced": " (as forced)", "not-as-forced": " (not as forced)"}


def key(link: UnsteeredLink) -> str:
    """Return the key by which a run counts links that no target steers: ``"VIA/BACKEND/as-forced"``."""
    how = "free" if link.forced is None else "as-forced" if link.follows else "not-as-forced"
    return f"{link.via}/{link.backend}/{how}"


def lines(links: Mapping[str, int]) -> list[str]:
    """Return a line of the summary for each module or library that linked, of counts by `key`."""
    by_via: dict[str, Counter[str]] = {}
    forced: set[str] = set()
    for name, number in sorted(links.items()):
        rest, _, how = name.rpartition("/")
        via, _, backend = rest.rpartition("/")
        by_via.setdefault(via, Counter())[f"{unsteered_on(backend)}{_HOW[how]}"] += number
        if how != "free":
            forced.add(via)
    texts = []
    for via, shares in by_via.items():
        total = sum(shares.values())
        where = ", ".join(f"{number} {share}" for share, number in shares.items())
        steered = f" {'was' if total == 1 else 'were'} not steered" if via in forced else ""
        texts.append(f"{counted(total, 'link')} in your code{steered} ({via}): {where}")
    return texts


def problem(link: UnsteeredLink, choice: Choice) -> str:
    """Return what is wrong with a link that ran on another backend than the forced one, and what to do."""
    who = link.where or "code at an unknown place"
    return (
        f"cudalink: forced to {choice.backend} by {choice.source}, but {who} linked {unsteered_on(link.backend)}: "
        f"{link.call} of {link.via}, which no target steers. Write a target for the library that makes this call "
        "(see the page Targets of the documentation), link through one that has a target, or accept such links with "
        "--cudalink-unsteered=allow"
    )


def shortened(place: str, root: Path) -> str:
    """Return a place in the code with its path relative to a folder, if the file is in that folder."""
    return place.removeprefix(f"{root}{os.sep}")
