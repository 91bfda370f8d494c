"""What docs/reference/waits.md shows: which calls wait, from the recordings and `data/emulator/waits.toml`."""

import re
from collections.abc import Iterable, Iterator
from functools import cache

from campaigns.conformance import waits
from campaigns.hardware.waits import GROUPS, MOST, OWN_GATE, QUESTIONS, Question, copy, question_of
from pytest_cudalink.emulator import no_wait
from pytest_cudalink.emulator.no_wait import Wait

#: The device whose answers are shown where the others' are not told apart.
H100 = "NVIDIA H100 80GB HBM3"
#: Where most of what is promised stands.
DOCUMENTED = 'CUDA Driver API 13.0, "API synchronization behavior"'
#: What the values of `waits_for` mean.
WAITS_FOR = {
    "own": "work of its stream",
    "stream": "its stream, and the streams that new work in it waits for",
    "legacy": "the legacy stream and all blocking ones",
    "event": "what the event records",
    "context": "every stream of the context",
    "device": "every stream of every context of the device",
    "devices": "every stream of every context",
}


def name_of(call: str) -> str:
    return call.partition("_v")[0]


def shown(call: str, words: str = "") -> str:
    """A call, with what it was asked with."""
    return f"`{name_of(call)}`" + (f" ({words})" if words else "")


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, *rows)).replace(
        "\n", f"\n|{'---|' * len(head)}\n", 1
    )


def listed(calls: Iterable[str]) -> str:
    """Names of calls, each once."""
    return ", ".join(f"`{name}`" for name in dict.fromkeys(map(name_of, calls)))


def conditions_of(question: Question) -> str:
    """What a question is asked with; sizes that make no difference stay out."""
    given = re.sub(r"(, |^)\d+$", "", question.given)
    if question.name == OWN_GATE:
        return "work in it"
    return f"{given} to array" if "HtoA" in question.call else f"array to {given}" if "AtoH" in question.call else given


def asking() -> dict[str, dict[str, bool]]:
    """Whether each question waits anywhere, by loading."""
    by_name: dict[str, dict[str, bool]] = {}
    for kind, row in (pair for recording in waits.recorded().values() for pair in waits.rows(recording)):
        if kind == "one":
            before = by_name.setdefault(question_of(row), {})
            for loading, answer in waits.answers(row).items():
                before[loading] = before.get(loading, False) or answer == "waits"
    return by_name


def waiting() -> Iterator[tuple[Wait, list[Question]]]:
    """Rows of the table, each with the questions that wait by it."""
    asked = [(QUESTIONS[name], loading) for name, ways in asking().items() for loading, does in ways.items() if does]
    for kind, limit in waits.rows(waits.recorded()[H100]):
        if kind == "limit" and any(isinstance(answer, int) for answer in waits.answers(limit).values()):
            asked.append((copy(limit["name"], limit["to"], limit["source"], MOST), "lazy"))
    by_row: dict[int, list[Question]] = {}
    for question, loading in asked:
        if row := waits.row_of(question.call, waits.facts(question.call, question.given), loading.lower()):
            by_row.setdefault(no_wait.waits().index(row), []).append(question)
    for number, questions in sorted(by_row.items()):
        yield no_wait.waits()[number], questions


def _waiting() -> str:
    rows = []
    for row, questions in waiting():
        given = dict.fromkeys(filter(None, map(conditions_of, questions)))
        words = [*given, *([f"{row.loading} loading"] if row.loading else [])]
        if "larger_than" in row.given:
            words.append(f"more than {row.given['larger_than']:,} bytes")
        source = "" if row.source == DOCUMENTED else f" ({row.source})"
        promised = f"{row.promised}{source}" if row.promised else "nothing"
        calls = listed(question.call for question in questions)
        rows.append([calls, "; ".join(words), WAITS_FOR[row.waits_for], promised, instead(row, questions)])
    return table(["call", "asked with", "waits for", "CUDA's documentation", "instead"], rows)


def instead(row: Wait, questions: list[Question]) -> str:
    """The call that does not wait; one that waits, too, with some memory is named with the rest."""
    if row.instead != "{}Async":
        earlier = ", earlier" if waits.row_of(row.instead, {"first": True}) else ""
        return listed(filter(None, [row.instead])) + earlier

    def waits_too(question: Question) -> bool:
        given = waits.facts(question.call, question.given)
        return any(waits.row_of(f"{row.instead_of(question.call)}{suffix}", given) for suffix in ("", "_v2"))

    free = [conditions_of(question) for question in questions if not waits_too(question)]
    if not free:
        return ""
    return "the same with `Async`" + (f" for {'; '.join(dict.fromkeys(free))}" if len(free) < len(questions) else "")


