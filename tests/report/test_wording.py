"""The words and keys that pytest's summary and the report of all cells share."""

import pytest

from pytest_cudalink.base.finding import NO_DRIVER
from pytest_cudalink.report import wording
from pytest_cudalink.report.records import CrashRecord

DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("crash", "words"),
    [
        (CrashRecord(signal="SIGSEGV", exitcode=3), "SIGSEGV"),
        (CrashRecord(exitcode=3), "exit code 3"),
        (CrashRecord(exitcode=0), "exit code 0"),
        (
            CrashRecord(),
            "unknown: the process wrote nothing (SIGKILL, os._exit); --cudalink-processes=isolated shows it",
        ),
    ],
)
def test_what_ended_a_process(crash: CrashRecord, words: str) -> None:
    """A signal says more than its exit code, and 0 is an exit code, too."""
    assert wording.ended_by(crash) == words


@pytest.mark.parametrize(
    ("event", "words", "refused"),
    [
        ('{"call": "cuA", "result": 801, "note": "no", "unsupported": true}', "cuA answered 801: no", ("cuA", "no")),
        ('{"call": "cuA", "result": 801, "unsupported": true}', "cuA answered 801", ("cuA", "")),
        ('{"call": "cuA", "result": 209, "note": ""}', "cuA answered 209", None),
        ('{"call": "cuA", "unsupported": true}', None, ("cuA", "")),
        ('{"result": 1, "unsupported": true}', None, None),
        ("[1]", None, None),
        ("null", None, None),
        ("no JSON", None, None),
        (DEEP, None, None),
    ],
)
def test_calls_of_the_driver(event: str, words: str | None, refused: tuple[str, str] | None) -> None:
    """Only the last event counts as refused; what another version wrote stays as it is."""
    assert wording.call_in_words(event) == (event if words is None else words)
    assert wording.refused_last(['{"call": "cuB", "unsupported": true}', event]) == refused
    assert wording.refused_last([]) is None


def test_keys_of_links() -> None:
    """Keys are joined and split in one place, and each has words."""
    assert wording.link_key("a/b", "driver") == "a/b/driver"
    assert wording.split_link_key("a/b/driver") == ("a/b", "driver")
    assert wording.backend_keys("driver") == ("driver",)
    assert wording.backend_keys("driver", failed=True) == ("driver", "driver failed")
    assert wording.backend_keys("unknown", failed=True) == wording.backend_keys("none", failed=True) == ("none",)
    words = {"driver": "on the driver", "nvjitlink failed": "on nvJitLink failed", "other failed": "on other failed"}
    words |= dict.fromkeys(("none", "unknown"), "refused before a choice")
    assert {key: wording.linked_on(key) for key in words} == words
    unsteered = [wording.unsteered_on(backend) for backend in ("unknown", "driver")]
    assert unsteered == ["on a backend that cannot be seen", "on the driver"]


def test_counts_in_words() -> None:
    """Each function is named once; tests that did not run are counted only where there are such."""
    assert wording.not_emulated(["cuB", "cuB"]) == "cuB is not emulated"
    assert wording.not_emulated(["cuB", "cuA", "cuB"]) == "cuB, cuA are not emulated"
    assert wording.share(2, 2, 1) == []
    assert wording.share(0, 1, 0) == ["0 of 1 test ran"]
    assert wording.share(1, 3, 1) == ["1 of 3 tests ran", "1 needs a GPU"]
    assert wording.share(1, 3, 2) == ["1 of 3 tests ran", "2 need a GPU"]


def test_explanation_has_a_line_for_each_fix() -> None:
    """The block of a cause names the error, the reason and each change that helps, and is safe to show."""
    given = {"kind": "skew", "what": "2\n2", "why": "too\x1bnew", "suggestion": ["compile\tolder", "install newer"]}
    cause = wording.cause_of(given)
    assert wording.cause_record(cause) == given
    rest = "\nwhy    too\\x1bnew\nfix    compile older\n       install newer"
    assert wording.explanation(cause) == f"error  2 2{rest}"
    assert wording.explanation(cause, 2) == f"error  2 2 (and 2 others){rest}"


def test_verdicts() -> None:
    """An unknown driver is one cause, whatever it was compared with; a missing one is distinguished from others."""
    absent = {"severity": "unknown", "kind": "driver", "what": "nvrtc?", "why": NO_DRIVER}
    silent = {**absent, "why": "error 999"}
    headers = {**silent, "what": "headers?"}
    linked = {"severity": "error", "kind": "linked", "what": "nvrtc?", "why": ""}
    measured = {**linked, "severity": "warning"}
    other = {**linked, "what": "XX"}
    fine = {**linked, "severity": "note"}
    assert [wording.without_driver(state) for state in (absent, silent, linked)] == [True, False, False]
    causes = wording.by_cause([fine, linked, absent, silent, headers, measured, other])
    assert causes == [[linked, measured], [absent], [silent, headers], [other]]
    words = ["insufficient metadata", "incompatible", "incompatible", "compatible"]
    assert [wording.status(state) for state in (absent, linked, measured, fine)] == words
