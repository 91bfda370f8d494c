"""Compare a recording of what waits: ``python -m campaigns.conformance.waits [FILE] [--with OTHER]``.

`campaigns.hardware.waits` records; `campaigns/conformance/recorded/waits-*.json.xz` are recordings of GPUs. A
recording is compared with `data/emulator/waits.toml`, or with another recording, such as that of an emulated driver.
``--merge FILE ...`` writes FILE again, with the rows of later files instead of its own.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from campaigns.driver import load, save
from campaigns.hardware.waits import LOADING, MEMORY, NAMES, NO_DEVICE, OWN_GATE, QUESTIONS, STREAMS, question_of
from pytest_cudalink.base.tables import read_table
from pytest_cudalink.emulator import no_wait

RECORDED: Final = Path(__file__).parent / "recorded"
_LIMITS: Final = {
    "stack": "CU_LIMIT_STACK_SIZE",
    "printf": "CU_LIMIT_PRINTF_FIFO_SIZE",
    "heap": "CU_LIMIT_MALLOC_HEAP_SIZE",
    "L2 persisting": "CU_LIMIT_PERSISTING_L2_CACHE_SIZE",
}
#: What a question is asked with that was not used.
_FIRST: Final = ("first", "not used", "kernel of a library, first")
#: Where a gate is that holds up new work of a stream, but for the stream itself.
_HOLDS_UP: Final = {
    "blocking": ("legacy",),
    "non-blocking": (),
    "legacy": ("blocking", "per-thread", "per-thread of another thread"),
    "per-thread": ("legacy",),
}
#: How an answer begins that is none.
_NOT_ASKED: Final = ("cannot be asked", "hangs", "ends its process")

Row = dict[str, Any]


def rows(recording: Mapping[str, Any]) -> Iterator[tuple[str, Row]]:
    """The rows of a recording that have an answer, each with its kind."""
    for kind in NAMES:
        for row in recording[kind]:
            if answers(row) and row.get("answer", [""])[0] != NO_DEVICE:
                yield kind, row


def answers(row: Row) -> dict[str, Any]:
    """What a row says of each loading that was asked: "waits", "returns", "held", "free", or a number."""
    if "answer" in row:
        return dict.fromkeys(LOADING, row["answer"][0])
    return {loading: answers[0][0] for loading, answers in row["answers"].items()}


def key(kind: str, row: Row) -> tuple[str, ...]:
    """What a row asks."""
    names = ("call", "given", "name", "waiting", "stream", "place", "to", "source", "second")
    return kind, *(str(row.get(name, "")) for name in names)


def facts(call: str, question: str) -> dict[str, Any]:
    """What a question says of the arguments of its call, in the words of the table."""
    facts: dict[str, Any] = {"first": question in _FIRST, "sync_memops": "sync memops" in question}
    words = question.replace(",", "").replace("sync memops", "device").split()
    sizes = [int(word) for word in words if word.isdigit()]
    facts |= {"size": sizes[0]} if sizes else {}
    if call.startswith("cuMemcpy"):
        kinds = [word for word in words if word in MEMORY]
        if len(kinds) == 1:  # the other side is an array
            kinds = [kinds[0], "device"] if "HtoA" in call else ["device", kinds[0]]
        facts |= dict(zip(("source", "to"), kinds or ["device", "device"], strict=True))
    elif "pool" in words:
        facts["memory"] = "pool"
    elif words and words[0] in MEMORY:
        facts["memory"] = words[0]
    elif call in ("cuMemFreeHost", "cuMemHostUnregister"):
        facts["memory"] = "pinned"
    elif call == "cuCtxSetLimit" and words[-1] != "same":
        facts["limit"] = _LIMITS.get(question.partition(",")[0])
    return facts


def applies(row: no_wait.Wait, call: str, facts: Mapping[str, Any], loading: str = "lazy") -> bool:
    """Whether a call waits by a row.

    `call`: its symbol.
    `facts`: what is known of its arguments: ``memory``, ``to`` and ``source`` with one kind of memory each, ``size`` in
    bytes, ``limit`` that it changes, ``first``, ``sync_memops``.
    `loading`: ``"lazy"`` or ``"eager"``.
    """

    def holds(name: str, value: Any) -> bool:
        if name == "larger_than":
            return bool(facts.get("size", 0) > value)
        return facts.get(name) in (value if isinstance(value, tuple) else (value,))

    given = all(holds(*condition) for condition in row.given.items())
    return given and no_wait.base_of(call) in row.calls and row.loading in ("", loading)


def row_of(call: str, facts: Mapping[str, Any], loading: str = "lazy") -> no_wait.Wait | None:
    """The row by which a call waits, or None; the parameters are those of `applies`."""
    return next((wait for wait in no_wait.waits() if applies(wait, call, facts, loading)), None)


def reaches(waits_for: str, stream: str, place: str) -> bool:
    """Whether a gate is among what a call with a stream waits for, whatever the gate is and what stands behind it."""
    place = place.partition(", ")[0]
    if waits_for == "devices":
        return place != "none"
    if place in ("none", "another device"):
        return False
    if waits_for == "device":
        return True
    if waits_for == "context":
        return place in ("same", *STREAMS, "per-thread of another thread")
    if waits_for == "legacy":
        return place == "legacy" or place in _HOLDS_UP["legacy"]
    # what an event records is what is in front of it in its stream
    return place == "same" or (
        (waits_for in ("stream", "event") or stream == "legacy") and place in _HOLDS_UP[stream or "blocking"]
    )


def _waiting(name: str, stream: str, place: str, loading: str) -> no_wait.Wait | None:
    """The row of the table by which a question waits for a gate, if it does."""
    question = QUESTIONS[name]
    row = row_of(question.call, facts(question.call, question.given), loading.lower())
    if row is None or question.given == "never recorded":
        return None
    there = "same" if name == OWN_GATE else place
    return row if reaches(row.waits_for, stream, there) else None


def said(kind: str, row: Row, loading: str) -> Any:
    """What the table says to a row, None if it says nothing of such."""
    stream, place = row.get("stream", ""), row.get("place", "")
    if kind == "one":
        return "waits" if _waiting(question_of(row), stream, place, loading) else "returns"
    if kind == "held":
        waiting = _waiting(row["waiting"], stream, place, loading)
        if waiting is None:
            return "nobody waits"
        if row["waiting"] == OWN_GATE:
            place = "another context"
        elif place.partition(", ")[0] == "same":
            place = stream
        second = row.get("second", "non-blocking")
        elsewhere = second == "another context"
        if elsewhere:
            second, place = "non-blocking", "another context"
        alone = _waiting(question_of(row), second, place, loading)
        return "held" if alone or (not elsewhere and _holds_up(waiting, row, second)) else "free"
    if kind == "limit":
        return _limit(row, loading)
    return None


def _holds_up(waiting: no_wait.Wait, row: Row, second: str) -> bool:
    """Whether a call that waits holds up the one of a row; the legacy stream's work looks at all streams."""
    locks, call = read_table("emulator/waits.toml")["locks"], no_wait.base_of(row["call"])
    submits = call in locks["submission"]
    from_legacy = waiting.waits_for == "stream" and row["stream"] == "legacy"
    in_legacy = second == "legacy" and QUESTIONS[question_of(row)].in_stream
    looks = submits and "context" in waiting.holds and (from_legacy or in_legacy)
    return looks or any(call in locks[lock] for lock in waiting.holds)