def _returning() -> str:
    rows, answers = [], asking()
    sometimes = {QUESTIONS[name].call for name, by_loading in answers.items() if any(by_loading.values())}
    for group, questions in GROUPS.items():
        calls: dict[str, list[str]] = {}
        for question in questions:
            if not any(answers.get(question.name, {"": True}).values()):
                with_it = conditions_of(question) if question.call in sometimes else ""
                calls.setdefault(name_of(question.call), []).append(with_it)
        if calls:
            words = {call: "; ".join(dict.fromkeys(filter(None, given))) for call, given in calls.items()}
            rows.append([group, ", ".join(shown(*call) for call in words.items())])
    return table(["", "call"], rows)


def held() -> dict[tuple[str, ...], list[str]]:
    """The waiting calls by the calls that they hold up, as the H100 has it under lazy loading."""
    by_way: dict[str, list[str]] = {}
    for kind, row in waits.rows(waits.recorded()[H100]):
        answer = waits.answers(row).get("LAZY") if kind == "held" else None
        if answer in ("held", "free"):
            calls = by_way.setdefault(row["waiting"], [])
            alone = waits.said("one", {**row, "stream": "non-blocking"}, "LAZY") == "waits"
            if answer == "held" and not alone:
                calls.append(row["call"])
    grouped: dict[tuple[str, ...], list[str]] = {}
    for name, calls in by_way.items():
        grouped.setdefault(tuple(sorted(set(map(name_of, calls)))), []).append(name)
    return grouped


def _held() -> str:
    rows: list[list[str]] = []
    every: set[str] = set()
    sometimes = {question.call for _, questions in waiting() for question in questions}
    for calls, names in sorted(held().items(), key=lambda pair: -len(pair[0])):
        every |= set(calls)
        texts = [shown(QUESTIONS[name].call, conditions_of(QUESTIONS[name])) for name in names]
        rows.append([", ".join(dict.fromkeys(texts)), listed(calls) or "none that was asked"])
    free = {
        shown(row["call"], row["given"] if row["call"] in sometimes else "")
        for kind, row in waits.rows(waits.recorded()[H100])
        if kind == "held" and name_of(row["call"]) not in every
    }
    lines = table(["while this waits", "these calls of other threads wait, too"], rows)
    return f"{lines}\n\nNone of them holds up {', '.join(sorted(free))}."


def _limits() -> str:
    recording = waits.recorded()[H100]
    copies: dict[tuple[str, str], list[str]] = {}
    for row in recording["limit"]:
        (answer,) = set(waits.answers(row).values())
        if row["place"] == "same" or "Async" not in row["name"]:
            said = f"more than {answer - 1:,} bytes" if isinstance(answer, int) else "every size"
            copies.setdefault((f"`{row['name']}`", said), []).append(f"{row['source']} to {row['to']}")
    depths = []
    for row in recording["depth"]:
        counts = [answer[0] for way in (row.get("answers") or {"": [row["answer"]]}).values() for answer in way]
        question = QUESTIONS[row["name"]]
        room = [f"{count:,}" if isinstance(count, int) else "all of 8,192" for count in dict.fromkeys(counts)]
        depths.append([shown(question.call, question.given), " or ".join(room)])
    limits = table(["copy", "waits", "of memory"], [[*start, ", ".join(kinds)] for start, kinds in copies.items()])
    return f"{limits}\n\n{table(['call', 'so many return behind a gate before one waits'], depths)}"


def _machines() -> str:
    rows = []
    for device, recording in waits.recorded().items():
        release = re.findall(r"[\d.]{6,}", recording["about"]["kernel module"])[0]
        tally, answers = waits.compare(recording), sum(1 for _ in waits.rows(recording))
        rows.append([device, release, f"{answers:,}", f"{tally.equal:,} of {tally.total:,}"])
    return table(["device", "driver", "answers", "rows that agree with the table"], rows)


@cache
def blocks() -> dict[str, str]:
    """The texts by name."""
    made = (_waiting, _returning, _held, _limits, _machines)
    return {text.__name__.removeprefix("_"): text() for text in made}