def _limit(row: Row, loading: str) -> Any:
    """The least size of a copy that waits."""
    by_size = {
        size: wait.given.get("larger_than", 0)
        for size in (1, 1 << 40)
        if (wait := row_of(row["name"], {"to": row["to"], "source": row["source"], "size": size}, loading.lower()))
        and reaches(wait.waits_for, row["stream"], row["place"])
    }
    if len(by_size) == 1:
        return by_size[1 << 40] + 1
    return "every size waits" if by_size else "no size waits"


@dataclass
class Tally:
    """How many rows are equal, and the differences: kind, row, loading, answer, and the other answer."""

    equal: int = 0
    total: int = 0
    #: Rows that one side says nothing of, such as launches of an emulated driver.
    left_out: int = 0
    differences: list[tuple[str, Row, str, Any, Any]] = field(default_factory=list)


def compare(recording: Mapping[str, Any], other: Callable[[str, Row, str], Any] = said) -> Tally:
    """How a recording and another side agree; a row is equal if it is under each loading that was asked."""
    tally = Tally()
    for kind, row in rows(recording):
        mine = answers(row)
        theirs = {loading: other(kind, row, loading) for loading in mine}
        if any(answer is None or str(answer).startswith(_NOT_ASKED) for answer in (*mine.values(), *theirs.values())):
            tally.left_out += 1
            continue
        different = [(kind, row, way, answer, theirs[way]) for way, answer in mine.items() if answer != theirs[way]]
        tally.total += 1
        tally.equal += not different
        tally.differences += different
    return tally


def answers_in(recording: Mapping[str, Any]) -> Callable[[str, Row, str], Any]:
    """What another recording says."""
    by_key = {key(kind, row): answers(row) for kind, row in rows(recording)}
    return lambda kind, row, loading: by_key.get(key(kind, row), {}).get(loading)


def merged(recordings: list[dict[str, Any]]) -> dict[str, Any]:
    """One recording with the later answers to each row, without those that say nothing.

    A call that takes longer than the gate stays closed "waits" without a gate, too. And a call that does not wait at a
    gate holds no call up there, even if it is slow and has not returned when the other call does.
    """
    by_key: dict[tuple[str, ...], tuple[str, Row]] = {}
    for recording in recordings:
        for kind, row in rows(recording):
            by_key[key(kind, row)] = kind, {name: value for name, value in row.items() if name not in ("ms", "alone")}
    slow, alone = set(), {}
    for kind, row in by_key.values():
        if kind == "one":
            question = question_of(row)
            alone[question, row["stream"], row["place"]] = answers(row)
            if row["place"] == "none" and question != OWN_GATE and set(answers(row).values()) != {"returns"}:
                slow.add(question)
    kept: dict[str, list[Row]] = {kind: [] for kind in NAMES}
    for kind, row in by_key.values():
        if kind == "held":
            stream = row["stream"] if QUESTIONS[row["waiting"]].in_stream else ""
            place = row["place"].partition(", ")[0]
            kept[kind].append(_settled(row, alone.get((row["waiting"], stream, place), {})))
        elif kind != "one" or question_of(row) not in slow:
            kept[kind].append(row)
    about = {**recordings[0]["about"], "counts": {"rows": sum(map(len, kept.values()))}}
    about["seconds"] = round(sum(recording["about"]["seconds"] for recording in recordings), 1)
    return {"about": about, **kept}


def _settled(row: Row, alone: Mapping[str, Any]) -> Row:
    """A row of a call that holds others up, with "nobody waits" where the call itself does not wait at the gate."""
    told = answers(row)
    settled = {way: "nobody waits" if alone.get(way) == "returns" else answer for way, answer in told.items()}
    if settled == told:
        return row
    rest = {name: value for name, value in row.items() if name not in ("answer", "answers")}
    return {**rest, "answers": {way: [[answer, None]] for way, answer in settled.items()}}


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """The recordings of this folder, by device."""
    return {record["about"]["device"]: record for record in map(load, sorted(RECORDED.glob("waits-*.json.xz")))}


def main(arguments: list[str] | None = None) -> int:
    """Compare, print the counts, and return 1 if there is a difference."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.conformance.waits", description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", help="default: each recording of this project")
    parser.add_argument("--with", dest="other", type=Path, help="another recording; default: the table")
    parser.add_argument("--show", action="store_true", help="print the differences")
    parser.add_argument("--merge", type=Path, nargs="+", help="write FILE with the rows of these")
    options = parser.parse_args(arguments)
    if options.merge:
        save(options.file, merged([load(path) for path in options.merge]))
        return 0
    other = answers_in(load(options.other)) if options.other else said
    different = 0
    for recording in [load(options.file)] if options.file else recorded().values():
        tally = compare(recording, other)
        device = recording["about"]["device"]
        print(f"{device}: {tally.equal} of {tally.total} rows are equal, {tally.left_out} are left out")
        for kind, row, loading, mine, theirs in tally.differences if options.show else ():
            words = " | ".join(word for word in key(kind, row) if word)
            print(f"  {words}, {loading.lower()}: {mine} -> {theirs}")
        different += len(tally.differences)
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
